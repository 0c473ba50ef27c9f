"""The physical topology: sources, processors, sinks, stores and how they group into sub-topologies.

Follows InternalTopologyBuilder; a TopologyException of Java is a problem at the position of the step here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from streamkit.errors import Position, Problem
from streamkit.hashing import hash_order

if TYPE_CHECKING:
    from streamkit.config.settings import OffsetReset
    from streamkit.expressions import Expression
    from streamkit.serdes.serde import Serde
    from streamkit.state.definitions import StoreDef


@dataclass
class WrittenNode:
    """A source, processor or sink in the order of writing; it has a `source` or a `sink` or a `work`."""

    name: str
    origin: GraphNode
    parents: tuple[str, ...] = ()
    children: list[str] = field(default_factory=list)
    source: SourceDescription | None = None
    sink: SinkDescription | None = None
    work: Work | None = None
    serdes: KnownSerdes = (None, None)
    stores: list[str] = field(default_factory=list)
    is_global: bool = False

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that a source reads, in the order in which Java's HashSet keeps them."""
        return tuple(hash_order(self.source.topics)) if self.source is not None else ()


class Topology:
    """The topology that graph nodes write themselves to, in the order of the graph's priority queue."""

    def __init__(self, application: str = "") -> None:
        self.application = application
        self.nodes: dict[str, WrittenNode] = {}
        self.stores: dict[str, StoreDef] = {}
        self.global_stores: dict[str, StoreDef] = {}
        self.global_topics: dict[str, str] = {}
        self.internal_topics: dict[str, int | None] = {}
        self.problems: list[Problem] = []
        self.deferred_stores: set[str] = set()
        """Read-only stores, which are added at the end; the processors that use them are connected after that."""
        self._deferred: list[tuple[GraphNode, str, str]] = []
        self._groups = _Groups()
        self._store_users: dict[str, str] = {}
        self._source_topics: set[str] = set()
        self._patterns: dict[str, re.Pattern[str]] = {}

    # -- Called by graph nodes --

    def add_source(self, node: GraphNode, name: str, description: SourceDescription, is_global: bool = False) -> None:
        """Add a source of topics or of a pattern."""
        if not self._check_name(node, name):
            return
        if description.pattern is not None:
            self._add_pattern(node, name, description.pattern)
        for topic in description.topics:
            self._check_topic(node, topic)
            self._source_topics.add(topic)
            if is_global:
                self.global_topics[topic] = name
            if description.internal and topic not in self.internal_topics:
                self.add_internal_topic(node, topic)
        self.nodes[name] = WrittenNode(name, node, source=description, is_global=is_global)
        self._groups.add(name)

    def add_processor(
        self, node: GraphNode, name: str, work: Work, parents: tuple[str, ...], serdes: KnownSerdes
    ) -> None:
        """Add a processor below nodes that were added before."""
        if self._check_name(node, name):
            self.nodes[name] = WrittenNode(name, node, parents, work=work, serdes=serdes)
            self._attach(name, parents)

    def add_sink(self, node: GraphNode, name: str, description: SinkDescription, parents: tuple[str, ...]) -> None:
        """Add a sink below nodes that were added before."""
        if self._check_name(node, name):
            self.nodes[name] = WrittenNode(name, node, parents, sink=description)
            self._attach(name, parents)

    def add_internal_topic(self, node: GraphNode, topic: str, partitions: int | None = None) -> None:
        """Register a topic that gets the application's prefix."""
        self.internal_topics[topic] = partitions
        self.check_length(node, topic, "repartition topic")

    def connect(
        self, node: GraphNode, processor: str, stores: Iterable[StoreDef | str], is_global: bool = False
    ) -> None:
        """Define stores (given as definitions) and connect them, or others by their names, to a processor."""
        for store in stores:
            if isinstance(store, str) and store in self.deferred_stores:
                self._deferred.append((node, processor, store))
            elif isinstance(store, str):
                self._connect(node, processor, store)
            elif self._define(node, store, is_global):
                if is_global:
                    self.nodes[processor].stores.append(store.name)
                else:
                    self._connect(node, processor, store.name)

    def connect_deferred(self) -> None:
        """Connect the processors that use read-only stores (Topology.connectProcessorAndStateStores)."""
        for node, processor, store in self._deferred:
            self._connect(node, processor, store)
        self._deferred.clear()

    def check_length(self, node: GraphNode, name: str, what: str) -> None:
        """Report an internal topic whose name with the application's prefix is illegal in Kafka."""
        full = f"{self.application}-{name}"
        if illegal_name(full) is not None:
            self.problem(node, f"The {what} would be called {full}: {illegal_name(full)}")

    def problem(self, node: GraphNode, message: str) -> None:
        """Add a problem at the step that a node comes from, once."""
        problem = Problem(node.position, message)
        if problem not in self.problems:
            self.problems.append(problem)

    # -- Used by the plan --

    def node_groups(self) -> list[list[WrittenNode]]:
        """Return the sub-topologies: nodes in write order, groups by first appearance."""
        groups: dict[str, list[WrittenNode]] = {}
        for name, node in self.nodes.items():
            groups.setdefault(self._groups.root(name), []).append(node)
        return list(groups.values())

    def source_topics(self, node_name: str) -> tuple[str, ...]:
        """Return the topics of a source by the node's name; nothing for other nodes, and for sources that were merged into another."""
        node = self.nodes.get(node_name)
        return node.topics if node is not None else ()

    # -- Implementation --

    def _check_name(self, node: GraphNode, name: str) -> bool:
        if name in self.nodes:
            self.problem(node, f"Processor {name} is already added. Give one of the steps another `name`")
            return False
        message = illegal_name(name)
        if message is not None:
            self.problem(node, message)
        return True

    def _attach(self, name: str, parents: tuple[str, ...]) -> None:
        self._groups.add(name)
        for parent in parents:
            if parent in self.nodes:
                children = self.nodes[parent].children
                if name not in children:
                    children.append(name)
                self._groups.unite(name, parent)

    def _add_pattern(self, node: GraphNode, name: str, pattern: str) -> None:
        compiled = re.compile(pattern)
        for topic in sorted(self._source_topics - set(self.global_topics)):
            if compiled.fullmatch(topic):
                self.problem(
                    node,
                    f"Pattern {pattern} will match a topic that has already been registered by another source: {topic}",
                )
        self._patterns[name] = compiled

    def _check_topic(self, node: GraphNode, topic: str) -> None:
        if topic in self._source_topics:
            self.problem(
                node,
                f"Topic {topic} has already been registered by another source. "
                "Refer to that pipeline with `from:` or `with:` in place of reading the topic again",
            )
        for pattern in self._patterns.values():
            if pattern.fullmatch(topic):
                self.problem(node, f"Topic {topic} matches a Pattern already registered by another source.")

    def _define(self, node: GraphNode, store: StoreDef, is_global: bool) -> bool:
        own = self.global_stores if is_global else self.stores
        other = self.stores if is_global else self.global_stores
        if store.name in other or own.get(store.name, store) is not store:
            kind = "GlobalStateStore" if store.name in self.global_stores else "StateStore"
            self.problem(node, f"A different {kind} has already been added with the name {store.name}")
            return False
        if store.name not in own and store.changelog_topic is not None:
            self.check_length(node, f"{store.name}-changelog", "changelog topic")
        own[store.name] = store
        return True

    def _connect(self, node: GraphNode, processor: str, store: str) -> None:
        if store in self.global_stores:
            self.problem(
                node,
                f"Global StateStore {store} can be used by a Processor without being specified; "
                "it should not be explicitly passed.",
            )
            return
        if store not in self.stores:
            self.problem(node, f"StateStore {store} is not added yet.")
            return
        written = self.nodes.get(processor)
        if written is None:
            return
        user = self._store_users.setdefault(store, processor)
        self._groups.unite(user, processor)
        if store not in written.stores:
            written.stores.append(store)


