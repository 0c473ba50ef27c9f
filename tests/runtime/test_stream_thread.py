"""A stream thread over a log in memory: rounds, commits, faults, paused partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import ProcessingError, RetriableTransportError, StateError, TaskCorruptedError, TransportError
from streamkit.record import TaskId, TopicPartition
from streamkit.runtime.local import task_manager
from streamkit.runtime.local.coordinator import Coordinator
from streamkit.runtime.local.internal_topics import TopicsOnLog
from streamkit.runtime.local.setup import Settings
from streamkit.runtime.local.states import ThreadState
from streamkit.runtime.local.stream_thread import StreamThread
from streamkit.runtime.local.subscription_codec import Subscription
from streamkit.state.directory import read_checkpoint
from tests.runtime.fake_log import FakeConsumer, FakeProducer
from tests.runtime.fakes import FakeProgram
from tests.runtime.harness import IN, LOG, Harness, changelog_rows

OUT = TopicPartition("out", 0)


def test_a_round_processes_what_was_polled(tmp_path):
    harness = Harness(tmp_path, FakeProgram())
    harness.send(3)
    harness.round()
    assert harness.values() == [b"0", b"1", b"2"]
    assert harness.thread.state is ThreadState.RUNNING
    assert harness.log.offsets == {}


def test_a_thread_that_loses_its_tasks_in_a_step_writes_nothing_more(tmp_path):
    """Its old count would come after those of the next owner, and a restore would take it for the last one."""
    harness = Harness(tmp_path, FakeProgram(on_record=lambda rt, value, time: harness.thread.lose()))
    harness.send(3)
    harness.round()
    assert not harness.thread.settled()
    harness.thread._round()
    assert harness.values() == []
    assert harness.log.offsets == {}
    assert harness.thread.tasks() == []


def test_results_of_few_records_do_not_wait_for_others(tmp_path, monkeypatch):
    """With many, the log has more: then batches fill."""
    hastened: list[int] = []

    def note(producer, seconds):
        hastened.append(len(producer.log.rows[OUT]))
        return True

    monkeypatch.setattr(FakeProducer, "hasten", note)
    harness = Harness(tmp_path, FakeProgram())
    harness.send(3)
    harness.round()
    harness.thread._round()
    assert hastened == [3]
    harness.send(2000)
    harness.round()
    assert hastened == [3]
    harness.thread._round()
    assert hastened == [3, 2003]


def test_a_poll_waits_no_longer_than_the_next_commit(tmp_path, monkeypatch):
    waited: list[int] = []
    poll = FakeConsumer.poll

    def note(consumer, max_records, timeout_ms):
        waited.append(timeout_ms)
        return poll(consumer, max_records, timeout_ms)

    monkeypatch.setattr(FakeConsumer, "poll", note)
    harness = Harness(tmp_path, FakeProgram(), Settings(commit_interval_ms=50, poll_ms=100))
    harness.send(1)
    harness.round()
    harness.clock.now = 20
    harness.thread._round()
    harness.clock.now = 51
    harness.thread._round()
    harness.thread._round()
    assert waited == [100, 31, 0, 100]


def test_a_poll_does_not_spin_while_a_rebalance_postpones_the_commit(tmp_path):
    harness = Harness(tmp_path, FakeProgram(), Settings(commit_interval_ms=50, poll_ms=100))
    harness.send(1)
    harness.round()
    harness.clock.now = 51
    harness.shared.coordinator = Coordinator(
        TopicsOnLog({"in": 1}, {0: ("in",)}), [], [], lambda threads: Subscription()
    )
    harness.shared.coordinator._blocked = True
    harness.thread._round()
    assert harness.log.offsets == {}
    assert harness.thread._poll_ms() == 100


def test_commits_when_the_interval_has_passed(tmp_path):
    harness = Harness(tmp_path, FakeProgram(), Settings(commit_interval_ms=100))
    harness.send(3)
    harness.round()
    harness.clock.now = 100
    harness.round()
    assert harness.log.offsets == {}
    harness.clock.now = 101
    harness.round()
    assert harness.log.offsets[IN].offset == 3
    assert harness.log.events == ["flush", "commit offsets"]


def test_the_interval_begins_at_the_end_of_a_commit(tmp_path, monkeypatch):
    harness = Harness(tmp_path, FakeProgram(), Settings(commit_interval_ms=100))

    def slow(producer: FakeProducer) -> None:
        harness.clock.now += 500

    monkeypatch.setattr(FakeProducer, "flush", slow)
    harness.send(1)
    harness.clock.now = 101
    harness.round()
    assert harness.clock.now == 601
    harness.send(1)
    harness.round()
    assert harness.log.offsets[IN].offset == 1
    harness.clock.now = 702
    harness.round()
    assert harness.log.offsets[IN].offset == 2


def test_commits_on_request(tmp_path):
    harness = Harness(tmp_path, FakeProgram(on_record=lambda rt, value, time: rt.request_commit()))
    harness.send(1)
    harness.round()
    assert harness.log.offsets[IN].offset == 1


def test_stores_are_flushed_before_the_log_and_durable_after_it(tmp_path):
    program = FakeProgram(on_record=lambda rt, value, time: rt.store("counts").pending.append(value))
    harness = Harness(tmp_path, program, stores=("counts",))
    harness.send(2)
    harness.round()
    (store,) = harness.stores
    assert (harness.values(LOG.topic), store.commits) == ([], 0)
    harness.clock.now = 30_001
    harness.round()
    assert (harness.values(LOG.topic), store.commits) == ([b"0", b"1"], 1)
    assert store.kept == {0: 2}
    assert harness.log.offsets[IN].offset == 2


def test_a_clean_close_commits_and_writes_the_checkpoint(tmp_path):
    program = FakeProgram(on_record=lambda rt, value, time: rt.store("counts").pending.append(value))
    harness = Harness(tmp_path, program, stores=("counts",))
    harness.send(2)
    harness.round()
    harness.thread.assign([])
    harness.round()
    assert harness.log.offsets[IN].offset == 2
    assert read_checkpoint(harness.shared.directory.task("0_0")) == {LOG: 1}
    harness.thread.assign([TaskId(0, 0)])
    harness.log.append(changelog_rows(1))
    harness.round()
    assert harness.stores[-1].restored == [(b"0", b"v")]


def test_exactly_once_commits_output_and_offsets_together(tmp_path):
    harness = Harness(tmp_path, FakeProgram(), Settings(exactly_once=True, commit_interval_ms=100))
    harness.send(2)
    harness.round()
    assert harness.values() == []
    harness.clock.now = 101
    harness.round()
    assert harness.values() == [b"0", b"1"]
    assert harness.log.events == ["begin", "commit transaction of 2"]
    assert harness.log.offsets[IN].offset == 2


def test_passing_faults_are_borne_for_the_task_timeout(tmp_path):
    harness = Harness(tmp_path, FakeProgram(), Settings(task_timeout_ms=1000))
    harness.send(1)
    harness.round()
    harness.log.failures = [RetriableTransportError("no leader") for _ in range(3)]
    harness.round()
    harness.clock.now = 1000
    harness.round()
    harness.clock.now = 1001
    with pytest.raises(TransportError, match="task 0_0 made no progress within 1000 ms"):
        harness.round()


def test_the_task_timeout_begins_again_for_a_task_that_comes_back(tmp_path):
    harness = Harness(tmp_path, FakeProgram(), Settings(task_timeout_ms=1000))
    harness.send(1)
    harness.round()
    harness.log.failures = [RetriableTransportError("no leader")]
    harness.round()
    for tasks in ([], [TaskId(0, 0)]):
        harness.thread.assign(tasks)
        harness.round()
    harness.send(1)
    harness.round()
    harness.log.failures = [RetriableTransportError("no leader") for _ in range(2)]
    harness.clock.now = 2000
    harness.round()
    harness.clock.now = 3001
    with pytest.raises(TransportError, match="task 0_0 made no progress within 1000 ms"):
        harness.round()


def test_without_anything_to_commit_faults_are_borne_forever(tmp_path):
    harness = Harness(tmp_path, FakeProgram(), Settings(task_timeout_ms=1000))
    harness.round()
    harness.log.failures = [RetriableTransportError("no leader") for _ in range(2)]
    harness.round()
    harness.clock.now = 100_000
    harness.round()
    harness.send(1)
    harness.round()
    assert harness.values() == [b"0"]


def with_a_full_partition(tmp_path) -> Harness:
    """A task that waits for its other input."""
    program = FakeProgram(("in", "other"))
    harness = Harness(tmp_path, program, Settings(buffered_records=3, max_idle_ms=1_000_000))
    harness.shared.topics = TopicsOnLog({"in": 1, "other": 1}, {0: program.topics})
    harness.send(4)
    harness.round()
    return harness


def test_full_partitions_are_paused_and_resumed(tmp_path):
    harness = with_a_full_partition(tmp_path)
    consumer: Any = harness.thread._committer.consumer
    assert consumer.paused == {IN}
    harness.log.append([("other", None, b"x", 100, None, 0)])
    harness.round()
    assert consumer.paused == set()
    assert harness.values() == [b"0", b"1", b"2", b"3"]


def test_a_full_partition_that_comes_back_is_paused_again(tmp_path):
    harness = with_a_full_partition(tmp_path)
    # It forgets the partitions that it gives up.
    consumer: Any = harness.thread._committer.consumer
    harness.thread._tasks.handle_corruption(TaskCorruptedError("restart", on_disk=False))
    harness.round()
    assert consumer.paused == {IN}


def test_a_task_waits_for_what_the_log_still_has_of_a_partition_that_was_at_its_end(tmp_path):
    program = FakeProgram(("in", "other"))
    harness = Harness(tmp_path, program, Settings(max_poll_records=2))
    harness.shared.topics = TopicsOnLog({"in": 1, "other": 1}, {0: program.topics})
    harness.log.append([("other", None, b"x", 0, None, 0)])
    harness.round()
    assert program.seen == [("other", [0])]
    harness.send(4)
    harness.log.append([("other", None, b"x", 100, None, 0)])
    harness.round()
    harness.round()
    order = [(topic, offset) for topic, offsets in program.seen[1:] for offset in offsets]
    assert order == [*(("in", offset) for offset in range(4)), ("other", 1)]


def test_repartition_topics_are_purged(tmp_path):
    program = FakeProgram(("app-again",))
    harness = Harness(tmp_path, program)
    harness.shared.topics = TopicsOnLog({"app-again": 1}, {0: program.topics})
    harness.log.append([("app-again", None, b"x", 1, None, 0)] * 3)
    harness.round()
    harness.clock.now = 30_001
    harness.round()
    assert harness.log.purged == {TopicPartition("app-again", 0): 3}


def test_repartition_topics_are_purged_of_tasks_at_rest_too(tmp_path):
    program = FakeProgram(("app-again",))
    harness = Harness(tmp_path, program, Settings(commit_interval_ms=100))
    harness.shared.topics = TopicsOnLog({"app-again": 1}, {0: program.topics})
    harness.log.append([("app-again", None, b"x", 1, None, 0)] * 3)
    harness.round()
    harness.clock.now = 101
    harness.round()
    assert not harness.thread._tasks.awake
    harness.clock.now = 30_001
    harness.round()
    assert harness.log.purged == {TopicPartition("app-again", 0): 3}


def test_a_task_rests_once_it_is_committed_and_wakes_for_records(tmp_path):
    harness = Harness(tmp_path, FakeProgram(), Settings(commit_interval_ms=100))
    harness.send(1)
    harness.round()
    awake = harness.thread._tasks.awake
    assert list(awake) == [TaskId(0, 0)]
    harness.clock.now = 101
    harness.round()
    assert not awake
    harness.send(1)
    harness.round()
    assert harness.values() == [b"0", b"1"]
    assert list(awake) == [TaskId(0, 0)]
    harness.clock.now = 202
    harness.round()
    assert harness.log.offsets[IN].offset == 2
    assert not awake


def test_a_task_at_rest_wakes_for_its_timers(tmp_path):
    fired: list[int] = []
    program = FakeProgram(init=lambda rt: rt.schedule(0, 1000, "wall_clock", fired.append))
    harness = Harness(tmp_path, program)
    harness.round()
    tasks = harness.thread._tasks
    for now, times in ((999, []), (1000, [1000]), (1999, [1000]), (2500, [1000, 2500]), (3000, [1000, 2500, 3000])):
        assert not tasks.awake
        harness.clock.now = now
        harness.round()
        assert fired == times
        tasks.commit()
        tasks.rest()


def test_a_timer_of_a_closed_task_wakes_nothing(tmp_path):
    fired: list[int] = []
    program = FakeProgram(init=lambda rt: rt.schedule(0, 1000, "wall_clock", fired.append))
    harness = Harness(tmp_path, program)
    harness.round()
    harness.thread.assign([])
    harness.round()
    harness.clock.now = 1000
    harness.round()
    assert not fired


def test_timers_of_stream_time_wait_for_the_end_of_a_pause(tmp_path):
    """A task that starts with a committed time fires them in its first round."""
    fired: list[int] = []
    harness = Harness(tmp_path, FakeProgram(init=lambda rt: rt.schedule(0, 1000, "stream_time", fired.append)))
    harness.send(6)
    harness.round()
    harness.thread._tasks.commit()
    harness.thread._tasks.handle_corruption(TaskCorruptedError("restart", on_disk=False))
    fired.clear()
    harness.thread._tasks.updater.round()
    harness.shared.paused.set()
    harness.thread._round()
    assert harness.thread._tasks.running
    assert not fired
    harness.shared.paused.clear()
    harness.round()
    assert fired == [5]


def test_counts_of_a_task_at_rest_are_shown(tmp_path):
    harness = Harness(tmp_path, FakeProgram(), Settings(commit_interval_ms=100))
    thread = harness.thread
    for at, sent in ((101, 2), (202, 3)):
        harness.send(sent)
        harness.round()
        harness.clock.now = at
        harness.round()
        assert not thread._tasks.awake
        thread._publish(now=True)
        [view] = thread.counters.view.tasks
        assert (view.processed, view.commits) == ((2, 1) if at == 101 else (5, 2))
        assert view.positions == {IN: view.processed}


def test_a_corrupted_task_starts_again(tmp_path):
    failures = [TaskCorruptedError("bad state")]

    def maybe_fail(rt, value, time):
        if failures:
            raise failures.pop()

    harness = Harness(tmp_path, FakeProgram(on_record=maybe_fail))
    harness.send(2)
    harness.round()
    assert harness.values() == []
    harness.round()
    assert harness.values() == [b"0", b"1"]


def following(tmp_path: Path) -> Harness:
    """A thread whose only task is a standby with three records of its changelog."""
    harness = Harness(tmp_path, FakeProgram(), stores=("counts",))
    harness.log.append(changelog_rows(3))
    harness.round()
    harness.thread.assign([], [TaskId(0, 0)])
    harness.round()
    harness.thread.updater.round()
    return harness


def test_a_store_beyond_the_end_of_its_changelog_is_restored_when_its_task_changes_its_role(tmp_path):
    harness = following(tmp_path)
    # As if the topic were created again; the files are gone with the wipe, and `kept` stands for them.
    harness.log.rows[LOG] = changelog_rows(1)
    harness.kept.clear()
    harness.thread.assign([TaskId(0, 0)])
    harness.round()
    harness.round()
    assert [store.restored for store in harness.stores[1:]] == [[(b"0", b"v")]]
    assert list(harness.thread._tasks.running) == [TaskId(0, 0)]


@pytest.mark.parametrize("active", [True, False])
def test_a_damaged_task_is_restored_although_its_role_changes(tmp_path, active, caplog):
    harness = following(tmp_path)
    updater = harness.thread.updater
    if not active:
        # Now it is an active task that is not restored yet.
        harness.thread.assign([TaskId(0, 0)])
        harness.thread._take_assignment()
    updater._fail(updater.tasks(), TaskCorruptedError("bad state"))
    harness.kept.clear()
    harness.thread.assign(*([TaskId(0, 0)], []) if active else ([], [TaskId(0, 0)]))
    harness.round()
    updater.round()
    assert "task 0_0: bad state; it is restored from its changelogs" in caplog.text
    assert [len(store.restored) for store in harness.stores] == [3, 3]


def claims_at_wipes(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Note for each wipe whether another thread could claim the task meanwhile."""
    free: list[bool] = []

    def note(folder: Path) -> None:
        free.append(harness.shared.claims.claim(TaskId(0, 0), "another thread"))

    monkeypatch.setattr(task_manager, "delete_checkpoint", note)
    return free


