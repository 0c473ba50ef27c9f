"""The model of a topology file: its shapes and references are checked, its meaning is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamkit.config.settings import OffsetReset
from streamkit.errors import Position
from streamkit.expressions import Expression, Function
from streamkit.expressions.calls import FunctionCall, Usage
from streamkit.operators.core.parsed_values import CallRef, ForEachSpec, Ref, SinkSpec, Step
from streamkit.serdes.plain import Json
from streamkit.serdes.serde import Serde

if TYPE_CHECKING:
    from streamkit.serdes.formats.called import CalledSerde
    from streamkit.spec.yaml_nodes import Node

TIMESTAMP_POLICIES = ("fail_on_invalid", "log_and_skip", "use_partition_time", "wallclock")


@dataclass(frozen=True)
class TopicSpec:
    """An external topic.

    name: the entry's name; topic: the physical name; key, value: serdes, those of `defaults` if the entry has none;
    timestamp: one of TIMESTAMP_POLICIES or an Expression giving milliseconds;
    reset, partitions, replication_factor: None if the file has none; config: topic settings, by name, as text.
    """

    name: str
    topic: str
    key: Serde
    value: Serde
    timestamp: Expression | str = TIMESTAMP_POLICIES[0]
    reset: OffsetReset | None = None
    partitions: int | None = None
    replication_factor: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class StoreSpec:
    """A store for custom processors; durations in milliseconds, None if the file has none.

    type: one of IN_FILE; key, value: serdes, those of `defaults` if the entry has none; config: settings of
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
    """A pipeline: its source, its steps and its end."""

    name: str
    source: Ref
    steps: tuple[Step, ...] = ()
    to: SinkSpec | None = None
    for_each: ForEachSpec | None = None
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class CallSite:
    """A reference to Python code: its position, for messages, and the arguments that the construct passes."""

    ref: CallRef
    usage: Usage
    what: str


@dataclass(frozen=True)
class GeneratorSpec:
    """A generator of test data: the expressions of a record's parts; times in milliseconds.

    every: between two records; late_part: how many of them are late, by at most `late_by`; count None: it never ends.
    """

    topic: str
    key: Expression
    value: Expression
    every: int = 1000
    count: int | None = None
    late_part: float = 0.0
    late_by: int = 1
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a macro. type: one of macros.TYPES; default: the node of its default value, which may be null, if it has one."""

    name: str
    type: str
    default: Node | None
    description: str

    @property
    def is_required(self) -> bool:
        """Whether each use needs an argument."""
        return self.default is None


@dataclass(frozen=True)
class Macro:
    """A macro, whose steps belong to the pipelines that use it. steps: the list of its steps, None after a problem."""

    name: str
    description: str
    parameters: Mapping[str, Parameter]
    steps: Node | None
    position: Position


@dataclass(frozen=True)
class ConfigEntry:
    """A line of `config`: its value as the file has it (text, number, boolean or a list of them)."""

    value: Json
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Defaults:
    """The default serdes of the file."""

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
    functions: Mapping[str, Function]
    stores: Mapping[str, StoreSpec]
    pipelines: Mapping[str, PipelineSpec]
    file: str
    text: str = field(repr=False)
    generators: Mapping[str, GeneratorSpec] = field(default_factory=dict)
    """By the entries of topics; includes those of the file beside the topology."""
    included: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The texts of the included files, by name."""
    macros: Mapping[str, Macro] = field(default_factory=dict, compare=False)
    used_macros: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    calls: tuple[CallSite, ...] = field(default=(), repr=False, compare=False)
    """All references to Python code except those in serdes."""
    function_calls: tuple[FunctionCall, ...] = field(default=(), repr=False, compare=False)
    """The calls of Python functions by name in expressions."""
    called_serdes: tuple[tuple[CalledSerde, Position, str], ...] = field(default=(), repr=False, compare=False)
    """The serdes written in Python, with their places."""

    @property
    def settings(self) -> dict[str, Json]:
        """The values of `config` by name, as `Config` takes them."""
        return {name: entry.value for name, entry in self.config.items()}
