"""What is measured: each scenario as a YAML topology, as a loop by hand, and what it must give.

The same program in Java is in java/Peer.java. Input lines are some words; now and then stands a marker, a line whose
key and value are `@000000`. Where a marker arrives tells how far a program is: in the output itself where every record
is written, else in a progress topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

MARK = "@"

STATELESS = """\
streamkit: 1
application: {application}
config: {{bootstrap.servers: "{bootstrap}", state.dir: "{state}"}}
topics:
  lines: {{topic: {input}, key: string, value: string}}
  out: {{topic: {output}, key: string, value: string}}
pipelines:
  upper:
    stream: lines
    steps:
      - filter: value[0] < "n"
      - map_values: {{value: value.upper(), value_serde: string}}
    to: out
"""

COUNT = """\
streamkit: 1
application: {application}
config: {{bootstrap.servers: "{bootstrap}", state.dir: "{state}"}}
topics:
  lines: {{topic: {input}, key: string, value: string}}
  out: {{topic: {output}, key: string, value: long}}
  progress: {{topic: {progress}, key: string, value: string}}
pipelines:
  counts:
    stream: lines
    steps:
      - group_by_key
      - count: counts
      - to_stream
    to: out
  progress:
    stream: lines
    steps:
      - filter: key.startswith("@")
    to: progress
"""

WORDS = """\
streamkit: 1
application: {application}
config: {{bootstrap.servers: "{bootstrap}", state.dir: "{state}"}}
topics:
  lines: {{topic: {input}, key: string, value: string}}
  out: {{topic: {output}, key: string, value: long}}
  progress: {{topic: {progress}, key: string, value: string}}
pipelines:
  words:
    stream: lines
    steps:
      - flat_map_values: {{values: 'value.split(" ")', value_serde: string}}
      - select_key: {{key: value, key_serde: string}}
      - repartition
  counts:
    from: words
    steps:
      - group_by_key
      - count: counts
      - to_stream
    to: out
  progress:
    from: words
    steps:
      - filter: key.startswith("@")
    to: progress
"""

Row = tuple[str, str, bytes | None]  # topic (out or progress), key, value


def stateless_by_hand(lines: Iterator[tuple[str, str]]) -> Iterator[Row]:
    for key, value in lines:
        if value[0] < "n":
            yield "out", key, value.upper().encode()


def count_by_hand(lines: Iterator[tuple[str, str]]) -> Iterator[Row]:
    """Keeps the counts in a dict, without store and changelog, and writes them at the end as a cache would."""
    counts: dict[str, int] = {}
    for key, value in lines:
        counts[key] = counts.get(key, 0) + 1
        if key[0] == MARK:
            yield "progress", key, value.encode()
    for key, count in counts.items():
        yield "out", key, count.to_bytes(8, "big")


def words_by_hand(lines: Iterator[tuple[str, str]]) -> Iterator[Row]:
    return count_by_hand((word, word) for _, value in lines for word in value.split(" "))


@dataclass(frozen=True)
class Scenario:
    """One thing to measure; `lines` is how many input lines, of which `warm` come before the measurement."""

    name: str
    title: str
    yaml: str
    by_hand: Callable[[Iterator[tuple[str, str]]], Iterator[Row]]
    lines: int
    warm: int
    measured_on: str  # the topic in which markers are looked for
    last_per_key: bool  # whether the last value of each key is the result, or every record in order

    def smaller(self, divisor: int) -> Scenario:
        return Scenario(**{**vars(self), "lines": self.lines // divisor, "warm": self.warm // divisor})


ALL = [
    Scenario("stateless", "filter, map_values", STATELESS, stateless_by_hand, 1_200_000, 200_000, "out", False),
    Scenario("count", "count by key, cached", COUNT, count_by_hand, 1_200_000, 200_000, "progress", True),
    Scenario("words", "word count, repartitioned", WORDS, words_by_hand, 360_000, 60_000, "progress", True),
]
