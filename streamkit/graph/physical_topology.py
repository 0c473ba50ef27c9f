"""The physical topology: sources, processors, sinks, stores and how they group into sub-topologies.

Follows InternalTopologyBuilder; a TopologyException of Java is a problem at the position of the step here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamkit.errors import Problem
from streamkit.graph.node import GraphNode, KnownSerdes, SinkDescription, SourceDescription, Work
from streamkit.graph.node_names import illegal_name
from streamkit.hashing import hash_order

if TYPE_CHECKING:
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
