"""Values that are JSON text in a column: queries over their fields write what `try` gives, and Python gets all that no column holds."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamkit.errors import Position, SerdeError, UntranslatableError
from streamkit.expressions import parse
from streamkit.plan import load
from streamkit.record import Value
from streamkit.runtime.spark.job_options import JobOptions
from streamkit.runtime.spark.rows.files import FILES
from streamkit.runtime.spark.sql import sources
from streamkit.runtime.spark.sql.expressions import translate, translate_condition
from streamkit.runtime.spark.sql.sources import InputColumns, SqlSource, name_of, parse_values
from streamkit.runtime.spark.sql.terms import BOOLEAN, INTEGER, NUMBER, OBJECT, TEXT
from streamkit.runtime.spark.submission.request import inputs_of, outputs_of
from streamkit.runtime.spark.submission.submit_job import declared_counts, known_columns, prepare, submit
from streamkit.serdes import parse as parse_serde
from tests.spark.support import tried
from tests.spark.test_sql_stages import MINUTE, as_row, comparable

SERDE = parse_serde("json")
READ = {
    ("value",): OBJECT,
    ("value", "n"): INTEGER,
    ("there", "value", "n"): BOOLEAN,
    ("value", "price"): NUMBER,
    ("value", "s"): TEXT,
    ("value", "user"): OBJECT,
    ("value", "user", "b"): BOOLEAN,
    ("there", "value", "user", "b"): BOOLEAN,
}
CLASSES: dict[str, type] = {INTEGER: int, NUMBER: float, TEXT: str, OBJECT: dict, BOOLEAN: bool}
COLUMNS = {INTEGER: pa.int64(), NUMBER: pa.float64(), TEXT: pa.string(), OBJECT: pa.bool_(), BOOLEAN: pa.bool_()}
TOKENS = {
    "n": ["5", "-0", "null", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "5.0", "1e2", "01", "1" * 30],
    "price": ["5.0", "-0.0", "1e2", "null", "5e-324", "5", "1e999", "NaN", "-Infinity", ".5", "1.", '"1.5"'],
    "s": ['"a"', '"\\u0000é"', '"\\ud83d\\ude00"', '"\\ud800"', "5", "true", '{"a": 1}', "'a'", '"\t"', '"\\x"', '"null"'],
    "user": ['{"b": true}', '{"b": null}', "{}", "null", '{"c": 1, "b": false}', '{"b": 1}', "[]", '"b"'],
    "unread": ["[[1, {}]]", "1e999", "1" * 400, '"\\udc00"', "tru", "[1,]", "[" * 300 + "]" * 300, "[" * 600 + "]" * 600],
}  # fmt: skip
NAMES = {"n": ['"n"', '"\\u006e"', '"N"', "n"]}
AROUND = [
    ("", ""),
    (" \r\n\t", " \n"),
    ("", " x"),
    ("", "{}"),
    ("\ufeff", ""),
    ("[", "]"),
    ("", "/**/"),
    ("\x0b", ""),
    ("", "\0"),
]


@st.composite
def texts(draw: st.DrawFn) -> bytes | None:
    """A text, most often one with the fields of READ."""
    if draw(st.integers(0, 9)) == 0:
        return draw(
            st.sampled_from([None, b"null", b"5", b"", b"{", b'{"s": "\xff"}', b'{"a\xed\xa0\x80": 1}', b"{} {}"])
        )
    parts = []
    for name in draw(st.permutations([*TOKENS, "n"]))[: draw(st.integers(1, 6))]:
        # The first tokens are the usual ones.
        place = draw(st.integers(0, 30 if draw(st.booleans()) else 2)) % len(TOKENS[name])
        parts.append(f"{draw(st.sampled_from(NAMES.get(name, [json.dumps(name)])))}: {TOKENS[name][place]}")
    before, after = draw(st.sampled_from([AROUND[0]] * 12 + AROUND))
    return f"{before}{{{', '.join(parts)}}}{after}".encode()


def read_alone(text: bytes | None) -> list[Value]:
    """The columns of READ for one text, as Python reads it. Raises for one that is not exact in columns."""
    value = None if text is None else SERDE.decode(text)
    SERDE.encode(value)
    if text is not None and value is None:
        raise SerdeError("null")
    row = list[Value]()
    for path, kind in READ.items():
        owner, found = None, value
        for name in path[2:] if path[0] == "there" else path[1:]:
            if found is not None and type(found) is not dict:
                raise SerdeError("no object")
            owner, found = found, None if found is None else found.get(name)
        if path[0] == "there":
            row.append(owner is not None and path[-1] in owner)
            continue
        if type(found) not in (CLASSES[kind], type(None)):
            raise SerdeError("another kind")
        pa.array([found if kind != OBJECT else None], COLUMNS[kind])
        row.append(found is not None or None if kind == OBJECT else found)
    return row


@given(st.lists(texts(), min_size=1, max_size=4))
@example([b'{"n": 1}', None, b'{"user": {}}'])
@example([b'{"n": 1}', b"null"])
@example([b'{"n": 1}', b'{"n": 1, "n": "x"}'])
@example([b'{"n": "x", "n": 2}', b"{}"])
@example([b'{"s": "\\ud800", "unread": 1111111111111111111}'])
@example([b'{"n": 1, "unread": ' + b"[" * 501 + b"]" * 501 + b"}"])
@example([b'{"n": 1, "unread": [' + b"[]," * 600 + b"1]}"])
@settings(max_examples=300, deadline=None)
def test_columns_have_what_python_reads_or_none_are_made(values: list[bytes | None]) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.binary()), pa.array(range(len(values)))], ["text", "at"])
    try:
        expected = list(zip(*map(read_alone, values), strict=True))
    except (SerdeError, UnicodeError, OverflowError):
        expected = None
    found = parse_values("orders", READ, ["at", *map(name_of, READ)], [batch])
    if expected is None:
        with pytest.raises(RuntimeError, match="InexactError"):
            list(found)
        return
    (made,) = found
    columns = [tuple(column.to_pylist()) for column in made.columns[1:]]
    assert repr(columns) == repr(expected)  # -0.0 is not 0.0, and 1 not True
    assert made.columns[0] == batch.columns[1]


TOPOLOGY = """\
streamkit: 1
application: texts
topics:
  orders: {value: json, partitions: 2}
  users: {value: json}
  joined: {value: json}
  named: {value: json}
  counted: {key: string, value: long}
