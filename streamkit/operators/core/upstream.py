"""The objects of the DSL that steps stand on: streams, tables, groups and windows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypedDict, Unpack

from streamkit.graph.node import GraphNode, RepartitionNode
from streamkit.operators.core.step_serdes import AnySerde
from streamkit.operators.core.value_getters import Getter, StoreGetter
from streamkit.operators.core.window_definitions import Windows

if TYPE_CHECKING:
    from streamkit.expressions import Expression
    from streamkit.state.definitions import StoreDef


class StreamChanges(TypedDict, total=False):
    """The parts of a stream that a step's node replaces."""

    sources: tuple[str, ...]
    key_serde: AnySerde
    value_serde: AnySerde
    repartition_required: bool


@dataclass(eq=False)
class Stream:
    """A KStream. `sources`: names of the source nodes above it, for co-partitioning."""

    kind: ClassVar[str] = "stream"
    label: ClassVar[str] = "a stream"
    name: str
    node: GraphNode
    sources: tuple[str, ...]
    key_serde: AnySerde
    value_serde: AnySerde
    repartition_required: bool = False
    repartition: RepartitionNode | None = None
    """The node that unnamed joins on this stream share."""

    def below(self, name: str, node: GraphNode, **changes: Unpack[StreamChanges]) -> Stream:
        """Return the stream below a node; `changes` replaces what the node does not keep."""
        return replace(self, name=name, node=node, repartition=None, **changes)


class TableWork(ABC):
    """The part of a table's processor that later steps may still change (KTableProcessorSupplier)."""

    def __init__(self) -> None:
        self.send_old = False

    @abstractmethod
    def enable_old_values(self, force: bool) -> bool:
        """Make the node send old values, with `force` by materializing tables; return whether it sends them."""

    @abstractmethod
    def view(self) -> Getter:
        """Return the lookup of the table's values, materializing the sources that it reads."""

    @abstractmethod
    def history(self) -> int | None:
        """Return how far back lookups as of a timestamp reach, in ms; None where the table's rows have no versions."""


class SourceWork(TableWork):
    """A table directly from a topic or a stream (KTableSource): it has a store once a step needs one."""

    def __init__(self, store: StoreDef, materialized: bool):
        super().__init__()
        self.store = store
        self.materialized = materialized

    def enable_old_values(self, force: bool) -> bool:
        if not force and not self.materialized:
            return False
        self.send_old = self.materialized = True
        return True

    def view(self) -> Getter:
        self.materialized = True
        return StoreGetter.of(self.store)

    def history(self) -> int | None:
        return self.store.history

    def definition(self) -> StoreDef | None:
        """Return the store's definition, or None where no step needs the store."""
        return self.store if self.materialized else None

    def definitions(self) -> list[StoreDef]:
        """Return the store's definition as a list for `ProcessorGraphNode.stores`."""
        return [self.store] if self.materialized else []


class AggregateWork(TableWork):
    """The result of an aggregation, which always has a store (KStreamAggProcessorSupplier, KTableAggregate)."""

    def __init__(self, store: StoreDef):
        super().__init__()
        self.store = store

    def enable_old_values(self, force: bool) -> bool:
        self.send_old = True
        return True

    def view(self) -> Getter:
        return StoreGetter.of(self.store)

    def history(self) -> int | None:
        return self.store.history


class DerivedWork(TableWork):
    """A table that is computed row by row from another one; it has a store only where its step names one.

    For KTableFilter, KTableMapValues and KTableTransformValues.
    """

    def __init__(self, parent: Table, store: StoreDef | None):
        super().__init__()
        self.parent, self.store = parent, store

    def enable_old_values(self, force: bool) -> bool:
        if self.store is not None or self.parent.enable_old_values(force):
            self.send_old = True
        return self.send_old

    def view(self) -> Getter:
        return self.computed() if self.store is None else StoreGetter.of(self.store)

    def history(self) -> int | None:
        return self.parent.work.history() if self.store is None else self.store.history

    @abstractmethod
    def computed(self) -> Getter:
        """Return the lookup that computes a value from the parent's."""


