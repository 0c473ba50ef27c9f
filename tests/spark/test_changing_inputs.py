"""Inputs that change, and rows that are no records: one line each, and nothing half written."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.runtime.spark.checkpoint.run_inputs import find_files
from streamkit.runtime.spark.job_options import JSON_LINES, JobOptions, Place, parse_place
from streamkit.runtime.spark.rows.file_outputs import write_files
from streamkit.runtime.spark.rows.file_system import FileSystem
from streamkit.runtime.spark.submission.incremental import submit_next
from streamkit.runtime.spark.submission.request import inputs_of
from streamkit.runtime.spark.submission.submit_job import submit
from streamkit.runtime.spark.workers.arrow_rows import HEADERS_DDL
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

    words = f"{tmp_path}/lake: key=user is null in a row; where=user is not null skips such rows"
    fails(lambda: run("user,value=n,timestamp=0"), words)
    assert not (tmp_path / "out/_SUCCESS").exists()
    run("user,value=n,timestamp=0,where=user is not null")
    assert [record["value"] for record in read_lines(tmp_path / "out")] == [1]
    run("to_json(struct(user)),value=n,timestamp=0")
    assert sorted(record["value"] for record in read_lines(tmp_path / "out")) == [1, 2]


def test_a_null_in_a_timestamp(spark: Any, plan: Plan, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(3, 1), (None, 2)], "ts bigint, n int")
    rows.write.parquet(str(tmp_path / "lake"))
    rows.write.format("parquet").saveAsTable("changing_inputs", path=str(tmp_path / "table"))
    out = {"out": Place(str(tmp_path / "out"), JSON_LINES)}

    def run(place: str) -> None:
        inputs = inputs_of(plan, [f"orders={place},value=n,timestamp=ts"])
        submit(plan, JobOptions(inputs, out, overwrite=True), spark)

    try:
        words = "timestamp=ts: a row has null, and so no place in the order; where=ts is not null omits such rows"
        fails(lambda: run("changing_inputs,format=table"), f"changing_inputs: {words}")
    finally:
        spark.sql("drop table changing_inputs")
    run(f"{tmp_path}/lake")
    assert sorted((record["value"], record["timestamp"]) for record in read_lines(tmp_path / "out")) == [(1, 3), (2, 0)]


@pytest.mark.parametrize("how", ["deleted", "changed"])
def test_a_file_that_changes_while_it_is_read(how: str, spark: Any, plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        write_lines(tmp_path / f"in/{name}.jsonl", [{"key": 1, "value": 1, "timestamp": 1}])
    options = JobOptions(inputs_of(plan, [f"orders={tmp_path}/in"]), {"out": Place(str(tmp_path / "out"), JSON_LINES)})

    def change(line: str) -> None:
        if line.startswith("orders: one task reads all its records"):
            (tmp_path / "in/b.jsonl").unlink()
            if how == "changed":
                write_lines(tmp_path / "in/b.jsonl", [{"key": 1, "value": "other", "timestamp": 1}])

    fails(lambda: submit(plan, options, spark, change), f"{tmp_path}/in/b.jsonl", f"was {how} while the job read it")
    assert not (tmp_path / "out/_SUCCESS").exists()


def test_files_of_a_job_that_failed(spark: Any, tmp_path: Path) -> None:
    """Hadoop's second algorithm would leave those of the tasks that ended before."""
    hadoop, algorithm = spark._jsc.hadoopConfiguration(), "mapreduce.fileoutputcommitter.algorithm.version"
    folder, marked = tmp_path / "out", list[bool]()

    def write(value: str) -> None:
        parts = ("'t' topic", "binary('k') key", f"binary({value}) value", "id timestamp", "0 partition")
        rows = spark.range(0, 3, 1, 3).selectExpr(*parts, f"cast(null AS {HEADERS_DDL}) headers")
        is_marked = (folder / "_SUCCESS").exists
        place, verify = Place(str(folder), "orc"), lambda: marked.append(is_marked())
        write_files(rows, place, b"", True, None, is_ordered=True, verify=verify)

    hadoop.set(algorithm, "2")
    try:
        # The third task begins when one of the others has ended.
        with pytest.raises(PySparkException, match="stop"):
            write("if(id = 2, raise_error('stop'), 'v')")
    finally:
        hadoop.unset(algorithm)
    assert not list(folder.glob("*"))
    write("'v'")
    assert (marked, (folder / "_SUCCESS").exists()) == ([False], True)


