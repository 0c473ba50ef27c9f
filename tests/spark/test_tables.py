"""Tables as they lie in a lake, read as records: columns by name, of every type, in every format."""

from __future__ import annotations

import gzip
import json
import pickle
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from streamkit.errors import ConfigError, StreamkitError, UsageError
from streamkit.plan import load
from streamkit.runtime.spark.job_options import JSON_LINES, Columns, JobOptions, Place, parse_place
from streamkit.runtime.spark.rows.files import open_files
from streamkit.runtime.spark.rows.output_columns import arranged, layout_of, write_columns
from streamkit.runtime.spark.spark_session import Cluster, _settings, check_meaning, open_session, translated
from streamkit.runtime.spark.submission.incremental import submit_next
from streamkit.runtime.spark.submission.lake_sample import sample_in
from streamkit.runtime.spark.submission.request import inputs_of
from streamkit.runtime.spark.submission.submit_job import check, submit
from streamkit.runtime.spark.workers import arrow_rows
from tests.spark.support import SETTINGS, read_lines, write_lines

COPY = """\
streamkit: 1
application: tables
topics:
  orders: {key: KEY, value: VALUE, partitions: 1}
  out: {key: KEY, value: VALUE}
pipelines: {copy: {stream: orders, to: out}}
"""
ORDERS = [
    ("ann", 7, Decimal("12.30"), datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC)),
    ("bob", 8, None, datetime(2026, 1, 31, 12, 0, 1, tzinfo=UTC)),
    ("ann", 9, Decimal("0.05"), datetime(1970, 1, 1, 0, 0, 0, 1999, UTC)),
]
DDL = "user_id string, item int, amount decimal(10,2), ts timestamp"


def copied(spark: Any, text: str, folder: Path, key: str = "string", value: str = "json") -> list[dict]:
    """The records that a copy of an input has; text: as after --input orders=."""
    folder.mkdir(exist_ok=True)
    path = folder / "topology.yaml"
    path.write_text(COPY.replace("KEY", key).replace("VALUE", value))
    _, place = parse_place(f"orders={text}", "--input")
    assert place is not None
    out = folder / "copies"
    submit(load(path), JobOptions({"orders": (place,)}, {"out": Place(str(out), JSON_LINES)}, overwrite=True), spark)
    return [{name: record[name] for name in ("key", "value", "timestamp")} for record in read_lines(out)]


@pytest.fixture(scope="module")
def orders(spark: Any) -> Any:
    """A table of three orders."""
    return spark.createDataFrame(ORDERS, DDL)


@pytest.mark.parametrize("kind", ["parquet", "orc", "json"])
def test_a_table_of_orders(kind: str, spark: Any, orders: Any, tmp_path: Path) -> None:
    orders.coalesce(1).write.format(kind).save(str(tmp_path / "lake"))
    # Spark's JSON has no decimals and no times: what it infers from them is numbers and text.
    ts = (
        "timestamp=to_timestamp(ts),value=user_id,item,amount,format=json" if kind == "json" else "timestamp=ts,value=*"
    )
    found = copied(spark, f"{tmp_path}/lake,key=user_id,{ts}", tmp_path)
    times = ["2026-01-31T12:00:00.25Z", "2026-01-31T12:00:01Z", "1970-01-01T00:00:00.001999Z"]
    expected = [
        {"user_id": user, "item": item, "amount": None if amount is None else float(amount)}
        for user, item, amount, _ in ORDERS
    ]
    if kind != "json":
        expected = [{**row, "ts": text} for row, text in zip(expected, times, strict=True)]
    assert [record["value"] for record in found] == expected
    assert [record["key"] for record in found] == ["ann", "bob", "ann"]
    assert [record["timestamp"] for record in found] == [1769860800250, 1769860801000, 1]


