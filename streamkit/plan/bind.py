"""Tells each serde of a Plan what it is used for, so that those of a schema registry know their subjects.

As in Java, a topic's serde writes to the subject of that topic, and a store's to that of its changelog.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from streamkit.errors import Problem, TopologyError
from streamkit.operators.foreign_key_join import ForeignKeyJoin
from streamkit.plan.model import ExternalTopic, Plan, ProcessorNode, SinkNode, SourceNode, SubTopology
from streamkit.serdes.base import Binding, Serde
from streamkit.serdes.registry import URL, Registry
from streamkit.spec.model import TopologyModel
from streamkit.state.definitions import StoreDef


def bind_serdes(plan: Plan, model: TopologyModel) -> Plan:
    """Return the Plan with every serde bound to its topic. Raises TopologyError for serdes that miss their registry."""
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
        default_serdes=bound.both(plan.default_serdes, None),
    )


class _Binder:
    def __init__(self, plan: Plan, registry: Registry):
        self.plan = plan
        self.registry = registry

    def both(self, serdes: tuple[Any, Any], topic: str | None) -> tuple[Any, Any]:
        """Return key and value serde as they are used for a topic by its name on the log; None stays None."""
        key, value = serdes
        return (
            None if key is None else key.bind(Binding(self.registry, topic, True)),
            None if value is None else value.bind(Binding(self.registry, topic, False)),
        )

    def external(self, topic: ExternalTopic) -> ExternalTopic:
        key, value = self.both((topic.key_serde, topic.value_serde), topic.name)
        return dataclasses.replace(topic, key_serde=key, value_serde=value)

    def store(self, store: StoreDef) -> StoreDef:
        # Java names the changelog also of a store that has none.
        topic = self.plan.changelog_name(store.name) or f"{self.plan.application}-{store.name}-changelog"
        key, value = self.both((store.key_serde, store.value_serde), topic)
        options: Mapping[str, Any] = {
            name: each.bind(Binding(self.registry, topic, False)) if isinstance(each, Serde) else each
            for name, each in store.options.items()
        }
        return dataclasses.replace(store, key_serde=key, value_serde=value, options=options)

    def sub_topology(self, sub_topology: SubTopology) -> SubTopology:
        nodes = {name: self.node(node) for name, node in sub_topology.nodes.items()}
        return dataclasses.replace(sub_topology, nodes=nodes)

    def node(self, node: Any) -> Any:
        if isinstance(node, ProcessorNode):
            return self.processor(node)
        topic = node.topic if isinstance(node, SinkNode) else next(iter(node.topics), None)
        where = None if topic is None else self.plan.internal_name(topic)
        key, value = self.both((node.key_serde, node.value_serde), where)
        changes: dict[str, Any] = {"key_serde": key, "value_serde": value}
        if isinstance(node, SourceNode):
            changes["topic_serdes"] = {
                each: self.both(serdes, self.plan.internal_name(each)) for each, serdes in node.topic_serdes.items()
            }
        return dataclasses.replace(node, **changes)

    def processor(self, node: ProcessorNode) -> ProcessorNode:
        key, value = self.both((node.key_serde, node.value_serde), f"{self.plan.application}-{node.name}")
        processor = node.processor
        join = getattr(processor, "join", None)
        if isinstance(join, ForeignKeyJoin):
            processor = dataclasses.replace(processor, join=self.foreign_key_join(join))
        return dataclasses.replace(node, processor=processor, key_serde=key, value_serde=value)

    def foreign_key_join(self, join: ForeignKeyJoin) -> ForeignKeyJoin:
        request, response = self.plan.internal_name(join.topic), self.plan.internal_name(join.response_topic)
        key, foreign_value = self.both((join.key_serde, join.foreign_value_serde), response)
        foreign_key, _ = self.both((join.foreign_key_serde, None), request)
        # The hash of a left row has a topic's name of its own (SubscriptionSendProcessorSupplier).
        _, value = self.both((None, join.value_serde), f"{request}-vh")
        return dataclasses.replace(
            join,
            key_serde=key,
            value_serde=value,
            foreign_key_serde=foreign_key,
            foreign_value_serde=foreign_value,
        )


def _check_none_needed(plan: Plan, model: TopologyModel) -> None:
    problems = dict.fromkeys(
        Problem(position, f"serde {serde.spec}: {{subject: …}} needs a schema registry; set {URL} in 'config'")
        for serde, position in _serdes(plan, model)
        if serde is not None and serde.needs_registry
    )
    if problems:
        raise TopologyError(sorted(problems, key=lambda each: (each.position.line, each.position.column)))


def _serdes(plan: Plan, model: TopologyModel) -> Iterator[tuple[Any, Any]]:
    """Yield every serde with the place to name for it."""
    declared = set()
    for entry in model.topics.values():
        declared.add(entry.topic)
        for serde in (entry.key, entry.value):
            yield serde, entry.position
    for node in (node for each in plan.sub_topologies for node in each.nodes.values()):
        if isinstance(node, ProcessorNode) or not declared & {
            getattr(node, "topic", None),
            *getattr(node, "topics", ()),
        }:
            for serde in (node.key_serde, node.value_serde):
                yield serde, node.origin.position
    for store in model.stores.values():
        for serde in (store.key, store.value):
            yield serde, store.position
