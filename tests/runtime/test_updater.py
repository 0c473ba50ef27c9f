"""The state updater: standbys and back, restoring beside processing, what is not trusted; and commits under exactly-once."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

from streamkit.errors import RetriableTransportError, StateError
from streamkit.record import TopicPartition
from streamkit.runtime.local.client import Application
from streamkit.runtime.local.local_task import RUNNING
from streamkit.runtime.local.progress import RestoreProgress
from streamkit.runtime.local.restore import Changelog
from streamkit.runtime.local.setup import Settings, TopicsOnLog
from streamkit.runtime.local.thread import StreamThread
from streamkit.state.base import BytesMap
from streamkit.state.checkpoint import read_checkpoint
from streamkit.state.maps import default_engine, open_map
from streamkit.state.offsets import StoreOffsets, decode_offsets
from streamkit.transport.base import NewTopic
from streamkit.transport.embedded import EmbeddedTransport
from tests.broker.support import until
from tests.requirements import EVERY_ENGINE
from tests.runtime.counting import PARTITIONS, by_key, counting, create, rows, send
from tests.runtime.fake_log import FakeProducer
from tests.runtime.fakes import FakeProgram
from tests.runtime.test_local import IN, Harness

KEYS = 6
ALL = [(0, number) for number in range(PARTITIONS)]
CHANGELOG = "app-counts-changelog"
GUARANTEES = ["at_least_once", "exactly_once_v2"]


@pytest.fixture
def log(tmp_path):
    transport = EmbeddedTransport(tmp_path / "log")
    create(transport)
    yield transport
    transport.close()


class Started:
    """An application whose only thread is told by the test what to do."""

    def __init__(self, log: EmbeddedTransport, folder: Path, **config):
        self.events: list[tuple[str, RestoreProgress]] = []
        self.application = Application(counting(folder, **config), log)
        self.application.set_restore_listener(lambda event, progress: self.events.append((event, progress)))

    def __enter__(self) -> Started:
        self.application.start()
        until(lambda: self.application._look_after() or self.application.ready, "the start")
        (self.thread,) = self.application.threads
        return self

    def __exit__(self, *exc: object) -> None:
        self.application.stop()
        self.application.raise_error()

    thread: StreamThread

    def assign(self, active, standby=()) -> None:
        self.thread.assign(active, standby)
        until(lambda: self.thread.settled() and self.thread._tasks.restored, "the assignment")

    def standby_row(self, key: str, partition: int) -> int | None:
        """What a standby's store has for a key."""
        with self.thread.updater.entered(10):
            stores = {number: store for number, store, _ in self.thread.updater.stores("counts")}
            found = stores[partition].get(key.encode())
        return found and found[0]


def counted(log: EmbeddedTransport, to: int) -> None:
    until(lambda: dict(rows(log, "counts")) == {f"k{key}": to for key in range(KEYS)}, f"the counts up to {to}")


def write_changelog(log: EmbeddedTransport, key: str, count: int, partition: int) -> None:
    producer = log.producer()
    producer.send([(CHANGELOG, key.encode(), count.to_bytes(8), 1, None, partition)])
    producer.flush()
    producer.close()


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("persistent", [True, False])
def test_an_active_task_becomes_a_standby_and_back(log, tmp_path, persistent, guarantee):
    with Started(log, tmp_path / "state", persistent=persistent, processing_guarantee=guarantee) as started:
        send(log, 2)
        counted(log, 2)
        stores = {id(store) for _, store, _ in started.thread.stores("counts")}
        assert started.application.task_offset_sums() == dict.fromkeys(ALL, RUNNING)
        started.assign([], ALL)
        assert {id(store) for _, store, _ in started.thread.updater.stores("counts")} == stores
        assert started.application.task_offset_sums() == dict.fromkeys(ALL, 4)
        # As if the task ran elsewhere now.
        write_changelog(log, "k0", 10, 0)
        until(lambda: started.standby_row("k0", 0) == 10, "the standby has followed")
        assert started.standby_row("k1", 1) == 2
        started.assign(ALL)
        assert {id(store) for _, store, _ in started.thread.stores("counts")} == stores
        send(log, 1)
        until(lambda: dict(rows(log, "counts")) == {**{f"k{key}": 3 for key in range(KEYS)}, "k0": 11}, "counts go on")
    # Nothing was read a second time.
    starts = [progress.start for event, progress in started.events if event == "start"]
    assert sorted(starts) == [0] * 3 + [4] * 3 + [4, 4, 5]


