"""The form of a version of an application: everything that decides whether it can use the state of an earlier version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from types import NoneType, UnionType
from typing import NamedTuple, Union, get_args, get_origin, get_type_hints

from streamkit.errors import Position
from streamkit.serdes.plain import Document, Json


class Place(NamedTuple):
    """The step that something belongs to. pipeline and step are empty if only a description is known."""

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
    """The layout of rows on disk; state with a different layout is restored."""
    retention: int | None = None
    history: int | None = None
    ttl: int | None = None
    source_topic: str | None = None
    """The source topic that is its changelog too, if there is one."""
    windows: Mapping[str, int] = field(default_factory=dict)
    """The windows of its aggregation: size, advance, gap (of sessions) and grace."""
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
    """The known partition counts of internal topics and changelogs, by their names without prefix."""
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
        """Return the name of an internal topic on the log, if it is known."""
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
    """For all other internal topics, the number of records after the group's committed offsets."""
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    """The active members of the group."""


# The form of an application as JSON, which outlives the plan: beside state that later runs continue from.


def to_json(form: Form) -> dict[str, Json]:
    """Return a form as data for JSON, without the name of its file."""
    document: dict[str, Json] = _encoded(form)
    return document


def from_json(data: Json) -> Form:
    """Return the form of `to_json`. Raises ValueError for any other data.

    Tuples inside documents become lists, so that only forms which both come from JSON are comparable.
    """
    try:
        form: Form = _decoded(Form, data)
        return form
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is not the form of an application: {error!r}") from error


def rows_to_json(rows: RowForm) -> Document:
    """Return the form of rows as data for JSON."""
    return _encoded(rows)


def rows_from_json(data: Json) -> RowForm:
    """Return the form of rows of `rows_to_json`."""
    rows: RowForm = _decoded(RowForm, data)
    return rows


def _encoded(value: object) -> Document:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _encoded(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, frozenset):
        return sorted(map(_encoded, value))
    if isinstance(value, tuple | list):
        return [_encoded(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _encoded(item) for name, item in value.items()}
    return value


def _decoded(kind: Document, data: Document) -> Document:
    origin: Document = get_origin(kind)
    arguments = get_args(kind)
    if kind is object or data is None:
        return data
    if origin in (Union, UnionType):
        others = [argument for argument in arguments if argument is not NoneType]
        # A union of several types is a JSON document.
        return _decoded(others[0], data) if len(others) == 1 else data
    if origin is frozenset:
        return frozenset(_decoded(arguments[0], item) for item in data)
    if origin is tuple:
        return tuple(_decoded(arguments[0], item) for item in data)
    if origin is not None and issubclass(origin, Mapping):
        return {name: _decoded(arguments[1], item) for name, item in data.items()}
    hints = get_type_hints(kind) if isinstance(kind, type) else {}
    if is_dataclass(kind) and isinstance(kind, type):
        return kind(**{name: _decoded(hints[name], data[name]) for name in hints if name in data})
    if isinstance(kind, type) and issubclass(kind, tuple):
        return kind(*(_decoded(hint, item) for hint, item in zip(hints.values(), data, strict=True)))
    return data


# Finds the external topics that records come from.


class Graph:
    """The nodes of a topology by name, with their parents, and the nodes that write each topic."""

    def __init__(self) -> None:
        self.parents: dict[str, tuple[str, ...]] = {}
        self.reads: dict[str, tuple[str, ...]] = {}
        """The topics of sources."""
        self.writers: dict[str, list[str]] = {}
        """The nodes above the sinks of a topic."""
        self.users: dict[str, list[str]] = {}
        """The nodes that have a store."""

    def source(self, name: str, topics: Iterable[str]) -> None:
        """Add a node that reads topics."""
        self.reads[name] = tuple(topics)

    def processor(self, name: str, parents: Sequence[str], stores: Iterable[str]) -> None:
        """Add a node with stores."""
        self.parents[name] = tuple(parents)
        for store in stores:
            self.users.setdefault(store, []).append(name)

    def sink(self, parents: Sequence[str], topic: str | None) -> None:
        """Add a node that writes a topic; None: one that differs from record to record."""
        if topic is not None:
            self.writers.setdefault(topic, []).extend(parents)


def roots_of(graph: Graph, nodes: Iterable[str]) -> frozenset[str]:
    """Return the topics that no node writes and that the records of these nodes come from, through other topics too."""
    roots: set[str] = set()
    seen: set[str] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        waiting.extend(graph.parents.get(node, ()))
        for topic in graph.reads.get(node, ()):
            writers = graph.writers.get(topic, ())
            waiting.extend(writers)
            if not writers:
                roots.add(topic)
    return frozenset(roots)
