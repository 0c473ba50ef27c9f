"""The fields of a topic's values that a plan uses, so that Spark reads no other columns."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TypeAlias

from streamkit.expressions import Expression
from streamkit.expressions.syntax import Source
from streamkit.operators.codegen.code_writer import ProcessorNode
from streamkit.operators.core.operator import PassThrough, RepartitionFilter
from streamkit.operators.steps.aggregations.aggregate_node import StreamAggregate, WindowedAggregate
from streamkit.operators.steps.extensions.assertion import Assert
from streamkit.operators.steps.extensions.log import Log
from streamkit.operators.steps.extensions.set_timestamp import SetTimestamp
from streamkit.operators.steps.joins.stream_table_join import StreamGlobalJoin, StreamTableJoin
from streamkit.operators.steps.stateless.branch import Branch
from streamkit.operators.steps.stateless.filter import Filter
from streamkit.operators.steps.stateless.flat_map import FlatMap
from streamkit.operators.steps.stateless.flat_map_values import FlatMapValues
from streamkit.operators.steps.stateless.map import Map
from streamkit.operators.steps.stateless.map_values import MapValues
from streamkit.operators.steps.stateless.peek import Peek
from streamkit.operators.steps.stateless.select_key import SelectKey
from streamkit.operators.steps.stateless.set_headers import SetHeaders
from streamkit.plan.model import Plan, PlanNode, SinkNode, SourceNode, SubTopology
from streamkit.runtime.spark.stage_plan import dead_letter_topics, expressions_of

Fields: TypeAlias = frozenset[str] | None
"""Names of fields; None if all fields may be used."""
_NONE: frozenset[str] = frozenset()
_FORWARD = (Assert, Branch, Filter, Log, PassThrough, Peek, RepartitionFilter, SelectKey, SetHeaders, SetTimestamp)
"""Steps that forward the value of a record unchanged."""
_REPLACE = (FlatMap, FlatMapValues, MapValues)
"""Steps that use the value only in their expressions, and forward another one."""
_AGGREGATE = (StreamAggregate, WindowedAggregate)


def fields_read(plan: Plan, topic: str) -> Fields:
    """Return the fields of the objects in a topic that the steps of a plan use; None if they may use all.

    A value that is written, stored, or passed to a function of Python counts as used as a whole.
    """
    writes_records = any(dead_letter_topics(plan, sub) for sub in plan.sub_topologies)
    # The limit applies to the records between steps too.
    return None if writes_records or plan.config.max_request_size is not None else _Reader(plan).of_topic(topic)


class _Reader:
    """Follows the values of topics through the sub-topologies that read them."""

    def __init__(self, plan: Plan):
        self._plan = plan
        self._following: set[str] = set()

    def of_topic(self, topic: str) -> Fields:
        """Return the fields that are used of the values of a topic, which is given by its name on the log."""
        if topic in self._following:
            return None
        self._following.add(topic)
        nodes = [(sub, node) for sub in self._plan.sub_topologies for node in sub.nodes.values()]
        sources = [(sub, node) for sub, node in nodes if isinstance(node, SourceNode)]
        if any(node.pattern is not None for _, node in sources):
            return None
        sets = [self._of_source(sub, node, topic) for sub, node in sources if topic in self._topics(node)]
        self._following.discard(topic)
        return union(sets)

    def _topics(self, node: SourceNode) -> dict[str, str]:
        return {self._plan.internal_name(topic): topic for topic in node.topics}

    def _of_source(self, sub: SubTopology, node: SourceNode, topic: str) -> Fields:
        _, serde = node.topic_serdes.get(self._topics(node)[topic], (node.key_serde, node.value_serde))
        if node.value_kind != "plain" or serde.spec != "json":
            return None
        own = (used(expression, "value") for expression in expressions_of(node.timestamps))
        return union((*own, *(self._of_node(sub, sub.nodes[name]) for name in node.children)))

    def _of_node(self, sub: SubTopology, node: PlanNode) -> Fields:
        if isinstance(node, SinkNode):
            if not node.internal or node.topic is None or node.value_kind != "plain" or node.value_serde.spec != "json":
                return None
            partition = _NONE if node.partition is None else used(node.partition, "value")
            return union((partition, self.of_topic(self._plan.internal_name(node.topic))))
        if not isinstance(node, ProcessorNode):
            return None
        processor = node.processor
        if isinstance(processor, StreamTableJoin | StreamGlobalJoin):
            # A buffer keeps values until they are joined.
            if isinstance(processor, StreamTableJoin) and processor.buffer is not None:
                return None
            names = ("left", "value")
            return union(used(expression, name) for expression in _own_expressions(processor) for name in names)
        own = [used(expression, "value") for expression in _own_expressions(processor)]
        replaces = isinstance(processor, _REPLACE) or (isinstance(processor, Map) and processor.value is not None)
        # `reduce` begins with the first value, and `top` keeps values.
        if isinstance(processor, _AGGREGATE) and processor.aggregation.kind in ("count", "aggregate"):
            replaces = True
        if replaces:
            return union(own)
        if not isinstance(processor, (*_FORWARD, Map)):
            return None
        return union((*own, *(self._of_node(sub, sub.nodes[name]) for name in node.children)))


def _own_expressions(processor: object) -> list[Expression]:
    """Return the expressions of a processor itself: those of a table that it looks up belong to the table."""
    if isinstance(processor, StreamTableJoin):
        return [processor.value]
    return list(expressions_of(processor))


def union(sets: Iterable[Fields]) -> Fields:
    """Return the fields that are in any of several sets; None if all fields are in one."""
    fields = _NONE
    for names in sets:
        if names is None:
            return None
        fields |= names
    return fields


def used(expression: Expression, name: str) -> Fields:
    """Return the fields that an expression uses of an object of a record, such as `value`; None if it may use all."""
    if expression.called is not None:
        return None
    if name not in expression.names:
        return _NONE
    tree = Source(expression.text, expression.position).parse([])
    if tree is None:
        return None
    finder = _Finder(name)
    finder.visit(tree)
    return None if finder.is_whole else frozenset(finder.fields)


class _Finder(ast.NodeVisitor):
    """Notes the fields of an object that an expression names. Every other use of the object is one as a whole."""

    def __init__(self, name: str):
        self._name = name
        self.fields: set[str] = set()
        self.is_whole = False

    def visit_Name(self, node: ast.Name) -> None:
        self.is_whole = self.is_whole or node.id == self._name

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if self._is_object(node.value):
            self.fields.add(node.attr)
        else:
            self.visit(node.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        name = _text(node.slice)
        if self._is_object(node.value) and name is not None:
            self.fields.add(name)
        else:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Note `value.get("name", DEFAULT)`; other methods of the object use it as a whole."""
        if not (isinstance(node.func, ast.Attribute) and self._is_object(node.func.value)):
            self.generic_visit(node)
            return
        name = _text(node.args[0]) if node.func.attr == "get" and node.args and not node.keywords else None
        if name is None:
            self.is_whole = True
            return
        self.fields.add(name)
        for arg in node.args[1:]:
            self.visit(arg)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Note `value is None`, which uses no field."""
        is_none = isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value is None
        if (
            self._is_object(node.left)
            and len(node.ops) == 1
            and isinstance(node.ops[0], ast.Is | ast.IsNot)
            and is_none
        ):
            return
        self.generic_visit(node)

    def _is_object(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id == self._name


def _text(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
