"""Decides whether a program counts the size of its results: whether expressions can make one record much larger.

The bound is computed along the nodes: at each node, by which factor a record can have grown since it was read.
Most topologies stay far below the limits; their programs count nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from streamkit.expressions import Expression
from streamkit.expressions.expression import MOST_BYTES, MOST_TIMES, MOST_WORK, Growth
from streamkit.operators.core.value_getters import Getter
from streamkit.operators.steps.stateless.flat_map import FlatMap
from streamkit.operators.steps.stateless.flat_map_values import FlatMapValues
from streamkit.operators.steps.tables.suppress import Suppress
from streamkit.plan.model import PlanNode, SinkNode, SourceNode, SubTopology

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
        node, found = nodes[name], Reach()
        if isinstance(node, SourceNode):
            found.times = 1.0
        for parent in getattr(node, "parents", ()):
            if parent in reached:
                found.add(reached[parent])
        reached[name] = passed = _after(node, found)
        if passed.times > most_times or passed.more > min(MOST_BYTES, max_bytes) or passed.work > most_work:
            return True
    return False


def _after(node: PlanNode, reach: Reach) -> Reach:
    """Return the output of a node."""
    inside = [] if isinstance(node, SourceNode) else list(_growths(node))
    if isinstance(node, SourceNode):
        inside = [each.growth for each in node.timestamps.values() if isinstance(each, Expression)]
    times, more, work = 1.0, 0.0, 0.0
    for growth in inside:
        times = max(times, _times(growth, reach.many))
        more += growth.constant if not growth.is_none else 0.0
        work += growth.work if not growth.is_none else 0.0
        if any(growth.size.get(name, 0.0) > 1 for name in _STORED):
            # A stored value may have any size already.
            times = float("inf")
    processor = getattr(node, "processor", None)
    times *= _windows(processor) if inside else 1.0
    return Reach(
        reach.times * times,
        reach.more * times + more,
        reach.work + reach.times * work,
        reach.many or isinstance(processor, (FlatMap, FlatMapValues)),
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


def _growths(node: PlanNode) -> Iterator[Growth]:
    """Yield the bounds of a node's expressions; the expressions of a lookup count as one."""
    yield from _within(getattr(node, "processor", node))


def _within(thing: object) -> Iterator[Growth]:
    if isinstance(thing, Expression):
        yield thing.growth
    elif isinstance(thing, Getter):
        yield _looked_up(thing)
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
