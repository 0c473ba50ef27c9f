"""Finds what the program of a sub-topology needs: the full context, counted expressions, and records in the order of their arrival."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from streamkit.expressions import Expression
from streamkit.expressions.expression import MOST_BYTES, MOST_TIMES, MOST_WORK, Growth
from streamkit.operators.core.value_getters import Getter
from streamkit.operators.steps.stateless.flat_map import FlatMap
from streamkit.operators.steps.stateless.flat_map_values import FlatMapValues
from streamkit.operators.steps.tables.suppress import Suppress
from streamkit.plan.model import PlanNode, SinkNode, SourceNode, SubTopology


def needs_context(nodes: Iterable[PlanNode]) -> bool:
    """Return whether any node reads topic, partition or offset, so that the context must have them."""
    for node in nodes:
        if isinstance(node, SourceNode):
            continue
        inside = node if node.processor is None else node.processor
        if getattr(inside, "needs_context", False):
            return True
        if any(names & {"topic", "partition", "offset"} for names in _names_in(inside)):
            return True
    return False


def _names_in(part: object) -> Iterator[frozenset[str]]:
    names = getattr(part, "names", None)
    if isinstance(names, frozenset):
        yield names
    elif isinstance(part, tuple):
        for item in part:
            yield from _names_in(item)
    elif dataclasses.is_dataclass(part) and not isinstance(part, type):
        for field in dataclasses.fields(part):
            if field.name != "origin":
                yield from _names_in(getattr(part, field.name))


# Finds whether a node may hold records back: what follows from them must not mix with what follows from other nodes.


def mixes_order(sub_topology: SubTopology, name: str) -> bool:
    """Return whether nodes below one share a child, a store or a topic with nodes that are not below it, or a store with it.

    If they do, the order of records there would depend on how long the node holds records back.
    """
    nodes = sub_topology.nodes
    below = _below(sub_topology, name)
    others = [node for other, node in nodes.items() if other not in below]
    mine = [node for other, node in nodes.items() if other in below]
    if any(parent not in below for node in mine if node.name != name for parent in node.parents):
        return True
    held, rest = _stores([nodes[name]]), _stores([node for node in mine if node.name != name])
    if (held | rest) & _stores(others) or held & rest:
        return True
    written, elsewhere = _topics(mine), _topics(others)
    # A topic that an expression gives may be any.
    if None in written | elsewhere:
        return bool(written and elsewhere)
    return bool(written & elsewhere)


def _below(sub_topology: SubTopology, name: str) -> set[str]:
    """Return a node and all nodes that its records reach."""
    reached, pending = {name}, [name]
    while pending:
        node = sub_topology.nodes[pending.pop()]
        children = () if isinstance(node, SinkNode) else node.children
        pending += [child for child in children if child not in reached]
        reached.update(children)
    return reached


def _stores(nodes: list[PlanNode]) -> set[str]:
    return {store for node in nodes for store in node.stores}


def _topics(nodes: list[PlanNode]) -> set[str | None]:
    return {node.topic for node in nodes if isinstance(node, SinkNode)}


# Decides whether a program counts the size of its results: whether expressions can make one record much larger.
#
# The bound is computed along the nodes: at each node, by which factor a record can have grown since it was read.
# Most topologies stay far below the limits; their programs count nothing.


_RECORD = 1 << 20
"""Bytes of a record that is large for Kafka: its default for `message.max.bytes`."""
_STORED = frozenset(("aggregate",))
"""Names of values that come from a store, which may grow with each record."""


@dataclass
class Reach:
    """The output of one record that reaches a node: a factor of its size, further bytes, and work for each unit of its size."""

    times: float = 0.0
    more: float = 0.0
    work: float = 0.0
    many: bool = False
    """Whether a node above makes several records of one."""

    def add(self, other: Reach) -> None:
        """Add the output that arrives on another path."""
        self.times += other.times
        self.more += other.more
        self.work = max(self.work, other.work)
        self.many = self.many or other.many


def counts(sub_topology: SubTopology, max_bytes: int, max_steps: int) -> bool:
    """Return whether a sub-topology's program has to count the results of its expressions.

    max_bytes, max_steps: the settings `expression.max.bytes` and `expression.max.steps`; low ones lower the limits.
    """
    most_times = min(MOST_TIMES, max(1.0, max_bytes / _RECORD))
    most_work = min(MOST_WORK, max(1.0, max_steps / _RECORD))
    nodes = sub_topology.nodes
    reached: dict[str, Reach] = {}
    for name in _in_order(nodes):
        node, reach = nodes[name], Reach()
        if isinstance(node, SourceNode):
            reach.times = 1.0
        for parent in node.parents:
            if parent in reached:
                reach.add(reached[parent])
        reached[name] = passed = _after(node, reach)
        if passed.times > most_times or passed.more > min(MOST_BYTES, max_bytes) or passed.work > most_work:
            return True
    return False


def _after(node: PlanNode, reach: Reach) -> Reach:
    """Return the output of a node."""
    if isinstance(node, SourceNode):
        inside = [extractor.growth for extractor in node.timestamps.values() if isinstance(extractor, Expression)]
    else:
        inside = list(_within(node if node.processor is None else node.processor))
    times, more, work = 1.0, 0.0, 0.0
    for growth in inside:
        times = max(times, _times(growth, reach.many))
        more += growth.constant if not growth.is_none else 0.0
        work += growth.work if not growth.is_none else 0.0
        if any(growth.size.get(name, 0.0) > 1 for name in _STORED):
            # A stored value may have any size already.
            times = float("inf")
    times *= _windows(node.processor) if inside else 1.0
    return Reach(
        reach.times * times,
        reach.more * times + more,
        reach.work + reach.times * work,
        reach.many or isinstance(node.processor, (FlatMap, FlatMapValues)),
    )


def holds_back(processor: object) -> bool:
    """Return whether a node forwards earlier records that it held back, and not the current one."""
    own = getattr(processor, "on_close", False) or getattr(processor, "holds_records", False)
    return isinstance(processor, Suppress) or bool(own)


def _times(growth: Growth, many: bool) -> float:
    if not many:
        return growth.factor
    # The constants of the expression are part of each of many records, which may have a single character.
    others = any(size for name, size in growth.size.items() if name != "value")
    return float("inf") if others and not growth.is_none else growth.factor + growth.constant / 2


def _windows(processor: object) -> float:
    """Return the number of windows that one record may belong to."""
    windows = getattr(processor, "windows", None)
    size, advance = getattr(windows, "size", 0), getattr(windows, "advance", 0)
    return size / advance if size and advance and size > advance else 1.0


def _within(part: object) -> Iterator[Growth]:
    """Yield the bounds of the expressions in a part of a node; the expressions of a lookup count as one."""
    if isinstance(part, Expression):
        yield part.growth
    elif isinstance(part, Getter):
        yield _looked_up(part)
    elif isinstance(part, tuple):
        for item in part:
            yield from _within(item)
    elif isinstance(part, Mapping):
        for item in part.values():
            yield from _within(item)
    elif dataclasses.is_dataclass(part) and not isinstance(part, type):
        for field in dataclasses.fields(part):
            if field.name not in ("origin", "on_error"):
                yield from _within(getattr(part, field.name))


def _looked_up(getter: Getter) -> Growth:
    """Return the bounds of the result of a lookup, whose expressions are applied one to the result of the other."""
    times, more, work = 1.0, 0.0, 0.0
    for field in dataclasses.fields(getter):
        part = getattr(getter, field.name)
        for growth in _within(part) if isinstance(part, (Getter, Expression)) else ():
            times *= max(growth.factor, 1.0)
            more += growth.constant
            work += growth.work
    return Growth({"value": times}, more, work * times)


def _in_order(nodes: Mapping[str, PlanNode]) -> list[str]:
    """Return the names of nodes, parents before their children."""
    waiting = {name: sum(1 for parent in node.parents if parent in nodes) for name, node in nodes.items()}
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
