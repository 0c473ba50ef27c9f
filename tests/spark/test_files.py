"""Files in all their forms: bytes of the log, decoded columns, JSON Lines out of order, and what was written read again."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import StreamkitError, TransportError
from streamkit.plan import load
from streamkit.runtime.spark.job_options import JSON_LINES, PARQUET, Columns, JobOptions, Layout, Place
from streamkit.runtime.spark.rows.file_outputs import _fresh
from streamkit.runtime.spark.rows.file_system import FileSystem
from streamkit.runtime.spark.rows.files import open_files
from streamkit.runtime.spark.submission.submit_job import submit
from tests.spark.support import read_lines, reprocess, write_lines

TOPOLOGY = """\
streamkit: 1
application: files
topics: {numbers: {value: json, partitions: 3}, sums: {value: long, partitions: 3}, copies: {value: json, partitions: 3}}
pipelines:
  numbers: {stream: numbers}
  copies: {from: numbers, to: copies}
  sums:
    from: numbers
    steps:
      - group_by_key
      - aggregate: {initial: 0, add: aggregate * 3 + value.n, value_serde: long}
      - to_stream
    to: sums
"""
RECORDS = [
    {
        "key": f"k{number % 7}",
        "value": {"n": number % 5},
        "timestamp": 1000 + number,
        "headers": [["h", str(number)]],
        "partition": number % 7 % 3,
        "offset": number,
    }
    for number in range(70)
]


@pytest.fixture(scope="module")
def truth() -> dict[str, int]:
    """Sums in which the order of a key's records counts."""
    sums: dict[str, int] = {}
    for record in RECORDS:
        key = str(record["key"])
        sums[key] = sums.get(key, 0) * 3 + record["value"]["n"]  # type: ignore[index]
    return sums


def run(spark: Any, place: Place, folder: Path, topic: str = "sums", kind: str = JSON_LINES, **layout: Any) -> Path:
    path = folder / "topology.yaml"
    path.write_text(TOPOLOGY)
    submit(load(path), JobOptions({"numbers": (place,)}, {topic: Place(str(folder / topic), kind, **layout)}), spark)
    return folder / topic


def sums(spark: Any, place: Place, folder: Path) -> dict[str, int]:
    return {each["key"]: each["value"] for each in read_lines(run(spark, place, folder))}


def test_lines_in_any_order(truth: dict, spark: Any, tmp_path: Path) -> None:
    shuffled = random.Random(1).sample(RECORDS, len(RECORDS))
    assert sums(spark, write_lines(tmp_path / "in.jsonl", shuffled), tmp_path) == truth


