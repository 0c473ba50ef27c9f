"""The drawing of a topology: the places of everything in it, and the drawing as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from importlib.resources import files
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from streamkit.plan.model import Plan, PlanNode, SinkNode, SourceNode, SubTopology

# A layered layout of a directed graph (Sugiyama): layers, few crossings, straight lines where they fit.

SWEEPS = 12
_LANE_WIDTH = 14.0
"""The width of an edge that passes through a layer."""


class _Lane(NamedTuple):
    """The place of an edge in a layer between the layers of its ends."""

    upper: str
    lower: str
    layer: int


_Item: TypeAlias = str | _Lane
"""An item of a layer: a node by its name, or the lane of an edge."""
_Edge: TypeAlias = tuple[str, str]


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
    return _layout_of(graph, across, layer_gap, edges)


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
    """Add a lane to every layer that an edge passes, so that the edge has a separate place there."""
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
            places = {node: rank for rank, node in enumerate(other)}
            weights = {
                item: _mean_place(graph, item, linked.get(item, ()), places, rank)
                for rank, item in enumerate(graph.layers[index])
            }
            graph.layers[index].sort(key=weights.__getitem__)
        crossings = _crossings(graph)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in graph.layers], crossings
    graph.layers = best


def _mean_place(graph: _Graph, item: _Item, neighbours: Sequence[_Item], places: dict[_Item, int], own: int) -> float:
    """Return the mean place of an item's neighbours in the layer that `places` has; `own` if it has none there."""
    near = [places[neighbour] + graph.share(neighbour, item) for neighbour in neighbours if neighbour in places]
    return sum(near) / len(near) if near else own


def _crossings(graph: _Graph) -> int:
    count = 0
    for upper, lower in zip(graph.layers, graph.layers[1:], strict=False):
        places = {node: place for place, node in enumerate(lower)}
        flat: list[float] = []
        for node in upper:
            near = [
                (graph.share(node, child), places[child], graph.share(child, node))
                for child in graph.below.get(node, ())
                if child in places
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
                    places[neighbour] + graph.ends.get((neighbour, node), 0.0) - graph.ends.get((node, neighbour), 0.0)
                    for neighbour in near
                ]
                wanted.append(sum(ends) / len(ends) if ends else places[node])
            widths = [graph.sizes[node].width for node in layer]
            places.update(zip(layer, _spread(wanted, widths, gap), strict=True))
    left = min((places[node] - size.width / 2 for node, size in graph.sizes.items()), default=0.0)
    return {node: x - left for node, x in places.items()}


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


def _layout_of(graph: _Graph, across: dict[_Item, float], layer_gap: float, edges: Sequence[_Edge]) -> Layout:
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


PADDING, TITLE = 16.0, 34.0
_GAP, _LAYER_GAP = 26.0, 30.0
_NARROW_GAP, _NARROW_LAYER_GAP = 16.0, 26.0
_OUTER_GAP, _OUTER_LAYER_GAP = 36.0, 34.0
_ROW_GAP, _ROW_LAYER_GAP = 20.0, 56.0
_TITLE_CHARACTER, _DETAIL_CHARACTER = 7.7, 6.2
_LARGE_CHARACTERS = (11.5, 15.5)
"""Widths of a title's character if nodes have no names: browsers write titles larger."""
_HEIGHTS = {"topic": 30.0, "store": 42.0, "source": 38.0, "sink": 38.0, "processor": 38.0}
_NARROW_HEIGHTS = {**_HEIGHTS, "topic": 32.0, "store": 40.0, "source": 34.0, "sink": 34.0, "processor": 34.0}
_LONGEST = 34
_LIVE_HEIGHT, _LIVE_WIDTH = 20.0, 125.0
"""The room of a rate and a lag at an edge."""
_LIVE_BEFORE = 46.0
"""The part of a box before its first node, where edges go from left to right: the rate is above the edge, the lag below."""
_BETWEEN = 44.0
"""The distance between parts that no edge connects."""
LANDSCAPE, PORTRAIT = Size(1370.0, 540.0), Size(350.0, 900.0)
"""The room for a drawing in a window of 1440 by 900 pixels, and on a phone."""
_MOST_IN_ROW = 8
_READABLE, _READABLE_TITLE = 0.85, 11.0
"""The scale from which names of nodes can be read, and the height in pixels from which titles without names can."""
_BARE_TITLE, _TITLE_OF_CHARACTER = 23.0, 1.43
"""The size of titles at small scales: of nodes whose width is that of their names, and for a width of a character."""

