"""What a thread loses, repeats or holds up when it is interrupted: nothing, and no other thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from streamkit.errors import (
    FencedError,
    NotPermittedError,
    OffsetOutOfRangeError,
    ProductionError,
    RetriableTransportError,
    StateError,
    TaskCorruptedError,
    TransportError,
    UnknownTopicError,
    UnreachableError,
)
from streamkit.record import TaskId, TopicPartition
from streamkit.runtime.execution.handlers import Handlers
from streamkit.runtime.local import committer as committer_module
from streamkit.runtime.local import stream_thread
from streamkit.runtime.local.committer import OwnTransactions
from streamkit.runtime.local.coordinator import Coordinator
from streamkit.runtime.local.internal_topics import TopicsOnLog
from streamkit.runtime.local.rebalance_listener import RebalanceListener
from streamkit.runtime.local.setup import Settings
from streamkit.runtime.local.states import ThreadState
from streamkit.runtime.local.subscription_codec import Subscription
from tests.runtime import harness
from tests.runtime.fake_log import FakeConsumer, FakeProducer
from tests.runtime.fakes import Clock, FakeProgram
from tests.runtime.harness import Harness

IN, OUT = TopicPartition("in", 0), TopicPartition("out", 0)


class Group:
    """The coordinator of a group whose rebalances the test steers."""

    def __init__(self) -> None:
        self.rebalancing = False

    def group_metadata(self) -> bytes:
        return b"generation 1"

    def commit(self, offsets: Any) -> bool:
        return False

    @contextmanager
    def committing(self) -> Iterator[bool]:
        yield not self.rebalancing


def with_tasks(
    tmp_path, monkeypatch, settings: Settings, *, partitions: int, program: FakeProgram | None = None
) -> Harness:
    monkeypatch.setattr(harness, "TopicsOnLog", lambda *_: TopicsOnLog({"in": partitions}, {0: ("in",)}))
    made = Harness(tmp_path, program or FakeProgram(), settings)
    made.shared.coordinator = Group()  # type: ignore[assignment]
    return made


# -- Rounds that take long --


def test_a_round_over_slow_tasks_becomes_short_enough_for_its_transaction(tmp_path, monkeypatch) -> None:
    program = FakeProgram()
    program.on_record = lambda *_: setattr(made.clock, "now", made.clock.now + 45)
    made = with_tasks(
        tmp_path, monkeypatch, Settings(exactly_once=True, commit_interval_ms=100), partitions=2, program=program
    )
    began: list[int] = []
    begin, send, commit = FakeProducer.begin, FakeProducer.send, FakeProducer.commit

    def check() -> None:
        # As a coordinator does after transaction.timeout.ms.
        if began and made.clock.now - began[0] > 10_000:
            raise FencedError("the transaction has timed out")

    def begins(producer: FakeProducer) -> None:
        began.clear()
        begin(producer)

    def sends(producer: FakeProducer, rows: Any) -> None:
        check()
        if rows and not began:
            began.append(made.clock.now)
        send(producer, rows)

    def commits(producer: FakeProducer, *arguments: Any) -> None:
        check()
        commit(producer, *arguments)

    for name, function in (("begin", begins), ("send", sends), ("commit", commits)):
        monkeypatch.setattr(FakeProducer, name, function)
    for partition in (0, 1):
        made.log.append([("in", None, b"v", number, None, partition) for number in range(600)])
    for _ in range(6):
        made.thread.assign([TaskId(0, 0), TaskId(0, 1)])
        made.round()
    assert {partition.partition: committed.offset for partition, committed in made.log.offsets.items()} == {
        0: 600,
        1: 600,
    }


def test_a_thread_polls_before_the_group_gives_it_up(tmp_path, monkeypatch) -> None:
    program = FakeProgram()
    program.on_record = lambda *_: setattr(made.clock, "now", made.clock.now + 7)
    made = with_tasks(tmp_path, monkeypatch, Settings(max_poll_interval_ms=10_000), partitions=1, program=program)
    polls: list[int] = []
    poll = FakeConsumer.poll

    def polls_at(consumer: FakeConsumer, *arguments: Any) -> Any:
        polls.append(made.clock.now)
        return poll(consumer, *arguments)

    monkeypatch.setattr(FakeConsumer, "poll", polls_at)
    made.send(5000)
    for _ in range(40):
        made.round()
    assert len(made.log.rows[OUT]) == 5000
    assert max(later - earlier for earlier, later in pairwise(polls)) < 10_000


# -- The group --


def test_a_thread_that_joins_during_a_commit_does_not_delay_the_group() -> None:
    """A thread's new share is given out after the rebalance that its coming causes, not while commits wait for that one."""
    joins: list[bool] = []
    membership = SimpleNamespace(gated=True, due=False, group_metadata=lambda: b"x")
    membership.join = membership.rebalance = lambda *_: setattr(membership, "due", True)
    membership.rebalancing = lambda: membership.due

    def poll(_wait_ms: int, join: bool = True) -> None:
        if join and membership.due:
            joins.append(join)
            membership.due = False

    membership.poll = poll
    membership.joining = lambda: False
    tasks = [TaskId(0, partition) for partition in range(4)]
    topics = TopicsOnLog({"in": 4}, {0: ("in",)})
    coordinator = Coordinator(topics, ["T1"], [], lambda threads: Subscription())
    coordinator._membership, coordinator._tasks = membership, tasks  # type: ignore[assignment]
    first = coordinator._assign_threads()["T1"].active

    class Thread:
        stopping, polled_at, lost = False, float("inf"), threading.Event()
        state = ThreadState.RUNNING

        def __init__(self, name: str, tasks: list[TaskId]):
            self.name, self.assignment, self.is_settled = name, (tasks, []), True

        def settled(self) -> bool:
            return self.is_settled

        def assign(self, active: Any, standby: Any) -> None:
            self.assignment, self.is_settled = (list(active), []), False

    threads = [Thread("T1", list(first))]
    listener = RebalanceListener(coordinator, lambda: threads, 300_000, 45_000)  # type: ignore[arg-type,return-value]
    with coordinator.committing() as free:
        assert free
        threads.append(Thread("T2", []))
        listener.poll()
    for _ in range(5):
        # A thread gives up tasks after a commit.
        with coordinator.committing() as free:
            for thread in threads:
                thread.is_settled = thread.is_settled or free
        listener.poll()
    assert joins
    assert not coordinator.rebalancing
    assert all(thread.settled() for thread in threads)


