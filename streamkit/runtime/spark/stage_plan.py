"""The Spark stages of a plan, in topological order: one per sub-topology, or one per cycle of sub-topologies."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from streamkit.errors import InvalidTopologyError
from streamkit.expressions import Expression
from streamkit.operators.codegen.code_writer import ProcessorNode
from streamkit.operators.core.operator import PassThrough, TablePassThrough
from streamkit.operators.steps.aggregations.aggregate_node import StreamAggregate, TableAggregate, WindowAggregate
from streamkit.operators.steps.processors.process import Process, TransformValues
from streamkit.operators.steps.stateless.filter import Filter
from streamkit.operators.steps.stateless.map_values import MapValues, TableMapValues
from streamkit.operators.steps.stateless.peek import Peek
from streamkit.operators.steps.stateless.print import Print
from streamkit.operators.steps.tables.to_stream import ToStream
from streamkit.plan.model import Plan, PlanNode, SinkNode, SourceNode, SubTopology
from streamkit.plan.partitions import Layout
from streamkit.runtime.execution.handlers import FAIL, Handlers


@dataclass(frozen=True)
class Stage:
    """Sub-topologies that run in the same Spark tasks: one task per partition, or a single task for a cycle."""

    number: int
    """Counts from 1, in execution order."""
    subs: tuple[int, ...]
    inputs: tuple[str, ...]
    """Topics on the log that other stages or applications write."""
    outputs: tuple[str, ...]
    """Topics on the log that the stage may write; topics of `route` are known only at run time."""
    tasks: int
    cyclic: bool = False
    """Whether the sub-topologies read topics that they write. Their tasks then share one Spark task and a log in it."""

    def describe(self, pieces: int = 1, is_query: bool = False) -> str:
        """Return a line that describes the stage. pieces: the number of Spark tasks per partition.

        is_query: whether the stage is a query, so that Spark chooses its tasks.
        """
        noun = "sub-topology" if len(self.subs) == 1 else "sub-topologies"
        tasks = "1 task" if self.tasks == 1 else f"{self.tasks} tasks"
        loop = " (a cycle: one task for all partitions)" if self.cyclic else ""
        if pieces > 1:
            loop = f", each cut into {pieces} by key"
        reads, writes = ", ".join(self.inputs) or "nothing", ", ".join(self.outputs) or "nothing"
        how = "" if is_query else f", {tasks}{loop}"
        return f"stage {self.number}: {noun} {', '.join(map(str, self.subs))}{how}: {reads} -> {writes}"


def make_stages(plan: Plan, layout: Layout) -> list[Stage]:
    """Return the stages in the order in which they can run."""
    subs = {sub.id: sub for sub in plan.sub_topologies if not sub.is_global}
    writes = {index: written_topics(plan, sub) for index, sub in subs.items()}
    reads = {index: {*layout.sources[index], *global_topics(plan, sub)} for index, sub in subs.items()}
    after = {
        index: [other for other in subs if any(topic in reads[index] for topic in writes[other])] for index in subs
    }
    stages: list[Stage] = []
    for group in _components(after):
        own = tuple(sorted(group))
        cyclic = len(own) > 1 or own[0] in after[own[0]]
        written = dict.fromkeys(topic for index in own for topic in writes[index])
        sources = dict.fromkeys(topic for index in own for topic in layout.sources[index])
        inputs = tuple(topic for topic in sources if not (cyclic and topic in written and topic in plan.internal_names))
        tasks = 1 if cyclic else sum(1 for index, _ in layout.tasks if index in group)
        stages.append(Stage(len(stages) + 1, own, inputs, tuple(written), tasks, cyclic))
    return stages


def written_topics(plan: Plan, sub: SubTopology) -> tuple[str, ...]:
    """Return the topics on the log that a sub-topology may write, with dead letters but without topics of `route`."""
    topics = [plan.internal_name(topic) for topic in sub.sink_topics]
    return tuple(dict.fromkeys((*topics, *dead_letter_topics(plan, sub))))


def dead_letter_topics(plan: Plan, sub: SubTopology) -> tuple[str, ...]:
    """Return the topics to which a sub-topology may write dead letters."""
    handlers = (node.on_error for node in sub.nodes.values())
    topics = [handler.topic for handler in handlers if handler is not None and handler.topic]
    dead_letters = Handlers.of(plan.config).dead_letter_topic
    return tuple(topics if dead_letters is None else (*topics, dead_letters))


def has_routes(sub: SubTopology) -> bool:
    """Return whether a sub-topology has a `route`, whose topics are chosen per record."""
    return any(isinstance(node, SinkNode) and node.topic is None for node in sub.nodes.values())


def topics_read(plan: Plan) -> tuple[str, ...]:
    """Return the names on the log of the external topics that a plan's sources name."""
    topics = dict.fromkeys(topic for sub in plan.sub_topologies for topic in sub.source_topics)
    return tuple(topic for topic in topics if topic not in plan.internal_topics)


