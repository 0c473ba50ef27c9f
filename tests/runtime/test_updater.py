"""The state updater: standbys and back, status, and restoring beside processing."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from streamkit.errors import RetriableTransportError, StateError, UnreachableError
from streamkit.record import TaskId, TopicPartition
from streamkit.runtime.local import status_model
from streamkit.runtime.local.client import Application
from streamkit.runtime.local.local_task import RUNNING
from streamkit.runtime.local.restore import Changelog, RestoreProgress
from streamkit.state.directory import read_checkpoint
from streamkit.transport.embedded import EmbeddedTransport
from tests.broker.support import until
from tests.cli.support import LIMIT_S
from tests.requirements import EVERY_ENGINE
from tests.runtime.counting import by_key, counting, rows, send
from tests.runtime.one_thread import ALL, CHANGELOG, GUARANTEES, KEYS, Started, counted, said, write_changelog


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


def test_a_standby_whose_next_records_are_deleted_begins_again(log, tmp_path, caplog, monkeypatch):
    with Started(log, tmp_path / "state") as started:
        send(log, 2)
        counted(log, 2)
        started.assign([], ALL)
        until(lambda: started.standby_row("k0", 0) == 2, "the standby has followed")
        polled = threading.Event()
        with monkeypatch.context() as patch:
            consumer = started.thread.updater._start_positions.consumer
            patch.setattr(consumer, "poll", lambda *given: polled.set() or [])
            assert polled.wait(LIMIT_S)
            write_changelog(log, "k0", 10, 0)
            write_changelog(log, "k0", 11, 0)
            with closing(log.admin()) as admin:
                admin.delete_records({TopicPartition(CHANGELOG, 0): 5})
        until(lambda: started.standby_row("k0", 0) == 11, "the standby has begun again")
    words = (
        f"{CHANGELOG}-0: the records from offset 4 to 4 were deleted before they were read, by the topic's retention"
    )
    assert said(caplog, words)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_status_shows_the_contents_of_stores(log, tmp_path, guarantee, monkeypatch):
    monkeypatch.setattr(status_model, "_SIZE_SECONDS", 0.0)
    with Started(log, tmp_path / "state", processing_guarantee=guarantee) as started:
        send(log, 2)

        def settled():
            (store,) = started.application.status().stores
            return store.parts if [(part.offset, part.end) for part in store.parts] == [(4, 4)] * 3 else None

        parts = until(settled, "the stores have their commit")
        assert [(part.task, part.changelog) for part in parts] == [(f"0_{number}", CHANGELOG) for number in range(3)]
        assert [part for part in parts if not (part.bytes > 0 and part.committed_ms > 0)] == []
        until(lambda: sum(part.rows for part in settled()) == KEYS, "the estimates are of now")
        started.assign([TaskId(0, 0)], [TaskId(0, 1), TaskId(0, 2)])
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
        until(lambda: application._maintain() or sum(thread._tasks._wanted.values()) == 3, "the tasks are assigned")
        thread.assign([TaskId(0, 1), TaskId(0, 2)], [])
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


def test_progress_shows_rate_and_remaining_time():
    progress = RestoreProgress("0_0", True, "counts", TopicPartition(CHANGELOG, 0), 10, 60, 110, 40, 2.0)
    assert (progress.remaining, progress.rate, progress.eta_seconds) == (50, 20.0, 2.0)
    assert str(progress) == f"{CHANGELOG}-0: 40 records, 50 left, 20 a second, done in 2 s"


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


def test_a_restore_listener_may_read_the_status(log, tmp_path):
    """The status asks the updater, whose thread calls the listener, for all restores."""
    with Started(log, tmp_path / "state"):
        send(log, 1)
        counted(log, 1)
    shutil.rmtree(tmp_path / "state")
    restarted = Started(log, tmp_path / "state")
    events = []

    def look(event, progress):
        events.append((event, restarted.application.status(lag=False).state))

    restarted.application.set_restore_listener(look)
    with restarted:
        restarted.assign(ALL)
    assert {event for event, _ in events} >= {"start", "batch", "end"}


def test_no_query_reads_a_store_whose_load_begins(log, tmp_path, monkeypatch):
    """Its files are opened again, which an engine may refuse while another thread reads."""
    read = []

    def query() -> bool:
        (thread,) = restarted.application.threads
        try:
            with thread.updater.entered(0):
                return True
        except StateError:
            return False

    def begin_load(changelog: Changelog, executor: Executor) -> None:
        with ThreadPoolExecutor(1) as other:
            read.append(other.submit(query).result())

    with Started(log, tmp_path / "state"):
        send(log, 1)
        counted(log, 1)
    shutil.rmtree(tmp_path / "state")
    monkeypatch.setattr(Changelog, "begin_load", begin_load)
    restarted = Started(log, tmp_path / "state")
    with restarted:
        restarted.assign([], ALL)
        until(lambda: restarted.standby_row("k0", 0) == 1, "the standby follows")
    assert set(read) == {False}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_tasks_whose_partitions_cannot_be_assigned_yet_start_later(
    guarantee: str, log: EmbeddedTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = [2, 3, 5]
    with Started(log, tmp_path, processing_guarantee=guarantee) as started:
        started.assign([])
        consumer = started.thread._committer.consumer
        add, calls = consumer.add, list[int]()

        def refuse_some(positions: Mapping[TopicPartition, int]) -> None:
            calls.append(len(calls) + 1)
            if calls[-1] in failing:
                raise UnreachableError("no broker answers")
            add(positions)

        monkeypatch.setattr(consumer, "add", refuse_some)
        started.assign(ALL)
        send(log, 1)
        counted(log, 1)
    assert len(calls) == len(ALL) + len(failing)
