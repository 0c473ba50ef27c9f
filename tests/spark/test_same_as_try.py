"""Conformance cases as batch jobs give, key by key and in order, the records that `try` gives for the same input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamkit.plan import load
from tests.conformance_cases import CASES, as_json, parse, same
from tests.spark.support import by_key, live_order, reprocess, tried

# Of several topics that pass through repartition topics before they meet: there a record's turn follows from the times
# in the repartition topic, as it does live, whereas `try` follows each record to its end at once. Only what a key comes
# to in the end is the same.
ONLY_THE_END = ("customer-360",)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_records(case: Path, spark: Any, tmp_path: Path) -> None:
    path = case / "topology.yaml"
    plan = load(path)
    # No control lines: a batch job has no wall clock.
    records = [record for record in parse((case / "input.jsonl").read_text(encoding="utf-8")) if "topic" in record]
    want = by_key(as_json(tried(path, live_order(plan, records))))
    have = by_key(reprocess(spark, plan, records, tmp_path, emit="updates"))
    assert want
    assert want.keys() == have.keys()
    for place, expected in want.items():
        found = have[place]
        if case.name in ONLY_THE_END:
            expected, found = expected[-1:], found[-1:]
        assert same(expected, found), f"{place}: {json.dumps(expected)}, found {json.dumps(found)}"
