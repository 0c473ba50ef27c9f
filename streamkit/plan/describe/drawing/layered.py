"""A layered layout of a directed graph (Sugiyama): layers, few crossings, straight lines where they fit."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

SWEEPS = 12
_LANE = 14.0
"""The width of an edge that passes through a layer."""


@dataclass(frozen=True)
class Size:
    """Width and height in pixels."""

    width: float
    height: float


@dataclass
class Layout:
    """Centres of nodes, and for each edge the points between its ends."""

    width: float
    height: float
    centres: dict[Any, tuple[float, float]]
    bends: dict[tuple[Any, Any], list[tuple[float, float]]]


@dataclass
class _Graph:
    sizes: dict[Any, Size]
    layers: list[list[Any]] = field(default_factory=list)
    above: dict[Any, list[Any]] = field(default_factory=dict)
    below: dict[Any, list[Any]] = field(default_factory=dict)
    chains: dict[tuple[Any, Any], list[Any]] = field(default_factory=dict)
    ends: dict[tuple[Any, Any], float] = field(default_factory=dict)
    """By (node, neighbour): how far right of the node's centre their edge ends."""

    def link(self, upper: Any, lower: Any) -> None:
        self.below.setdefault(upper, []).append(lower)
        self.above.setdefault(lower, []).append(upper)

    def share(self, node: Any, neighbour: Any) -> float:
        """Return where on the node's width, from 0 to below 1, the edge to a neighbour ends."""
        width = self.sizes[node].width
        return min(0.99, max(0.0, 0.5 + self.ends.get((node, neighbour), 0.0) / width)) if width else 0.5


def lay_out(
    sizes: Mapping[Any, Size],
    edges: Sequence[tuple[Any, Any]],
    *,
    gap: float,
    layer_gap: float,
    last: frozenset[Any] = frozenset(),
    ends: Mapping[tuple[Any, Any], float] | None = None,
) -> Layout:
    """Place nodes from top to bottom; equal input, equal output.

    `last`: nodes that belong in the last layer. `ends`: by edge, how far right of the centre of its wider end it ends.

    >>> layout = lay_out({"a": Size(10, 10), "b": Size(10, 10)}, [("a", "b")], gap=5, layer_gap=20)
    >>> layout.centres, layout.height
    ({'a': (5.0, 5.0), 'b': (5.0, 35.0)}, 40.0)
    """
    forward = _without_cycles(list(sizes), edges)
    ranks = _ranks(list(sizes), forward, last)
    graph = _with_lanes(sizes, forward, ranks)
    for (upper, lower), offset in (ends or {}).items():
        _end_at(graph, upper, lower, offset)
    _order(graph)
    across = _across(graph, gap)
    return _placed(graph, across, layer_gap, edges)


def _without_cycles(nodes: list[Any], edges: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Turn round the edges that close a cycle, found depth first in the order of nodes."""
    targets: dict[Any, list[Any]] = {}
    for upper, lower in edges:
        targets.setdefault(upper, []).append(lower)
    state: dict[Any, int] = {}
    back: set[tuple[Any, Any]] = set()
    for root in nodes:
        stack = [(root, iter(targets.get(root, ())))] if root not in state else []
        state.setdefault(root, 1)
        while stack:
            node, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                state[node] = 2
                stack.pop()
            elif state.get(following) == 1:
                back.add((node, following))
            elif following not in state:
                state[following] = 1
                stack.append((following, iter(targets.get(following, ()))))
    turned = [(edge[1], edge[0]) if edge in back else edge for edge in edges if edge[0] != edge[1]]
    return list(dict.fromkeys(turned))


def _ranks(nodes: list[Any], edges: list[tuple[Any, Any]], last: frozenset[Any]) -> dict[Any, int]:
    """Return each node's layer: as far up as what stands above it allows."""
    parents: dict[Any, list[Any]] = {node: [] for node in nodes}
    children: dict[Any, list[Any]] = {node: [] for node in nodes}
    for upper, lower in edges:
        parents[lower].append(upper)
        children[upper].append(lower)
    missing = {node: len(parents[node]) for node in nodes}
    ready = [node for node in nodes if not missing[node]]
    ranks: dict[Any, int] = {}
    for node in ready:
        ranks[node] = max((ranks[parent] + 1 for parent in parents[node]), default=0)
        for child in children[node]:
            missing[child] -= 1
            if not missing[child]:
                ready.append(child)
    deepest = max(ranks.values(), default=0)
    for node in nodes:
        if node in last:
            ranks[node] = deepest
        elif not parents[node] and children[node]:
            # A root goes down to what it feeds.
            ranks[node] = max(0, min(ranks[child] for child in children[node]) - 1)
    return ranks


def _with_lanes(sizes: Mapping[Any, Size], edges: list[tuple[Any, Any]], ranks: dict[Any, int]) -> _Graph:
    """Put a lane into every layer that an edge passes, so that it has a place of its own."""
    graph = _Graph(dict(sizes))
    graph.layers = [[] for _ in range(max(ranks.values(), default=-1) + 1)]
    for node in sizes:
        graph.layers[ranks[node]].append(node)
    for upper, lower in edges:
        chain: list[Hashable] = [upper]
        for rank in range(ranks[upper] + 1, ranks[lower]):
            lane = (upper, lower, rank)
            graph.sizes[lane] = Size(_LANE, 0)
            graph.layers[rank].append(lane)
            chain.append(lane)
        chain.append(lower)
        graph.chains[upper, lower] = chain[1:-1]
        for first, second in pairwise(chain):
            graph.link(first, second)
    return graph


def _end_at(graph: _Graph, upper: Any, lower: Any, offset: float) -> None:
    if (upper, lower) not in graph.chains:
        upper, lower = lower, upper
    chain = [upper, *graph.chains[upper, lower], lower]
    if graph.sizes[upper].width > graph.sizes[lower].width:
        graph.ends[upper, chain[1]] = offset
    else:
        graph.ends[lower, chain[-2]] = offset


def _order(graph: _Graph) -> None:
    """Order layers by the mean place of what they are linked to, down and up, and keep the best order seen."""
    best, fewest = [list(layer) for layer in graph.layers], _crossings(graph)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        linked = graph.above if down else graph.below
        indices = range(1, len(graph.layers)) if down else range(len(graph.layers) - 2, -1, -1)
        for index in indices:
            other = graph.layers[index - 1 if down else index + 1]
            places = {node: place for place, node in enumerate(other)}
            present = {node: place for place, node in enumerate(graph.layers[index])}

            def weight(node: Any, places: dict = places, present: dict = present) -> float:
                near = [each for each in linked.get(node, ()) if each in places]  # noqa: B023
                found = [places[each] + graph.share(each, node) for each in near]
                return sum(found) / len(found) if found else present[node]

            graph.layers[index].sort(key=weight)
        crossings = _crossings(graph)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in graph.layers], crossings
    graph.layers = best


