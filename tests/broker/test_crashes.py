"""Processes that are killed at every point of a commit: state is taken as it is, and nothing is lost or counted twice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from math import inf
from pathlib import Path

from streamkit.plan import load
from streamkit.state.directory import store_path
from streamkit.state.engines.open_maps import is_installed, open_map
from streamkit.state.open_store import create
from streamkit.state.store_offsets import decode_offsets
from tests.broker.crashing import RESTORING, STANDBY
from tests.broker.support import App, Log, application, kill
from tests.cli.support import LIMIT_S
from tests.state.support import Recorder

BATCH, KEYS, RECORDS = 40, 7, 1500
INPUT = [(f"k{n % KEYS}".encode(), 1000 + 900 * n, n % KEYS % 2) for n in range(RECORDS)]
"""Key, time and partition of each record."""
OTHERS = [(key, time + 100, place) for key, time, place in INPUT[::3]]
WITHIN, WINDOW = 5_000, 60_000
STORES = (
    "counts",
    "windows",
    "sessions",
    "last",
    "final",
    "pairs-this-join-store",
    "pairs-outer-other-join-store",
    "pairs-left-shared-join-store",
)
"""Those on disk; the buffer of suppress lies in memory, and shows in what it puts out."""
TEXT = """\
topics:
  words: {topic: "{a}words", value: string}
  others: {topic: "{a}others", value: string}
  counts: {topic: "{a}counts", value: long}
  finals: {topic: "{a}finals", key: {windowed: string, size: 60s}, value: long}
  pairs: {topic: "{a}pairs", value: string}
pipelines:
  words:
    stream: words
    steps: [group_by_key]
  counts:
    from: words
    steps: [count: counts, to_stream]
    to: counts
  windows:
    from: words
    steps: [window: {tumbling: 60s, grace: 1h}, count: {store: windows}]
  sessions:
    from: words
    steps: [window: {session: 5s, grace: 1h}, count: {store: sessions}]
  last:
    stream: words
    steps: [to_table: {store: {name: last, versioned: 1h}}]
  final:
    from: words
    steps: [window: {tumbling: 60s, grace: 0s}, count: {store: final}, suppress: window_closes, to_stream]
    to: finals
  pairs:
    stream: words
    steps: [left_join: {with: {stream: others}, value: 'left + "+" + str(right)', within: 5s, grace: 1h, store: {name: pairs}}]
    to: pairs
