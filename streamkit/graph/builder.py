"""The logical graph of a topology: nodes, their build priorities, and writing them in order.

Follows org.apache.kafka.streams.kstream.internals.InternalStreamsBuilder.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import TYPE_CHECKING

from streamkit.errors import Problem
from streamkit.graph import optimize
from streamkit.graph.node import NOWHERE, GraphNode, RepartitionNode, StepRef, TableSourceNode
from streamkit.graph.node_names import Names
from streamkit.graph.physical_topology import Topology

if TYPE_CHECKING:
    from streamkit.graph.node import OnError


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
        optimize.merge_duplicate_sources(self)
        optimize.optimize(self, optimizations)
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

    def problem(self, node: GraphNode, message: str) -> None:
        """Add a problem at the step that a node comes from."""
        self.problems.append(Problem(node.position, message))

    def nodes(self) -> list[GraphNode]:
        """Return every node, parents before children where no paths join again."""
        seen: dict[GraphNode, None] = {}
        stack = [self.root]
        while stack:
            node = stack.pop()
            if node not in seen:
                seen[node] = None
                stack.extend(reversed(node.children))
        return list(seen)

    def _add_to_key_changer(self, node: RepartitionNode) -> None:
        changer = node.find_upward(lambda each: each.key_changing)
        nearest = node.find_upward(lambda each: each.key_changing or each.value_changing)
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
