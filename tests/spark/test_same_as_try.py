"""Conformance cases as batch jobs give, key by key and in order, the records that `try` gives for the same input."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.runtime.spark.job import Job
from streamkit.runtime.spark.job_options import JSON_LINES, REST, JobOptions, Place
from streamkit.runtime.spark.submission.submit_job import declared_counts
from tests.conformance_cases import CASES, as_json, parse, same
from tests.spark.in_process import InProcess
from tests.spark.support import by_key, live_order, reprocess, tried

# Of several topics that pass through repartition topics before they meet: there a record's turn follows from the times
# in the repartition topic, as it does live, whereas `try` follows each record to its end at once. Only what a key comes
# to in the end is the same.
ONLY_THE_END = ("customer-360",)


# On Spark a case takes some seconds. What Spark does depends on the graph of its stages, so that one of each shape runs there,
# and those with null keys, patterns of topics or partitioners.
SOME = (
    "aggregate-customer-totals",
    "aggregation-skips-nulls",
    "bytes-keys-apart",
    "count-without-cache",
    "customer-360",
    "fraud-detection",
    "foreign-key-join-inner",
    "join-after-key-change",
    "join-chain",
    "joins-that-see-the-key",
    "many-branches-and-merges",
    "merge-three-regions",
    "null-keys-and-values",
    "optimized-merge-below-filter",
    "partitioners",
    "pattern-source",
    "process-values-of-tables",
    "repartition-explicit",
    "stores-kept-from-topics",
    "stores-without-names",
    "stream-global-join",
    "stream-join-named",
    "stream-join-negative-bounds",
    "suppress-tumbling-final",
    "three-level-repartition",
)
ON_SPARK = [case for case in CASES if case.name in SOME or "STREAMKIT_ALL_CASES" in os.environ]


def records_of(case: Path) -> list[dict]:
    """The input of a case, without control lines: a batch job has no wall clock."""
    return [record for record in parse((case / "input.jsonl").read_text(encoding="utf-8")) if "topic" in record]


def check(case: Path, plan: Plan, have: list[dict]) -> None:
    """Compare what a job made of a case's records with what `try` makes of them."""
    wanted = by_key(as_json(tried(case / "topology.yaml", live_order(plan, records_of(case)))))
    had = by_key(as_json(have))
    assert wanted
    assert wanted.keys() == had.keys()
    for place, expected in wanted.items():
        found = had[place]
        if case.name in ONLY_THE_END:
            expected, found = expected[-1:], found[-1:]
        assert same(expected, found), f"{place}: {json.dumps(expected)}, found {json.dumps(found)}"


@pytest.mark.parametrize("case", ON_SPARK, ids=lambda case: case.name)
def test_records(case: Path, spark: Any, tmp_path: Path) -> None:
    plan = load(case / "topology.yaml")
    check(case, plan, reprocess(spark, plan, records_of(case), tmp_path, emit="updates"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_records_without_spark(case: Path) -> None:
    plan = load(case / "topology.yaml")
    job = InProcess(plan, records_of(case))
    draw = random.Random(0)
    found, _ = job.run(job.parts(draw, 1), draw)
    check(case, plan, found)


def test_each_shape_runs_on_spark() -> None:
    shapes = {shape(case) for case in CASES}
    assert shapes == {shape(case) for case in CASES if case.name in SOME}


def shape(case: Path) -> tuple:
    """Of each stage whether it has several inputs, is a cycle, has several outputs; and whether there are global tables."""
    plan = load(case / "topology.yaml")
    read = {topic for sub in plan.sub_topologies for topic in sub.source_topics if topic not in plan.internal_topics}
    inputs = {topic: (Place("-", JSON_LINES),) for topic in read}
    options = JobOptions(inputs, {REST: Place("-", JSON_LINES)}, "updates")
    stages = Job(plan, declared_counts(plan, read), options).stages
    forms = tuple((len(stage.inputs) > 1, stage.cyclic, len(stage.outputs) > 1) for stage in stages)
    return forms, any(sub.is_global for sub in plan.sub_topologies)


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
