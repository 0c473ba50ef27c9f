"""What is measured. Each scenario is a file in topologies/, a case in java/Peer.java, and for some a loop by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from tests.bench.inputs import MARK

Row = tuple[str, str, bytes]
"""(out or progress, key, value)."""
ByHand = Callable[[Iterator[tuple[str, str]]], Iterator[Row]]


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


@dataclass(frozen=True)
class Scenario:
    """One thing to measure."""

    name: str
    title: str
    inputs: tuple[str, ...]
    """By their names in inputs.py; the first one has markers, and its records are counted."""
    records: int
    """Of each input, whatever warms up included."""
    warm: int
    compare: Literal["ordered", "any order", "last of a key"] = "last of a key"
    topology: str = ""
    """Whose file and Java case it takes; by default its own."""
    measured_on: Literal["out", "progress"] = "progress"
    partitions: int = 1
    settings: dict[str, object] = field(default_factory=dict)
    by_hand: ByHand | None = None
    quix: bool = False
    processes: int = 1
    """Instances of streamkit; more than one takes --processes."""
    by_share: bool = False
    """Whether the warm-up ends with a share of the markers of all partitions, not with a marker of the first one. With several
    partitions one may be at its end before another begins, and a repartitioned marker waits for its partition."""
    restores: bool = False
    """Whether a restore is measured afterwards: another start without the state directory."""

    @property
    def program(self) -> str:
        """The name of its topology file and Java case."""
        return self.topology or self.name

    def smaller(self, divisor: int) -> Scenario:
        """The same with fewer records."""
        return replace(self, records=self.records // divisor, warm=self.warm // divisor)


EXACTLY_ONCE = {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 100}
MILLION = {"records": 1_200_000, "warm": 200_000}
PARTITIONS = Scenario("partitions", "count, 64 partitions", ("lines",), **MILLION, topology="count", partitions=64)

ALL = [
    Scenario(
        "stateless",
        "filter, map_values",
        ("lines",),
        **MILLION,
        compare="ordered",
        measured_on="out",
        by_hand=stateless_by_hand,
        quix=True,
    ),
    Scenario("count", "count by key", ("lines",), **MILLION, by_hand=count_by_hand, quix=True),
    Scenario("words", "word count, repartitioned", ("lines",), 360_000, 60_000),
    Scenario(
        "json", "JSON: filter, add a field", ("requests",), **MILLION, compare="ordered", measured_on="out", quix=True
    ),
    Scenario("tumbling", "tumbling-window count", ("events",), **MILLION),
    Scenario("table", "stream-table join", ("visits", "users"), **MILLION, compare="ordered"),
    Scenario("streams", "stream-stream join, 10 s", ("left", "right"), 240_000, 40_000, compare="any order"),
    Scenario(
        "exactly-once", "count, exactly once, 100 ms", ("lines",), **MILLION, topology="count", settings=EXACTLY_ONCE
    ),
    Scenario("distinct", "count, 1 M distinct keys", ("distinct",), **MILLION, topology="count", restores=True),
    PARTITIONS,
]
