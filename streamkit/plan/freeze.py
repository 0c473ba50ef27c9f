"""Turns the written topology into the frozen Plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from streamkit.graph.physical_topology import Topology, WrittenNode
from streamkit.hashing import hash_order
from streamkit.operators.core.operator import Processor, ProcessorNode
from streamkit.plan.model import ExternalTopic, InternalTopic, Plan, SinkNode, SourceNode, SubTopology
from streamkit.spec.topology_model import TopologyModel

if TYPE_CHECKING:
    from streamkit.config import Config

REPARTITION_CONFIG = {
    "cleanup.policy": "delete",
    "segment.bytes": "52428800",
    "retention.ms": "-1",
    "message.timestamp.type": "CreateTime",
}
"""RepartitionTopicConfig."""


def freeze(
    model: TopologyModel,
    config: Config,
    topology: Topology,
    copartition: tuple[tuple[frozenset[str], ...], tuple[frozenset[str], ...]],
    used: tuple[set[str], set[str]],
) -> Plan:
    """Return the Plan.

    copartition: groups of topics, and of source nodes; used: the entries of external topics that the topology reads, and those that it writes.
    """
    sub_topologies = tuple(_sub_topology(index, nodes) for index, nodes in enumerate(topology.node_groups()))
    connected = {name for each in sub_topologies for name in each.stores}
    stores = {**topology.stores, **topology.global_stores}
    return Plan(
        application=model.application,
        file=model.file,
        config=config,
        sub_topologies=sub_topologies,
        stores={name: store for name, store in stores.items() if name in connected},
        external_topics=_external_topics(model, *used),
        internal_topics={
            name: InternalTopic(
                name, partitions, {**REPARTITION_CONFIG, **config.topic_defaults()}, _topic_kind(name, topology)
            )
            for name, partitions in topology.internal_topics.items()
            if any(name in node.topics for node in topology.nodes.values())
        },
        copartition_groups=copartition[0],
        copartition_sources=copartition[1],
        functions=dict(model.functions),
        generators=dict(model.generators),
        included=tuple(model.included),
        default_serdes=(model.defaults.key, model.defaults.value),
        node_order=tuple(topology.nodes),
    )


def _sub_topology(index: int, written: list[WrittenNode]) -> SubTopology:
    stores: dict[str, None] = {}
    for each in written:
        # Java registers a node's stores in the order of their HashSet.
        stores.update(dict.fromkeys(hash_order(each.stores, copied=False)))
    return SubTopology(
        id=index,
        nodes={each.name: _node(each) for each in written},
        is_global=any(each.is_global for each in written),
        stores=tuple(stores),
        source_topics=tuple(dict.fromkeys(topic for each in written for topic in each.topics)),
        sink_topics=tuple(
            dict.fromkeys(each.sink.topic for each in written if each.sink is not None and each.sink.topic)
        ),
    )


def _node(written: WrittenNode) -> SourceNode | ProcessorNode | SinkNode:
    if (source := written.source) is not None:
        return SourceNode(
            name=written.name,
            topics=source.topics,
            pattern=source.pattern,
            key_serde=source.serdes[0],
            value_serde=source.serdes[1],
            children=tuple(written.children),
            internal=source.internal,
            topic_serdes=source.topic_serdes,
            timestamps=source.timestamps,
            value_kind=source.value_kind,
            origin=written.origin.origin,
        )
    if (sink := written.sink) is not None:
        return SinkNode(
            name=written.name,
            parents=written.parents,
            topic=sink.topic,
            route=sink.route,
            key_serde=sink.serdes[0],
            value_serde=sink.serdes[1],
            internal=sink.internal,
            partition=sink.partition,
            value_kind=sink.value_kind,
            origin=written.origin.origin,
        )
    work = written.work
    processor = work() if callable(work) else work
    assert isinstance(processor, Processor)
    return ProcessorNode(
        name=written.name,
        processor=processor,
        parents=written.parents,
        children=tuple(written.children),
        stores=tuple(written.stores),
        origin=written.origin.origin,
        on_error=written.origin.on_error,
        key_serde=written.serdes[0],
        value_serde=written.serdes[1],
    )


def _topic_kind(name: str, topology: Topology) -> str:
    for node in topology.nodes.values():
        if node.source is not None and name in node.source.topics:
            kind = node.source.value_kind
            return kind if kind in ("subscription", "response") else "repartition"
    return "repartition"


def _external_topics(model: TopologyModel, read: set[str], written: set[str]) -> Mapping[str, ExternalTopic]:
    topics: dict[str, ExternalTopic] = {}
    for entry in model.topics.values():
        other = topics.get(entry.topic)
        topics[entry.topic] = ExternalTopic(
            name=entry.topic,
            entry=entry.name,
            key_serde=entry.key,
            value_serde=entry.value,
            partitions=entry.partitions,
            replication_factor=entry.replication_factor,
            config=dict(entry.config),
            read=entry.name in read or (other is not None and other.read),
            written=entry.name in written or (other is not None and other.written),
            timestamp=entry.timestamp,
            reset=entry.reset if entry.name in read or other is None else other.reset,
        )
    return topics
