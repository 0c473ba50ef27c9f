"""What a stage writes, for cases in which the last record of a key is not all that counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.record import TopicPartition
from streamkit.runtime.spark.job import Job
from streamkit.runtime.spark.job_options import JSON_LINES, PARQUET, JobOptions, Place
from streamkit.state.definitions import CurrentTopic
from streamkit.state.engines.open_maps import open_map
from streamkit.state.stores.versioned import VersionedStore
from tests.spark.in_process import written_by

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


def test_rows_with_an_offset_and_rows_without_one_in_a_batch(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, OFFSETS)
    job = Job(plan, {"lines": 1, "out": 1}, JobOptions({"lines": (Place("-", JSON_LINES),)}, {"out": Place("-", PARQUET)}))
    given = [{"offset": 5}, {}, {"offset": 4}, {}]
    records = [{"topic": "lines", "value": "v", "timestamp": 0, **each} for each in given]
    assert [int.from_bytes(row["value"]) for row in written_by(job, records)] == [4, 5, 0, 1]
