"""What the instances compute while faults happen, the input that never stops, and what must have come out of it."""

from __future__ import annotations

import random
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamkit.errors import ProductionError, RetriableTransportError, UnreachableError
from streamkit.transport import open_transport
from streamkit.transport.log_interface import Producer
from tests.broker.support import App, Log, Raw, application

PARTITIONS = 8
CLASSIC, STREAMS = "classic", "streams"
"""What `group.protocol` may be."""
ENRICH = '      - enrich: {call: "chaos_lookup:answer", retries: 9, backoff: 5ms, value_serde: string}\n'
"""A step of streamkit's own, which a group with Kafka Streams can't have."""
KEYS = 300
WORDS = 120
PAUSE_S = 0.05
DELIVERY_MS = 60_000
"""Longer than a broker is away."""
MOST_PRODUCERS = 5
TEXT = f"""\
defaults: {{key: string, value: string}}
topics:
  events: {{topic: "{{a}}events", partitions: {PARTITIONS}}}
  counts: {{topic: "{{a}}counts", value: long, partitions: {PARTITIONS}}}
  lines: {{topic: "{{a}}lines", partitions: {PARTITIONS}}}
  words: {{topic: "{{a}}words", value: long, partitions: {PARTITIONS}}}
  left: {{topic: "{{a}}left", partitions: {PARTITIONS}}}
  right: {{topic: "{{a}}right", partitions: {PARTITIONS}}}
  pairs: {{topic: "{{a}}pairs", partitions: {PARTITIONS}}}
pipelines:
  running:
    stream: events
    steps:
{ENRICH}      - group_by_key
      - count: running
      - to_stream
    to: counts
  counted:
    stream: lines
    steps:
      - flat_map_values: {{values: value.split()}}
      - group_by: value
      - count: words
      - to_stream
    to: words
  joined:
    stream: left
    steps:
      - join: {{with: {{stream: right}}, value: left + "+" + right, within: 1h, grace: 1d}}
    to: pairs
"""
LOOKUP = """\
import asyncio
import random

from streamkit import RetriableError


async def answer(value):
    await asyncio.sleep(random.random() * 0.02)
    if random.random() < 0.05:
        raise RetriableError("busy")
    return value
"""
"""The module whose function `enrich` calls: it answers late, and sometimes not at once."""
INPUTS = ("events", "lines", "left", "right")
STORES = ("running", "words")


def make(folder: Path, log: Log, guarantee: str, protocol: str = CLASSIC, **config: object) -> App:
    """The topology with the record cache off, and all its topics. protocol: of its group; STREAMS: Kafka Streams may share it."""
    (folder / "chaos_lookup.py").write_text(LOOKUP, encoding="utf-8")
    app = application(
        folder,
        log,
        "chaos",
        TEXT if protocol == CLASSIC else TEXT.replace(ENRICH, ""),
        group_protocol=protocol,
        processing_guarantee=guarantee,
        num_stream_threads=2,
        statestore_cache_max_bytes=0,
        **config,
    )
    for name in (*INPUTS, "counts", "words", "pairs"):
        log.create(app.topic(name), PARTITIONS)
    return app


@dataclass
class Truth:
    """What the inputs have, as the topology has to count and pair it."""

    events: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    pairs: Counter[str] = field(default_factory=Counter)


