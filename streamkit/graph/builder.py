"""The logical graph of a topology: nodes, their build priorities, and writing them in order.

Follows org.apache.kafka.streams.kstream.internals.InternalStreamsBuilder.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from streamkit.errors import Problem
from streamkit.graph.physical_topology import (
    NOWHERE,
    GraphNode,
    Names,
    OnError,
    RepartitionNode,
    StepRef,
    StreamJoinNode,
    StreamSourceNode,
    TableSourceNode,
    Topology,
)


class GraphBuilder:
    """Collects graph nodes while steps are built; `write` gives the physical topology."""

    def __init__(self, application: str = "") -> None:
        self.application = application
        self.names = Names()
        self.root = GraphNode("root")
        self.root.written = True
        self.origin = StepRef("", "", NOWHERE)
        """The step whose nodes are being added."""
        self.on_error: OnError | None = None
        self.copartitioned: list[dict[str, None]] = []
        self.key_changers: dict[GraphNode, dict[RepartitionNode, None]] = {}
        """Key-changing nodes with the repartition nodes that they caused."""
        self.merges: dict[GraphNode, None] = {}
        self.suppressions: list[GraphNode] = []
        self.read_only: list[TableSourceNode] = []
        """Sources of read-only stores, which are added to the topology when everything else is written."""
        self.problems: list[Problem] = []
        self._priority = 0

    def add(self, parents: GraphNode | Iterable[GraphNode], child: GraphNode) -> None:
        """Attach a node below its parents; the last attachment decides its build priority (addGraphNode)."""
        for parent in (parents,) if isinstance(parents, GraphNode) else parents:
            parent.add_child(child)
            child.priority = self._priority
            self._priority += 1
            if child.origin is None:
                child.origin = self.origin
                child.on_error = self.on_error
            if child.key_changing:
                self.key_changers[child] = {}
            elif isinstance(child, RepartitionNode):
                if child.optimizable:
                    self._add_to_key_changer(child)
            elif child.merging:
                self.merges[child] = None

    def copartition(self, sources: Iterable[str]) -> None:
        """Require equal partition counts of the topics that these source nodes read (copartitionSources)."""
        self.copartitioned.append(dict.fromkeys(sources))

    def write(self, optimizations: frozenset[str] = frozenset()) -> Topology:
        """Optimize the graph and write it; `problems` of the result holds the errors that Java throws."""
        merge_duplicate_sources(self)
        optimize(self, optimizations)
        self._find_versioned()
        topology = Topology(self.application)
        topology.problems.extend(self.problems)
        topology.deferred_stores = {store.name for node in self.read_only if (store := node.store()) is not None}
        queue = [(child.priority, index, child) for index, child in enumerate(self.root.children)]
        heapq.heapify(queue)
        sequence = len(queue)
        while queue:
            _, _, node = heapq.heappop(queue)
            if node.written or not all(parent.written for parent in node.parents):
                continue
            node.write(topology)
            node.written = True
            for child in node.children:
                heapq.heappush(queue, (child.priority, sequence, child))
                sequence += 1
        topology.deferred_stores = set()
        for source in self.read_only:
            source.write(topology)
        topology.connect_deferred()
        return topology

    def release(self) -> None:
        """Detach all nodes, once the topology is written: they refer to each other in circles, which only the garbage collector frees."""
        for node in self.nodes():
            node.clear_children()

    def problem(self, node: GraphNode, message: str) -> None:
        """Add a problem at the step that a node comes from."""
        self.problems.append(Problem(node.position, message))

    def nodes(self) -> list[GraphNode]:
        """Return every node, parents before children if no paths join again."""
        seen: dict[GraphNode, None] = {}
        stack = [self.root]
        while stack:
            node = stack.pop()
            if node not in seen:
                seen[node] = None
                stack.extend(reversed(node.children))
        return list(seen)

    def _add_to_key_changer(self, node: RepartitionNode) -> None:
        changer = node.find_upward(lambda ancestor: ancestor.key_changing)
        nearest = node.find_upward(lambda ancestor: ancestor.key_changing or ancestor.value_changing)
        if changer is not None and nearest is changer:
            self.key_changers[changer][node] = None

    def _find_versioned(self) -> None:
        """Set for every node which of its parents are versioned (enableVersionedSemantics)."""
        known: dict[GraphNode, bool] = {self.root: False}
        for node in self.nodes():
            node.versioned_parents = {parent.name for parent in node.parents if _is_versioned(parent, known)}
        for node in self.suppressions:
            if node.parents and all(_is_versioned(parent, known) for parent in node.parents):
                self.problem(
                    node,
                    "suppress() is only supported for non-versioned KTables "
                    "(note that version semantics might be inherited from upstream)",
                )


def _is_versioned(node: GraphNode, known: dict[GraphNode, bool]) -> bool:
    """Whether a node's output is versioned, by itself or because all its parents are."""
    stack = [node]
    while stack:
        current = stack[-1]
        if current in known:
            stack.pop()
            continue
        if current.output_versioned is not None:
            known[current] = current.output_versioned
            stack.pop()
            continue
        waiting = [parent for parent in current.parents if parent not in known]
        if waiting:
            stack.extend(waiting)
            continue
        known[current] = all(known[parent] for parent in current.parents)
        stack.pop()
    return known[node]


# What happens to the graph before it is written: equal sources merge, and `topology.optimization` rewrites.
#
# Follows InternalStreamsBuilder.buildAndOptimizeTopology and StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG.

REUSE = "reuse.ktable.source.topics"
MERGE_REPARTITIONS = "merge.repartition.topics"
SELF_JOIN = "single.store.self.join"
ALL = frozenset({REUSE, MERGE_REPARTITIONS, SELF_JOIN})


