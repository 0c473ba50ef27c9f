"""Nodes of the logical graph (org.apache.kafka.streams.kstream.internals.graph.GraphNode)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from streamkit.errors import Position

if TYPE_CHECKING:
    from streamkit.config.resets import OffsetReset
    from streamkit.expressions import Expression
    from streamkit.graph.physical_topology import Topology
    from streamkit.serdes.serde import Serde
    from streamkit.state.definitions import StoreDef

NOWHERE = Position("", 1, 1)

Work: TypeAlias = object
"""The work of a processor node, which the graph only carries: a frozen Processor, or a function that makes it once it is
complete, because later steps of a topology may still change it (old values, materialization, versioned semantics)."""

Stores: TypeAlias = "Sequence[StoreDef | str]"
"""Definitions of stores, or names of stores that other nodes define; in the order of connection."""

KnownSerdes: TypeAlias = "tuple[Serde | None, Serde | None]"
"""The serdes of keys and values that a node forwards; None where merged streams disagree and no node needs one."""

JoinSide: TypeAlias = "tuple[str, Work, Stores]"
"""One side of a join: the name of its node, its work and its stores."""


@dataclass(frozen=True)
class StepRef:
    """Where a node comes from, for errors: pipeline, step as the file names it, and its position."""

    pipeline: str
    step: str
    position: Position


@dataclass(frozen=True)
class OnError:
    """`on_error` of a step; action: "fail", "continue" or "dead_letter" (then `topic` is an entry's name)."""

    action: str
    topic: str | None = None


@dataclass(frozen=True)
class SourceDescription:
    """What a source reads, without its name; `plan.model.SourceNode` documents the fields."""

    topics: tuple[str, ...]
    pattern: str | None
    serdes: tuple[Serde, Serde]
    topic_serdes: Mapping[str, tuple[Serde, Serde]] = field(default_factory=dict)
    timestamps: Mapping[str, Expression | str] = field(default_factory=dict)
    reset: Mapping[str, OffsetReset | None] = field(default_factory=dict)
    internal: bool = False
    value_kind: str = "plain"


@dataclass(frozen=True)
class SinkDescription:
    """Where a sink writes to, without its name; `plan.model.SinkNode` documents the fields."""

    topic: str | None
    serdes: tuple[Serde, Serde]
    route: Expression | None = None
    partition: Expression | None = None
    internal: bool = False
    value_kind: str = "plain"


class WorkWithStore(Protocol):
    """The work of a node with one store."""

    @property
    def store(self) -> str:
        """The store's name."""


class GraphNode:
    """A node of the logical graph; parents and children keep the order of their insertion."""

    def __init__(self, name: str, key_changing: bool = False, value_changing: bool = False, merging: bool = False):
        self.name = name
        self.key_changing = key_changing
        self.value_changing = value_changing
        self.merging = merging
        self.relaxed_null_key_join = False
        self.priority = -1
        self.written = False
        self.output_versioned: bool | None = None
        """None: as versioned as the parents are."""
        self.versioned_parents: set[str] = set()
        """Names of the parents whose output is versioned; filled before writing."""
        self.origin: StepRef | None = None
        self.on_error: OnError | None = None
        self._parents: dict[GraphNode, None] = {}
        self._children: dict[GraphNode, None] = {}

    @property
    def parents(self) -> list[GraphNode]:
        """Parents in order of insertion."""
        return list(self._parents)

    @property
    def children(self) -> list[GraphNode]:
        """Children in order of insertion."""
        return list(self._children)

    @property
    def parent_names(self) -> tuple[str, ...]:
        """Names of the parents, the predecessors of what this node writes."""
        return tuple(parent.name for parent in self._parents)

    @property
    def position(self) -> Position:
        """The position of the step that the node comes from, for problems."""
        return NOWHERE if self.origin is None else self.origin.position

    def add_child(self, child: GraphNode) -> None:
        """Attach a child; attaching it again changes nothing."""
        self._children[child] = None
        child._parents[self] = None

    def remove_child(self, child: GraphNode) -> None:
        """Detach a child, if it is one."""
        if child in self._children:
            del self._children[child]
            child._parents.pop(self, None)

    def clear_children(self) -> None:
        """Detach all children."""
        for child in self.children:
            self.remove_child(child)

    def find_upward(self, accept: Callable[[GraphNode], bool]) -> GraphNode | None:
        """Return the first accepted node at or above this one, depth first in the order of the parents.

        InternalStreamsBuilder.findParentNodeMatching has this order since Kafka Streams 4.2; before, the last parent decided.
        """
        stack: list[GraphNode] = [self]
        seen: set[GraphNode] = set()
        while stack:
            node = stack.pop()
            if accept(node):
                return node
            if node not in seen:
                seen.add(node)
                stack.extend(reversed(node.parents))
        return None

    def write(self, topology: Topology) -> None:
        """Add the sources, processors, sinks and stores of the node to the physical topology."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class StreamSourceNode(GraphNode):
    """`builder.stream(...)`, and the sources inside foreign-key joins."""

    def __init__(self, name: str, description: SourceDescription):
        super().__init__(name)
        self.description = description

    def write(self, topology: Topology) -> None:
        topology.add_source(self, self.name, self.description)


class ProcessorGraphNode(GraphNode):
    """A processor below its parents, with the stores that it uses (also StatefulProcessorNode, …)."""

    def __init__(self, name: str, work: Work, stores: Callable[[], Stores] | Stores = (), **flags: bool):
        super().__init__(name, **flags)
        self.work = work
        self.stores = stores
        self.serdes: KnownSerdes = (None, None)
        self.window_grace: int | None = None
        """How long after its end a window of this aggregation closes (GraphGraceSearchUtil)."""

    def write(self, topology: Topology) -> None:
        topology.add_processor(self, self.name, self.work, self.parent_names, self.serdes)
        topology.connect(self, self.name, self.stores() if callable(self.stores) else self.stores)


class TableSourceNode(GraphNode):
    """`builder.table(...)` or `builder.globalTable(...)`: a source and the processor that keeps the table."""

    def __init__(self, name: str, source_name: str, description: SourceDescription, work: Work, is_global: bool):
        super().__init__(name)
        self.source_name = source_name
        self.description = description
        self.work = work
        self.is_global = is_global
        self.store: Callable[[], StoreDef | None] = lambda: None
        self.serdes: KnownSerdes = (None, None)
        self.reuse_source_topic = False

    def write(self, topology: Topology) -> None:
        topology.add_source(self, self.source_name, self.description, is_global=self.is_global)
        topology.add_processor(self, self.name, self.work, (self.source_name,), self.serdes)
        store = self.store()
        if store is not None:
            topology.connect(self, self.name, (store,), is_global=self.is_global)


class StreamSinkNode(GraphNode):
    """`stream.to(...)` and the sinks inside foreign-key joins."""

    def __init__(self, name: str, description: SinkDescription):
        super().__init__(name)
        self.description = description

    def write(self, topology: Topology) -> None:
        topology.add_sink(self, self.name, self.description, self.parent_names)


class RepartitionNode(GraphNode):
    """A filter, a sink to an internal topic and the source that reads it again (BaseRepartitionNode).

    `optimizable`: whether merge.repartition.topics may replace it; explicit repartitions are exempt.
    `filter_name` None: the form of grouped tables, which has no filter (GroupedTableOperationRepartitionNode).
    """

    def __init__(
        self,
        names: tuple[str, str | None, str],
        topic: str,
        serdes: tuple[Serde, Serde],
        *,
        optimizable: bool = True,
        partitions: int | None = None,
        partition: Expression | None = None,
        make_filter: Callable[[bool], Work] | None = None,
    ):
        self.sink_name, self.filter_name, self.source_name = names
        super().__init__(self.source_name)
        self.topic = topic
        self.serdes = serdes
        self.optimizable = optimizable
        self.partitions = partitions
        self.partition = partition
        """The expression that gives a record's partition; None: its key decides."""
        self.make_filter = make_filter
        self.drops_null_keys = False

    def write(self, topology: Topology) -> None:
        topology.add_internal_topic(self, self.topic, self.partitions)
        parents = self.parent_names
        kind = "changed"
        if self.filter_name is not None and self.make_filter is not None:
            work = self.make_filter(self.drops_null_keys)
            topology.add_processor(self, self.filter_name, work, parents, self.serdes)
            parents = (self.filter_name,)
            kind = "plain"
        sink = SinkDescription(self.topic, self.serdes, partition=self.partition, internal=True, value_kind=kind)
        topology.add_sink(self, self.sink_name, sink, parents)
        source = SourceDescription((self.topic,), None, self.serdes, internal=True, value_kind=kind)
        topology.add_source(self, self.source_name, source)


class StreamJoinNode(GraphNode):
    """The two sides of a stream-stream join and their merge (StreamStreamJoinNode)."""

    def __init__(
        self,
        name: str,
        windowed: tuple[str, str],
        sides: tuple[JoinSide, JoinSide],
        merge: Work,
        self_join: WorkWithStore,
    ):
        super().__init__(name)
        self.windowed = windowed
        """The names of the nodes that keep each side's records in its window store."""
        self.sides = sides
        self.merge = merge
        self.self_join = self_join
        self.is_self_join = False
        self.serdes: KnownSerdes = (None, None)

    def write(self, topology: Topology) -> None:
        if self.is_self_join:
            topology.add_processor(self, self.name, self.self_join, (self.windowed[0],), self.serdes)
            topology.connect(self, self.name, (self.self_join.store,))
            return
        for windowed, (name, work, _) in zip(self.windowed, self.sides, strict=True):
            topology.add_processor(self, name, work, (windowed,), self.serdes)
        topology.add_processor(self, self.name, self.merge, (self.sides[0][0], self.sides[1][0]), self.serdes)
        for name, _, stores in self.sides:
            topology.connect(self, name, stores)


class TableJoinNode(GraphNode):
    """The two sides of a table-table join and their merge (KTableKTableJoinNode)."""

    def __init__(
        self, name: str, parents: tuple[str, str], sides: tuple[JoinSide, JoinSide], merge: Work, stores: Stores
    ):
        super().__init__(name)
        self.table_names = parents
        self.sides = sides
        """Each side's stores are those of the other side."""
        self.merge = merge
        self.stores = stores
        self.serdes: KnownSerdes = (None, None)

    def write(self, topology: Topology) -> None:
        for parent, (name, work, _) in zip(self.table_names, self.sides, strict=True):
            topology.add_processor(self, name, work, (parent,), self.serdes)
        topology.add_processor(self, self.name, self.merge, (self.sides[0][0], self.sides[1][0]), self.serdes)
        for name, _, stores in self.sides:
            topology.connect(self, name, stores)
        topology.connect(self, self.name, self.stores)
