"""Several inputs for one topic: the union of their records, in one order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import StreamkitError, UsageError
from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.runtime.spark.job_options import JSON_LINES, JobOptions, Place
from streamkit.runtime.spark.submission.incremental import submit_next
from streamkit.runtime.spark.submission.request import inputs_of
from streamkit.runtime.spark.submission.submit_job import submit
from tests.spark.incremental_runs import fails
from tests.spark.support import read_lines, write_lines

COPY = """\
streamkit: 1
application: several
topics:
  orders: {key: string, value: json, partitions: 1}
  out: {key: string, value: json}
pipelines: {copy: {stream: orders, to: out}}
"""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """The plan of a copy."""
    path = tmp_path / "topology.yaml"
    path.write_text(COPY)
    return load(path)


def copied(spark: Any, plan: Plan, folder: Path, texts: Sequence[str]) -> list[Any]:
    """The values of a copy of inputs, in their order."""
    out = folder / "out"
    options = JobOptions(inputs(plan, texts), {"out": Place(str(out), JSON_LINES)}, overwrite=True)
    submit(plan, options, spark)
    return [record["value"] for record in read_lines(out)]


def inputs(plan: Plan, texts: Sequence[str]) -> dict[str, tuple[Place, ...]]:
    """Inputs as `--input orders=` has them."""
    return inputs_of(plan, [f"orders={text}" for text in texts])


def lines(path: Path, *values: object, **others: object) -> str:
    """Write records as JSON Lines; return the path."""
    return write_lines(path, [{"key": "k", "value": value, "timestamp": 1, **others} for value in values]).path


def table(spark: Any, path: Path, rows: list[tuple], ddl: str) -> str:
    """Write a table as Parquet; return the path."""
    spark.createDataFrame(rows, ddl).coalesce(1).write.parquet(str(path))
    return str(path)


def test_files_are_read_input_by_input(spark: Any, plan: Plan, tmp_path: Path) -> None:
    first = lines(tmp_path / "z.jsonl", 1, 2)
    rows = table(spark, tmp_path / "lake", [("k", 3, 9), ("k", 4, 8)], "k string, n int, t bigint")
    last = lines(tmp_path / "a.jsonl", 5)
    mapped = f"{rows},key=k,value=n,timestamp=t"
    assert copied(spark, plan, tmp_path, [first, mapped, last]) == [1, 2, 3, 4, 5]
    assert copied(spark, plan, tmp_path, [last, mapped, first]) == [5, 3, 4, 1, 2]


def test_files_of_each_format_keep_their_place(spark: Any, plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,n\nx,1\ny,2\n")
    (tmp_path / "b.json").write_text('{"n": 3}\n')
    texts = [
        f"{tmp_path}/a.csv,key=k,value=cast(n as int),timestamp=0",
        lines(tmp_path / "c.jsonl", 4),
        f"{tmp_path}/b.json,value=n,timestamp=0",
    ]
    assert copied(spark, plan, tmp_path, texts) == [1, 2, 4, 3]
    assert copied(spark, plan, tmp_path, texts[::-1]) == [3, 4, 1, 2]


def test_a_file_of_two_inputs_is_refused(spark: Any, plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    path = lines(tmp_path / "lake/a.jsonl", 1)
    for other in (f"{tmp_path}/lake/./a.jsonl", f"{tmp_path}/lake", f"{tmp_path}/lake/*.jsonl"):
        with pytest.raises(UsageError, match=r"lake/a.jsonl is in both .* and .*, and would be read twice"):
            copied(spark, plan, tmp_path, [path, other])


def test_a_run_with_something_new_in_one_of_two_topics(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(
        COPY.replace("  out:", "  other: {key: string, value: json, partitions: 1}\n  out:").replace(
            "orders, to: out}", "[orders, other], to: out}"
        )
    )
    plan = load(path)
    for name in ("orders", "other"):
        (tmp_path / name).mkdir()
        lines(tmp_path / name / "1.jsonl", name)

    def run() -> None:
        texts = [f"{name}={tmp_path / name}" for name in ("orders", "other")]
        places = {"out": Place(str(tmp_path / "runs"), JSON_LINES)}
        submit_next(plan, JobOptions(inputs_of(plan, texts), places, checkpoint=str(tmp_path / "state")), spark)

    run()
    lines(tmp_path / "other/2.jsonl", "new")
    run()
    assert [record["value"] for record in read_lines(tmp_path / "runs/run=000002")] == ["new"]


def test_rows_with_an_order_are_merged_by_it(spark: Any, plan: Plan, tmp_path: Path) -> None:
    even = table(spark, tmp_path / "even", [(4,), (0,), (2,)], "n int")
    odd = table(spark, tmp_path / "odd", [(3,), (1,)], "n int")
    settings = ["value=n,order=n,timestamp=1"] * 2
    found = copied(spark, plan, tmp_path, [f"{path},{text}" for path, text in zip((even, odd), settings, strict=True)])
    assert found == [0, 1, 2, 3, 4]


def test_times_of_all_types_are_one_order(spark: Any, plan: Plan, tmp_path: Path) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    times = table(spark, tmp_path / "times", [("noon", noon)], "n string, t timestamp")
    days = table(spark, tmp_path / "days", [("2", date(2026, 1, 2)), ("1", date(2026, 1, 1))], "n string, t date")
    spark.createDataFrame([("evening", int(noon.timestamp() * 1000) + 7_200_000)], "n string, t bigint").write.format(
        "parquet"
    ).saveAsTable("several_inputs", path=str(tmp_path / "table"))
    try:
        texts = [
            f"{times},value=to_json(struct(n)),timestamp=t,order=t",
            f"{days},value=to_json(struct(n)),timestamp=t,order=t",
        ]
        found = copied(
            spark, plan, tmp_path, [*texts, "several_inputs,format=table,value=to_json(struct(n)),timestamp=t"]
        )
    finally:
        spark.sql("drop table several_inputs")
    assert [value["n"] for value in found] == ["1", "noon", "evening", "2"]


def test_rows_of_one_order_but_two_kinds_are_refused(spark: Any, plan: Plan, tmp_path: Path) -> None:
    rows = table(spark, tmp_path / "lake", [(1, date(2026, 1, 1))], "n int, day date")
    first = f"{rows},value=n,timestamp=day,order=day"
    with pytest.raises(
        UsageError,
        match=rf"--input orders: the order between the rows of {rows} \(times\) and .* \(whole numbers",
    ):
        copied(spark, plan, tmp_path, [first, f"{rows},value=n,timestamp=day,order=n"])
    with pytest.raises(
        StreamkitError, match=r"value=m: no such column.*\n.*value=day2: no such column; did you mean 'day'"
    ):
        copied(spark, plan, tmp_path, [f"{rows},value=m,timestamp=day", f"{rows},value=day2,timestamp=day"])
    with pytest.raises(UsageError, match=r"\(times\) and .*a.jsonl \(their place in files\) is undefined; give"):
        copied(spark, plan, tmp_path, [first, lines(tmp_path / "a.jsonl", 1)])


def test_rows_with_offsets_are_merged_and_come_first(spark: Any, plan: Plan, tmp_path: Path) -> None:
    ddl = "n int, offset bigint"
    rows = table(spark, tmp_path / "lake", [(3, 30), (1, 10)], ddl)
    with_offset = lines(tmp_path / "a.jsonl", 2, offset=20)
    without = lines(tmp_path / "b.jsonl", 4)
    mapped = f"{rows},value=n,timestamp=0"
    assert copied(spark, plan, tmp_path, [without, mapped, with_offset]) == [1, 2, 3, 4]
    again = table(spark, tmp_path / "again", [(5, 10)], ddl)
    with pytest.raises(StreamkitError, match="orders-0: two rows have the offset 10, so their order is undefined"):
        copied(spark, plan, tmp_path, [mapped, f"{again},value=n,timestamp=0"])


def test_one_table_as_two_inputs(spark: Any, plan: Plan, tmp_path: Path) -> None:
    rows = table(spark, tmp_path / "lake", [("a", "b", 1), ("c", "d", 2)], "buyer string, seller string, n int")
    texts = [f"{rows},key={who},value=to_json(struct({who})),timestamp=0,order=n" for who in ("buyer", "seller")]
    found = [copied(spark, plan, tmp_path, texts) for _ in range(2)]
    assert found[0] == found[1]
    assert sorted(value for each in found[0][:2] for value in each.values()) == ["a", "b"]
    assert sorted(value for each in found[0][2:] for value in each.values()) == ["c", "d"]


def test_wrong_options(plan: Plan) -> None:
    with pytest.raises(UsageError, match="--input orders: /a is given twice"):
        inputs(plan, ["/a", "/b", "/a"])
    for texts in (["orders", "orders=/a"], ["orders=/a", "orders"]):
        with pytest.raises(UsageError, match="--input orders: a topic is read either from the log or from places"):
            inputs_of(plan, texts)
    with pytest.raises(UsageError, match="--input orders: the log is given twice"):
        inputs_of(plan, ["orders", "orders"])


def test_runs_read_what_is_new_in_each_input(spark: Any, plan: Plan, tmp_path: Path) -> None:
    def run(*texts: str) -> None:
        places = {"out": Place(str(tmp_path / "runs"), JSON_LINES)}
        options = JobOptions(inputs(plan, texts), places, emit="updates", checkpoint=str(tmp_path / "state"))
        submit_next(plan, options, spark)

    def written(number: int) -> list[Any]:
        return [record["value"] for record in read_lines(tmp_path / f"runs/run={number:06}")]

    for name in ("z", "a", "m"):
        (tmp_path / name).mkdir()
    lines(tmp_path / "z/1.jsonl", 1)
    lines(tmp_path / "a/1.jsonl", 2)
    z, a, m = (str(tmp_path / name) for name in ("z", "a", "m"))
    run(z, a)
    lines(tmp_path / "a/2.jsonl", 5)
    lines(tmp_path / "z/2.jsonl", 3, 4)
    run(z, a)
    assert (written(1), written(2)) == ([1, 2], [3, 4, 5])
    lines(tmp_path / "m/1.jsonl", 6)
    run(z, a, m)
    assert written(3) == [6]
    fails(lambda: run(z, m), f"--input orders={z}, {m}", "a/1.jsonl, which run 1 has read, is missing")
    # Which of its files is named is a matter of the file system.
    fails(lambda: run(z, a, m, f"{a}/*"), f"{a}/*: {a}/", f".jsonl is also in {a}; each file must belong to one input")
    assert not (tmp_path / "runs/run=000004").exists()


def test_inputs_without_anything_new_have_an_order_too(spark: Any, plan: Plan, tmp_path: Path) -> None:
    def run(*texts: str) -> None:
        options = JobOptions(inputs(plan, texts), {"out": Place(str(tmp_path / "runs"), JSON_LINES)})
        submit_next(plan, replace(options, checkpoint=str(tmp_path / "state")), spark)

    rows = table(spark, tmp_path / "lake", [(1, date(2026, 1, 1))], "n int, day date")
    timed = f"{rows},value=n,timestamp=day,order=day"
    run(timed)
    (tmp_path / "more").mkdir()
    lines(tmp_path / "more/1.jsonl", 2)
    words = f"the order between the rows of {rows} (times) and {tmp_path}/more (their place in files) is undefined"
    fails(
        lambda: run(timed, str(tmp_path / "more")),
        f"--input orders: {words}; give both inputs an order=COLUMN of the same kind",
    )
