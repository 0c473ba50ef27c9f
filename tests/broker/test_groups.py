"""Several processes of one application on a real broker: they share its tasks, and a zombie among them harms nothing."""

from __future__ import annotations

import itertools
import os
import signal
import struct
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.broker.support import App, Log, application, finish, kill, until

pytestmark = pytest.mark.broker

PARTITIONS = 4
KEYS = 100
RECORDS = 20_000
COUNT = """\
topics:
  words: {topic: "{a}words", key: string, value: string}
  counts: {topic: "{a}counts", key: string, value: long, partitions: 2}
pipelines:
  words:
    stream: words
    steps: [group_by_key, {count: counts}, to_stream]
    to: counts
"""
STALLING = COUNT.replace(
    "steps: [group_by_key", "steps: [{map_values: {value: {call: 'stall:stall'}, value_serde: string}}, group_by_key"
)
SILENT = {"session_timeout_ms": 3000, "producer_transaction_timeout_ms": 4000}
"""Settings where a process is silent, and the test waits until the group goes on without it."""
STALL = """\
import os, pathlib

def stall(key, value):
    here = pathlib.Path(__file__).parent
    if value == "stall" and not (here / "stalled").exists():
        (here / "stalled").write_text(str(os.getpid()))
        # A named pipe: opening it waits for the test, which opens its other end.
        (here / "go-on").open().close()
    return value
"""


def counting(folder: Path, log: Log, text: str = COUNT, **config: object) -> App:
    """Running counts with the cache off: under exactly-once each word's are exactly 1, 2, 3 and so on."""
    settings = {
        "processing_guarantee": "exactly_once_v2",
        "statestore_cache_max_bytes": 0,
        "num_stream_threads": 2,
        # On a slow machine too, nothing but a stop ends a session or a transaction.
        "session_timeout_ms": 60_000,
        "producer_transaction_timeout_ms": 60_000,
        **config,
    }
    app = application(folder, log, "groups", text, **settings)
    log.create(app.topic("words"), PARTITIONS)
    return app


def feed(app: App, count: int = RECORDS, value: bytes = b"x") -> None:
    keys = [b"k%d" % (n % KEYS) for n in range(count)]
    app.log.write((app.topic("words"), key, value, 1000 + n, None, None) for n, key in enumerate(keys))


@contextmanager
def instances(app: App, names: str) -> Iterator[list[subprocess.Popen]]:
    """One process for each letter, with a state directory of that name."""
    processes = [app.start("--set", f"state.dir={app.path.parent / name}") for name in names]
    try:
        yield processes
    finally:
        kill(processes)


def tasks(app: App, name: str) -> int:
    """How many tasks the process with this state directory has ever had."""
    folder = app.path.parent / name / app.application
    return sum(path.is_dir() for path in folder.iterdir()) if folder.is_dir() else 0


def read_all(app: App, total: int) -> bool:
    return app.log.read_so_far(app.application, app.topic("words")) >= total


