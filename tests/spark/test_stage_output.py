"""What a stage writes, for cases in which the last record of a key is not all that counts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.record import TopicPartition
from streamkit.runtime.spark.job import Job
from streamkit.runtime.spark.job_options import FINAL, JSON_LINES, PARQUET, REST, UPDATES, JobOptions, Place
from streamkit.state.definitions import CurrentTopic
from streamkit.state.engines.open_maps import open_map
from streamkit.state.stores.versioned import VersionedStore
from tests.spark.in_process import InProcess, State, written_by

SOFT = """\
streamkit: 1
application: soft
config: {HANDLERS}
topics:
  words: {value: string, partitions: 1}
  out: {value: long, partitions: 1}
  dead: {key: bytes, value: bytes, partitions: 1}
pipelines:
  out:
    stream: words
    steps:
      - group_by_key
      - count
      - to_stream
      - map_values: {value: VALUE, value_serde: longON_ERROR}
    to: out
"""
OFFSETS = """\
streamkit: 1
application: offsets
topics: {lines: {value: string, partitions: 1}, out: {value: long, partitions: 1}}
pipelines:
  out: {stream: lines, steps: [{map_values: {value: offset, value_serde: long}}], to: out}
"""
VERSIONS = """\
streamkit: 1
application: versions
topics: {prices: {value: long, partitions: 1}}
pipelines:
  prices: {table: prices, store: {name: prices, versioned: 1h}}
"""
HOLDS = """\
streamkit: 1
application: holds
topics: {lines: {value: string, partitions: 1}, held: {value: string, partitions: 1}, counts: {value: long, partitions: 1}}
stores: {seen: {type: key_value, key: string, value: string}}
pipelines:
  held: {stream: lines, steps: [{process: {call: "holding:Hold", stores: [seen]}}], to: TO}
  counts: {stream: held, steps: [group_by_key, count, to_stream], to: counts}
"""
HOLDING = """\
class Hold:
    def init(self, context):
        self.context, self.records = context, []
        context.schedule(1000, "stream_time", lambda now: None)

    def process(self, record):
        self.records.append(record)

    def close(self):
        for record in self.records:
            self.context.store("seen").put(record.key, record.value)
            self.context.forward(record)
