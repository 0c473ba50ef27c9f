"""What happens to the graph before it is written: equal sources merge, and `topology.optimization` rewrites.

Follows InternalStreamsBuilder.buildAndOptimizeTopology and StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from streamkit.graph.node import GraphNode, RepartitionNode, StreamJoinNode, StreamSourceNode, TableSourceNode

if TYPE_CHECKING:
    from streamkit.graph.builder import GraphBuilder

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
    """Apply the optimizations in Java's order, then let repartition filters drop null keys where nothing needs them."""
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
        left, right = (windowed.get(name) for name in node.windowed)
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
    """Replace key-changing nodes by the merge below them where all their repartitions stand below that merge."""
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