def assert_counted_once(app: App, total: int) -> None:
    topic = app.topic("counts")
    # What a killed process has left open hides what others have written behind it, until its time-out.
    until(lambda: app.log.ends(topic, committed_only=True) == app.log.ends(topic), "no transaction is open")
    found: dict[bytes | None, list[int]] = defaultdict(list)
    for raw in app.log.read(topic, committed_only=True):
        found[raw.key].append(struct.unpack(">q", raw.value or b"")[0])
    truth = list(range(1, total // KEYS + 1))
    wrong = {key: differences(counts, truth) for key, counts in found.items() if counts != truth}
    assert not wrong
    assert len(found) == KEYS


def differences(counts: list[int], truth: list[int]) -> str:
    repeats = [after for before, after in itertools.pairwise(counts) if after <= before]
    return f"{len(counts)} counts up to {counts[-1]} of {truth[-1]}, missing {sorted({*truth} - {*counts})[:5]}, repeats from {repeats[:5]}"


def members(app: App) -> int:
    admin = app.log.transport.admin()
    try:
        return len(admin.group_members(app.application))
    finally:
        admin.close()


def died(processes: list[subprocess.Popen]) -> bool:
    return any(process.poll() is not None for process in processes)


def both_have_tasks(app: App, processes: list[subprocess.Popen]) -> None:
    """Wait until each of two processes has had tasks. Fails where one has ended."""
    until(lambda: (tasks(app, "a") and tasks(app, "b")) or died(processes), "both have tasks")
    assert not died(processes), [each.communicate() for each in processes if each.poll() is not None]


def stop_all(processes: list[subprocess.Popen]) -> list[str]:
    """Stop processes in order, and return what they said on stderr."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    done = finish(processes)
    assert [each.code for each in done] == [0] * len(processes), "\n".join(each.err for each in done)
    assert [each for each in done if "Traceback" in each.err] == []
    return [each.err for each in done]


def test_processes_share_the_tasks_and_hand_them_over(kafka: Log, tmp_path: Path) -> None:
    app = counting(tmp_path, kafka)
    with instances(app, "a") as first:
        until(lambda: tasks(app, "a") == PARTITIONS, "the first has all tasks")
        feed(app)
        with instances(app, "b") as second:
            until(lambda: tasks(app, "b") == PARTITIONS // 2, "the second has half of them")
            feed(app)
            until(lambda: read_all(app, 2 * RECORDS), "both read everything")
            assert stop_all(first) == [""]
            feed(app)
            until(lambda: read_all(app, 3 * RECORDS), "the second reads the rest")
            assert stop_all(second) == [""]
    done = app.run("--set", f"state.dir={tmp_path / 'a'}")
    assert (done.code, done.err) == (0, "")
    assert_counted_once(app, 3 * RECORDS)


def test_both_end_when_idle(kafka: Log, tmp_path: Path) -> None:
    app = counting(tmp_path, kafka)
    feed(app)
    processes = [app.start("--until-idle", "--set", f"state.dir={tmp_path / name}") for name in "ab"]
    try:
        assert [(done.code, done.err) for done in finish(processes)] == [(0, "")] * 2
    finally:
        kill(processes)
    assert_counted_once(app, RECORDS)


def test_one_is_killed_and_the_other_takes_over(kafka: Log, tmp_path: Path) -> None:
    app = counting(tmp_path, kafka, **SILENT)
    with instances(app, "ab") as processes:
        both_have_tasks(app, processes)
        feed(app)
        until(lambda: read_all(app, RECORDS // 10), "a part is read")
        processes[0].kill()
        feed(app)
        until(lambda: read_all(app, 2 * RECORDS), "the other reads the rest")
        stop_all(processes[1:])
    assert_counted_once(app, 2 * RECORDS)


def test_a_standby_takes_over_where_it_is(kafka: Log, tmp_path: Path) -> None:
    app = counting(tmp_path, kafka, num_standby_replicas=1)
    with instances(app, "ab") as processes:
        until(lambda: tasks(app, "a") == PARTITIONS == tasks(app, "b"), "both have all tasks, as active or standby")
        feed(app)
        until(lambda: read_all(app, RECORDS), "everything is read")
        stop_all(processes[:1])
        feed(app)
        until(lambda: read_all(app, 2 * RECORDS), "the other reads the rest")
        stop_all(processes[1:])
    assert_counted_once(app, 2 * RECORDS)


def test_a_zombie_is_fenced_and_comes_back(kafka: Log, tmp_path: Path) -> None:
    app = counting(tmp_path, kafka, **SILENT)
    with instances(app, "ab") as processes:
        both_have_tasks(app, processes)
        feed(app)
        until(lambda: read_all(app, RECORDS // 10), "a part is read")
        processes[0].send_signal(signal.SIGSTOP)
        feed(app)
        # Only the other one can read all, once the group has given the sleeper up.
        until(lambda: read_all(app, 2 * RECORDS), "the other reads the rest")
        processes[0].send_signal(signal.SIGCONT)
        until(lambda: members(app) == 2 or died(processes), "the sleeper is a member again")
        feed(app)
        until(lambda: read_all(app, 3 * RECORDS), "both read what is new")
        said = stop_all(processes)
    # Whoever notices first: a thread by its commit, or the member by its heartbeat.
    assert "rejoining the group" in said[0] or "its tasks are closed" in said[0]
    assert_counted_once(app, 3 * RECORDS)


def test_a_thread_that_stalls_gives_its_tasks_up(kafka: Log, tmp_path: Path) -> None:
    (tmp_path / "stall.py").write_text(STALL)
    os.mkfifo(tmp_path / "go-on")
    # librdkafka itself would take no session that is longer than the interval between two polls.
    times = {"max_poll_interval_ms": 6000, "session_timeout_ms": 9000, "producer_transaction_timeout_ms": 10_000}
    app = counting(tmp_path, kafka, STALLING, **times)
    with instances(app, "ab") as processes:
        both_have_tasks(app, processes)
        app.log.write([(app.topic("words"), b"k0", b"stall", 1, None, None)])
        stalled = tmp_path / "stalled"
        until(lambda: stalled.exists() and stalled.read_text(), "a thread stalls")
        feed(app, RECORDS - KEYS)
        until(lambda: read_all(app, RECORDS - KEYS + 1), "the other process reads everything")
        (tmp_path / "go-on").open("w").close()
        app.log.write((app.topic("words"), b"k%d" % n, b"x", 1, None, None) for n in range(1, KEYS))
        until(lambda: read_all(app, RECORDS), "the rest is read")
        said = dict(zip([process.pid for process in processes], stop_all(processes), strict=True))
    assert "leaving the group" in said[int(stalled.read_text())]
    assert_counted_once(app, RECORDS)