def patterns(plan: Plan) -> list[str]:
    """Return the patterns of a plan's sources."""
    return [node.pattern for node in plan.nodes if isinstance(node, SourceNode) and node.pattern]


def matching(plan: Plan, topic: str) -> bool:
    """Return whether a topic matches a pattern of the plan."""
    return any(re.fullmatch(pattern, topic) for pattern in patterns(plan))


def refuse_clocks(plan: Plan) -> None:
    """Raise InvalidTopologyError, with the step, if the plan reads the wall clock, which a batch job does not have."""
    for node in plan.nodes:
        if isinstance(node, SourceNode):
            clocks = [topic for topic, policy in node.timestamps.items() if policy == "wallclock"]
            if clocks:
                raise InvalidTopologyError(
                    f"{plan.file}: topic {clocks[0]} has `timestamp: wallclock`; a batch job has no clock, so that its "
                    "result does not depend on when it runs"
                )
        if any("now" in expression.names for expression in expressions_of(node)):
            raise InvalidTopologyError(
                f"{where(plan, node)}: now() reads the clock; a batch job has no clock, so that its result does not depend on when it runs"
            )


def refuse_headed_buffers(plan: Plan) -> None:
    """Raise InvalidTopologyError if a checkpoint can't hold the state: of a buffer it holds no headers (dsl.store.format)."""
    for node in plan.nodes:
        buffers = [name for name in node.stores if plan.stores[name].type == "suppress"]
        if buffers and plan.stores[buffers[0]].keeps_headers:
            raise InvalidTopologyError(
                f"{where(plan, node)}: a checkpoint does not hold the headers that the buffer of suppress keeps with "
                "`dsl.store.format: HEADERS`; leave the setting out, or write no checkpoint"
            )


def where(plan: Plan, node: PlanNode) -> str:
    """Return the position in the file from which a node was built, for messages."""
    origin = node.origin
    if origin is None:
        return f"{plan.file}: node {node.name}"
    return origin.place


def global_topics(plan: Plan, sub: SubTopology) -> tuple[str, ...]:
    """Return the topics of the global tables that a sub-topology may read."""
    topics: list[str] = []
    for part in plan.sub_topologies:
        if part.is_global and any(_may_read(node, part.stores) for node in sub.nodes.values()):
            topics += part.source_topics
    return tuple(topics)


def _may_read(node: PlanNode, stores: tuple[str, ...]) -> bool:
    # Python processors may open any global store.
    return isinstance(node.processor, Process | TransformValues) or getattr(node.processor, "store", None) in stores


def expressions_of(value: object, depth: int = 6) -> Iterator[Expression]:
    """Yield the expressions of a node, in its processor, timestamps, routes and partitions."""
    if isinstance(value, Expression):
        yield value
    elif depth and isinstance(value, Mapping):
        for part in value.values():
            yield from expressions_of(part, depth - 1)
    elif depth and isinstance(value, tuple | list):
        for part in value:
            yield from expressions_of(part, depth - 1)
    elif depth and hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from expressions_of(getattr(value, name), depth - 1)