def merge_duplicate_sources(graph: GraphBuilder) -> None:
    """Let `stream()` calls on equal topics (or patterns) share the first one's node (mergeDuplicateSourceNodes)."""
    by_topic: dict[str, StreamSourceNode] = {}
    by_pattern: dict[str, StreamSourceNode] = {}
    for node in graph.root.children:
        if not isinstance(node, StreamSourceNode):
            continue
        pattern, topics = node.description.pattern, node.description.topics
        if pattern is not None:
            main = by_pattern.setdefault(pattern, node)
            if main is not node:
                _absorb(graph, main, node)
            continue
        for topic in topics:
            main = by_topic.setdefault(topic, node)
            if main is node:
                continue
            if set(main.description.topics) != set(topics):
                graph.problem(
                    node,
                    "Two source nodes are subscribed to overlapping but not equal input topics: "
                    f"[{', '.join(main.description.topics)}] and [{', '.join(topics)}]",
                )
                # The problem is reported once: writing the node would report the topic again.
                graph.root.remove_child(node)
                break
            _absorb(graph, main, node)


def _absorb(graph: GraphBuilder, main: StreamSourceNode, other: StreamSourceNode) -> None:
    if main.description.serdes != other.description.serdes:
        read = ", ".join(main.description.topics)
        graph.problem(other, f"Two sources read the same topics [{read}] with different serdes; the first would decide")
    for child in other.children:
        other.remove_child(child)
        main.add_child(child)
    graph.root.remove_child(other)


def optimize(graph: GraphBuilder, wanted: frozenset[str]) -> None:
    """Apply the optimizations in Java's order, then let repartition filters drop null keys if nothing needs them."""
    if REUSE in wanted:
        for node in graph.nodes():
            if isinstance(node, TableSourceNode) and not node.is_global:
                node.reuse_source_topic = True
    if MERGE_REPARTITIONS in wanted:
        _merge_repartitions(graph)
    if SELF_JOIN in wanted:
        _rewrite_self_joins(graph)
    _drop_null_keys(graph)


def _drop_null_keys(graph: GraphBuilder) -> None:
    """Mark repartitions above no left or outer join (NodesWithRelaxedNullKeyJoinDownstream)."""
    nodes = graph.nodes()
    needed: set[GraphNode] = set()
    stack = [node for node in nodes if node.relaxed_null_key_join]
    while stack:
        for parent in stack.pop().parents:
            if parent not in needed:
                needed.add(parent)
                stack.append(parent)
    for node in nodes:
        if isinstance(node, RepartitionNode):
            node.drops_null_keys = node not in needed


def _rewrite_self_joins(graph: GraphBuilder) -> None:
    for node in graph.nodes():
        if not isinstance(node, StreamJoinNode) or len(node.parents) != 1:
            continue
        parent = node.parents[0]
        windowed = {child.name: child for child in parent.children}
        left, right = (windowed.get(name) for name in node.above)
        if left is not None and right is not None:
            parent.remove_child(right)
            node.is_self_join = True


def _merge_repartitions(graph: GraphBuilder) -> None:
    """Replace the repartitions below one key-changing node by a single one (mergeRepartitionTopics)."""
    _move_to_merges(graph)
    for changer, repartitions in list(graph.key_changers.items()):
        if not repartitions:
            continue
        single = _single_repartition(graph, list(repartitions))
        single.priority = changer.priority
        for replaced in repartitions:
            child = replaced.find_upward(_is_below(changer))
            if child is None:
                graph.problem(
                    replaced, f"merge.repartition.topics: Found a null keyChangingChild node for {replaced.topic}"
                )
                continue
            single.add_child(child)
            changer.remove_child(child)
            parents = replaced.parents
            for below in replaced.children:
                for parent in parents:
                    parent.add_child(below)
            for parent in parents:
                parent.remove_child(replaced)
            replaced.clear_children()
            for group in graph.copartitioned:
                if replaced.name in group:
                    del group[replaced.name]
                    group[single.name] = None
        changer.add_child(single)
        del graph.key_changers[changer]


def _is_below(parent: GraphNode) -> Callable[[GraphNode], bool]:
    """Return the test whether a node is a child of `parent`."""
    return lambda node: parent in node.parents


def _move_to_merges(graph: GraphBuilder) -> None:
    """Replace key-changing nodes by the merge below them if all their repartitions are below that merge."""
    gathered: dict[GraphNode, list[GraphNode]] = {}
    for merge in graph.merges:
        gathered[merge] = []
        for changer, repartitions in graph.key_changers.items():
            if all(node.find_upward(_is_below(merge)) is not None for node in repartitions):
                below = merge.find_upward(_is_below(changer))
                if below is not None:
                    gathered[merge].append(changer)
    replaced: dict[GraphNode, None] = {}
    for merge, changers in gathered.items():
        repartitions = {}
        for changer in changers:
            repartitions.update(graph.key_changers[changer])
            replaced[changer] = None
        graph.key_changers[merge] = repartitions
    for changer in replaced:
        del graph.key_changers[changer]


def _single_repartition(graph: GraphBuilder, replaced: list[RepartitionNode]) -> RepartitionNode:
    first = replaced[0]
    for prefix in ("KSTREAM-SINK-", "KSTREAM-FILTER-", "KSTREAM-SOURCE-"):
        graph.names.processor(prefix)
    topic = first.topic
    names = (f"{topic}-sink", f"{topic}-filter", f"{topic}-source")
    single = RepartitionNode(names, topic, first.serdes, make_filter=first.make_filter)
    single.origin, single.on_error = first.origin, first.on_error
    return single
