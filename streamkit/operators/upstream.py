"""What steps stand on: streams, tables, groups and windows, as the objects of the DSL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

from streamkit.graph.node import GraphNode, RepartitionNode
from streamkit.operators.getters import Getter, StoreGetter
from streamkit.operators.serdes import AnySerde
from streamkit.operators.windows import Windows


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

    def below(self, name: str, node: GraphNode, **changes: Any) -> Stream:
        """Return the stream that a step's node gives; `changes` names what it does not keep."""
        kept = {
            "sources": self.sources,
            "key_serde": self.key_serde,
            "value_serde": self.value_serde,
            "repartition_required": self.repartition_required,
        }
        return Stream(name, node, **{**kept, **changes})


class TableWork(ABC):
    """The part of a table's processor that later steps may still change (KTableProcessorSupplier)."""

    def __init__(self) -> None:
        self.send_old = False

    @abstractmethod
    def enable_old_values(self, force: bool) -> bool:
        """Make the node send old values, materializing what is needed if `force`; return whether it does."""

    @abstractmethod
    def view(self) -> Getter:
        """Return how to look up the table's values, materializing sources that are needed for it."""


class SourceWork(TableWork):
    """A table straight from a topic or a stream (KTableSource): it has a store once something needs one."""

    def __init__(self, store: Any, materialized: bool):
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
        return StoreGetter(self.store.name, self.store.type == "versioned")

    def definition(self) -> Any:
        """Return the store's definition, or None where nothing needs the store."""
        return self.store if self.materialized else None

    def definitions(self) -> list[Any]:
        """Return the store's definition as a list for `ProcessorNode.stores`."""
        return [self.store] if self.materialized else []


class AggregateWork(TableWork):
    """The result of an aggregation, which always has a store (KStreamAggProcessorSupplier, KTableAggregate)."""

    def __init__(self, store: Any):
        super().__init__()
        self.store = store

    def enable_old_values(self, force: bool) -> bool:
        self.send_old = True
        return True

    def view(self) -> Getter:
        return StoreGetter(self.store.name, self.store.type == "versioned")


@dataclass(eq=False)
class Table:
    """A KTable. `windows` stands where its keys are windowed."""

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
        """Ask for old values; Java's KTableImpl.enableSendingOldValues."""
        if not self.send_old:
            self.send_old = self.work.enable_old_values(force)
        return self.send_old

    def getter(self) -> Getter:
        """Return how joins look up values; Java's KTableImpl.valueGetterSupplier."""
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
    """A store of the file that a topic's records are written to; nothing stands on it."""

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
    """A CogroupedKStream: groups with what each adds to the common aggregate."""

    kind: ClassVar[str] = "cogrouped"
    label: ClassVar[str] = "a cogrouped stream"
    inputs: dict[GroupedStream, Any]
    parents: dict[GroupedStream, GraphNode] = field(default_factory=dict)
    """What the aggregation of each group hangs below; kept across aggregations."""


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
    """What a branch step leaves: no stream of its own, only those of its branches."""

    kind: ClassVar[str] = "branches"
    label: ClassVar[str] = "a set of branches"
    branches: dict[str, Any]
