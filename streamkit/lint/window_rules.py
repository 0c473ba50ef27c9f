"""Rules about windows: those of keys in topics, and their grace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamkit.graph.node import StepRef
from streamkit.lint.rule import Place, Rule, Subject
from streamkit.operators.core.processor_node import ProcessorNode
from streamkit.operators.core.window_definitions import SessionWindows, TimeWindows
from streamkit.operators.steps.aggregations.aggregate_node import SessionAggregate, SlidingAggregate, WindowAggregate
from streamkit.operators.steps.joins.stream_stream_join import SelfJoin, StreamStreamJoin
from streamkit.plan.model import ExternalTopic, InternalTopic, Plan, PlanNode, SinkNode, SourceNode
from streamkit.serdes.formats.windowed import SessionWindowedSerde, TimeWindowedSerde
from streamkit.serdes.serde import Serde

_HEAD = "streamkit: 1\napplication: example\nconfig: {statestore.cache.max.bytes: 0}\n"
_PIPELINE = """\
pipelines:
  counts:
    stream: in
    steps: [group_by_key, {window: {tumbling: 5m, grace: 0}}, count: counts, to_stream]
    to: out
"""

_LATE = """\
streamkit: 1
application: example
config: {statestore.cache.max.bytes: 0}
topics: {in: {value: string}, out: {key: {windowed: string, size: 5m}, value: long}}
pipelines:
  counts:
    stream: in
    steps: [group_by: {key: value, name: words}, window: {tumbling: 5m, grace: %s}, count: counts, to_stream]
    to: out
"""


def _sizes(subject: Subject) -> Iterable[Place]:
    for sub in subject.plan.sub_topologies:
        for node in sub.nodes.values():
            if not isinstance(node, SinkNode) or node.origin is None:
                continue
            for parent in node.parents:
                message = _difference(sub.nodes[parent], node)
                if message is not None:
                    yield node.origin.position, message


def _difference(parent: PlanNode, sink: SinkNode) -> str | None:
    """Return how the keys that a node forwards differ from those that the sink's topic declares; None where they do not."""
    given: Serde | None = getattr(parent, "key_serde", None)
    declared = sink.key_serde
    if isinstance(given, TimeWindowedSerde) and isinstance(declared, TimeWindowedSerde):
        if given.size == declared.size:
            return None
        return (
            f"windows of {given.size} ms are written to {sink.target}, whose entry has size: {declared.size}ms; records hold only "
            "the start of their window, so that readers of the entry take another end"
        )
    kinds = {SessionWindowedSerde: "sessions", TimeWindowedSerde: "windows of one size"}
    names = [next((name for kind, name in kinds.items() if isinstance(each, kind)), None) for each in (given, declared)]
    if None in names or names[0] == names[1]:
        return None
    return f"{names[0]} are written to {sink.target}, whose entry declares {names[1]}"


def _short_graces(subject: Subject) -> Iterable[Place]:
    for sub in subject.plan.sub_topologies:
        # Both sides of a join have its stream time, as all inputs of a cogroup have one result.
        found: dict[StepRef, str] = {}
        for node in sub.nodes.values():
            if not isinstance(node, ProcessorNode) or node.origin is None or node.origin in found:
                continue
            width, grace = _times(node)
            topic = _repartition_above(sub.nodes, node) if grace < width else None
            if topic is not None and not _has_one_task(subject.plan, topic):
                found[node.origin] = (
                    f"{node.origin.step} has a grace of {grace:,} ms, less than its windows of {width:,} ms, and reads the "
                    f"repartition topic {topic}: while the partitions before it catch up at different speeds, those ahead make "
                    "the records of the others late, and late records are dropped; write a grace as long as one may be ahead"
                )
        for origin, message in found.items():
            yield origin.position, message


def _times(node: ProcessorNode) -> tuple[int, int]:
    """Return the width of a node's windows and their grace, in ms; twice 0 for a node without windows."""
    work = node.processor
    if isinstance(work, StreamStreamJoin | SelfJoin):
        return work.before + work.after, work.grace
    if not isinstance(work, WindowAggregate | SlidingAggregate | SessionAggregate):
        return 0, 0
    windows = work.windows
    if isinstance(windows, TimeWindows):
        return windows.size, windows.grace
    return windows.gap if isinstance(windows, SessionWindows) else windows.difference, windows.grace


def _repartition_above(nodes: Mapping[str, PlanNode], start: ProcessorNode) -> str | None:
    """Return the repartition topic from which records reach a node, None where there is none."""
    waiting, seen = list(start.parents), set[str]()
    while waiting:
        name = waiting.pop()
        node = nodes[name]
        if name in seen:
            continue
        seen.add(name)
        if isinstance(node, SourceNode):
            if node.internal and node.value_kind == "plain":
                return node.topics[0]
        else:
            waiting.extend(node.parents)
    return None


def _has_one_task(plan: Plan, topic: str) -> bool:
    """Return whether the topics before a repartition topic are declared with one partition, so that one task writes it."""
    sources = [
        source
        for sub in plan.sub_topologies
        if any(isinstance(node, SinkNode) and node.topic == topic for node in sub.nodes.values())
        for source in sub.nodes.values()
        if isinstance(source, SourceNode)
    ]
    topics: dict[str, ExternalTopic | InternalTopic] = {**plan.external_topics, **plan.internal_topics}
    return all(
        source.pattern is None and all(name in topics and topics[name].partitions == 1 for name in source.topics)
        for source in sources
    )


RULES = (
    Rule(
        "window-size",
        "A topic of windowed keys whose declared `size`, or kind of window, is not that of the windows written to it.",
        "A record holds the start of its window only. A reader of the topic by the entry gets windows with another end; Kafka "
        "Streams does not check it either.",
        _HEAD + "topics: {in: {value: string}, out: {key: {windowed: string, size: 1m}, value: long}}\n" + _PIPELINE,
        _HEAD + "topics: {in: {value: string}, out: {key: {windowed: string, size: 5m}, value: long}}\n" + _PIPELINE,
        _sizes,
        is_mistake=True,
    ),
    Rule(
        "short-grace",
        "A windowed aggregation, or a join of streams, behind a repartition, whose `grace` is shorter than its windows.",
        "A repartition topic has the records of all partitions before it, as they arrive. After a standstill one of these is read "
        "hours ahead of another: stream time is that of the first, and the records of the other are late and dropped, in Kafka "
        "Streams too. The grace decides how far ahead a partition may be, and one partition needs none; `status` shows the share of late records by task.",
        _LATE % "10s",
        _LATE % "1h",
        _short_graces,
    ),
)