@pytest.mark.parametrize("exactly_once", [False, True])
def test_the_last_commit_of_a_thread_waits_for_the_end_of_a_rebalance(tmp_path, monkeypatch, exactly_once) -> None:
    settings = Settings(exactly_once=exactly_once, commit_interval_ms=30_000)
    made = with_tasks(tmp_path, monkeypatch, settings, partitions=1)
    group: Any = made.shared.coordinator
    made.send(3)
    made.round()
    group.rebalancing = True
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        group.rebalancing = len(waited) < 3

    monkeypatch.setattr(stream_thread, "sleep", wait)
    made.thread._shut_down(clean=True)
    assert (made.thread.error, len(waited)) == (None, 3)
    assert made.log.offsets[IN].offset == 3


def test_an_endless_rebalance_is_reported(tmp_path, monkeypatch, caplog) -> None:
    made = with_tasks(tmp_path, monkeypatch, Settings(commit_interval_ms=30_000), partitions=1)
    made.send(3)
    made.round()
    made.shared.coordinator.rebalancing = True  # type: ignore[misc,union-attr]
    monkeypatch.setattr(stream_thread, "LAST_COMMIT_SECONDS", 0)
    with caplog.at_level(logging.WARNING):
        made.thread._shut_down(clean=True)
    assert "the group is still in a rebalance; the last records will be processed again" in caplog.text
    assert IN not in made.log.offsets
    assert made.thread.state is ThreadState.DEAD


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "postponed"])
@pytest.mark.parametrize("exactly_once", [False, True])
def test_what_a_processor_forwards_at_its_end_is_written_or_reported_in_an_endless_rebalance(
    tmp_path, monkeypatch, caplog, exactly_once, commits
) -> None:
    settings, program = Settings(exactly_once=exactly_once, commit_interval_ms=30_000), FakeProgram()

    def forward(runtime: Any) -> None:
        made.shared.coordinator.rebalancing = True  # type: ignore[misc,union-attr]
        runtime.output.append(("out", b"k", b"last", 9, None, 0))

    program.close = forward
    made = with_tasks(tmp_path, monkeypatch, settings, partitions=1, program=program)
    made.send(3)
    made.round()
    made.shared.coordinator.rebalancing = not commits  # type: ignore[misc,union-attr]
    monkeypatch.setattr(stream_thread, "LAST_COMMIT_SECONDS", 0)
    with caplog.at_level(logging.WARNING):
        made.thread._shut_down(clean=True)
    assert (made.thread.error, IN in made.log.offsets) == (None, commits)
    assert ("the last records will be processed again" in caplog.text) is not commits
    assert (b"last" in [row[2] for row in made.log.rows[OUT]]) is not exactly_once
    assert ("task 0_0: what its processors forwarded in close() is lost" in caplog.text) is exactly_once


@pytest.mark.parametrize("forwards", [True, False])
@pytest.mark.parametrize("removed", [True, False])
def test_what_a_processor_forwards_at_its_end_is_reported_if_the_group_has_removed_the_process(
    tmp_path, monkeypatch, caplog, removed, forwards
) -> None:
    program = FakeProgram()
    if forwards:
        program.close = lambda runtime: runtime.output.append(("out", b"k", b"last", 9, None, 0))
    made = with_tasks(tmp_path, monkeypatch, Settings(), partitions=1, program=program)
    made.send(3)
    made.round()
    with caplog.at_level(logging.WARNING):
        if removed:
            made.thread.lose()
            made.thread._take_assignment()
        else:
            made.thread._shut_down(clean=True)
    assert (b"last" in [row[2] for row in made.log.rows[OUT]]) is (forwards and not removed)
    assert ("task 0_0: what its processors forwarded in close() is lost" in caplog.text) is (forwards and removed)