def test_files_without_offsets_in_the_order_of_their_names(truth: dict, spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    plain = [{name: record[name] for name in ("key", "value", "timestamp")} for record in RECORDS]
    for number in (2, 0, 1):
        write_lines(tmp_path / "in" / f"part-{number}", plain[30 * number : 30 * (number + 1)])
    assert sums(spark, Place(str(tmp_path / "in"), JSON_LINES), tmp_path) == truth


def test_bytes_of_the_log(truth: dict, spark: Any, tmp_path: Path) -> None:
    rows = [
        (
            record["key"].encode(),
            b'{"n":%d}' % record["value"]["n"],
            *(record[name] for name in ("timestamp", "partition", "offset")),
        )
        for record in random.Random(1).sample(RECORDS, len(RECORDS))
    ]
    frame = spark.createDataFrame(rows, "key binary, value binary, timestamp bigint, partition int, offset bigint")
    frame.write.parquet(str(tmp_path / "in"))
    assert sums(spark, Place(str(tmp_path / "in"), PARQUET), tmp_path) == truth
    (tmp_path / "second").mkdir()
    frame.selectExpr("key", "value", "timestamp", "partition + 1 partition", "offset").write.parquet(
        str(tmp_path / "wrong")
    )
    with pytest.raises(StreamkitError, match="topic numbers: partition is 3, but the topic has 3"):
        sums(spark, Place(str(tmp_path / "wrong"), PARQUET), tmp_path / "second")


def test_columns_that_are_decoded_already_are_read(truth: dict, spark: Any, tmp_path: Path) -> None:
    rows = [(record["key"], record["value"], record["timestamp"], record["offset"]) for record in RECORDS]
    frame = spark.createDataFrame(rows, "key string, value struct<n: int>, timestamp bigint, offset bigint")
    frame.selectExpr("key", "value", "timestamp_millis(timestamp) timestamp", "offset").write.parquet(
        str(tmp_path / "in")
    )
    assert sums(spark, Place(str(tmp_path / "in"), PARQUET), tmp_path) == truth


def test_what_is_written_reads_in_again(truth: dict, spark: Any, tmp_path: Path) -> None:
    place = write_lines(tmp_path / "in.jsonl", RECORDS)
    copies = run(spark, place, tmp_path, "copies", PARQUET, layout=Layout(as_log=True))
    rows = spark.read.parquet(str(copies)).orderBy("timestamp").collect()
    assert [(row.topic, bytes(row.key), bytes(row.value), row.headers[0].name) for row in rows[:2]] == [
        ("copies", b"k0", b'{"n":0}', "h"),
        ("copies", b"k1", b'{"n":1}', "h"),
    ]
    assert sums(spark, Place(str(copies), PARQUET), tmp_path) == truth


MEETING = """\
streamkit: 1
application: meeting
topics: {l1: {value: string, partitions: 1}, l2: {value: string, partitions: 1}, middle: {value: string, partitions: 1}, out: {value: string, partitions: 2}}
pipelines:
  first: {stream: l1, to: out}
  second: {stream: l2, to: out}
  third: {stream: l1, to: middle}
  fourth: {stream: l2, to: middle}
  windows:
    stream: middle
    steps: [{window: {tumbling: 10ms, grace: 0ms}}, count, {to_stream: {key: key.key, key_serde: string}}, {map_values: {value: str(value), value_serde: string}}]
    to: out
"""


def test_two_inputs_meet_in_one_topic_as_lines_of_json(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(MEETING.replace("steps: [", "steps: [group_by_key, "))
    records = [
        {"topic": topic, "key": "k", "value": f"{topic} {at}", "timestamp": 10 * at + shift}
        for at in range(20)
        for shift, topic in enumerate(("l1", "l2"))
    ]
    found = reprocess(spark, load(path), records, tmp_path, emit="updates")
    values = sorted(each["value"] for each in found if each["topic"] == "out")
    # Each window has a record of each input: none is late where the two meet in the order of their times.
    assert values == sorted([*(record["value"] for record in records), *["1", "2"] * 20])


@pytest.mark.parametrize("kind", ["orc", "csv", PARQUET])
def test_rows_in_the_order_of_file_names_whatever_their_size(kind: str, spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    # The second file is the larger one, which Spark reads first.
    for name, texts in (("a", ["a0", "a1"]), ("b", ["b" * 20 + str(at) for at in range(3000)])):
        frame = spark.createDataFrame([("k", text, 1) for text in texts], "key string, value string, timestamp bigint")
        writer = frame.coalesce(1).write.option("header", "true").format(kind)
        writer.save(str(tmp_path / name))
        folder.mkdir(exist_ok=True)
        (part,) = (tmp_path / name).glob("part-*")
        part.rename(folder / f"{name}.{kind}")
    path = tmp_path / "topology.yaml"
    path.write_text(
        "streamkit: 1\napplication: order\ntopics: {l1: {value: string, partitions: 1}, out: {value: string}}\n"
        "pipelines: {copy: {stream: l1, to: out}}\n"
    )
    submit(
        load(path),
        JobOptions({"l1": (Place(str(folder), kind),)}, {"out": Place(str(tmp_path / "out"), JSON_LINES)}),
        spark,
    )
    values = [each["value"] for each in read_lines(tmp_path / "out")]
    assert values == ["a0", "a1", *("b" * 20 + str(at) for at in range(3000))]


def test_rows_without_a_place_need_an_order(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(
        "streamkit: 1\napplication: order\ntopics: {l1: {value: string, partitions: 1}, out: {value: string}}\n"
        "pipelines: {copy: {stream: l1, to: out}}\n"
    )
    rows = [("k", str(at), 1, at) for at in reversed(range(50))]
    spark.createDataFrame(rows, "key string, value string, timestamp bigint, n int").createOrReplaceTempView(
        "placeless"
    )

    def run_ordered(order: str | None) -> None:
        place = Place("placeless", "table", order)
        submit(load(path), JobOptions({"l1": (place,)}, {"out": Place(str(tmp_path / "out"), JSON_LINES)}), spark)

    with pytest.raises(StreamkitError, match="add a column offset, or name a column"):
        run_ordered(None)
    with pytest.raises(StreamkitError, match="order=m: no such column; it has key, value, timestamp, n"):
        run_ordered("m")
    run_ordered("n")
    assert [each["value"] for each in read_lines(tmp_path / "out")] == [str(at) for at in range(50)]


def test_outputs_that_exist_or_replace_each_other(spark: Any, tmp_path: Path) -> None:
    place = write_lines(tmp_path / "in.jsonl", RECORDS)
    path = tmp_path / "topology.yaml"
    path.write_text(TOPOLOGY)
    (tmp_path / "sums" / "mine").mkdir(parents=True)
    uri = Place(f"file://{tmp_path}/sums", JSON_LINES)
    with pytest.raises(StreamkitError, match="it exists; --overwrite replaces it"):
        submit(load(path), JobOptions({"numbers": (place,)}, {"sums": uri}), spark)
    both = {"sums": uri, "copies": Place(str(tmp_path / "sums"), JSON_LINES)}
    with pytest.raises(StreamkitError, match="--output copies is in the same directory"):
        submit(load(path), JobOptions({"numbers": (place,)}, both, overwrite=True), spark)
    with pytest.raises(StreamkitError, match="--input numbers is in this directory"):
        submit(
            load(path),
            JobOptions({"numbers": (place,)}, {"sums": Place(str(tmp_path), JSON_LINES)}, overwrite=True),
            spark,
        )
    misspelt = {"sums": Place(str(tmp_path / "new"), "parqet")}
    with pytest.raises(StreamkitError, match="there is no format 'parqet'; did you mean 'parquet'"):
        submit(load(path), JobOptions({"numbers": (place,)}, misspelt), spark)
    with pytest.raises(
        StreamkitError, match=r"format delta is in a package: (add --conf |there is no known release for Spark )"
    ):
        submit(
            load(path),
            JobOptions(
                {"numbers": (Place(str(tmp_path), "delta"),)}, {"sums": Place(str(tmp_path / "new"), JSON_LINES)}
            ),
            spark,
        )


@pytest.mark.parametrize("kind", [JSON_LINES, PARQUET])
def test_a_job_that_fails_replaces_nothing(kind: str, spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(TOPOLOGY)
    out = tmp_path / "out"

    def run(*records: dict) -> None:
        inputs = {"numbers": (write_lines(tmp_path / "in.jsonl", records),)}
        submit(load(path), JobOptions(inputs, {"copies": Place(str(out), kind)}, overwrite=True), spark)

    run(RECORDS[0])
    before = {each.name for each in out.iterdir()}
    with pytest.raises(StreamkitError, match="timestamp is 'noon'"):
        run({"timestamp": "noon"})
    assert {each.name for each in out.iterdir()} == before
    run(RECORDS[0])
    assert {each.name for each in out.glob("part-*")}.isdisjoint(before)
    assert {each.name for each in tmp_path.iterdir()} == {"topology.yaml", "in.jsonl", "out"}


def test_files_whose_names_do_not_tell_the_order_are_refused(spark: Any, tmp_path: Path) -> None:
    name, out = "spark.sql.files.maxRecordsPerFile", tmp_path / "out"

    def written(number: int) -> None:
        with _fresh(spark, str(out), True) as (path, _):
            folder = Path(path.removeprefix("file:"))
            folder.mkdir()
            (folder / f"part-00000-0a-c{number:03}.snappy.parquet").write_bytes(b"")

    spark.conf.set(name, "1")
    try:
        written(999)
        for _ in range(2):
            with pytest.raises(TransportError, match=f"{name} cuts the rows of a task into more than 1,000 files"):
                written(1000)
            shutil.rmtree(out, ignore_errors=True)
    finally:
        spark.conf.unset(name)
    assert not list(tmp_path.iterdir())


def test_a_replacement_that_a_kill_cut_short_is_completed(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(TOPOLOGY)
    out = tmp_path / "out"
    out.mkdir()
    (out / "part-0.jsonl").write_text("")
    (tmp_path / "_out-0123abcd").mkdir()
    inputs = {"numbers": (write_lines(tmp_path / "in.jsonl", [RECORDS[0]]),)}
    lines: list[str] = []

    def run(overwrite: bool) -> None:
        options = JobOptions(inputs, {"copies": Place(str(out), JSON_LINES)}, overwrite=overwrite)
        submit(load(path), options, spark, lines.append)

    def killed(*_: object) -> bool:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(FileSystem, "rename", killed)
        with pytest.raises(SystemExit):
            run(True)
    assert not out.exists()
    del lines[:]
    with pytest.raises(StreamkitError, match="it exists; --overwrite replaces it"):
        run(False)
    assert len(read_lines(out)) == 1
    assert [line for line in lines if "_out-0123abcd has files of a job that was killed" in line]
    assert [line for line in lines if "a job was killed before it renamed" in line]


def test_a_line_that_is_wrong_has_its_number_in_a_file_of_several_blocks(spark: Any, tmp_path: Path) -> None:
    lines = ['{"key": "k", "value": {"n": 1}, "timestamp": 1}'] * 2000
    lines[1500] = "wrong"
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    path = tmp_path / "topology.yaml"
    path.write_text(TOPOLOGY)
    spark.conf.set("spark.sql.files.maxPartitionBytes", "10000")
    spark.conf.set("spark.sql.files.openCostInBytes", "1")
    try:
        with pytest.raises(StreamkitError, match=r"/in.jsonl:1501: topic numbers: not JSON"):
            sums(spark, Place(str(tmp_path / "in.jsonl"), JSON_LINES), tmp_path)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
        spark.conf.unset("spark.sql.files.openCostInBytes")


LINE_OF_ONE = '{"key": "k", "value": "v", "timestamp": 1}\n'
HEAD_OF_CSV = "key,value,timestamp\n"


@pytest.mark.parametrize(
    ("path", "files", "words"),
    [
        ("in", {"in/2024/x.jsonl": LINE_OF_ONE}, "Spark does not read .*/in/2024/x.jsonl: .*/in/[*]"),
        (
            "in 1",
            {"in 1/0 b%20é.jsonl": LINE_OF_ONE, "in 1/2/x%25 y.jsonl": LINE_OF_ONE},
            "does not read .*/in 1/2/x%25 y.jsonl: ",
        ),
        ("_in.jsonl", {"_in.jsonl": LINE_OF_ONE}, "names that begin with _"),
        ("in.csv", {"in.csv": "Key,value,timestamp\na,b,1\n"}, "column 'Key' would not be read; rename it to 'key'"),
        ("in.csv", {"in.csv": f"{HEAD_OF_CSV}a,b,1\nc\n"}, r"in\.csv can't be read: .*MALFORMED"),
        ("in.csv", {"in.csv": f"{HEAD_OF_CSV}a,b,1\nc,d,2,e\n"}, r"in\.csv can't be read: .*MALFORMED"),
        (
            "in.csv",
            {"in.csv": f"{HEAD_OF_CSV}a,b,noon\n"},
            "timestamp is 'noon'; expected milliseconds or a time such as",
        ),
        (
            "in",
            {"in/a.csv": f"{HEAD_OF_CSV}a,b,1\n", "in/b.csv": "value,key,timestamp\nb,a,2\n"},
            # Of two headers the one is wrong that Spark finds later, which is a matter of the file system.
            r"[ab]\.csv can't be read: CSV header does not conform",
        ),
    ],
)
def test_no_record_of_a_file_is_passed_over(
    path: str, files: dict[str, str], words: str, spark: Any, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    topology = tmp_path / "topology.yaml"
    topology.write_text(
        "streamkit: 1\napplication: whole\ntopics: {l1: {value: string, partitions: 1}, out: {value: string}}\n"
        "pipelines: {copy: {stream: l1, to: out}}\n"
    )
    place = Place(str(tmp_path / path), "csv" if any(name.endswith(".csv") for name in files) else JSON_LINES)
    # A session may leave out what it can't read.
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(TransportError, match=words) as caught:
            submit(
                load(topology), JobOptions({"l1": (place,)}, {"out": Place(str(tmp_path / "out"), JSON_LINES)}), spark
            )
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert "\n" not in str(caught.value)


def test_a_schema_that_spark_wrote_into_all_files_takes_no_job(spark: Any, tmp_path: Path) -> None:
    """With a file that has another column, a job merges the schemas."""
    place = Place(str(tmp_path / "numbers"), PARQUET, columns=Columns(value="*", timestamp="id"))
    numbers = spark.range(4, numPartitions=2).selectExpr("id", "named_struct('a', id, 'b', array('x')) AS nested")

    def opened() -> tuple[str, int]:
        before = spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()
        source = open_files(spark, place).source
        found = spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs() - before
        assert source.schema == spark.read.option("mergeSchema", "true").parquet(place.path).schema
        return source.schema.simpleString(), found

    numbers.write.parquet(place.path)
    assert opened() == ("struct<id:bigint,nested:struct<a:bigint,b:array<string>>>", 0)
    numbers.selectExpr("*", "'new' AS name").write.mode("append").parquet(place.path)
    schema, found = opened()
    assert (schema.removeprefix("struct<id:bigint,nested:"), found > 0) == (
        "struct<a:bigint,b:array<string>>,name:string>",
        True,
    )
