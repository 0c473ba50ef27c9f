"""The logical graph: names, merging of sources, order of writing, groups."""

from __future__ import annotations

from typing import Any

import pytest

from streamkit.graph.builder import GraphBuilder
from streamkit.graph.physical_topology import (
    GraphNode,
    Names,
    ProcessorGraphNode,
    RepartitionNode,
    SinkDescription,
    SourceDescription,
    StreamSinkNode,
    StreamSourceNode,
    illegal_name,
)


def source(name: str, *topics: str, pattern: str | None = None, serdes: tuple = ("k", "v")) -> StreamSourceNode:
    return StreamSourceNode(name, SourceDescription(topics, pattern, serdes))


def sink(name: str, topic: str) -> StreamSinkNode:
    return StreamSinkNode(name, SinkDescription(topic, ("k", "v")))


def messages(graph: GraphBuilder) -> list[str]:
    return [problem.message for problem in graph.write().problems]


class Store:
    changelog_topic = None

    def __init__(self, name: str):
        self.name = name


def test_explicit_names_use_up_an_index() -> None:
    names = Names()
    assert names.named(None, "KSTREAM-MAP-") == "KSTREAM-MAP-0000000000"
    assert names.named("mine", "KSTREAM-MAP-", "-sink") == "mine-sink"
    assert names.store("x-") == "x-STATE-STORE-0000000002"


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ü", "x" * 250])
def test_illegal_names(name: str) -> None:
    assert illegal_name(name) is not None


def test_nodes_are_written_by_priority_once_their_parents_are() -> None:
    graph = GraphBuilder()
    left, right = source("left", "a"), source("right", "b")
    merge = ProcessorGraphNode("merge", "work", merging=True)
    late = ProcessorGraphNode("late", "work")
    graph.add(graph.root, left)
    graph.add(left, late)
    graph.add(graph.root, right)
    graph.add((left, right), merge)
    assert list(graph.write().nodes) == ["left", "late", "right", "merge"]


def test_sources_of_equal_topics_merge_into_the_first() -> None:
    graph = GraphBuilder()
    first, second = source("first", "a", "b"), source("second", "b", "a")
    graph.add(graph.root, first)
    graph.add(graph.root, second)
    graph.add(second, sink("out", "c"))
    topology = graph.write()
    assert list(topology.nodes) == ["first", "out"]
    assert topology.nodes["out"].parents == ("first",)
    assert not topology.problems


def test_equal_patterns_merge() -> None:
    graph = GraphBuilder()
    for name in ("first", "second"):
        graph.add(graph.root, source(name, pattern="a.*"))
    assert list(graph.write().nodes) == ["first"]


def test_overlapping_topics_are_refused() -> None:
    graph = GraphBuilder()
    graph.add(graph.root, source("first", "a", "b"))
    graph.add(graph.root, source("second", "b"))
    assert "overlapping but not equal input topics" in messages(graph)[0]


def test_a_pattern_that_matches_a_registered_topic_is_refused() -> None:
    for order in (("first", "second"), ("second", "first")):
        graph = GraphBuilder()
        nodes = {"first": source("first", "audit-1"), "second": source("second", pattern="audit-.*")}
        for name in order:
            graph.add(graph.root, nodes[name])
        assert len(messages(graph)) == 1


def test_duplicate_node_and_store_names_are_refused() -> None:
    graph = GraphBuilder()
    top = source("top", "a")
    graph.add(graph.root, top)
    graph.add(top, ProcessorGraphNode("same", "work", stores=(Store("s"),)))
    graph.add(top, ProcessorGraphNode("same", "work"))
    graph.add(top, ProcessorGraphNode("other", "work", stores=(Store("s"),)))
    found = messages(graph)
    assert found[0].startswith("Processor same is already added")
    assert found[1] == "A different StateStore has already been added with the name s"


def test_shared_stores_join_groups() -> None:
    graph = GraphBuilder()
    store = Store("shared")
    for name in ("one", "two", "three"):
        top = source(name, f"topic-{name}")
        graph.add(graph.root, top)
        stores: Any = () if name == "three" else (store,)
        graph.add(top, ProcessorGraphNode(f"{name}-work", "work", stores=stores))
    groups = [[node.name for node in group] for group in graph.write().node_groups()]
    assert groups == [["one", "one-work", "two", "two-work"], ["three", "three-work"]]


def repartition(name: str) -> RepartitionNode:
    names = (f"{name}-sink", f"{name}-filter", f"{name}-source")
    return RepartitionNode(names, name, ("k", "v"), make_filter=lambda drop: ("filter", drop))


@pytest.mark.parametrize("relaxed", [True, False])
def test_filters_drop_null_keys_unless_a_left_join_needs_them(relaxed: bool) -> None:
    graph = GraphBuilder()
    top, node, join = source("top", "a"), repartition("r"), ProcessorGraphNode("join", "work")
    join.relaxed_null_key_join = relaxed
    graph.add(graph.root, top)
    graph.add(top, node)
    graph.add(node, join)
    assert graph.write().nodes["r-filter"].work == ("filter", not relaxed)


def test_repartitions_below_one_key_change_merge_when_asked() -> None:
    for optimizations, expected in ((frozenset(), 2), (frozenset({"merge.repartition.topics"}), 1)):
        graph = GraphBuilder()
        top, change = source("top", "a"), ProcessorGraphNode("change", "work", key_changing=True)
        graph.add(graph.root, top)
        graph.add(top, change)
        for name in ("one-repartition", "two-repartition"):
            node = repartition(name)
            graph.add(change, node)
            graph.add(node, ProcessorGraphNode(f"{name}-work", "work"))
        topology = graph.write(optimizations)
        assert len(topology.internal_topics) == expected
        assert topology.nodes["two-repartition-work"].parents == (
            ("two-repartition-source",) if expected == 2 else ("one-repartition-source",)
        )


def test_upward_search_follows_the_last_parent() -> None:
    top, other, node = GraphNode("top"), GraphNode("other", key_changing=True), GraphNode("node")
    middle = GraphNode("middle")
    top.add_child(node)
    other.add_child(middle)
    middle.add_child(node)
    assert node.find_upward(lambda each: each.key_changing) is other
    assert node.find_upward(lambda each: each is top) is top
    assert node.find_upward(lambda each: each.value_changing) is None