class _Groups:
    """Union-find over node names (QuickUnion)."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def add(self, name: str) -> None:
        self._parent.setdefault(name, name)

    def root(self, name: str) -> str:
        while self._parent[name] != name:
            self._parent[name] = self._parent[self._parent[name]]
            name = self._parent[name]
        return name

    def unite(self, first: str, second: str) -> None:
        one, other = self.root(first), self.root(second)
        if one != other:
            self._parent[one] = other


# Nodes of the logical graph (org.apache.kafka.streams.kstream.internals.graph.GraphNode).

NOWHERE = Position("", 1, 1)

Work: TypeAlias = object
"""The work of a processor node, which the graph only carries: a frozen Processor, or a function that makes it once it is
complete, because later steps of a topology may still change it (old values, materialization, versioned semantics)."""

Stores: TypeAlias = "Sequence[StoreDef | str]"
"""Definitions of stores, or names of stores that other nodes define; in the order of connection."""

KnownSerdes: TypeAlias = "tuple[Serde | None, Serde | None]"
"""The serdes of keys and values that a node forwards; None if merged streams disagree and no node needs one."""

JoinSide: TypeAlias = "tuple[str, Work, Stores]"
"""One side of a join: the name of its node, its work and its stores."""


@dataclass(frozen=True)
class StepRef:
    """Where a node comes from, for errors: pipeline, step as the file names it, and its position."""

    pipeline: str
    step: str
    position: Position

    @property
    def place(self) -> str:
        """The beginning of a message about the step: file, line, pipeline, step, and the uses of macros around it."""
        position = self.position
        return f"{position.file}:{position.line}: pipeline {self.pipeline}, step {self.step}{position.note}"


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


class JoinNode(GraphNode):
    """The two sides of a join and their merge."""

    def __init__(self, name: str, above: tuple[str, str], sides: tuple[JoinSide, JoinSide], merge: Work):
        super().__init__(name)
        self.above = above
        """The names of the nodes above the sides."""
        self.sides = sides
        """Each side uses the stores of the other side."""
        self.merge = merge
        self.serdes: KnownSerdes = (None, None)

    def write(self, topology: Topology) -> None:
        for above, (name, work, _) in zip(self.above, self.sides, strict=True):
            topology.add_processor(self, name, work, (above,), self.serdes)
        topology.add_processor(self, self.name, self.merge, (self.sides[0][0], self.sides[1][0]), self.serdes)
        for name, _, stores in self.sides:
            topology.connect(self, name, stores)


class StreamJoinNode(JoinNode):
    """A stream-stream join, below the nodes that keep each side's records in its window store (StreamStreamJoinNode)."""

    def __init__(
        self, name: str, above: tuple[str, str], sides: tuple[JoinSide, JoinSide], merge: Work, self_join: JoinSide
    ):
        super().__init__(name, above, sides, merge)
        self.self_join = self_join
        self.is_self_join = False

    def write(self, topology: Topology) -> None:
        if not self.is_self_join:
            super().write(topology)
            return
        name, work, stores = self.self_join
        topology.add_processor(self, name, work, (self.above[0],), self.serdes)
        topology.connect(self, name, stores)


