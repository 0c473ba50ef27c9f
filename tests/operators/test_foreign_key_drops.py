"""Rows of an inner foreign-key join without a foreign key count as dropped, as in Kafka Streams 4.4.0."""

from __future__ import annotations

from pathlib import Path

from streamkit.plan import load
from streamkit.runtime.driver import Driver

TEXT = """
streamkit: 1
application: app
config: {statestore.cache.max.bytes: 0}
topics: {left: {value: string}, right: {value: string}, out: {value: string}}
pipelines:
  right: {table: right}
  out:
    table: left
    steps:
      - join: {with: right, on: 'None if value == "none" else value', value: left + right, value_serde: string}
      - to_stream
    to: out
"""
# What was written to the left table in turn, and the total of dropped-records-total after it (TopologyTestDriver).
FACTS = [("none", 1), ("none", 2), ("f", 2), ("none", 3), ("f", 3), (None, 3), ("none", 4), (None, 4), (None, 4)]


def test_rows_without_a_foreign_key_are_dropped_and_their_deletion_is_not(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(TEXT)
    driver = Driver(load(path))
    totals = []
    for value, _ in FACTS:
        driver.pipe({"topic": "left", "key": "k", "value": value, "timestamp": 0})
        assert driver._task is not None
        totals.append((value, driver._task.dropped_total))
    assert totals == FACTS