@pytest.mark.parametrize("change", [False, True])
def test_a_damaged_store_is_wiped_before_another_thread_may_open_it(tmp_path, change, monkeypatch):
    harness = following(tmp_path)
    free = claims_at_wipes(harness, monkeypatch)
    updater = harness.thread.updater
    updater._fail(updater.tasks(), TaskCorruptedError("bad state"))
    if change:
        harness.thread.assign([TaskId(0, 0)])
    harness.round()
    assert free == [False]


def test_a_damaged_store_of_a_running_task_is_wiped_before_another_thread_may_open_it(tmp_path, monkeypatch):
    harness = Harness(tmp_path, FakeProgram(), stores=("counts",))
    harness.round()
    free = claims_at_wipes(harness, monkeypatch)
    harness.thread._tasks.handle_corruption(TaskCorruptedError("bad state"))
    assert free == [False]


def test_all_failed_tasks_are_closed_although_one_can_not_be_wiped(tmp_path, monkeypatch):
    harness = Harness(tmp_path, FakeProgram(), stores=("counts",))
    harness.shared.topics = TopicsOnLog({"in": 2}, {0: ("in",)})
    both = [TaskId(0, 0), TaskId(0, 1)]
    harness.thread.assign([], both)
    harness.round()
    updater = harness.thread.updater
    updater._fail(updater.tasks(), TaskCorruptedError("bad state"))

    def refuse(folder: Path) -> None:
        if folder.name == "0_0":
            raise StateError("the disk is full")

    monkeypatch.setattr(task_manager, "delete_checkpoint", refuse)
    with pytest.raises(StateError, match="the disk is full"):
        harness.round()
    assert all(harness.shared.claims.claim(task, "another thread") for task in both)


def test_a_thread_that_fails_dies_with_its_error(tmp_path):
    def boom(rt, value, time):
        raise RuntimeError("bug")

    harness = Harness(tmp_path, FakeProgram(on_record=boom))
    harness.send(1)
    thread = StreamThread("t2", harness.shared)
    thread.assign([TaskId(0, 0)])
    thread.run()
    assert thread.state is ThreadState.DEAD
    assert isinstance(thread.error, ProcessingError)
    assert harness.log.offsets == {}


def test_a_thread_is_idle_without_records_to_read_or_to_commit(tmp_path):
    harness = Harness(tmp_path, FakeProgram())
    harness.shared.until_idle.set()
    harness.send(1)
    harness.round()
    assert not harness.thread.idle
    harness.round()
    harness.round()
    assert harness.thread.idle
    assert harness.thread.positions == {IN: 1}
    assert harness.log.offsets[IN].offset == 1
