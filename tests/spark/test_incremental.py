"""Incremental jobs on Spark: runs over what is new write what one job over everything writes."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import TransportError
from streamkit.plan import load
from streamkit.record import TopicPartition
from streamkit.runtime.spark.job_options import JSON_LINES, JobOptions, Place
from streamkit.runtime.spark.rows.log_rows import Address
from streamkit.runtime.spark.submission.incremental import submit_next
from streamkit.transport.log_interface import NewTopic
from tests.conformance_cases import CASES, parse
from tests.spark.as_one import check_as_one, cut
from tests.spark.incremental_runs import PARQUET, Range, Runs, fails, lines

# All cases take an hour; tests/spark/test_parts.py runs all of them without Spark.
SOME = ("suppress-tumbling-final", "foreign-key-join-left", "stream-global-join")
CHOSEN = [case for case in CASES if case.name in SOME or "STREAMKIT_ALL_CASES" in os.environ]


@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case.name)
def test_runs_are_as_one_job(case: Path, spark: Any, tmp_path: Path) -> None:
    plan = load(case / "topology.yaml")
    records = [record for record in parse((case / "input.jsonl").read_text(encoding="utf-8")) if "topic" in record]
    topics = tuple(sorted({record["topic"] for record in records}))
    runs = Runs(spark, case / "topology.yaml", tmp_path / "runs", topics)
    for part in cut(plan, records, random.Random(case.name), 2):
        runs.add(part)
        runs.run()
    check_as_one(runs, plan, records)


def test_parquet_and_the_state_are_for_others(spark: Any, counting: Path, tmp_path: Path) -> None:
    runs = Runs(spark, counting, tmp_path / "runs", ("lines",), PARQUET)
    for start in (0, 40, 80):
        runs.add(lines(40, start))
        runs.run(outputs={"counts": Place(str(runs.out), PARQUET)})
    table = spark.read.parquet(str(runs.out))
    assert [row["run"] for row in table.select("run").distinct().orderBy("run").collect()] == [1, 2, 3]
    last = {row["key"].encode(): row["value"] for row in table.orderBy("run", "timestamp").collect()}
    expected: dict[bytes, int] = {}
    for line in lines(120):
        for word in line["value"].split():
            expected[word.encode()] = expected.get(word.encode(), 0) + 1
    assert last == expected
    state = spark.read.parquet(str(runs.checkpoint / "state")).filter("store = 'counts'")
    # The rows of the last base and the deltas after it, the newest of each key; the value follows its timestamp.
    rows = state.orderBy("folder").collect()
    assert {bytes(row["key"]): int.from_bytes(row["value"][8:], "big") for row in rows} == expected
    assert {row["kind"] for row in rows} <= {"base", "delta"}


def test_the_log(spark: Any, counting: Path, tmp_path: Path) -> None:
    plan = load(counting)
    address = Address.of(plan)
    place = Place(str(tmp_path / "out"), JSON_LINES)

    def run(**others: Any) -> None:
        options = JobOptions(
            outputs={"counts": place}, emit="updates", checkpoint=str(tmp_path / "checkpoint"), **others
        )
        submit_next(plan, options, spark, said.append)

    def write(count: int) -> None:
        with address.opened() as transport:
            producer = transport.producer()
            producer.send([("lines", None, b"w", at, None, at % 2) for at in range(count)])
            producer.flush()
            producer.close()

    said: list[str] = []
    with address.admin() as admin:
        admin.create_topics([NewTopic("lines", 2, {}), NewTopic("counts", 2, {})])
    write(10)
    # Five records in each partition, of which the first run reads two.
    (tmp_path / "offsets.json").write_text(json.dumps({"lines": {"0": 2, "1": 2}}))
    run(range=Range(end=str(tmp_path / "offsets.json")))
    run()
    fails(run, "--from", "the offsets where run 2 ended", range=Range(start="1970-01-01"))
    parts = [part for folder in sorted((tmp_path / "out").glob("run=*")) for part in sorted(folder.glob("part-*"))]
    assert [json.loads(line)["value"] for part in parts for line in part.read_text().splitlines()] == list(range(1, 11))
    run()
    assert said[-1] == "nothing is new since run 2"
    write(4)
    with address.admin() as admin:
        admin.delete_records({TopicPartition("lines", 0): 6})
    fails(run, "lines-0", "offsets 5 to 5", "retention")
    run(range=Range(tolerate_loss=True))
    with address.admin() as admin:
        admin.delete_topics(["lines"])
        admin.create_topics([NewTopic("lines", 2, {})])
    fails(run, "lines-0", "log ends at 0", "created again")
    write(40)
    fails(run, "lines: the topic was deleted and created again since run 3", kind=TransportError)