@dataclass(eq=False)
class Table:
    """A KTable."""

    kind: ClassVar[str] = "table"
    label: ClassVar[str] = "a table"
    name: str
    node: GraphNode
    sources: tuple[str, ...]
    key_serde: AnySerde
    value_serde: AnySerde
    work: TableWork
    send_old: bool = False

    def enable_old_values(self, force: bool) -> bool:
        """Make the table send old values; return whether it does (KTableImpl.enableSendingOldValues)."""
        if not self.send_old:
            self.send_old = self.work.enable_old_values(force)
        return self.send_old

    def getter(self) -> Getter:
        """Return the lookup of values for joins (KTableImpl.valueGetterSupplier)."""
        return self.work.view()


@dataclass(eq=False)
class GlobalTable:
    """A GlobalKTable."""

    kind: ClassVar[str] = "global_table"
    label: ClassVar[str] = "a global table"
    store: str
    key_serde: AnySerde
    value_serde: AnySerde


@dataclass(eq=False)
class TopicStore:
    """A store of the file that a topic's records are written to; no step stands on it."""

    kind: ClassVar[str] = "topic_store"
    label: ClassVar[str] = "a store that is kept from a topic"
    store: str


@dataclass(eq=False)
class GroupedStream:
    """A KGroupedStream; `given_name` is its Grouped name."""

    kind: ClassVar[str] = "grouped_stream"
    label: ClassVar[str] = "a grouped stream"
    name: str
    node: GraphNode
    sources: tuple[str, ...]
    key_serde: AnySerde
    value_serde: AnySerde
    repartition_required: bool
    given_name: str | None = None
    repartition: RepartitionNode | None = None
    """The node that aggregations of a named group share."""


@dataclass(eq=False)
class GroupedTable:
    """A KGroupedTable."""

    kind: ClassVar[str] = "grouped_table"
    label: ClassVar[str] = "a grouped table"
    name: str
    node: GraphNode
    key_serde: AnySerde
    value_serde: AnySerde
    given_name: str | None = None
    repartition: RepartitionNode | None = None


@dataclass(eq=False)
class CogroupedStream:
    """A CogroupedKStream: groups with the `add` of each to the common aggregate."""

    kind: ClassVar[str] = "cogrouped"
    label: ClassVar[str] = "a cogrouped stream"
    inputs: dict[GroupedStream, Expression]
    parents: dict[GroupedStream, GraphNode] = field(default_factory=dict)
    """The parent of each group's aggregation; the aggregations of a cogroup share them."""


@dataclass(eq=False)
class WindowedStream:
    """A grouped or cogrouped stream with windows (TimeWindowedKStream, SessionWindowedKStream, …)."""

    kind: ClassVar[str] = "windowed_stream"
    label: ClassVar[str] = "a windowed stream"
    group: GroupedStream
    windows: Windows
    emit_on_close: bool = False


@dataclass(eq=False)
class WindowedCogroup:
    """A cogrouped stream with windows (TimeWindowedCogroupedKStream, …)."""

    kind: ClassVar[str] = "windowed_cogroup"
    label: ClassVar[str] = "a windowed cogrouped stream"
    group: CogroupedStream
    windows: Windows


@dataclass(eq=False)
class Branches:
    """The result of a branch step: the streams of its branches, and none of its own."""

    kind: ClassVar[str] = "branches"
    label: ClassVar[str] = "a set of branches"
    branches: dict[str, Upstream | None]
    """None: of a branch with a mistake in it."""


Upstream: TypeAlias = (
    Stream
    | Table
    | GlobalTable
    | TopicStore
    | GroupedStream
    | GroupedTable
    | CogroupedStream
    | WindowedStream
    | WindowedCogroup
    | Branches
)
"""The upstream of a step, or its result."""
