"""Queries over several inputs: joins with tables, and topics whose records are merged; what they write is what `try` gives."""

from __future__ import annotations

import json
import random
from collections.abc import Collection
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from streamkit.errors import StreamkitError
from streamkit.plan import load
from streamkit.runtime.spark.job_options import JobOptions
from streamkit.runtime.spark.spark_session import changed_settings
from streamkit.runtime.spark.sql import grouped_queries, record_queries
from streamkit.runtime.spark.sql.stages import SQL, Choice
from streamkit.runtime.spark.sql.window_times import Span, stretches
from streamkit.runtime.spark.submission.request import inputs_of, outputs_of
from streamkit.runtime.spark.submission.submit_job import declared_counts, known_columns, prepare, submit
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
_BROADCAST = "spark.sql.autoBroadcastJoinThreshold"


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


def once(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last row of each key, without rows with a null."""
    return list({row["k"]: row for row in rows if None not in row.values()}.values())


@pytest.mark.parametrize("is_distinct", [False, True], ids=["rows that change", "a row for each key"])
@pytest.mark.parametrize("seed", range(CASES))
def test_joins_and_merges_write_what_try_gives(
    spark: Any, tmp_path: Path, seed: int, is_distinct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, aggregated = random.Random(seed), list[Any]()
    latest = record_queries.latest_rows
    monkeypatch.setattr(record_queries, "latest_rows", lambda *rows: aggregated.append(latest(*rows)) or aggregated[-1])
    first, second = (draw.choice(("join", "left_join")) for _ in range(2))
    on = draw.choice(("value.n", "'value.n + 1 if value.n > 0 else None'"))
    rate = draw.choice(("right.rate", "0.5")) if first == "join" else "None if right is None else right.rate"
    rated = f"\"{{'n': left.n, 'item': left.item, 'rate': {rate}}}\""
    known = "\"{'n': left.n, 'item': 'none' if right is None else right.item}\""
    text = TOPOLOGY.replace("JOIN1", first).replace("JOIN2", second).replace("ON,", f"{on},")
    text = text.replace("RATED", rated).replace("KNOWN", known)
    rows = {topic: rows_of(draw, topic) for topic in ("orders", "returns", "rates", "users", "names")}
    if is_distinct:
        rows |= {topic: once(rows[topic]) for topic in ("rates", "users", "names")}
    lines, records = run(spark, tmp_path, text, rows)
    assert not [line for line in lines if "not sql" in line or "after all" in line], lines
    assert bool(aggregated) != is_distinct
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


STREAMS = """\
streamkit: 1
application: paired
topics:
  orders: {value: json}
  returns: {value: json}
  users: {value: json}
  pairs: {value: json}
  named: {value: json}
  selves: {value: json}
  counted: {key: string, value: long}
  per-window: {key: {windowed: string, size: 10ms}, value: long}
  all: {value: json}
pipelines:
  returns: {stream: returns}
  paired:
    stream: orders
    steps:
      - filter: value is None or value.n < 3
      - join: {with: returns, WINDOW, value: "merge(left, {'other': right.n, 'both': [left.item, right.item]})"}
  pairs: {from: paired, steps: [{filter: value.n != value.other}], to: pairs}
  users: {table: users, store: users}
  items: {from: users, steps: [{map_values: {value: "value.get('item')", value_serde: string}}]}
  selves:
    from: returns
    steps: [{join: {with: returns, before: 3ms, after: 2ms, grace: 1ms, value: "[left.n, right.n]"}}]
    to: selves
  named:
    from: paired
    steps: [{left_join: {with: items, value: "{'n': left.other, 'item': left.item if right is None else right}"}}]
    to: named
  counted:
    from: paired
    steps: [{group_by_key: {value_serde: json}}, count, to_stream]
    to: counted
  per-window:
    from: paired
    steps: [{group_by_key: {value_serde: json}}, {window: {tumbling: 10ms, grace: 1ms}}, count, to_stream]
    to: per-window
  some: {from: returns, steps: [{filter: value is None or value.n > 0}]}
  all:
    stream: orders
    steps: [{map_values: "None if value is None else value.item"}, {merge: other}]
    to: all
  other: {from: some, steps: [{map_values: "'none' if value is None else value.item"}]}
"""


def paired(
    spark: Any, folder: Path, window: str, rows: dict[str, list[dict[str, Any]]], in_text: Collection[str] = ()
) -> list[str]:
    """Run pairs of streams over rows, and compare what they wrote with `try`; return what the job reports.

    Without rows of users, only the pairs themselves.
    """
    whole, part = STREAMS.replace("WINDOW", window), STREAMS.replace("WINDOW", window).partition("  users: {table")[0]
    kinds = {
        "pairs": ",value=n bigint,item string,other bigint,both array<string>",
        "named": ",value=n bigint,item string",
    }
    kinds |= {"selves": ",value=array<bigint>", "counted": "", "per-window": "", "all": ",value=string"}
    kinds = kinds if "users" in rows else {"pairs": kinds["pairs"]}
    return written(spark, folder, whole if "users" in rows else part, rows, kinds, in_text)


def written(
    spark: Any,
    folder: Path,
    text: str,
    rows: dict[str, list[dict[str, Any]]],
    kinds: dict[str, str],
    in_text: Collection[str] = (),
) -> list[str]:
    """Run a topology over rows, and compare what it wrote with `try`; return what the job reports.

    kinds: the topics that it writes, with the types of their columns; in_text: the topics whose values are JSON text.
    """
    path = folder / "topology.yaml"
    path.write_text(text, encoding="utf-8")
    plan = load(path)
    records, places = [], []
    for topic, found in rows.items():
        for row in found:
            value = None if row.pop("gone", False) else {name: row.pop(name) for name in ("n", "item")}
            row["v"] = value if topic not in in_text or value is None else json.dumps(value)
            records.append({"topic": topic, "key": row["k"], "value": value, "timestamp": row["at"]})
        write_files(folder / f"{topic}.parquet", found)
        places.append(f"{topic}={folder}/{topic}.parquet,key=k,value=v,timestamp=at")
    targets = outputs_of(plan, [f"{topic}={folder}/{topic}-out.parquet{types}" for topic, types in kinds.items()])
    lines: list[str] = []
    submit(plan, JobOptions(inputs_of(plan, places), targets, overwrite=True), spark, lines.append)
    tried_records = tried(path, live_order(plan, records))
    for topic in kinds:
        expected = [record for record in tried_records if record["topic"] == topic]
        files = sorted((folder / f"{topic}-out.parquet").glob("part-*"))
        out = [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]
        if topic in ("counted", "per-window"):
            last = {repr(record["key"]): record for record in expected}
            assert sorted(out, key=as_text) == sorted(map(as_row, last.values()), key=as_text), topic
        else:
            assert expected
            assert sequences(out) == sequences([as_row(record, False) for record in expected]), topic
    return lines


def write_files(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as a file for each 20 ms if these are a few, so that files of several topics have the same times."""
    table = pa.Table.from_pylist(rows)
    lengths = [len(list(part)) for _, part in groupby(rows, lambda row: row["at"] // 20)]
    path.mkdir()
    for number, length in enumerate(lengths if len(lengths) < 8 else [len(rows)]):
        part = table.slice(sum(lengths[:number]), length)
        pyarrow.parquet.write_table(part, path / f"part {number}.parquet", row_group_size=13)


def streams(draw: random.Random) -> dict[str, list[dict[str, Any]]]:
    """Rows of two streams in the order of their times, of which many are equal, and of a table before them."""

    def row(at: int) -> dict[str, Any]:
        fields = {"n": draw.randrange(-1, 4), "item": draw.choice((None, *TEXTS)), "gone": draw.random() < 0.1}
        return {"k": draw.choice(TEXTS[:4]), **fields, "at": at}

    times = {"orders": range(1000, 1060), "returns": range(1000, 1060), "users": range(900)}
    return {topic: [row(at) for at in sorted(draw.choices(among, k=60))] for topic, among in times.items()}


@pytest.mark.parametrize("seed", range(CASES))
def test_pairs_of_streams_and_merged_streams_are_what_try_gives(
    spark: Any, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, parts = random.Random(seed), list[Any]()
    monkeypatch.setattr(grouped_queries, "stretches", lambda *spans: parts.append(stretches(*spans)) or parts[-1])
    window = draw.choice(
        ("within: 5ms, grace: 1ms", "before: 0ms, after: 7ms, grace: 2ms", "before: 9ms, after: -2ms, grace: 5ms")
    )
    # In several tasks, as with many records: the pairs of a key must be in one of them.
    settings = {_BROADCAST: ("-1", "10MB")[seed % 2], "spark.sql.adaptive.coalescePartitions.enabled": "false"}
    with changed_settings(spark, settings):
        lines = paired(spark, tmp_path, window, streams(draw), ("returns", "users"))
    assert not [line for line in lines if "not sql" in line or "after all" in line], lines
    ((first, *others),) = parts
    assert others
    assert all(first)


def test_tasks_that_merge_files_follow_each_other() -> None:
    draw = random.Random(0)
    most = 0
    for _ in range(200):
        spans, records = list[list[Span]](), dict[str, list[tuple[int, int, int]]]()
        for place in range(3):
            times = sorted(draw.choices(range(40), k=12))
            cuts = [0, *sorted(draw.sample(range(1, 12), draw.randrange(4))), 12]
            spans.append([])
            for begin, end in pairwise(cuts):
                name = f"{place} {begin}"
                records[name] = [(times[at], place, at) for at in range(begin, end)]
                spans[-1].append(Span(times[begin], times[end - 1], name, end - begin))
        parts = stretches(spans, draw.randrange(1, 6))
        most = max(most, len(parts))
        found = [sorted(chain.from_iterable(records[span.path] for span in chain(*part))) for part in parts]
        assert list(chain(*found)) == sorted(chain.from_iterable(records.values()))
    assert most > 2


@pytest.mark.parametrize(
    ("window", "late", "reason"),
    [
        ("within: 5ms, grace: 1ms", True, "records of orders have earlier times than records before them"),
        ("before: 5ms, after: 0ms", False, "step join: a record is at the end of its window, which has no grace"),
    ],
)
def test_pairs_that_depend_on_a_partition_are_left_to_python(
    spark: Any, tmp_path: Path, window: str, late: bool, reason: str
) -> None:
    rows = streams(random.Random(0))
    del rows["users"]
    if late:
        rows["orders"][9], rows["orders"][40] = rows["orders"][40], rows["orders"][9]
    lines = paired(spark, tmp_path, window, rows)
    assert [
        line for line in lines if line.startswith("all stages run in Python after all") and line.endswith(reason)
    ], lines


ALONE = """\
streamkit: 1
application: alone
topics:
  orders: {value: json}
  returns: {value: json}
  left: {value: json}
  outer: {value: json}
  counted: {key: string, value: long}
pipelines:
  orders: {stream: orders, steps: [{filter: value is None or value.n < 3}]}
  returns: {stream: returns}
  left:
    from: orders
    steps:
      - left_join: {with: returns, WINDOW, value: "{'n': left.n, 'other': None if right is None else right.item}"}
      - filter: value.n != 1
    to: left
  both:
    from: returns
    steps:
      - outer_join:
          with: orders
          WHEN
          value: "{'left': None if left is None else left.n, 'right': None if right is None else right.n}"
  outer: {from: both, to: outer}
  counted: {from: both, steps: [{group_by_key: {value_serde: json}}, count, to_stream], to: counted}
"""


@pytest.mark.parametrize("seed", range(CASES))
def test_records_without_a_partner_are_emitted_where_try_emits_them(spark: Any, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    windows = [(2, 2, 1), (0, 7, 2), (4, -2, 5), (-3, 8, 4), (6, 0, 1), (1, 9, 0), (30, 2, 0)]
    texts = [
        f"before: {before}ms, after: {after}ms, grace: {grace}ms" for before, after, grace in draw.choices(windows, k=2)
    ]
    text = ALONE.replace("WINDOW", texts[0]).replace("WHEN", texts[1].replace(", ", "\n          "))
    rows = streams(draw)
    del rows["users"]
    for found in rows.values():
        for row in found:
            row["k"] = draw.choice(TEXTS)
    kinds = {"left": ",value=n bigint,other string", "outer": ",value=left bigint,right bigint", "counted": ""}
    with changed_settings(spark, {_BROADCAST: ("10MB", "-1")[seed % 2]}):
        lines = written(spark, tmp_path, text, rows, kinds, ("returns",))
    assert not [line for line in lines if "not sql" in line or "after all" in line], lines


def engines(folder: Path, text: str, inputs: dict[str, pa.Schema], outputs: dict[str, str]) -> list[Choice]:
    """The engine of each stage, without a session of Spark. inputs: schemas by topic; outputs: types of columns by topic."""
    path = folder / "topology.yaml"
    path.write_text(text, encoding="utf-8")
    plan = load(path)
    for topic, schema in inputs.items():
        pyarrow.parquet.write_table(schema.empty_table(), folder / f"{topic}.parquet")
    whole = {topic: "" if "value" in schema.names else ",value=*" for topic, schema in inputs.items()}
    places = inputs_of(plan, [f"{topic}={folder}/{topic}.parquet{each}" for topic, each in whole.items()])
    targets = outputs_of(plan, [f"{topic}={folder}/{topic}-out.parquet{types}" for topic, types in outputs.items()])
    options, counts = JobOptions(places, targets), declared_counts(plan, places)
    prepared = prepare(plan, options, counts, columns=known_columns(places), creates=False)
    return list(prepared.job.engines.values())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{value: json}", "{value: json, partitions: 2}"),
        ("steps: [{filter", "steps: [{select_key: value.item}, {filter"),
    ],
)
def test_emissions_that_several_tasks_determine_are_left_to_python(tmp_path: Path, old: str, new: str) -> None:
    text = ALONE.replace("WINDOW", "within: 5ms").replace("WHEN", "within: 5ms")
    value = pa.struct({"n": pa.int64(), "item": pa.string()})
    schema = pa.schema({"key": pa.string(), "value": value, "timestamp": pa.int64()})
    outputs = {"left": ",value=n bigint", "outer": ",value=left bigint", "counted": ""}
    choices = engines(tmp_path, text.replace(old, new, 3), {"orders": schema, "returns": schema}, outputs)
    assert any("several tasks have records" in choice.reason for choice in choices)


CALCULATED = """\
streamkit: 1
application: calculated
topics:
  orders: {value: json}
  returns: {value: json}
  out: {value: long}
pipelines:
  others: {stream: returns}
  all:
    stream: orders
    steps: [{map_values: "{'n': value.n + 1}"}, {join: {with: others, within: 5ms, grace: 1ms, value: left.n + right.n}}]
    to: out
"""


@pytest.mark.parametrize(
    ("key", "returns"),
    [(None, [{"key": "a", "n": 1, "timestamp": 1}]), ("b", [])],
)
def test_a_record_fails_before_a_join_leaves_it_out(
    spark: Any, tmp_path: Path, key: str | None, returns: list[dict[str, Any]]
) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(CALCULATED, encoding="utf-8")
    plan = load(path)
    orders = [{"key": "a", "n": 1, "timestamp": 2}, {"key": key, "n": None, "timestamp": 3}]
    schema = pa.schema([("key", pa.string()), ("n", pa.int64()), ("timestamp", pa.int64())])
    for topic, rows in (("orders", orders), ("returns", returns)):
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows, schema), tmp_path / f"{topic}.parquet")
    places = inputs_of(plan, [f"{topic}={tmp_path}/{topic}.parquet,value=*" for topic in ("orders", "returns")])
    options = JobOptions(places, outputs_of(plan, [f"out={tmp_path}/out.parquet"]))
    lines: list[str] = []
    with pytest.raises(StreamkitError, match=r"an absent value \(null\) \+ a whole number"):
        submit(plan, options, spark, lines.append)
    assert lines[0].endswith("engine sql")


TWO = """\
streamkit: 1
application: two
topics:
  orders: {key: ONE, value: json, partitions: ORDERS}
  returns: {key: OTHER, value: json, partitions: RETURNS}
  out: {key: OTHER, value: long}
pipelines:
  all: {stream: [orders, returns], steps: [{group_by_key: {key_serde: OTHER}}, count, to_stream], to: out}
"""


@pytest.mark.parametrize(
    ("keys", "counts", "reason"),
    [
        (("string", "string"), (2, 3), "orders and returns have different numbers of partitions"),
        (("integer", "long"), (2, 2), "orders and returns have keys of different serdes"),
        (("string", "string"), (2, 2), ""),
        (("integer", "long"), (1, 1), ""),
    ],
)
def test_keys_that_several_tasks_have_are_left_to_python(
    tmp_path: Path, keys: tuple[str, str], counts: tuple[int, int], reason: str
) -> None:
    text = TWO.replace("ONE", keys[0]).replace("OTHER", keys[1])
    text = text.replace("ORDERS", str(counts[0])).replace("RETURNS", str(counts[1]))
    kinds = {"string": pa.string(), "integer": pa.int32(), "long": pa.int64()}
    inputs = {
        topic: pa.schema([("key", kinds[key]), ("n", pa.int64()), ("timestamp", pa.int64())])
        for topic, key in zip(("orders", "returns"), keys, strict=True)
    }
    (choice,) = engines(tmp_path, text, inputs, {"out": ""})
    assert (choice.engine == SQL) == (not reason), choice.reason
    assert reason in choice.reason


TABLES_JOINED = """\
streamkit: 1
application: tables
defaults: {key: string, value: string}
topics:
  lefts: {}
  rights: {value: json}
  inner: {value: json}
  left: {value: json}
  outer: {value: json}
pipelines:
  lefts: {table: lefts, store: lefts}
  rights: {table: rights, store: rights}
  texts: {from: rights, steps: [{map_values: {value: value.item, value_serde: string}}]}
  inner:
    from: lefts
    steps: [{join: {with: rights, value: "[left, right.item]", value_serde: json}}, to_stream]
    to: inner
  left:
    from: lefts
    steps: [{left_join: {with: texts, value: "{'key': key, 'all': [left, right]}", value_serde: json, store: kept}}, to_stream]
    to: left
  outer:
    from: lefts
    steps: [{outer_join: {with: rights, value: "[left, None if right is None else right.item]", value_serde: json}}, to_stream]
    to: outer
"""
KINDS = {
    "inner": ",value=array<string>",
    "left": ",value=key string,all array<string>",
    "outer": ",value=array<string>",
}


def changes(draw: random.Random, deleted: float) -> dict[str, list[dict[str, Any]]]:
    """Rows of two tables in the order of their times, with deletions at their end."""
    found: dict[str, list[dict[str, Any]]] = {}
    for topic in ("lefts", "rights"):
        rows = [
            {"k": f"{draw.randrange(40)}", "v": draw.choice(TEXTS), "at": at}
            for at in sorted(draw.choices(range(50), k=80))
        ]
        # A key that only one table deletes; some have had no row.
        keys = [f"{key}" for key in range(topic == "rights", 44, 2) if draw.random() < deleted]
        times = sorted(draw.choices(range(50, 60), k=len(keys)))
        found[topic] = [*rows, *({"k": key, "v": None, "at": at} for key, at in zip(keys, times, strict=True))]
    return found


def joined_tables(
    spark: Any,
    folder: Path,
    rows: dict[str, list[dict[str, Any]]],
    text: str = TABLES_JOINED,
    kinds: dict[str, str] = KINDS,
) -> list[str]:
    """Run joins of tables, and compare what they wrote with `try`; return what the job reports.

    kinds: the topics that the job writes, with the types of their columns.
    """
    path = folder / "topology.yaml"
    path.write_text(text, encoding="utf-8")
    plan = load(path)
    records, places = [], []
    for topic, found in rows.items():
        is_item = topic == "rights" and kinds is KINDS
        made = [row | {"v": {"item": row["v"]} if is_item and row["v"] is not None else row["v"]} for row in found]
        records += [{"topic": topic, "key": row["k"], "value": row["v"], "timestamp": row["at"]} for row in made]
        pyarrow.parquet.write_table(pa.Table.from_pylist(made), folder / f"{topic}.parquet", row_group_size=13)
        places.append(f"{topic}={folder}/{topic}.parquet,key=k,value=v,timestamp=at")
    targets = outputs_of(plan, [f"{topic}={folder}/{topic}-out.parquet{types}" for topic, types in kinds.items()])
    lines: list[str] = []
    submit(plan, JobOptions(inputs_of(plan, places), targets, overwrite=True), spark, lines.append)
    tried_records = tried(path, live_order(plan, records))
    for topic in kinds:
        last = {record["key"]: record for record in tried_records if record["topic"] == topic}
        files = sorted((folder / f"{topic}-out.parquet").glob("part-*"))
        out = [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]
        expected = [as_row(record) for record in last.values()]
        if "all array" in kinds[topic]:
            expected = [
                {"value_key": None, "value_all": None} | {name: cell for name, cell in row.items() if name != "value"}
                for row in expected
            ]
        names = ("key", "value", "value_key", "value_all", "deleted", "timestamp")
        shown = [sorted(str([str(row.get(name)) for name in names]) for row in side) for side in (out, expected)]
        assert shown[0] == shown[1], topic
    return lines


@pytest.mark.parametrize("deleted", [0, 0.3])
@pytest.mark.parametrize("seed", range(CASES))
def test_joins_of_tables_are_what_try_gives(spark: Any, tmp_path: Path, seed: int, deleted: float) -> None:
    draw = random.Random(seed)
    rows = changes(draw, deleted)
    if not deleted:
        # Without deletions the order of the changes does not matter.
        for found in rows.values():
            draw.shuffle(found)
    lines = joined_tables(spark, tmp_path, rows)
    assert not [line for line in lines if "not sql" in line or "after all" in line], lines


def test_a_row_that_both_tables_delete_is_left_to_python(spark: Any, tmp_path: Path) -> None:
    rows = changes(random.Random(0), 0)
    for topic, found in rows.items():
        found.append({"k": rows["lefts"][0]["k"], "v": None, "at": 60 + (topic == "rights")})
        found.insert(0, found[0] | {"k": rows["lefts"][0]["k"]})
    lines = joined_tables(spark, tmp_path, rows)
    after_all = "a row of lefts or rights is deleted, and changes before decide"
    assert [line for line in lines if "after all" in line and line.endswith(after_all)], lines


RELATED = """\
streamkit: 1
application: related
defaults: {key: string, value: json}
topics:
  orders: {partitions: 2}
  names: {value: string, partitions: 3}
  rates: {key: integer}
  inner: {}
  left: {}
  rated: {}
  counted: {key: string, value: long}
pipelines:
  orders: {table: orders, store: orders}
  names: {table: names}
  some: {from: names, steps: [{filter: value != 'b'}, {map_values: {value: value, value_serde: string}}]}
  rates: {table: rates, steps: [{filter: {if: "value.item != 'a'", store: valid}}]}
  inner:
    from: orders
    steps: [{join: {with: names, on: value.item, value: "[left.item, right]"}}, to_stream]
    to: inner
  left:
    from: orders
    steps:
      - left_join: {with: some, on: value.item, value: "{'key': left.item, 'all': [right]}"}
      - to_stream
    to: left
  rated:
    from: orders
    steps:
      - filter: value.item != 'a'
      - map_values: "{'n': value.n, 'item': value.item}"
      - join: {with: rates, on: value.n if value.n != 2 else None, value: "[left.item, right.item]", store: kept}
      - map_values: "value"
      - to_stream
    to: rated
  counted: {from: orders, steps: [group_by: value.item, count, to_stream], to: counted}
"""
SELF = """\
streamkit: 1
application: self
defaults: {key: string, value: json}
topics:
  orders: {partitions: 2}
  inner: {}
  left: {}
pipelines:
  orders: {table: orders, store: orders}
  some: {from: orders, steps: [{filter: value.item != 'a'}]}
  inner:
    from: orders
    steps: [{join: {with: orders, on: None if value.n is None else str(value.n), value: "[left.item, right.item]"}}, to_stream]
    to: inner
  left:
    from: some
    steps:
      - left_join: {with: orders, on: str(value.n or 0), value: "{'key': left.item, 'all': [None if right is None else right.item]}"}
      - to_stream
    to: left
"""
SELF_KINDS = {"inner": ",value=array<string>", "left": ",value=key string,all array<string>"}
RELATED_KINDS = {
    **SELF_KINDS,
    "rated": ",value=array<string>",
    "counted": "",
}


def related(draw: random.Random, order: str) -> dict[str, list[dict[str, Any]]]:
    """Rows of tables that foreign keys relate: deleted, written again, with and without a foreign key, at equal times.

    order: by time; apart, if all names and rates come before the orders, in no order of their times; or mixed.
    """

    def times(topic: str, count: int) -> list[int]:
        found = draw.choices(range(16), k=count)
        if order == "apart" and topic == "orders":
            return [time + 16 for time in found]
        return sorted(found) if order == "by time" else found

    def order_row(at: int) -> dict[str, Any]:
        value = {"n": draw.choice((None, *range(4))), "item": draw.choice((None, *TEXTS[:5]))}
        return {"k": f"{draw.randrange(90)}", "v": None if draw.random() < 0.2 else value, "at": at}

    texts = (None, None, *TEXTS[:4])
    rows = {
        "orders": [order_row(at) for at in times("orders", 350)],
        "names": [{"k": draw.choice(TEXTS[:4]), "v": draw.choice(texts), "at": at} for at in times("names", 12)],
        "rates": [
            {"k": draw.randrange(3), "v": draw.choice((None, {"item": draw.choice(TEXTS)})), "at": at}
            for at in times("rates", 8)
        ],
    }
    if order == "by time":
        # A task takes names before orders of the same time, and rates after them.
        rows["orders"].append({"k": "tie", "v": {"n": 9, "item": "tie"}, "at": 16})
        rows["names"].append({"k": "tie", "v": None, "at": 16})
        rows["rates"].append({"k": 9, "v": None, "at": 16})
    return rows


@pytest.mark.parametrize("order", ["by time", "apart", "mixed"])
@pytest.mark.parametrize("seed", range(CASES))
def test_foreign_key_joins_are_what_try_gives(spark: Any, tmp_path: Path, seed: int, order: str) -> None:
    rows = related(random.Random(seed), order)
    # Several partitions have an order of their own if changes are in no order of their times.
    text = RELATED.replace(": 2}", ": 1}").replace("partitions: 3", "partitions: 1") if order == "mixed" else RELATED
    lines = joined_tables(spark, tmp_path, rows, text, RELATED_KINDS)
    assert not [line for line in lines if "not sql" in line], lines
    late = [line for line in lines if "after all" in line]
    if order == "mixed":
        assert late[0].endswith("the changes of orders and names are not in the order of their timestamps")
    else:
        assert not late


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("on: value.item,", "on: value.item, partition: 0,", "`partition` chooses the partitions of its topics"),
        ("on: value.item,", "on: value.n,", "a whole number is no key of names"),
        (
            "table: names",
            "table: names, store: {name: names, versioned: 1m}",
            "its table keeps versions, or rows for some time",
        ),
        ("store: kept", "store: {name: kept, versioned: 1m}", "its table keeps versions, or rows for some time"),
        (
            "filter: value.item != 'a'",
            "filter: value.n > timestamp",
            "only the key and the value of a record are columns",
        ),
        ("group_by: value.item", "group_by: timestamp", "only the key and the value of a record are columns"),
    ],
)
def test_a_foreign_key_join_without_a_query_says_why(tmp_path: Path, old: str, new: str, reason: str) -> None:
    value = pa.struct({"n": pa.int64(), "item": pa.string()})
    schemas = {
        topic: pa.schema({"key": key, "value": kind, "timestamp": pa.int64()})
        for topic, key, kind in (
            ("orders", pa.string(), value),
            ("names", pa.string(), pa.string()),
            ("rates", pa.int32(), value),
        )
    }
    choices = engines(tmp_path, RELATED, schemas, RELATED_KINDS)
    assert all(choice.engine == SQL for choice in choices), choices
    assert old in RELATED
    choices = engines(tmp_path, RELATED.replace(old, new, 1), schemas, RELATED_KINDS)
    assert reason in choices[0].reason, choices


@pytest.mark.parametrize("seed", range(CASES))
def test_a_join_of_a_table_with_itself_is_what_try_gives(spark: Any, tmp_path: Path, seed: int) -> None:
    rows = {"orders": related(random.Random(seed), "by time")["orders"]}
    for at, row in enumerate(rows["orders"]):
        row["at"] = at
        # Foreign keys are 0 to 3.
        row["k"] = f"{at % 4}" if at % 5 == 0 else row["k"]
    lines = joined_tables(spark, tmp_path, rows, SELF, SELF_KINDS)
    assert not [line for line in lines if "not sql" in line or "after all" in line], lines


def test_a_deletion_that_concerns_its_own_row_is_left_to_python(spark: Any, tmp_path: Path) -> None:
    """The response to the deletion is stale, so that the join keeps the row."""
    rows = {"orders": [{"k": "0", "v": {"n": 0, "item": item}, "at": at} for at, item in enumerate("ba")]}
    text = SELF.replace("with: orders, on: None", "with: some, on: None")
    lines = joined_tables(spark, tmp_path, rows, text, SELF_KINDS)
    assert [line for line in lines if "after all: a row of orders is deleted, and changes before decide" in line], lines
