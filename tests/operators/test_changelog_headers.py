"""Which changelogs have the headers of records: those of stream joins and of subscriptions, as in Kafka Streams 4.3.1."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamkit.plan import load
from streamkit.runtime.driver import Driver

TOPOLOGY = """streamkit: 1
application: app
defaults: {key: string, value: string}
topics: {left: {}, right: {}, rows: {}, names: {}, out: {}, full: {}}
pipelines:
  right: {stream: right}
  names: {table: names}
  joined:
    stream: left
    steps:
      - filter: {if: "CONDITION"}
      - outer_join: {with: right, value: "left + '-' + right", within: 5ms, grace: 5ms}
    to: out
  full:
    table: rows
    steps:
      - filter: {if: "CONDITION"}
      - left_join: {with: names, "on": "value[:1]", value: left}
      - to_stream
    to: full
"""
INPUT = [
    ("left", "k", "a", 10, [["h", "1"]]),
    ("right", "k", "b", 12, []),
    ("right", "k", None, 13, [["h", "2"]]),
    ("left", "m", "c", 14, [["h", "3"]]),
    ("rows", "r", "x1", 20, [["h", "4"]]),
    ("names", "x", "X", 21, [["h", "5"]]),
    ("rows", "r", None, 22, [["h", "6"]]),
]
# What TopologyTestDriver logs, by the kind of the store: value, timestamp and headers of each record.
LOGGED = {
    "OUTERTHIS": [(b"a", 10, "1"), (b"c", 14, "3")],
    "OUTEROTHER": [(b"b", 12, None), (None, 13, "2")],
    "OUTERSHARED": [
        (b"\x01\x00\x00\x00\x01\x00\x00\x00\x02\x01a", 10, None),
        (None, 12, None),
        (b"\x01\x00\x00\x00\x01\x00\x00\x00\x02\x01c", 14, None),
    ],
    "SUBSCRIPTION": [
        (bytes.fromhex("01022d2b71d4c1071ff0b874051f94fb158a7200000000"), 20, "4"),
        (None, 22, "6"),
    ],
    "rows": [(b"x1", 20, None), (None, 22, None)],
    "names": [(b"X", 21, None)],
}


@pytest.mark.parametrize("condition", ["value != ''", "offset >= 0"])
def test_joins_log_the_headers_of_their_records(tmp_path: Path, condition: str) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(TOPOLOGY.replace("CONDITION", condition), encoding="utf-8")
    with Driver(load(path)) as driver:
        for topic, key, value, timestamp, headers in INPUT:
            driver.pipe({"topic": topic, "key": key, "value": value, "timestamp": timestamp, "headers": headers})
        logged = driver.remains.changelogs
    for kind, expected in LOGGED.items():
        topics = [topic for topic in logged if kind in topic and topic.endswith("-changelog")]
        rows = [
            (value, time, headers[0][1].decode() if headers else None)
            for topic in topics
            for _, _, value, time, headers, _ in logged[topic]
        ]
        assert rows == expected, kind
