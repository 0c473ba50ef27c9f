"""The form of a version of an application: everything that decides whether it can use the state of an earlier version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from streamkit.errors import Position

Json: TypeAlias = "str | float | bool | Sequence[Json] | Mapping[str, Json] | None"
"""A document of JSON, such as a serde's form."""


class Place(NamedTuple):
    """The step that something belongs to. pipeline and step are empty where only a description is known."""

    pipeline: str
    step: str
    position: Position


@dataclass(frozen=True)
class RowForm:
    """Everything that decides how the bytes of a changelog are read; key and value are from `serde_forms.serde_form`.

    window_size: milliseconds, of windows whose rows hold only their start; right: the right side of an outer join.
    """

    kind: str
    key: Json
    value: Json
    right: Json = None
    window_size: int | None = None


@dataclass(frozen=True)
class StoreDetails:
    """The parts of a store that only a topology file has; times in milliseconds."""

    logged: bool
    persistent: bool
    layout: str
    """The layout of rows on disk; state of another layout is restored."""
    retention: int | None = None
    history: int | None = None
    ttl: int | None = None
    source_topic: str | None = None
    """The source topic that is its changelog too, if there is one."""
    windows: Mapping[str, int] = field(default_factory=dict)
    """The windows of its aggregation: size, advance, difference, gap and grace."""
    rule: str = ""
    """The expressions that compute its rows."""


@dataclass(frozen=True)
class StoreForm:
    """A store. roots: the external topics that its records come from. Roots that are not known are empty; other fields are None."""

    name: str
    sub_topology: int | None
    is_global: bool
    roots: frozenset[str]
    place: Place
    rows: RowForm | None = None
    details: StoreDetails | None = None


@dataclass(frozen=True)
class TopicForm:
    """An internal topic by its name without prefix; serdes None: not known; partitions None: derived."""

    name: str
    roots: frozenset[str]
    place: Place
    key: Json = None
    value: Json = None
    value_kind: str | None = None
    partitions: int | None = None


@dataclass(frozen=True)
class ExternalForm:
    """A topic of the file."""

    name: str
    key: Json
    value: Json
    partitions: int | None
    read: bool
    written: bool


@dataclass(frozen=True)
class SubForm:
    """A sub-topology: the topics (or the pattern) that it reads, and its stores."""

    id: int
    is_global: bool
    sources: frozenset[str]
    stores: tuple[str, ...]
    nodes: frozenset[str]
    place: Place


class StepForm(NamedTuple):
    """A step of a pipeline: its name, and its options as text."""

    step: str
    text: str
    position: Position


@dataclass(frozen=True)
class Form:
    """A version of an application. None: not known; descriptions of Java have neither serdes nor an application."""

    label: str
    """The file, as the user named it."""
    application: str | None
    sub_topologies: tuple[SubForm, ...]
    stores: Mapping[str, StoreForm]
    topics: Mapping[str, TopicForm]
    externals: Mapping[str, ExternalForm] | None = None
    pipelines: Mapping[str, tuple[StepForm, ...]] | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    """Partition counts of internal topics and changelogs by their names without prefix, as far as they are known."""
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The settings of changelogs, by the same names."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Settings that decide where state is kept."""
    has_tasks: bool = True
    """Whether the sub-topologies are known; a log has names only."""

    @property
    def start(self) -> Position:
        """The position of findings without a position of their own."""
        return Position(self.label, 1, 1)

    def log_name(self, name: str) -> str:
        """Return the name of an internal topic on the log, as far as it is known."""
        return f"{self.application}-{name}" if self.application else name

    def changelog(self, store: str) -> str:
        """Return the name of a store's own changelog on the log."""
        return self.log_name(f"{store}-changelog")


@dataclass(frozen=True)
class OnLog:
    """The topics of an application on its log, by their names there."""

    records: Mapping[str, int]
    """Of changelogs."""
    unread: Mapping[str, int]
    """Of the other internal topics: the records behind the committed offsets of the group."""
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    """The active members of the group."""
