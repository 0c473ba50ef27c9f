"""Queries over several inputs: joins with tables, and topics whose records are merged; what they write is what `try` gives."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from streamkit.plan import load
from streamkit.runtime.spark.job_options import JobOptions
from streamkit.runtime.spark.submission.request import inputs_of, outputs_of
from streamkit.runtime.spark.submission.submit_job import submit
from tests.spark.support import live_order, tried
from tests.spark.test_sql_stages import CASES, TEXTS, as_row, as_text, sequences

TOPOLOGY = """\
streamkit: 1
application: joined
topics:
  orders: {value: json, partitions: 2}
  returns: {value: json, partitions: 2}
  rates: {key: long, value: json}
  users: {value: json, partitions: 2}
  names: {value: string}
  rated: {value: json}
  known: {value: json}
  counted: {key: string, value: long}
  totals: {value: json}
  per-window: {key: {windowed: string, size: 10ms}, value: long}
pipelines:
  rates: {global_table: rates}
  names: {global_table: names}
  users: {table: users, store: users}
  rated:
    stream: orders
    steps:
      - JOIN1: {with: rates, on: ON, value: RATED}
      - filter: value.n is None or value.n < 3
      - left_join: {with: names, on: value.item, value: "{'n': left.n, 'item': right, 'rate': left.rate}"}
    to: rated
  known:
    stream: orders
    steps:
      - filter: key != 'b'
      - JOIN2: {with: users, value: KNOWN}
    to: known
  counted:
    stream: orders
    steps: [{JOIN2: {with: users, value: KNOWN}}, {group_by: value.item}, count, to_stream]
    to: counted
  returned:
    stream: returns
    steps: [{filter: value.n > 0}, {map_values: "{'n': value.n, 'item': key}"}]
  both:
    stream: orders
    steps:
      - map_values: "{'n': value.n, 'item': value.item}"
      - merge: returned
  totals:
    from: both
    steps:
      - group_by: value.item
      - aggregate: {initial: "{'n': 5, 'most': 0}", add: "{'n': aggregate.n + value.n, 'most': max(aggregate.most, value.n)}"}
      - to_stream
    to: totals
  per-window:
    from: both
    steps: [group_by_key, {window: {tumbling: 10ms, grace: 1m}}, count, to_stream]
    to: per-window
"""
OUTPUTS = {
    "rated": ",value=n bigint,item string,rate double",
    "known": ",value=n bigint,item string",
    "counted": "",
    "totals": ",value=n bigint,most bigint",
    "per-window": "",
}
TABLES = ("counted", "totals", "per-window")


def rows_of(draw: random.Random, topic: str) -> list[dict[str, Any]]:
    """Rows of a topic with keys, values as columns, and times; those of tables come before all others."""

    def row(at: int) -> dict[str, Any]:
        if topic == "rates":
            return {"k": draw.randrange(-1, 3), "rate": draw.choice((None, 0.5, -0.0, 3.0)), "at": at}
        if topic == "names":
            return {"k": draw.choice(TEXTS), "value": draw.choice((None, *TEXTS)), "at": at}
        if topic == "users":
            return {"k": draw.choice(TEXTS), "item": draw.choice((None, *TEXTS)), "at": at}
        fields = {"n": draw.randrange(-1, 4), "item": draw.choice((None, *TEXTS))}
        return {"k": draw.choice(TEXTS), **fields, "at": 1000 + draw.randrange(50)}

    return [row(draw.randrange(500)) for _ in range(60)]


def run(spark: Any, folder: Path, text: str, rows: dict[str, list[dict[str, Any]]]) -> tuple[list[str], list[dict]]:
    """Run the job over rows; return what it reports, and the records of `try`."""
    path = folder / "topology.yaml"
    path.write_text(text, encoding="utf-8")
    plan = load(path)
    records, places = [], []
    for topic, found in rows.items():
        value = "value" if topic == "names" else "n,item" if topic in ("orders", "returns") else list(found[0])[1]
        whole = value if topic == "names" else f"{value}," if "," not in value else value
        table = pa.Table.from_pylist(found)
        if topic in ("rates", "users"):
            # As a column of objects: a lake's deletion is a null one.
            values = [None if row[value] is None else {value: row[value]} for row in found]
            table = table.append_column("v", pa.array(values))
            whole = "v"
        pyarrow.parquet.write_table(table, folder / f"{topic}.parquet", row_group_size=13)
        places.append(f"{topic}={folder}/{topic}.parquet,key=k,value={whole},timestamp=at")
        for row, each in zip(found, table.to_pylist(), strict=True):
            names = whole.split(",")
            made = each[whole] if len(names) == 1 else {name: each[name] for name in names}
            records.append({"topic": topic, "key": row["k"], "value": made, "timestamp": row["at"]})
    targets = outputs_of(plan, [f"{topic}={folder}/{topic}-out.parquet{types}" for topic, types in OUTPUTS.items()])
    lines: list[str] = []
    submit(plan, JobOptions(inputs_of(plan, places), targets, overwrite=True), spark, lines.append)
    return lines, tried(path, live_order(plan, records))


def check(folder: Path, records: list[dict]) -> None:
    for topic in OUTPUTS:
        expected = [record for record in records if record["topic"] == topic]
        files = sorted((folder / f"{topic}-out.parquet").glob("part-*"))
        found = [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]
        if topic in TABLES:
            last = {repr(record["key"]): record for record in expected}
            assert sorted(found, key=as_text) == sorted(map(as_row, last.values()), key=as_text), topic
        else:
            assert sequences(found) == sequences([as_row(record, False) for record in expected]), topic


@pytest.mark.parametrize("seed", range(CASES))
def test_joins_and_merges_write_what_try_gives(spark: Any, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    first, second = (draw.choice(("join", "left_join")) for _ in range(2))
    on = draw.choice(("value.n", "'value.n + 1 if value.n > 0 else None'"))
    rate = draw.choice(("right.rate", "0.5")) if first == "join" else "None if right is None else right.rate"
    rated = f"\"{{'n': left.n, 'item': left.item, 'rate': {rate}}}\""
    known = "\"{'n': left.n, 'item': 'none' if right is None else right.item}\""
    text = TOPOLOGY.replace("JOIN1", first).replace("JOIN2", second).replace("ON,", f"{on},")
    text = text.replace("RATED", rated).replace("KNOWN", known)
    rows = {topic: rows_of(draw, topic) for topic in ("orders", "returns", "rates", "users", "names")}
    lines, records = run(spark, tmp_path, text, rows)
    assert not [line for line in lines if "not sql" in line or "after all" in line], lines
    check(tmp_path, records)


def test_a_table_that_changes_meanwhile_is_left_to_python(spark: Any, tmp_path: Path) -> None:
    draw = random.Random(0)
    text = TOPOLOGY.replace("JOIN1", "join").replace("JOIN2", "left_join").replace("ON,", "value.n,")
    text = text.replace("RATED", "\"{'n': left.n, 'item': left.item, 'rate': right.rate}\"")
    text = text.replace("KNOWN", "\"{'n': left.n, 'item': 'none' if right is None else right.item}\"")
    rows = {topic: rows_of(draw, topic) for topic in ("orders", "returns", "rates", "users", "names")}
    rows["users"][-1]["at"] = 1020
    lines, records = run(spark, tmp_path, text, rows)
    assert "all stages run in Python after all: users changes while records of orders are joined with it" in lines
    check(tmp_path, records)
