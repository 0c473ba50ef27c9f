"""The drawing as SVG, with its own style in light and dark."""

from __future__ import annotations

from html import escape

from streamkit.plan.describe.drawing.picture import PADDING, Box, Edge, Picture, Shape, picture_of
from streamkit.plan.model import Plan

MARGIN = 16.0
STYLE = """
.t-graph{--ink:#1f2937;--soft:#6b7280;--line:#94a3b8;--box:#f8fafc;--edge:#cbd5e1;--card:#ffffff;--topic:#dbeafe;
--topic-line:#3b82f6;--inner:#ede9fe;--inner-line:#8b5cf6;--store:#dcfce7;--store-line:#16a34a;--io:#f1f5f9;--live:#b45309;
font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
@media (prefers-color-scheme:dark){.t-graph{--ink:#e5e7eb;--soft:#9ca3af;--line:#64748b;--box:#111827;--edge:#374151;
--card:#1f2937;--topic:#172f54;--topic-line:#60a5fa;--inner:#2e2352;--inner-line:#a78bfa;--store:#14331f;
--store-line:#4ade80;--io:#18212f;--live:#fbbf24}}
.t-graph text{fill:var(--ink);font-size:13px;text-anchor:middle}
.t-graph .detail{fill:var(--soft);font-size:10px}
.t-graph .title{font-weight:600}
.t-graph .box rect{fill:var(--box);stroke:var(--edge)}
.t-graph .heading{text-anchor:start;fill:var(--soft);font-size:12px;font-weight:600;paint-order:stroke;stroke:var(--box);
stroke-width:4px}
.t-graph .node rect{fill:var(--card);stroke:var(--line)}
.t-graph .source rect,.t-graph .sink rect{fill:var(--io);stroke:var(--edge)}
.t-graph .source .title,.t-graph .sink .title{fill:var(--soft);font-weight:500}
.t-graph .topic rect{fill:var(--topic);stroke:var(--topic-line)}
.t-graph .internal-topic rect{fill:var(--inner);stroke:var(--inner-line)}
.t-graph .store path{fill:var(--store);stroke:var(--store-line)}
.t-graph .line{fill:none;stroke:var(--line);stroke-width:1.4}
.t-graph .line.store{stroke:var(--store-line);stroke-dasharray:3 3;opacity:.7}
.t-graph .line.busy{stroke:var(--live);stroke-width:2}
.t-graph .arrow{fill:var(--line);fill:context-stroke}
.t-graph .live{font-size:11px;fill:var(--live);font-weight:600;text-anchor:start;paint-order:stroke;stroke:var(--box);stroke-width:3px}
.t-graph .live.before{text-anchor:end}
"""


def describe_svg(plan: Plan) -> str:
    """Return the topology as an SVG picture."""
    return svg_of(picture_of(plan), plan.application, STYLE) + "\n"


def svg_of(picture: Picture, title: str, style: str = "") -> str:
    """Return a picture as an SVG element; edges from and to topics carry `data-kind`, `data-topic` and `data-sub`.

    style: STYLE, unless the page around the element has it.
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
        *map(_shape, picture.shapes),
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


def _shape(shape: Shape) -> str:
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
    """Return a smooth path that leaves and arrives vertically, or horizontally where it goes to the right."""
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
