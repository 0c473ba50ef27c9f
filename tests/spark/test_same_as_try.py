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


WITHOUT_TIME = """\
streamkit: 1
application: timeless
config: {deserialization.exception.handler: continue, errors.dead.letter.queue.topic.name: dead}
topics:
  a: {value: json, timestamp: value.at, partitions: 1}
  b: {value: json, timestamp: value.at, partitions: 1}
  out: {value: json, partitions: 1}
  dead: {value: json, partitions: 1}
pipelines:
  copy: {stream: [a, b], to: out}
"""


def test_records_without_a_timestamp_become_dead_letters(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(WITHOUT_TIME)
    times = [3, None, 5, "x", 4, None, 9]
    records = [
        {"topic": topic, "key": "k", "value": {"at": at, "n": n} if at is not None else {"n": n}, "timestamp": 0}
        for n, at in enumerate(times)
        for topic in ("a", "b")
    ]
    want, have = (
        tried(path, records),
        reprocess(spark, load(path), records, tmp_path, emit="updates"),
    )
    for topic, count in (("out", 8), ("dead", 6)):
        expected = sorted((each["value"]["n"], each["timestamp"]) for each in as_json(want) if each["topic"] == topic)
        assert len(expected) == count
        assert sorted((each["value"]["n"], each["timestamp"]) for each in have if each["topic"] == topic) == expected
