"""The drawing of topologies: nothing lies on anything else, and the picture is what browsers take."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from itertools import combinations
from pathlib import Path

import pytest

from streamkit.plan import load
from streamkit.plan.describe import describe
from streamkit.plan.describe.drawing.picture import (
    LANDSCAPE,
    PORTRAIT,
    Drawing,
    Picture,
    Size,
    Style,
    lay_out,
    picture_of,
    pictures_of,
)
from tests.browser.backfill import TOPOLOGY as BACKFILL
from tests.conformance_cases import every_case, plan_of


@every_case
def test_every_topology_has_tidy_pictures(case: Path) -> None:
    plan = plan_of(case)
    drawing = Drawing.of(plan)
    styles = [Style(names, right=right) for right in (True, False) for names in (True, False)]
    parts = [part for style in styles for part in drawing.components(style)]
    for picture in (picture_of(plan), *pictures_of(plan)):
        _tidy(picture)
        nodes = sum(len(sub.nodes) for sub in plan.sub_topologies)
        assert sum(shape.kind in ("source", "processor", "sink") for shape in picture.shapes) == nodes
        assert {each.id.partition("store:")[2] for each in picture.shapes if each.kind == "store"} == set(plan.stores)
    for picture in parts:
        _tidy(picture)


def _tidy(picture: Picture) -> None:
    """Check that nothing lies on anything else, that nodes are in their boxes, and that edges follow the direction."""
    places = [_edges(each) for each in picture.shapes]
    assert not [(one, two) for one, two in combinations(places, 2) if _overlap(one, two)]
    boxes = {box.id: (box.x, box.y, box.x + box.width, box.y + box.height) for box in picture.sub_topologies}
    assert not [(one, two) for one, two in combinations(boxes.values(), 2) if _overlap(one, two)]
    for shape in picture.shapes:
        inside = [number for number, box in boxes.items() if _within(_edges(shape), box)]
        assert inside == ([] if "topic" in shape.kind else [int(shape.id.split()[0])])
        assert _within(_edges(shape), (0, 0, picture.width, picture.height))
    for edge in picture.edges:
        assert edge.points[0] != edge.points[-1]
        if edge.kind == "record":
            (x, y), (nx, ny) = edge.points[0], edge.points[-1]
            assert nx > x if picture.right else ny > y


def test_five_pipelines_fill_a_wide_window_from_left_to_right(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(BACKFILL)
    wide, narrow = pictures_of(load(file))
    assert wide.right
    assert wide.scale(LANDSCAPE) > 0.65
    assert wide.width * wide.scale(LANDSCAPE) > 0.95 * LANDSCAPE.width
    assert not narrow.right
    assert narrow.scale(PORTRAIT) > 0.4
    assert pictures_of(load(file)) == (wide, narrow)


def _edges(shape) -> tuple[float, float, float, float]:
    return (
        shape.x - shape.width / 2,
        shape.y - shape.height / 2,
        shape.x + shape.width / 2,
        shape.y + shape.height / 2,
    )


def _overlap(one, two) -> bool:
    return one[0] < two[2] - 0.01 and two[0] < one[2] - 0.01 and one[1] < two[3] - 0.01 and two[1] < one[3] - 0.01


def _within(one, two) -> bool:
    return one[0] >= two[0] - 0.01 and one[1] >= two[1] - 0.01 and one[2] <= two[2] + 0.01 and one[3] <= two[3] + 0.01


def test_cycles_and_edges_over_several_layers_are_drawn():
    size = Size(10, 10)
    nodes = dict.fromkeys("abcd", size)
    edges = [("a", "b"), ("b", "c"), ("c", "a"), ("a", "c"), ("c", "d"), ("a", "d"), ("d", "d")]
    layout = lay_out(nodes, edges, gap=5, layer_gap=10)
    assert [layout.centres[name][1] for name in "abcd"] == [5, 25, 45, 65]
    assert len(layout.bends["a", "d"]) == 4
    assert layout.centres == lay_out(nodes, edges, gap=5, layer_gap=10).centres


def test_siblings_stand_beside_each_other_below_the_middle_of_what_feeds_them():
    layout = lay_out(
        {"a": Size(10, 10), "b": Size(40, 10), "c": Size(20, 10)}, [("a", "b"), ("a", "c")], gap=6, layer_gap=10
    )
    b, c = layout.centres["b"][0], layout.centres["c"][0]
    assert c - b == pytest.approx(36)
    assert layout.centres["a"][0] == pytest.approx((b + c) / 2)


HOSTILE = """\
streamkit: 1
application: app
topics:
  in: {value: string, partitions: 1}
pipelines:
  p:
    stream: in
    to: {route: '"</script><b>&" + value'}
"""


def test_names_can_not_leave_their_place_in_svg_and_html(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(HOSTILE)
    plan = load(file)
    svg, html = describe(plan, "svg"), describe(plan, "html")
    root = ET.fromstring(svg)
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert any(text and '"</script><b>&" + value' in text for text in texts), texts
    assert html.count("</script>") == 1
    data = re.search(r"const TOPOLOGY = (.*);\n", html)
    assert data is not None
    assert [topic["name"] for topic in json.loads(data[1])["topics"]] == ["in"]
    assert "://" not in html.replace("http://www.w3.org/2000/svg", "")
    policy = re.search(r'content="(default-src [^"]*)"', html)
    assert policy is not None
    assert "unsafe" not in policy[1]
