"""The places of everything in the drawing of a topology: sub-topologies as boxes, topics between them."""

from __future__ import annotations

from dataclasses import dataclass

from streamkit.operators.core.processor_node import ProcessorNode
from streamkit.plan.describe.drawing.layered import Layout, Size, lay_out
from streamkit.plan.model import Plan, PlanNode, SinkNode, SourceNode, SubTopology

PADDING, TITLE, LABELS = 16.0, 34.0, 20.0
_GAP, _LAYER_GAP = 26.0, 30.0
_OUTER_GAP, _OUTER_LAYER_GAP = 36.0, 34.0
_TITLE_CHARACTER, _DETAIL_CHARACTER = 7.7, 6.2
_HEIGHTS = {"topic": 30.0, "store": 42.0, "source": 38.0, "sink": 38.0, "processor": 38.0}
_LONGEST = 34
_LIVE_WIDTH = 125.0


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


@dataclass(frozen=True)
class _Part:
    """A node, store or topic before it has a place."""

    id: str
    kind: str
    title: str
    detail: str
    tip: str

    @property
    def size(self) -> Size:
        kind = "topic" if self.kind == "internal-topic" else self.kind
        wide = _TITLE_CHARACTER + (0.5 if self.kind == "store" else 0)
        width = max(len(self.title) * wide, len(self.detail) * _DETAIL_CHARACTER) + 28
        return Size(max(84.0, width), _HEIGHTS[kind])


@dataclass
class _Inside:
    """A sub-topology with its inner layout."""

    sub: SubTopology
    parts: dict[str, _Part]
    edges: list[tuple[str, str, str]]
    layout: Layout

    @property
    def size(self) -> Size:
        heading = len(_title(self.sub)) * _TITLE_CHARACTER
        # A rate and a lag are shown to the right of the end of an edge.
        width = max(self.layout.width, heading, 2 * _LIVE_WIDTH) + 2 * PADDING
        return Size(width, self.layout.height + TITLE + 2 * LABELS + PADDING)


def picture_of(plan: Plan) -> Picture:
    """Return the drawing of a plan; the same plan gives the same drawing."""
    insides = {f"sub {sub.id}": _inside(plan, sub) for sub in plan.sub_topologies}
    topics, outer = _topics(plan)
    sizes = {name: inside.size for name, inside in insides.items()}
    sizes.update({name: part.size for name, part in topics.items()})
    # Topics first, in the order of use, so that the file's first pipeline is on the left.
    order = sorted(sizes, key=lambda name: name.startswith("sub "))
    connections = list(dict.fromkeys((_box_of(upper), _box_of(lower)) for upper, lower, *_ in outer))
    layout = lay_out(
        {name: sizes[name] for name in order},
        connections,
        gap=_OUTER_GAP,
        layer_gap=_OUTER_LAYER_GAP,
        ends={(_box_of(upper), _box_of(lower)): _end(insides, upper, lower) for upper, lower, *_ in outer},
    )
    shapes: dict[str, Shape] = {}
    placed_sub_topologies: list[Box] = []
    edges: list[Edge] = []
    for name, part in topics.items():
        shapes[name] = _shape(part, *layout.centres[name])
    for name, inside in insides.items():
        box, placed, drawn = _unfold(inside, layout.centres[name])
        placed_sub_topologies.append(box)
        shapes.update(placed)
        edges += drawn
    for upper, lower, kind, topic, number in outer:
        bends = layout.bends[_box_of(upper), _box_of(lower)]
        points = _between(shapes[upper], shapes[lower], bends)
        edges.append(Edge(upper, lower, kind, points, topic, number))
    return Picture(layout.width, layout.height, tuple(placed_sub_topologies), tuple(shapes.values()), tuple(edges))


def _box_of(name: str) -> str:
    """Return the item of a node in the outer layout: its sub-topology's box, or the topic itself."""
    return name if name.startswith("topic ") else f"sub {name.split(' ')[0]}"


def _end(insides: dict[str, _Inside], upper: str, lower: str) -> float:
    """Return the distance of the node of an outer edge to the right of its box's centre."""
    node = lower if upper.startswith("topic ") else upper
    layout = insides[_box_of(node)].layout
    return layout.centres[node][0] - layout.width / 2


def _title(sub: SubTopology) -> str:
    return "Global stores" if sub.is_global else f"Sub-topology {sub.id}"


def _inside(plan: Plan, sub: SubTopology) -> _Inside:
    parts: dict[str, _Part] = {}
    edges: list[tuple[str, str, str]] = []
    for name, node in sub.nodes.items():
        parts[f"{sub.id} {name}"] = _node(f"{sub.id} {name}", name, node)
    for name, node in sub.nodes.items():
        if not isinstance(node, SinkNode):
            edges += [(f"{sub.id} {name}", f"{sub.id} {child}", "record") for child in node.children]
        if isinstance(node, ProcessorNode):
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
    sizes = {name: part.size for name, part in parts.items()}
    ends = list(dict.fromkeys((upper, lower) for upper, lower, _ in edges))
    return _Inside(sub, parts, edges, lay_out(sizes, ends, gap=_GAP, layer_gap=_LAYER_GAP, last=sinks))


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


def _topics(plan: Plan) -> tuple[dict[str, _Part], list[tuple[str, str, str, str, int]]]:
    """Return the topics, and the edges (from, to, kind, topic on the log, sub-topology) that they have."""
    parts: dict[str, _Part] = {}
    edges = []

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
                    edges.append((identity, f"{sub.id} {name}", "in", on_log, sub.id))
            elif isinstance(node, SinkNode):
                identity, on_log = topic(node.target)
                edges.append((f"{sub.id} {name}", identity, "out", on_log, sub.id))
    return parts, edges


def _unfold(inside: _Inside, centre: tuple[float, float]) -> tuple[Box, dict[str, Shape], list[Edge]]:
    """Move the inner layout of a box to its place in the outer layout."""
    size = inside.size
    left, top = centre[0] - size.width / 2, centre[1] - size.height / 2
    dx = left + (size.width - inside.layout.width) / 2
    dy = top + TITLE + LABELS
    shapes = {
        name: _shape(part, inside.layout.centres[name][0] + dx, inside.layout.centres[name][1] + dy)
        for name, part in inside.parts.items()
    }
    edges = [
        Edge(
            upper,
            lower,
            kind,
            _between(
                shapes[upper], shapes[lower], [(x + dx, y + dy) for x, y in inside.layout.bends.get((upper, lower), [])]
            ),
            sub_topology=inside.sub.id,
        )
        for upper, lower, kind in inside.edges
    ]
    return Box(inside.sub.id, _title(inside.sub), left, top, size.width, size.height), shapes, edges


def _shape(part: _Part, x: float, y: float) -> Shape:
    size = part.size
    return Shape(part.id, part.kind, part.title, part.detail, part.tip, x, y, size.width, size.height)


def _between(upper: Shape, lower: Shape, bends: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return the points of an edge from border to border; an upward edge uses the same borders."""
    down = upper.y <= lower.y
    first = (upper.x, upper.y + upper.height / 2 * (1 if down else -1))
    last = (lower.x, lower.y - lower.height / 2 * (1 if down else -1))
    return (first, *bends, last)