def _crossings(graph: _Graph) -> int:
    count = 0
    for upper, lower in zip(graph.layers, graph.layers[1:], strict=False):
        places = {node: place for place, node in enumerate(lower)}
        flat: list[float] = []
        for node in upper:
            near = [each for each in graph.below.get(node, ()) if each in places]
            near.sort(key=lambda each, node=node: (graph.share(node, each), places[each]))  # type: ignore[misc]
            flat += [places[each] + graph.share(each, node) for each in near]
        count += sum(first > second for at, first in enumerate(flat) for second in flat[at + 1 :])
    return count


def _across(graph: _Graph, gap: float) -> dict[Any, float]:
    """Return x of every node: as near to what it is linked to as its neighbours allow."""
    places: dict[Any, float] = {}
    for layer in graph.layers:
        at = 0.0
        for node in layer:
            places[node] = at + graph.sizes[node].width / 2
            at += graph.sizes[node].width + gap
    for sweep in range(SWEEPS * 2):
        layers = graph.layers if sweep % 2 == 0 else graph.layers[::-1]
        linked = graph.above if sweep % 2 == 0 else graph.below
        for layer in layers:
            wanted = []
            for node in layer:
                near = linked.get(node, ())
                ends = [
                    places[each] + graph.ends.get((each, node), 0.0) - graph.ends.get((node, each), 0.0)
                    for each in near
                ]
                wanted.append(sum(ends) / len(ends) if ends else places[node])
            widths = [graph.sizes[node].width for node in layer]
            places.update(zip(layer, _spread(wanted, widths, gap), strict=True))
    left = min((places[node] - size.width / 2 for node, size in graph.sizes.items()), default=0.0)
    return {node: place - left for node, place in places.items()}


def _spread(wanted: list[float], widths: list[float], gap: float) -> list[float]:
    """Return places nearest to the wanted ones (least squares) that keep order and distance: isotonic regression."""
    offsets = [0.0]
    for first, second in pairwise(widths):
        offsets.append(offsets[-1] + (first + second) / 2 + gap)
    blocks: list[list[float]] = []
    for want, offset in zip(wanted, offsets, strict=False):
        blocks.append([want - offset, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, count = blocks.pop()
            total = blocks[-1][1] + count
            blocks[-1] = [(blocks[-1][0] * blocks[-1][1] + mean * count) / total, total]
    levels = [mean for mean, count in blocks for _ in range(int(count))]
    return [level + offset for level, offset in zip(levels, offsets, strict=False)]


def _placed(graph: _Graph, across: dict[Any, float], layer_gap: float, edges: Sequence[tuple[Any, Any]]) -> Layout:
    centres: dict[Any, tuple[float, float]] = {}
    passing: dict[Any, list[tuple[float, float]]] = {}
    top = 0.0
    for layer in graph.layers:
        height = max((graph.sizes[node].height for node in layer), default=0.0)
        for node in layer:
            centres[node] = (across[node], top + graph.sizes[node].height / 2)
            passing[node] = [(across[node], top), (across[node], top + height)]
        top += height + layer_gap
    bends = {}
    for upper, lower in edges:
        chain = graph.chains.get((upper, lower))
        if chain is None:
            points = [point for lane in graph.chains.get((lower, upper), []) for point in passing[lane]]
            bends[upper, lower] = points[::-1]
        else:
            bends[upper, lower] = [point for lane in chain for point in passing[lane]]
    width = max((across[node] + size.width / 2 for node, size in graph.sizes.items()), default=0.0)
    real = {node: centre for node, centre in centres.items() if not (isinstance(node, tuple) and len(node) == 3)}
    return Layout(width, max(0.0, top - layer_gap), real, bends)