"""
# Between two that leave the stores behind their changelogs stands one that leaves nothing: each is seen for itself.
POINTS = [
    "before the flush",
    "before the batch",
    RESTORING,
    "after produce",
    "after batch 2",
    "after the offsets",
    "within batch 3",
    "after batch 4",
    STANDBY,
]
# The way through a commit does not depend on the engine, except at its batch.
RUNS = [
    (True, "leveldb", POINTS),
    (True, "rocksdb", ["before the batch", "within batch 3"]),
    (False, "leveldb", ["within batch 3"]),
    (False, "rocksdb", ["before the flush", "before the batch", RESTORING, "after produce", "after batch 2", STANDBY]),
]
ABORTED = ("before the flush", "after produce", "after the offsets")
"""Points at which a transaction ends with its process."""


def crashing(app: App, runs: Path, points: list[str]) -> subprocess.Popen:
    line = [sys.executable, "-m", "tests.broker.crashing", app.path, runs, *points]
    return subprocess.Popen(line, stderr=subprocess.PIPE, text=True)


def test_a_crash_at_every_point_of_a_commit(kafka: Log, tmp_path: Path) -> None:
    begun = []
    for eos, engine, points in (run for run in RUNS if is_installed(run[1])):
        folder = tmp_path / f"{engine}-{eos}"
        folder.mkdir()
        guarantee = "exactly_once_v2" if eos else "at_least_once"
        settings = {"processing_guarantee": guarantee, "state_engine": engine, "max_poll_records": BATCH}
        settings |= {"commit_interval_ms": 1, "poll_ms": 20, "statestore_cache_max_bytes": 0}
        app = application(folder, kafka, "crashing", TEXT, **settings)
        for topic, records in (("words", INPUT), ("others", OTHERS)):
            kafka.create(app.topic(topic), 2)
            kafka.write((app.topic(topic), key, b"v%d" % time, time, None, place) for key, time, place in records)
        for topic in ("counts", "finals", "pairs"):
            kafka.create(app.topic(topic), 1)
        begun.append((app, eos, engine, crashing(app, folder / "runs.jsonl", points)))
    try:
        for _, _, _, process in begun:
            err = process.communicate(timeout=LIMIT_S * len(POINTS))[1]
            assert process.returncode == 0, err
            assert "deleted" not in err
    finally:
        kill([process for _, _, _, process in begun])
    for app, eos, engine, _ in begun:
        check_replays(app, eos)
        check_state(app, eos, engine, tmp_path / f"again-{engine}-{eos}")


def check_replays(app: App, eos: bool) -> None:
    """What a run restores is what the one before it left or had in flight when it was killed; of aborted transactions nothing.

    A task processes as soon as its own stores are restored, so that a run may be killed while others are not; of changelogs
    that it had not begun to read, all that it had to restore itself is left.
    """
    runs = [json.loads(line) for line in (app.state.parent / "runs.jsonl").read_text().splitlines()]
    left: dict[str, float] = {}
    flight: dict[str, float] = {}
    before, unread = None, 0.0
    for run in runs:
        if run["point"] == STANDBY:  # it begins without state
            left, flight, unread = {}, {}, inf
        restored, sent = nonzero(on_disk(run["restored"])), nonzero(on_disk(run["in_flight"]))
        leaves = on_disk(run["left"])
        for name, count in restored.items():
            assert count <= left.get(name, unread) + flight.get(name, 0), (before, name, count, left, flight)
        if before == "before the batch" and not nonzero(left) and not nonzero(leaves):
            assert restored == flight
        unbegun = {name: left.get(name, unread) + count for name, count in flight.items()}
        carried = {name: count for name, count in (left | unbegun).items() if name not in leaves}
        left = carried | leaves
        flight = {} if eos and run["point"] in ABORTED else sent
        before = run["point"]


def on_disk(counts: dict[str, int]) -> dict[str, int]:
    """Leave out the buffer of suppress, which is restored from the beginning each time."""
    return {name: count for name, count in counts.items() if "SUPPRESS" not in name}


def nonzero(counts: Mapping[str, float]) -> dict[str, float]:
    return {name: count for name, count in counts.items() if count}


def check_state(app: App, eos: bool, engine: str, folder: Path) -> None:
    """The stores are what the changelogs make of empty ones, their offsets behind the last records, their counts the input's."""
    plan = load(app.path, {})
    for store in STORES:
        changelog = app.log.read(f"{app.application}-{store}-changelog", committed_only=True)
        for partition in (0, 1):
            records = [raw for raw in changelog if raw.partition == partition]
            again = create(plan.stores[store], folder / f"{partition}", Recorder(), engine=engine)
            for raw in records:
                again.restore(raw.key or b"", raw.value, raw.timestamp, raw.headers)
            again.commit()
            again.close()
            rows, metadata = read(folder / f"{partition}", engine, store)
            assert metadata is None
            found, metadata = read(app.tasks / f"0_{partition}", engine, store)
            assert found == rows
            assert decode_offsets(metadata or b"").positions == {partition: records[-1].offset + 1}
    check_output(app, eos)


def check_output(app: App, eos: bool) -> None:
    """Counts, final counts of windows and pairs are the input's: each once under exactly-once, else at least once."""
    counts = by_key(app, "counts")
    truth = Counter(key for key, _, _ in INPUT)
    finals = by_key(app, "finals")
    ends = {place: max(time for _, time, its in INPUT if its == place) for place in (0, 1)}
    windows = Counter(
        key + (time - time % WINDOW).to_bytes(8)
        for key, time, place in INPUT
        if time - time % WINDOW + WINDOW <= ends[place]
    )
    found = Counter(raw.value for raw in app.log.read(app.topic("pairs"), committed_only=True))
    pairs = Counter(
        b"v%d+v%d" % (left, right)
        for key, left, _ in INPUT
        for other, right, _ in OTHERS
        if key == other and abs(left - right) <= WITHIN
    )
    if eos:
        assert counts == {key: list(range(1, count + 1)) for key, count in truth.items()}
        assert finals == {key: [count] for key, count in windows.items()}
        assert found == pairs
    else:
        assert [(key, count) for key, count in truth.items() if counts[key][-1] < count] == []
        # A record of a window that is over, and whose row has expired, counts from one when it comes again, as in Java.
        assert [(key, count) for key, count in windows.items() if max(finals[key]) < count] == []
        assert found.keys() == pairs.keys()


def by_key(app: App, topic: str) -> dict[bytes | None, list[int]]:
    """The numbers that a topic has for each key."""
    numbers: dict[bytes | None, list[int]] = {}
    for raw in app.log.read(app.topic(topic), committed_only=True):
        numbers.setdefault(raw.key, []).append(int.from_bytes(raw.value or b""))
    return numbers


def read(task: Path, engine: str, store: str) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
    rows = open_map(engine, store_path(task, engine, store))
    found = list(rows.range(None, None))
    rows.close()
    return found, rows.metadata
