"""Only the columns that steps use are read: which these are, and records equal to those of all columns."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from streamkit.errors import StreamkitError
from streamkit.expressions import parse
from streamkit.plan import load
from streamkit.runtime.spark.fields_read import fields_read, used
from streamkit.runtime.spark.job_options import JobOptions
from streamkit.runtime.spark.rows import topic_inputs
from streamkit.runtime.spark.submission.request import inputs_of, outputs_of
from streamkit.runtime.spark.submission.submit_job import submit
from tests.spark.support import read_lines

ALL = None


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("1", ""),
        ("key", ""),
        ("value.a", "a"),
        ("value['a b'] + value.get('c')", "a b,c"),
        ("value.get('a', value.b)", "a,b"),
        ("value.a.b[0].value", "a"),
        ("[value.a for item in value.items_]", "a,items_"),
        ("value is None or value.a", "a"),
        ("f'{value.a}'", "a"),
        ("len(value.a)", "a"),
        ("value", ALL),
        ("[value]", ALL),
        ("value == None", ALL),
        ("None == value", ALL),
        ("value is None is True", ALL),
        ("value or 1", ALL),
        ("value[key]", ALL),
        ("value.get(key)", ALL),
        ("value.keys()", ALL),
        ("'a' in value", ALL),
        ("len(value)", ALL),
        ("f'{value}'", ALL),
        ("[value for value in value.a]", ALL),
        ("{'a': value.a, 'all': value}", ALL),
    ],
)
def test_the_fields_that_an_expression_uses(text: str, fields: str | None) -> None:
    expected = None if fields is None else frozenset(filter(None, fields.split(",")))
    assert used(parse(text, ("key", "value")), "value") == expected


HEAD = """\
streamkit: 1
application: fields
topics:
  orders: {value: json, partitions: 2}
  items: {value: json, partitions: 2}
  out: {value: json}
  other: {value: json}
