"""Records that a job drops are counted and reported, each once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamkit.plan import load
from streamkit.runtime.spark.job_options import JSON_LINES, JobOptions, Place
from streamkit.runtime.spark.submission.incremental import submit_next
from streamkit.runtime.spark.submission.submit_job import submit
from tests.spark.support import write_lines

TOPOLOGY = """\
streamkit: 1
application: drops
topics:
  numbers: {key: string, value: json, partitions: 2}
  halves: {key: string, value: json}
  counts: {key: {windowed: string, size: 10s}, value: long}
pipelines:
  halves:
    stream: numbers
    steps:
      - map_values: {value: 100 / value, on_error: continue}
    to: halves
  counts:
    stream: numbers
    steps:
      - group_by: {key: str(value), name: counts}
      - window: {tumbling: 10s, grace: 0ms}
      - count
      - to_stream
    to: counts
"""
RECORDS = [
    *({"key": "a", "value": value, "timestamp": 50_000, "partition": 0} for value in (1, 0, 0)),
    {"key": "b", "value": 0, "timestamp": 50_000, "partition": 1},
    {"key": "a", "value": 1, "timestamp": 1_000, "partition": 0},
]
LINES = [
    "sub-topology 0: dropped 3 records (topic numbers, halves.map_values failed: ZeroDivisionError)",
    "sub-topology 1: dropped 1 late record (topic drops-counts-repartition, window closed)",
]


def test_each_record_counts_once(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(TOPOLOGY)
    numbers = (write_lines(tmp_path / "numbers", RECORDS),)
    for number, checkpoint in enumerate((None, str(tmp_path / "checkpoint"))):
        said: list[str] = []
        outputs = {topic: Place(str(tmp_path / f"{topic}-{number}"), JSON_LINES) for topic in ("halves", "counts")}
        options = JobOptions({"numbers": numbers}, outputs, checkpoint=checkpoint)
        run = submit if checkpoint is None else submit_next
        run(load(path), options, spark, said.append)
        assert [line for line in said if "dropped" in line] == LINES