"""


def plan_of(folder: Path, text: str) -> Plan:
    path = folder / "topology.yaml"
    path.write_text(text)
    return load(path)


class Around:
    """What a store needs around it."""

    topic = CurrentTopic()

    def log(self, *row: Any) -> None:
        pass

    def dropped(self, reason: str) -> None:
        pass


def test_the_state_for_a_live_run_has_all_versions(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, VERSIONS)
    job = Job(plan, {"prices": 1}, JobOptions(write_state=True), {TopicPartition("prices", 0): 4})
    versions = [("k", 10, 1000), ("k", 12, 5000), ("k", 11, 3000), ("j", 1, 2000)]
    records = [
        {"topic": "prices", "key": key, "value": value, "timestamp": time, "offset": at}
        for at, (key, value, time) in enumerate(versions)
    ]
    changelog = plan.changelog_name("prices")
    rows = [row for row in written_by(job, records) if row["topic"] == changelog]
    store = VersionedStore(plan.stores["prices"], open_map("memory"), Around())
    for row in sorted(rows, key=lambda row: (row["source"], row["offset"])):
        store.restore(row["key"], row["value"], row["timestamp"], None)
    found = {time: store.get(b"k", time) for time in (1000, 2999, 3000, 5000, None)}
    assert found == {1000: (10, 1000), 2999: (10, 1000), 3000: (11, 3000), 5000: (12, 5000), None: (12, 5000)}
    assert store.get(b"j") == (1, 2000)


FAILS = "12 // (value - 2)"
OVERFLOWS = "9223372036854775807 + value - 1 if value == 2 else -12"


@pytest.mark.parametrize(
    ("handlers", "on_error", "value"),
    [
        ("", ", on_error: continue", FAILS),
        ("", ", on_error: {dead_letter: dead}", FAILS),
        ("processing.exception.handler: continue", "", FAILS),
        ("production.exception.handler: continue", "", OVERFLOWS),
    ],
)
def test_the_last_record_stays_where_a_later_one_fails(
    tmp_path: Path, handlers: str, on_error: str, value: str
) -> None:
    text = SOFT.replace("HANDLERS", handlers).replace("ON_ERROR", on_error).replace("VALUE", value)
    plan = plan_of(tmp_path, text)
    records = [{"topic": "words", "key": key, "value": "v", "timestamp": 1} for key in "aab"]

    def written(emit: str) -> list[tuple[str, bytes, bytes]]:
        options = JobOptions({"words": (Place("-", JSON_LINES),)}, {REST: Place("-", PARQUET)}, emit)
        rows = written_by(Job(plan, {"words": 1, "out": 1, "dead": 1}, options), records)
        return sorted((row["topic"], row["key"], row["value"]) for row in rows)

    assert [(key, int.from_bytes(value, signed=True)) for topic, key, value in written(FINAL) if topic == "out"] == [
        (b"a", -12),
        (b"b", -12),
    ]
    assert written(FINAL) == written(UPDATES)


def test_rows_with_an_offset_and_rows_without_one_in_a_batch(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, OFFSETS)
    job = Job(
        plan, {"lines": 1, "out": 1}, JobOptions({"lines": (Place("-", JSON_LINES),)}, {"out": Place("-", PARQUET)})
    )
    given = [{"offset": 5}, {}, {"offset": 4}, {}]
    records = [{"topic": "lines", "value": "v", "timestamp": 0, **each} for each in given]
    assert [int.from_bytes(row["value"]) for row in written_by(job, records)] == [4, 5, 0, 1]


def offset_runs(plan: Plan, *runs: list[int]) -> tuple[InProcess, list[dict[str, pa.Table]]]:
    """A job, and the rows of runs with these offsets."""
    draw = random.Random(1)
    jobs = [
        InProcess(plan, [{"topic": "lines", "value": "v", "timestamp": 0, "offset": offset} for offset in run])
        for run in runs
    ]
    return jobs[0], [part for job in jobs for part in job.parts(draw, 1)]


@pytest.mark.parametrize("repeated", [[2, 3], [0], [1, 7], [4, 5, 6, 8]])
def test_offsets_that_a_run_before_has_read_are_refused(tmp_path: Path, repeated: list[int]) -> None:
    job, parts = offset_runs(plan_of(tmp_path, OFFSETS), [0, 1, 2], [5, 6], repeated)
    with pytest.raises(RuntimeError, match=r"lines-0: the offset \d is within the range that earlier runs have read"):
        job.run(parts, random.Random(1))


def test_offsets_that_no_run_before_has_read_are_taken_in_any_order(tmp_path: Path) -> None:
    job, parts = offset_runs(plan_of(tmp_path, OFFSETS), [5, 6], [7, 9], [2, 3, 12])
    found, _ = job.run(parts, random.Random(1))
    assert [record["value"] for record in found] == [5, 6, 7, 9, 2, 3, 12]


def test_a_memory_without_offsets_is_read(tmp_path: Path) -> None:
    job, (first, second) = offset_runs(plan_of(tmp_path, OFFSETS), [0, 1], [2])
    state, draw = State(), random.Random(1)
    list(job._run(first, state, draw))
    for memory in state.tasks.values():
        del memory["own"]
    assert [row["topic"] for row in job._run(second, state, draw)] == ["out"]


def test_what_processors_forward_when_they_are_closed_is_written(tmp_path: Path) -> None:
    (tmp_path / "holding.py").write_text(HOLDING)
    plan = plan_of(tmp_path, HOLDS.replace("TO", "held"))
    records = [{"topic": "lines", "key": "k", "value": value, "timestamp": time} for time, value in enumerate("abc")]
    job = InProcess(plan, records)
    for parts in (
        job.parts(random.Random(1), 1),
        [job.parts(random.Random(1), 1)[0], InProcess(plan, records[:1]).parts(random.Random(1), 1)[0]],
    ):
        written, state = job.run(parts, random.Random(1))
        assert [record["value"] for record in written if record["topic"] == "held"] == [*"abc", *"a"][: 2 + len(parts)]
        assert [record["value"] for record in written if record["topic"] == "counts"] == [1, 2, 3, 4][: 2 + len(parts)]
        assert state.rows()["seen", 0].keys() == {b"k"}
    once = plan_of(tmp_path, HOLDS.replace("TO", "held").partition("  counts:")[0])
    options = JobOptions({"lines": (Place("-", JSON_LINES),)}, {"held": Place("-", PARQUET)})
    assert [row["value"] for row in written_by(Job(once, {"lines": 1, "held": 1}, options), records)] == [
        b"a",
        b"b",
        b"c",
    ]
    cycle = plan_of(tmp_path, HOLDS.replace("TO", "lines"))
    job = InProcess(cycle, records)
    parts = job.parts(random.Random(1), 1)
    with pytest.raises(RuntimeError, match="a processor forwards a record to lines in its close"):
        job.run(parts, random.Random(1))
