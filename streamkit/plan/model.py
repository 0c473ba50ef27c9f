"""The frozen Plan: everything that running, describing or submitting a topology needs; immutable and picklable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from streamkit.config import Config
from streamkit.config.settings import OffsetReset
from streamkit.expressions import Expression, Function
from streamkit.expressions.types import Type
from streamkit.graph.physical_topology import StepRef
from streamkit.operators.codegen.code_writer import ProcessorNode
from streamkit.serdes.serde import Serde
from streamkit.state.definitions import StoreDef

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

    @property
    def target(self) -> str:
        """The topic, or the text of the expression that gives it."""
        if self.topic is not None:
            return self.topic
        assert self.route is not None
        return self.route.text


PlanNode: TypeAlias = SourceNode | ProcessorNode | SinkNode


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
    copartition_groups: tuple[frozenset[str], ...]
    """Topics, without prefix, that need equal numbers of partitions; patterns left out."""
    copartition_sources: tuple[frozenset[str], ...]
    """The same by names of source nodes, one group for each DSL call, not joined if they overlap."""
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
        return external.union(map(self.internal_name, self.internal_topics), filter(None, changelogs))