def test_a_transaction_without_records_has_offsets_so_that_the_group_checks_it(tmp_path, monkeypatch) -> None:
    """A timer of a task whose input is quiet: a member that was removed meanwhile must not commit what it writes."""
    program = FakeProgram()

    def tick(runtime: Any, time: int) -> None:
        runtime.output.append(("out", b"k", b"tick", time, None, 0))

    program.init = lambda runtime: runtime.schedule(0, 1000, "wall_clock", lambda time: tick(runtime, time))
    settings = Settings(exactly_once=True, commit_interval_ms=100)
    made = with_tasks(tmp_path, monkeypatch, settings, partitions=1, program=program)
    made.round()
    made.clock.now = 5000
    made.thread._round()
    made.clock.now = 5200
    made.thread._round()
    assert len(made.log.rows[OUT]) > 0
    assert made.log.offsets[IN].offset == 0


def test_a_wait_for_an_empty_partition_ends_although_the_clock_is_set_back(tmp_path, monkeypatch) -> None:
    topics = TopicsOnLog({"in": 1, "more": 1}, {0: ("in", "more")})
    monkeypatch.setattr(harness, "TopicsOnLog", lambda *_: topics)
    made = Harness(tmp_path, FakeProgram(("in", "more")), Settings(max_idle_ms=50))
    made.clock.now, made.shared.elapsed = 7_200_000, Clock(0)
    made.send(1)
    made.round()
    assert not made.values()
    made.clock.now = 3_600_000
    made.shared.elapsed.now = 50  # type: ignore[attr-defined]
    made.round()
    assert len(made.values()) == 1


# -- Failures --


def test_a_reset_that_fails_is_tried_again(tmp_path, monkeypatch) -> None:
    made = with_tasks(tmp_path, monkeypatch, Settings(), partitions=1)
    made.send(3)
    made.round()
    asked: list[int] = []
    beginning_offsets = FakeConsumer.beginning_offsets

    def fails_twice(consumer: FakeConsumer, partitions: Any) -> Any:
        asked.append(1)
        if len(asked) < 3:
            raise UnreachableError("no broker answers")
        return beginning_offsets(consumer, partitions)

    monkeypatch.setattr(FakeConsumer, "beginning_offsets", fails_twice)
    # Reported once, as librdkafka does.
    made.log.failures.append(OffsetOutOfRangeError("in [0] could not be read", "in", 0))
    for _ in range(5):
        made.round()
    assert len(asked) > 2
    # From the beginning, which is the policy of the topic.
    assert len(made.log.rows[OUT]) == 6


def test_a_task_that_can_not_start_does_not_delay_the_others(tmp_path, monkeypatch) -> None:
    made = with_tasks(tmp_path, monkeypatch, Settings(exactly_once=True), partitions=3)
    committed = FakeConsumer.committed

    def unstable(consumer: FakeConsumer, partitions: Any) -> Any:
        if any(place.partition == 0 for place in partitions):
            raise UnreachableError("committed offsets could not be read")
        return committed(consumer, partitions)

    monkeypatch.setattr(FakeConsumer, "committed", unstable)
    made.thread.assign([TaskId(0, partition) for partition in range(3)])
    for _ in range(4):
        made.thread._round()
        made.thread.updater.round()
    assert set(made.thread._tasks.running) == {TaskId(0, 1), TaskId(0, 2)}


def test_a_task_of_an_aborted_transaction_is_closed_although_its_partition_can_not_be_given_up(
    tmp_path, monkeypatch
) -> None:
    settings = Settings(exactly_once=True, commit_interval_ms=100_000)
    made = with_tasks(tmp_path, monkeypatch, settings, partitions=1)
    made.send(3)
    made.round()

    def refuse(*_: Any) -> None:
        raise TransportError("not in the current assignment")

    monkeypatch.setattr(FakeConsumer, "remove", refuse)
    made.log.failures.append(TaskCorruptedError("a transaction may or may not be committed", on_disk=False))
    made.thread._round()
    made.thread._tasks.commit()
    # Its offsets without its output would be lost records.
    assert IN not in made.log.offsets
    assert not made.thread._tasks.running


def test_a_thread_closes_everything_whatever_fails(tmp_path, monkeypatch) -> None:
    made = with_tasks(tmp_path, monkeypatch, Settings(), partitions=1)
    made.send(1)
    made.round()

    def fails(*_: Any) -> None:
        raise TransportError("not assigned")

    monkeypatch.setattr(FakeConsumer, "position", fails)
    made.thread._shut_down(clean=False)
    assert made.thread.state is ThreadState.DEAD
    assert made.shared.claims.claim(TaskId(0, 0), "another thread")


# -- A change of a task's role while its updater waits for a broker --


