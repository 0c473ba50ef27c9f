"""Stages as queries of Spark SQL: the engine of each stage, and outputs that equal those of `try`, row by row."""

from __future__ import annotations

import json
import math
import os
import random
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from streamkit.errors import InexactError, StreamkitError
from streamkit.operators.core.parsed_values import CallRef, TimeWindows
from streamkit.plan import load
from streamkit.runtime.spark.job_options import UPDATES, JobOptions
from streamkit.runtime.spark.rows.files import open_files
from streamkit.runtime.spark.spark_session import changed_settings, translated
from streamkit.runtime.spark.sql.sources import SqlSource
from streamkit.runtime.spark.sql.window_times import is_seen_in_time, refuse_late
from streamkit.runtime.spark.submission.request import inputs_of, outputs_of
from streamkit.runtime.spark.submission.submit_job import columns_of, declared_counts, known_columns, prepare, submit
from streamkit.runtime.spark.workers.worker import call_function
from streamkit.serdes import parse as parse_serde
from streamkit.serdes.formats.json_text import to_text
from tests.spark.support import tried

CASES = int(os.environ.get("STREAMKIT_SQL_CASES", "1"))
"""The random topologies of a run."""
PIPELINES = 4
MINUTE = 60_000
HEAD = """\
streamkit: 1
application: queries
topics:
  orders: {value: json, partitions: 2}
"""
COLUMNS = pa.schema(
    [
        ("user", pa.string()),
        ("item", pa.string()),
        ("amount", pa.int64()),
        ("small", pa.int32()),
        ("paid", pa.bool_()),
        ("price", pa.float64()),
        ("at", pa.int64()),
    ]
)
TEXTS = ("", "a", "A", "b", "é", "\uffff", "\U0001f600", "it's", "a\0b")
READ = "key=user,value=*,timestamp=at"
READ_TEXT = "key=user,value=payload,timestamp=at"


def order(draw: random.Random) -> dict[str, Any]:
    """A row; the items and amounts of a few are null, and several have the same time."""
    return {
        "user": draw.choice(TEXTS),
        "item": draw.choice((None, *TEXTS)),
        "amount": draw.choice((None, 0, 1, -1, 7, 1 << 40, -(1 << 40), (1 << 62) - 1, -(1 << 61))),
        "small": draw.choice((0, 3, -(1 << 31), (1 << 31) - 1)),
        "paid": draw.choice((None, True, False)),
        "price": draw.choice((None, 0.0, -0.0, 1.5, 1e300)),
        "at": MINUTE + draw.randrange(50),
    }


def write_table(path: Path, rows: list[dict[str, Any]], time: pa.DataType | None = None) -> None:
    table = pa.Table.from_pylist(rows, COLUMNS)
    at = COLUMNS.names.index("at")
    table = table if time is None else table.set_column(at, "at", table["at"].cast(pa.timestamp("ms")).cast(time))
    pyarrow.parquet.write_table(table, path, row_group_size=37)


def write_text(path: Path, rows: list[dict[str, Any]]) -> None:
    """A table whose values are JSON text."""
    texts = [json.dumps(row, ensure_ascii=number % 2 == 0) for number, row in enumerate(rows)]
    columns = {"user": [row["user"] for row in rows], "at": [row["at"] for row in rows], "payload": texts}
    pyarrow.parquet.write_table(pa.table(columns), path, row_group_size=37)


