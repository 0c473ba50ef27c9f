"""The frozen Plan: everything that running, describing or submitting a topology needs; immutable and picklable."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from streamkit.config import Config
from streamkit.config.settings import OffsetReset
from streamkit.errors import UsageError
from streamkit.expressions import Expression, Function
from streamkit.expressions.types import Type
from streamkit.graph.physical_topology import StepRef
from streamkit.operators.codegen.code_writer import ProcessorNode
from streamkit.serdes.serde import Serde
from streamkit.state.definitions import StoreDef
from streamkit.suggestions import did_you_mean, listed

if TYPE_CHECKING:
    from streamkit.serdes.registry import Registry
    from streamkit.spec.topology_model import GeneratorSpec


@dataclass(frozen=True)
class SourceNode:
    """Reads topics. `timestamp`: an Expression, or one of the four extractor policies; repartition sources: fail_on_invalid."""

    name: str
    topics: tuple[str, ...]
    """Topic names without the application's prefix, in the order of the DSL call; empty for a pattern."""
    pattern: str | None
    key_serde: Serde
    value_serde: Serde
    children: tuple[str, ...]
    internal: bool = False
    """Whether the topics are internal (repartition, subscription, response)."""
    topic_serdes: Mapping[str, tuple[Serde, Serde]] = field(default_factory=dict)
    """Serdes by topic if several topics with different entries are read by one node."""
    timestamps: Mapping[str, Expression | str] = field(default_factory=dict)
    """Timestamp policy or Expression by topic; missing: fail_on_invalid."""
    value_kind: str = "plain"
    """plain; changed (ChangedSerializer pairs of a table repartition); subscription, response (foreign-key joins)."""
    origin: StepRef | None = None
    parents: ClassVar[tuple[str, ...]] = ()
    stores: ClassVar[tuple[str, ...]] = ()
    processor: ClassVar[None] = None
    on_error: ClassVar[None] = None


@dataclass(frozen=True)
class SinkNode:
    """Writes to `topic` (without prefix if internal), or to the topic that `route` gives for each record."""

    name: str
    parents: tuple[str, ...]
    topic: str | None
    route: Expression | None
    key_serde: Serde
    value_serde: Serde
    internal: bool = False
    partition: Expression | None = None
    """An Expression (StreamPartitioner); None: Kafka's partitioner, the join's for responses, or that of a windowed key."""
    value_kind: str = "plain"
    origin: StepRef | None = None
    children: ClassVar[tuple[str, ...]] = ()
    stores: ClassVar[tuple[str, ...]] = ()
    processor: ClassVar[None] = None
    on_error: ClassVar[None] = None

    @property
    def target(self) -> str:
        """The topic, or the text of the expression that gives it."""
        if self.topic is not None:
            return self.topic
        assert self.route is not None
        return self.route.text


PlanNode: TypeAlias = SourceNode | ProcessorNode | SinkNode
"""All have parents, children, stores, a processor and `on_error`; what a kind of node never has is empty or None."""


@dataclass(frozen=True)
class SubTopology:
    """A connected part of the topology; nodes in write order. Global ones make no tasks."""

    id: int
    nodes: Mapping[str, PlanNode]
    """By name, in write order."""
    is_global: bool
    stores: tuple[str, ...]
    """Names of the stores that its nodes use, in the order of their registration with the topology."""
    source_topics: tuple[str, ...]
    sink_topics: tuple[str, ...]


@dataclass(frozen=True)
class InternalTopic:
    """A repartition, subscription or response topic, by its name without prefix. partitions None: derived."""

    name: str
    partitions: int | None
    config: Mapping[str, str]
    kind: str = "repartition"


@dataclass(frozen=True)
class ExternalTopic:
    """A topic of the file by physical name."""

    name: str
    entry: str
    key_serde: Serde
    value_serde: Serde
    partitions: int | None
    replication_factor: int | None
    config: Mapping[str, str]
    read: bool
    written: bool
    timestamp: Expression | str | None = None
    reset: OffsetReset | None = None
    """None: that of `auto.offset.reset`."""