class Feeder:
    """Writes input until it is ended, through broker faults too, with a new producer where one fails.

    In one of some twenty runs librdkafka never writes a record again after restarts of the broker, in others it writes some
    twice. What counts is what the log has in the end.
    """

    def __init__(self, app: App, seed: int, rate: int):
        """`rate`: events a second; a tenth as many lines and pairs."""
        self.error: BaseException | None = None
        self.renewed = 0
        """How many producers failed."""
        self._app = app
        self._draw = random.Random(seed)
        self._batch = max(1, round(rate * PAUSE_S))
        self._lines = 0
        # Of now: a broker that crashed takes producers of long ago for gone, and what they send again for new.
        self._time = time.time_ns() // 1_000_000
        self._end = threading.Event()
        self._producer = self._open_producer()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Write the last records. Raises what made writing fail."""
        self._end.set()
        self._thread.join()
        if self.error is not None:
            raise self.error
        self._write(lambda: self._producer.flush())
        self._producer.close()

    def _open_producer(self) -> Producer:
        settings = {"producer": {"delivery.timeout.ms": str(DELIVERY_MS), "linger.ms": "5"}}
        return open_transport(self._app.log.address, settings, "unused").producer()

    def _run(self) -> None:
        try:
            while not self._end.wait(PAUSE_S):
                self._send(self._rows())
        except BaseException as error:
            self.error = error

    def _send(self, rows: list[tuple]) -> None:
        while True:
            try:
                return self._write(lambda: self._producer.send(rows))
            except (RetriableTransportError, UnreachableError):
                # Only the embedded log refuses a call as a whole; Kafka's producer has taken the rows.
                if not self._app.log.address.startswith("embedded"):
                    return None

    def _write(self, call: Callable[[], None]) -> None:
        """Call a method of the producer; go on with a new one if records were not written."""
        try:
            call()
        except ProductionError:
            self.renewed += 1
            if self.renewed > MOST_PRODUCERS:
                raise
            self._producer.close()
            self._producer = self._open_producer()

    def _rows(self) -> list[tuple]:
        draw, app = self._draw, self._app
        rows: list[tuple] = []

        def row(topic: str, key: str, value: str) -> None:
            self._time += 1
            rows.append((app.topic(topic), key.encode(), value.encode(), self._time, None, None))

        for _ in range(self._batch):
            key = f"k{draw.randrange(KEYS)}"
            row("events", key, "x")
        if draw.random() < self._batch / 10 or self._batch >= 10:
            for _ in range(max(1, self._batch // 10)):
                line = [f"w{draw.randrange(WORDS)}" for _ in range(3)]
                row("lines", f"l{self._lines}", " ".join(line))
                sides = ["left", "right"]
                draw.shuffle(sides)
                for side in sides:
                    row(side, f"p{self._lines}", side[0])
                self._lines += 1
        return rows


@dataclass
class Found:
    """What came out compared with what had to; `samples` names the first places of each kind."""

    gaps: int = 0
    repeats: int = 0
    wrong: int = 0
    """Final results that are not as they must be: words, pairs, and rows of changelogs."""
    unread: dict[str, int] = field(default_factory=dict)
    """Records of inputs behind the committed offsets: their results are not lost, but not there yet."""
    records: int = 0
    samples: list[str] = field(default_factory=list)

    def note(self, kind: str, text: str) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.samples) < 20:
            self.samples.append(f"{kind}: {text}")


def read_truth(app: App) -> Truth:
    """Return what must come out of what the inputs on the log have."""
    events, lines, left, right = (app.log.read(app.topic(name)) for name in INPUTS)
    words = Counter(word for raw in lines if raw.value for word in raw.value.decode().split())
    return Truth(_keys(events), words, _paired(_keys(left), _keys(right)))


def _paired(left: Counter[str], right: Counter[str]) -> Counter[str]:
    return Counter({key: count * right[key] for key, count in left.items() if right[key]})


def _keys(rows: list[Raw]) -> Counter[str]:
    return Counter(raw.key.decode() for raw in rows if raw.key)


def check(app: App, *, exactly_once: bool) -> Found:
    """Compare the results with the inputs; at least once only asks that nothing is missing."""
    log, truth, found = app.log, read_truth(app), Found()
    found.unread = unread(app)
    counts = log.read(app.topic("counts"), committed_only=True)
    found.records = len(counts)
    last = _running(counts, found, exactly_once)
    _compare(found, "counts", last, truth.events, exactly_once)
    _compare(found, "words", _latest(log.read(app.topic("words"), committed_only=True)), truth.words, exactly_once)
    pairs = _keys(log.read(app.topic("pairs"), committed_only=True))
    _compare(found, "pairs", pairs, truth.pairs, exactly_once)
    for store, wanted in zip(STORES, (truth.events, truth.words), strict=True):
        rows = log.read(f"{app.application}-{store}-changelog", committed_only=True)
        _compare(found, f"changelog of {store}", _latest(rows), wanted, exactly_once)
    return found


def unread(app: App) -> dict[str, int]:
    """Return how many records of each input are behind the committed offsets, for inputs that have any."""
    lags = {
        name: sum(app.log.ends(app.topic(name))) - app.log.read_so_far(app.application, app.topic(name))
        for name in INPUTS
    }
    return {name: lag for name, lag in lags.items() if lag}


def _running(counts: list[Raw], found: Found, exactly_once: bool) -> dict[str, int]:
    """Follow each key's counts in the order of the log: 1, 2, 3, …; return the last ones."""
    last: dict[str, int] = {}
    for raw in counts:
        key, count = _number(raw)
        before = last.get(key, 0)
        if exactly_once and count > before + 1:
            found.note("gaps", f"{key} goes from {before} to {count} at counts-{raw.partition}@{raw.offset}")
        elif exactly_once and count <= before:
            found.note("repeats", f"{key} goes from {before} to {count} at counts-{raw.partition}@{raw.offset}")
        last[key] = max(count, before)
    return last


def _compare(found: Found, what: str, have: Any, want: Any, exactly_once: bool) -> None:
    """Note the keys whose numbers differ, as gaps, repeats or wrong results."""
    for key in sorted({*have, *want}):
        one, other = have.get(key, 0), want.get(key, 0)
        if one < other or (one > other and exactly_once):
            result = ("gaps" if one < other else "repeats") if what in ("counts", "pairs") else "wrong"
            found.note(result, f"{what}: {key} is {one}, must be {other}")


def _latest(rows: list[Raw]) -> dict[str, int]:
    return dict(map(_number, rows))


def _number(raw: Raw) -> tuple[str, int]:
    assert raw.key is not None
    assert raw.value is not None
    # A changelog's value has its timestamp in front on disk only: on the log it is the count.
    return raw.key.decode(), struct.unpack(">q", raw.value)[0]