class TableJoinNode(JoinNode):
    """A table-table join (KTableKTableJoinNode)."""

    def __init__(
        self, name: str, above: tuple[str, str], sides: tuple[JoinSide, JoinSide], merge: Work, stores: Stores
    ):
        super().__init__(name, above, sides, merge)
        self.stores = stores

    def write(self, topology: Topology) -> None:
        super().write(topology)
        topology.connect(self, self.name, self.stores)


# Names of nodes and stores: one counter for a whole topology, as in InternalStreamsBuilder.

LONGEST_NAME = 249
_LEGAL = re.compile(r"[A-Za-z0-9._-]+")


class Names:
    """Generates names; every call uses up one index (InternalNameProvider)."""

    def __init__(self) -> None:
        self._next = 0

    def processor(self, prefix: str) -> str:
        """Return `prefix` with the next index.

        >>> Names().processor("KSTREAM-MAP-")
        'KSTREAM-MAP-0000000000'
        """
        index = self._next
        self._next += 1
        return f"{prefix}{index:010d}"

    def store(self, prefix: str) -> str:
        """Return a store name with the next index.

        >>> Names().store("KSTREAM-REDUCE-")
        'KSTREAM-REDUCE-STATE-STORE-0000000000'
        """
        return self.processor(f"{prefix}STATE-STORE-")

    def named(self, name: str | None, prefix: str, suffix: str = "") -> str:
        """Return `name` with `suffix`, or a generated name; an index is used up either way (NamedInternal)."""
        generated = self.processor(prefix)
        return generated if name is None else name + suffix


def illegal_name(name: str) -> str | None:
    """Return Kafka's message about an illegal name, or None when the name is legal (Named.validate).

    >>> illegal_name("a b")
    'Name "a b" is illegal, it contains a character other than ASCII alphanumerics, \\'.\\', \\'_\\' and \\'-\\''
    """
    if not name:
        return "Name is illegal, it can't be empty"
    if name in (".", ".."):
        return 'Name cannot be "." or ".."'
    if len(name) > LONGEST_NAME:
        return f"Name is illegal, it can't be longer than {LONGEST_NAME} characters, name: {name}"
    if not _LEGAL.fullmatch(name):
        return f"Name \"{name}\" is illegal, it contains a character other than ASCII alphanumerics, '.', '_' and '-'"
    return None