def test_a_standby_of_a_task_whose_state_is_on_disk_reads_the_rest(log, tmp_path):
    with Started(log, tmp_path / "state"):
        send(log, 2)
        counted(log, 2)
    write_changelog(log, "k0", 9, 0)
    with Started(log, tmp_path / "state") as again:
        again.assign([], ALL)
        until(lambda: again.standby_row("k0", 0) == 9, "the standby has followed")
    assert ("end", 4, 5, 1) in [(event, each.start, each.position, each.restored) for event, each in again.events]
    assert read_checkpoint(tmp_path / "state" / "app" / "0_0") == {TopicPartition(CHANGELOG, 0): 4}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_status_tells_what_stores_hold(log, tmp_path, guarantee):
    with Started(log, tmp_path / "state", processing_guarantee=guarantee) as started:
        send(log, 2)

        def settled():
            (store,) = started.application.status().stores
            return store.parts if [(part.offset, part.end) for part in store.parts] == [(4, 4)] * 3 else None

        parts = until(settled, "the stores have their commit")
        assert [(part.task, part.changelog) for part in parts] == [(f"0_{number}", CHANGELOG) for number in range(3)]
        assert all(part.bytes > 0 and part.committed_ms > 0 for part in parts)
        until(lambda: sum(part.rows for part in settled()) == KEYS, "the estimates are of now")
        started.assign([(0, 0)], [(0, 1), (0, 2)])
        assert [part.task for part in until(settled, "standbys have parts, too")] == ["0_0", "0_1", "0_2"]


def test_tasks_join_in_while_others_are_restored(log, tmp_path, monkeypatch):
    with Started(log, tmp_path / "first"):
        send(log, 2)
        counted(log, 2)
    may_go_on, apply = threading.Event(), Changelog.apply

    def slow(changelog, batch, stop):
        if changelog.partition.partition == 0 and not may_go_on.is_set():
            # What could not be applied is read again.
            raise RetriableTransportError("slow")
        return apply(changelog, batch, stop)

    application = Application(counting(tmp_path / "second"), log)
    monkeypatch.setattr(Changelog, "apply", slow)
    application.start()
    try:
        (thread,) = application.threads
        until(lambda: application._look_after() or sum(thread._tasks._wanted.values()) == 3, "the tasks are assigned")
        thread.assign([(0, 1), (0, 2)], [])
        until(lambda: len(thread._tasks.running) == 2, "two tasks are restored")
        thread.assign(ALL, [])
        until(application.restore_progress, "the third is being restored")
        send(log, 1)
        until(
            lambda: {by_key(rows(log, "counts")).get(f"k{key}", [])[-1] for key in (1, 2, 4, 5)} == {3}, "others go on"
        )
        (progress,) = application.restore_progress()
        assert (progress.task, progress.active, progress.position, progress.end) == ("0_0", True, 0, 4)
        assert progress.remaining == 4
        assert application.threads[0].state.value == "PARTITIONS_ASSIGNED"
        may_go_on.set()
        counted(log, 3)
    finally:
        application.stop()
    application.raise_error()


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_an_offset_that_the_changelog_does_not_have_is_not_trusted(log, tmp_path, guarantee, caplog):
    with Started(log, tmp_path / "state", processing_guarantee=guarantee):
        send(log, 2)
        counted(log, 2)
    directory = tmp_path / "state" / "app"
    # One is ahead of its changelog; of the other the log has forgotten what came next.
    change_offset(directory / "0_0", 0, 77)
    change_offset(directory / "0_1", 1, 1)
    admin = log.admin()
    admin.delete_records({TopicPartition(CHANGELOG, 1): 2})
    admin.close()
    with Started(log, tmp_path / "state", processing_guarantee=guarantee):
        send(log, 1)
        counted(log, 3)
    assert len(said(caplog, "restored from its changelogs")) == 2


def change_offset(task: Path, partition: int, offset: int) -> None:
    """Have the store of a task say another offset than that of its rows."""
    rows = stored(task)
    found = decode_offsets(rows.metadata or b"")
    assert found.positions == {partition: 4}
    rows.metadata = StoreOffsets(found.owner, {partition: offset}).encode()
    rows.commit()
    rows.close()


def stored(task: Path) -> BytesMap:
    return open_map(default_engine(), task / default_engine() / "counts")


