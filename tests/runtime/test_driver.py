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
