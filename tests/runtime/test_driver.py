"""What the driver of `try` has in common with TopologyTestDriver."""

from __future__ import annotations

from pathlib import Path

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
