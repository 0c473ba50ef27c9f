"""Rows with a time to live on a real broker: each deletion once, in order, through kills in mid-sweep, restarts and moves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streamkit.state.engines.open_maps import DEFAULT_ENGINE
from tests.broker.crashing import BETWEEN, PART, WITHIN
from tests.broker.support import App, Log, Raw, application, finish, kill, until
from tests.cli.support import LIMIT_S
from tests.requirements import EVERY_ENGINE
from tests.runtime.expiring_counts import Model, Written

pytestmark = pytest.mark.broker

PARTITIONS = 2
KEYS, AGAIN, APART = 300, 100, 5_000
"""Keys of a round, how many of them come twice, and ms from one round to the next, which ends all rows of the one before."""
POINTS = [BETWEEN, WITHIN, "after produce", BETWEEN]
OF_AN_ENGINE = [BETWEEN, WITHIN]
"""The others, and a move to another instance, do not depend on the engine."""
TEXT = """\
topics:
  in: {topic: "{a}in", key: string, value: string}
  out: {topic: "{a}out", key: string, value: long}
pipelines:
  p:
    stream: in
    steps:
      - group_by_key
      - count: {store: {name: counts, ttl: 1s}}
      - to_stream
    to: out
"""


def feed(app: App, number: int) -> None:
    """Write a round: keys of its own, some of them twice, and a few of the round before that come late."""
    base = 1 + number * APART
    rows = [(b"%d-%d" % (number, each), base + each) for each in range(KEYS)]
    rows += [(b"%d-%d" % (number, each), base + 500 + each) for each in range(AGAIN)]
    rows += [(b"%d-%d" % (number - 1, each), base - 900 + each) for each in range(5)]
    app.log.write((app.topic("in"), key, b"v", max(1, time), None, None) for key, time in rows)


def written(app: App, topic: str) -> list[list[Written]]:
    """What is committed of a topic, by partition."""
    found: list[list[Written]] = [[] for _ in range(PARTITIONS)]
    for raw in app.log.read(topic, committed_only=True):
        value = None if raw.value is None else int.from_bytes(raw.value)
        found[raw.partition].append((_key(raw), value, raw.timestamp))
    return found


def modelled(app: App) -> list[list[Written]]:
    """What the input comes to, by partition: a task's clock is that of its own records."""
    models = [Model() for _ in range(PARTITIONS)]
    found: list[list[Written]] = [[] for _ in range(PARTITIONS)]
    for raw in app.log.read(app.topic("in")):
        found[raw.partition] += models[raw.partition].take(_key(raw), raw.timestamp)
    return found


def _key(raw: Raw) -> str:
    return (raw.key or b"").decode()


def is_as_modelled(app: App) -> bool:
    return written(app, app.topic("out")) == modelled(app)


def assert_as_modelled(app: App) -> None:
    """Output and changelog are the model's, record by record: no deletion is missing, comes twice, or at another place."""
    wanted = modelled(app)
    assert written(app, app.topic("out")) == wanted
    assert written(app, f"{app.application}-counts-changelog") == wanted


def deletions(app: App) -> int:
    return sum(value is None for part in written(app, app.topic("out")) for _, value, _ in part)


@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_rows_end_once_through_kills_in_mid_sweep_restarts_and_a_move(engine: str, kafka: Log, tmp_path: Path) -> None:
    app = application(
        tmp_path,
        kafka,
        "ttl",
        TEXT,
        processing_guarantee="exactly_once_v2",
        state_engine=engine,
        statestore_cache_max_bytes=0,
        commit_interval_ms=0,  # after every part of a sweep
        poll_ms=20,
    )
    for topic in ("in", "out"):
        kafka.create(app.topic(topic), PARTITIONS)
    for number in range(5):
        feed(app, number)
    is_default = engine == DEFAULT_ENGINE
    killed(app, POINTS if is_default else OF_AN_ENGINE)
    assert_as_modelled(app)
    assert deletions(app) >= 4 * KEYS > 4 * PARTITIONS * PART

    feed(app, 5)
    done = app.run()
    assert done.code == 0, done.err
    assert_as_modelled(app)

    if is_default:
        moved(app, 6)
        assert_as_modelled(app)


def killed(app: App, points: list[str]) -> None:
    """Have it killed at each of the points; the last run goes on to the end; sweeps are cut into small parts there."""
    runs = app.state.parent / "runs.jsonl"
    line = [sys.executable, "-m", "tests.broker.crashing", app.path, runs, *points]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    try:
        err = process.communicate(timeout=LIMIT_S * len(points))[1]
    finally:
        kill([process])
    assert process.returncode == 0, err
    assert "deleted" not in err  # the stores
    assert [json.loads(each)["point"] for each in runs.read_text().splitlines()] == [*points, "end"]


def moved(app: App, number: int) -> None:
    """Process two rounds: one with two instances, of which one is new, and one with the new one alone."""
    processes = [app.start()]
    try:
        until(lambda: app.log.is_read(app.application, [app.topic("in")]), "the first has begun")
        other = app.path.parent / "other"
        processes.append(app.start("--set", f"state.dir={other}"))
        until(lambda: any((other / app.application).glob("0_*")), "the second has a task")
        for each, process in enumerate(list(processes)):
            feed(app, number + each)
            until(lambda: is_as_modelled(app), "the model's records")
            process.send_signal(signal.SIGTERM)
            (done,) = finish([process])
            assert done.code == 0, done.err
    finally:
        kill(processes)