_Point: TypeAlias = tuple[float, float]


class Style(NamedTuple):
    """How a picture is made.

    names: nodes are shown with their names; character: the width of a title's character if they are not; right: from
    left to right instead of downwards.
    """

    names: bool
    character: float = _LARGE_CHARACTERS[0]
    right: bool = False


@dataclass(frozen=True)
class Shape:
    """An item with its place: `kind` is topic, internal-topic, source, processor, sink or store."""

    id: str
    kind: str
    title: str
    detail: str
    tip: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Edge:
    """An edge with its points; `kind` is in (topic to source), out (sink to topic), record or store."""

    source: str
    target: str
    kind: str
    points: tuple[tuple[float, float], ...]
    topic: str = ""
    """By name on the log, of edges from and to topics."""
    sub_topology: int = -1


@dataclass(frozen=True)
class Box:
    """A sub-topology."""

    id: int
    title: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Picture:
    """A whole topology, in pixels."""

    width: float
    height: float
    sub_topologies: tuple[Box, ...]
    shapes: tuple[Shape, ...]
    edges: tuple[Edge, ...]
    right: bool = False
    """Whether edges go from left to right instead of downwards."""

    def scale(self, frame: Size) -> float:
        """Return the scale at which a frame contains the picture, at most 1."""
        return Size(self.width, self.height).scale(frame)


@dataclass(frozen=True)
class _Part:
    """A node, store or topic before it has a place."""

    id: str
    kind: str
    title: str
    detail: str
    tip: str

    def size(self, style: Style) -> Size:
        kind = "topic" if self.kind == "internal-topic" else self.kind
        if not style.names:
            return Size(max(70.0, len(self.title) * style.character + 16), _NARROW_HEIGHTS[kind])
        wide = _TITLE_CHARACTER + (0.5 if self.kind == "store" else 0)
        width = max(len(self.title) * wide, len(self.detail) * _DETAIL_CHARACTER) + 28
        return Size(max(84.0, width), _HEIGHTS[kind])


@dataclass(frozen=True)
class _Inside:
    """A sub-topology with its inner layout, and the place of this in the box."""

    sub: SubTopology
    parts: dict[str, _Part]
    edges: list[tuple[str, str, str]]
    layout: Layout
    size: Size
    left: float
    top: float


class _Outer(NamedTuple):
    """An edge from or to a topic."""

    upper: str
    lower: str
    kind: str
    topic: str
    """By its name on the log."""
    sub: int


@dataclass(frozen=True)
class Drawing:
    """What every picture of a plan is made of."""

    plan: Plan
    topics: dict[str, _Part]
    outer: list[_Outer]

    @classmethod
    def of(cls, plan: Plan) -> Drawing:
        return cls(plan, *_topics(plan))

    def components(self, style: Style) -> list[Picture]:
        """Return a picture of each part that no edge connects with another one, in the order of the file."""
        insides = {f"sub {sub.id}": _inside(self.plan, sub, style) for sub in self.plan.sub_topologies}
        sizes = {name: part.size(style) for name, part in self.topics.items()}
        sizes.update({name: inside.size for name, inside in insides.items()})
        links = list(dict.fromkeys((_box_of(edge.upper), _box_of(edge.lower)) for edge in self.outer))
        return [
            _component({name: sizes[name] for name in names}, insides, self.topics, self._edges(names), style)
            for names in _connected(list(sizes), links)
        ]

    def _edges(self, names: Iterable[str]) -> list[_Outer]:
        inside = set(names)
        return [edge for edge in self.outer if _box_of(edge.upper) in inside]


