"""Queries over tables: the last change of each row, and steps on changes; what they write is what `try` gives."""

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
from tests.spark.support import tried
from tests.spark.test_sql_stages import CASES, TEXTS, as_row, as_text, sequences

TOPOLOGY = """\
streamkit: 1
application: tables
topics:
  users: {value: json, partitions: 2}
  others: {value: json, partitions: 2}
  rows: {value: json}
  known: {value: json}
  moves: {value: json}
  moved: {key: string, value: long}
  latest: {value: json}
  counts: {key: string, value: long}
  sums: {value: json}
  reduced: {key: integer, value: long}
pipelines:
  users:
    table: users
    steps: [SHARED]
  rows:
    from: users
    steps: [STEPS]
    to: rows
  known: {from: users, steps: [to_stream, filter: value is None or value.n != 2], to: known}
  moves:
    from: users
    steps:
      - to_stream: {key: "'none' if value is None else value.item or 'no item'"}
      - map_values: "{'n': -1 if value is None else value.n, 'item': key}"
    to: moves
  moved: {from: moves, steps: [group_by_key, count, to_stream], to: moved}
  latest:
    stream: others
    steps: [filter: value is None or value.n != 1, TABLE, TABLE_STEPS to_stream]
    to: latest
  counts: {from: users, steps: [group_by: value.item, count, to_stream], to: counts}
  sums:
    from: users
    steps:
      - group_by: {key: "'none' if value.item is None else value.item.strip()", value: "GROUPED"}
      - aggregate:
          initial: "{'rows': INITIAL, 'sum': -3}"
          add: "{'rows': aggregate.rows + 1, 'sum': value.m + aggregate.sum}"
          subtract: "{'rows': aggregate.rows - 1, 'sum': aggregate.sum - value.m}"
      - to_stream
    to: sums
  reduced:
    from: users
    steps:
      - group_by: {key: value.n, value: value.n, key_serde: integer, value_serde: long}
      - reduce: {add: aggregate + value, subtract: aggregate - value}
      - to_stream
    to: reduced
"""
INPUTS = ("users", "others")
OUTPUTS = {
    **dict.fromkeys(("rows", "known", "moves", "latest"), ",value=n bigint,item string"),
    **dict.fromkeys(("moved", "counts", "reduced"), ""),
    "sums": ",value=rows bigint,sum bigint",
}
FIELDS = {"n": None, "item": None}
STEPS = (
    "filter: value.n is not None and value.n > 0",
    "filter: {if: \"value.item != 'a'\", store: NAME}",
    "filter_not: \"value.item in ['', None]\"",
    "map_values: \"{'n': (value.n or 0) + 1, 'item': value.item}\"",
    "map_values: {value: \"{'n': value.n, 'item': key + (value.item or '')}\", store: NAME, value_serde: json}",
    'map_values: "value if value.n != 3 else None"',
)


def drawn(draw: random.Random, most: int, name: str) -> str:
    """Some steps of a table, each with a comma after it."""
    steps = draw.sample(STEPS[:5], draw.randrange(most + 1))
    return "".join(f"{{{each.replace('NAME', f'{name}-{number}')}}}, " for number, each in enumerate(steps))


def topology(draw: random.Random) -> str:
    """A file with random steps on the changes of a table."""
    shared = drawn(draw, 2, "shared").removesuffix(", ")
    after = draw.choice(("", ", {filter: value is None or value.n != 0}", ", {map_values: value}"))
    text = TOPOLOGY.replace("SHARED", shared).replace("[STEPS]", f"[{drawn(draw, 3, 'rows')}to_stream{after}]")
    text = text.replace("GROUPED", "{'m': value.n or -2}").replace("INITIAL", str(draw.randrange(3)))
    return text.replace("TABLE_STEPS ", drawn(draw, 2, "latest")).replace(
        "TABLE", draw.choice(("to_table", "to_table: latest"))
    )


def user(draw: random.Random) -> dict[str, Any]:
    """A row of a few keys; some delete, and several have the same time, or an earlier one than those before."""
    value = {"n": draw.choice((None, 0, 1, 2, 3)), "item": draw.choice((None, *TEXTS))}
    return {"k": draw.choice(TEXTS), "v": value if draw.random() < 0.7 else None, "at": 100 + draw.randrange(20)}


def row(record: dict[str, Any], is_table: bool) -> dict[str, Any]:
    """A record as columns; a deletion has none of its fields."""
    if record["value"] is not None:
        return as_row(record, is_table)
    found = as_row(record | {"value": FIELDS}, is_table)
    return found | ({"deleted": True} if is_table else {})


def run(spark: Any, folder: Path, text: str, rows: list[dict[str, Any]], config: str = "") -> list[str]:
    """Run the job over rows and compare its outputs with those of `try`; return what it reports."""
    path = folder / "topology.yaml"
    path.write_text(text + config, encoding="utf-8")
    plan = load(path)
    value = pa.struct([("n", pa.int64()), ("item", pa.string())])
    schema = pa.schema([("k", pa.string()), ("v", value), ("at", pa.int64())])
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows, schema), folder / "users.parquet", row_group_size=13)
    inputs = inputs_of(plan, [f"{topic}={folder}/users.parquet,key=k,value=v,timestamp=at" for topic in INPUTS])
    outputs = outputs_of(plan, [f"{topic}={folder}/{topic}-out.parquet{each}" for topic, each in OUTPUTS.items()])
    lines: list[str] = []
    submit(plan, JobOptions(inputs, outputs, overwrite=True), spark, lines.append)
    records = [{"key": each["k"], "value": each["v"], "timestamp": each["at"]} for each in rows]
    written = tried(path, [{"topic": topic} | record for topic in INPUTS for record in records])
    for topic in OUTPUTS:
        files = sorted((folder / f"{topic}-out.parquet").glob("part-*"))
        found = [each for file in files for each in pyarrow.parquet.read_table(file).to_pylist()]
        expected = [record for record in written if record["topic"] == topic]
        if topic == "moves":
            assert sequences(found) == sequences([row(record, False) for record in expected]), text
        else:
            last = {repr(record["key"]): row(record, True) for record in expected}
            assert sorted(found, key=as_text) == sorted(last.values(), key=as_text), (topic, text)
    return lines


@pytest.mark.parametrize("seed", range(CASES))
def test_changes_of_tables_are_what_try_gives(spark: Any, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    lines = run(spark, tmp_path, topology(draw), [user(draw) for _ in range(90)])
    assert not [line for line in lines if "not sql" in line or "after all" in line], lines
