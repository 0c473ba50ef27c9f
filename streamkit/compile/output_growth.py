"""Decides whether a program charges each result: whether its steps together can make one record much larger.

The bound is computed along the nodes: at each node, by which factor a record can have grown since it was read.
Most topologies stay far below the limit. An expression that alone makes much of little charges the budget in any program
(expressions.translate).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from math import inf, prod

from streamkit.expressions import Expression
from streamkit.operators.core.value_getters import Getter
from streamkit.operators.steps.stateless.flat_map import FlatMap
from streamkit.operators.steps.stateless.flat_map_values import FlatMapValues
from streamkit.operators.steps.tables.suppress import Suppress
from streamkit.plan.model import PlanNode, SinkNode, SourceNode, SubTopology

_MOST_TIMES = 32
"""How many times as large as a record's input its values may be without being charged."""
_RECORD = 1 << 20
"""Bytes of a record that is large for Kafka: its default for `message.max.bytes`."""
_STORED = "aggregate"
"""The name of values that come from a store, which may grow with each record."""
_CONSTANT = 64
"""Characters of an expression that make each of many records as much larger as its input is."""


def counts(sub_topology: SubTopology, max_bytes: int, max_steps: int) -> bool:
    """Return whether a sub-topology's program has to charge the results of its expressions.

    max_bytes, max_steps: the settings `expression.max.bytes` and `expression.max.steps`; low ones lower the limit.
    """
    most = min(_MOST_TIMES, max(1.0, min(max_bytes, max_steps) / _RECORD))
    nodes = sub_topology.nodes
    reached: dict[str, float] = {}
    many: set[str] = set()
    for name in _in_order(nodes):
        node = nodes[name]
        parents = [each for each in getattr(node, "parents", ()) if each in reached]
        is_many = not many.isdisjoint(parents)
        reached[name] = (
            sum(reached[each] for each in parents) * _times(node, is_many) if parents else _times(node, False)
        )
        if is_many or isinstance(getattr(node, "processor", None), (FlatMap, FlatMapValues)):
            many.add(name)
        if reached[name] > most:
            return True
    return False


def draws(sub_topology: SubTopology) -> bool:
    """Return whether an expression of a sub-topology charges the budget in any program."""
    return any(each.draws for node in sub_topology.nodes.values() for each in _expressions(node))


def _times(node: PlanNode, many: bool) -> float:
    """Return how many times as large as what reaches a node the results of one record may be.

    many: whether a node above makes several records of one.
    """
    processor = getattr(node, "processor", None)
    if many and isinstance(processor, (FlatMap, FlatMapValues)):
        return inf
    times = 1.0
    for group in _groups(node):
        times = max(times, prod(_growth(each, many) for each in group))
    return times * _windows(processor)


def _growth(expression: Expression, many: bool) -> float:
    times = expression.times
    if times.get(_STORED, 0.0) > 1:
        # A stored value may have any size already.
        return inf
    if not many or expression.result_kind in ("int", "float", "bool"):
        return max(sum(times.values()), 1.0)
    # Each of many records, which may have a single character, has a copy of the constants, and of what is not its value.
    return inf if times.keys() - {"value"} else max(times.get("value", 0.0), 1.0) + len(expression.text) // _CONSTANT


def holds_back(processor: object) -> bool:
    """Return whether a node forwards earlier records that it held back, and not the current one."""
    own = getattr(processor, "on_close", False) or getattr(processor, "holds_records", False)
    return isinstance(processor, Suppress) or bool(own)


def _windows(processor: object) -> float:
    """Return the number of windows that one record may belong to."""
    windows = getattr(processor, "windows", None)
    size, advance = getattr(windows, "size", 0), getattr(windows, "advance", 0)
    return size / advance if size and advance and size > advance else 1.0


def _expressions(node: PlanNode) -> Iterator[Expression]:
    for group in _groups(node):
        yield from group


def _groups(node: PlanNode) -> Iterator[list[Expression]]:
    """Yield the expressions of a node; those of a lookup are applied one to the result of the other, and come together."""
    if isinstance(node, SourceNode):
        yield from ([each] for each in node.timestamps.values() if isinstance(each, Expression))
    else:
        yield from _within(getattr(node, "processor", node))


def _within(thing: object) -> Iterator[list[Expression]]:
    if isinstance(thing, Expression):
        yield [thing]
    elif isinstance(thing, Getter):
        yield list(_looked_up(thing))
    elif isinstance(thing, tuple):
        for each in thing:
            yield from _within(each)
    elif isinstance(thing, Mapping):
        for each in thing.values():
            yield from _within(each)
    elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        for field in dataclasses.fields(thing):
            if field.name not in ("origin", "on_error"):
                yield from _within(getattr(thing, field.name))


def _looked_up(getter: Getter) -> Iterator[Expression]:
    for field in dataclasses.fields(getter):
        part = getattr(getter, field.name)
        for group in _within(part) if isinstance(part, (Getter, Expression)) else ():
            yield from group


def _in_order(nodes: Mapping[str, PlanNode]) -> list[str]:
    """Return the names of nodes, parents before their children."""
    waiting = {name: sum(1 for each in getattr(node, "parents", ()) if each in nodes) for name, node in nodes.items()}
    ready = [name for name, count in waiting.items() if not count]
    ordered: list[str] = []
    while ready:
        name = ready.pop()
        ordered.append(name)
        node = nodes[name]
        for child in () if isinstance(node, SinkNode) else node.children:
            waiting[child] -= 1
            if not waiting[child]:
                ready.append(child)
    return ordered