def picture_of(plan: Plan) -> Picture:
    """Return the drawing of a plan with the names of its nodes; the same plan gives the same drawing."""
    drawing = Drawing.of(plan)
    pictures = [_packed(drawing.components(Style(True, right=right)), LANDSCAPE) for right in (True, False)]
    return max(pictures, key=lambda picture: picture.scale(LANDSCAPE))


def pictures_of(plan: Plan) -> tuple[Picture, ...]:
    """Return the drawings for a wide and for a narrow window; one if both are equal.

    The names of nodes are left out where there is no room to read them.
    """
    drawing = Drawing.of(plan)
    styles = [Style(True), *(Style(False, character) for character in _LARGE_CHARACTERS)]
    parts: dict[Style, list[list[Picture]]] = {}
    pictures = []
    for frame in (LANDSCAPE, PORTRAIT):
        sizes: dict[float, Picture] = {}
        for style in styles:
            if style not in parts:
                parts[style] = [drawing.components(style._replace(right=right)) for right in (True, False)]
            best = _best(parts[style], frame)
            scale = best.scale(frame)
            size = scale * (_BARE_TITLE if style.names else style.character * _TITLE_OF_CHARACTER)
            sizes.setdefault(size, best)
            if scale >= _READABLE if style.names else size >= _READABLE_TITLE:
                break
        else:
            best = sizes[max(sizes)]
        pictures.append(best)
    return tuple(dict.fromkeys(pictures))


def _best(candidates: Iterable[list[Picture]], frame: Size) -> Picture:
    return max((_packed(parts, frame) for parts in candidates), key=lambda picture: picture.scale(frame))


def _packed(parts: list[Picture], frame: Size) -> Picture:
    """Put parts into rows, so that the frame shows them as large as possible."""
    least = max((part.width for part in parts), default=0.0)
    widths = sorted({least, *(max(least, width) for width in _sums(parts))})
    return _placed(max((_rows(parts, width) for width in widths), key=lambda rows: _size(rows).scale(frame)))


def _sums(parts: Sequence[Picture]) -> Iterator[float]:
    """Yield the widths of rows of neighbouring parts, and of rows of the widest ones."""
    for first in range(len(parts)):
        width = -_BETWEEN
        for part in parts[first : first + _MOST_IN_ROW]:
            width += part.width + _BETWEEN
            yield width
    widest = max((part.width for part in parts), default=0.0)
    for count in range(2, min(len(parts), _MOST_IN_ROW) + 1):
        yield count * (widest + _BETWEEN) - _BETWEEN


def _rows(parts: list[Picture], width: float) -> list[list[Picture]]:
    """Put each part into the first row that has room for it."""
    rows: list[list[Picture]] = []
    for part in parts:
        fitting = (row for row in rows if sum(picture.width + _BETWEEN for picture in row) + part.width <= width + 0.01)
        row = next(fitting, None)
        if row is None:
            rows.append(row := [])
        row.append(part)
    return rows


def _size(rows: list[list[Picture]]) -> Size:
    return Size(
        max((sum(picture.width + _BETWEEN for picture in row) for row in rows), default=_BETWEEN) - _BETWEEN,
        max(0.0, sum(max(part.height for part in row) + _ROW_GAP for row in rows) - _ROW_GAP),
    )


def _placed(rows: list[list[Picture]]) -> Picture:
    placed: list[Picture] = []
    top = 0.0
    for row in rows:
        left = 0.0
        for part in row:
            placed.append(_moved(part, left, top))
            left += part.width + _BETWEEN
        top += max(part.height for part in row) + _ROW_GAP
    size = _size(rows)
    return Picture(
        size.width,
        size.height,
        tuple(box for part in placed for box in part.sub_topologies),
        tuple(shape for part in placed for shape in part.shapes),
        tuple(edge for part in placed for edge in part.edges),
        any(part.right for part in placed),
    )


