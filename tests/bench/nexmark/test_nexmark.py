"""The topologies of Nexmark's queries give what plain loops give, on a few events."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import streamkit
from tests.bench.nexmark.generator import KINDS, START_MS, Event, events
from tests.bench.nexmark.reference import APPENDED, QUERIES, final

TOPOLOGIES = Path(__file__).with_name("topologies")
COUNT = 2_400


@cache
def drawn() -> list[tuple[str, Event]]:
    return list(events(COUNT))


def test_of_50_events_one_is_a_person_and_three_are_auctions() -> None:
    assert Counter(kind for kind, _ in drawn()) == {
        "persons": COUNT // 50,
        "auctions": COUNT // 50 * 3,
        "bids": COUNT // 50 * 46,
    }
    assert [time for _, (_, _, time) in drawn()] == list(range(START_MS, START_MS + COUNT))


@pytest.mark.parametrize("query", QUERIES)
def test_the_topology_gives_what_plain_loops_give(query: str) -> None:
    topology = streamkit.load(TOPOLOGIES / f"{query}.yaml", environment={})
    with topology.driver() as driver:
        read = {name for name in KINDS if f"topics: [{name}]" in topology.describe()}
        if "side" in read:
            for key, value, time in KINDS["side"](COUNT):
                driver.pipe("side", value, key=key, timestamp=time)
        for kind, (key, value, time) in drawn():
            if kind in read:
                driver.pipe(kind, value, key=key, timestamp=time)
        found = [(record.key, record.value) for record in driver.read("output")]
    wanted = QUERIES[query](COUNT)
    assert wanted
    assert final(query, found) == (wanted if query in APPENDED else sorted(wanted, key=lambda each: each[0]))
