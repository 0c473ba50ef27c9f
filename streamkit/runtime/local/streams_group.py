"""What an instance says to a streams group, and makes of its answers (KIP-1071): StreamThread.initBrokerTopology."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from streamkit.errors import InvalidTopologyError, TransportError
from streamkit.hashing import hash_order
from streamkit.plan.model import Plan, PlanNode, SinkNode, SourceNode, SubTopology
from streamkit.plan.partitions import groups_on_log, source_topics
from streamkit.record import TaskId, TopicPartition
from streamkit.runtime.local.internal_topics import TopicsOnLog
from streamkit.runtime.local.local_task import RUNNING
from streamkit.runtime.local.subscription_codec import (
    Assignment,
    InstanceMetadata,
    decode_subscription,
    encode_assignment,
)
from streamkit.state.definitions import changelog_config
from streamkit.transport.log_interface import (
    DescribedNode,
    DescribedTopology,
    NewTopic,
    NodeKind,
    StreamsAssignment,
    StreamsInstance,
    StreamsTopology,
    SubTopologyTopics,
)

Ends = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]


def streams_topology(
    plan: Plan,
    topics: TopicsOnLog,
    changelogs: Mapping[TaskId, Sequence[TopicPartition]],
    ends: Ends,
    rebalance_timeout_ms: int,
) -> StreamsTopology:
    """Return what a member of the application's streams group needs.

    changelogs: of tasks with state; ends: returns the ends of partitions. Raises InvalidTopologyError for sources by pattern.
    """

    def instance(subscription: bytes) -> StreamsInstance:
        """Turn what the leader of a classic group gets into what a streams group gets."""
        decoded = decode_subscription(subscription)
        sums = {
            task: offset for task, offset in decoded.offset_sums.items() if offset != RUNNING and task in changelogs
        }
        return StreamsInstance(
            decoded.process,
            rebalance_timeout_ms,
            decoded.server,
            decoded.threads,
            decoded.tags,
            offset_sums=sums,
            end_offset_sums=_end_sums({task: changelogs[task] for task in sums}, ends),
            end=decoded.end,
        )

    return StreamsTopology(
        group_topics(plan),
        topics.partitions_of,
        instance,
        partial(_encode, plan.config.application_server, topics),
        described_topology(plan) if plan.config.topology_description_push_enabled else None,
    )


def group_topics(plan: Plan) -> dict[int, SubTopologyTopics]:
    """Return the topics of each sub-topology that has tasks. Raises InvalidTopologyError for sources by pattern."""
    return {sub.id: _topics(plan, sub) for sub in plan.sub_topologies if not sub.is_global}


def _topics(plan: Plan, sub: SubTopology) -> SubTopologyTopics:
    """Return the topics of a sub-topology as Kafka Streams names them: members of one group must say the same."""
    pattern = next((node for node in sub.nodes.values() if isinstance(node, SourceNode) and node.pattern), None)
    if pattern is not None:
        raise InvalidTopologyError(
            f"{pattern.name} reads topics by a pattern, which streams groups do not support; write `group.protocol: classic`"
        )
    internal = {plan.internal_name(name): topic for name, topic in plan.internal_topics.items()}
    sources = set(source_topics(plan, sub, {}))
    replicas = plan.config.replication_factor
    repartitions = tuple(
        NewTopic(name, internal[name].partitions or 0, internal[name].config, replicas)
        for name in sorted(sources & internal.keys())
    )
    sinks = {plan.internal_name(topic) for topic in sub.sink_topics}
    return SubTopologyTopics(
        tuple(sorted(sources - internal.keys())),
        tuple(sorted(sinks & internal.keys())),
        repartitions,
        _changelogs(plan, sub),
        tuple(tuple(hash_order(group, copied=False)) for group in groups_on_log(plan, {}) if group <= sources),
    )


def _changelogs(plan: Plan, sub: SubTopology) -> tuple[NewTopic, ...]:
    """Return the topics that stores are restored from, source topics among them."""
    defaults = plan.config.topic_defaults()
    additional = plan.config.windowstore_changelog_additional_retention_ms
    changelogs = {
        name: NewTopic(
            name, 0, changelog_config(plan.stores[store], defaults, additional), plan.config.replication_factor
        )
        for store in reversed(sub.stores)
        if (name := plan.changelog_name(store)) is not None
    }
    return tuple(changelogs[name] for name in sorted(changelogs))


def described_topology(plan: Plan) -> DescribedTopology:
    """Return the description of a topology as Kafka Streams sends it (TopologyDescriptionConverter.toWire)."""
    subs = [(sub, _described(plan, sub)) for sub in plan.sub_topologies]
    stores = [sorted(nodes, key=lambda node: node.kind) for sub, nodes in subs if sub.is_global]
    return DescribedTopology(
        {sub.id: nodes for sub, nodes in subs if not sub.is_global},
        tuple((source, processor) for source, processor in stores),
    )


def _described(plan: Plan, sub: SubTopology) -> tuple[DescribedNode, ...]:
    """Return the nodes of a sub-topology by name."""
    successors: dict[str, set[str]] = {name: set() for name in sub.nodes}
    for node in sub.nodes.values():
        for parent in node.parents:
            successors[parent].add(node.name)
    nodes = {name: _described_node(plan, node, _by_name(successors[name])) for name, node in sub.nodes.items()}
    return tuple(nodes[name] for name in _by_name(nodes))


def _described_node(plan: Plan, node: PlanNode, successors: tuple[str, ...]) -> DescribedNode:
    if isinstance(node, SourceNode):
        topics = _by_name({plan.internal_name(topic) for topic in node.topics})
        return DescribedNode(node.name, NodeKind.SOURCE, sources=topics, successors=successors)
    if isinstance(node, SinkNode):
        topic = None if node.topic is None else plan.internal_name(node.topic)
        return DescribedNode(node.name, NodeKind.SINK, sink=topic, successors=successors)
    return DescribedNode(node.name, NodeKind.PROCESSOR, stores=_by_name(set(node.stores)), successors=successors)


def _by_name(names: Iterable[str]) -> tuple[str, ...]:
    """Return names in the order of Java's strings, which compares UTF-16 units."""
    return tuple(sorted(names, key=lambda name: name.encode("utf-16-be")))


def _end_sums(changelogs: Mapping[TaskId, Sequence[TopicPartition]], ends: Ends) -> dict[TaskId, int]:
    """Return the sums of the changelogs' ends, with which the coordinator detects that a warm-up has caught up; none without brokers."""
    try:
        offsets = (
            ends([partition for partitions in changelogs.values() for partition in partitions]) if changelogs else {}
        )
    except TransportError:
        return {}
    return {task: sum(offsets[partition] for partition in partitions) for task, partitions in changelogs.items()}


def _encode(server: str, topics: TopicsOnLog, assignment: StreamsAssignment) -> bytes:
    """Turn an assignment into that of a classic leader: this instance first, then others that can be queried."""
    subs = {topic: sub for sub, inputs in topics.inputs.items() for topic in inputs}

    def tasks(partitions: frozenset[TopicPartition]) -> tuple[TaskId, ...]:
        return tuple(sorted({TaskId(subs[topic], number) for topic, number in partitions if topic in subs}))

    own = InstanceMetadata(server, tuple(sorted(assignment.active)), tuple(sorted(assignment.standby)))
    others = (
        InstanceMetadata(endpoint, tasks(active), tasks(standby))
        for endpoint, (active, standby) in assignment.endpoints.items()
        if endpoint != server
    )
    return encode_assignment(Assignment((own, *others), end=assignment.end))
