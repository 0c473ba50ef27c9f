"""Final records: kept in stores, cut by key, written as lines; always the last ones of all updates."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from streamkit.errors import StreamkitError
from streamkit.plan import load
from streamkit.runtime.spark.job import Job
from streamkit.runtime.spark.job_options import FINAL, JSON_LINES, PARQUET, UPDATES, JobOptions, Place
from streamkit.runtime.spark.submission.submit_job import submit
from streamkit.runtime.spark.submission.topic_difference import compare
from streamkit.runtime.spark.workers import arrow_rows
from streamkit.runtime.spark.workers.output_collector import FinalRecords
from streamkit.runtime.spark.workers.task_stores import _ENTRY_BYTES, FinalKeyValueStore, FinalWindowStore
from streamkit.runtime.spark.workers.worker import run_tasks
from streamkit.serdes import parse
from streamkit.state.definitions import CurrentTopic, StoreDef
from streamkit.state.engines.open_maps import open_map
from tests.spark.support import by_key, read_lines, tried, write_lines

TOPOLOGY = """\
streamkit: 1
application: finals
topics:
  words: {value: string, partitions: 2}
  sums: {value: long, partitions: 2}
  texts: {value: string, partitions: 2}
  recent: {key: {windowed: string, size: 1m}, value: long, partitions: 2}
pipelines:
  words: {stream: words}
  sums:
    from: words
    steps:
      - filter: value != 'skip'
      - group_by_key
      - aggregate: {initial: 0, add: "None if value == 'gone' else aggregate + len(value)", value_serde: long}
      - to_stream
      - map_values: {value: value, value_serde: long}
    to: sums
  texts:
    from: words
    steps:
      - group_by_key
      - reduce: {add: "None if value == 'gone' else aggregate + value", value_serde: string}
      - to_stream
    to: texts
"""
WINDOWS = """
  recent:
    from: words
    steps: [group_by_key, {window: {tumbling: 1m, grace: 1s}}, count, to_stream]
    to: recent
"""


def records(count: int = 300) -> list[dict]:
    draw = random.Random(5)
    return [
        {
            "topic": "words",
            "key": f"k{draw.randrange(40)}",
            "value": draw.choice(["a", "bc", "gone", "skip", "ünï"]),
            "timestamp": 1000 + number - draw.randrange(20),
            **({"headers": [["n", str(number)]]} if number % 3 else {}),
        }
        for number in range(count)
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "finals.yaml"
    path.write_text(TOPOLOGY)
    return path


def written(spark: Any, path: Path, topic: str, count: int = 300, **options: Any) -> list[dict]:
    folder = path.parent / f"{topic}-{len(list(path.parent.iterdir()))}"
    inputs = {"words": (write_lines(path.parent / "words", records(count)),)}
    submit(load(path), JobOptions(inputs, {topic: Place(str(folder), JSON_LINES)}, **options), spark)
    return read_lines(folder)


GRACE = """
  hops:
    from: words
    steps:
      - group_by_key
      - window: {hopping: 40ms, advance: 20ms, grace: 10ms}
      - aggregate: {initial: 0, add: "None if value == 'gone' else aggregate + len(value)", value_serde: long}
      - to_stream
    to: hops
  tumbles:
    from: words
    steps:
      - group_by_key
      - window: {tumbling: 30ms, grace: 5ms}
      - reduce: {add: "None if value == 'gone' else aggregate + value", value_serde: string}
      - to_stream
    to: tumbles
  counts:
    from: words
    steps: [group_by_key, {window: {tumbling: 50ms, grace: 0ms}}, count, to_stream]
    to: counts
"""
GRACE_TOPICS = """
  hops: {key: {windowed: string, size: 40ms}, value: long, partitions: 2}
  tumbles: {key: {windowed: string, size: 30ms}, value: string, partitions: 2}
  counts: {key: {windowed: string, size: 50ms}, value: long, partitions: 2}
