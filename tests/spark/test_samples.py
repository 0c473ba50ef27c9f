"""Samples of a lake as test data: the records that `submit` reads, for `try` and `generate`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import TransportError
from streamkit.plan import load
from streamkit.runtime.spark.rows.files import open_files
from streamkit.runtime.spark.spark_session import translated
from streamkit.runtime.spark.submission.lake_sample import first_rows, sample_in
from streamkit.runtime.spark.submission.request import inputs_of
from tests.cli.support import streamkit
from tests.spark.support import write_lines

TOPOLOGY = """\
streamkit: 1
application: samples
topics:
  orders: {key: string, value: json, partitions: 3}
  users: {topic: users-v2, key: string, value: long}
  out: {key: string, value: json}
  names: {key: string, value: long}
pipelines: {copy: {stream: orders, to: out}, names: {stream: users, to: names}}
"""


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    """The file of two copies."""
    path = tmp_path / "topology.yaml"
    path.write_text(TOPOLOGY)
    return path


def test_the_first_records_of_each_topic_in_order(spark: Any, topology: Path, tmp_path: Path) -> None:
    for name, start in (("b", 3), ("a", 0)):
        rows = [(f"k{at}", {"n": at}, 1000 * (9 - at)) for at in range(start, start + 3)]
        frame = spark.createDataFrame(rows, "k string, v map<string,int>, t bigint").coalesce(1)
        frame.write.parquet(str(tmp_path / f"lake/part={name}"))
    users = [
        {"topic": "users", "key": f"u{at}", "value": at, "timestamp": 500 * at + 1, "partition": 0} for at in range(40)
    ]
    write_lines(tmp_path / "users.jsonl", users)
    plan = load(topology)
    texts = [
        f"orders={tmp_path}/lake,key=k,value=v,timestamp=t,headers=map_entries(map(k, 'x'))",
        f"users={tmp_path}/users.jsonl",
    ]
    found = sample_in(spark, plan, inputs_of(plan, texts[:1]), 4)
    assert [(each["topic"], each["key"], each["value"], each["timestamp"]) for each in found] == [
        ("orders", f"k{at}", {"n": at}, 1000 * (9 - at)) for at in range(4)
    ]
    both = sample_in(spark, plan, inputs_of(plan, texts), 20)
    assert [each["key"] for each in both if each["topic"] == "orders"] == [f"k{at}" for at in range(6)]
    assert [each["value"] for each in both if each["topic"] != "orders"] == list(range(20))
    # The record with the smallest time of those that are next comes first, as a task takes them.
    assert [each["key"] for each in both][:20] == [*(f"u{at}" for at in range(18)), "k0", "k1"]


def test_a_sample_by_an_order(spark: Any, topology: Path, tmp_path: Path) -> None:
    spark.createDataFrame([(at * 7 % 10,) for at in range(10)], "n int").write.parquet(str(tmp_path / "lake"))
    plan = load(topology)
    found = sample_in(spark, plan, inputs_of(plan, [f"orders={tmp_path}/lake,value=n,timestamp=n,order=n"]), 3)
    assert [each["value"] for each in found] == [0, 1, 2]


def test_the_order_of_files_and_offsets_is_that_of_a_job(spark: Any, topology: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    for number, name in enumerate(("a b.csv", "a!b.csv", "a+b.csv", "aéb.csv", "azb.csv")):
        (lake / name).write_text(f"n,offset\n{number},\n{number + 10},{number}\n")
    plan = load(topology)
    columns = "value=cast(n as int),timestamp=0"
    for text in (
        f"orders={lake},{columns},offset=try_cast(null as bigint)",
        f"orders={lake},{columns},offset=try_cast(offset as bigint)",
    ):
        inputs = inputs_of(plan, [text])
        whole = [each["value"] for each in sample_in(spark, plan, inputs, 10)]
        assert sorted(whole) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
        assert [each["value"] for each in sample_in(spark, plan, inputs, 6)] == whole[:6]


def test_no_file_is_read_behind_the_sample(spark: Any, topology: Path, tmp_path: Path) -> None:
    lake, plan = tmp_path / "lake", load(topology)
    lake.mkdir()
    # With two columns in a line, Spark fails at the last file.
    for name, rows in (("a+b é.csv", "1\n2\n"), ("b.csv", ""), ("c.csv", "3\n4\n5\n"), ("d.csv", "6,7\n")):
        (lake / name).write_text("n\n" + rows)
    inputs = inputs_of(plan, [f"orders={lake},value=cast(n as int),timestamp=0,where=n <> '2'"])
    assert [each["value"] for each in sample_in(spark, plan, inputs, 4)] == [1, 3, 4, 5]
    with pytest.raises(TransportError, match=r"d\.csv"), translated():
        sample_in(spark, plan, inputs, 5)


def test_no_lines_are_read_behind_the_sample(spark: Any, topology: Path, tmp_path: Path) -> None:
    plan, path = load(topology), tmp_path / "orders.jsonl"
    lines = [json.dumps({"topic": "orders", "value": at, "partition": at % 3}) for at in range(40_000)]
    path.write_text("\n".join([*lines, "damaged"]))
    inputs = inputs_of(plan, [f"orders={path}"])
    assert [each["value"] for each in sample_in(spark, plan, inputs, 3)] == [0, 1, 2]
    spark.conf.set("spark.sql.files.maxPartitionBytes", "1000")
    try:
        assert [each["value"] for each in sample_in(spark, plan, inputs, 90)] == list(range(90))
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


def test_offsets_of_lines_order_a_sample(spark: Any, topology: Path, tmp_path: Path) -> None:
    plan = load(topology)
    rows = [{"topic": "orders", "value": at, "offset": at} for at in (11, 2, 7)]
    found = sample_in(spark, plan, {"orders": (write_lines(tmp_path / "orders.jsonl", rows),)}, 2)
    assert [each["value"] for each in found] == [2, 7]
    (tmp_path / "orders.csv").write_text("n,offset\n" + "".join(f"{at},{at}\n" for at in (11, 2, 7)))
    inputs = inputs_of(plan, [f"orders={tmp_path}/orders.csv,value=cast(n as int),timestamp=0"])
    assert [each["value"] for each in sample_in(spark, plan, inputs, 2)] == [2, 7]


@pytest.mark.parametrize(
    ("kind", "of_n"),
    [
        ("bigint", "n"),
        ("date", "date_add(date'2026-01-01', cast(n as int))"),
        ("timestamp", "timestamp_micros(n - 1)"),
        ("timestamp_ntz", "timestamp_ntz'2026-03-29 02:30:00' + make_dt_interval(0, 0, n)"),
    ],
)
def test_the_order_of_a_sample_reaches_the_scan(
    spark: Any, topology: Path, tmp_path: Path, kind: str, of_n: str
) -> None:
    # Rows 2 and 3 have the same place in the order, which their contents decide.
    rows = spark.range(40).selectExpr("if(id = 2, 3, id) n", "id").selectExpr(f"{of_n} at", "id", "'long' wide")
    rows.repartition(3).write.parquet(str(tmp_path / "lake"))
    assert dict(rows.dtypes)["at"] == kind
    spark.read.parquet(str(tmp_path / "lake")).createOrReplaceTempView("ordered")
    plan = load(topology)
    inputs = inputs_of(plan, ["orders=ordered,format=table,value=id,timestamp=0,order=at"])
    found = [each["value"] for each in sample_in(spark, plan, inputs, 3)]
    assert found[:2] == [0, 1]
    assert found == [each["value"] for each in sample_in(spark, plan, inputs, 40)][:3]
    opened = open_files(spark, inputs["orders"][0])
    text = first_rows(opened, 3).frame._jdf.queryExecution().executedPlan().toString()
    assert re.search(r"PushedFilters: \[.*LessThanOrEqual\(at,", text), text
    assert opened.frame.count() == 40


def test_topics_are_merged_by_their_own_timestamps(spark: Any, topology: Path, tmp_path: Path) -> None:
    topology.write_text(TOPOLOGY.replace("value: json, partitions: 3", "value: json, timestamp: 'value[\"at\"]'"))
    write_lines(tmp_path / "orders.jsonl", [{"topic": "orders", "key": "o", "value": {"at": at}} for at in (5, 25)])
    users = [{"topic": "users", "key": "u", "value": at, "timestamp": at} for at in (10, 20, 30)]
    write_lines(tmp_path / "users.jsonl", users)
    plan = load(topology)
    found = sample_in(
        spark, plan, inputs_of(plan, [f"{name}={tmp_path}/{name}.jsonl" for name in ("orders", "users")]), 9
    )
    assert [each["key"] for each in found] == ["o", "u", "u", "o", "u"]


def test_try_and_generate(streamkit_here: Any, topology: Path, tmp_path: Path) -> None:
    place = tmp_path / "orders.csv"
    place.write_text("user,amount\nann,3\nbob,4\ncy,5\n")
    line = [
        "--input",
        f"orders={place},key=user,value=amount,timestamp=0",
        "--limit",
        2,
        "--conf",
        "spark.ui.enabled=false",
    ]
    tried = streamkit_here("try", topology, *line)
    assert (tried.code, tried.err) == (0, "")
    assert [(each["topic"], each["key"], each["value"]) for each in map(json.loads, tried.out.splitlines())] == [
        ("out", "ann", 3),
        ("out", "bob", 4),
    ]
    (tmp_path / "last.jsonl").write_text('{"topic": "orders", "key": "last", "value": 1, "timestamp": 0}\n')
    mixed = streamkit_here("try", topology, *line, "--input", tmp_path / "last.jsonl")
    assert mixed.out.startswith(tried.out)
    assert "last" in mixed.out.removeprefix(tried.out)
    made = streamkit_here("generate", topology, *line, "--stdout")
    assert (made.code, made.err) == (0, "")
    (tmp_path / "orders.jsonl").write_text(made.out)
    again = streamkit("try", topology, "--input", tmp_path / "orders.jsonl")
    assert again.out == tried.out


def test_a_sample_has_fields_that_no_step_uses(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "topology.yaml").write_text(
        TOPOLOGY.partition("pipelines")[0]
        + "pipelines: {counts: {stream: orders, steps: [filter: value.a > 0, group_by_key, count, to_stream], to: names}}\n"
    )
    value = {"a": 1, "b": "x"}
    frame = spark.createDataFrame([("k", value["a"], value["b"], 5)], "k string, a long, b string, t long")
    frame.write.parquet(f"{tmp_path}/lake")
    plan = load(tmp_path / "topology.yaml")
    for options in ("", ",order=t"):
        inputs = inputs_of(plan, [f"orders={tmp_path}/lake,key=k,value=a,b,timestamp=t{options}"])
        assert [each["value"] for each in sample_in(spark, plan, inputs, 4)] == [value]


def test_a_sample_in_a_test(topology: Path, tmp_path: Path) -> None:
    for name, rows in (("orders", "ann,3\nbob,4\ncy,5\n"), ("damaged", "ann,3,5\n")):
        (tmp_path / f"{name}.csv").write_text(f"user,amount\n{rows}")
        # Samples do not need the master of the job.
        (tmp_path / f"{name}-job.yaml").write_text(
            "topology: topology.yaml\nmaster: spark://127.0.0.1:1\nspark: {spark.ui.enabled: false}\n"
            f"inputs: {{orders: {{path: '${{FOLDER}}/{name}.csv', key: user, value: amount, timestamp: 0}}}}\n"
        )
    (tmp_path / "topology.test.yaml").write_text(
        "environment: {FOLDER: .}\n"
        "tests:\n"
        "  of a sample:\n"
        "    given: [{sample: {job: orders-job.yaml, limit: 2}}]\n"
        "    expect: {out: [{key: ann, value: 3}, {key: bob, value: 4}]}\n"
        "  of a damaged one:\n"
        "    given: [{sample: {job: damaged-job.yaml}}]\n"
    )
    done = streamkit("test", topology)
    assert done.code == 1
    assert "  ok    of a sample\n" in done.out
    assert "topology.test.yaml:7:22: the sample can't be read: " in done.out


def test_wrong_options(topology: Path, tmp_path: Path) -> None:
    records = write_lines(tmp_path / "in.jsonl", []).path
    for line, words in (
        (["try", topology, "--input", records, "--limit", 3], "--limit needs an input of the form --input TOPIC=PLACE"),
        (["generate", topology, "--limit", 3], "--limit needs an input"),
        (["try", topology, "--input", "orders=/nowhere"], "--input orders=/nowhere: no such file or directory"),
        (["try", topology, "--input", "order=/nowhere"], "has no topic 'order'; did you mean 'orders'?"),
        (["try", topology, "--input", f"out={records}"], "the topology does not read it"),
        (["generate", topology, "--input", "orders"], "--input orders: expected TOPIC=PLACE"),
        (["generate", topology, "--input", "orders=/nowhere", "--seed", 1], "--seed and --input exclude each other"),
    ):
        done = streamkit(*line)
        assert (done.code, done.out) == (2, "")
        assert words in done.err
        assert len(done.err.splitlines()) == 1