"""
GLOBAL = "  items: {global_table: items}\n"
COUNT = "[{filter: value.a > 1}, group_by_key, count, {map_values: {value: \"{'n': value}\", value_serde: json}}, to_stream]"


def pipeline(steps: str, to: str = "out", source: str = "stream: orders") -> str:
    return f"  {to}:\n    {source}\n    steps: {steps}\n    to: {to}\n"


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (pipeline(COUNT), "a"),
        (pipeline("[{filter: value.a > 1}, {map_values: \"{'c': value.b}\"}, {filter: value.c > 1}]"), "a,b"),
        (pipeline("[{filter: value.a > 1}]"), ALL),
        (pipeline("[{map: {key: value.a}}]"), ALL),
        (pipeline("[{map: {key: value.a, value: '[value.b]'}}]"), "a,b"),
        (pipeline("[{peek: value.p}, {map_values: value.b}]"), "b,p"),
        (pipeline("[print, {map_values: value.b}]"), ALL),
        (pipeline("[{map_values: value.b}, print]"), "b"),
        (
            pipeline(f"[{{group_by: value.g}}, {COUNT[1:-1].replace('group_by_key, ', '')}]").replace(
                "{filter: value.a > 1}, ", ""
            ),
            "g",
        ),
        (pipeline("[{select_key: value.k}, {filter: value.f}, group_by_key, {reduce: aggregate}, to_stream]"), ALL),
        (pipeline("[group_by_key, {aggregate: {initial: 0, add: aggregate + value.x}}, to_stream]"), "x"),
        (pipeline("[group_by_key, {aggregate: {initial: '[]', add: 'aggregate + [value]'}}, to_stream]"), ALL),
        (
            pipeline(
                "[{group_by: value.g}, {window: {tumbling: 1m}}, {aggregate: {initial: 0, add: aggregate + value.x}}, to_stream, {map: {key: key.key}}]"
            ),
            "g,x",
        ),
        (pipeline("[to_table, to_stream]"), ALL),
        (pipeline("[{map_values: value.b}]") + pipeline("[{map_values: value.c}]", "other"), "b,c"),
        (pipeline("[{map_values: value.b}]") + pipeline("[]", "other"), ALL),
        (pipeline("[{join: {with: items, on: value.item, value: 'left.b + right.c'}}]") + GLOBAL, "b,item"),
        (pipeline("[{join: {with: items, on: value.item, value: left}}]") + GLOBAL, ALL),
        (pipeline("[{map_values: value.b}]") + "config: {max.request.size: 1000}\n", ALL),
        (pipeline("[{map_values: value.b}]") + "config: {errors.dead.letter.queue.topic.name: dead}\n", ALL),
        (pipeline("[{map_values: f(value.b)}]") + "functions: {f: {params: [value], expr: value}}\n", "b"),
    ],
)
def test_the_fields_that_a_plan_uses(tmp_path: Path, text: str, fields: str | None) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(f"{HEAD}pipelines:\n{text}")
    assert fields_read(load(path), "orders") == (None if fields is None else frozenset(fields.split(",")))


TABLE = pa.schema(
    [
        ("user", pa.string()),
        ("at", pa.int64()),
        ("text", pa.string()),
        ("tiny", pa.int8()),
        ("large", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("flag", pa.bool_()),
        ("date", pa.date32()),
        ("time", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("cents", pa.decimal128(9, 2)),
        ("whole", pa.decimal128(18, 0)),
        ("list", pa.list_(pa.int64())),
        ("unread", pa.float64()),
    ]
)
FIELDS = TABLE.names[2:-2]
TEXTS = ("", "a", 'q"\\/\b\f\n\r\t', "a\0b\x1f\x7f", "é\u2028", "\uffff", "\U0001f600", "1.0", "null")
DOUBLES = (0.0, -0.0, 1.5, 0.1, 1e300, -5e-324, 2.2250738585072014e-308, 1e16, 123456789012345680.0, 2e-3, 1e22)


def rows() -> list[dict[str, Any]]:
    """Rows with the ends of each type, and one with nulls."""
    from datetime import UTC, date, datetime
    from decimal import Decimal

    found = []
    for number in range(22):
        found.append(
            {
                "user": TEXTS[number % len(TEXTS)],
                "at": number * 7 % 5,
                "text": TEXTS[number % len(TEXTS)],
                "tiny": (-128, 127)[number % 2],
                "large": ((1 << 63) - 1, -(1 << 63), 0)[number % 3],
                "single": (0.1, -3.4028234e38, 1e-45)[number % 3],
                "double": DOUBLES[number % len(DOUBLES)],
                "flag": number % 2 == 0,
                "date": (date(1582, 10, 15), date(9999, 12, 31))[number % 2],
                "time": datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
                "local": datetime(2026, 3, 29, 2, 30),
                "cents": (Decimal("0.10"), Decimal("-9999999.99"))[number % 2],
                "whole": Decimal(999999999999999999),
                "list": [number],
                "unread": math.nan,
            }
        )
    return [*found, dict.fromkeys(TABLE.names) | {"user": "n", "at": None}]


def run(spark: Any, folder: Path, steps: str, engine: str = "python", **options: Any) -> list[dict[str, Any]]:
    """The records that a job writes."""
    (folder / "topology.yaml").write_text(f"{HEAD}pipelines:\n{pipeline(steps)}")
    plan = load(folder / "topology.yaml")
    inputs = inputs_of(plan, [f"orders={folder}/orders,format=parquet,key=user,value=*,timestamp=at"])
    outputs = outputs_of(plan, [f"out={folder}/out"])
    submit(plan, JobOptions(inputs, outputs, overwrite=True, engine=engine, **options), spark)
    return read_lines(folder / "out")


def write(folder: Path, found: list[dict[str, Any]], schema: pa.Schema = TABLE) -> None:
    (folder / "orders").mkdir()
    for number in (0, 1):
        part = pa.Table.from_pylist(found[number::2], schema)
        pyarrow.parquet.write_table(part, folder / "orders" / f"part {number}.parquet", row_group_size=3)


TAKEN = f'{{map_values: "{{{", ".join(f"{name!r}: value.{name}" for name in FIELDS)}}}"}}'


LARGE = "spark.sql.execution.arrow.useLargeVarTypes"
LONGEST = "spark.sql.maxMetadataStringLength"


def watched(monkeypatch: pytest.MonkeyPatch, encodes: bool = True) -> list[Any]:
    """The frames of records that Spark encodes, None if Python does. encodes: whether Spark may."""
    frames: list[Any] = []
    encode = topic_inputs._encoded

    def watch(*given: Any) -> Any:
        frames.append(encode(*given) if encodes else None)
        return frames[-1]

    monkeypatch.setattr(topic_inputs, "_encoded", watch)
    return frames


def test_records_that_spark_encodes_equal_those_of_python(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, rows())
    with monkeypatch.context() as patch:
        frames = watched(patch)
        found = run(spark, tmp_path, f"[{TAKEN}]")
        (frame,) = frames
    spark.conf.set(LONGEST, 10_000)
    text = frame._jdf.queryExecution().executedPlan().toString()
    spark.conf.unset(LONGEST)
    (columns,) = {line.partition("ReadSchema: ")[2] for line in text.splitlines() if "ReadSchema: " in line}
    assert [name for name in TABLE.names if f"{name}:" not in columns] == ["list", "unread"]
    with monkeypatch.context() as patch:
        watched(patch, encodes=False)
        # As text, for 0.0 equals -0.0.
        assert str(run(spark, tmp_path, f"[{TAKEN}]")) == str(found)
    assert [list(record["value"]) for record in found] == [FIELDS] * len(rows())


def test_large_columns_of_spark_have_the_same_partitions(spark: Any, tmp_path: Path) -> None:
    """Otherwise records of one key would be counted in several tasks."""
    write(tmp_path, rows())
    counted = """[group_by_key, count, to_stream, {map_values: {value: "{'n': value}", value_serde: json}}]"""
    spark.conf.set(LARGE, "true")
    try:
        found = run(spark, tmp_path, counted)
    finally:
        spark.conf.unset(LARGE)
    assert {each["key"]: each["value"]["n"] for each in found} == Counter(row["user"] for row in rows())
    assert len(found) == len({row["user"] for row in rows()})


def test_a_key_that_is_an_object_is_encoded_by_python(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, rows())
    frames = watched(monkeypatch)
    (tmp_path / "topology.yaml").write_text(
        f"{HEAD.replace('{value', '{key: json, value')}pipelines:\n{pipeline(SEEN)}"
    )
    plan = load(tmp_path / "topology.yaml")
    place = f"orders={tmp_path}/orders,format=parquet,key=struct(user),value=*,timestamp=at"
    submit(
        plan, JobOptions(inputs_of(plan, [place]), outputs_of(plan, [f"out={tmp_path}/out"]), engine="python"), spark
    )
    assert frames == [None]


def test_columns_of_a_list_are_encoded_by_python(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, rows())
    frames = watched(monkeypatch)
    found = run(spark, tmp_path, "[{map_values: value.list}]")
    assert frames == [None]
    assert sorted(str(record["value"]) for record in found) == sorted(str(row["list"]) for row in rows())


def test_a_value_without_used_fields_is_null_or_present(spark: Any, tmp_path: Path) -> None:
    write(tmp_path, rows())
    (folder := tmp_path / "objects").mkdir()
    value = pa.struct([("a", pa.int64())])
    given = [{"user": "a", "at": 1, "order": {"a": 1}}, {"user": "a", "at": 2, "order": None}]
    write(folder, given, pa.schema([("user", pa.string()), ("at", pa.int64()), ("order", value)]))
    (folder / "topology.yaml").write_text(f"{HEAD}pipelines:\n{pipeline(SEEN)}")
    plan = load(folder / "topology.yaml")
    inputs = inputs_of(plan, [f"orders={folder}/orders,format=parquet,key=user,value=order,timestamp=at"])
    submit(plan, JobOptions(inputs, outputs_of(plan, [f"out={folder}/out"]), engine="python"), spark)
    assert [record["value"] for record in read_lines(folder / "out")] == [True, False]
    assert {record["value"] for record in run(spark, tmp_path, f"[{SEEN[1:-1]}]")} == {True}


SEEN = "[{map_values: value is not None}]"


@pytest.mark.parametrize(
    ("name", "poison", "reason"),
    [
        ("double", math.inf, "value.double: JSON has no NaN and no infinite number"),
        ("single", math.nan, "value.single: JSON has no NaN and no infinite number"),
        ("text", b"\xff", "value.text is not UTF-8 in a row"),
        ("text", b"\xed\xa0\x80", "value.text is not UTF-8 in a row"),
        ("user", b"a\xc3", "key is not UTF-8 in a row"),
    ],
)
def test_what_python_refuses_spark_refuses(
    spark: Any, tmp_path: Path, name: str, poison: float | bytes, reason: str
) -> None:
    found = rows()[:4]
    found[2][name] = poison
    schema = TABLE
    if isinstance(poison, bytes):
        table = pa.Table.from_pylist(
            [row | {name: row[name] if isinstance(row[name], bytes) else row[name].encode()} for row in found],
            schema.set(schema.get_field_index(name), pa.field(name, pa.binary())),
        )
        column = pa.Array.from_buffers(pa.string(), 4, table[name].combine_chunks().buffers())
        table = table.set_column(schema.get_field_index(name), name, column)
        (tmp_path / "orders").mkdir()
        pyarrow.parquet.write_table(table, tmp_path / "orders" / "part.parquet")
    else:
        write(tmp_path, found)
    with pytest.raises(StreamkitError, match=re.escape(reason)):
        run(spark, tmp_path, f"[{{map_values: value.{'text' if name == 'user' else name}}}]")


def test_a_type_without_a_form_is_refused_in_a_column_that_no_step_uses(spark: Any, tmp_path: Path) -> None:
    schema = TABLE.append(pa.field("bytes", pa.binary()))
    write(tmp_path, [row | {"bytes": b"a"} for row in rows()], schema)
    with pytest.raises(StreamkitError, match=r"value\.bytes is of type binary, which a record can't represent"):
        run(spark, tmp_path, "[{map_values: value.text}]")