def test_a_csv_with_a_header_and_a_separator(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("user_id;amount;ts\nann;12.30;2026-01-31T12:00:00Z\nbob;;1769860801000\n")
    found = copied(
        spark,
        f"{tmp_path}/orders.csv,key=user_id,value=amount,timestamp=ts,options.sep=;",
        tmp_path,
        value="string",
    )
    assert found == [
        {"key": "ann", "value": "12.30", "timestamp": 1769860800000},
        {"key": "bob", "value": None, "timestamp": 1769860801000},
    ]


def test_rows_that_differ_only_in_bytes_or_in_lists_have_an_order(spark: Any, tmp_path: Path) -> None:
    for n, (one, other) in enumerate((("X'80'", "X'81'"), ("array('a, b')", "array('a', 'b')"))):
        spark.sql(f"SELECT 1L at, {one} value UNION ALL SELECT 1L at, {other} value").createOrReplaceTempView(
            f"alike{n}"
        )
        _, place = parse_place(f"orders=alike{n},format=table,value=value,timestamp=at", "--input")
        assert place is not None
        assert open_files(spark, place).frame.select("_streamkit_row", "_streamkit_block").distinct().count() == 2


def test_directories_of_days_and_a_condition_that_reaches_the_scan(spark: Any, orders: Any, tmp_path: Path) -> None:
    orders.selectExpr("*", "to_date(ts) dt").write.partitionBy("dt").parquet(str(tmp_path / "lake"))
    found = copied(
        spark, f"{tmp_path}/lake,key=user_id,timestamp=ts,value=dt,where=dt > '2026-01-01'", tmp_path, value="string"
    )
    assert [(record["key"], record["value"]) for record in found] == [("ann", "2026-01-31"), ("bob", "2026-01-31")]
    _, place = parse_place(f"orders={tmp_path}/lake,key=user_id,where=dt > '2026-01-01' and item = 7", "--input")
    assert place is not None
    plan = open_files(spark, place).frame._jdf.queryExecution().executedPlan().toString()
    assert re.search(r"PartitionFilters: \[.*dt#", plan), plan
    assert re.search(r"PushedFilters: \[.*EqualTo\(item,7\)", plan), plan


def test_text_that_holds_json_is_what_the_log_would_hold(spark: Any, tmp_path: Path) -> None:
    rows = [("k", '{"n": 1, "s": "ä"}', 5), ("k", None, 6)]
    spark.createDataFrame(rows, "id string, payload string, at bigint").coalesce(1).write.parquet(
        str(tmp_path / "lake")
    )
    found = copied(spark, f"{tmp_path}/lake,key=id,value=payload,timestamp=at", tmp_path)
    assert [record["value"] for record in found] == [{"n": 1, "s": "ä"}, None]


def test_a_table_is_ordered_by_its_time_and_then_by_its_contents(spark: Any, tmp_path: Path) -> None:
    rows = [("k", f"v{at}", datetime.fromtimestamp(at // 3, UTC)) for at in range(60)]
    spark.createDataFrame(rows[::-1], "id string, v string, at timestamp").repartition(7).createOrReplaceTempView(
        "unordered"
    )
    once = copied(spark, "unordered,format=table,key=id,value=v,timestamp=at", tmp_path, value="string")
    spark.createDataFrame(rows, "id string, v string, at timestamp").repartition(3).createOrReplaceTempView("unordered")
    assert once == copied(spark, "unordered,format=table,key=id,value=v,timestamp=at", tmp_path, value="string")
    assert [record["timestamp"] for record in once] == [at // 3 * 1000 for at in range(60)]


EVERY_TYPE = {
    "boolean": ("true", True),
    "tinyint": ("cast(-3 as tinyint)", -3),
    "smallint": ("cast(3 as smallint)", 3),
    "int": ("7", 7),
    "bigint": ("9223372036854775807", 2**63 - 1),
    "float": ("cast(0.5 as float)", 0.5),
    "double": ("1e300d", 1e300),
    "decimal(15,4)": ("cast(12345678901.2345 as decimal(15,4))", 12345678901.2345),
    "decimal(18,0)": ("cast(999999999999999999 as decimal(18,0))", 10**18 - 1),
    "string": ("'ä'", "ä"),
    "date": ("date'2026-02-28'", "2026-02-28"),
    "timestamp": ("timestamp'2026-10-25 00:30:00.123456Z'", "2026-10-25T00:30:00.123456Z"),
    "timestamp_ntz": ("timestamp_ntz'2026-10-25 02:30:00'", "2026-10-25T02:30:00"),
    "array<date>": ("array(date'2026-02-28', null)", ["2026-02-28", None]),
    "array<int>": ("array(1, 2)", [1, 2]),
    "map<string,timestamp>": ("map('a', timestamp'2026-01-01 00:00:00Z')", {"a": "2026-01-01T00:00:00Z"}),
    "struct<d:date,s:struct<n:int>>": ("struct(date'2026-02-28' d, struct(1 n) s)", {"d": "2026-02-28", "s": {"n": 1}}),
    "void": ("null", None),
    "null struct": ("cast(null as struct<d:date>)", None),
}


def test_every_type_in_an_object(spark: Any, tmp_path: Path) -> None:
    fields = ", ".join(f"{text} `{name}`" for name, (text, _) in EVERY_TYPE.items())
    spark.sql(f"select {fields}, 1 at").createOrReplaceTempView("types")
    (record,) = copied(spark, "types,format=table,value=*,timestamp=at", tmp_path)
    assert record["value"] == {name: value for name, (_, value) in EVERY_TYPE.items()} | {"at": 1}
    assert list(record["value"]) == [*EVERY_TYPE, "at"]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("1.5bd + cast(1 as decimal(38,2))", r"value.c is of type decimal\(38,2\).*cast\(value.c as string\)"),
        ("x'ff'", r"value.c is of type binary.*base64\(value.c\)"),
        ("map(1, 2)", r"value.c is of type map<int,int>.*transform_keys"),
        ("interval '1' day", "value.c is of type interval day"),
        ("parse_json('1')", "value.c is of type variant"),
    ],
)
def test_a_type_without_a_form_is_refused_before_anything_runs(
    column: str, words: str, spark: Any, tmp_path: Path
) -> None:
    spark.sql(f"select {column} c, raise_error('ran') e, 1 at").createOrReplaceTempView("refused")
    with pytest.raises(StreamkitError, match=words):
        copied(spark, "refused,format=table,value=*,timestamp=at", tmp_path)


@pytest.mark.parametrize(
    ("settings", "serdes", "words"),
    [
        (
            "key=item,value=*,timestamp=ts",
            {},
            r"key is of type int.*takes text as its key.*key=cast\(COLUMN as string\)",
        ),
        (
            "key=user_id,value=user_id,timestamp=ts",
            {"value": "long"},
            r"value is of type string.*takes a whole number.*value=cast\(COLUMN as bigint\)",
        ),
        (
            "key=user_id,value=*,timestamp=ts,where=usr_id > 3",
            {},
            r": where=usr_id > 3: Spark: \[UNRESOLVED_COLUMN.*`usr_id`.*`user_id`",
        ),
        ("key=lower(usr_id),value=*,timestamp=ts", {}, r"/lake: Spark: \[UNRESOLVED_COLUMN.*`usr_id`.*`user_id`"),
        ("key=usr_id,value=*,timestamp=ts", {}, "key=usr_id: no such column; did you mean 'user_id'"),
        (
            "key=usr_id,value=itm,timestamp=t",
            {},
            "key=usr_id: no such column.*\n.*/lake: value=itm: no such column.*\n.*/lake: timestamp=t: no such",
        ),
        (
            "key=item,value=user_id",
            {"value": "long"},
            "column timestamp(.|\n)*key is of type int(.|\n)*value is of type str",
        ),
        ("key=user_id,timestamp=ts", {}, "there is no column value for .*value=COLUMN, or all of them with [*]"),
        ("key=user_id,value=*", {}, "there is no column timestamp for "),
        ("value=*,timestamp=amount", {}, "timestamp=amount is of type decimal"),
    ],
)
def test_a_part_that_does_not_fit(
    settings: str, serdes: dict, words: str, spark: Any, orders: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    orders.write.parquet(str(tmp_path / "lake"))
    with pytest.raises(StreamkitError, match=words):
        copied(spark, f"{tmp_path}/lake,{settings}", tmp_path, **serdes)
    assert caplog.text == "", "the line alone tells what is wrong, without stack traces of PySpark"


@pytest.mark.parametrize("serde", ["long", "{avro: row.avsc}"])
def test_a_column_without_any_value_is_the_null_value(serde: str, spark: Any, tmp_path: Path) -> None:
    (tmp_path / "row.avsc").write_text('{"type": "record", "name": "Row", "fields": [{"name": "n", "type": "int"}]}')
    path = tmp_path / "topology.yaml"
    path.write_text(COPY.replace("KEY", "string").replace("VALUE", serde))
    plan = load(path)

    def values(text: str) -> list[Any]:
        return [record["value"] for record in sample_in(spark, plan, inputs_of(plan, [f"orders={text}"]), 9)]

    spark.sql("select explode(array('a', 'b')) k, null v, 1 at").createOrReplaceTempView("nothing")
    assert values("nothing,format=table,key=k,value=v,timestamp=at") == [None, None]
    # Spark infers text for a field without values.
    (tmp_path / "in.json").write_text('{"k": "a", "v": null, "at": 1}\n{"k": "b", "at": 1, "v": null}\n')
    assert values(f"{tmp_path}/in.json,key=k,value=v,timestamp=at") == [None, None]
    (tmp_path / "in.json").write_text('{"k": "a", "v": null, "at": 1}\n{"k": "b", "at": 1, "v": "7"}\n')
    with (
        pytest.raises(StreamkitError, match=r"value is of type string: the topic takes|must be an object"),
        translated(),
    ):
        values(f"{tmp_path}/in.json,key=k,value=v,timestamp=at")


def test_headers_and_a_whole_number_of_milliseconds(spark: Any, tmp_path: Path) -> None:
    spark.sql("select 'a' k, timestamp'2026-01-01 00:00:00.001Z' v, 's' src, 1 at").createOrReplaceTempView("stamped")
    columns = Columns("k", "v", "at", {"source": "src", "none": "cast(null as string)"})
    path = tmp_path / "topology.yaml"
    path.write_text(COPY.replace("KEY", "string").replace("VALUE", "long"))
    place = Place("stamped", "table", columns=columns)
    submit(load(path), JobOptions({"orders": (place,)}, {"out": Place(str(tmp_path / "out"), JSON_LINES)}), spark)
    (record,) = read_lines(tmp_path / "out")
    assert (record["value"], record["headers"]) == (1767225600001, [["source", "s"], ["none", None]])
    spark.sql("select 'a' k, timestamp'2026-01-01 00:00:00.0015Z' v, 's' src, 1 at").createOrReplaceTempView("stamped")
    with pytest.raises(StreamkitError, match="not a whole number of milliseconds; value=unix_millis"):
        copied(spark, "stamped,format=table,key=k,value=v,timestamp=at", tmp_path, value="long")


def test_lines_of_a_topic_that_the_topology_does_not_have(spark: Any, tmp_path: Path) -> None:
    line = {"topic": "order", "key": "k", "value": 1, "timestamp": 1}
    (tmp_path / "in.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(StreamkitError, match=r"in\.jsonl:1: .*no topic 'order'; did you mean 'orders'"):
        copied(spark, f"{tmp_path}/in.jsonl", tmp_path)


def test_files_of_several_topics(spark: Any, tmp_path: Path) -> None:
    """As `--output '*=DIR'` writes them: their column `topic` names the topics."""
    rows = [("orders", "k", "1", 5), ("out", "k", "2", 6)]
    spark.createDataFrame(rows, "topic string, key string, value string, timestamp bigint").coalesce(1).write.parquet(
        str(tmp_path / "lake")
    )
    assert copied(spark, f"{tmp_path}/lake", tmp_path) == [{"key": "k", "value": 1, "timestamp": 5}]
    # With settings, the column is one as any other.
    assert len(copied(spark, f"{tmp_path}/lake,value=topic,timestamp=timestamp", tmp_path, value="string")) == 2
    other = spark.sql("select 'order' topic, '1' value, 1L timestamp")
    other.write.parquet(str(tmp_path / "other"))
    # The output of another job, whose topic has another name.
    assert len(copied(spark, f"{tmp_path}/other", tmp_path)) == 1
    other.replace("order", "orders").write.parquet(str(tmp_path / "other"), mode="append")
    with pytest.raises(StreamkitError, match=r"/other: column topic: .*no topic 'order'; did you mean 'orders'"):
        copied(spark, f"{tmp_path}/other", tmp_path)


def test_files_of_several_topics_in_runs(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "topology.yaml").write_text(COPY.replace("KEY", "string").replace("VALUE", "json"))
    lake, out = tmp_path / "lake", tmp_path / "out"
    rows = [("orders", "k", "1", 5), ("out", "k", "2", 6)], [("out", "k", "3", 7)]
    for number, of_run in enumerate(rows, 1):
        frame = spark.createDataFrame(of_run, "topic string, key string, value string, timestamp bigint")
        frame.coalesce(1).write.parquet(str(lake), mode="append")
        inputs = inputs_of(load(tmp_path / "topology.yaml"), [f"orders={lake}"])
        options = JobOptions(inputs, {"out": Place(str(out), JSON_LINES)}, checkpoint=str(tmp_path / "state"))
        submit_next(load(tmp_path / "topology.yaml"), options, spark)
        # The only topic of the second run is not another name of the first one's.
        assert len(read_lines(out / f"run={number:06}")) == 2 - number


def test_a_condition_that_is_true_for_negative_zeros(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"p": [-0.0, 5.0, -0.0], "n": [1, 2, 3]}), tmp_path / "in.parquet")
    for condition in ("p = 0", "p in (0.0, 7)"):
        found = copied(spark, f"{tmp_path}/in.parquet,value=n,timestamp=0,where={condition}", tmp_path)
        assert [record["value"] for record in found] == [1, 3]


def test_topics_as_bytes(spark: Any, tmp_path: Path) -> None:
    """Not all writers of Parquet say that their bytes are text."""
    rows = {"topic": [b"orders", b"out"], "value": ["1", "2"], "timestamp": [5, 6]}
    pq.write_table(pa.table(rows), tmp_path / "in.parquet")
    assert [record["value"] for record in copied(spark, f"{tmp_path}/in.parquet", tmp_path)] == [1]


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_table_of_text_has_no_nulls_for_what_does_not_fit(kind: str, spark: Any, tmp_path: Path) -> None:
    (tmp_path / f"in.{kind}").write_text({"csv": "1\nx\n", "json": '{"n":1}\n{"n":"x"}\n'}[kind])
    spark.sql(f"CREATE TABLE strict_{kind} (n int) USING {kind} LOCATION '{tmp_path}/in.{kind}'")
    with pytest.raises(StreamkitError, match=r"in\.\w+ can't be read: .*MALFORMED_RECORD"):
        copied(spark, f"strict_{kind},format=table,value=n,timestamp=0,order=0", tmp_path)
    spark.sql(f"DROP TABLE strict_{kind}")


def test_headers_that_have_no_names(spark: Any, tmp_path: Path) -> None:
    for number, (header, words) in enumerate(
        {
            "struct('a' AS k, X'31' AS v)": r"headers is of type array<struct<k:string,v:binary>>; a header is an object with",
            "struct('a' AS key, X'31' AS value, 1 AS more)": r"headers is of type array<.*more:int>>; a header is an object",
            "struct(string(null) AS name, X'31' AS value)": r"headers are \[\(None, b'1'\)\]; a header needs a name",
        }.items()
    ):
        spark.sql(f"SELECT '1' value, 0L timestamp, array({header}) headers").write.parquet(f"{tmp_path}/{number}")
        with pytest.raises(StreamkitError, match=words):
            copied(spark, f"{tmp_path}/{number}", tmp_path)


def test_times_in_orc_on_a_machine_with_another_zone(spark: Any, tmp_path: Path) -> None:
    """Those of ORC have no zone: the JVM reads and writes them in its own one."""
    spark.sql("SELECT timestamp'2026-07-31 12:00:00Z' at").write.orc(str(tmp_path / "lake"))
    zone = spark._jvm.java.util.TimeZone
    before = zone.getDefault()
    zone.setDefault(zone.getTimeZone("America/New_York"))
    try:
        open_session(Cluster("local[2]", SETTINGS), "tests")
        found = copied(spark, f"{tmp_path}/lake,value=at,timestamp=at", tmp_path)
    finally:
        zone.setDefault(before)
    assert [(record["value"], record["timestamp"]) for record in found] == [("2026-07-31T12:00:00Z", 1785499200000)]


def test_times_of_all_years_without_ansi(spark: Any, tmp_path: Path) -> None:
    times = [("+294247-01-10T04:00:54.775807Z", 2**63 - 1), ("1969-12-30T23:59:59.999999Z", -86_400_000_001)]
    sql = " UNION ALL ".join(f"SELECT timestamp_micros({micros}) at, {n} n" for n, (_, micros) in enumerate(times))
    spark.sql(sql).createOrReplaceTempView("years")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        found = copied(spark, "years,format=table,value=at,timestamp=n,order=n", tmp_path)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert [record["value"] for record in found] == [text for text, _ in times]


def test_milliseconds_of_times_that_a_double_does_not_have(spark: Any, tmp_path: Path) -> None:
    times = range(253_402_300_799_000, 253_402_300_799_100)
    spark.range(times.start, times.stop).selectExpr(
        "if(id % 50 = 0, null, timestamp_millis(id)) at", "id - 253402300799000 n"
    ).createOrReplaceTempView("late")
    found = copied(spark, "late,format=table,value=at,timestamp=n,order=n", tmp_path, value="long")
    assert [record["value"] for record in found] == [time if time % 50 else None for time in times]


def test_a_number_that_is_too_large_for_an_order_without_ansi(spark: Any, tmp_path: Path) -> None:
    spark.sql("SELECT 18446744073709552L AS at").createOrReplaceTempView("large")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(StreamkitError, match="timestamp=at: 18446744073709552 is too large"):
            copied(spark, "large,format=table,value=at,timestamp=at", tmp_path)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("timestampType", "TIMESTAMP_NTZ"),
        ("parquet.outputTimestampType", "timestamp_millis"),
        ("legacy.timeParserPolicy", "LEGACY"),
        ("orc.impl", "hive"),
        ("files.ignoredPathSegmentRegex", "^(old|[._])"),
        ("files.ignoredPathSegmentRegex", ""),
        ("files.archive.reader.enabled", "true"),
    ],
)
def test_settings_of_a_session_that_change_results(setting: str, value: str, spark: Any) -> None:
    check_meaning(spark)
    spark.conf.set(f"spark.sql.{setting}", value)
    try:
        with pytest.raises(ConfigError, match=re.escape(f"spark.sql.{setting}={value}: ")):
            check_meaning(spark)
    finally:
        spark.conf.unset(f"spark.sql.{setting}")


def test_null_and_empty_text_differ_in_csv_whatever_the_settings_are() -> None:
    name = "spark.sql.legacy.nullValueWrittenAsQuotedEmptyStringCsv"
    assert _settings(Cluster("local[2]", {name: "true"}), False)[name] == "false"


def test_a_class_that_chooses_files(spark: Any) -> None:
    """Spark passes over the others, also when the job looks for such files."""
    name, hadoop = "mapreduce.input.pathFilter.class", spark._jsc.hadoopConfiguration()
    hadoop.set(name, "com.example.OnlyNew")
    try:
        with pytest.raises(ConfigError, match=rf"^{name}=com.example.OnlyNew: Spark would leave out the files"):
            check_meaning(spark)
    finally:
        hadoop.unset(name)


def test_formats_are_recognized_by_the_files(spark: Any, orders: Any, tmp_path: Path) -> None:
    orders.write.partitionBy("item").parquet(str(tmp_path / "no-suffix"))
    orders.write.orc(str(tmp_path / "other.csv"))
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    (tmp_path / "ice" / "metadata").mkdir(parents=True)
    (tmp_path / "ice" / "metadata" / "v1.metadata.json").touch()
    kinds = {"no-suffix": "parquet", "other.csv": "orc", "delta": "delta", "ice": "iceberg", "missing": "json"}
    for name, kind in kinds.items():
        _, place = parse_place(f"orders={tmp_path}/{name}", "--input")
        assert place is not None
        assert (name, place.format) == (name, kind)
    found = copied(spark, f"file://{tmp_path}/no-suffix,key=user_id,value=amount,timestamp=ts", tmp_path)
    assert len(found) == len(ORDERS)


def test_files_that_spark_does_not_read(spark: Any, tmp_path: Path) -> None:
    def refused(name: str, words: str) -> None:
        file, _, settings = name.partition(",")
        with pytest.raises(StreamkitError, match=words) as caught:
            copied(spark, f"{tmp_path}/{file},{settings or 'key=user,value=*'},timestamp=ts", tmp_path)
        assert str(caught.value).startswith(f"{tmp_path}/{file}: ")
        assert "\n" not in str(caught.value)

    nanoseconds = pa.array([1_000_000_001], pa.timestamp("ns"))
    pq.write_table(pa.table({"user": ["ann"], "ts": nanoseconds}), tmp_path / "times.parquet")
    refused("times.parquet", "in nanoseconds: --conf spark.sql.legacy.parquet.nanosAsLong=true")
    spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    try:
        text = f"{tmp_path}/times.parquet,key=user,value=ts,timestamp=timestamp_micros(ts div 1000)"
        assert copied(spark, text, tmp_path) == [{"key": "ann", "value": 1_000_000_001, "timestamp": 1000}]
    finally:
        spark.conf.unset("spark.sql.legacy.parquet.nanosAsLong")
    (tmp_path / "types").mkdir()
    for name, kind in (("1", pa.int64()), ("2", pa.float64())):
        columns = {"pair": [{"a": 1, "b": 2}], "n": pa.array([1], kind)}
        pq.write_table(pa.table(columns), tmp_path / "types" / f"{name}.parquet")
    refused("types", "files have n as BIGINT and as DOUBLE; read them as two inputs")
    (tmp_path / "empty.parquet").touch()
    refused("empty.parquet", "no file has columns")
    pq.write_table(pa.table({"Partition": [0], "Offset": [7], "ts": [1]}), tmp_path / "topic.parquet")
    refused("topic.parquet,value=ts", "column 'Offset' would not be read; rename it to 'offset', or set offset=Offset")
    for name, path in (("case", "1"), ("Case", "2")):
        (tmp_path / "cases").mkdir(exist_ok=True)
        pq.write_table(pa.table({"user": ["ann"], "ts": [1], name: [1]}), tmp_path / "cases" / f"{path}.parquet")
    refused("cases", "the names of case and Case differ only in case; --conf spark.sql.caseSensitive=true")
    (tmp_path / "twice.json").write_text('{"user": "ann", "User": "bob", "ts": 1}\n')
    refused("twice.json", "the names of User and user differ only in case; --conf spark.sql.caseSensitive=true")
    # Spark knows compressed files by their suffix alone, and would read these as text.
    (tmp_path / "lines.jsonl").write_bytes(gzip.compress(b'{"value": 1, "timestamp": 1}\n'))
    refused("lines.jsonl", "the file is compressed, .* rename it to end with .gz")
    with pytest.raises(StreamkitError, match=r"lines\.jsonl:1: topic orders: not JSON") as caught:
        copied(spark, f"{tmp_path}/lines.jsonl,format=json", tmp_path)
    assert str(caught.value).isprintable()


def test_an_input_without_files_is_reported(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(COPY.replace("KEY", "string").replace("VALUE", "json"))
    (tmp_path / "nothing").mkdir()
    said: list[str] = []
    inputs = {"orders": (Place(str(tmp_path / "nothing"), JSON_LINES),)}
    submit(load(path), JobOptions(inputs, {"out": Place(str(tmp_path / "copies"), JSON_LINES)}), spark, said.append)
    assert f"orders: there are no files in {tmp_path}/nothing" in said
    assert read_lines(tmp_path / "copies") == []
    # Also not one whose rows name their topic, which the job then selects.
    spark.sql("SELECT 'orders' topic, '1' value, 1L timestamp").write.parquet(str(tmp_path / "lake"))
    said.clear()
    inputs, copies = inputs_of(load(path), [f"orders={tmp_path}/lake"]), Place(str(tmp_path / "others"), JSON_LINES)
    submit(load(path), JobOptions(inputs, {"out": copies}), spark, said.append)
    assert not any("there are no files" in line for line in said)


def test_rows_of_text_that_one_timestamp_would_order(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "dump.txt").write_text('{"n":1}\n{"n":2}\n')
    place = f"{tmp_path}/dump.txt,format=text,value=value,timestamp=0"
    with pytest.raises(
        StreamkitError, match=r"timestamp=0 is the same for all rows.*, with order=COLUMN; order=0 takes"
    ):
        copied(spark, place, tmp_path)
    assert len(copied(spark, f"{place},order=0", tmp_path)) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("o=/a,colour=red", "unknown setting 'colour'"),
        ("o=/a,kye=red", "unknown setting 'kye'; did you mean 'key'"),
        ("o=/a,key=", "key is empty"),
        ("o=/a,key=a,key=b", "once each"),
        ("o=/a,red", "not 'red'"),
        ("o=/a,value=if(a,key=b", "value has a bracket that is not closed"),
        ("o=/a,options.mode=PERMISSIVE", "never left out"),
        ("o=/a,options.enforceSchema=true", "read by their names"),
        ("o=/a,options.ignoreExtension=false", "whatever their names are"),
        ("o=/a,options.ignoredPathSegmentRegex=^old", "begins with _ or ."),
        ("o=/a,options.archivePathFilter=*.csv", "archives are not read"),
    ],
)
def test_wrong_settings(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_place(text, "--input")


def test_a_condition_takes_the_rest_of_the_text() -> None:
    _, place = parse_place("o=/a,value=x,y,where=a = 1 and b in ('c,d=e', 'f')", "--input")
    assert place is not None
    assert (place.columns.value, place.columns.where) == ("x,y", "a = 1 and b in ('c,d=e', 'f')")


@pytest.mark.parametrize(
    "value",
    [
        "if(a, b='x', c)",
        "concat('), k=', a)",
        "named_struct(\"it's\", a, 'n', array(1, key=2)[0])",
        "`a, key=b`",
        "'it\\'s, key=a'",
        "a,b,c",
    ],
)
def test_a_comma_in_brackets_or_quotes_ends_no_setting(value: str) -> None:
    _, place = parse_place(f"o=/a,value={value}, key=k,options.sep=(,options.quote=',timestamp=t", "--input")
    assert place is not None
    assert (place.columns.value, place.columns.key, place.columns.timestamp) == (value, "k", "t")
    assert place.options == {"sep": "(", "quote": "'"}
    _, output = parse_place("o=/a,format=orc,value=n decimal(10,2),item string,key=int", "--output")
    assert output is not None
    assert (output.layout.value, output.layout.key) == ("n decimal(10,2),item string", "int")


def test_a_date(spark: Any, tmp_path: Path) -> None:
    rows = [("k", 1.5, date(2026, 1, 2)), ("k", 2.5, date(2026, 1, 1))]
    spark.createDataFrame(rows, "k string, v double, day date").coalesce(1).write.parquet(str(tmp_path / "lake"))
    found = copied(spark, f"{tmp_path}/lake,key=k,value=v,timestamp=day,order=day", tmp_path, value="double")
    assert [(record["value"], record["timestamp"]) for record in found] == [(2.5, 1767225600000), (1.5, 1767312000000)]


TYPED = """\
streamkit: 1
application: typed
topics:
  orders: {key: string, value: json, partitions: 1}
  sums: {key: string, value: long}
  windows: {key: {windowed: string, size: 10s}, value: json}
  rows: {key: string, value: json}
pipelines:
  orders: {stream: orders}
  sums:
    from: orders
    steps: [group_by_key, {aggregate: {initial: 0, add: 'aggregate + get(value, "n", 0)', value_serde: long}}, to_stream]
    to: sums
  windows:
    from: orders
    steps:
      - group_by_key
      - window: {tumbling: 10s, grace: 0ms}
      - count
      - to_stream
      - map_values: {value: '{"n": value, "odd": value % 2 == 1, "half": float(value), "user": key.key, "tags": ["a"], "any": None}', value_serde: json}
    to: windows
  rows:
    from: orders
    steps: [{map_values: {value: 'get(value, "row", None)', value_serde: json}}]
    to: rows
"""


def written(spark: Any, folder: Path, rows: list[Any], output: str, **options: Any) -> Any:
    """What Spark reads of an output; rows: the values of the topic `orders`."""
    path = folder / "topology.yaml"
    path.write_text(TYPED)
    records = [{"key": "k", "value": row, "timestamp": 1_000 * at} for at, row in enumerate(rows)]
    place = write_lines(folder / "in.jsonl", records)
    topic, output_place = parse_place(output.format(folder / "out"), "--output")
    assert output_place is not None
    submit(load(path), JobOptions({"orders": (place,)}, {topic: output_place}, overwrite=True, **options), spark)
    return spark.read.options(header="true", escape='"').format(output_place.format).load(str(folder / "out"))


def test_a_table_as_columns(spark: Any, tmp_path: Path) -> None:
    frame = written(spark, tmp_path, [{"n": 2**40}, {"n": 3}], "sums={},format=parquet")
    assert frame.dtypes == [
        ("key", "string"),
        ("value", "bigint"),
        ("deleted", "boolean"),
        ("timestamp", "timestamp"),
        ("headers", "array<struct<name:string,value:binary>>"),
    ]
    (row,) = frame.collect()
    assert (row.key, row.value, row.deleted, row.timestamp.timestamp(), row.headers) == (
        "k",
        2**40 + 3,
        False,
        1.0,
        None,
    )


def test_times_that_orc_writes_as_others_are_refused(spark: Any, tmp_path: Path) -> None:
    place = Place(str(tmp_path / "out"), "orc")
    values = "struct(array(timestamp_micros({}), null) AS at, date'{}' AS day) AS value"

    def write(micros: int, day: str) -> None:
        rows = spark.range(1).selectExpr(values.format(micros, day))
        arranged(rows, place, "o", is_ordered=False).mode("overwrite").orc(place.path)

    for right in ((-1_000_000, "1582-10-15"), (-12_219_292_800_000_000, "1582-10-04")):
        write(*right)
        assert spark.read.orc(place.path).collect() == spark.range(1).selectExpr(values.format(*right)).collect()
    gap = r"the days from 1582-10-05 to 1582-10-14 in a row"
    for wrong, words in {
        (-1, "1970-01-01"): r"value\.at\[\] is in the last second before 1970 in a row",
        (-12_219_292_800_000_001, "1970-01-01"): rf"value\.at\[\] is in {gap}",
        (0, "1582-10-05"): rf"value\.day is in {gap}",
    }.items():
        with pytest.raises(PySparkException, match=f"o: {words}"):
            write(*wrong)


def test_windows_and_fields_by_inferred_types(spark: Any, tmp_path: Path) -> None:
    frame = written(spark, tmp_path, [{}] * 12, "windows={},format=orc")
    assert dict(frame.dtypes) | {"headers": ""} == {
        "key": "string",
        "window_start": "timestamp",
        "window_end": "timestamp",
        "value_n": "bigint",
        "value_odd": "boolean",
        "value_half": "double",
        "value_user": "string",
        "value_tags": "array<string>",
        "value_any": "string",
        "deleted": "boolean",
        "timestamp": "timestamp",
        "headers": "",
    }
    found = frame.selectExpr(
        "key", "unix_millis(window_start) s", "unix_millis(window_end) e", "value_n", "value_half", "value_tags"
    )
    assert [tuple(row) for row in found.orderBy("s").collect()] == [
        ("k", 0, 10_000, 10, 10.0, ["a"]),
        ("k", 10_000, 20_000, 2, 2.0, ["a"]),
    ]


def test_types_that_the_user_gives(spark: Any, tmp_path: Path) -> None:
    types = "amount decimal(38,2),day date,at timestamp,tags array<string>,more map<string,bigint>,inner struct<n:int>"
    row = {
        "amount": "123456789012345678901234567890123456.78",
        "day": "2026-02-28",
        "at": "2026-02-28T01:02:03.004005Z",
        "tags": ["a", None],
        "more": {"x": 1},
        "inner": {"n": 7},
    }
    frame = written(spark, tmp_path, [{"row": row}, {"row": None}], f"rows={{}},format=parquet,value={types}")
    first, second = frame.selectExpr("*", "unix_micros(value_at) us").orderBy("timestamp").collect()
    assert first.value_amount == Decimal(row["amount"])
    assert (first.value_day, first.us) == (date(2026, 2, 28), 1772240523004005)
    assert (first.value_tags, first.value_more, first.value_inner.n) == (["a", None], {"x": 1}, 7)
    assert [second[f"value_{name}"] for name in row] == [None] * len(row)


@pytest.mark.parametrize(
    ("types", "row", "words"),
    [
        ("n int", {"n": 2**31}, "value_n: 2147483648; expected a whole number of 32 bits"),
        ("n bigint", {"n": "7"}, "value_n: '7'; expected a whole number"),
        ("n double", {"n": 2**53 + 1}, "value_n: 9007199254740993; expected a number that a double holds exactly"),
        ("n float", {"n": 0.12345678912}, "value_n: 0.12345678912; expected a number that a float holds exactly"),
        ("n float", {"n": 1e300}, "value_n: 1e.300; expected a number that a float holds exactly"),
        ("n timestamp_ntz", {"n": "2026-01-01T00:00:00Z"}, "value_n: .*expected a time without a zone"),
        ("n decimal(3,1)", {"n": 1.25}, r"value_n: 1.25; expected decimal\(3,1\)"),
        ("n timestamp", {"n": "2026-01-01T00:00:00.1234567Z"}, "value_n: .*in whole microseconds"),
        ("n decimal(3,1)", {"n": "1e999999"}, r"value_n: '1e999999'; expected decimal"),
        ("n date", {"n": "noon"}, "value_n: 'noon'; expected a date"),
        ("n binary", {"n": {"base64": "@@YQ=="}}, "value_n: .*expected bytes as base64"),
        ("n int", {"m": 1}, "the field 'm' has no column"),
        ("n int", [1], r"\[1\] is not an object, so it has no field n"),
        ("n strange", {}, "value=n strange: a value can't have the type strange; use one of string, "),
        ("n", {}, "value=n: a value can't have the type n"),
        ("a int, b", {}, "value=a int, b: expected a type of Spark, or names with types"),
    ],
)
def test_a_value_that_its_column_cannot_hold(types: str, row: Any, words: str, spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(TYPED)
    plan = load(path)
    _, place = parse_place(f"rows=/lake/rows,format=parquet,value={types}", "--output")
    assert place is not None
    record = ("rows", 0, b"k", json.dumps(row).encode(), 1, None, 0, 1, 0)
    batch = arrow_rows.to_batch(tuple(zip(record, strict=True)))  # type: ignore[arg-type]
    with pytest.raises(StreamkitError, match=words), translated():
        list(write_columns(pickle.dumps(plan), layout_of(plan, "rows", place), (), [batch]))


def test_values_of_unknown_types_are_json_and_are_read_again(spark: Any, tmp_path: Path) -> None:
    rows: list[Any] = ['say "hi", ok\nnext', "", " a ", 1, 2.50, None, {"a": [1, "ä"]}, True]
    for kind in ("parquet", "csv"):
        frame = written(spark, tmp_path, [{"row": row} for row in rows], f"rows={{}},format={kind}")
        texts = [row.value for row in frame.orderBy("timestamp").collect()]
        assert [None if text is None else json.loads(text) for text in texts] == rows
        again = copied(
            spark,
            f"{tmp_path}/out,format={kind},order=timestamp" if kind == "parquet" else f"{tmp_path}/out,format=csv",
            tmp_path / "again",
        )
        assert sorted(map(repr, (record["value"] for record in again))) == sorted(map(repr, rows))


@pytest.fixture
def berlin(spark: Any) -> Iterator[None]:
    """A session with other defaults: the zone, in which an hour is missing on 2026-03-29, and what an overwrite keeps."""
    defaults = {"spark.sql.session.timeZone": "Europe/Berlin", "spark.sql.sources.partitionOverwriteMode": "dynamic"}
    for name, value in defaults.items():
        spark.conf.set(name, value)
    yield
    for name in defaults:
        spark.conf.unset(name)


@pytest.mark.usefixtures("berlin")
def test_times_without_a_zone_are_of_utc_whatever_the_session(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t\n2026-03-29T02:30:00\n")
    (tmp_path / "b.json").write_text('{"t":"2026-03-29T02:30:00"}\n')
    (tmp_path / "lake" / "t=2026-03-29 02%3A30%3A00").mkdir(parents=True)
    (tmp_path / "lake" / "t=2026-03-29 02%3A30%3A00" / "c.json").write_text('{"n":1}\n')
    for place in ("a.csv,options.inferSchema=true", "b.json,options.inferTimestamp=true", "lake,format=json"):
        (record,) = copied(spark, f"{tmp_path}/{place},value=t,timestamp=t", tmp_path)
        assert (place, record["value"], record["timestamp"]) == (place, "2026-03-29T02:30:00Z", 1774751400000)


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize("kind", ["years", "months", "days", "hours"])
def test_folders_by_times_of_utc_in_a_session_of_another_zone(kind: str, spark: Any, tmp_path: Path) -> None:
    rows = [{"row": {"at": "2026-03-29T02:30:00Z", "day": "2026-03-29"}}]
    settings = f"value=at timestamp,day date,partition_by={kind}(value_at),{kind}(value_day)"
    written(spark, tmp_path, rows, f"rows={{}},format=parquet,{settings}")
    (file,) = (tmp_path / "out").rglob("*.parquet")
    folders = {"years": "2026", "months": "2026-03", "days": "2026-03-29", "hours": "2026-03-29-02"}
    word, found = kind.removesuffix("s"), folders[kind]
    midnight = found.replace("-02", "-00") if kind == "hours" else found
    assert str(file.parent.relative_to(tmp_path / "out")) == f"value_at_{word}={found}/value_day_{word}={midnight}"


@pytest.mark.usefixtures("berlin")
def test_times_as_text_and_in_folders_are_exact(spark: Any, tmp_path: Path) -> None:
    # In Berlin both are 2:30.
    times = ["2026-10-25T00:30:00.000001Z", "2026-10-25T01:30:00.000001Z"]
    rows = [{"row": {"at": time, "zoneless": time[:-1]}} for time in times]
    types = "value=at timestamp,zoneless timestamp_ntz"
    frame = written(spark, tmp_path, rows, f"rows={{}},format=csv,{types}")
    assert [(row.value_at, row.value_zoneless) for row in frame.orderBy("value_at").collect()] == [
        (time, time[:-1]) for time in times
    ]
    written(spark, tmp_path, rows, f"rows={{}},format=parquet,{types},partition_by=value_at")
    folders = [path.name for path in (tmp_path / "out").glob("value_at=*")]
    assert sorted(folders) == [f"value_at=2026-10-25 0{hour}%3A30%3A00.000001" for hour in (0, 1)]


@pytest.mark.usefixtures("berlin")
def test_an_overwrite_keeps_no_folder(spark: Any, tmp_path: Path) -> None:
    for kind in ("a", "b"):
        written(
            spark,
            tmp_path,
            [{"row": {"kind": kind}}],
            "rows={},format=parquet,value=kind string,partition_by=value_kind",
        )
    assert [path.name for path in (tmp_path / "out").glob("value_kind=*")] == ["value_kind=b"]


@pytest.mark.parametrize("kind", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_a_text_that_a_folder_cannot_represent(kind: str, spark: Any, tmp_path: Path) -> None:
    settings = "format=parquet,value=kind string,partition_by=value_kind"
    with pytest.raises(
        StreamkitError, match=rf"--output rows=.*/out: value_kind is '{kind}' in a row, which a partition"
    ):
        written(spark, tmp_path, [{"row": {"kind": "a"}}, {"row": {"kind": kind}}], f"rows={{}},{settings}")
    assert not (tmp_path / "out" / "_SUCCESS").exists()


def test_folders_by_days_and_the_order_of_rows(spark: Any, tmp_path: Path) -> None:
    rows = [{"row": {"n": n, "at": f"2026-01-0{1 + n // 3}T23:30:00Z", "kind": "ab"[n % 2]}} for n in range(6)]
    types = "value=n int,at timestamp,kind string,partition_by=day(value_at),value_kind,sort_by=value_n"
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        written(spark, tmp_path, rows[::-1], f"rows={{}},format=parquet,{types}")
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    folders = {str(path.parent.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.parquet")}
    assert folders == {f"value_at_day=2026-01-0{day}/value_kind={kind}" for day in (1, 2) for kind in "ab"}
    for folder in folders:
        found = [row.value_n for row in spark.read.parquet(str(tmp_path / "out" / folder)).collect()]
        assert found == sorted(found)


def test_rows_of_many_folders_keep_their_order(spark: Any, tmp_path: Path) -> None:
    """Spark sorts the rows of a task by its folders if these are many, and this sort, on a disk, mixes the rows of a folder."""
    settings, name = spark.sparkContext._jsc.sc().conf(), "spark.shuffle.spill.numElementsForceSpillThreshold"
    settings.set(name, "100")
    try:
        rows = [{"row": {"n": n, "kind": str(n % 40)}} for n in range(4_000)]
        written(spark, tmp_path, rows, "rows={},format=parquet,value=n int,kind string,partition_by=value_kind")
    finally:
        settings.remove(name)
    files = [*(tmp_path / "out").glob("*/*.parquet")]
    found = [pq.ParquetFile(file).read(["value_n"])["value_n"].to_pylist() for file in files]
    assert sorted(found) == [[*range(kind, 4_000, 40)] for kind in range(40)]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            "partition_by=weeks(timestamp)",
            r"partition_by=weeks\(timestamp\): 'weeks\(timestamp\)' is none of COLUMN, years",
        ),
        ("partition_by=bucket(timestamp)", "is none of COLUMN"),
        ("partition_by=day(timestamp", "partition_by has a bracket that is not closed"),
        ("partition_by=day(time)", "partition_by: there is no column time; the columns are key, value, "),
        ("partition_by=day(value)", r"partition_by=days\(value\): the column is of type bigint; expected a time"),
        ("partition_by=bucket(4,key)", "buckets are for tables; files have folders by columns and times"),
        (
            "value=at timestamp,at_day string,partition_by=day(value_at)",
            r"partition_by=days\(value_at\): the folders would have the name of the column value_at_day",
        ),
        ("partition_by=headers", "of type array<.*which can't name a partition"),
        ("sort_by=key,time", "sort_by: there is no column time"),
        ("mode=append", "mode is for tables"),
        ("mode=upsert", "mode=upsert: expected merge or append or overwrite"),
    ],
)
def test_settings_that_an_output_does_not_have(settings: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(TYPED)
    with pytest.raises(UsageError, match=words):
        check(load(path), JobOptions({}, dict([parse_place(f"sums=/a,format=orc,{settings}", "--output")])))


@pytest.mark.parametrize(
    ("release", "output", "words"),
    [
        ("4.1.4", "lake.db.sums", "SparkCatalog is in a package: add --conf .*iceberg-spark-runtime-4.1_2.13:1"),
        (
            "4.3.0",
            "lake.db.sums",
            r"in a package: there is no known release for Spark 4.3; run the command in an environment with pyspark==4.1.\*",
        ),
        ("4.2.0", "/lake/sums,format=delta", "has no Delta: add --conf .*delta-spark_4.2_2.13:.*DeltaCatalog"),
    ],
)
def test_the_package_of_a_table(
    release: str, output: str, words: str, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(TYPED)
    monkeypatch.setattr("pyspark.__version__", release)
    spark.conf.set("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    place = write_lines(tmp_path / "in.jsonl", [{"key": "k", "value": {"n": 1}, "timestamp": 1}])
    with pytest.raises(StreamkitError, match=words):
        submit(load(path), JobOptions({"orders": (place,)}, dict([parse_place(f"sums={output}", "--output")])), spark)


def test_the_bytes_of_the_log_where_the_user_wants_them(spark: Any, tmp_path: Path) -> None:
    (row,) = written(spark, tmp_path, [{"n": 1}], "sums={},format=parquet,columns=log").collect()
    assert (bytes(row.key), bytes(row.value), row.timestamp) == (b"k", (1).to_bytes(8, "big"), 0)
    with pytest.raises(UsageError, match="columns=raw: expected decoded or log"):
        parse_place("sums=/a,format=parquet,columns=raw", "--output")
    with pytest.raises(UsageError, match="lines of JSON are whole records"):
        parse_place("sums=/a,columns=log", "--output")


def test_runs_refuse_rows_whose_files_are_not_known(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(TYPED)
    spark.range(1).createOrReplaceTempView("numbers")
    inputs = {"orders": (Place("numbers", "table", "id", Columns(value="*")),)}
    options = JobOptions(inputs, {"sums": Place(str(tmp_path / "out"), JSON_LINES)}, checkpoint=str(tmp_path / "state"))
    with pytest.raises(UsageError, match="numbers: --checkpoint needs rows that stay in the same file"):
        submit_next(load(path), options, spark)


def test_runs_keep_the_columns_of_an_output(spark: Any, tmp_path: Path) -> None:
    def run(name: str, output: str) -> None:
        path = tmp_path / "topology.yaml"
        path.write_text(TYPED)
        (tmp_path / "in").mkdir(exist_ok=True)
        write_lines(tmp_path / "in" / name, [{"key": name, "value": {"n": 1, "row": 1}, "timestamp": 1}])
        inputs, outputs = (
            {"orders": (Place(str(tmp_path / "in"), JSON_LINES),)},
            dict([parse_place(output, "--output")]),
        )
        submit_next(load(path), JobOptions(inputs, outputs, checkpoint=str(tmp_path / "state")), spark)

    rows = f"rows={tmp_path}/rows,format=parquet"
    run("a", f"{rows},value=int")
    run("b", f"{rows},value=int")
    found = spark.read.parquet(str(tmp_path / "rows")).orderBy("run").collect()
    assert [(row.run, row.key, row.value) for row in found] == [(1, "a", 1), (2, "b", 1)]
    with pytest.raises(UsageError, match="column value is of type bigint, and earlier runs wrote int"):
        run("c", f"{rows},value=bigint")
    with pytest.raises(UsageError, match="earlier runs wrote decoded columns; leave columns=log out"):
        run("c", f"{rows},columns=log")
    with pytest.raises(UsageError, match=r"partition_by is days\(timestamp\), and earlier runs wrote no partitions"):
        run("c", f"{rows},value=int,partition_by=day(timestamp)")