pipelines:
  users: {global_table: users}
  joined:
    stream: orders
    steps:
      - filter: value is not None
      - left_join: {with: users, on: key, value: "{'n': left.get('n', 7), 'who': 'x' if right is None else right.get('who', key)}"}
    to: joined
  named:
    stream: orders
    steps:
      - filter: value is not None and value.get('paid') and value.get('n', 7) > 3
      - filter_not: value.user is None or value.user.get('name', 'none') == 'b'
      - map_values: "{'n': value.get('n', 7), 'name': value.user.get('name', key), 'price': value.get('price'), 'other': value.get('user') is None}"
    to: named
  counted: {stream: orders, steps: [group_by_key, count, to_stream], to: counted}
"""
OUTPUTS = {
    "joined": ",value=n bigint,who string",
    "named": ",value=n bigint,name string,price double,other boolean",
    "counted": "",
}
USERS = {"k0": {"who": "a"}, "k1": {"who": None}, "k2": {}, "k3": {"id": 1, "who": "d"}}


def order(draw: random.Random) -> dict[str, Any] | None:
    """A value; most fields are missing in some."""
    user = draw.choice([None, {}, {"name": draw.choice(["a", "b", "\u2028", None])}, {"id": [1], "name": "\U0001f600"}])
    fields = {
        "n": draw.choice((None, 5, -(1 << 63), 4)),
        "paid": draw.choice((True, False)),
        "price": draw.choice((0.5, -0.0, None)),
    }
    kept = {
        name: value for name, value in fields.items() if draw.random() < 0.8 and not (name == "n" and value is None)
    }
    return draw.choice([None, *[{**kept, "user": user, "tags": [1, {"n": 1e300}]}] * 9])


def run(
    spark: Any, folder: Path, values: list[dict[str, Any] | None], texts: list[str | None], binary: bool
) -> list[str]:
    """Run the topology over texts, and compare its outputs with those of `try` for the values of these texts."""
    path, table = folder / "topology.yaml", folder / "orders.parquet"
    path.write_text(TOPOLOGY, encoding="utf-8")
    keys, times = (
        [f"k{number % 7}" for number in range(len(values))],
        [MINUTE + number for number in range(len(values))],
    )
    payload = pa.array([None if text is None else text.encode() for text in texts], pa.binary())
    columns = {"user": keys, "at": times, "payload": payload if binary else payload.cast(pa.string())}
    pyarrow.parquet.write_table(pa.table(columns), table, row_group_size=37)
    plan, lines = load(path), list[str]()
    users = {"k": list(USERS), "at": [0] * len(USERS), "v": list(map(json.dumps, USERS.values()))}
    pyarrow.parquet.write_table(pa.table(users), folder / "users.parquet")
    places = [f"users={folder}/users.parquet,key=k,value=v", f"orders={table},key=user,value=payload"]
    inputs = inputs_of(plan, [f"{place},timestamp=at" for place in places])
    outputs = outputs_of(plan, [f"{topic}={folder}/{topic}.parquet{types}" for topic, types in OUTPUTS.items()])
    submit(plan, JobOptions(inputs, outputs), spark, lines.append)
    rows = [("users", key, value, 0) for key, value in USERS.items()]
    rows += [("orders", *row) for row in zip(keys, values, times, strict=True)]
    records = tried(path, [dict(zip(("topic", "key", "value", "timestamp"), row, strict=True)) for row in rows])
    for topic in OUTPUTS:
        is_table = topic == "counted"
        found = pyarrow.parquet.read_table(folder / f"{topic}.parquet").to_pylist()
        own = [record for record in records if record["topic"] == topic]
        last = {record["key"]: record for record in own}.values() if is_table else own
        expected = [as_row(record, is_table) for record in last]
        assert expected
        assert sorted(map(comparable, found)) == sorted(map(comparable, expected)), topic
    return lines


@pytest.mark.parametrize("binary", [False, True])
def test_queries_read_the_fields_that_steps_name(spark: Any, tmp_path: Path, binary: bool) -> None:
    draw = random.Random(int(binary))
    values = [order(draw) for _ in range(200)]
    texts = [None if value is None else json.dumps(value, ensure_ascii=draw.random() < 0.5) for value in values]
    lines = run(spark, tmp_path, values, texts, binary)
    assert not [line for line in lines if "not sql" in line or "after all" in line], lines


def test_python_takes_over_at_a_field_of_another_type(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_MOST_SAMPLED", 5)
    values: list[dict[str, Any] | None] = [{"n": 4, "paid": True, "user": {"name": "a"}, "price": 0.5}] * 9
    values.append({"n": 9, "paid": "yes", "user": {"name": "a"}, "price": 0.5})
    lines = run(spark, tmp_path, values, list(map(json.dumps, values)), False)
    reason = "value.paid of orders is a boolean in the first records, and text later"
    assert f"all stages run in Python after all: {reason}" in lines


def source_of(first: list[bytes]) -> SqlSource:
    from pyspark.sql.types import LongType, StringType, StructType

    parts = StructType().add("value", StringType()).add("timestamp", LongType())
    columns = InputColumns(parts, False, FILES, first_values=lambda: first)
    return SqlSource("orders", columns, (parse_serde("string"), SERDE))


WHOLE = "value of orders is JSON text, of which only fields that steps name become columns"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("value.other > 1", "no column other, or one of a type"),
        ("value.tags == 1", "no column tags, or one of a type"),
        ("value.mixed > 1", "no column mixed, or one of a type"),
        ("value.a > 1", "no column a, or one of a type"),
        ("value", WHOLE),
        ("merge(value, {'b': 1})", WHOLE),
        (
            "value.user or value.b",
            "value.user of orders is JSON text, of which only fields that steps name become columns",
        ),
        ("value.get('b', 'x')", "the default of a whole number is text, or an object"),
        ("value.get('user', {'a': 1}).a", "the default of an object is an object, or an object"),
    ],
)
def test_what_is_not_exact_for_json_text_is_refused_by_name(text: str, reason: str) -> None:
    source = source_of([b'{"a": 1, "A": 2, "b": 1, "tags": [], "mixed": 1, "user": {"a": 1}}', b'{"mixed": 1.5}'])
    with pytest.raises(UntranslatableError, match=re.escape(reason)):
        translate_condition(parse(text, ("value",), Position("file.yaml", 7, 1)), {"value": source.value})


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ([b"[1]"], "the first values of orders are not all objects of JSON text"),
        ([], "the first values of orders are not all objects of JSON text"),
        ([b"{}", b"null"], "a value of orders is the text null"),
        ([b"{'a': 1}"], "a value of orders is no JSON: "),
    ],
)
def test_first_values_that_are_no_objects_are_refused_by_name(first: list[bytes], reason: str) -> None:
    with pytest.raises(UntranslatableError, match=re.escape(reason)):
        source_of(first)


def test_a_default_must_be_there_even_if_it_is_not_used() -> None:
    names = {"value": source_of([b'{"a": 1, "b": 1}']).value}
    guards = {
        text: [guard.reason for guard in translate(parse(text, ("value",)), names).guards if "missing" in guard.reason]
        for text in ("value.a", "value.get('a')", "value.get('a', value.b)", "value.get('a', value.a)")
    }
    reasons = {name: f"value.{name} is missing in a record of orders" for name in "ab"}
    assert list(guards.values()) == [[reasons["a"]], [], [reasons["b"]], [reasons["a"]]]


def test_a_dry_run_does_not_read_json_text(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(TOPOLOGY, encoding="utf-8")
    table = pa.table({"key": ["a"], "value": ["{}"], "timestamp": [1]})
    for topic in ("orders", "users"):
        pyarrow.parquet.write_table(table, tmp_path / f"{topic}.parquet")
    plan = load(path)
    options = JobOptions(
        inputs_of(plan, [f"{topic}={tmp_path}/{topic}.parquet" for topic in ("orders", "users")]),
        outputs_of(plan, [f"{topic}={tmp_path}/{topic}-out.parquet" for topic in OUTPUTS]),
    )
    counts = declared_counts(plan, options.inputs)
    prepared = prepare(plan, options, counts, columns=known_columns(options.inputs), creates=False)
    assert {choice.engine for choice in prepared.job.engines.values()} == {"sql or python"}
