"""The topology of ShuffleBench, on a few records: what its index finds, and the results of its consumers."""

from __future__ import annotations

from pathlib import Path

import pytest

import streamkit

# It comes with the extra spark, which is installed where there is a JVM.
np = pytest.importorskip("numpy")

from tests.bench.shufflebench.functions import STATE, Index, Match, name, ranges  # noqa: E402
from tests.bench.shufflebench.load import SIZE, START_MS, matched_one_by_one, matches, records  # noqa: E402

TOPOLOGY = Path(__file__).with_name("shufflebench.yaml")
COUNT = 400


@pytest.mark.parametrize(("rules", "selectivity", "exponent"), [(40, 3.0, 0), (40, 1.5, 1), (3, 9.0, 2)])
def test_the_index_finds_the_rules_that_hold(rules: int, selectivity: float, exponent: float) -> None:
    data = list(records(COUNT))
    found = Match(rules, selectivity, exponent)([None] * COUNT, data)
    one_by_one = [matched_one_by_one(each, ranges(rules, selectivity, exponent)) for each in data]
    assert [[consumer for consumer, _ in each] for each in found] == one_by_one
    assert any(one_by_one)


def test_a_range_over_the_end_of_the_ring_begins_again_at_its_start() -> None:
    index = Index([((1 << 63) - 10, 20), (5, 5)])
    places = np.array([0, 7, 9, 10, 11, (1 << 63) - 1, (1 << 63) - 11], dtype=np.uint64)
    both, first = (name(0), name(1)), (name(0),)
    assert index.matches(places) == [(0, first), (1, both), (2, both), (5, first)]


def test_consumers_count_and_sum_each_of_their_records() -> None:
    settings = {"RULES": "20", "SELECTIVITY": "1.0", "EXPONENT": "1", "RANDOM_START": "false"}
    topology = streamkit.load(TOPOLOGY, environment=settings)
    totals: dict[str, list[int]] = {}
    with topology.driver() as driver:
        for number, data in enumerate(records(COUNT)):
            driver.pipe("input", data, timestamp=START_MS + number)
        results = [(each.key, each.value) for each in driver.read("output")]
        for key, value in [*results, *driver.stores["consumers"]]:
            assert len(value) == SIZE
            count, total, began, ended = STATE.unpack_from(value)
            assert count in ((10,) if (key, value) in results else range(10))
            assert began <= ended
            before = totals.setdefault(key, [0, 0])
            before[0] += count
            before[1] = (before[1] + total) % (1 << 64)
    assert {key: tuple(each) for key, each in totals.items()} == matches(COUNT, 20, 1.0, 1)
    assert results
