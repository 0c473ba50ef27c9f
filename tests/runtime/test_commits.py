"""Commits: tasks that share a transaction, an outcome that is not known, intervals."""

from __future__ import annotations

from threading import Barrier
from types import SimpleNamespace

import pytest

from streamkit.errors import ProducerLostError, RetriableTransportError, StateError
from streamkit.metrics import DropReason
from streamkit.record import TaskId
from streamkit.runtime.local.internal_topics import TopicsOnLog
from streamkit.runtime.local.local_task import LocalTask
from streamkit.runtime.local.setup import Settings
from tests.runtime.fake_log import FakeProducer
from tests.runtime.fakes import FakeProgram
from tests.runtime.harness import IN, Harness, ListStore


def two_tasks(tmp_path, stores: tuple[str, ...] = ()) -> Harness:
    harness = Harness(tmp_path, FakeProgram(), Settings(exactly_once=True), stores)
    harness.shared.topics = TopicsOnLog({"in": 2}, {0: ("in",)})
    harness.thread.assign([TaskId(0, 0), TaskId(0, 1)])
    harness.log.append([("in", None, b"a", 1, None, 0), ("in", None, b"b", 1, None, 1)])
    harness.round()
    return harness


def test_a_leaving_member_commits_the_others_too(tmp_path):
    """They share the transaction: it makes what they wrote visible, so it has to have their offsets."""
    harness = two_tasks(tmp_path)
    harness.thread.assign([TaskId(0, 0)])
    harness.round()
    assert sorted(harness.values()) == [b"a", b"b"]
    assert {place.partition: offset.offset for place, offset in harness.log.offsets.items()} == {0: 1, 1: 1}


def test_stores_on_disk_are_written_at_once(tmp_path, monkeypatch):
    """Each waits for the other one: one after the other they would wait in vain."""
    harness = two_tasks(tmp_path, ("counts",))
    both = Barrier(2, timeout=60)
    monkeypatch.setattr(ListStore, "commit", lambda store: both.wait())
    assert harness.thread._tasks.commit()


@pytest.mark.parametrize("full", [0, 1])
def test_where_a_store_cant_be_written_the_others_are(tmp_path, monkeypatch, full):
    harness = two_tasks(tmp_path, ("counts",))
    written = []

    def commit(store):
        if store is harness.stores[full]:
            raise StateError("no space")
        written.append(store)

    monkeypatch.setattr(ListStore, "commit", commit)
    with pytest.raises(StateError, match="no space"):
        harness.thread._tasks.commit()
    assert written == [harness.stores[1 - full]]


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_whose_outcome_is_unknown(tmp_path, monkeypatch, committed):
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


def test_a_producer_that_is_lost_while_it_begins_is_replaced(tmp_path, monkeypatch):
    """Its transactional id is free for the next one; the lost one would fail at each further call, until the process ends."""
    begin, lost = FakeProducer.begin, []

    def begin_or_fail(producer):
        if not lost:
            lost.append(producer)
        if producer is lost[0]:
            raise ProducerLostError("no answer")
        begin(producer)

    monkeypatch.setattr(FakeProducer, "begin", begin_or_fail)
    harness = Harness(tmp_path, FakeProgram(), Settings(exactly_once=True, commit_interval_ms=100))
    harness.send(1)
    harness.thread._round()
    harness.round()
    harness.clock.now = 101
    harness.round()
    assert harness.values() == [b"0"]


@pytest.fixture
def looked(tmp_path, monkeypatch) -> tuple[Harness, list[str], list[bool]]:
    """A thread under exactly-once, the looks for lost transactions that it makes, and whether its producer has lost a broker."""
    looks: list[str] = []
    lost = [False]

    def lost_broker(producer):
        found, lost[0] = lost[0], False
        return found

    monkeypatch.setattr(FakeProducer, "lost_broker", lost_broker)
    harness = Harness(tmp_path, FakeProgram(), Settings(exactly_once=True, commit_interval_ms=100))
    harness.thread._committer._own = SimpleNamespace(
        settle=lambda topics: looks.append(f"after {len(harness.values())}"),
        await_markers=lambda topics: True,
        close=lambda: None,
    )
    return harness, looks, lost


def test_what_brokers_lost_of_a_commit_is_looked_for_before_the_next_transaction_has_records(looked):
    """A broker that goes down just after it has acknowledged a commit may never write the markers."""
    harness, looks, lost = looked
    harness.send(1)
    harness.round()
    lost[0] = True  # too late: this transaction has records, and its commit ends both
    harness.thread._round()
    assert looks == []
    harness.clock.now = 101
    harness.thread._round()
    harness.thread._round()
    assert looks == ["after 1"]
    harness.send(1)
    poll = harness.thread._committer.consumer.poll

    def lose_amid(*args):
        lost[0] = True
        return poll(*args)

    harness.thread._committer.consumer.poll = lose_amid
    harness.thread._round()
    assert looks == ["after 1"] * 2
    harness.clock.now = 202
    harness.thread._round()
    assert harness.values() == [b"0", b"1"]


