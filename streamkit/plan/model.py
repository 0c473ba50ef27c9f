"""The frozen Plan: everything that running, describing or submitting a topology needs; immutable and picklable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamkit.config.resets import OffsetReset
from streamkit.serdes.base import Serde
from streamkit.state.definitions import StoreDef


@dataclass(frozen=True)
class StepRef:
    """Where a node comes from, for errors: pipeline, step as the file names it, and its position."""

    pipeline: str
    step: str
    position: Any


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
    """Serdes by topic where several topics with different entries are read by one node."""
    timestamps: Mapping[str, Any] = field(default_factory=dict)
    """Timestamp policy or Expression by topic; missing: fail_on_invalid."""
    reset: Mapping[str, OffsetReset | None] = field(default_factory=dict)
    value_kind: str = "plain"
    """plain; changed (ChangedSerializer pairs of a table repartition); subscription, response (foreign-key joins)."""
    origin: StepRef | None = None


@dataclass(frozen=True)
class ProcessorNode:
    """Does the work of `processor` (operators.base.Processor)."""

    name: str
    processor: Any
    parents: tuple[str, ...]
    children: tuple[str, ...]
    """In the order of writing, which is the order of forwarding."""
    stores: tuple[str, ...]
    origin: StepRef | None = None
    on_error: Any = None
    """OnError of the step (its dead-letter topic by physical name), or None: the application's handler."""
    key_serde: Serde | None = None
    """The serde of the keys that the node forwards; None where merged streams disagree and nothing needs one."""
    value_serde: Serde | None = None


@dataclass(frozen=True)
class SinkNode:
    """Writes to `topic` (without prefix where internal), or to the topic that `route` gives for each record."""

    name: str
    parents: tuple[str, ...]
    topic: str | None
    route: Any
    key_serde: Serde
    value_serde: Serde
    internal: bool = False
    partition: Any = None
    """An Expression (StreamPartitioner); None: that of Kafka, or of the join for responses, or of a windowed key."""
    value_kind: str = "plain"
    origin: StepRef | None = None


@dataclass(frozen=True)
class SubTopology:
    """A connected part of the topology; nodes in write order. Global ones make no tasks."""

    id: int
    nodes: Mapping[str, Any]
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
    timestamp: Any = None
    reset: OffsetReset | None = None
    """None: that of `auto.offset.reset`."""


@dataclass(frozen=True)
class Plan:
    """A whole topology."""

    application: str
    file: str
    config: Any
    """config.Config."""
    sub_topologies: tuple[SubTopology, ...]
    stores: Mapping[str, StoreDef]
    external_topics: Mapping[str, ExternalTopic]
    internal_topics: Mapping[str, InternalTopic]
    copartition_groups: tuple[frozenset[str], ...]
    """Topics, without prefix, that need equal numbers of partitions; patterns left out."""
    copartition_sources: tuple[frozenset[str], ...]
    """The same by names of source nodes, as the DSL calls asked for it, not joined where they overlap."""
    functions: Mapping[str, Any]
    default_serdes: tuple[Serde, Serde]
    node_order: tuple[str, ...] = ()
    """The names of all nodes in write order, across sub-topologies."""
    registry: Any = None
    """The serdes.registry.Registry of the settings, if they name one."""

    def internal_name(self, topic: str) -> str:
        """Return the name that a topic has on the log: internal ones carry the application id in front."""
        return f"{self.application}-{topic}" if topic in self.internal_topics else topic

    def changelog_name(self, store: str) -> str | None:
        """Return the topic that a store is restored from, by its name on the log; None where it has none."""
        definition = self.stores[store]
        if definition.source_topic is not None:
            return self.internal_name(definition.source_topic)
        return f"{self.application}-{store}-changelog" if definition.changelog_topic is not None else None
