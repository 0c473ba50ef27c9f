"""The size of the cache never changes what is there in the end, and no cache shows every step on the way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.runtime.driver import Driver, Remains
from tests.laws.support import CASES, final, inputs, plan_of, run, stores_of

# Dozens of topologies, each with and without a cache.
pytestmark = pytest.mark.slow

# How long a suppressed row waits depends on the changes that reach the step, and a cache holds some of them back for good.
EACH = [name for name in CASES if name != "suppress until a time"]
# One commit at the end: what a stream finds in a table, when windows close, how sessions merge and which null a sum begins
# anew with depend on the changes in between, in Java too.
LATE = [
    name
    for name, case in CASES.items()
    if name
    not in ("suppress until a time", "suppress until windows close", "emit on close", "session", "reduce to null")
    and "left_join" not in case.pipelines
]


def outcome(name: str, cache_bytes: int, records: list[dict]) -> tuple[list[dict], dict[str, list], Remains]:
    with Driver(plan_of(name, cache_bytes)) as driver:
        return run(driver, records), stores_of(driver), driver.remains


@pytest.mark.parametrize("name", EACH)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.data())
def test_with_a_commit_after_each_record(name: str, data: st.DataObject) -> None:
    records = data.draw(inputs(CASES[name]))
    found, stores, _ = outcome(name, 0, records)
    for size in (150, 10_000_000):
        more, also, _ = outcome(name, size, records)
        assert also == stores
        assert final(more) == final(found)


@pytest.mark.parametrize("name", LATE)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.data())
def test_with_one_commit_at_the_end(name: str, data: st.DataObject) -> None:
    records = data.draw(inputs(CASES[name]))
    found, stores, _ = outcome(name, 0, records)
    for size in (150, 10_000_000):
        with Driver(plan_of(name, size)) as driver:
            commit, driver._commit = driver._commit, lambda: None  # type: ignore[method-assign]
            more = run(driver, records)
            commit()
            driver._complete()
            commit()
            driver._settle()
            more += driver.printed()
            assert stores_of(driver) == stores
            assert final(more) == final(found)


def test_most_cases_are_compared() -> None:
    assert len(LATE) >= 10
