"""What a topology file says, checked by itself: shapes and references, not yet meanings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamkit.config.resets import OffsetReset
from streamkit.errors import Position
from streamkit.operators.fields import ForEachSpec, Ref, SinkSpec, Step
from streamkit.serdes.base import Serde

TIMESTAMP_POLICIES = ("fail_on_invalid", "log_and_skip", "use_partition_time", "wallclock")
STORE_TYPES = ("key_value", "window", "session", "versioned")


@dataclass(frozen=True)
class TopicSpec:
    """An external topic.

    name: the entry's name; topic: the physical name; key, value: serdes, those of `defaults` where the entry has none;
    timestamp: one of TIMESTAMP_POLICIES or an Expression giving milliseconds;
    reset, partitions, replication_factor: None where the file says nothing; config: topic settings, by name, as text.
    """

    name: str
    topic: str
    key: Serde
    value: Serde
    timestamp: Any = TIMESTAMP_POLICIES[0]
    reset: OffsetReset | None = None
    partitions: int | None = None
    replication_factor: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class StoreSpec:
    """A store for custom processors; durations in milliseconds, None where the file says nothing.

    type: one of STORE_TYPES; key, value: serdes, those of `defaults` where the entry has none; config: settings of
    the changelog's topic.
    """

    name: str
    type: str
    key: Serde
    value: Serde
    persistent: bool | None = None
    caching: bool | None = None
    logging: bool | None = None
    config: tuple[tuple[str, str], ...] = ()
    retention: int | None = None
    window_size: int | None = None
    segment_interval: int | None = None
    history: int | None = None
    ttl: int | None = None
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class PipelineSpec:
    """A pipeline: where it begins, its steps, and where it ends."""

    name: str
    source: Ref
    steps: tuple[Step, ...] = ()
    to: SinkSpec | None = None
    for_each: ForEachSpec | None = None
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class ConfigEntry:
    """A line of `config`: its value as the file has it (text, number, boolean or a list of them)."""

    value: Any
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Defaults:
    """The serdes where nothing else says."""

    key: Serde
    value: Serde


@dataclass(frozen=True)
class TopologyModel:
    """A whole file. file: its name as given; text: its contents; functions: `expressions.Function`s by name."""

    application: str
    description: str | None
    config: Mapping[str, ConfigEntry]
    defaults: Defaults
    topics: Mapping[str, TopicSpec]
    functions: Mapping[str, Any]
    stores: Mapping[str, StoreSpec]
    pipelines: Mapping[str, PipelineSpec]
    file: str
    text: str = field(repr=False)

    @property
    def settings(self) -> dict[str, Any]:
        """The values of `config` by name, as `Config` takes them."""
        return {name: entry.value for name, entry in self.config.items()}
