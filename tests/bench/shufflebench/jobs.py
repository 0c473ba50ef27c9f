"""The two programs of ShuffleBench as jobs, and what they wrote."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.bench.programs import JAVA, STREAMKIT
from tests.bench.shufflebench.functions import MASK, STATE
from tests.bench.side_by_side import FLINK, Job
from tests.broker.support import Log, Raw

TOPOLOGY = Path(__file__).with_name("shufflebench.yaml")
SELECTIVITY = 0.2
OUTPUT_RATE = 10
STATE_BYTES = 1024


@dataclass(frozen=True)
class Case:
    """The rules of a run: how many, and the exponent of their shares (0: all are equal, 1: Zipf's law)."""

    rules: int
    exponent: float

    @property
    def title(self) -> str:
        """As the tables show it."""
        return f"{self.rules:,} rules, s = {self.exponent:g}"


def job(
    case: Case,
    application: str,
    topic: str,
    settings: dict[str, object],
    random_start: bool = True,
    bounded: bool = False,
) -> Job:
    """The job of a case over the input of a topic.

    `random_start`: whether first results come at different times. `bounded`: whether Flink ends with the input.
    """
    return Job(
        application,
        TOPOLOGY,
        ("bench/shufflebench/java", "Shuffle"),
        {"input": topic, "output": f"out-{application}"},
        (topic,),
        settings,
        {
            "rules": case.rules,
            "exponent": case.exponent,
            "selectivity": SELECTIVITY,
            "rate": OUTPUT_RATE,
            "size": STATE_BYTES,
            "random_start": str(random_start).lower(),
            "bounded": str(bounded).lower(),
        },
        ("bench/flink/java", "Shuffle"),
    )


def application(program: str, what: str, case: Case, number: int) -> str:
    """A name for a run."""
    short = {STREAMKIT: "streamkit", JAVA: "java", **FLINK}[program]
    return f"shuffle-{what}-{case.rules}-{case.exponent:g}-{short}-{number}".replace(".", "-")


def digest(rows: Iterable[Raw]) -> str:
    """The checksum of the results of all consumers, in any order of the consumers."""
    found = hashlib.sha256()
    for key, value in sorted((row.key or b"", row.value or b"") for row in rows):
        found.update(key + b"\0" + value + b"\0")
    return found.hexdigest()[:16]


def consumed(log: Log, made: Job) -> dict[str, tuple[int, int]]:
    """By consumer how many records its results and its state contain, and the sum of their first 8 bytes modulo 2**64."""
    results = log.read(made.topics["output"], committed_only=True)
    # Of a state only the last row counts; one that has just given its result is all zeros.
    changes = log.read(f"{made.application}-consumers-changelog", committed_only=True)
    states = {row.key: row for row in changes}
    found: dict[str, tuple[int, int]] = {}
    for row in (*results, *states.values()):
        assert row.key is not None
        assert row.value is not None
        count, total, _, _ = STATE.unpack_from(row.value)
        before, sums = found.get(row.key.decode(), (0, 0))
        found[row.key.decode()] = before + count, (sums + total) & MASK
    return found
