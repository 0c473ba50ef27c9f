"""What the driver of `try` has in common with TopologyTestDriver."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamkit.plan import load
from streamkit.runtime.driver import Driver

TOPOLOGY = """
streamkit: 1
application: offsets
topics:
  plain: {value: long}
  out: {value: json}
pipelines:
  all:
    stream: {pattern: "in-[a-z]"}
    steps:
      - map_values: "[topic, offset]"
    to: out
  one:
    stream: plain
    steps:
      - map_values: "[topic, offset]"
    to: out
"""


def test_topics_of_a_pattern_are_counted_together(tmp_path: Path):
    """As Kafka Streams 4.3.1 does (TopologyTestDriver.getInputTopicOrPatternPartition)."""
    path = tmp_path / "topology.yaml"
    path.write_text(TOPOLOGY)
    with Driver(load(path)) as driver:
        found = [
            record["value"]
            for topic in ("in-a", "plain", "in-b", "in-a", "plain")
            for record in driver.pipe({"topic": topic, "key": "k", "value": 1, "timestamp": 0})
        ]
    assert found == [["in-a", 0], ["plain", 0], ["in-b", 1], ["in-a", 2], ["plain", 1]]


SHARED = """
streamkit: 1
application: shared
config: {statestore.cache.max.bytes: 100}
topics:
  names: {value: string}
  words: {value: string}
  counts: {value: long}
  named: {value: string}
pipelines:
  names:
    global_table: names
    store: {name: names}
  counts:
    stream: words
    steps:
      - flat_map_values: {values: "[value, value]", value_serde: string}
      - group_by_key
      - count: {store: {name: counts}}
      - to_stream
    to: counts
  named:
    stream: words
    steps:
      - left_join: {with: names, on: value, value: 'left + "-" + (right or "?")', value_serde: string}
    to: named
"""


def test_a_global_table_takes_room_in_the_cache_of_all(tmp_path: Path):
    """What Kafka Streams 4.3.1 gives: as long as a name is cached, counts leave the full cache one by one."""
    path = tmp_path / "topology.yaml"
    path.write_text(SHARED)
    lines = [
        ("names", "one", "first"),
        ("words", "a", "one"),
        ("names", "two", "second"),
        ("names", "three", "third"),
        ("words", "a", "two"),
        ("words", "b", "three"),
        ("names", "three", None),
        ("names", "two", None),
        ("words", "a", "three"),
        ("words", "b", "one"),
    ]
    with Driver(load(path)) as driver:
        found = [
            (record["key"], record["value"])
            for time, (topic, key, value) in enumerate(lines)
            for record in driver.pipe({"topic": topic, "key": key, "value": value, "timestamp": time})
        ]
    assert [each for each in found if isinstance(each[1], int)] == [
        *(("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 1), ("b", 2)),
        *(("a", 6), ("b", 4)),
    ]
    assert [each[1] for each in found if isinstance(each[1], str)] == [
        *("one-first", "two-second", "three-third", "three-?", "one-first")
    ]


SESSIONS = """
streamkit: 1
application: early-sessions
config: {HANDLER}
topics:
  in: {key: string, value: string}
  out: {key: {session_windowed: string}, value: long}
pipelines:
  counts:
    stream: in
    steps:
      - group_by_key
      - window: {session: 3m}
      - count: {STORE}
      - to_stream
    to: out
"""
CONTINUE = "processing.exception.handler: continue"
TIMES = [100_000, 95_000, 10_000, 90_001, 90_000, 200_000, 0]


@pytest.mark.parametrize(
    ("handler", "store", "counted"),
    [
        # A segment is 90 s long: Java's cache cannot be searched from -90 s on, where a gap of 3 minutes before 90 s begins.
        (CONTINUE, "store: {name: s}", {(90_001, 200_000): 4}),
        ("", "store: {name: s}, on_error: continue", {(90_001, 200_000): 4}),
        # Without a cache, in memory and with longer segments it can.
        (CONTINUE, "store: {name: s, caching: false}", {(0, 200_000): 7}),
        (CONTINUE, "store: {name: s, type: in_memory}", {(0, 200_000): 7}),
        (CONTINUE, "store: {name: s, retention: 10m}", {(0, 200_000): 7}),
        # Java ends at the third record.
        ("", "store: {name: s}", {(0, 200_000): 7}),
        (CONTINUE, "store: {name: s}, on_error: fail", {(0, 200_000): 7}),
    ],
)
def test_cached_sessions_drop_records_whose_gap_begins_a_segment_before_the_epoch(
    tmp_path: Path, handler: str, store: str, counted: dict
) -> None:
    """As Kafka Streams 4.3.1 and 4.4.0 do under LogAndContinueProcessingExceptionHandler (CachingSessionStore)."""
    path = tmp_path / "topology.yaml"
    path.write_text(SESSIONS.replace("HANDLER", handler).replace("STORE", store))
    with Driver(load(path)) as driver:
        for time in TIMES:
            driver.pipe({"topic": "in", "key": "k", "value": "v", "timestamp": time})
        rows = driver.stores()["s"]
    assert {(key["start"], key["end"]): value for key, value in rows} == counted


TOMBSTONES = """
streamkit: 1
application: tombstones
topics:
  in: {key: string, value: string}
  out: {key: {windowed: string, size: 12ms}, value: long}
pipelines:
  counts:
    stream: in
    steps:
      - process: "threefold:work"
      - group_by: {key: key}
      - window: {sliding: 12, grace: 100}
      - count
      - suppress: {until: 0, name: n9}
      - to_stream
    to: out
"""
THREEFOLD = """
def work(record, context):
    for shift in (7, 0, -30):
        if record.timestamp + shift >= 0:
            yield record.replace(timestamp=record.timestamp + shift)
"""


def test_the_tombstones_of_suppress_are_logged_in_the_order_of_kafka_streams(tmp_path: Path) -> None:
    """The starts of windows in the changelog of suppress are those of Kafka Streams 4.4.0, commit by commit."""
    (tmp_path / "threefold.py").write_text(THREEFOLD)
    path = tmp_path / "topology.yaml"
    path.write_text(TOMBSTONES)
    with Driver(load(path)) as driver:
        for time in (17, 47, 60, 61):
            driver.pipe({"topic": "in", "key": "c", "value": "v", "timestamp": time})
        logged = driver.remains.changelogs["tombstones-n9-store-changelog"]
    assert {row[2] for row in logged} == {None}
    starts = [int.from_bytes(row[1][-8:]) for row in logged if row[1] is not None]
    assert starts == [
        *(12, 18, 5, 12, 42, 48, 35, 42, 5, 12, 55, 48, 55, 61, 18, 25),
        *(68, 56, 61, 62, 49, 55, 56, 61, 31, 19, 25),
    ]