def as_records(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records that a job makes of rows."""
    return [{"topic": "orders", "key": row["user"], "value": row, "timestamp": row["at"]} for row in rows]


def pipeline(draw: random.Random, windows: float = 0.5) -> list[str]:
    """The steps of a pipeline that ends in a table, with a probability of windows."""
    steps = draw.sample(
        [
            "filter: value.amount is not None and value.amount > -5",
            "filter_not: value.item in ['a', None] and not value.paid",
            "filter: value.paid or value.small >= 3",
            "filter: value.item != 'b' and value.price is not None and value.price < 2",
            "filter: value.amount is None or value.amount < value.small * 2",
            "filter_not: value.get('item', '') in ['', 'A'] or (value.amount or value.paid)",
        ],
        draw.randrange(3),
    )
    if draw.random() < 0.5:
        # A row that fails at a step must be gone before.
        steps += ["filter: value.amount is not None", "filter: value.amount > -5"]
    group = draw.choice(
        [
            "group_by_key",
            "group_by: value.item",
            "group_by: \"f'{key}/{value.small}'\"",
            "group_by: {key: value.small, key_serde: long}",
            "group_by: {key: abs(value.small) % 3, key_serde: integer}",
        ]
    )
    fold = draw.choice(
        [
            ["count"],
            [
                "count",
                "map_values: {value: \"{'n': value, 'many': value > 2, 'text': f'{value}'}\", value_serde: json}",
            ],
            ["aggregate: {initial: 5, add: aggregate + value.small, value_serde: long}"],
            ["aggregate: {initial: 5, add: 'max(aggregate, value.small)', value_serde: long}"],
            [
                'aggregate: {initial: -7, add: "aggregate + (value.amount if value.amount is not None and -2 < value.amount < 9 '
                'else value.small)", value_serde: long}'
            ],
            [
                "aggregate: {initial: \"{'n': 0, 'low': 4, 'high': ''}\", add: \"{'n': aggregate.n + 1, 'low': min(aggregate.low, "
                "value.small), 'high': max(value.item if value.item is not None else '', aggregate.high)}\"}"
            ],
            [
                "aggregate: {initial: \"{'n': 0, 'low': 4}\", add: \"{'n': 1 + aggregate['n'], 'low': min(aggregate.low, value.small)}\"}"
            ],
        ]
    )
    if draw.random() < 0.3:
        steps.append("map_values: value.small")
        group = "group_by_key"
        fold = [f"reduce: {draw.choice(('aggregate + value', 'min(aggregate, value)', 'max(value, aggregate)'))}"]
    if draw.random() < windows:
        # All times are within 50 ms.
        kind = draw.choice(("tumbling: 7ms", "hopping: 10ms, advance: 4ms", "hopping: 9ms, advance: 3ms"))
        steps.append(draw.choice(("filter: value is not None", "map_values: value")))
        group = f"{group}\n      - window: {{{kind}, grace: 1m}}"
        if len(fold) > 1:
            shown = "{'n': value, 'many': key.start > 60020, 'text': f'{key.key}-{key[\\\"end\\\"]}'}"
            fold = ["count", f'map_values: {{value: "{shown}", value_serde: json}}']
    return [*steps, group, *fold, "to_stream"]


def topology(pipelines: Mapping[str, list[str]]) -> str:
    """A file with pipelines over the same input, each to a topic of its own."""
    topics, parts = [], ["pipelines:"]
    for name, steps in pipelines.items():
        if steps[-1].startswith("branch:"):
            topics += [f"  {name}_{target}: {{value: json}}" for target in BRANCHES]
            parts += [f"  {name}:", "    stream: orders", "    steps:", *(f"      - {step}" for step in steps)]
            continue
        grouped = next((each for each in steps if each.startswith("group_by")), "")
        key = next((found[1] for found in [re.search(r"key_serde: (\w+)}", grouped)] if found), "string")
        size = next(
            (found[1] for each in steps if (found := re.search(r"(?:tumbling|hopping|sliding): (\w+)", each))), None
        )
        key = key if size is None else f"{{windowed: {key}, size: {size}}}"
        key = f"{{session_windowed: {key}}}" if any("{session: " in each for each in steps) else key
        last = steps[-2] if len(steps) > 1 else ""
        is_long = last.startswith(("count", "suppress")) or "value_serde: long" in last
        value = "long" if is_long else "json"
        topics.append(f"  {name}: {{key: {key}, value: {value}}}")
        parts += [
            f"  {name}:",
            "    stream: orders",
            "    steps:",
            *(f"      - {step}" for step in steps),
            f"    to: {name}",
        ]
    return "\n".join([HEAD + "\n".join(topics), *parts, ""])


class Job:
    """A topology over a table, and its outputs as columns."""

    def __init__(self, folder: Path, pipelines: Mapping[str, list[str]], rows: list[dict[str, Any]], config: str = ""):
        self.path = folder / "topology.yaml"
        self.path.write_text(topology(pipelines) + config, encoding="utf-8")
        self.plan = load(self.path)
        self.rows = rows
        write_table(folder / "orders.parquet", rows)
        self.folder = folder
        self.topics = [
            topic
            for name, steps in pipelines.items()
            for topic in ([f"{name}_{each}" for each in BRANCHES] if steps[-1].startswith("branch:") else [name])
        ]
        self.lines: list[str] = []

    def options(self, read: str = READ, **options: Any) -> JobOptions:
        """The options of the job, whose outputs are Parquet; values without a type of their own are whole numbers."""
        places = [f"{topic}={self.folder}/{topic}.parquet{self._types(topic)}" for topic in self.topics]
        inputs = inputs_of(self.plan, [f"orders={self.folder}/orders.parquet,{read}"])
        return JobOptions(inputs, outputs_of(self.plan, places), **options)

    def _types(self, topic: str) -> str:
        pipeline = topic.partition("_")[0]
        steps = self.path.read_text().split(f"  {pipeline}:\n")[1].split("  out")[0]
        if "+ ','" in steps:
            return ",value=string"
        if "'price'" in steps:
            return STREAM_TYPES
        if "flat_map_values" in steps and "count" not in steps:
            return ",value=string"
        if "'high'" in steps:
            return ",value=n bigint,low bigint,high string"
        return ",value=n bigint,low bigint" if "'low'" in steps else ",value=bigint" if "reduce" in steps else ""

    def engines(self, **options: Any) -> list[str]:
        """The engine of each stage, as --dry-run tells it."""
        chosen = self.options(**options)
        counts = declared_counts(self.plan, chosen.inputs)
        prepared = prepare(self.plan, chosen, counts, columns=known_columns(chosen.inputs), creates=False)
        return [line.strip() for line in prepared.describe() if line.startswith(("  engine", "  not sql"))]

    def run(self, spark: Any, **options: Any) -> None:
        """Run the job."""
        submit(self.plan, self.options(overwrite=True, **options), spark, self.lines.append)

    def written(self, topic: str) -> list[dict[str, Any]]:
        """The rows of an output."""
        return sorted(pyarrow.parquet.read_table(self.folder / f"{topic}.parquet").to_pylist(), key=as_text)

    def expected(self, topic: str) -> list[dict[str, Any]]:
        """The rows of an output by `try`: the last record of each key."""
        records = tried(self.path, as_records(self.rows))
        last = {repr(record["key"]): record for record in records if record["topic"] == topic}
        return sorted(map(as_row, last.values()), key=as_text)


def as_row(record: dict[str, Any], is_table: bool = True) -> dict[str, Any]:
    """A record as columns."""
    key, value = record["key"], record["value"]
    window = {}
    if isinstance(key, dict):
        window = {f"window_{end}": instant(key[end]) for end in ("start", "end")}
        key = key["key"]
    values = {f"value_{name}": each for name, each in value.items()} if isinstance(value, dict) else {"value": value}
    deleted = {"deleted": value is None} if is_table else {}
    return {"key": key, **window, **values, **deleted, "timestamp": instant(record["timestamp"]), "headers": None}


def as_text(row: dict[str, Any]) -> list[str]:
    """A row for an order in which the times of pandas and of Python are the same."""
    return [str(cell) for cell in row.values()]


def instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


@pytest.mark.parametrize("seed", range(CASES))
def test_queries_write_what_try_gives(spark: Any, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    pipelines = {f"out{number}": pipeline(draw, 0.5 if number else 1) for number in range(PIPELINES)}
    job = Job(tmp_path, pipelines, [order(draw) for _ in range(200)])
    if seed % 2:
        write_text(tmp_path / "orders.parquet", job.rows)
    job.run(spark, read=READ_TEXT if seed % 2 else READ)
    compiled = sum(", not sql" not in line for line in job.lines if line.startswith("stage "))
    stages = sum(line.startswith("stage ") for line in job.lines)
    shown = f"seed {seed}: {compiled} of {stages} stages compiled"
    print(shown)
    assert compiled == stages, shown
    for topic in job.topics:
        assert job.written(topic) == job.expected(topic), pipelines[topic]
    assert not [line for line in job.lines if "after all" in line]


ORDER = "{'n': value.small, 'item': value.item, 'paid': value.paid, 'price': value.price}"
STREAM_TYPES = ",value=n bigint,item string,paid boolean,price double"
BRANCHES = ("large", "small", "rest")


def stateless(draw: random.Random) -> list[str]:
    """The steps of a pipeline whose records are a stream; some fail at the poison."""
    steps = draw.sample(
        [
            "filter: value.amount is None or value.amount > -5",
            "filter_not: value.item in ['a', None] and not value.paid",
            "select_key: value.item",
            "select_key: \"f'{key}{value.small}'\"",
            "map: {key: \"'none' if value.item is None else value.item\"}",
            "map: {key: key, value: \"{'small': value.small * 2, 'item': key, 'paid': not value.paid, 'price': value.price, 'amount': value.amount}\"}",
            "set_timestamp: timestamp + value.small if value.small > 0 else timestamp",
            "assert: value.small is not None and key != 'poison'",
            "peek: value.item",
            "map_values: \"merge(value, {'item': value.item or 'none', 'small': abs(value.small) % 7, 'price': (value.price or 2.0) * 1.2})\"",
        ],
        draw.randrange(4),
    )
    if draw.random() < 0.4:
        when = [
            f'{target}: {{if: {test}, steps: [{{map_values: "{ORDER}"}}], to: OUT_{target}}}'
            for target, test in (
                ("large", "value.small > 2"),
                ("small", "value.item == 'a' or value.amount < 4"),
                ("rest", "value.paid or value.price is None"),
            )
        ]
        return [*steps, f"branch: {{when: {{{', '.join(when)}}}}}"]
    return [*steps, f'map_values: "{ORDER}"']


def comparable(row: dict[str, Any]) -> str:
    """A row as text: 0.0 equals -0.0."""
    return repr(row | {"timestamp": str(row["timestamp"])})


def sequences(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The rows of each key in their order, as text: 0.0 equals -0.0."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(repr(row["key"]), []).append(comparable(row))
    return found


@pytest.mark.parametrize("is_one", [False, True], ids=["a scan for each file", "one scan"])
@pytest.mark.parametrize("seed", range(CASES))
def test_streams_are_what_try_gives(
    spark: Any, tmp_path: Path, seed: int, is_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streamkit.runtime.spark.rows import files as files_read

    draw, scans = random.Random(seed), list[Any]()
    scan = files_read._in_one_scan
    monkeypatch.setattr(files_read, "_in_one_scan", lambda *arguments: scans.append(scan(*arguments)) or scans[-1])
    monkeypatch.setattr(files_read, "_SMALLEST_PIECE", 64 if is_one else 1 << 30)
    pipelines = {
        f"out{number}": [step.replace("OUT", f"out{number}") for step in stateless(draw)] for number in range(PIPELINES)
    }
    rows = [order(draw) | {"amount": draw.choice((0, 4, -7, 1 << 40))} for _ in range(200)]
    job = Job(tmp_path, pipelines, rows)
    (tmp_path / "orders.parquet").unlink()
    (tmp_path / "orders.parquet").mkdir()
    for number, (first, last) in enumerate(((0, 10), (10, 150), (150, 200))):
        write_table(tmp_path / "orders.parquet" / f"part {number}.parquet", rows[first:last])
    # Spark then reads a file in several parts, and larger parts come first.
    with changed_settings(
        spark, {f"spark.sql.files.{name}": "3000" for name in ("maxPartitionBytes", "openCostInBytes")}
    ):
        job.run(spark)
    assert not [line for line in job.lines if "not sql" in line or "after all" in line], job.lines
    tried_records = tried(job.path, as_records(job.rows))
    for topic in job.topics:
        files = sorted((tmp_path / f"{topic}.parquet").glob("part-*"))
        found = [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]
        expected = [as_row(record, False) for record in tried_records if record["topic"] == topic]
        assert len(files) > (2 if is_one else 3)
        assert list(map(comparable, found)) == list(map(comparable, expected)), pipelines
    assert scans
    assert any(scan is not None for scan in scans) == is_one


FUNCTIONS = """\
streamkit: 1
application: functions
topics:
  orders: {value: json, partitions: 2}
  roots: {value: long}
  names: {value: string}
  shares: {value: double}
functions:
  root: {call: "rules:root"}
  named: {call: "rules:named"}
  share: {call: "rules:share"}
pipelines:
  roots: {stream: orders, steps: [{filter: value.small >= 0}, {map_values: root(value.small * 2)}], to: roots}
  names: {stream: orders, steps: [{map_values: "named(value.item, 'x')"}], to: names}
  shares: {stream: orders, steps: [{map_values: share(value.price)}, {select_key: "'all'"}], to: shares}
"""
RULES = """\
import math


def root(amount):
    return math.isqrt(amount)


def named(item, more):
    return None if item is None else item.upper() + more


def share(price):
    return RESULT if price is None else price / 2
"""


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ("0.25", None),
        ("math.inf", "share(value.price): a result is NaN or infinite"),
    ],
)
def test_functions_of_values_are_called_for_a_query(
    spark: Any, tmp_path: Path, result: str, reason: str | None
) -> None:
    draw = random.Random(0)
    rows = [order(draw) for _ in range(60)]
    write_table(tmp_path / "orders.parquet", rows)
    path = tmp_path / "topology.yaml"
    path.write_text(FUNCTIONS)
    (tmp_path / "rules.py").write_text(RULES.replace("RESULT", result))
    plan, lines, topics = load(path), list[str](), ("roots", "names", "shares")
    places = [f"{topic}={tmp_path}/{topic},format=parquet" for topic in topics]
    inputs = inputs_of(plan, [f"orders={tmp_path}/orders.parquet,{READ}"])
    job = JobOptions(inputs, outputs_of(plan, places))
    submit(plan, job, spark, lines.append)
    others = [line for line in lines if "not sql" in line or "after all" in line]
    assert others == ([] if reason is None else [f"all stages run in Python after all: {path}:15: {reason}"]), lines
    tried_records = tried(path, as_records(rows))
    for topic in topics:
        files = sorted((tmp_path / topic).glob("part-*"))
        found = [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]
        expected = [as_row(record, False) for record in tried_records if record["topic"] == topic]
        expected = [row | {"value": math.inf} if row["value"] == "Infinity" else row for row in expected]
        # Tasks in Python write the records of a partition each.
        arranged = list if reason is None else sorted
        assert arranged(map(comparable, found)) == arranged(map(comparable, expected)), topic


@pytest.mark.parametrize(
    ("attribute", "kind", "reason"),
    [
        ("truediv", "bigint", "of type float"),
        ("floordiv", "double", "of type int"),
        ("lt", "bigint", "of type bool"),
        ("pow", "bigint", "a result is no bigint"),
        ("getitem", "bigint", "it raises TypeError"),
    ],
)
def test_results_that_no_column_holds_are_refused(attribute: str, kind: str, reason: str) -> None:
    ref = CallRef("operator", attribute, "")
    columns = (pa.array([7, 9]), pa.array([2, 40]))
    with pytest.raises(RuntimeError, match=re.escape(reason)):
        list(call_function(ref, kind, 9, "f(value)", [columns]))


def test_texts_that_no_column_holds_are_refused() -> None:
    upper = CallRef("builtins", "str", "")
    column = pa.array([10**8, None])
    assert list(call_function(upper, "string", 9, "str(value)", [column])) == [pa.array(["100000000", "None"])]
    with pytest.raises(RuntimeError, match="a result has over 8 bytes"):
        list(call_function(upper, "string", 8, "str(value)", [column]))


JSON_STEPS = {
    "whole": ["filter: value.small >= 0"],
    "parts": ["map_values: \"{'n': value.small, 'item': value.item, 'all': [key, value.paid, [value.price, None]]}\""],
    "lists": ['map_values: "[value.item, key]"', "filter: value[0] is None or value[0] != value[1]"],
}


def as_json(value: Any) -> str | None:
    return None if value is None else to_text(value).decode()


@pytest.mark.parametrize("seed", range(CASES))
def test_values_without_types_are_the_same_json_text(spark: Any, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    texts, prices = (
        ("", "é\U0001f600", '"\\', "a\n\t\r", "\x7f{"),
        (None, 0.0, -0.0, 1.5, -20.0, 1234567.25, 0.001, 99.99),
    )
    rows = [
        order(draw) | {"user": draw.choice(texts), "item": draw.choice((None, *texts)), "price": draw.choice(prices)}
        for _ in range(60)
    ]
    job = Job(tmp_path, JSON_STEPS, rows)
    job.run(spark)
    assert not [line for line in job.lines if "not sql" in line or "after all" in line], job.lines
    records = tried(job.path, as_records(job.rows))
    for topic in job.topics:
        files = sorted((tmp_path / f"{topic}.parquet").glob("part-*"))
        found = [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]
        values = [(record["key"], record["value"]) for record in records if record["topic"] == topic]
        if topic == "parts":
            cells = [(row["key"], row["value_n"], row["value_item"], row["value_all"]) for row in found]
            expected = [(key, as_json(v["n"]), as_json(v["item"]), [*map(as_json, v["all"])]) for key, v in values]
        else:
            cells = [(row["key"], row["value"]) for row in found]
            expected = [(key, [*map(as_json, v)] if topic == "lists" else as_json(v)) for key, v in values]
        assert sorted(map(str, cells)) == sorted(map(str, expected)), topic


@pytest.mark.parametrize(("field", "odd"), [("item", "a\0b"), ("price", 0.0001), ("price", 1e7), ("price", 1 / 3)])
def test_json_text_that_java_might_write_differently_is_left_to_python(
    spark: Any, tmp_path: Path, field: str, odd: Any
) -> None:
    row = order(random.Random(0)) | {"user": "a", "item": "b", "price": 1.0, "small": 1}
    job = Job(tmp_path, {"whole": JSON_STEPS["whole"]}, [row, row | {field: odd}])
    job.run(spark)
    assert [line for line in job.lines if "all stages run in Python after all: column value of the output has" in line]
    texts = [row["value"] for row in job.written("whole")]
    assert [json.loads(text)[field] for text in texts] in ([row[field], odd], [odd, row[field]])


EXACT = ["filter: value.small > 0", "group_by: value.item", "count", "to_stream"]


def test_a_dry_run_names_the_engine_of_each_stage(tmp_path: Path) -> None:
    rows = [order(random.Random(0)) for _ in range(9)]
    job = Job(tmp_path, {"out": EXACT}, rows)
    assert job.engines() == [
        "engine sql; its tasks read at most 9 records",
        "engine sql; reads the output of earlier stages",
    ]
    assert job.engines(engine="python")[1::2] == ["not sql: --engine python"] * 2
    assert job.engines(emit=UPDATES)[1::2] == ["not sql: the job writes every update"] * 2
    unknown = job.engines(read="key=lower(user),value=*,timestamp=at")
    assert unknown[0].startswith("engine sql or python; ")
    assert unknown[1] == "not sql: it depends on the types of the columns of orders, which only Spark knows"


def test_a_stage_in_python_is_one_with_the_reason(tmp_path: Path) -> None:
    rows = [order(random.Random(0)) for _ in range(9)]
    steps = ["filter: value.price ** 2 > 1", "group_by: value.item", "reduce: value", "to_stream"]
    job = Job(tmp_path, {"out": steps}, rows)
    line = next(number for number, text in enumerate(job.path.read_text().splitlines(), 1) if "value.price" in text)
    reason = f"{job.path}:{line}: value.price ** 2: an operator of a number and a whole number that SQL does not have exactly"
    assert job.engines() == [
        "engine python; largest task: about 5 of 9 records, if keys spread evenly",
        f"not sql: {reason}",
        "engine python; largest task: not known before the stages that write its topics have run",
        f"not sql: {job.path}:{line + 2}: value: a stage in Python writes it, with a serde of values of any type",
    ]


TEXT_STEPS = ["filter: value.item is not None", "map_values: value.item"]
LAST = ["group_by_key", "count", "to_stream"]
LOWEST = 'aggregate: {{initial: "{}", add: "min(aggregate, value.small)", value_serde: long}}'


@pytest.mark.parametrize(
    ("steps", "reason", "more"),
    [
        (
            [
                "group_by_key",
                "aggregate: {initial: 5, add: 'max(aggregate, value.small)', value_serde: long}",
                "to_stream",
            ],
            "max(aggregate, value.small) calls a function of the file",
            "functions: {max: {params: [a, b], expr: b}}\n",
        ),
        (
            ["filter: abs(value.small) > 1", *EXACT],
            "calls a function of the file",
            "functions: {abs: {params: [a], expr: a}}\n",
        ),
        # A row at which the step fails ends the job, although no output gets it.
        (EXACT, "no output gets its records", "  checked: {stream: orders, steps: [assert: value.small > 0]}\n"),
        (EXACT, "no output gets its records", "  added: {stream: orders, steps: [map_values: value.small + 1]}\n"),
        (EXACT, "no output gets its records", "  counted: {stream: orders, steps: [group_by_key, count]}\n"),
        (EXACT, "expression.max.bytes is below its default", "config: {expression.max.bytes: 65536}\n"),
        (EXACT, "expression.max.steps is below its default", "config: {expression.max.steps: 10000}\n"),
        ([*TEXT_STEPS, *["map_values: value + value"] * 6, *LAST], "value + value: a record's texts may", ""),
        ([*TEXT_STEPS, *["map_values: \"f'{value}{value}'\""] * 6, *LAST], "a record's texts may", ""),
        ([*TEXT_STEPS, *["filter: value + value != value + 'a'"] * 200, *LAST], "a record's texts may", ""),
        (["map_values: \"{'a': value}\""] * 300 + LAST, "a record's texts may", ""),
        (
            ["map_values: \"{'a': value, 'b': value}\""] * 3 + LAST,
            "a record's texts may",
            "",
        ),
        (
            ["map_values: value.small", *["map_values: value + value"] * 25, *LAST],
            "it has more than 20,000 characters",
            "",
        ),
        (["map_values: value.small", *["map_values: value + 1"] * 150, *LAST], "has more than 100,000 characters", ""),
        (
            [*TEXT_STEPS, *["flat_map_values: {values: value.split(), value_serde: json}"] * 2, *LAST],
            "a step before it makes several records of one, too",
            "",
        ),
        (
            [*TEXT_STEPS, "flat_map_values: value.split()", *["filter: value + value != value + 'a'"] * 40, *LAST],
            "a record's texts may",
            "",
        ),
        (["group_by_key", LOWEST.format("9223372036854775807 + 1"), "to_stream"], "may be null, or fail", ""),
        (
            ["group_by: value.item", "reduce: value", "to_stream"],
            "the order in which several tasks, or topics, send",
            "",
        ),
        (["group_by_key", LOWEST.format("None if True else 5"), "to_stream"], "may be null, or fail", ""),
        (
            [
                "group_by_key",
                "aggregate: {initial: \"{'n': 0, 'low': None if True else 5}\", add: \"{'n': aggregate.n + 1, 'low': min(aggregate.low, value.small)}\"}",
                "to_stream",
            ],
            "may be null, or fail",
            "",
        ),
        (
            [
                "group_by_key",
                "aggregate: {initial: \"{'True': 5}\", add: \"{True: aggregate['True'] + value.small}\"}",
                "to_stream",
            ],
            "its fields are not those of the initial value",
            "",
        ),
        (
            [
                "group_by_key",
                "aggregate: {initial: \"{'n': 0, 'N': 0}\", add: \"{'n': aggregate.n + 1, 'N': aggregate.N + 1}\"}",
                "to_stream",
            ],
            "its fields are not those of the initial value",
            "",
        ),
    ],
)
def test_what_a_query_may_do_otherwise_is_pythons(tmp_path: Path, steps: list[str], reason: str, more: str) -> None:
    job = Job(tmp_path, {"out": steps}, [order(random.Random(0)) for _ in range(9)], more)
    engines = job.engines()
    assert any(each.startswith("engine python") for each in engines)
    assert any(reason in each for each in engines), engines


def test_a_row_that_fails_is_left_to_python(spark: Any, tmp_path: Path) -> None:
    rows = [order(random.Random(at)) | {"amount": None if at == 11 else at % 6} for at in range(20)]
    steps = ["filter: value.amount > 3", "group_by_key", "count", "to_stream"]
    job = Job(tmp_path, {"out": steps}, rows, "config: {processing.exception.handler: continue}\n")
    job.run(spark)
    line = next(number for number, text in enumerate(job.path.read_text().splitlines(), 1) if "value.amount" in text)
    reason = f"{job.path}:{line}: value.amount > 3: an operand is null"
    assert job.lines[-3] == f"all stages run in Python after all: {reason}"
    assert "dropped 1 record" in job.lines[-1]
    assert job.written("out") == job.expected("out")


def test_a_sum_that_fails_on_the_way_fails(spark: Any, tmp_path: Path) -> None:
    """The last sums fit 64 bits, whatever their order, and the second one does not."""
    rows = [order(random.Random(0)) | {"user": "a", "amount": amount} for amount in ((1 << 63) - 1, 1, -5)]
    steps = ["group_by_key", "aggregate: {initial: 0, add: aggregate + value.amount, value_serde: long}", "to_stream"]
    job = Job(tmp_path, {"out": steps}, rows)
    with pytest.raises(StreamkitError, match="9223372036854775808"):
        job.run(spark)
    assert job.lines[-1].endswith("aggregate + value.amount: a sum may have over 64 bits on the way")
    assert not (tmp_path / "out.parquet" / "_SUCCESS").exists()


def test_a_timestamp_that_a_task_refuses_fails(spark: Any, tmp_path: Path) -> None:
    rows = [order(random.Random(0)) | {"at": at} for at in (1, -1)]
    job = Job(tmp_path, {"out": ["group_by_key", "count", "to_stream"]}, rows)
    with pytest.raises(StreamkitError, match="negative"):
        job.run(spark)
    assert job.lines[-1].endswith("a timestamp of orders is before 1970 or too late")


def test_texts_of_a_fixed_length_have_their_blanks(spark: Any, tmp_path: Path) -> None:
    job = Job(
        tmp_path, {"out": ["filter: key == 'ab' or value.item in ['x']", "group_by_key", "count", "to_stream"]}, []
    )
    spark.sql(f"CREATE TABLE padded (user char(4), item char(3), at bigint) USING parquet LOCATION '{tmp_path}/padded'")
    try:
        spark.sql("INSERT INTO padded VALUES ('ab', 'y', 1), ('abcd', 'x', 2)")
        place = "orders=spark_catalog.default.padded,key=user,value=*,timestamp=at"
        submit(job.plan, replace(job.options(), inputs=inputs_of(job.plan, [place])), spark, job.lines.append)
    finally:
        spark.sql("DROP TABLE padded")
    assert any("engine sql" in line for line in job.lines)
    assert job.written("out") == []


def test_a_null_key_that_a_step_uses_fails(spark: Any, tmp_path: Path) -> None:
    rows = [order(random.Random(at)) | {"user": None if at == 3 else "a"} for at in range(9)]
    job = Job(
        tmp_path,
        {"out": ["filter: value.small > 0 or key != 'b'", "group_by: value.item", "count", "to_stream"]},
        rows,
    )
    with pytest.raises(StreamkitError, match="null in a row"):
        job.run(spark)
    assert any("engine sql" in line for line in job.lines)


@pytest.mark.parametrize("window", ["", "tumbling: 1m"])
@pytest.mark.parametrize(
    ("key", "reason"),
    [(None, "a key of orders is null"), (b"a\xc3", "key of orders is no UTF-8, or a long text")],
)
def test_a_key_that_only_its_group_reads_fails(
    spark: Any, tmp_path: Path, key: bytes | None, reason: str, window: str
) -> None:
    windows = [f"window: {{{window}, grace: 1m}}"] if window else []
    job = Job(tmp_path, {"out": ["group_by_key", *windows, "count", "to_stream"]}, [])
    keys = pa.array([b"a", b"b", b"b", key], pa.binary())
    users = pa.Array.from_buffers(pa.string(), len(keys), keys.buffers())
    rows = pa.Table.from_pylist([order(random.Random(0)) for _ in range(len(keys))], COLUMNS)
    pyarrow.parquet.write_table(rows.set_column(0, "user", users), tmp_path / "orders.parquet")
    with pytest.raises(StreamkitError, match=r"null in a row|not UTF-8"):
        job.run(spark)
    assert job.lines[-1] == f"all stages run in Python after all: {reason}"


@pytest.mark.parametrize("amount", [3, 4])
def test_a_wrong_text_that_only_its_group_reads_fails_if_no_filter_leaves_it_out(
    spark: Any, tmp_path: Path, amount: int
) -> None:
    """A null in the same column has no group."""
    job = Job(tmp_path, {"out": ["filter: value.amount > 3", "group_by: value.item", "count", "to_stream"]}, [])
    raw = pa.array([b"a", None, b"a", b"b\xc3"], pa.binary())
    items = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers(), raw.null_count)
    rows = pa.Table.from_pylist([order(random.Random(0)) | {"amount": each} for each in (4, 4, 4, amount)], COLUMNS)
    place = rows.schema.get_field_index("item")
    pyarrow.parquet.write_table(rows.set_column(place, "item", items), tmp_path / "orders.parquet")
    if amount == 3:
        job.run(spark)
        assert [(row["key"], row["value"]) for row in job.written("out")] == [("a", 2)]
        return
    with pytest.raises(StreamkitError, match="not UTF-8"):
        job.run(spark)
    assert job.lines[-1] == "all stages run in Python after all: value.item of orders is no UTF-8, or a long text"


def test_a_text_that_no_step_reads_is_not_checked(spark: Any, tmp_path: Path) -> None:
    job = Job(tmp_path, {"out": ["filter: value.amount > 3", "map_values: value.item"]}, [])
    users = pa.array([b"a", b"b\xc3", b"c"], pa.binary())
    rows = [order(random.Random(0)) | {"user": None, "item": "x", "amount": amount} for amount in (4, 3, 5)]
    table = pa.Table.from_pylist(rows, COLUMNS)
    users = pa.Array.from_buffers(pa.string(), len(users), users.buffers())
    pyarrow.parquet.write_table(table.set_column(0, "user", users), tmp_path / "orders.parquet")
    job.run(spark)
    assert not [line for line in job.lines if "after all" in line]
    assert [(row["key"], row["value"]) for row in job.written("out")] == [("a", '"x"'), ("c", '"x"')]


def test_a_number_that_json_lacks_fails(spark: Any, tmp_path: Path) -> None:
    rows = [order(random.Random(0)) | {"price": price} for price in (1.0, math.nan)]
    job = Job(tmp_path, {"out": ["filter: value.price < 2", "group_by_key", "count", "to_stream"]}, rows)
    with pytest.raises(StreamkitError):
        job.run(spark)
    assert job.lines[-1].endswith("value.price of orders is NaN or infinite")


def test_a_query_that_spark_refuses_is_left_to_python(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streamkit.runtime.spark.sql import record_queries

    job = Job(tmp_path, {"out": EXACT}, [order(random.Random(at)) for at in range(20)])
    monkeypatch.setattr(record_queries, "read_rows", lambda *_: "missing > 1")
    job.run(spark)
    refusal = "all stages run in Python after all: Spark refuses the query of orders: [UNRESOLVED_COLUMN"
    assert job.lines[-2].startswith(refusal)
    assert job.written("out") == job.expected("out")


def test_a_setting_that_changes_queries_is_pythons(spark: Any, tmp_path: Path) -> None:
    name = "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing"
    job = Job(tmp_path, {"out": EXACT}, [order(random.Random(at)) for at in range(20)])
    spark.conf.set(name, "true")
    try:
        job.run(spark)
    finally:
        spark.conf.unset(name)
    assert f"all stages run in Python: {name}=true changes what queries mean" in job.lines
    assert job.written("out") == job.expected("out")


def test_columns_that_no_step_reads_are_not_read(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from streamkit.runtime.spark.rows import file_outputs

    plans = []
    write = file_outputs.arranged
    monkeypatch.setattr(
        file_outputs, "arranged", lambda rows, *rest, **more: plans.append(rows) or write(rows, *rest, **more)
    )
    job = Job(tmp_path, {"out": EXACT}, [order(random.Random(at)) for at in range(20)])
    job.run(spark)
    text = plans[0]._jdf.queryExecution().executedPlan().toString()
    (columns,) = {
        line.partition("ReadSchema: ")[2].strip() for line in text.splitlines() if "ReadSchema: " in line
    } or {text}
    assert "item:string" in columns
    # The key, which no step uses.
    assert "user" not in columns
    assert "small:int" in columns
    assert "price" not in columns
    assert "paid" not in columns
    assert "Python" not in text


LATE = ["group_by_key", "window: {tumbling: 10ms, grace: 5ms}", "count", "to_stream"]


def test_a_record_behind_its_window_is_left_to_python(spark: Any, tmp_path: Path) -> None:
    """One key is in one partition, as in `try`. The third record is in time by its grace, the last one is late."""
    rows = [order(random.Random(0)) | {"user": "a", "at": at} for at in (103, 113, 104, 115, 109)]
    job = Job(tmp_path, {"out": LATE}, rows)
    job.run(spark)
    assert job.lines[-3] == "all stages run in Python after all: records of orders come after their windows have closed"
    assert "dropped 1 late record" in job.lines[-1]
    assert job.written("out") == job.expected("out")


WORDS = ("", "a b", " a\u2003é\x1f b ", "a,,b", ",", "#a #B c", "#\U0001f600 a\u00a0", "  ")
FLATTENED = (
    "value.item.split()",
    "value.item.split(',')",
    "value.item.strip().split(' ')",
    "[word[1:] for word in value.item.split() if word.startswith('#')]",
    "[f'{key}:{len(word)}' for word in value.item.split('a') if word and word not in [',', 'b']]",
    "[value.user, value.item, 'x']",
)


@pytest.mark.parametrize("seed", range(CASES))
def test_lists_become_the_records_of_try(spark: Any, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    rows = [order(draw) | {"item": draw.choice(WORDS)} for _ in range(100)]
    steps = [f'flat_map_values: {{values: "{draw.choice(FLATTENED)}", value_serde: string}}' for _ in range(4)]
    counted = {f"out{number}": [step, "group_by: value", "count", "to_stream"] for number, step in enumerate(steps[:2])}
    streams = {f"out{number}": [step, "filter: value != 'b'"] for number, step in enumerate(steps[2:], 2)}
    job = Job(tmp_path, {**counted, **streams}, rows)
    job.run(spark)
    assert not [line for line in job.lines if "not sql" in line or "after all" in line], job.lines
    records = tried(job.path, as_records(job.rows))
    for topic in counted:
        assert job.written(topic) == job.expected(topic), job.path.read_text()
    for topic in streams:
        files = sorted((tmp_path / f"{topic}.parquet").glob("part-*"))
        found = [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]
        expected = [as_row(record, False) for record in records if record["topic"] == topic]
        assert sequences(found) == sequences(expected), job.path.read_text()


def sessions(draw: random.Random, gap: int) -> list[str]:
    """The steps of a pipeline with sessions."""
    fold = draw.choice(("count", "reduce: aggregate + value", "reduce: 'min(value, aggregate)'"))
    first = ["filter: value.small != 3"] if fold == "count" else ["map_values: value.small"]
    groups = ("group_by_key", "group_by: {key: \"'all'\"}", "group_by: \"key + 'x'\"")
    mapped = ['map_values: {value: "1 if value > 2 else 0", value_serde: long}']
    more = mapped if fold == "count" and draw.random() < 0.5 else []
    return [*first, draw.choice(groups), f"window: {{session: {gap}ms, grace: 1ms}}", fold, *more, "to_stream"]


@pytest.mark.parametrize("seed", range(CASES))
def test_sessions_are_what_try_gives(spark: Any, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    rows = sorted((order(draw) | {"at": draw.randrange(900)} for _ in range(200)), key=lambda row: row["at"])
    job = Job(tmp_path, {f"out{number}": sessions(draw, draw.choice((0, 4, 20, 60))) for number in range(3)}, rows)
    job.run(spark)
    assert not [line for line in job.lines if "not sql" in line or "after all" in line], job.lines
    for topic in job.topics:
        assert job.written(topic) == job.expected(topic), job.path.read_text()


@pytest.mark.parametrize("least", [0, -(1 << 31)])
def test_timestamps_of_an_expression_are_those_of_try(
    spark: Any, tmp_path: Path, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python drops the record of a negative one."""
    timed = "partitions: 2, timestamp: 'timestamp + value.small * 5'"
    monkeypatch.setattr("tests.spark.test_sql_stages.HEAD", HEAD.replace("partitions: 2", timed))
    draw = random.Random(0)
    rows = [order(draw) | {"small": draw.choice((0, 2, 3))} for _ in range(80)] + [order(draw) | {"small": least}]
    window = "window: {tumbling: 7ms, grace: 1m}"
    job = Job(tmp_path, {"out": ["group_by_key", window, "count", "to_stream"], "all": [*LAST]}, rows)
    job.run(spark)
    after_all = [line for line in job.lines if "not sql" in line or "after all" in line]
    reason = "a timestamp of orders is before 1970 or too late"
    assert after_all == ([f"all stages run in Python after all: {reason}"] if least < 0 else [])
    for topic in job.topics:
        assert job.written(topic) == job.expected(topic)


def closing(draw: random.Random, grace: int, number: int) -> list[str]:
    """The steps of a pipeline that writes closed windows only."""
    kind = draw.choice(("tumbling: 7ms", "hopping: 10ms, advance: 4ms", "hopping: 9ms, advance: 3ms"))
    aggregated = 'aggregate: {initial: 5, add: "aggregate + value.small", value_serde: long'
    first = draw.choice((["filter: value.small != 3"], ["filter: value.paid or value.small >= 0"], []))
    group = draw.choice(("group_by_key", "group_by: \"key + 'x'\""))
    if number == 5:
        # Segments have a minute; times of that length are in the rows.
        kept = draw.choice(("", ", retention: 90ms", ", retention: 90ms, type: in_memory"))
        return [
            *first,
            group,
            f"window: {{session: 4ms, grace: {grace}ms, emit: on_close}}",
            f"count: {{store: {{name: s5{kept}}}}}",
            "to_stream",
        ]
    if number % 2:
        kept = draw.choice(("", ", retention: 90ms", ", type: in_memory", ", segment_interval: 1m"))
        fold = f"{draw.choice(('count: {', f'{aggregated}, '))}store: {{name: s{number}{kept}}}}}"
        return [*first, group, f"window: {{{kind}, grace: {grace}ms, emit: on_close}}", fold, "to_stream"]
    kind = draw.choice((kind, "session: 4ms")) if grace else kind
    fold = "count" if "session" in kind else draw.choice(("count", aggregated + "}"))
    kind = draw.choice((kind, "sliding: 6ms")) if grace else kind
    mapped = draw.choice(([], ["map_values: {value: '1 if value > 2 else 0', value_serde: long}"]))
    return [
        *first,
        group,
        f"window: {{{kind}, grace: {grace}ms}}",
        fold,
        *mapped,
        "suppress: window_closes",
        "to_stream",
    ]


@pytest.mark.parametrize("seed", range(CASES))
def test_closed_windows_are_what_try_gives(
    spark: Any, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With gaps in which the stores of windows would lose some before they are emitted, as they do in TopologyTestDriver."""
    monkeypatch.setattr("tests.spark.test_sql_stages.HEAD", HEAD.replace("partitions: 2", "partitions: 1"))
    draw = random.Random(seed)
    times = accumulate((draw.choice((0, 0, 0, 1, 1, 2, 5, 9, 30)) for _ in range(150)), initial=MINUTE - 300)
    rows = [order(draw) | {"user": draw.choice(("a", "b", "c")), "at": at} for at in times]
    job = Job(
        tmp_path, {f"out{number}": closing(draw, draw.choice((0, 1, 3, 12)), number) for number in range(6)}, rows
    )
    job.run(spark)
    assert not [line for line in job.lines if "not sql" in line or "after all" in line], job.lines
    for topic in job.topics:
        assert job.written(topic) == job.expected(topic), job.path.read_text()


def ordered(draw: random.Random, is_in_order: bool) -> list[str]:
    """The steps of a pipeline whose result depends on the order of records."""
    fold = draw.choice(
        [
            [
                "map_values: \"{'small': value.small, 'deep': {'amount': value.amount, 'item': value.item}}\"",
                f"reduce: {draw.choice(('value', 'aggregate'))}",
                "map_values: {value: \"{'n': value.small, 'low': value.deep.amount}\", value_serde: json}",
            ],
            [
                "map_values: value",
                "aggregate: {initial: \"{'n': 0, 'low': 4, 'high': ''}\", add: \"{'n': aggregate.n + 1, 'low': value.amount, "
                "'high': value.item}\"}",
            ],
            ["map_values: value.user", "reduce: \"aggregate + ',' + value\""],
            [
                "map_values: value.user",
                "aggregate: {initial: \"'0'\", add: \"aggregate + ',' + value\", value_serde: json}",
            ],
        ]
    )
    windows = ["tumbling: 7ms, grace: 1m", "hopping: 9ms, advance: 4ms, grace: 1m"]
    windows += ["sliding: 5ms, grace: 1ms"] if is_in_order else []
    windows += ["session: 3ms"] if is_in_order and fold[1].startswith("reduce") else []
    window = draw.choice([[], *([f"window: {{{window}}}"] for window in windows)])
    return [fold[0], draw.choice(("group_by_key", "group_by: \"'all'\"")), *window, *fold[1:], "to_stream"]


@pytest.mark.parametrize("seed", range(CASES))
def test_results_that_depend_on_the_order_are_what_try_gives(
    spark: Any, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.spark.test_sql_stages.HEAD", HEAD.replace("partitions: 2", "partitions: 1"))
    draw = random.Random(seed)
    is_in_order = draw.random() < 0.5
    rows = [order(draw) for _ in range(120)]
    rows = sorted(rows, key=lambda row: row["at"]) if is_in_order else rows
    job = Job(tmp_path, {f"out{number}": ordered(draw, is_in_order) for number in range(6)}, rows)
    (tmp_path / "orders.parquet").unlink()
    (tmp_path / "orders.parquet").mkdir()
    for number, (first, last) in enumerate(((0, 10), (10, 80), (80, 120))):
        write_table(tmp_path / "orders.parquet" / f"part {number}.parquet", rows[first:last])
    job.run(spark)
    assert not [line for line in job.lines if "not sql" in line or "after all" in line], job.lines
    for topic in job.topics:
        found = [
            row
            for file in sorted((tmp_path / f"{topic}.parquet").glob("part-*"))
            for row in pyarrow.parquet.read_table(file).to_pylist()
        ]
        assert sorted(found, key=as_text) == job.expected(topic), job.path.read_text()


def sliding(draw: random.Random) -> list[str]:
    """The steps of a pipeline with sliding windows."""
    group = draw.choice(("group_by_key", "group_by: {key: \"'all'\"}", "group_by: \"key + 'x'\""))
    window = f"window: {{sliding: {draw.choice((1, 4, 20, 60))}ms, grace: {draw.choice((1, 30))}ms}}"
    fold = draw.choice(("count", "reduce: aggregate + value", "reduce: 'min(value, aggregate)'"))
    summed = 'aggregate: {initial: -7, add: "aggregate + value", value_serde: long}'
    return ["map_values: value.small", group, window, draw.choice((fold, summed)), "to_stream"]


@pytest.mark.parametrize("seed", range(CASES))
def test_sliding_windows_are_what_try_gives(spark: Any, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    times = accumulate(draw.choice((0, 0, 0, 1, 1, 2, 3, 5, 21)) for _ in range(150))
    rows = [order(draw) | {"user": draw.choice(("a", "b", "c")), "at": at} for at in times]
    job = Job(tmp_path, {f"out{number}": sliding(draw) for number in range(4)}, rows)
    job.run(spark)
    assert not [line for line in job.lines if "not sql" in line or "after all" in line], job.lines
    for topic in job.topics:
        assert job.written(topic) == job.expected(topic), job.path.read_text()


def test_sessions_of_records_without_order_are_pythons(spark: Any, tmp_path: Path) -> None:
    rows = [order(random.Random(0)) | {"user": "a", "at": at} for at in (100, 109, 104, 130, 200, 113)]
    job = Job(tmp_path, {"out": ["group_by_key", "window: {session: 5ms, grace: 1s}", "count", "to_stream"]}, rows)
    job.run(spark)
    reason = "records of orders have earlier times than records before them"
    assert f"all stages run in Python after all: {reason}" in job.lines
    assert job.written("out") == job.expected("out")


@pytest.mark.parametrize("seed", range(CASES))
def test_no_late_record_is_overlooked(spark: Any, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the rows of several files, in chunks of four."""
    from streamkit.runtime.spark.sql import window_times

    monkeypatch.setattr(window_times, "_CHUNK_BITS", 2)
    draw = random.Random(seed)
    job = Job(tmp_path, {"out": LATE}, [order(draw)])
    (tmp_path / "orders.parquet").unlink()
    (tmp_path / "orders.parquet").mkdir()
    found = []
    for _ in range(4):
        back, time = draw.choice((4, 9, 14)), draw.choice((None, pa.timestamp("us", "UTC"), pa.timestamp("ms")))
        times = [max(0, 5 * number + draw.choice((0, 0, 0, -back))) for number in range(40)]
        for number, (first, last) in enumerate(((0, 3), (3, 30), (30, 40))):
            write_table(
                tmp_path / "orders.parquet" / f"part {number}.parquet",
                [order(draw) | {"at": at} for at in times[first:last]],
                time,
            )
        opened = open_files(spark, job.options().inputs["orders"][0])
        (source,) = columns_of({"orders": [opened]})["orders"]
        windows = TimeWindows(draw.choice((0, 3, 6)), 10, draw.choice((10, 5)))
        highest = list(accumulate(times, max))
        expected = any(
            start + windows.size <= stream_time - windows.grace
            for at, stream_time in zip(times, highest, strict=True)
            for start in range(0, at + 1, windows.advance)
            if start + windows.size > at
        )
        orders = SqlSource("orders", source, (parse_serde("string"), parse_serde("json")))
        assert is_seen_in_time(orders, opened, windows) is not expected
        with monkeypatch.context() as patch:
            patch.setattr(window_times, "_MOST_ROWS", 0)  # so that Spark looks
            try:
                refuse_late(orders, opened, windows)
                found.append((False, expected))
            except InexactError:
                found.append((True, expected))
    assert all(is_refused == is_late for is_refused, is_late in found), found


def risky_pipeline(draw: random.Random) -> list[str]:
    """The steps of a pipeline that fails at some rows."""
    steps = draw.sample(
        [
            "filter: value.amount > -5",
            "filter: value.item != 'b' and value.amount < 9",
            "filter_not: value.paid and value.amount + value.small > 3",
            "filter: value.amount is None or value.amount * 3 != 21",
            "filter: value.get('item', value.amount + 1) != 'a'",
            "filter: 0 < value.small < value.amount or value.paid",
            "filter: (value.amount if value.paid else value.small) >= 0",
            "filter: value.price is None or value.price < 2",
        ],
        draw.randrange(3),
    )
    group = draw.choice(
        ["group_by_key", "group_by: value.item + '!'", "group_by: \"'n' if value.amount < 4 else key\""]
    )
    fold = draw.choice(
        [
            "count",
            "aggregate: {initial: 0, add: aggregate + value.amount, value_serde: long}",
            "aggregate: {initial: -3, add: value.amount + aggregate, value_serde: long}",
            "aggregate: {initial: 5, add: 'min(value.amount, aggregate)', value_serde: long}",
            "aggregate: {initial: \"{'n': 1, 'low': 4, 'high': ''}\", add: \"{'n': aggregate.n + value.amount, 'low': "
            "min(aggregate.low, value.small), 'high': max(value.item, aggregate.high)}\"}",
        ]
    )
    if draw.random() < 0.2:
        # Records without a value are in no group.
        return [*steps, "map_values: value.item if value.small > 0 else None", "group_by_key", "count", "to_stream"]
    return [*steps, group, fold, "to_stream"]


POISONS: tuple[dict[str, Any], ...] = (
    {"item": None},
    {"amount": None},
    {"amount": -(1 << 63)},
    {"amount": (1 << 63) - 1},
    {"amount": 1 << 62},
    {"price": math.nan},
)
"""What a step may fail at."""


def poisoned(draw: random.Random, steps: list[str]) -> list[dict[str, Any]]:
    """Rows of which a few have what a step may fail at."""
    rows = [
        order(draw)
        | {"item": draw.choice("aab"), "amount": draw.choice((0, 1, 4, 7)), "paid": draw.random() < 0.5, "price": 1.0}
        for _ in range(30)
    ]
    # A query does not notice what is wrong in a column that no step reads.
    reads_price = any("price" in step for step in steps)
    poison = draw.choice([each for each in POISONS if ("price" in each) == reads_price])
    for row in draw.sample(rows, draw.randrange(1, 5)):
        row |= poison
    return rows


def queried(job: Job, spark: Any) -> list[dict[str, Any]]:
    """The rows of the query of a job, which must have one."""
    options = job.options()
    opened = open_files(spark, options.inputs["orders"][0])
    counts = declared_counts(job.plan, options.inputs)
    engines = prepare(job.plan, options, counts, columns=columns_of({"orders": [opened]}), creates=False).job.engines
    (query,) = (query for choice in engines.values() for query in choice.queries.values())
    with translated():
        found = query.frame(lambda _: opened).toArrow().to_pylist()
    return sorted(map(in_utc, found), key=as_text)


def in_utc(row: dict[str, Any]) -> dict[str, Any]:
    return {name: cell.astimezone(UTC) if isinstance(cell, datetime) else cell for name, cell in row.items()}


@pytest.mark.parametrize("seed", range(CASES))
def test_queries_fail_where_try_fails(spark: Any, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    exact = 0
    for number in range(20):
        steps = risky_pipeline(draw)
        folder = tmp_path / str(number)
        folder.mkdir()
        job = Job(folder, {"out": steps}, poisoned(draw, steps))
        try:
            found = queried(job, spark)
        except InexactError:
            continue
        exact += 1
        assert found == job.expected("out"), steps
    assert exact > 4


SENT = """\
streamkit: 1
application: sent
topics:
  orders: {value: json, partitions: 2}
  lines: {value: json}
  timed: {value: json}
  kept: {value: json}
  windows: {key: {windowed: string, size: 7ms}, value: json}
  listed: {value: json}
  paired: {value: json}
  latest: {value: json}
  counts: {key: string, value: long}
  sums: {key: integer, value: long}
  texts: {key: boolean, value: string}
pipelines:
  moved:
    stream: orders
    steps:
      - filter: value.small >= 0
      - select_key: "f'{value.item}'"
      - repartition: {name: moved, partitions: 2}
  latest:
    stream: orders
    steps:
      - group_by: value.item
      - aggregate: {initial: "[]", add: "(aggregate + [value.price])[-9:]", value_serde: json}
      - to_stream
    to: latest
  flat:
    stream: lines
    steps:
      - flat_map_values: "[value.small, len(key), 7]"
      - repartition: {name: flat, partitions: 2}
  timed:
    stream: timed
  turned:
    from: timed
    steps:
      - map: {key: value.small, value: "{'item': value.item, 'price': value.price, 'at': [timestamp], 'user': key}"}
      - set_timestamp: timestamp + key if 0 < key < 9 else timestamp
      - repartition: {name: turned, key_serde: long}
  paired:
    from: timed
    steps:
      - join: {with: timed, within: 2ms, grace: 1ms, value: "{'one': left.small, 'other': right.small, 'user': key}"}
      - select_key: "'odd' if value.one % 2 == 1 else 'even'"
      - deduplicate: {by: value.other, within: 3ms}
    to: paired
  kept:
    from: moved
    steps: [{deduplicate: {by: value.small, within: 5ms}}]
    to: kept
  counts: {from: moved, steps: [group_by: "f'{value.item}'", count, to_stream], to: counts}
  sums:
    from: moved
    steps:
      - map_values: {value: value.small - 3, value_serde: long}
      - group_by: {key: value, key_serde: integer, value_serde: long}
      - reduce: aggregate + value
      - to_stream
    to: sums
  texts:
    from: moved
    steps:
      - map_values: {value: "f'{value.item}, {value.small}'", value_serde: string}
      - group_by: {key: len(key) > 1, key_serde: boolean, value_serde: string}
      - reduce: max(aggregate, value)
      - to_stream
    to: texts
  windows:
    from: moved
    steps:
      - map_values: value.small
      - merge: flat
      - group_by_key
      - window: {tumbling: 7ms, grace: 2ms}
      - aggregate: {initial: "[]", add: "aggregate + [value]", value_serde: json}
      - to_stream
    to: windows
  listed:
    from: turned
    steps:
      - group_by_key
      - aggregate: {initial: "[]", add: "(aggregate + [value.item, value.price])[-9:]", value_serde: json}
      - to_stream: {key: str(key)}
    to: listed
"""

SENT_TABLES = ("counts", "sums", "texts")
SENT_TOPICS = ("kept", "windows", "listed", "paired", "latest", *SENT_TABLES)


@pytest.mark.parametrize("seed", range(CASES))
def test_stages_in_python_read_what_queries_send(spark: Any, tmp_path: Path, seed: int) -> None:
    """Which records are late and which are duplicates depends on their order, and on their partitions."""
    draw = random.Random(seed)
    path, lines = tmp_path / "topology.yaml", list[str]()
    path.write_text(SENT)
    plan, places = load(path), list[str]()
    for topic, read in (("orders", READ), ("lines", READ), ("timed", f"{READ},order=at")):
        (tmp_path / topic).mkdir()
        for number in range(2):
            write_table(tmp_path / topic / f"part {number}.parquet", [order(draw) for _ in range(draw.randrange(90))])
        places.append(f"{topic}={tmp_path}/{topic},{read}")
    found: dict[str, list[list[dict[str, Any]]]] = {}
    for engine in ("auto", "python"):
        outputs = [f"{topic}={tmp_path}/{engine}-{topic},format=parquet" for topic in SENT_TOPICS]
        options = JobOptions(inputs_of(plan, places), outputs_of(plan, outputs), engine=engine)
        submit(plan, options, spark, lines.append)
        for topic in SENT_TOPICS:
            files = sorted((tmp_path / f"{engine}-{topic}").glob("part-*"))
            rows = [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]
            assert rows
            found.setdefault(topic, []).append(sorted(rows, key=as_text) if topic in SENT_TABLES else rows)
    engines = [line for line in lines if line.startswith("stage ")]
    assert [", not sql" in line for line in engines].count(False) == 6, engines
    assert not [line for line in lines if "after all" in line], lines
    for topic, (with_queries, in_python) in found.items():
        assert with_queries == in_python, topic


KEYLESS = """\
streamkit: 1
application: keyless
topics:
  orders: {value: json, partitions: 2}
  kept: {value: json}
pipelines:
  kept:
    stream: orders
    steps:
      - select_key: "f'{value.item}'"
      - deduplicate: {by: value.small, within: 5ms}
    to: kept
"""


def test_records_whose_places_choose_their_tasks_are_left_to_python(spark: Any, tmp_path: Path) -> None:
    path, lines = tmp_path / "topology.yaml", list[str]()
    path.write_text(KEYLESS)
    plan = load(path)
    rows = [order(random.Random(at)) | {"user": None if at == 3 else "a"} for at in range(9)]
    # The input does not name its key, so that a record may have none.
    table = pa.Table.from_pylist(rows, COLUMNS).rename_columns(["key", *COLUMNS.names[1:-1], "timestamp"])
    pyarrow.parquet.write_table(table, tmp_path / "orders.parquet")
    inputs = inputs_of(plan, [f"orders={tmp_path}/orders.parquet,value=item,small"])
    submit(plan, JobOptions(inputs, outputs_of(plan, [f"kept={tmp_path}/kept.parquet"])), spark, lines.append)
    assert "all stages run in Python after all: a record of orders has no key" in lines


HEADED = """\
streamkit: 1
application: headed
topics:
  orders: {}
  counts: {value: long}
pipelines:
  counts: {stream: orders, steps: [group_by: "key + '!'", count, to_stream], to: counts}
"""


def test_headers_that_a_table_keeps_are_left_to_python(spark: Any, tmp_path: Path) -> None:
    path, lines = tmp_path / "topology.yaml", list[str]()
    path.write_text(HEADED)
    record = {"topic": "orders", "key": "a", "value": "b", "timestamp": 1, "headers": [["by", "me"]]}
    (tmp_path / "orders.jsonl").write_text(f"{json.dumps(record)}\n")
    plan = load(path)
    inputs = inputs_of(plan, [f"orders={tmp_path}/orders.jsonl"])
    submit(plan, JobOptions(inputs, outputs_of(plan, [f"counts={tmp_path}/counts.parquet"])), spark, lines.append)
    assert [line for line in lines if "after all: a record of headed-" in line and line.endswith("has headers")], lines
    (file,) = (tmp_path / "counts.parquet").glob("part-*")
    assert pyarrow.parquet.read_table(file).to_pylist()[0]["headers"] is not None