def said(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [message for message in caplog.messages if words in message]


def as_an_older_streamkit_left_it(task: Path) -> None:
    """Take the offsets out of a store, and the format of the directory back."""
    rows = stored(task)
    rows.metadata = None
    rows.put(b"", None)  # the metadata goes with a row
    rows.commit()
    rows.close()
    (task / ".streamkit-state").write_text(json.dumps({"engine": default_engine(), "format": 1}))


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_what_an_older_streamkit_left_is_taken_by_its_checkpoint_once(log, tmp_path, guarantee, caplog):
    with Started(log, tmp_path / "state", processing_guarantee=guarantee):
        send(log, 2)
        counted(log, 2)
    for number in range(PARTITIONS):
        as_an_older_streamkit_left_it(tmp_path / "state" / "app" / f"0_{number}")
    (tmp_path / "state" / "app" / "0_1" / ".checkpoint").unlink()
    with Started(log, tmp_path / "state", processing_guarantee=guarantee) as again:
        send(log, 1)
        counted(log, 3)
    assert sorted(each.start or 0 for event, each in again.events if event == "start") == [0, 4, 4]
    for number in range(PARTITIONS):
        (tmp_path / "state" / "app" / f"0_{number}" / ".checkpoint").unlink()
    with Started(log, tmp_path / "state", processing_guarantee=guarantee) as third:
        send(log, 1)
        counted(log, 4)
    assert [each.start for event, each in third.events if event == "start"] == [6, 6, 6]
    assert not said(caplog, "restored")[3:]


def test_state_of_others_is_deleted_and_restored(log, tmp_path, caplog):
    """Directories that were exchanged, a layout that has changed, rows without offsets, a changelog that was made again."""
    with Started(log, tmp_path / "state"):
        send(log, 2)
        counted(log, 2)
    app = tmp_path / "state" / "app"
    (app / "0_0").rename(app / "0_9")
    (app / "0_1").rename(app / "0_0")
    (app / "0_9").rename(app / "0_1")
    rows = stored(app / "0_2")
    rows.metadata = None
    rows.put(b"k5", (1).to_bytes(16))
    rows.commit()
    rows.close()
    with Started(log, tmp_path / "state"):
        send(log, 1)
        counted(log, 3)
    deleted = said(caplog, "it is deleted, and restored from its changelog")
    assert ["partition 1, not 0" in deleted[0], "partition 0, not 1" in deleted[1]] == [True, True]
    assert "does not say how much of its changelog it has" in deleted[2]
    caplog.clear()
    admin = log.admin()
    admin.delete_topics([CHANGELOG])
    admin.create_topics([NewTopic(CHANGELOG, PARTITIONS)])
    admin.close()
    with Started(log, tmp_path / "state"):
        send(log, 1)
        until(lambda: len(rows_of(log)) == 4 * KEYS, "it counts")
    assert len(said(caplog, f"follows a topic {CHANGELOG} that was deleted since")) == PARTITIONS
    assert set(by_key(rows_of(log))["k0"][-1:]) == {1}


def test_files_that_were_cut_short_are_deleted_and_restored(log, tmp_path, caplog):
    """LevelDB notices a short table only when it reads it, which is while records are processed."""
    guarantee = "exactly_once_v2"  # else what was counted before the damage showed may count twice
    with Started(log, tmp_path / "state", processing_guarantee=guarantee):
        send(log, 2)
        counted(log, 2)
    app = tmp_path / "state" / "app"
    for number, name in enumerate(("CURRENT", "MANIFEST-*", "*.[ls][ds][bt]")):
        # Opening makes a table of the log; the metadata is written again, so that it is not in the table.
        rows = stored(app / f"0_{number}")
        rows.put(b"", None)
        rows.commit()
        rows.close()
        files = list((app / f"0_{number}" / default_engine() / "counts").glob(name))
        assert files
        for file in files:
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with Started(log, tmp_path / "state", processing_guarantee=guarantee):
        send(log, 1)
        counted(log, 3)
    assert by_key(rows_of(log)) == {f"k{key}": [1, 2, 3] for key in range(KEYS)}
    lines = [message for message in caplog.messages if "damaged" in message]
    assert [sum(f"0_{number}" in line for line in lines) for number in range(PARTITIONS)] == [1, 1, 1], lines


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_directory_that_was_copied_while_it_was_in_use(log, tmp_path, guarantee, caplog):
    with Started(log, tmp_path / "state", processing_guarantee=guarantee):
        send(log, 2)
        counted(log, 2)
        shutil.copytree(tmp_path / "state", tmp_path / "copy")
        send(log, 1)
        counted(log, 3)
    with Started(log, tmp_path / "copy", processing_guarantee=guarantee):
        send(log, 1)
        counted(log, 4)
    assert by_key(rows_of(log)) == {f"k{key}": [1, 2, 3, 4] for key in range(KEYS)}
    assert len(said(caplog, "was copied while a process used it")) == PARTITIONS


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_disk_that_is_full_while_a_commit_is_written(log, tmp_path, guarantee, monkeypatch, caplog):
    """The log has the commit by then: the next start takes what is missing from the changelog."""
    engine = type(open_map(default_engine(), tmp_path / "any"))
    write, full = engine._write, threading.Event()

    def fails(rows, items):
        if full.is_set() and rows._path.parent.parent.name == "0_1":
            raise OSError(28, "No space left on device")
        write(rows, items)

    monkeypatch.setattr(engine, "_write", fails)
    started = Started(log, tmp_path / "state", processing_guarantee=guarantee)
    started.__enter__()
    send(log, 2)
    counted(log, 2)
    full.set()
    send(log, 1)
    until(lambda: started.thread.error, "the thread ends")
    with pytest.raises(StateError, match=r"No space is left for the store in .*0_1"):
        started.__exit__()
    full.clear()
    with Started(log, tmp_path / "state", processing_guarantee=guarantee):
        send(log, 1)
        counted(log, 4)
    assert by_key(rows_of(log)) == {f"k{key}": [1, 2, 3, 4] for key in range(KEYS)}
    assert not said(caplog, "deleted")


def rows_of(log: EmbeddedTransport) -> list[tuple[str, int]]:
    return rows(log, "counts")


def test_progress_says_how_fast_and_how_long():
    progress = RestoreProgress("0_0", True, "counts", TopicPartition(CHANGELOG, 0), 10, 60, 110, 40, 2.0)
    assert (progress.remaining, progress.rate, progress.eta_seconds) == (50, 20.0, 2.0)
    assert str(progress) == f"{CHANGELOG}-0: 40 records, 50 left, 20 a second, done in 2 s"


# -- Commits under exactly-once ------------------------------------------------------------------------------------------


def two_tasks(tmp_path) -> Harness:
    harness = Harness(tmp_path, FakeProgram(), Settings(exactly_once=True))
    harness.shared.topics = TopicsOnLog({"in": 2}, {0: ("in",)})
    harness.thread.assign([(0, 0), (0, 1)])
    harness.log.append([("in", None, b"a", 1, None, 0), ("in", None, b"b", 1, None, 1)])
    harness.round()
    return harness


def test_who_leaves_commits_the_others_too(tmp_path):
    """They share the transaction: it makes what they wrote visible, so it has to have their offsets."""
    harness = two_tasks(tmp_path)
    harness.thread.assign([(0, 0)])
    harness.round()
    assert sorted(harness.values()) == [b"a", b"b"]
    assert {place.partition: offset.offset for place, offset in harness.log.offsets.items()} == {0: 1, 1: 1}


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_whose_outcome_nobody_knows(tmp_path, monkeypatch, committed):
    harness = Harness(tmp_path, FakeProgram(), Settings(exactly_once=True, commit_interval_ms=100))
    harness.send(2)
    harness.round()
    commit = FakeProducer.commit

    def fails(producer, offsets, group):
        monkeypatch.setattr(FakeProducer, "commit", commit)
        if committed:
            commit(producer, offsets, group)
        raise RetriableTransportError("no answer")

    monkeypatch.setattr(FakeProducer, "commit", fails)
    harness.clock.now = 101
    harness.round()
    harness.send(1)
    harness.round()
    harness.clock.now = 202
    harness.round()
    assert harness.values() == [b"0", b"1", b"2"]
    assert harness.log.offsets[IN].offset == 3


def test_intervals_do_not_follow_the_time_of_day(tmp_path):
    harness = Harness(tmp_path, FakeProgram(), Settings(commit_interval_ms=100))
    day = harness.shared.clock = type(harness.clock)(10**12)
    harness.send(1)
    harness.round()
    day.now -= 3_600_000
    harness.clock.now = 101
    harness.round()
    assert harness.log.offsets[IN].offset == 1


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_much_is_restored_while_more_is_read(log, tmp_path, engine, guarantee, monkeypatch):
    """Active tasks and standbys that have much to read, however little there is here; they go on as all others do."""
    monkeypatch.setattr("streamkit.runtime.local.restore.LOAD_FROM", 1)
    settings = {"processing_guarantee": guarantee, "state_engine": engine}
    with Started(log, tmp_path / "state", **settings):
        send(log, 2)
        counted(log, 2)
    with Started(log, tmp_path / "other", **settings) as started:
        send(log, 1)
        counted(log, 3)
        started.assign([], ALL)
        write_changelog(log, "k0", 7, 0)
        until(lambda: started.standby_row("k0", 0) == 7, "the standby follows")
    shutil.rmtree(tmp_path / "other")
    with Started(log, tmp_path / "other", **settings) as started:
        started.assign([], ALL)
        until(lambda: started.standby_row("k0", 0) == 7, "the standby has read all")
        started.assign(ALL)
        send(log, 1)
        until(lambda: dict(rows(log, "counts")) == {**{f"k{key}": 4 for key in range(KEYS)}, "k0": 8}, "counts go on")