@dataclass
class Lake:
    """A folder of JSON with columns, and the runs of a copy of it."""

    spark: Any
    plan: Plan
    folder: Path

    @property
    def path(self) -> str:
        """The folder of the input."""
        return str(self.folder / "lake")

    def add(self, name: str, *rows: dict) -> Path:
        """Write a file of rows."""
        (self.folder / "lake").mkdir(exist_ok=True)
        return Path(write_lines(self.folder / "lake" / name, rows).path)

    def run(self, settings: str = "value=*,timestamp=0", path: str | None = None, **others: Any) -> None:
        """Run what is new."""
        inputs = inputs_of(self.plan, [f"orders={path or self.path},format=json,{settings}"])
        outputs = {"out": Place(str(self.folder / "out"), JSON_LINES)}
        submit_next(self.plan, JobOptions(inputs, outputs, checkpoint=str(self.folder / "state"), **others), self.spark)

    def written(self, number: int) -> list[Any]:
        """The values that a run wrote."""
        return [record["value"] for record in read_lines(self.folder / f"out/run={number:06}")]


@pytest.fixture
def lake(spark: Any, plan: Plan, tmp_path: Path) -> Lake:
    """An empty lake."""
    return Lake(spark, plan, tmp_path)


def test_columns_that_change_their_types_between_runs(lake: Lake) -> None:
    lake.add("1.json", {"user": 1, "tags": [1], "more": {"n": 2}})
    lake.run()
    lake.add("2.json", {"user": 2, "tags": [3], "more": {"n": None, "new": "x"}})
    lake.run()
    assert [value["more"] for value in lake.written(2)] == [{"n": None, "new": "x"}]
    for number, row, words in (
        (3, {"user": "u3", "tags": [], "more": {}}, "user is of type string in the new files, and was bigint"),
        (4, {"user": 4, "tags": ["x"], "more": {}}, "tags[] is of type string in the new files, and was bigint"),
        (5, {"user": 5.5, "tags": [5]}, "user is of type double in the new files, and was bigint"),
        (6, {"user": 6, "more": "x"}, "more is of type string in the new files, and was struct"),
    ):
        wrong = lake.add(f"{number}.json", row)
        remedy = "to_json" if "struct" in words else "string"
        fails(lake.run, f"{lake.path}: value.{words} up to run 2", f"{remedy}(COLUMN)", "--accept-input-changes")
        wrong.unlink()
    assert not list((lake.folder / "out").glob("*000003*"))
    lake.add("7.json", {"user": "u3", "tags": [], "more": {}})
    lake.run(accept_input_changes=True)
    assert lake.written(3) == [{"user": "u3", "tags": [], "more": None}]
    lake.add("8.json", {"user": "u4"})
    lake.run()


def test_columns_whose_types_become_known_later(lake: Lake) -> None:
    empty = {"user": None, "tags": [], "items": [None], "more": None, "deep": [[]], "id": 1}
    full = {"user": 5, "tags": [1], "items": [{"a": [None]}, None], "more": {"n": 1.5}, "deep": [[{"b": 1}]], "id": 2}
    for number, row in enumerate((empty, full, empty, {"id": 3}, {**full, "items": [{"a": [7]}]}), 1):
        lake.add(f"{number}.json", row)
        lake.run()
        assert lake.written(number) == [dict.fromkeys(empty) | row]
    lake.add("6.json", {**full, "items": [{"a": ["x"]}]})
    fails(lake.run, "value.items[].a[] is of type string in the new files, and was bigint up to run 5")


def test_fields_that_later_files_lack(lake: Lake) -> None:
    """Objects have the fields, and the order of them, that one job over all files so far would give them."""
    lake.add("1.json", {"b": {"y": 1, "x": 2}, "list": [{"n": 1, "m": 2}]})
    lake.run()
    lake.add("2.json", {"b": {"y": 3, "c": 4}, "list": [{"n": 5}, None]})
    lake.run()
    lake.add("3.json", {"a": 6, "b": None})
    lake.run()
    (second,), (third,) = lake.written(2), lake.written(3)
    assert json.dumps(second) == json.dumps({"b": {"c": 4, "x": None, "y": 3}, "list": [{"m": None, "n": 5}, None]})
    assert json.dumps(third) == json.dumps({"a": 6, "b": None, "list": None})


