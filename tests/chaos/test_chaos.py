"""A short soak with a fixed seed on the real broker, and the checker that judges it."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import ProductionError
from tests.broker.kafka_broker import Broker
from tests.broker.support import Log, Raw, until
from tests.chaos.faults import BROKER_KINDS, KINDS, name_of
from tests.chaos.soak import Verdict, soak
from tests.chaos.workload import Feeder, Found, _compare, _paired, _running, make, read_truth

pytestmark = pytest.mark.broker

FAULTS, LIMIT_S = 8, 600
# A restart of the broker takes as long as all of this: those are left to `make chaos`.
KINDS_HERE = frozenset(name_of(kind) for kind, _ in KINDS if kind not in BROKER_KINDS)


def test_nothing_is_lost_or_doubled(broker: Broker, tmp_path: Path) -> None:
    log = Log(broker.address)
    said: list[str] = []
    try:
        verdict = soak(
            tmp_path, log, None, seed=7, seconds=LIMIT_S, rate=100, most=FAULTS, only=KINDS_HERE, say=said.append
        )
    finally:
        log.close()
    assert verdict.passed, "\n".join([*said, verdict.text()])
    assert verdict.faults == FAULTS
    assert verdict.found.records > 0


def test_writing_continues_with_a_new_producer(broker: Broker, tmp_path: Path) -> None:
    with closing(Log(broker.address)) as log:
        app = make(tmp_path, log, "exactly_once_v2")
        feeder = Feeder(app, 7, 400)
        working, failed = feeder._producer, threading.Event()

        class Stuck:
            """Writes half of the rows, and says so."""

            flush, close = working.flush, working.close

            def send(self, rows: list[Any]) -> None:
                working.send(rows[: len(rows) // 2])
                failed.set()
                raise ProductionError("Message timed out")

        feeder._producer = Stuck()  # type: ignore[assignment]
        feeder.start()
        assert failed.wait(60)
        half = sum(log.ends(app.topic("events")))
        until(lambda: sum(log.ends(app.topic("events"))) > half, "the new producer writes")
        feeder.end()
        truth = read_truth(app)
        assert feeder.renewed == 1
        assert sum(truth.events.values()) == sum(log.ends(app.topic("events")))


def counts(*numbers: int) -> list[Raw]:
    return [Raw(0, at, b"k", number.to_bytes(8), 0, []) for at, number in enumerate(numbers)]


@pytest.mark.parametrize(
    ("numbers", "gaps", "repeats"),
    [((1, 2, 3), 0, 0), ((1, 3), 1, 0), ((1, 2, 2, 3), 0, 1), ((2, 3), 1, 0), ((1, 2, 1, 2, 3), 0, 2)],
)
def test_the_checker_sees_gaps_and_repeats(numbers: tuple[int, ...], gaps: int, repeats: int) -> None:
    found = Found()
    _running(counts(*numbers), found, True)
    assert (found.gaps, found.repeats) == (gaps, repeats)


def test_the_checker_sees_what_is_missing_and_too_much() -> None:
    found = Found()
    _compare(found, "pairs", Counter(a=1, b=2), Counter(a=1, b=1, c=1), True)
    assert (found.gaps, found.repeats) == (1, 1)
    least = Found()
    _compare(least, "words", {"a": 3}, {"a": 2, "b": 1}, False)
    assert (least.wrong, least.samples) == (1, ["wrong: words: b is 0, must be 1"])


def test_a_verdict_distinguishes_lost_results_from_input_that_is_not_read() -> None:
    found = Found(unread={"events": 3})
    _compare(found, "words", Counter(a=1), Counter(a=2), True)
    verdict = Verdict(1, 0, 2.0, found)
    assert not verdict.passed
    assert verdict.text().splitlines()[1:] == [
        "not read: 3 records of events",
        "wrong: words: a is 1, must be 2",
        "FAILED",
    ]


def test_a_side_that_was_written_twice_is_paired_twice() -> None:
    assert _paired(Counter(p1=2, p2=1, p3=1), Counter(p1=1, p2=1)) == Counter(p1=2, p2=1)
