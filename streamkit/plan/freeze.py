"""Turns the written topology into the frozen Plan, and binds each of its serdes to a topic."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from streamkit.config import Config
from streamkit.errors import Position, Problem, TopologyError
from streamkit.graph.builder import GraphBuilder
from streamkit.graph.physical_topology import NOWHERE, Topology, WrittenNode
from streamkit.hashing import hash_order
from streamkit.operators.codegen.code_writer import Processor, ProcessorNode
from streamkit.operators.steps.joins.foreign_key_join import (
    ForeignKeyJoin,
    ForeignTableJoin,
    ResponseJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
)
from streamkit.plan.model import ExternalTopic, InternalTopic, Plan, PlanNode, SinkNode, SourceNode, SubTopology
from streamkit.plan.partitions import SAME_NUMBER, java_map, joined_groups, missing_partitions, number_of_step
from streamkit.serdes.registry import URL, Registry
from streamkit.serdes.serde import Binding, Serde
from streamkit.spec.topology_model import TopologyModel
from streamkit.state.definitions import StoreDef

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
    copartitioned: Iterable[Iterable[str]],
    used: tuple[set[str], set[str]],
) -> Plan:
    """Return the Plan.

    copartitioned: groups of source nodes; used: the entries of external topics that the topology reads, and those that it writes.
    """
    sub_topologies = tuple(_sub_topology(index, nodes) for index, nodes in enumerate(topology.node_groups()))
    connected = {name for sub in sub_topologies for name in sub.stores}
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
        copartition_sources=tuple(map(frozenset, copartitioned)),
        functions=dict(model.functions),
        generators=dict(model.generators),
        included=tuple(model.included),
        default_serdes=(model.defaults.key, model.defaults.value),
        node_order=tuple(topology.nodes),
    )


def _sub_topology(index: int, written: list[WrittenNode]) -> SubTopology:
    stores: dict[str, None] = {}
    for node in written:
        # Java registers a node's stores in the order of their HashSet.
        stores.update(dict.fromkeys(hash_order(node.stores, copied=False)))
    return SubTopology(
        id=index,
        nodes={node.name: _node(node) for node in written},
        is_global=any(node.is_global for node in written),
        stores=tuple(stores),
        source_topics=tuple(dict.fromkeys(topic for node in written for topic in node.topics)),
        sink_topics=tuple(
            dict.fromkeys(node.sink.topic for node in written if node.sink is not None and node.sink.topic)
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


# Binds each serde of a Plan to its topic, from which the serdes of a schema registry derive their subjects.
#
# As in Java, a topic's serde writes to the subject of that topic, and a store's to that of its changelog.

JOINS = (SubscriptionSend, SubscriptionReceive, SubscriptionJoin, ForeignTableJoin, ResponseJoin)
"""The processors of a foreign-key join, which share its serdes."""


def bind_serdes(plan: Plan, model: TopologyModel) -> Plan:
    """Return the Plan with every serde bound to its topic. Raises TopologyError if serdes need a registry and there is none."""
    registry = Registry.of(plan.config)
    if registry is None:
        _check_none_needed(plan, model)
        return plan
    bound = _Binder(plan, registry)
    return dataclasses.replace(
        plan,
        registry=registry,
        external_topics={name: bound.external(topic) for name, topic in plan.external_topics.items()},
        sub_topologies=tuple(bound.sub_topology(sub) for sub in plan.sub_topologies),
        stores={name: bound.store(store) for name, store in plan.stores.items()},
        default_serdes=bound.pair(plan.default_serdes, None),
    )


class _Binder:
    def __init__(self, plan: Plan, registry: Registry):
        self.plan = plan
        self.registry = registry

    def key(self, serde: Serde, topic: str | None) -> Serde:
        """Return a key serde bound to a topic (its name on the log)."""
        return serde.bind(Binding(self.registry, topic, True))

    def value(self, serde: Serde, topic: str | None) -> Serde:
        """Return a value serde bound to a topic (its name on the log)."""
        return serde.bind(Binding(self.registry, topic, False))

    def pair(self, serdes: tuple[Serde, Serde], topic: str | None) -> tuple[Serde, Serde]:
        """Return a key serde and a value serde bound to a topic (its name on the log)."""
        return self.key(serdes[0], topic), self.value(serdes[1], topic)

    def external(self, topic: ExternalTopic) -> ExternalTopic:
        key, value = self.pair((topic.key_serde, topic.value_serde), topic.name)
        return dataclasses.replace(topic, key_serde=key, value_serde=value)

    def store(self, store: StoreDef) -> StoreDef:
        # Java derives a changelog name even for a store without a changelog.
        topic = self.plan.changelog_name(store.name) or f"{self.plan.application}-{store.name}-changelog"
        key, value = self.pair((store.key_serde, store.value_serde), topic)
        options = {
            name: self.value(option, topic) if isinstance(option, Serde) else option
            for name, option in store.options.items()
        }
        return dataclasses.replace(store, key_serde=key, value_serde=value, options=options)

    def sub_topology(self, sub_topology: SubTopology) -> SubTopology:
        nodes = {name: self.node(node) for name, node in sub_topology.nodes.items()}
        return dataclasses.replace(sub_topology, nodes=nodes)

    def node(self, node: PlanNode) -> PlanNode:
        if isinstance(node, ProcessorNode):
            return self.processor(node)
        topic = node.topic if isinstance(node, SinkNode) else next(iter(node.topics), None)
        key, value = self.pair((node.key_serde, node.value_serde), self._on_log(topic))
        if isinstance(node, SinkNode):
            return dataclasses.replace(node, key_serde=key, value_serde=value)
        topic_serdes = {topic: self.pair(serdes, self._on_log(topic)) for topic, serdes in node.topic_serdes.items()}
        return dataclasses.replace(node, key_serde=key, value_serde=value, topic_serdes=topic_serdes)

    def _on_log(self, topic: str | None) -> str | None:
        return None if topic is None else self.plan.internal_name(topic)

    def processor(self, node: ProcessorNode) -> ProcessorNode:
        topic = f"{self.plan.application}-{node.name}"
        processor = node.processor
        if isinstance(processor, JOINS):
            processor = dataclasses.replace(processor, join=self.foreign_key_join(processor.join))
        return dataclasses.replace(
            node,
            processor=processor,
            key_serde=None if node.key_serde is None else self.key(node.key_serde, topic),
            value_serde=None if node.value_serde is None else self.value(node.value_serde, topic),
        )

    def foreign_key_join(self, join: ForeignKeyJoin) -> ForeignKeyJoin:
        request, response = self.plan.internal_name(join.topic), self.plan.internal_name(join.response_topic)
        return dataclasses.replace(
            join,
            key_serde=self.key(join.key_serde, response),
            # Java serializes a left row for its hash under a topic name that does not exist (SubscriptionSendProcessorSupplier).
            value_serde=self.value(join.value_serde, f"{request}-vh"),
            foreign_key_serde=self.key(join.foreign_key_serde, request),
            foreign_value_serde=self.value(join.foreign_value_serde, response),
        )


def _check_none_needed(plan: Plan, model: TopologyModel) -> None:
    problems = dict.fromkeys(
        Problem(position, f"serde {serde.spec}: {{subject: …}} needs a schema registry; set {URL} in 'config'")
        for serde, position in _serdes(plan, model)
        if serde is not None and serde.needs_registry
    )
    if problems:
        raise TopologyError(sorted(problems, key=lambda problem: (problem.position.line, problem.position.column)))


def _serdes(plan: Plan, model: TopologyModel) -> Iterator[tuple[Serde | None, Position]]:
    """Yield every serde with its position in the file."""
    for entry in model.topics.values():
        yield entry.key, entry.position or NOWHERE
        yield entry.value, entry.position or NOWHERE
    declared = {entry.topic for entry in model.topics.values()}
    for node in plan.nodes:
        if declared.isdisjoint(_topics(node)):
            position = NOWHERE if node.origin is None else node.origin.position
            yield node.key_serde, position
            yield node.value_serde, position
    for store in model.stores.values():
        yield store.key, store.position or NOWHERE
        yield store.value, store.position or NOWHERE


def _topics(node: PlanNode) -> tuple[str, ...]:
    if isinstance(node, SourceNode):
        return node.topics
    return (node.topic,) if isinstance(node, SinkNode) and node.topic is not None else ()


# Finds the groups of source topics that need equal numbers of partitions, but whose declared numbers differ.


def broken_copartitions(model: TopologyModel, topology: Topology, graph: GraphBuilder) -> list[Problem]:
    """Report groups whose partition counts differ, as declared by repartition steps and by topics of the file."""
    problems = []
    groups = joined_groups(
        [{name: topology.source_topics(name) for name in sources} for sources in graph.copartitioned]
    )
    declared = {entry.topic: entry.partitions for entry in model.topics.values() if entry.partitions is not None}
    for group in groups:
        fixed = {topic: topology.internal_topics.get(topic) for topic in group}
        external = {topic: declared[topic] for topic in group if topic in declared}
        if all(count is not None for count in fixed.values()) and len(set(fixed.values())) > 1:
            text = f"Following topics do not have the same number of partitions: [{java_map(fixed)}]; {SAME_NUMBER}"
            problems.append(Problem(_place(topology, group), text))
        elif len(set(external.values())) > 1:
            names, most, step = missing_partitions(external)
            text = f"Topics not co-partitioned: [{java_map(external)}]; give {names} `partitions: {most}`, or {step}"
            problems.append(Problem(_place(topology, group), text))
        elif external:
            count = next(iter(external.values()))
            for topic, partitions in sorted(fixed.items()):
                if partitions is not None and partitions != count:
                    text = (
                        f"Number of partitions [{partitions}] of repartition topic [{topology.application}-{topic}] "
                        f"doesn't match number of partitions [{count}] of the source topic; {number_of_step(count)}"
                    )
                    problems.append(Problem(_place(topology, group), text))
    return problems


def _place(topology: Topology, group: set[str]) -> Position:
    """Return the position of the last source of a group; the step that requires the group has the same one."""
    position = NOWHERE
    for node in topology.nodes.values():
        if not group.isdisjoint(node.topics):
            position = node.origin.position
    return position
