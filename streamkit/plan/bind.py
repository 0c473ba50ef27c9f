"""Binds each serde of a Plan to its topic, from which the serdes of a schema registry derive their subjects.

As in Java, a topic's serde writes to the subject of that topic, and a store's to that of its changelog.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from streamkit.errors import Position, Problem, TopologyError
from streamkit.graph.physical_topology import NOWHERE
from streamkit.operators.core.operator import ProcessorNode
from streamkit.operators.steps.joins.foreign_key_join import (
    ForeignKeyJoin,
    ForeignTableJoin,
    ResponseJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
)
from streamkit.plan.model import ExternalTopic, Plan, PlanNode, SinkNode, SourceNode, SubTopology
from streamkit.serdes.schemas.registry import URL, Registry
from streamkit.serdes.serde import Binding, Serde
from streamkit.spec.topology_model import TopologyModel
from streamkit.state.definitions import StoreDef

JOINS = (SubscriptionSend, SubscriptionReceive, SubscriptionJoin, ForeignTableJoin, ResponseJoin)
"""The processors of a foreign-key join, which share its serdes."""


def bind_serdes(plan: Plan, model: TopologyModel) -> Plan:
    """Return the Plan with every serde bound to its topic. Raises TopologyError where serdes need a registry and there is none."""
    registry = Registry.of(plan.config)
    if registry is None:
        _check_none_needed(plan, model)
        return plan
    bound = _Binder(plan, registry)
    return dataclasses.replace(
        plan,
        registry=registry,
        external_topics={name: bound.external(topic) for name, topic in plan.external_topics.items()},
        sub_topologies=tuple(bound.sub_topology(each) for each in plan.sub_topologies),
        stores={name: bound.store(store) for name, store in plan.stores.items()},
        default_serdes=bound.pair(plan.default_serdes, None),
    )


class _Binder:
    def __init__(self, plan: Plan, registry: Registry):
        self.plan = plan
        self.registry = registry

    def key(self, serde: Serde, topic: str | None) -> Serde:
        """Return a serde of keys as it is used for a topic by its name on the log."""
        return serde.bind(Binding(self.registry, topic, True))

    def value(self, serde: Serde, topic: str | None) -> Serde:
        """Return a serde of values as it is used for a topic by its name on the log."""
        return serde.bind(Binding(self.registry, topic, False))

    def pair(self, serdes: tuple[Serde, Serde], topic: str | None) -> tuple[Serde, Serde]:
        """Return the serdes of keys and values as they are used for a topic by its name on the log."""
        return self.key(serdes[0], topic), self.value(serdes[1], topic)

    def external(self, topic: ExternalTopic) -> ExternalTopic:
        key, value = self.pair((topic.key_serde, topic.value_serde), topic.name)
        return dataclasses.replace(topic, key_serde=key, value_serde=value)

    def store(self, store: StoreDef) -> StoreDef:
        # Java names the changelog also of a store that has none.
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
        topic_serdes = {each: self.pair(serdes, self._on_log(each)) for each, serdes in node.topic_serdes.items()}
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
            # The hash of a left row has a topic name that no topic has (SubscriptionSendProcessorSupplier).
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
        raise TopologyError(sorted(problems, key=lambda each: (each.position.line, each.position.column)))


def _serdes(plan: Plan, model: TopologyModel) -> Iterator[tuple[Serde | None, Position]]:
    """Yield every serde with its position in the file."""
    for entry in model.topics.values():
        yield entry.key, entry.position or NOWHERE
        yield entry.value, entry.position or NOWHERE
    declared = {entry.topic for entry in model.topics.values()}
    for node in (node for each in plan.sub_topologies for node in each.nodes.values()):
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