def test_nothing_is_committed_before_the_end_of_the_last_transaction_is_known(looked):
    """The next transaction would end both."""
    harness, _, lost = looked
    harness.send(1)
    harness.round()
    harness.thread._tasks.commit()
    harness.thread._tasks.running[TaskId(0, 0)].task.touch([IN])

    def refuse(topics) -> None:
        raise RetriableTransportError("not known yet")

    harness.thread._committer._own.settle = refuse
    lost[0] = True
    harness.thread.assign([])
    harness.thread._round()
    assert harness.log.events.count("commit transaction of 0") == 0
    assert not harness.thread.settled()


def test_a_clean_close_asks_for_no_end_after_its_commit(looked):
    harness, looks, lost = looked
    harness.send(1)
    harness.round()
    lost[0] = True
    harness.thread._shut_down(clean=True)
    assert harness.thread.error is None
    assert (harness.values(), looks) == ([b"0"], [])


def test_a_paused_thread_commits_what_it_has_processed_and_waits(tmp_path):
    harness = Harness(tmp_path, FakeProgram(), Settings(commit_interval_ms=50, poll_ms=100))
    harness.send(1)
    harness.round()
    harness.shared.paused.set()
    harness.clock.now = 51
    harness.thread._round()
    assert harness.log.offsets[IN].offset == 1
    assert harness.thread._poll_ms() == 100


def test_the_group_does_not_wait_for_a_thread_that_can_not_begin(tmp_path, monkeypatch):
    """Brokers may not tell for long how the last transaction ended; meanwhile tasks must be able to move away."""
    harness = Harness(tmp_path, FakeProgram(), Settings(exactly_once=True, commit_interval_ms=100))
    harness.send(1)
    harness.round()
    harness.clock.now = 101
    harness.round()
    harness.thread._committer.restart()

    def refuse(producer):
        raise RetriableTransportError("not known yet")

    monkeypatch.setattr(FakeProducer, "begin", refuse)
    harness.thread.assign([])
    harness.thread._round()
    assert harness.thread.settled()
    assert harness.shared.claims.claim(TaskId(0, 0), "another thread")
    assert harness.log.offsets[IN].offset == 1


@pytest.mark.parametrize("role", ["running", "standby"])
def test_a_task_whose_files_can_not_be_written_is_closed_when_it_leaves(tmp_path, monkeypatch, role):
    """On a full disk, as during a rebalance: else no thread could own the task again."""
    harness = Harness(tmp_path, FakeProgram(), stores=("counts",))
    if role == "standby":
        harness.thread.assign([], [TaskId(0, 0)])
    harness.round()

    def refuse(task, *, enforce):
        raise StateError("no space left on device")

    monkeypatch.setattr(LocalTask, "checkpoint", refuse)
    harness.thread.assign([])
    with pytest.raises(StateError, match="no space left"):
        harness.thread._take_assignment()
    assert harness.thread.tasks() == []
    assert harness.shared.claims.claim(TaskId(0, 0), "another thread")


def test_intervals_do_not_follow_the_time_of_day(tmp_path):
    harness = Harness(tmp_path, FakeProgram(), Settings(commit_interval_ms=100))
    day = harness.shared.clock = type(harness.clock)(10**12)
    harness.send(1)
    harness.round()
    day.now -= 3_600_000
    harness.clock.now = 101
    harness.round()
    assert harness.log.offsets[IN].offset == 1


def test_output_that_the_log_did_not_take_at_once_does_not_wait_for_a_commit(tmp_path, monkeypatch):
    """A producer may hold rows back until its next call, which must not be the next commit."""
    held: list = []
    send = FakeProducer.send

    def late(producer, rows):
        send(producer, held)
        held[:] = rows

    monkeypatch.setattr(FakeProducer, "send", late)
    harness = Harness(tmp_path, FakeProgram(), Settings(commit_interval_ms=100))
    harness.send(2)
    harness.round()
    assert harness.values() == []
    harness.round()
    assert harness.values() == [b"0", b"1"]
    assert harness.log.offsets == {}


def test_dropped_records_are_logged_once_a_minute_for_each_task_and_reason(tmp_path, caplog):
    def drop(rt, value, time):
        if value == b"late":
            rt.dropped(DropReason.LATE, "topic in, partition 0, offset 7")
        elif value == b"null":
            rt.dropped(DropReason.NULL, "topic in, partition 0, offset 8")

    harness = Harness(tmp_path, FakeProgram(on_record=drop), Settings(commit_interval_ms=100))

    def pass_records(*values: bytes, ms: int) -> list[str]:
        caplog.clear()
        harness.log.append([("in", None, value, 1, None, 0) for value in values])
        harness.round()
        harness.clock.now += ms
        harness.round()
        return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]

    first = "task 0_0: dropped 2 late records in the last minute (topic in, window closed)"
    assert pass_records(b"late", b"late", ms=101) == [first]
    nulls = "task 0_0: dropped 1 record in the last minute (topic in, no key or no value)"
    assert pass_records(b"late", b"null", ms=101) == [nulls]
    assert pass_records(b"late", ms=101) == []
    assert pass_records(b"", ms=60_000) == [first]
    assert pass_records(b"late", ms=101) == []
    caplog.clear()
    harness.thread._committer.close()
    assert first.replace("2 late records", "1 late record") in caplog.text
