"""Writes a sub-topology as one Python module: sources are loops over columns, children are inlined depth first."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TypeAlias, Unpack

from streamkit.code import Code, attribute, call, item, literal, method, symbol
from streamkit.compile.listeners import emit_listener
from streamkit.compile.output_growth import holds_back
from streamkit.compile.record_writer import RecordWriter
from streamkit.compile.sinks import emit_sink
from streamkit.expressions import Expression
from streamkit.metrics import DropReason
from streamkit.operators.codegen.code_writer import Changes
from streamkit.operators.codegen.record_variables import RecordVariables, record_of_parameters
from streamkit.operators.core.processor_node import ProcessorNode
from streamkit.plan.model import Plan, PlanNode, SinkNode, SourceNode, SubTopology
from streamkit.serdes.serde import Serde

# Deeper code moves to a function of its own: Python refuses about 100 levels of indentation.
MAX_DEPTH = 30
# Python refuses 20 nested loops and `try` statements.
MAX_NESTED_ATTEMPTS = 8

_Child: TypeAlias = ProcessorNode | SinkNode
_Parent: TypeAlias = SourceNode | ProcessorNode


class Generator(RecordWriter):
    """Writes the code of one sub-topology; the `emit` of processors uses it as its CodeWriter (operators.codegen.code_writer)."""

    def __init__(self, plan: Plan, sub_topology: SubTopology, reached: Counter[str] | None = None):
        super().__init__(plan, sub_topology)
        self.reached = reached
        self._index = {node.name: i for i, node in enumerate(self.nodes)}
        self._functions: dict[tuple[object, ...], Code] = {}
        self._pending: list[tuple[Code, Callable[[Code], None]]] = []
        self._node: PlanNode | None = None
        self._nested_attempts = 0
        self.sinks_by_topic: Mapping[str, str] | None = None
        """Sinks whose records are the output rows of a topic, by that topic; None where latencies are not measured."""

    # -- Used by processors -------------------------------------------------------------------------------------

    def node(self, name: str) -> ProcessorNode:
        """Return a processor node of the sub-topology by its name."""
        node = self.sub_topology.nodes[name]
        assert isinstance(node, ProcessorNode)
        return node

    def index(self, node: PlanNode) -> Code:
        """Return the index of a node in Program.nodes."""
        return literal(self._index[node.name])

    def on_lifecycle(self, moment: str, node: PlanNode, call: Code) -> None:
        """Write a node's call for "init" (stores restored) or "close" (each call once), in the order of nodes."""
        self.at_moment(moment, call, self._index[node.name])

    def charge_record(self, node: PlanNode, value: Code) -> None:
        """Write the charge for one of several records that a record becomes, where the program counts."""
        if self.counts:
            with self.guard(node):
                self.do(method(self.budget(), "row", value))

    @contextmanager
    def guard(self, node: PlanNode | None = None, handler: str = "") -> Iterator[None]:
        """Write lines whose failure is this node's; the rest of the block runs only where they succeed.

        handler: the function that handles a failure; by default `refuse` for a sink, else `fail`.
        """
        node = node or self._node
        assert node is not None
        born = self._count
        with self.attempt() as guarded:
            yield
        if guarded.empty:
            # The bytes are used as they are, which can't fail.
            return
        record = self.record
        key, value = self.failed_value(record.key, born), self.failed_value(record.value, born)
        with self.rescue():
            handler = handler or ("refuse" if isinstance(node, SinkNode) else "fail")
            self.do(call(handler, self.index(node), symbol("e"), key, value, record.time, record.context))
        self._rest("else:")

    def drop(self, reason: DropReason) -> None:
        """Write the counting of a dropped record."""
        self.do(call("dropped", literal(reason.value)))

    def drop_where(self, test: Code, reason: DropReason = DropReason.NULL) -> None:
        """Write the dropping of records for which a condition holds; the rest of the block is the other case."""
        with self.when(test):
            self.drop(reason)
        self._rest("else:")

    def forward(self, node: _Parent, **changes: Unpack[Changes]) -> None:
        """Write the children of a node for the current record, with the parts that `changes` replaces."""
        record = dataclasses.replace(self.record, **changes)
        for name in node.children:
            self.write_child(name, record.copy())

    def forward_to(self, node: _Parent, child: str) -> None:
        """Write one child of a node for the current record."""
        self.write_child(child, self.record.copy())

    def child_function(self, child: str, table: bool = False) -> Code:
        """Return the name of the function that does the work of a node by its name."""
        return self.node_function(self.child(child), table)

    def child(self, name: str) -> _Child:
        """Return a node that other nodes forward to, by its name."""
        child = self.sub_topology.nodes[name]
        assert not isinstance(child, SourceNode)
        return child

    def write_child(self, name: str, record: RecordVariables) -> None:
        """Write the work of a child of a node: in place, or as the call of a function."""
        child = self.child(name)
        if len(child.parents) == 1 and self._depth < MAX_DEPTH and self._nested_attempts < MAX_NESTED_ATTEMPTS:
            self.emit_node(child, record)
        else:
            with self.with_record(record):
                self.call(self.node_function(child, record.is_table), record)

    def call(self, function: Code, record: RecordVariables) -> None:
        """Write a call of a node's or forward function with a record."""
        key, value = self.object_of(record.key), self.object_of(record.value)
        if record.old is not None:
            self.do(call(function, key, value, self.object_of(record.old), record.time, record.context, record.latest))
        else:
            self.do(call(function, key, value, record.time, record.context))

    def node_function(self, node: _Child, table: bool) -> Code:
        """Return the name of a function that does a node's work: (k, v, t, c), for tables (k, v, old, t, c, latest)."""
        return self.deferred_function(
            ("node", node.name, table),
            f"n{self._index[node.name]}",
            lambda name: self._write_node_function(name, node, table),
        )

    def forward_function(self, node: ProcessorNode, table: bool) -> Code:
        """Return the name of a function that forwards a record to all children of a node; signatures as node_function."""
        return self.deferred_function(
            ("forward", node.name, table),
            f"f{self._index[node.name]}",
            lambda name: self._write_forward_function(name, node, table),
        )

    def flush_listener(self, node: ProcessorNode, key_serde: Serde, window: str | None = None) -> Code:
        """Return the name of a listener that forwards the entries that leave a store's cache (state.store_interface.FlushListener).

        `window`: "time" or "session" for the form with start and end; a session's time is its end.
        """
        return self.deferred_function(
            ("listener", node.name),
            f"l{self._index[node.name]}",
            lambda name: emit_listener(self, name, node, key_serde, window),
        )

    def callable_of(self, expression: Expression, parameters: Mapping[str, str], *more: str) -> Code:
        """Return the name of a function of an expression; `parameters` maps the expression's names to the function's.

        The function takes the mapped parameters in order, then those of `more` (t and c: the expression may use
        the names of a context).
        """
        signature = (*parameters.values(), *more)

        def write(name: Code) -> None:
            with self.with_record(record_of_parameters()), self.function(name, *signature):
                result = self.expr(expression, **{each: symbol(name) for each, name in parameters.items()})
                # A kernel may call the function several times for one record.
                self.returns(method(self.budget(), "item", result) if self.counts else result)

        return self.deferred_function(("callable", id(expression), signature), "x", write)

    def deferred_function(self, key: tuple[object, ...], prefix: str, write: Callable[[Code], None]) -> Code:
        """Return the name of a function that `write` writes once, after the current function."""
        if key not in self._functions:
            name = self.var(prefix)
            self._functions[key] = name
            self._pending.append((name, write))
        return self._functions[key]

    def set_node(self, node: ProcessorNode) -> None:
        """Set the node to which failures of the next lines belong."""
        self._node = node

    def emit_node(self, node: _Child, record: RecordVariables) -> None:
        """Write the work of a node for a record, at the current depth."""
        saved = self.record, self._depth, self._node
        self.record, self._node = record, node
        self.comment(node)
        self.count(node)
        if self.sinks_by_topic is not None and (isinstance(node, SinkNode) or not node.children):
            self.note_latency(node, self.sinks_by_topic)
        if isinstance(node, SinkNode):
            emit_sink(node, self)
        else:
            with self._attempt_above_sinks(node):
                node.processor.emit(node, self)
        self.fill_empty()
        self.record, self._depth, self._node = saved

    @contextmanager
    def _attempt_above_sinks(self, node: ProcessorNode) -> Iterator[None]:
        """Write the work of a node, which ends where a sink directly below it refuses a record."""
        if not any(isinstance(self.sub_topology.nodes[child], SinkNode) for child in node.children):
            yield
            return
        record, born = self.record, self._count
        self._nested_attempts += 1
        with self.attempt():
            yield
            self.fill_empty()
        self._nested_attempts -= 1
        key, value = self.failed_value(record.key, born), self.failed_value(record.value, born)
        with self.block("except RefusedError as e:"):
            self.do(call("fail", self.index(node), symbol("e"), key, value, record.time, record.context))

    def comment(self, node: PlanNode) -> None:
        """Write a comment with the node and the step that the next lines belong to."""
        origin = (
            f"  ({node.origin.pipeline}: {node.origin.step}, line {node.origin.position.line})" if node.origin else ""
        )
        self.line(f"# {node.name}{origin}")

    def count(self, node: PlanNode) -> None:
        """Write the counting of a record that reaches a node, for `--coverage` only, never in an application."""
        if self.reached is not None:
            self.namespace["reached"] = self.reached
            self.add_to(item(symbol("reached"), node.name), literal(1))

    def note_latency(self, node: _Child, sinks: Mapping[str, str]) -> None:
        """Write the noting of a record's timestamp at a terminal node, for its end-to-end latency (KIP-613).

        Nothing is noted at the sinks of `sinks`: the rows that they write have the timestamps.
        """
        if node.name in sinks.values():
            return
        times = method(symbol("rt"), "times_at", literal(node.name))
        self.do(call(self.prologue(("latency", node.name), "ended", attribute(times, "append")), self.record.time))

    # -- Deferred functions -------------------------------------------------------------------------------------

    def emit_pending(self) -> None:
        """Write every deferred function, until none defers another."""
        while self._pending:
            name, write = self._pending.pop(0)
            saved, self._depth, self._nested_attempts = self._depth, 1, 0
            write(name)
            self.fill_empty()
            self._depth = saved

    def _write_node_function(self, name: Code, node: _Child, table: bool) -> None:
        record = record_of_parameters(table)
        with self.function(name, *_parameters(table)):
            self.write_body(node, record)

    def write_body(self, node: _Child, record: RecordVariables) -> None:
        """Write the body of a node's function."""
        if len(node.parents) > 1:
            with self.with_record(record):
                self.charge_record(node, self.object_of(record.value))
        self.emit_node(node, record)

    def _write_forward_function(self, name: Code, node: ProcessorNode, table: bool) -> None:
        with self.function(name, *_parameters(table)):
            self.record, self._node = record_of_parameters(table), node
            with self.separate_budget() if holds_back(node.processor) else nullcontext():
                self.forward(node)


def _parameters(table: bool) -> tuple[str, ...]:
    return ("k", "v", "old", "t", "c", "latest") if table else ("k", "v", "t", "c")