"""


@pytest.mark.parametrize("topic", ["hops", "tumbles", "counts"])
def test_the_last_of_each_window_is_that_of_all_updates(spark: Any, path: Path, topic: str) -> None:
    text = TOPOLOGY.replace("partitions: 2}", "partitions: 1}", 1) + GRACE
    path.write_text(text.replace("pipelines:", GRACE_TOPICS.strip("\n") + "\npipelines:", 1))
    every = by_key(each for each in tried(path, records(3000)) if each["topic"] == topic)
    assert Job(load(path), {"words": 1}, JobOptions()).plan.stores.keys() == names_of_final_stores(path)
    final = written(spark, path, topic, 3000, emit=FINAL)
    assert by_key(final) == {key: each[-1:] for key, each in every.items()}
    assert any(len(each) > 1 for each in every.values())


def names_of_final_stores(path: Path) -> set[str]:
    plan = Job(load(path), {"words": 1}, JobOptions()).plan
    return {name for name, store in plan.stores.items() if store.caching}


@pytest.mark.parametrize("topic", ["sums", "texts"])
@pytest.mark.parametrize("parallelism", [1, 7])
def test_the_last_of_each_key_is_that_of_all_updates(spark: Any, path: Path, topic: str, parallelism: int) -> None:
    every = by_key(each for each in tried(path, records()) if each["topic"] == topic)
    updates = written(spark, path, topic, emit=UPDATES, parallelism=parallelism)
    assert by_key(updates) == every
    final = written(spark, path, topic, emit=FINAL, parallelism=parallelism)
    assert by_key(final) == {key: each[-1:] for key, each in every.items()}
    assert any(each["value"] is None for each in final), final


KEYS = [True, 1, 1.0, "1", 0.0, -0.0, {"a": 1, "b": 2}, {"b": 2, "a": 1}, "caf\u00e9", "cafe\u0301"]
"""Keys of json, of which Python takes some for equal."""


def test_keys_are_distinguished_by_their_bytes(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(
        "streamkit: 1\napplication: keys\n"
        "topics: {words: {key: json, value: json, partitions: 2}, sums: {key: json, value: long, partitions: 2}}\n"
        "pipelines: {p: {stream: words, steps: [group_by_key, count, to_stream], to: sums}}\n"
    )
    lines = [{"topic": "words", "key": key, "value": 1, "timestamp": number} for number, key in enumerate(3 * KEYS)]
    inputs, out = {"words": (write_lines(tmp_path / "words", lines),)}, tmp_path / "out"
    options = JobOptions(inputs, {"sums": Place(str(out), JSON_LINES)}, emit=FINAL, parallelism=7)
    submit(load(path), options, spark)
    found = [(json.dumps(each["key"]), each["value"]) for each in read_lines(out)]
    assert sorted(found) == sorted((json.dumps(key), 3) for key in KEYS)


def test_a_comparison_distinguishes_keys_and_values_by_their_bytes(spark: Any, path: Path) -> None:
    def frame(rows: list[tuple[bytes, bytes]]) -> Any:
        columns = "key binary, value binary, order bigint, source int, offset bigint"
        return spark.createDataFrame([(*row, number, 0, number) for number, row in enumerate(rows)], columns)

    made = frame([(b"true", b"1"), (b"1", b"true"), (b"0.0", b"0.0")])
    existing = frame([(b"1", b"1"), (b"0.0", b"-0.0"), (b"-0.0", b"0.0")])
    found = compare(made, existing, load(path), "words", is_table=True)
    assert (found.equal, found.different, found.missing, found.surplus) == (0, 2, 1, 1)


COUNTS = {"words": 2, "sums": 2, "texts": 2, "recent": 2}


def test_bytes_of_the_log_are_sorted_by_their_place_alone(spark: Any, path: Path) -> None:
    given = records()
    rows = [
        (each["key"].encode(), each["value"].encode(), each["timestamp"], crc32(each["key"].encode()) % 2, number)
        for number, each in enumerate(given)
    ]
    random.Random(1).shuffle(rows)
    frame = spark.createDataFrame(rows, "key binary, value binary, timestamp bigint, partition int, offset bigint")
    frame.write.parquet(str(path.parent / "in"))
    frame.selectExpr("key", "value", "timestamp", "partition", "-1L offset").write.parquet(str(path.parent / "wrong"))

    def sums(source: str) -> list[dict]:
        folder = path.parent / f"sums-{source}"
        places = Place(str(path.parent / source), PARQUET), Place(str(folder), JSON_LINES)
        submit(load(path), JobOptions({"words": (places[0],)}, {"sums": places[1]}), spark)
        return read_lines(folder)

    plain = [{name: field for name, field in each.items() if name != "headers"} for each in given]
    every = by_key(each for each in tried(path, plain) if each["topic"] == "sums")
    assert by_key(sums("in")) == {key: each[-1:] for key, each in every.items()}
    with pytest.raises(StreamkitError, match="topic words: offset is -1, which is not an offset"):
        sums("wrong")


def sorted_rows(keys: list[str], by_offset: bool, without_time: int = -1) -> list[Any]:
    """Arrow batches of rows of one partition as Spark sorts them by buckets: 3 buckets, or one a key.

    without_time: the offset of a row whose timestamp is negative.
    """
    import pyarrow as pa

    def place(key: str, offset: int) -> int:
        digest = crc32(key.encode())
        return (digest % 3 << arrow_rows.PLACE_BITS) + offset if by_offset else digest << 31

    rows = sorted((place(key, offset), offset, key.encode()) for offset, key in enumerate(keys))
    columns = {
        "partition": pa.array([1] * len(rows), pa.int32()),
        "key": pa.array([row[2] for row in rows], pa.binary()),
        "value": pa.array([b"x" * (row[1] % 5) for row in rows], pa.binary()),
        "timestamp": pa.array([-1 if row[1] == without_time else 1000 + row[1] for row in rows], pa.int64()),
    }
    if not by_offset:
        columns["offset"] = pa.array([row[1] for row in rows], pa.int64())
    all_rows = pa.RecordBatch.from_pydict({**columns, arrow_rows.PLACE: pa.array([row[0] for row in rows], pa.int64())})
    return [all_rows.slice(start, 7) for start in range(0, len(rows), 7)]


@pytest.mark.parametrize("by_offset", [True, False])
def test_the_state_of_processed_buckets_is_dropped_without_a_change(path: Path, by_offset: bool) -> None:
    options = JobOptions({"words": (Place("/in", PARQUET),)}, {"sums": Place("/out", PARQUET)})
    job = Job(load(path), COUNTS, options)
    (work,) = (job._work(stage, None) for stage in job.stages)
    assert work.by_key
    draw = random.Random(3)
    batches = sorted_rows([f"k{draw.randrange(12)}" for _ in range(200)], by_offset)

    def last(max_rows: int) -> tuple[list[dict], int]:
        found = list(run_tasks(dataclasses.replace(work, max_rows=max_rows), batches))
        rows = [row for batch in found for row in batch.select(["key", "value", "timestamp"]).to_pylist()]
        return sorted(rows, key=lambda row: row["key"]), len(found)

    uncut, once = last(10_000)
    cut, often = last(20)
    assert cut == uncut
    assert len(uncut) == 12
    assert often > once == 1


@pytest.mark.parametrize("by_offset", [True, False])
def test_a_record_without_a_time_fails_in_any_bucket(path: Path, by_offset: bool) -> None:
    options = JobOptions({"words": (Place("/in", PARQUET),)}, {"sums": Place("/out", PARQUET)})
    job = Job(load(path), COUNTS, options)
    (work,) = (job._work(stage, None) for stage in job.stages)
    for failing in range(40):
        batches = sorted_rows([f"k{number % 12}" for number in range(40)], by_offset, failing)
        with pytest.raises(RuntimeError, match=f"partition 1, offset {failing}: the timestamp -1 is negative"):
            list(run_tasks(work, batches))


def test_only_what_no_other_key_has_a_say_in_is_cut(path: Path) -> None:
    def pieces(**options: Any) -> list[int]:
        job = Job(load(path), COUNTS, JobOptions(parallelism=6, **options))
        return [job.pieces(stage) for stage in job.stages]

    def by_key(**options: Any) -> list[bool]:
        job = Job(load(path), COUNTS, JobOptions(**options))
        return [job._work(stage, None).by_key for stage in job.stages]

    assert pieces() == [3]
    assert pieces(write_state=True) == [1]
    assert by_key() == [True]
    assert by_key(emit=UPDATES) == by_key(write_state=True) == [False]
    path.write_text(TOPOLOGY.replace("len(value)", "offset"))
    assert pieces() == [1]
    path.write_text(TOPOLOGY.replace("string, partitions: 2}", "string, timestamp: use_partition_time}", 1))
    assert pieces() == [1]
    path.write_text(TOPOLOGY.replace("- group_by_key\n      - reduce", "- group_by: value\n      - reduce"))
    # The first stage's order is what the second one reads in.
    assert pieces() == [1, 3]
    assert by_key() == [False, True]
    path.write_text(TOPOLOGY + WINDOWS)
    assert pieces() == [1]


class Forwarded:
    """What a store needs around it, and what it forwards."""

    topic = CurrentTopic()

    def __init__(self) -> None:
        self.rows: list[tuple] = []

    def log(self, *row: Any) -> None:
        raise AssertionError("a batch logs nothing")

    def dropped(self, reason: str) -> None:
        raise AssertionError("nothing expires")


@pytest.fixture(params=["long", "string", "json"])
def final_store(request: pytest.FixtureRequest) -> Iterator[tuple[FinalKeyValueStore, Forwarded, str]]:
    around = Forwarded()
    definition = StoreDef("s", "timestamped_key_value", parse("bytes"), parse(request.param), logging=False)
    store = FinalKeyValueStore(definition, open_map("memory"), around, limit=4 * _ENTRY_BYTES)
    store.set_listener(lambda *row: around.rows.append(row), False)
    yield store, around, request.param
    store.close()


def test_too_many_entries_are_forwarded_and_move_to_the_map_below(
    final_store: tuple[FinalKeyValueStore, Forwarded, str],
) -> None:
    store, around, serde = final_store

    def value(number: int) -> Any:
        return {"long": number, "string": str(number), "json": {"n": [number]}}[serde]

    for number in range(6):
        store.put(b"k%d" % number, value(number), number, f"c{number}")
    store.put(b"k5", None, 9, "gone")
    store.commit()
    assert [row[0] for row in around.rows] == [b"k0", b"k1", b"k2", b"k3", b"k4", b"k5"]
    assert not store.entries
    assert store.get(b"k1") == (value(1), 1)
    assert store.get(b"k5") is None
    store.put(b"k1", value(7), 10, "c7")
    store.put(b"k9", None, 11, "never there")
    store.commit()
    around.rows.clear()
    store.flush()
    # What has come out before and has not changed since does not come again.
    assert around.rows == [(b"k1", value(7), None, 10, "c7"), (b"k9", None, None, 11, "never there")]


def test_a_deletion_comes_out_with_the_time_of_the_update(
    final_store: tuple[FinalKeyValueStore, Forwarded, str],
) -> None:
    store, around, serde = final_store
    value: Any = {"long": 1, "string": "1", "json": {"n": 1}}[serde]
    for number in range(6):
        store.put(b"k%d" % number, value, 10 + number, "c")
    store.put(b"k5", None, 3, "late")
    store.commit()
    store.put(b"k1", None, 4, "late")
    store.put(b"k2", None, 20, "later")
    store.flush()
    late = [row for row in around.rows if row[1] is None]
    assert late == [(b"k5", None, None, 15, "late"), (b"k1", None, None, 11, "late"), (b"k2", None, None, 20, "later")]


def test_too_many_windows_are_forwarded_and_move_to_the_map_below() -> None:
    around = Forwarded()
    definition = StoreDef("s", "window", parse("bytes"), parse("long"), logging=False, retention=10_000, window_size=10)
    store = FinalWindowStore(definition, open_map("memory"), around, limit=4 * _ENTRY_BYTES)
    store.set_listener(lambda *row: around.rows.append(row), False)
    for start in (0, 10, 20, 30):
        store.put(b"k", start, start, start, "c")
    store.commit()
    assert around.rows == []
    store.put(b"k", 40, None, 41, "never there")
    store.put(b"k", 20, None, 5, "late")
    store.commit()
    assert not store.entries
    assert around.rows == [
        (b"k", 0, 10, 0, None, 0, "c"),
        (b"k", 10, 20, 10, None, 10, "c"),
        (b"k", 20, 30, None, None, 20, "late"),
        (b"k", 30, 40, 30, None, 30, "c"),
        (b"k", 40, 50, None, None, 41, "never there"),
    ]
    assert store.fetch(b"k", 10) == (10, 10)
    assert store.fetch(b"k", 20) is None
    around.rows.clear()
    store.put(b"k", 30, None, 7, "late")
    store.flush()
    assert around.rows == [(b"k", 30, 40, None, None, 30, "late")]
    store.close()


def test_the_last_rows_of_many_keys_go_through_the_disk(tmp_path: Path) -> None:
    final = FinalRecords(lambda: tmp_path / "final", 3)
    header = [("h", b"1"), ("n", None)]
    rows = [("t", b"k%d" % (number % 5), None, number, header, None) for number in range(8)]
    for row in [*rows, ("t", None, b"x", 8, None, 1), ("t", b"", b"y", 9, None, None)]:
        final.put([row])
    assert (tmp_path / "final").exists()
    found = sorted(final.drain(), key=lambda row: row[3])
    assert found == [*rows[3:], ("t", None, b"x", 8, None, 1), ("t", b"", b"y", 9, None, None)]
    assert list(final.drain()) == []
