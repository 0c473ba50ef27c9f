"""A layered layout of a directed graph (Sugiyama): layers, few crossings, straight lines where they fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, TypeAlias

SWEEPS = 12
_LANE_WIDTH = 14.0
"""The width of an edge that passes through a layer."""


class _Lane(NamedTuple):
    """The place of an edge in a layer between those of its ends."""

    upper: str
    lower: str
    layer: int


_Item: TypeAlias = str | _Lane
"""An item of a layer: a node by its name, or the lane of an edge."""
_Edge: TypeAlias = tuple[str, str]
_Point: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Size:
    """Width and height in pixels."""

    width: float
    height: float

    def scale(self, frame: Size) -> float:
        """Return the scale at which a frame contains this, at most 1."""
        return min(1.0, frame.width / max(1.0, self.width), frame.height / max(1.0, self.height))


@dataclass
class Layout:
    """Centres of nodes, and for each edge the points between its ends."""

    width: float
    height: float
    centres: dict[str, _Point]
    bends: dict[_Edge, list[_Point]]


@dataclass
class _Graph:
    sizes: dict[_Item, Size]
    layers: list[list[_Item]] = field(default_factory=list)
    above: dict[_Item, list[_Item]] = field(default_factory=dict)
    below: dict[_Item, list[_Item]] = field(default_factory=dict)
    lanes: dict[_Edge, list[_Lane]] = field(default_factory=dict)
    ends: dict[tuple[_Item, _Item], float] = field(default_factory=dict)
    """By (item, neighbour): how far right of the item's centre their edge ends."""

    def link(self, upper: _Item, lower: _Item) -> None:
        self.below.setdefault(upper, []).append(lower)
        self.above.setdefault(lower, []).append(upper)

    def share(self, item: _Item, neighbour: _Item) -> float:
        """Return the part of the item's width, from 0 to below 1, at which the edge to a neighbour ends."""
        width = self.sizes[item].width
        return min(0.99, max(0.0, 0.5 + self.ends.get((item, neighbour), 0.0) / width)) if width else 0.5


def lay_out(
    sizes: Mapping[str, Size],
    edges: Sequence[_Edge],
    *,
    gap: float,
    layer_gap: float,
    last: frozenset[str] = frozenset(),
    ends: Mapping[_Edge, float] | None = None,
) -> Layout:
    """Place nodes from top to bottom; equal input, equal output.

    `last`: nodes that belong in the last layer. `ends`: by edge, its distance to the right of the centre of its wider end.

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


def _without_cycles(nodes: list[str], edges: Sequence[_Edge]) -> list[_Edge]:
    """Reverse the edges that close a cycle in a depth-first search in the order of nodes."""
    targets: dict[str, list[str]] = {}
    for upper, lower in edges:
        targets.setdefault(upper, []).append(lower)
    state: dict[str, int] = {}
    back: set[_Edge] = set()
    for root in nodes:
        stack = [(root, iter(targets.get(root, ())))] if root not in state else []
        state.setdefault(root, 1)
        while stack:
            node, rest = stack[-1]
            target = next(rest, None)
            if target is None:
                state[node] = 2
                stack.pop()
            elif state.get(target) == 1:
                back.add((node, target))
            elif target not in state:
                state[target] = 1
                stack.append((target, iter(targets.get(target, ()))))
    forward = [(edge[1], edge[0]) if edge in back else edge for edge in edges if edge[0] != edge[1]]
    return list(dict.fromkeys(forward))


def _ranks(nodes: list[str], edges: list[_Edge], last: frozenset[str]) -> dict[str, int]:
    """Return each node's layer: the first one below all its parents."""
    parents: dict[str, list[str]] = {node: [] for node in nodes}
    children: dict[str, list[str]] = {node: [] for node in nodes}
    for upper, lower in edges:
        parents[lower].append(upper)
        children[upper].append(lower)
    missing = {node: len(parents[node]) for node in nodes}
    ready = [node for node in nodes if not missing[node]]
    ranks: dict[str, int] = {}
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
            # The layer of a root is the one above its children.
            ranks[node] = max(0, min(ranks[child] for child in children[node]) - 1)
    return ranks