def _moved(part: Picture, dx: float, dy: float) -> Picture:
    return replace(
        part,
        sub_topologies=tuple(replace(box, x=box.x + dx, y=box.y + dy) for box in part.sub_topologies),
        shapes=tuple(replace(shape, x=shape.x + dx, y=shape.y + dy) for shape in part.shapes),
        edges=tuple(replace(edge, points=tuple((x + dx, y + dy) for x, y in edge.points)) for edge in part.edges),
    )


def _connected(names: list[str], links: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Return the names in groups that links connect, both in the order of the names."""
    near: dict[str, list[str]] = {name: [] for name in names}
    for one, other in links:
        near[one].append(other)
        near[other].append(one)
    group: dict[str, int] = {}
    for count, name in enumerate(names):
        waiting = [name] if name not in group else []
        while waiting:
            member = waiting.pop()
            if member not in group:
                group[member] = count
                waiting += near[member]
    return [
        [name for name in names if group[name] == number] for number in dict.fromkeys(group[name] for name in names)
    ]


def _component(
    sizes: Mapping[str, Size],
    insides: Mapping[str, _Inside],
    topics: Mapping[str, _Part],
    outer: list[_Outer],
    style: Style,
) -> Picture:
    """Return the picture of topics and sub-topologies that are connected."""
    layout = _lay_out(
        sizes,
        list(dict.fromkeys((_box_of(edge.upper), _box_of(edge.lower)) for edge in outer)),
        style.right,
        gap=_ROW_GAP if style.right else _OUTER_GAP,
        layer_gap=_ROW_LAYER_GAP if style.right else _OUTER_LAYER_GAP,
        ends={(_box_of(edge.upper), _box_of(edge.lower)): _end(insides, edge, style.right) for edge in outer},
    )
    shapes: dict[str, Shape] = {}
    placed_sub_topologies: list[Box] = []
    edges: list[Edge] = []
    # Topics first, in the order of use, so that the file's first pipeline comes first.
    for name in sizes:
        if name in topics:
            shapes[name] = _shape(topics[name], sizes[name], *layout.centres[name])
        else:
            box, placed, drawn = _unfold(insides[name], layout.centres[name], style)
            placed_sub_topologies.append(box)
            shapes.update(placed)
            edges += drawn
    for edge in outer:
        bends = layout.bends[_box_of(edge.upper), _box_of(edge.lower)]
        points = _between(shapes[edge.upper], shapes[edge.lower], bends, style.right)
        edges.append(Edge(edge.upper, edge.lower, edge.kind, points, edge.topic, edge.sub))
    return Picture(
        layout.width, layout.height, tuple(placed_sub_topologies), tuple(shapes.values()), tuple(edges), style.right
    )


def _lay_out(
    sizes: Mapping[str, Size],
    edges: Sequence[tuple[str, str]],
    right: bool,
    *,
    gap: float,
    layer_gap: float,
    last: frozenset[str] = frozenset(),
    ends: Mapping[tuple[str, str], float] | None = None,
) -> Layout:
    """Lay out a graph downwards, or from left to right: then on its side."""
    if not right:
        return lay_out(sizes, edges, gap=gap, layer_gap=layer_gap, last=last, ends=ends)
    turned = {name: Size(size.height, size.width) for name, size in sizes.items()}
    layout = lay_out(turned, edges, gap=gap, layer_gap=layer_gap, last=last, ends=ends)
    return Layout(
        layout.height,
        layout.width,
        {name: (y, x) for name, (x, y) in layout.centres.items()},
        {edge: [(y, x) for x, y in points] for edge, points in layout.bends.items()},
    )


def _box_of(name: str) -> str:
    """Return the item of a node in the outer layout: its sub-topology's box, or the topic itself."""
    return name if name.startswith("topic ") else f"sub {name.split(' ')[0]}"


def _end(insides: Mapping[str, _Inside], edge: _Outer, right: bool) -> float:
    """Return the distance of the node of an outer edge to the right of its box's centre, or below it."""
    node = edge.lower if edge.upper.startswith("topic ") else edge.upper
    inside = insides[_box_of(node)]
    x, y = inside.layout.centres[node]
    return inside.top + y - inside.size.height / 2 if right else inside.left + x - inside.size.width / 2


def _title(sub: SubTopology) -> str:
    return "Global stores" if sub.is_global else f"Sub-topology {sub.id}"


def _inside(plan: Plan, sub: SubTopology, style: Style) -> _Inside:
    parts: dict[str, _Part] = {}
    edges: list[tuple[str, str, str]] = []
    for name, node in sub.nodes.items():
        parts[f"{sub.id} {name}"] = _node(f"{sub.id} {name}", name, node)
    for name, node in sub.nodes.items():
        edges += [(f"{sub.id} {name}", f"{sub.id} {child}", "record") for child in node.children]
        for store in node.stores:
            if store in sub.stores:
                definition = plan.stores[store]
                words = definition.type.replace("timestamped_", "").replace("_", " ")
                tip = f"store {store}\n{words}, {'persistent' if definition.persistent else 'in memory'}"
                if (changelog := plan.changelog_name(store)) is not None:
                    tip += f"\nchangelog {changelog}"
                identity = f"{sub.id} store:{store}"
                parts[identity] = _Part(identity, "store", _short(store), words, tip)
                edges.append((f"{sub.id} {name}", identity, "store"))
    sinks = frozenset(f"{sub.id} {name}" for name, node in sub.nodes.items() if isinstance(node, SinkNode))
    if not style.names:
        parts = {name: replace(part, detail="") for name, part in parts.items()}
    layout = _lay_out(
        {name: part.size(style) for name, part in parts.items()},
        list(dict.fromkeys((upper, lower) for upper, lower, _ in edges)),
        style.right,
        gap=_GAP if style.names else _NARROW_GAP,
        layer_gap=_LAYER_GAP if style.names else _NARROW_LAYER_GAP,
        last=sinks,
    )
    heading = len(_title(sub)) * _TITLE_CHARACTER
    if style.right:
        left, top = PADDING + _LIVE_BEFORE, TITLE
        size = Size(max(left + layout.width, PADDING + heading) + PADDING, top + layout.height + PADDING)
    else:
        # A rate and a lag are shown to the right of the end of an edge.
        width = max(layout.width, heading, (2 if style.names else 1) * _LIVE_WIDTH) + 2 * PADDING
        left, top = (width - layout.width) / 2, TITLE + _LIVE_HEIGHT
        size = Size(width, top + layout.height + _LIVE_HEIGHT + PADDING)
    return _Inside(sub, parts, edges, layout, size, left, top)


def _node(identity: str, name: str, node: PlanNode) -> _Part:
    tip = name
    if node.origin is not None:
        tip += f"\npipeline {node.origin.pipeline}, {node.origin.step}\n{node.origin.position}"
    if isinstance(node, SourceNode):
        return _Part(identity, "source", "source", _short(name), tip)
    if isinstance(node, SinkNode):
        return _Part(identity, "sink", "sink", _short(name), tip)
    step = node.origin.step if node.origin is not None else type(node.processor).__name__
    return _Part(identity, "processor", _short(step), _short(name), tip)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}…{text[-_LONGEST // 2 + 1 :]}"


def _topics(plan: Plan) -> tuple[dict[str, _Part], list[_Outer]]:
    """Return the topics, and the edges that they have."""
    parts: dict[str, _Part] = {}
    edges: list[_Outer] = []

    def topic(name: str) -> tuple[str, str]:
        on_log = plan.internal_name(name)
        identity = f"topic {on_log}"
        kind = "internal-topic" if name in plan.internal_topics else "topic"
        parts.setdefault(identity, _Part(identity, kind, _short(name), "", f"topic {on_log}"))
        return identity, on_log

    for sub in plan.sub_topologies:
        for name, node in sub.nodes.items():
            if isinstance(node, SourceNode):
                for read in node.topics or (node.pattern or "",):
                    identity, on_log = topic(read)
                    edges.append(_Outer(identity, f"{sub.id} {name}", "in", on_log, sub.id))
            elif isinstance(node, SinkNode):
                identity, on_log = topic(node.target)
                edges.append(_Outer(f"{sub.id} {name}", identity, "out", on_log, sub.id))
    return parts, edges


def _unfold(inside: _Inside, centre: _Point, style: Style) -> tuple[Box, dict[str, Shape], list[Edge]]:
    """Move the inner layout of a box to its place in the outer layout."""
    size, layout = inside.size, inside.layout
    left, top = centre[0] - size.width / 2, centre[1] - size.height / 2
    dx, dy = left + inside.left, top + inside.top
    shapes = {
        name: _shape(part, part.size(style), layout.centres[name][0] + dx, layout.centres[name][1] + dy)
        for name, part in inside.parts.items()
    }
    edges = []
    for upper, lower, kind in inside.edges:
        bends = [(x + dx, y + dy) for x, y in layout.bends.get((upper, lower), [])]
        points = _between(shapes[upper], shapes[lower], bends, style.right)
        edges.append(Edge(upper, lower, kind, points, sub_topology=inside.sub.id))
    return Box(inside.sub.id, _title(inside.sub), left, top, size.width, size.height), shapes, edges


def _shape(part: _Part, size: Size, x: float, y: float) -> Shape:
    return Shape(part.id, part.kind, part.title, part.detail, part.tip, x, y, size.width, size.height)


def _between(upper: Shape, lower: Shape, bends: list[_Point], right: bool) -> tuple[_Point, ...]:
    """Return the points of an edge from border to border; an edge against the direction uses the same borders."""
    if right:
        way = 1 if upper.x <= lower.x else -1
        return (upper.x + upper.width / 2 * way, upper.y), *bends, (lower.x - lower.width / 2 * way, lower.y)
    way = 1 if upper.y <= lower.y else -1
    return (upper.x, upper.y + upper.height / 2 * way), *bends, (lower.x, lower.y - lower.height / 2 * way)


# The drawing as SVG, with its own style in light and dark.

MARGIN = 16.0


def describe_svg(plan: Plan) -> str:
    """Return the topology as an SVG picture."""
    return svg_of(picture_of(plan), plan.application, picture_style()) + "\n"


def picture_style() -> str:
    """Return the style of drawings."""
    return "\n" + files(__package__).joinpath("picture.css").read_text(encoding="utf-8")


def svg_of(picture: Picture, title: str, style: str = "") -> str:
    """Return a picture as an SVG element; edges from and to topics carry `data-kind`, `data-topic` and `data-sub`.

    style: that of drawings, unless the page around the element has it.
    """
    width, height = picture.width + 2 * MARGIN, picture.height + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="t-graph" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="Topology of {escape(title)}">',
        f"<title>{escape(title)}</title>{f'<style>{style}</style>' if style else ''}",
        '<defs><marker id="t-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" '
        'markerUnits="userSpaceOnUse" orient="auto"><path class="arrow" d="M0 0.6 L7.4 4 L0 7.4 z"/></marker></defs>',
        f'<g transform="translate({MARGIN:.0f} {MARGIN:.0f})">',
        *map(_box, picture.sub_topologies),
        *(_edge(edge, picture.right) for edge in picture.edges),
        # Above the edges, which may cross them.
        *map(_heading, picture.sub_topologies),
        *map(_svg_shape, picture.shapes),
        *(_live(edge, picture.right) for edge in picture.edges if edge.kind in ("in", "out")),
        "</g></svg>",
    ]
    return "\n".join(parts)


def _box(box: Box) -> str:
    return (
        f'<g class="box" data-sub="{box.id}"><rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="10"/></g>'
    )


def _heading(box: Box) -> str:
    return f'<text class="heading" data-sub="{box.id}" x="{box.x + 14:.1f}" y="{box.y + 20:.1f}">{escape(box.title)}</text>'


def _svg_shape(shape: Shape) -> str:
    left, top = shape.x - shape.width / 2, shape.y - shape.height / 2
    tip = f"<title>{escape(shape.tip)}</title>"
    if shape.kind == "store":
        body = _cylinder(left, top, shape.width, shape.height)
    else:
        radius = shape.height / 2 if "topic" in shape.kind else 6
        body = f'<rect x="{left:.1f}" y="{top:.1f}" width="{shape.width:.1f}" height="{shape.height:.1f}" rx="{radius:.0f}"/>'
    middle = shape.y + (4 if shape.kind == "store" else 0)
    texts = f'<text class="title" x="{shape.x:.1f}" y="{middle + (4.5 if not shape.detail else -2):.1f}">{escape(shape.title)}</text>'
    if shape.detail:
        texts += f'<text class="detail" x="{shape.x:.1f}" y="{middle + 12:.1f}">{escape(shape.detail)}</text>'
    kind = f"node {shape.kind}"
    return f'<g class="{kind}" data-id="{escape(shape.id)}">{tip}{body}{texts}</g>'


def _cylinder(left: float, top: float, width: float, height: float) -> str:
    right, cap = left + width, 5.0
    bottom = top + height - cap
    sides = f"M{left:.1f} {top + cap:.1f} V{bottom:.1f} A{width / 2:.1f} {cap} 0 0 0 {right:.1f} {bottom:.1f} V{top + cap:.1f}"
    lid = (
        f"M{left:.1f} {top + cap:.1f} A{width / 2:.1f} {cap} 0 0 1 {right:.1f} {top + cap:.1f} "
        f"A{width / 2:.1f} {cap} 0 0 1 {left:.1f} {top + cap:.1f} z"
    )
    return f'<path d="{sides}"/><path d="{lid}"/>'


def _edge(edge: Edge, right: bool) -> str:
    marker = "" if edge.kind == "store" else ' marker-end="url(#t-arrow)"'
    data = (
        f' data-kind="{edge.kind}" data-topic="{escape(edge.topic)}" data-sub="{edge.sub_topology}" '
        f'data-source="{escape(edge.source)}" data-target="{escape(edge.target)}"'
        if edge.topic
        else ""
    )
    return f'<path class="line {edge.kind}"{data} d="{_curve(edge.points, right)}"{marker}/>'


def _curve(points: tuple[tuple[float, float], ...], right: bool) -> str:
    """Return a smooth path that leaves and arrives vertically, or horizontally if it goes to the right."""
    x, y = points[0]
    path = [f"M{x:.1f} {y:.1f}"]
    for nx, ny in points[1:]:
        if abs(ny - y if right else nx - x) < 0.5:
            path.append(f"L{nx:.1f} {ny:.1f}")
        elif right:
            middle = (x + nx) / 2
            path.append(f"C{middle:.1f} {y:.1f} {middle:.1f} {ny:.1f} {nx:.1f} {ny:.1f}")
        else:
            middle = (y + ny) / 2
            path.append(f"C{x:.1f} {middle:.1f} {nx:.1f} {middle:.1f} {nx:.1f} {ny:.1f}")
        x, y = nx, ny
    return " ".join(path)


def _live(edge: Edge, right: bool) -> str:
    """Return the place where a running application's rate and lag are shown: at the node's end of the edge."""
    x, y = edge.points[-1] if edge.kind == "in" else edge.points[0]
    if right:
        before = " before" if edge.kind == "in" else ""
        # Outside the box, whose border is near its sinks.
        x, y = x + (-10 if before else PADDING + 3), y - 6
    else:
        before = ""
        x, y = x + 7, y + (-9 if edge.kind == "in" else 15)
    return (
        f'<text class="live{before}" data-kind="{edge.kind}" data-topic="{escape(edge.topic)}" '
        f'data-sub="{edge.sub_topology}" x="{x:.1f}" y="{y:.1f}"></text>'
    )
