"""Splitting the input at any commit and restarting from the changelogs changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.runtime.driver import Driver
from tests.laws.support import CASES, compacted, inputs, plan_of, run, stores_of

# Dozens of topologies, each restarted at every commit.
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.data())
def test_a_restart_changes_nothing(name: str, data: st.DataObject) -> None:
    case = CASES[name]
    records = data.draw(inputs(case))
    at = data.draw(st.integers(0, len(records)))
    plan = plan_of(name, data.draw(st.sampled_from([0, 200, 10_000_000])))
    with Driver(plan) as whole:
        expected, stores = run(whole, records), stores_of(whole)
    with Driver(plan) as before:
        first, then = run(before, records[:at]), stores_of(before)
    remains = compacted(before.remains, plan) if data.draw(st.booleans()) else before.remains
    with Driver(plan, remains) as after:
        assert stores_of(after) == then
        assert first + run(after, records[at:]) == expected
        assert stores_of(after) == stores
