"""The pairs beside Kafka Streams: its names, tasks and topics are those that the findings are about."""

from __future__ import annotations

import json
import re

import pytest

from streamkit.changes.compare_versions import compare
from streamkit.changes.finding import Verdict
from streamkit.changes.of_describe import parse_describe
from streamkit.plan.describe import describe
from tests.changes import record
from tests.changes.pairs import PAIRS
from tests.changes.versions import Pair, forms, plan_of

SAID = json.loads(record.FILE.read_text(encoding="utf-8"))
BY_JAVA = [pair for pair in PAIRS if pair.java]
every_pair = pytest.mark.parametrize("pair", BY_JAVA, ids=lambda pair: pair.name)


def stores(text: str) -> dict[str, int]:
    """The sub-topologies of stores, read from the lines of a description; global ones make no tasks and are left out."""
    found: dict[str, int] = {}
    for block in re.split(r"Sub-topology: ", text)[1:]:
        head = block.split("\n", 1)[0]
        if "global" not in head:
            for names in re.findall(r"\(stores: \[(.*?)\]\)", block):
                found.update((name, int(head)) for name in names.split(", ") if name)
    return found


def repartitions(text: str) -> set[str]:
    return set(re.findall(r"Sink: \S+ \(topic: (\S+-repartition|\S+-(?i:subscription)-\S+-topic)\)", text))


@every_pair
def test_the_names_are_those_of_java(pair: Pair) -> None:
    said = SAID[pair.name]
    for version, text in (("old", pair.old), ("new", pair.new)):
        assert describe(plan_of(text, f"{version}.yaml"), "text").rstrip("\n") == said[version].rstrip("\n")


@every_pair
def test_each_store_and_topic_that_java_moves_is_found(pair: Pair) -> None:
    old, new = forms(pair)
    found = compare(old, new)
    before, after = (stores(SAID[pair.name][version]) for version in ("old", "new"))
    lost = {each.old for each in found if each.subject == "store" and each.old is not None}
    assert {name for name in lost if name in before} == before.keys() - after.keys()
    text = "\n".join(each.message for each in found if each.verdict is Verdict.RESTORE)
    moved = [name for name in before.keys() & after.keys() if before[name] != after[name]]
    for name in moved:
        assert name in text
    assert ("was" in text and "tasks are called" in text) <= bool(moved)
    gone, come = (
        repartitions(SAID[pair.name][one]) - repartitions(SAID[pair.name][other])
        for one, other in (("old", "new"), ("new", "old"))
    )
    assert {each.old for each in found if each.verdict is Verdict.LEFT_BEHIND} == gone
    assert {each.name for each in found if each.verdict is Verdict.LEFT_BEHIND} <= come | gone


@every_pair
def test_descriptions_of_java_tell_what_moves(pair: Pair) -> None:
    """All that does not depend on serdes, windows, settings and partitions shows from Java's texts alone."""
    old, new = (parse_describe(SAID[pair.name][version], version) for version in ("old", "new"))
    names = {Verdict.LEFT_BEHIND, Verdict.STOP}
    files = compare(*forms(pair))
    shown = {(each.verdict, each.name) for each in compare(old, new) if each.verdict in names}
    assert shown == {
        (each.verdict, each.name) for each in files if each.verdict in names and each.subject != "topic"
    } | {(each.verdict, each.name) for each in files if each.verdict is Verdict.LEFT_BEHIND}


def test_java_prints_the_same_today(java: None) -> None:
    assert record.described() == SAID
