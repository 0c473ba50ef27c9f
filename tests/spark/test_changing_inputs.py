"""Inputs that change, and rows that are no records: one line each, and nothing half written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.runtime.spark.submission.incremental import submit_next
from streamkit.runtime.spark.submission.job_options import JSON_LINES, JobOptions, Place
from streamkit.runtime.spark.submission.request import inputs_of
from streamkit.runtime.spark.submission.submit_job import submit
from tests.spark.incremental_runs import fails
from tests.spark.support import read_lines, write_lines

COPY = """\
streamkit: 1
application: changing
topics:
  orders: {key: json, value: json}
  out: {key: json, value: json}
pipelines: {copy: {stream: orders, to: out}}
"""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """The plan of a copy; one task reads everything, of which a line of the job warns."""
    path = tmp_path / "topology.yaml"
    path.write_text(COPY)
    return load(path)


def test_a_null_in_a_key(spark: Any, plan: Plan, tmp_path: Path) -> None:
    spark.createDataFrame([(7, 1), (None, 2)], "user int, n int").write.parquet(str(tmp_path / "lake"))
    out = {"out": Place(str(tmp_path / "out"), JSON_LINES)}

    def run(settings: str) -> None:
        inputs = inputs_of(plan, [f"orders={tmp_path}/lake,key={settings}"])
        submit(plan, JobOptions(inputs, out, overwrite=True), spark)

    words = f"{tmp_path}/lake: key=user is null in a row; where=user is not null leaves such rows out"
    fails(lambda: run("user,value=n,timestamp=0"), words)
    assert not (tmp_path / "out/_SUCCESS").exists()
    run("user,value=n,timestamp=0,where=user is not null")
    assert [record["value"] for record in read_lines(tmp_path / "out")] == [1]
    run("to_json(struct(user)),value=n,timestamp=0")
    assert sorted(record["value"] for record in read_lines(tmp_path / "out")) == [1, 2]


def test_a_file_that_is_deleted_while_it_is_read(spark: Any, plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        write_lines(tmp_path / f"in/{name}.jsonl", [{"key": 1, "value": 1, "timestamp": 1}])
    options = JobOptions(inputs_of(plan, [f"orders={tmp_path}/in"]), {"out": Place(str(tmp_path / "out"), JSON_LINES)})

    def delete(line: str) -> None:
        assert line.startswith("orders: one task reads all its records")
        (tmp_path / "in/b.jsonl").unlink()

    fails(lambda: submit(plan, options, spark, delete), f"{tmp_path}/in/b.jsonl", "was deleted while the job read it")
    assert not (tmp_path / "out/_SUCCESS").exists()


def test_columns_that_change_their_types_between_runs(spark: Any, plan: Plan, tmp_path: Path) -> None:
    lake, out = tmp_path / "lake", tmp_path / "out"

    def run() -> None:
        inputs = inputs_of(plan, [f"orders={lake},format=json,key=user,value=*,timestamp=0"])
        options = JobOptions(inputs, {"out": Place(str(out), JSON_LINES)}, checkpoint=str(tmp_path / "state"))
        submit_next(plan, options, spark)

    lake.mkdir()
    write_lines(lake / "1.json", [{"user": 1, "tags": [1], "more": {"n": 2}}])
    run()
    write_lines(lake / "2.json", [{"user": 2, "tags": [3], "more": {"n": None, "new": "x"}}])
    run()
    assert [record["value"]["more"] for record in read_lines(out / "run=000002")] == [{"n": None, "new": "x"}]
    for number, row, words in (
        (3, {"user": "u3", "tags": [], "more": {}}, "user"),
        (4, {"user": 4, "tags": ["x"], "more": {}}, "value.tags[]"),
        (5, {"user": 5, "tags": [5], "more": {"n": "x"}}, "value.more.n"),
    ):
        wrong = lake / f"{number}.json"
        write_lines(wrong, [row])
        name = "key" if words == "user" else words
        fails(
            run,
            f"--input orders={lake}: {name} is of type string in the new files, and was bigint in those up to run 2",
        )
        wrong.unlink()
    assert not list(out.glob("*000003*"))