@dataclass(frozen=True)
class Plan:
    """A whole topology."""

    application: str
    file: str
    config: Config
    sub_topologies: tuple[SubTopology, ...]
    stores: Mapping[str, StoreDef]
    external_topics: Mapping[str, ExternalTopic]
    internal_topics: Mapping[str, InternalTopic]
    copartition_sources: tuple[frozenset[str], ...]
    """Source nodes whose topics need equal numbers of partitions: one group for each DSL call, not joined if they overlap."""
    functions: Mapping[str, Function]
    default_serdes: tuple[Serde, Serde]
    node_order: tuple[str, ...] = ()
    """The names of all nodes in write order, across sub-topologies."""
    registry: Registry | None = None
    """The schema registry of the settings, if they name one."""
    written_types: Mapping[str, tuple[tuple[Type, Type], ...]] = field(default_factory=dict, compare=False)
    """The inferred types of keys and values that each sink of a topic writes, by the topic's name on the log."""
    generators: Mapping[str, GeneratorSpec] = field(default_factory=dict, compare=False)
    """What makes test data for topics, by their entries."""
    included: tuple[str, ...] = ()
    """The files that the topology includes."""

    @property
    def nodes(self) -> list[PlanNode]:
        """The nodes of all sub-topologies."""
        return [node for sub in self.sub_topologies for node in sub.nodes.values()]

    @property
    def global_topics(self) -> tuple[str, ...]:
        """The topics of global stores, which every instance reads completely."""
        return tuple(topic for sub in self.sub_topologies if sub.is_global for topic in sub.source_topics)

    @property
    def internal_names(self) -> frozenset[str]:
        """The internal topics by their names on the log."""
        return frozenset(map(self.internal_name, self.internal_topics))

    def internal_name(self, topic: str) -> str:
        """Return the name that a topic has on the log: internal ones have the application id as their prefix."""
        return f"{self.application}-{topic}" if topic in self.internal_topics else topic

    def changelog_name(self, store: str) -> str | None:
        """Return the topic that a store is restored from, by its name on the log; None if it has none."""
        definition = self.stores[store]
        if definition.source_topic is not None:
            return self.internal_name(definition.source_topic)
        return f"{self.application}-{store}-changelog" if definition.changelog_topic is not None else None

    def topic_names(self) -> set[str]:
        """Return all topics that the application reads or writes, by their names on the log."""
        changelogs = map(self.changelog_name, self.stores)
        external = {topic.name for topic in self.external_topics.values()}
        return external.union(self.internal_names, filter(None, changelogs))


# Topics of a plan by their names in the file or on the log.


def find_topic(plan: Plan, name: str) -> ExternalTopic:
    """Return the topic of an entry's name. Raises UsageError with the nearest name."""
    entries = {topic.entry: topic for topic in plan.external_topics.values()}
    if name in entries:
        return entries[name]
    hint = did_you_mean(name, entries, f"it has {listed(sorted(entries))}")
    raise UsageError(f"{plan.file} has no topic {name!r}{hint}")


def source_node(plan: Plan, sub: SubTopology, topic: str) -> str:
    """Return the name of the node that reads a topic, by its name on the log; an empty text if none does."""
    for name, node in sub.nodes.items():
        if isinstance(node, SourceNode):
            if any(plan.internal_name(name) == topic for name in node.topics):
                return name
            if node.pattern is not None and re.fullmatch(node.pattern, topic):
                return name
    return ""


def internal_topics_on_log(plan: Plan) -> dict[str, str]:
    """Return the application's internal topics and changelogs: the name on the log by the name without prefix.

    A source topic that is a changelog too is none of them.
    """
    names = {topic: plan.internal_name(topic) for topic in plan.internal_topics}
    for store, definition in plan.stores.items():
        changelog = plan.changelog_name(store) if definition.source_topic is None else None
        if changelog is not None:
            names[f"{store}-changelog"] = changelog
    return names


def find_readable(plan: Plan, name: str) -> str:
    """Return the name on the log of a topic of the file or of an internal one of the application.

    Internal topics may be named with the application's prefix or, as `describe` has them, without. Raises UsageError with
    the nearest name.
    """
    entries = {topic.entry: topic.name for topic in plan.external_topics.values()}
    internal = internal_topics_on_log(plan)
    on_log = [*entries.values(), *internal.values()]
    known = {**dict(zip(on_log, on_log, strict=True)), **internal, **entries}
    if name in known:
        return known[name]
    names = [*sorted(entries), *sorted(internal)]
    raise UsageError(f"{plan.file} has no topic {name!r}{did_you_mean(name, names, f'it has {listed(names)}')}")
