"""A topology on an embedded log, records that are produced to it, and what `consume` prints of them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.support import streamkit

TOPOLOGY = """\
streamkit: 1
application: clicks
config: {{bootstrap.servers: embedded, state.dir: {state}, commit.interval.ms: 100}}
functions:
  is_large: {{params: [n], expr: n > 5}}
topics:
  clicks: {{topic: clicks-in, key: string, value: json, partitions: 2}}
  scores: {{key: string, value: json}}
  users: {{key: {{windowed: string, size: 1m}}, value: string}}
  pairs: {{key: json, value: long}}
  numbers: {{key: long, value: string}}
pipelines:
  counting:
    stream: clicks
    steps:
      - group_by: {{key: value.page, key_serde: string}}
      - count: counts
  windows:
    stream: users
    steps:
      - group_by: {{key: value, key_serde: string}}
      - window: {{tumbling: 1m}}
      - count: per-minute
  moving:
    table: scores
    steps:
      - group_by: {{key: value.page, value: value.n, key_serde: string, value_serde: long}}
      - aggregate: {{initial: 0, add: aggregate + value, subtract: aggregate - value, store: sums, value_serde: long}}
"""


def produced(path: Path, topic: str, *records: dict) -> None:
    done = streamkit("produce", path, topic, stdin="".join(json.dumps(record) + "\n" for record in records))
    assert (done.code, done.err) == (0, "")


def consumed(path: Path, *options: object, topic: str = "clicks") -> list[dict]:
    """The records that consume prints, which ends by itself."""
    done = streamkit("consume", path, topic, *options)
    assert (done.code, done.err) == (0, "")
    return [json.loads(line) for line in done.out.splitlines()]