def _with_lanes(sizes: Mapping[str, Size], edges: list[_Edge], ranks: dict[str, int]) -> _Graph:
    """Add a lane to every layer that an edge passes, so that the edge has a place of its own there."""
    graph = _Graph(dict(sizes.items()))
    graph.layers = [[] for _ in range(max(ranks.values(), default=-1) + 1)]
    for node in sizes:
        graph.layers[ranks[node]].append(node)
    for upper, lower in edges:
        lanes = [_Lane(upper, lower, rank) for rank in range(ranks[upper] + 1, ranks[lower])]
        for lane in lanes:
            graph.sizes[lane] = Size(_LANE_WIDTH, 0)
            graph.layers[lane.layer].append(lane)
        graph.lanes[upper, lower] = lanes
        chain: list[_Item] = [upper, *lanes, lower]
        for first, second in pairwise(chain):
            graph.link(first, second)
    return graph


def _end_at(graph: _Graph, upper: str, lower: str, offset: float) -> None:
    if (upper, lower) not in graph.lanes:
        upper, lower = lower, upper
    chain: list[_Item] = [upper, *graph.lanes[upper, lower], lower]
    if graph.sizes[upper].width > graph.sizes[lower].width:
        graph.ends[upper, chain[1]] = offset
    else:
        graph.ends[lower, chain[-2]] = offset


def _order(graph: _Graph) -> None:
    """Order each layer by the mean place of its neighbours, down and up, and keep the order with the fewest crossings."""
    best, fewest = [list(layer) for layer in graph.layers], _crossings(graph)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        linked = graph.above if down else graph.below
        indices = range(1, len(graph.layers)) if down else range(len(graph.layers) - 2, -1, -1)
        for index in indices:
            other = graph.layers[index - 1 if down else index + 1]
            places = {node: place for place, node in enumerate(other)}
            weights = {
                item: _mean_place(graph, item, linked.get(item, ()), places, place)
                for place, item in enumerate(graph.layers[index])
            }
            graph.layers[index].sort(key=weights.__getitem__)
        crossings = _crossings(graph)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in graph.layers], crossings
    graph.layers = best


def _mean_place(graph: _Graph, item: _Item, neighbours: Sequence[_Item], places: dict[_Item, int], own: int) -> float:
    """Return the mean place of an item's neighbours in the layer that `places` has; `own` if it has none there."""
    found = [places[each] + graph.share(each, item) for each in neighbours if each in places]
    return sum(found) / len(found) if found else own


def _crossings(graph: _Graph) -> int:
    count = 0
    for upper, lower in zip(graph.layers, graph.layers[1:], strict=False):
        places = {node: place for place, node in enumerate(lower)}
        flat: list[float] = []
        for node in upper:
            near = [
                (graph.share(node, each), places[each], graph.share(each, node))
                for each in graph.below.get(node, ())
                if each in places
            ]
            flat += [place + share for _, place, share in sorted(near)]
        count += sum(first > second for at, first in enumerate(flat) for second in flat[at + 1 :])
    return count


def _across(graph: _Graph, gap: float) -> dict[_Item, float]:
    """Return x of every item: as near to its neighbours above and below as the other items of its layer allow."""
    places: dict[_Item, float] = {}
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


def _placed(graph: _Graph, across: dict[_Item, float], layer_gap: float, edges: Sequence[_Edge]) -> Layout:
    centres: dict[str, _Point] = {}
    lane_points: dict[_Lane, list[_Point]] = {}
    top = 0.0
    for layer in graph.layers:
        height = max((graph.sizes[node].height for node in layer), default=0.0)
        for node in layer:
            if isinstance(node, _Lane):
                lane_points[node] = [(across[node], top), (across[node], top + height)]
            else:
                centres[node] = (across[node], top + graph.sizes[node].height / 2)
        top += height + layer_gap
    bends = {}
    for upper, lower in edges:
        lanes = graph.lanes.get((upper, lower))
        if lanes is None:
            points = [point for lane in graph.lanes.get((lower, upper), []) for point in lane_points[lane]]
            bends[upper, lower] = points[::-1]
        else:
            bends[upper, lower] = [point for lane in lanes for point in lane_points[lane]]
    width = max((across[node] + size.width / 2 for node, size in graph.sizes.items()), default=0.0)
    return Layout(width, max(0.0, top - layer_gap), centres, bends)