def test_a_task_that_becomes_a_standby_while_its_positions_are_looked_up_does_not_run(tmp_path) -> None:
    """Two members would process its partitions, both in a valid generation."""
    made = Harness(tmp_path, FakeProgram(), Settings(), stores=("counts",))
    thread, updater = made.thread, made.thread.updater
    made.send(3)
    set_start, looks = updater._start_positions.set_start, []

    def becomes_standby(task: Any) -> None:
        looks.append(task.active)
        if len(looks) == 1:
            thread.assign([], [TaskId(0, 0)])
            thread._take_assignment()
        set_start(task)

    updater._start_positions.set_start = becomes_standby  # type: ignore[method-assign]
    thread._committer.begin()
    thread._take_assignment()
    for _ in range(3):
        updater.round()
    for _ in range(2):
        thread._round()
    assert looks == [True]
    assert not thread._tasks.running
    assert made.values() == []


def test_a_standby_that_becomes_active_while_its_bounds_are_looked_up_gets_the_last_records(tmp_path) -> None:
    made = Harness(tmp_path, FakeProgram(), Settings(), stores=("counts",))
    thread, updater = made.thread, made.thread.updater
    made.log.append(harness.changelog_rows(5))
    thread.assign([], [TaskId(0, 0)])
    bounds, looks = updater._start_positions.bounds, []

    def previous_owner_ends(partitions: Any) -> Any:
        found = bounds(partitions)
        looks.append(found)
        if len(looks) == 1:
            made.log.append(harness.changelog_rows(3))
            thread.assign([TaskId(0, 0)])
            thread._take_assignment()
        return found

    updater._start_positions.bounds = previous_owner_ends  # type: ignore[method-assign]
    thread._committer.begin()
    thread._take_assignment()
    for _ in range(4):
        updater.round()
    thread._round()
    assert list(thread._tasks.running) == [TaskId(0, 0)]
    assert len(made.stores[-1].restored) == 8