def test_names_that_differ_in_case_between_runs(lake: Lake) -> None:
    lake.add("1.json", {"user": {"Id": 1}})
    lake.run()
    lake.add("2.json", {"user": {"id": 2}})
    fails(lake.run, "value.user.id of the new files was value.user.Id up to run 1", "differ only in case")


def test_a_file_of_a_table_that_is_replaced(spark: Any, plan: Plan, tmp_path: Path) -> None:
    """By one with as many rows, as its writer gives it the same name again."""
    place = Place(str(tmp_path / "out"), JSON_LINES)
    inputs = inputs_of(plan, ["orders=replaced,format=table,value=n,timestamp=n"])
    options = JobOptions(inputs, {"out": place}, checkpoint=str(tmp_path / "state"))
    spark.range(1, 3).selectExpr("id n").coalesce(1).write.saveAsTable("replaced", path=str(tmp_path / "lake"))
    try:
        submit_next(plan, options, spark)
        (file,) = (tmp_path / "lake").glob("part-*")
        os.utime(file, (7, 7))
        spark.catalog.refreshTable("replaced")
        fails(lambda: submit_next(plan, options, spark), "has changed since run 1", "at 1970-01-01T00:00:07+00:00 now")
    finally:
        spark.sql("drop table replaced")


def test_ways_to_write_one_path(lake: Lake) -> None:
    lake.add("1.json", {"user": 1})
    lake.run(path=f"{lake.path}/")
    lake.add("2.json", {"user": "x"})
    for path in (lake.path, f"file://{lake.path}", f"{lake.path}/../lake"):
        fails(lambda path=path: lake.run(path=path), "value.user is of type string in the new files, and was bigint")


def test_settings_that_change_between_runs(lake: Lake) -> None:
    row = {"user": 1, "amount": 2, "ts": 3}
    lake.add("1.json", row)
    settings = "key=user,value=amount,timestamp=ts,options.encoding=UTF-8,options.apiToken=a,where=amount > 0"
    lake.run(settings)
    lake.add("2.json", row)
    for was, now in (
        ("key=user", "key=amount"),
        ("value=amount", "value=*"),
        ("timestamp=ts", "timestamp=0"),
        ("options.encoding=UTF-8", "options.encoding=UTF-16"),
        ("where=amount > 0", "where=amount > 1"),
    ):
        (name, before), (_, after) = was.split("=", 1), now.split("=", 1)
        words = f"up to 1: {name} is {after} and was {before}. Use the same settings, or --accept-input-changes"
        fails(lambda now=now, was=was: lake.run(settings.replace(was, now)), f"--input orders={lake.path}: ", words)
    fails(
        lambda: lake.run("value=*,timestamp=ts,headers=array()"),
        "key is not given and was user; value is",
        "headers is array()",
    )
    lake.run(settings.replace("apiToken=a", "apiToken=b"))
    assert lake.written(2) == [2]
    manifest = (lake.folder / "state/manifests/000002.json").read_text()
    assert "apiToken" not in manifest
    lake.add("3.json", row)
    other = settings.replace("value=amount", "value=user")
    lake.run(other, accept_input_changes=True)
    lake.add("4.json", row)
    lake.run(other)
    assert [lake.written(number) for number in (3, 4)] == [[1], [1]]


def test_files_are_listed_without_a_look_at_their_rows(lake: Lake) -> None:
    for day in (1, 2):
        (lake.folder / f"lake/day={day}").mkdir(parents=True)
        lake.add(f"day={day}/{day}.json", {"user": day})
    _, place = parse_place(f"orders={lake.path},format=json,value=user,timestamp=0", "--input")
    assert place is not None
    context = lake.spark.sparkContext
    context.setJobGroup("listing", "")
    try:
        found = find_files(FileSystem(lake.spark), lake.spark, "orders", [place], (), 1)
        jobs = context.statusTracker().getJobIdsForGroup("listing")
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    assert [each.name for each in found.new] == [f"{lake.path}/day={day}/{day}.json" for day in (1, 2)]
    assert list(jobs) == []