def _components(after: Mapping[int, list[int]]) -> list[list[int]]:
    """Return the strongly connected components of a graph, each after its dependencies (Tarjan)."""
    components: list[list[int]] = []
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []

    def visit(node: int) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in after[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            components.append(stack[at:])
            del stack[at:]

    for node in after:
        if node not in index:
            visit(node)
    return components


_Aggregation = StreamAggregate | TableAggregate | WindowAggregate
_KEEP_KEYS = (Filter, MapValues, PassThrough, Peek, Print)
_ONE_BY_ONE = (MapValues, PassThrough, TableMapValues, TablePassThrough, ToStream)
"""Steps whose result for a change does not depend on earlier changes."""


def table_topics(plan: Plan) -> frozenset[str]:
    """Return the topics to which only one table's changes are written, under the table's own keys.

    If several tables, dead letters or routes write to a topic, earlier records of a key count too.
    """
    writers: dict[str, list[frozenset[str] | None]] = {}
    for sub in plan.sub_topologies:
        routed = has_routes(sub)
        for topic in dead_letter_topics(plan, sub):
            writers.setdefault(topic, []).append(None)
        for node in sub.nodes.values():
            if isinstance(node, SinkNode) and node.topic is not None and not node.internal:
                tables = None if routed else _tables(sub, node.parents)
                writers.setdefault(node.topic, []).append(tables)
    return frozenset(topic for topic, (first, *others) in writers.items() if first and len(first) == 1 and not others)


def _tables(sub: SubTopology, names: Collection[str]) -> frozenset[str] | None:
    """Return the nodes at which tables become the streams that `names` forward with unchanged keys; None if `names` forward others."""
    tables: set[str] = set()
    for name in names:
        node = sub.nodes[name]
        if isinstance(node.processor, ToStream):
            tables.add(name)
            continue
        above = _tables(sub, node.parents) if isinstance(node.processor, _KEEP_KEYS) else None
        if above is None:
            return None
        tables |= above
    return frozenset(tables)


def final_stores(plan: Plan, final: Collection[str]) -> frozenset[str]:
    """Return the stores of aggregations whose changes reach only `final` topics, so that forwarding each key's last change is enough.

    If a step below may skip a failing record, the last record of a key may come from an earlier change than the last.
    """
    handlers = Handlers.of(plan.config)
    if plan.config.statestore_cache_max_bytes <= 0 or handlers.production != FAIL:
        return frozenset()
    names = set()
    for sub in plan.sub_topologies:
        for node in sub.nodes.values():
            processor = node.processor if isinstance(node, ProcessorNode) else None
            if isinstance(node, ProcessorNode) and _forwards_changes(processor) and not _may_skip(node, handlers):
                others = [other for other in sub.nodes.values() if other is not node]
                is_own = not any(processor.store in following.stores for following in others)
                store = plan.stores[processor.store]
                # A store of final changes can't delete a row when its `ttl` ends.
                is_simple = store.type in ("timestamped_key_value", "window") and store.ttl is None
                if is_own and is_simple and all(_only_to(sub, child, final, handlers) for child in node.children):
                    names.add(processor.store)
    return frozenset(names)


def _forwards_changes(processor: object) -> TypeGuard[_Aggregation]:
    """Return whether a processor is an aggregation that forwards each new value at once, without the old one."""
    if not isinstance(processor, StreamAggregate | TableAggregate | WindowAggregate) or processor.send_old:
        return False
    return not getattr(processor, "on_close", False)


def _may_skip(node: ProcessorNode, handlers: Handlers) -> bool:
    """Return whether a record at which a node fails may be dropped instead of ending the job."""
    return (handlers.processing if node.on_error is None else node.on_error.action) != FAIL


def _only_to(sub: SubTopology, name: str, final: Collection[str], handlers: Handlers) -> bool:
    """Return whether a node and its descendants write only to `final` topics, one record for each change."""
    node = sub.nodes[name]
    if isinstance(node, SinkNode):
        return node.topic in final
    if not isinstance(node, ProcessorNode) or not isinstance(node.processor, _ONE_BY_ONE) or node.stores:
        return False
    return not _may_skip(node, handlers) and all(_only_to(sub, child, final, handlers) for child in node.children)