def test_a_changelog_with_unknown_bounds_does_not_delay_the_others(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(harness, "TopicsOnLog", lambda *_: TopicsOnLog({"in": 3}, {0: ("in",)}))
    made = Harness(tmp_path, FakeProgram(), Settings(), stores=("counts",))
    updater = made.thread.updater
    bounds = updater._start_positions.bounds

    def without_leader(partitions: Any) -> Any:
        made.clock.now += 15_000
        if any(place.partition == 0 for place in partitions):
            raise UnreachableError("a partition has no leader")
        return bounds(partitions)

    updater._start_positions.bounds = without_leader  # type: ignore[method-assign]
    made.thread.assign([TaskId(0, partition) for partition in range(3)])
    for _ in range(12):
        made.thread._round()
        updater.round()
        made.clock.now += 15_000
    assert set(made.thread._tasks.running) == {TaskId(0, 1), TaskId(0, 2)}


def test_a_changelog_whose_bounds_can_not_be_had_for_long_ends_the_task(tmp_path, monkeypatch) -> None:
    made = Harness(tmp_path, FakeProgram(), Settings(task_timeout_ms=300_000), stores=("counts",))
    updater = made.thread.updater

    def without_leader(partitions: Any) -> Any:
        made.clock.now += 30_000
        raise UnreachableError("a partition has no leader")

    updater._start_positions.bounds = without_leader  # type: ignore[method-assign]
    made.thread._round()
    for _ in range(200):
        updater.round()
        made.clock.now += 1_000
        if updater._failed:
            break
    assert 300_000 <= made.clock.now < 400_000


def test_a_task_whose_directory_is_in_use_for_a_moment_is_created_later(tmp_path) -> None:
    made = Harness(tmp_path, FakeProgram(), Settings(), stores=("counts",))
    made.send(3)
    made.round()
    claims = made.shared.claims
    release = claims.release

    def cleaner_comes(task: TaskId, owner: str) -> None:
        release(task, owner)
        claims.claim(task, "state cleaner")

    claims.release = cleaner_comes  # type: ignore[method-assign]
    made.log.failures.append(TaskCorruptedError("a transaction may or may not be committed", on_disk=False))
    made.thread._round()
    claims.release = release  # type: ignore[method-assign]
    assert not made.thread._tasks.tasks()
    release(TaskId(0, 0), "state cleaner")
    for _ in range(3):
        made.round()
    assert list(made.thread._tasks.running) == [TaskId(0, 0)]


def test_the_group_does_not_go_on_while_a_removed_thread_may_still_commit() -> None:
    """Its tasks would be given to another member, which reads the offsets before that commit."""
    topics = TopicsOnLog({"in": 4}, {0: ("in",)})
    membership = SimpleNamespace(gated=True, due=True, group_metadata=lambda: b"x", joins=0)
    membership.join = membership.rebalance = lambda *_: setattr(membership, "due", True)
    membership.rebalancing, membership.joining = lambda: membership.due, lambda: False

    def poll(_wait_ms: int, join: bool = True) -> None:
        membership.joins += join and membership.due

    membership.poll = poll
    coordinator = Coordinator(topics, ["T1", "T2"], [], lambda threads: Subscription())
    coordinator._membership, coordinator._tasks = membership, topics.tasks()  # type: ignore[assignment]
    shares = coordinator._assign_threads()

    def thread(name: str) -> Any:
        return SimpleNamespace(
            name=name,
            assignment=(list(shares[name].active), []),
            stopping=False,
            state=ThreadState.RUNNING,
            polled_at=float("inf"),
            lost=threading.Event(),
            settled=lambda: True,
            assign=lambda active, standby: None,
        )

    first, removed = thread("T1"), thread("T2")
    listener = RebalanceListener(coordinator, lambda: [first, removed], 300_000, 45_000)
    with coordinator.committing():
        # The rebalance is due, and waits for the end of this commit.
        listener.poll()
    assert coordinator.rebalancing
    removed.stopping = True
    listener.poll()
    assert membership.joins == 0
    with coordinator.committing() as free:
        assert free
    removed.state = ThreadState.DEAD
    listener.poll()
    assert membership.joins == 1


def test_a_removed_thread_that_never_ends_makes_the_member_leave(caplog) -> None:
    """The others would wait for it in each rebalance."""
    left: list[str] = []
    coordinator = SimpleNamespace(
        is_member=True, use_threads=lambda names: None, give_up=left.append, poll=lambda join: None
    )
    hangs = SimpleNamespace(
        name="T2", stopping=True, state=ThreadState.RUNNING, polled_at=0.0, settled=lambda: True, lost=threading.Event()
    )
    RebalanceListener(coordinator, lambda: [hangs], 300_000, 45_000).poll()  # type: ignore[arg-type,list-item]
    assert len(left) == 1


def test_tasks_that_are_lost_while_others_are_created_are_closed_before_the_next_generation(
    tmp_path, monkeypatch
) -> None:
    """A commit with the metadata of the next generation would be valid, although another member owns the tasks by now."""
    made = with_tasks(tmp_path, monkeypatch, Settings(), partitions=2)
    made.thread.assign([TaskId(0, 0)])
    made.round()
    create = made.thread._tasks.create_missing

    def takes_long() -> None:
        monkeypatch.undo()
        create()
        made.thread.lose()

    monkeypatch.setattr(made.thread._tasks, "create_missing", takes_long)
    made.thread.assign([TaskId(0, 0), TaskId(0, 1)])
    made.thread._take_assignment()
    assert not made.thread.settled()
    made.thread._take_assignment()
    assert made.thread.settled()
    assert not made.thread._tasks.tasks()


def test_tasks_that_are_lost_during_a_failed_commit_do_not_come_back(tmp_path, monkeypatch) -> None:
    """The assignment that failed is tried again, but not if the group has gone on without this member since."""
    made = with_tasks(tmp_path, monkeypatch, Settings(), partitions=2)
    made.thread.assign([TaskId(0, 0)])
    made.round()

    def fails(active: Any, standby: Any) -> None:
        monkeypatch.undo()
        made.thread.lose()
        raise UnreachableError("no broker answers")

    monkeypatch.setattr(made.thread._tasks, "change_to", fails)
    made.thread.assign([TaskId(0, 1)])
    with pytest.raises(UnreachableError):
        made.thread._take_assignment()
    made.thread._take_assignment()
    assert made.thread.settled()
    assert not made.thread._tasks.tasks()
    assert made.thread.assignment == ([], [])


@pytest.mark.parametrize("fenced", [False, True])
def test_standbys_of_an_assignment_stay_if_its_tasks_are_lost(tmp_path, monkeypatch, fenced: bool) -> None:
    """Another thread may wait until this one gives up a standby, and no thread joins the group before."""
    made = with_tasks(tmp_path, monkeypatch, Settings(), partitions=3)
    made.shared.coordinator = SimpleNamespace(group_metadata=lambda: b"")
    made.thread.assign([TaskId(0, 0)], [TaskId(0, 1)])
    made.round()
    made.thread.assign([TaskId(0, 0)], [TaskId(0, 2)])
    if fenced:
        made.thread._fenced(FencedError("its transaction has timed out"))
    else:
        made.thread.lose()
    assert not made.thread.settled()
    changes: list[Any] = []
    monkeypatch.setattr(made.thread._tasks, "change_to", lambda *assignment: changes.append(assignment))
    made.thread._take_assignment()
    assert changes == [([], [TaskId(0, 2)])]
    assert made.thread.settled()


def test_a_thread_that_replaces_one_that_was_fenced_waits_for_the_group(tmp_path, monkeypatch) -> None:
    """Others may own the tasks that the fenced thread has closed; the group does not know yet that it has."""
    made = with_tasks(tmp_path, monkeypatch, Settings(), partitions=2)
    threads = stream_thread.Threads(made.shared, "process", 0, 0)
    (dead,) = threads.add()
    dead.assign([TaskId(0, 0)], [TaskId(0, 1)])
    dead.lost.set()
    fresh = threads.replace(dead)
    assert fresh.assignment == ([], [TaskId(0, 1)])
    assert fresh.lost.is_set()


# -- The markers of the last transaction --


class Own:
    """A thread's own transactions; `marked`: whether each look in turn finds the markers, which those after these do."""

    def __init__(self, events: list[Any], *marked: bool):
        self.events = events
        self.marked = [*marked]
        self.began, self.may_end = threading.Event(), threading.Event()
        self.may_end.set()

    def await_markers(self, topics: Any) -> bool:
        self.began.set()
        assert self.may_end.wait(20)
        self.events.append(("look", set(topics)))
        return self.marked.pop(0) if self.marked else True

    def settle(self, topics: Any) -> None:
        self.events.append(("settle", set(topics)))

    def close(self) -> None:
        pass


def test_a_transaction_sends_nothing_before_the_last_one_has_its_markers(tmp_path, monkeypatch) -> None:
    made = with_tasks(tmp_path, monkeypatch, Settings(exactly_once=True, commit_interval_ms=100), partitions=1)
    events: list[Any] = []
    send, commit = FakeProducer.send, FakeProducer.commit
    committer = made.thread._committer
    committer._own, committer._unsettled = Own(events, True, False), False  # type: ignore[assignment]

    def sends(producer: FakeProducer, rows: Any) -> None:
        if rows:
            events.append("send")
        send(producer, rows)

    def commits(producer: FakeProducer, *given: Any) -> None:
        events.append("commit")
        commit(producer, *given)

    monkeypatch.setattr(FakeProducer, "send", sends)
    monkeypatch.setattr(FakeProducer, "commit", commits)
    for _ in range(3):
        made.send(1)
        made.round()
        made.clock.now += 200
        made.round()
    look = ("look", {"out"})
    assert events[:9] == ["send", "commit", look, "send", "commit", look, ("settle", {"out"}), "send", "commit"]


def with_a_look_in_flight(tmp_path, monkeypatch, events: list[Any], *marked: bool) -> tuple[Harness, Own]:
    """Return a thread that has committed, and looks for the markers until the test lets the look end."""
    made = with_tasks(tmp_path, monkeypatch, Settings(exactly_once=True, commit_interval_ms=100), partitions=1)
    own = Own(events, *marked)
    committer = made.thread._committer
    committer._own, committer._unsettled = own, False  # type: ignore[assignment]
    own.may_end.clear()

    def commit_stores(stores: Any) -> None:
        assert own.began.wait(20)
        events.append("stores")

    monkeypatch.setattr(committer, "_commit_stores", commit_stores)
    made.send(1)
    made.round()
    made.clock.now += 200
    made.round()
    return made, own


def test_markers_are_looked_for_while_stores_are_written(tmp_path, monkeypatch) -> None:
    events: list[Any] = []
    made, own = with_a_look_in_flight(tmp_path, monkeypatch, events)
    assert events == ["stores"]
    committer = made.thread._committer
    begin = committer.begin

    def begins(*, writes: bool = False) -> None:
        if writes:
            own.may_end.set()
        begin(writes=writes)
        if writes:
            events.append("begun")

    monkeypatch.setattr(committer, "begin", begins)
    made.send(1)
    made.round()
    assert events == ["stores", ("look", {"out"}), "begun"]


def test_an_end_is_looked_for_after_the_look_for_markers(tmp_path, monkeypatch) -> None:
    """They do not use the transactions of the thread at the same time, also if it is restarted in between."""
    events: list[Any] = []
    made, own = with_a_look_in_flight(tmp_path, monkeypatch, events)

    def waits(looks: Any) -> None:
        own.may_end.set()
        wait(looks)

    monkeypatch.setattr(committer_module, "wait", waits)
    made.thread._committer.restart()
    made.round()
    assert events == ["stores", ("look", {"out"}), ("settle", set())]


def test_an_end_is_looked_for_if_the_look_for_markers_fails(tmp_path, monkeypatch) -> None:
    events: list[Any] = []
    made, own = with_a_look_in_flight(tmp_path, monkeypatch, events)
    committer = made.thread._committer
    failed: Future[bool] = Future()
    failed.set_exception(StateError("no space left"))
    own.may_end.set()
    wait([committer._look])  # type: ignore[list-item]
    committer._look = failed
    with pytest.raises(StateError, match="no space left"):
        committer.begin(writes=True)
    assert events[2:] == []
    committer.begin(writes=True)
    assert events[2:] == [("settle", {"out"})]


def _shared_of(clock: Clock, admin: Any) -> Any:
    plan = SimpleNamespace(application="app", file="app.yaml", nodes=(), external_topics={}, topic_names=lambda: set())
    topics, transport = SimpleNamespace(partitions={}, ids={}), SimpleNamespace(admin=admin)
    noted: list[str] = []

    def note_settled(name: str, settled: bool) -> None:
        noted[:] = [name] if settled else []

    directory = SimpleNamespace(settled_ids=lambda: list(noted), note_settled=note_settled)
    return SimpleNamespace(
        plan=plan, elapsed=clock, transport=transport, topics=topics, settings=Settings(), directory=directory
    )


def test_a_thread_looks_for_markers_until_they_exist(monkeypatch) -> None:
    clock, lacking, refreshes, groups = Clock(), [True, True, False, False, True], list[bool](), list[str]()

    class Admin:
        def lacks_markers(self, name: str, topics: Any, group: str, *, refresh: bool) -> bool:
            assert (name, topics) == ("app-1", {"out"})
            refreshes.append(refresh)
            groups.append(group)
            clock.now += 100
            if clock.now > 1_000_000:
                raise NotPermittedError("no right")
            return lacking.pop(0) if len(lacking) > 1 else lacking[0]

        def topics(self, names: Any = None) -> dict[str, Any]:
            return {}

        def end_lost(self, *given: Any, one_open: bool) -> list[Any]:
            assert not one_open
            return []

        def close(self) -> None:
            pass

    own = OwnTransactions(_shared_of(clock, Admin), "app-1")
    assert own.await_markers({"out"})
    assert own.await_markers({"out"})
    assert refreshes == [True, False, False, False]
    # Never there: then the thread has to find out how the transaction has ended.
    assert not own.await_markers({"out"})
    # Without the right to look, first at the offsets: it looks no more, until a broker was lost.
    clock.now = 1_000_000
    assert own.await_markers({"out"})
    assert groups[-2:] == ["app", ""]
    count = len(refreshes)
    assert own.await_markers({"out"})
    assert len(refreshes) == count
    own.settle()
    assert own.await_markers({"out"})
    assert groups[-2:] == ["app", ""]
    assert refreshes[count]


def test_markers_are_looked_for_by_another_connection_after_a_failure() -> None:
    """A connection keeps to the coordinator that it has found first, which may have moved."""
    closed: list[str] = []

    class Admin:
        def __init__(self) -> None:
            self.uses = 0

        def lacks_markers(self, *given: Any, refresh: bool) -> bool:
            self.uses += 1
            if self.uses > 1:
                raise RetriableTransportError("not the coordinator")
            return False

        def close(self) -> None:
            closed.append("closed")

    own = OwnTransactions(_shared_of(Clock(), Admin), "app-1")
    assert [own.await_markers({"out"}) for _ in range(4)] == [True, False, True, False]
    assert closed == ["closed"] * 2


def test_a_thread_that_always_waited_for_markers_has_one_open_transaction_at_most() -> None:
    """Then the last decision of its coordinator is that of the open one, also after a restart of the process."""
    known, permitted = list[bool](), [True]

    class Admin:
        def topics(self, names: Any = None) -> dict[str, Any]:
            return {}

        def end_lost(self, *given: Any, one_open: bool) -> list[Any]:
            known.append(one_open)
            return []

        def lacks_markers(self, *given: Any, refresh: bool) -> bool:
            if not permitted[0]:
                raise NotPermittedError("no right")
            return False

        def close(self) -> None:
            pass

    shared = _shared_of(Clock(), Admin)
    for _ in range(2):
        own = OwnTransactions(shared, "app-1")
        own.settle()
        assert own.await_markers({"out"})
    assert known == [False, True]
    # Without the right to look it writes although markers may be missing.
    permitted[0] = False
    assert own.await_markers({"out"})
    OwnTransactions(shared, "app-1").settle()
    assert known == [False, True, False]


def test_a_topic_of_offsets_that_is_never_listed_is_not_looked_at() -> None:
    clock, groups = Clock(), list[str]()

    class Admin:
        def topics(self, names: Any = None) -> dict[str, Any]:
            return {}

        def end_lost(self, name: str, places: Any, group: str, *, one_open: bool) -> list[Any]:
            if group:
                raise UnknownTopicError("__consumer_offsets: brokers do not list this topic now")
            return []

        def lacks_markers(self, name: str, topics: Any, group: str, *, refresh: bool) -> bool:
            groups.append(group)
            return False

        def close(self) -> None:
            pass

    own = OwnTransactions(_shared_of(clock, Admin), "app-1")
    with pytest.raises(RetriableTransportError):
        own.settle()
    assert own.await_markers({"out"})
    clock.now += 31_000
    own.settle()
    assert own.await_markers({"out"})
    assert groups == ["app", ""]


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_thread_replaced_during_a_rebalance_gets_no_lost_tasks(tmp_path, monkeypatch, is_lost: bool) -> None:
    """A thread fails, and the group takes its tasks at the same time: the one in its place must not have them."""
    made = with_tasks(tmp_path, monkeypatch, Settings(), partitions=1)
    threads = stream_thread.Threads(made.shared, "p", 0, 0)
    (dead,) = threads.add()
    dead.assign([TaskId(0, 0)])
    coordinator: Any = SimpleNamespace(rejoin=lambda: None)
    listener = RebalanceListener(coordinator, lambda: threads.all, 300_000, 45_000, threads.unchanged)
    make, told = threads._make, list[threading.Thread]()

    def makes() -> stream_thread.StreamThread:
        telling = threading.Thread(target=listener._lose if is_lost else lambda: listener._assign({}))
        telling.start()
        telling.join(0.2)
        told.append(telling)
        return make()

    threads._make = makes  # type: ignore[method-assign]
    fresh = threads.replace(dead)
    told[0].join()
    assert fresh.assignment == ([], [])
    assert fresh._lose is is_lost


def test_the_last_commit_waits_for_the_markers_of_the_one_before(tmp_path, monkeypatch) -> None:
    settings = Settings(exactly_once=True, commit_interval_ms=30_000)
    made = with_tasks(tmp_path, monkeypatch, settings, partitions=1)
    committer, failures = made.thread._committer, ["brokers are still ending it"] * 2
    made.send(3)
    made.round()

    def settle(topics: Any) -> None:
        if failures:
            raise RetriableTransportError(failures.pop())

    own = Own([])
    own.settle = settle  # type: ignore[method-assign]
    committer._own, committer._unsettled = own, True  # type: ignore[assignment]
    monkeypatch.setattr(stream_thread, "sleep", lambda seconds: None)
    made.thread._shut_down(clean=True)
    assert (made.thread.error, failures) == (None, [])
    assert made.log.offsets[IN].offset == 3


def test_a_last_commit_without_an_answer_is_no_failure(tmp_path, monkeypatch, caplog) -> None:
    """The next owner finds in the log whether it was made: nothing is lost, so the process ends in order."""
    settings = Settings(exactly_once=True, commit_interval_ms=30_000)
    made = with_tasks(tmp_path, monkeypatch, settings, partitions=1)
    made.send(3)
    made.round()

    def commit(*_: Any) -> None:
        raise RetriableTransportError("the end of the transaction: no answer")

    monkeypatch.setattr(made.thread._committer._producer, "commit", commit)
    with caplog.at_level(logging.WARNING):
        made.thread._shut_down(clean=True)
    assert (made.thread.error, made.thread.state) == (None, ThreadState.DEAD)
    assert "may or may not be committed" in caplog.text


def test_what_init_writes_is_committed_without_a_record(tmp_path, monkeypatch) -> None:
    program = FakeProgram(init=lambda rt: rt.output.append(("out", b"k", b"v", 0, None, None)))
    settings = Settings(exactly_once=True, commit_interval_ms=100)
    made = with_tasks(tmp_path, monkeypatch, settings, partitions=1, program=program)
    made.round()
    made.clock.now += 200
    made.round()
    assert made.values() == [b"v"]


def test_markers_are_looked_for_where_the_last_transaction_wrote(tmp_path, monkeypatch) -> None:
    """Not in all topics that a task ever wrote: one may be gone."""
    program = FakeProgram()
    program.on_record = lambda rt, value, time: rt.output.append((f"to-{value.decode()}", None, value, 0, None, None))
    made = with_tasks(
        tmp_path, monkeypatch, Settings(exactly_once=True, commit_interval_ms=100), partitions=1, program=program
    )
    events: list[Any] = []
    committer = made.thread._committer
    committer._own, committer._unsettled = Own(events, False, False), False  # type: ignore[assignment]
    for _ in range(3):
        made.send(1)
        made.round()
        made.clock.now += 200
        made.round()
    first, second = {"out", "to-0"}, {"out", "to-1"}
    assert events[:4] == [(what, topics) for topics in (first, second) for what in ("look", "settle")]


def test_an_idle_thread_asks_for_the_markers_of_its_last_commit_once_they_are_known(tmp_path, monkeypatch) -> None:
    events: list[Any] = []
    made, own = with_a_look_in_flight(tmp_path, monkeypatch, events, False)
    made.round()
    assert events == ["stores"]
    own.may_end.set()
    wait([made.thread._committer._look])  # type: ignore[list-item]
    made.round()
    assert events == ["stores", ("look", {"out"}), ("settle", {"out"})]


# -- What the log rejects --


def test_a_rejection_while_dead_letters_are_written_has_its_dead_letters_too(tmp_path) -> None:
    handlers = Handlers(production="continue", dead_letter_topic="dlq")
    made = Harness(tmp_path, FakeProgram(), Settings(handlers=handlers))
    made.send(2)
    made.round()
    producer, waiting = made.thread._committer._producer, ["gone1", "gone2"]

    def flush() -> None:
        if waiting:
            topic = waiting.pop(0)
            raise ProductionError(f"a record for topic {topic} could not be written", [(topic, b"k", b"v", 1, None, 0)])

    def send(rows: Any) -> None:
        FakeProducer.send(producer, rows)
        flush()

    producer.flush, producer.send = flush, send  # type: ignore[method-assign]
    made.clock.now = 60_000
    made.round()
    assert made.log.offsets[IN].offset == 2
    assert len(made.log.rows[TopicPartition("dlq", 0)]) == 2


def test_offsets_are_looked_at_again_once_brokers_list_their_topic(caplog) -> None:
    clock, groups, listed = Clock(1_000), list[str](), [True]

    class Admin:
        def topics(self, names: Any) -> dict[str, Any]:
            return {}

        def end_lost(self, _id: str, places: Any, group: str, *, one_open: bool) -> list[Any]:
            if group and not listed[0]:
                raise UnknownTopicError("__consumer_offsets: brokers do not list this topic now")
            groups.append(group)
            return []

        def close(self) -> None:
            pass

    shared = _shared_of(clock, Admin)
    own = OwnTransactions(shared, "app-1")

    def restarts() -> None:
        listed[0] = False
        with pytest.raises(UnknownTopicError):
            own.settle()

    restarts()
    listed[0] = True
    own.settle()
    clock.now += 3_600_000
    restarts()
    clock.now += 31_000
    own.settle()
    assert groups == ["app", ""]
    listed[0] = True
    own.settle()
    assert groups == ["app", "", "app"]
