"""Versions that are known by what `Topology.describe()` prints in Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamkit.changes.compare_versions import compare
from streamkit.changes.of_describe import parse_describe
from streamkit.changes.of_plan import form_of
from streamkit.errors import TopologyError
from tests.conformance_cases import every_case, plan_of


@every_case
def test_a_version_equals_its_description_in_java(case: Path) -> None:
    file = form_of(plan_of(case), "topology.yaml")
    described = parse_describe((case / "describe.txt").read_text(encoding="utf-8"), "describe.txt")
    for old, new in ((file, file), (file, described), (described, file), (described, described)):
        assert compare(old, new) == []


@every_case
def test_a_description_has_what_the_plan_has(case: Path) -> None:
    file = form_of(plan_of(case), "topology.yaml")
    described = parse_describe((case / "describe.txt").read_text(encoding="utf-8"), "describe.txt")
    assert [
        (each.id, each.is_global, each.sources, sorted(each.stores), each.nodes) for each in file.sub_topologies
    ] == [(each.id, each.is_global, each.sources, sorted(each.stores), each.nodes) for each in described.sub_topologies]
    assert {name: store.roots for name, store in file.stores.items()} == {
        name: store.roots for name, store in described.stores.items()
    }
    assert {name: topic.roots for name, topic in file.topics.items()} == {
        name: topic.roots for name, topic in described.topics.items()
    }


HEAD = "Topologies:\n   Sub-topology: 0\n    Source: a (topics: [x])\n      --> b\n"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "expected the text of Topology.describe()"),
        ("Topologies:\n    Source: a (topics: [x])\n", 2, "expected Topologies: or Sub-topology: N"),
        (HEAD + "    Prozessor: b (stores: [])\n", 5, "expected Source:, Processor:, Sink:, --> or <--"),
        (HEAD + "    Processor: b (stores: [)\n", 5, "expected Source:"),
        (HEAD + "    Source: a (topics: [y])\n", 5, "node a stands here for the second time"),
        (HEAD + "  Sub-topology: 0\n", 5, "sub-topology 0 stands here for the second time"),
        (HEAD + "    Processor: b (stores: [])\n      --> none\n      <-- c\n", 5, "b stands on c, which"),
        ("Topologies:\n   Sub-topology: 0\n      --> b\n", 3, "--> stands here without a node"),
    ],
)
def test_what_is_no_description_is_reported_with_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(TopologyError) as caught:
        parse_describe(text, "describe.txt")
    assert [(each.position.file, each.position.line) for each in caught.value.problems] == [("describe.txt", line)]
    assert message in str(caught.value)


def test_patterns_and_routes() -> None:
    text = HEAD.replace("[x]", "x[a-z]+") + "    Sink: b (extractor class: acme.Router)\n      <-- a\n"
    form = parse_describe(text, "describe.txt")
    assert form.sub_topologies[0].sources == frozenset({"x[a-z]+"})
    assert form.topics == {}
