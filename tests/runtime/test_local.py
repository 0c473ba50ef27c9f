"""Assignment, states, pace, checkpoints, and stream threads over a log in memory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamkit.errors import ProcessingError, RetriableTransportError, StateError, TaskCorruptedError, TransportError
from streamkit.record import TopicPartition
from streamkit.runtime.local.assignor import assign
from streamkit.runtime.local.local_task import LocalTask, TaskFiles, open_files
from streamkit.runtime.local.pace import START, Pace
from streamkit.runtime.local.restore import Changelog, restore
from streamkit.runtime.local.setup import Settings, Shared, TopicsOnLog
from streamkit.runtime.local.states import ClientState, ThreadState, check_transition, client_state
from streamkit.runtime.local.thread import StreamThread
from streamkit.serdes import base as serdes
from streamkit.state.checkpoint import read_checkpoint, write_checkpoint
from streamkit.state.definitions import StoreDef
from streamkit.state.directory import StateDirectory
from tests.runtime.fake_log import FakeLog, FakeProducer
from tests.runtime.fakes import Clock, FakeProgram

IN = TopicPartition("in", 0)
LOG = TopicPartition("app-counts-changelog", 0)


# -- Assignment --------------------------------------------------------------------------------------------------------


def test_tasks_are_balanced_and_a_sub_topology_is_spread():
    tasks = [(0, p) for p in range(3)] + [(1, p) for p in range(3)]
    result = assign(tasks, ["a", "b", "c"])
    assert {name: len(mine) for name, mine in result.items()} == {"a": 2, "b": 2, "c": 2}
    assert all({sub for sub, _ in mine} == {0, 1} for mine in result.values())


def test_tasks_stay_where_they_were():
    tasks = [(0, p) for p in range(6)]
    before = assign(tasks, ["a", "b"])
    after = assign(tasks, ["a", "b", "c"], before)
    assert {name: len(mine) for name, mine in after.items()} == {"a": 2, "b": 2, "c": 2}
    assert set(after["a"]) < set(before["a"])
    assert set(after["b"]) < set(before["b"])
    assert assign(tasks, ["a", "b", "c"], after) == after


def test_every_task_goes_to_exactly_one_member():
    tasks = [(s, p) for s in range(3) for p in range(5)]
    result = assign(tasks, ["a", "b", "c", "d"], {"a": tasks, "b": tasks})
    assert sorted(task for mine in result.values() for task in mine) == tasks
    assert {len(mine) for mine in result.values()} == {3, 4}


def test_no_members_no_assignment():
    assert assign([(0, 0)], []) == {}


# -- States and pace ---------------------------------------------------------------------------------------------------


def test_states_follow_java():
    check_transition(ThreadState.RUNNING, ThreadState.PARTITIONS_REVOKED)
    with pytest.raises(StateError, match="RUNNING can't follow CREATED"):
        check_transition(ThreadState.CREATED, ThreadState.RUNNING)


def test_a_client_runs_when_all_its_threads_do():
    assert client_state([ThreadState.RUNNING, ThreadState.DEAD], True) is ClientState.RUNNING
    assert client_state([ThreadState.RUNNING, ThreadState.STARTING], True) is ClientState.REBALANCING
    assert client_state([ThreadState.RUNNING], False) is ClientState.REBALANCING


def test_the_pace_grows_until_something_else_wants_its_turn():
    pace = Pace(max_poll_interval_ms=1000)
    pace.after(interrupted=False, since_poll_ms=0)
    assert pace.records == 2 * START
    pace.after(interrupted=True, since_poll_ms=0)
    assert pace.records == START
    pace.after(interrupted=False, since_poll_ms=501)
    assert pace.records == START // 2


# -- Restoring and checkpoints -----------------------------------------------------------------------------------------


class ListStore:
    """Keeps what was restored; `log` is its changelog, `kept` what outlasts it: the position as of its last commit."""

    persistent = True
    name = "counts"

    def __init__(self, services: Any = None, kept: dict[int, int] | None = None):
        self.kept = {} if kept is None else kept
        self.noted = dict(self.kept)
        self.rows: list[tuple] = []
        self.log = services.log if services else None
        self.commits = 0
        self.pending: list[bytes] = []

    def restore_batch(self, keys, values, timestamps, headers):
        self.rows.extend(zip(keys, values, strict=True))

    def flush(self):
        for value in self.pending:
            self.log(value, value, 1, None)
        self.pending = []

    def commit(self):
        self.commits += 1
        self.kept.update(self.noted)

    def position(self, partition):
        return self.kept.get(partition)

    def note_position(self, partition, position):
        self.noted[partition] = position

    def forget(self):
        pass

    def close(self):
        pass


def changelog_rows(count: int) -> list[tuple]:
    return [(LOG.topic, str(n).encode(), b"v", n, None, 0) for n in range(count)]


def restored(**options: Any) -> list[bytes]:
    log = FakeLog({})
    log.append(changelog_rows(5))
    store = ListStore()
    assert restore([Changelog(store, LOG, **options)], log.consumer(None), lambda: False)
    return [key for key, _ in store.rows]


def test_restores_everything_without_a_checkpoint():
    assert restored() == [b"0", b"1", b"2", b"3", b"4"]


def test_restores_after_the_checkpoint():
    assert restored(checkpoint=2) == [b"3", b"4"]
    assert restored(checkpoint=4) == []


def test_restores_a_source_topic_up_to_what_is_committed():
    assert restored(limit=2) == [b"0", b"1"]


def test_an_offset_beyond_the_log_is_corruption():
    with pytest.raises(TaskCorruptedError, match="goes up to offset 9 of app-counts-changelog-0, which ends at 5"):
        restored(checkpoint=9)


def test_what_is_restored_is_committed_with_its_offset():
    log = FakeLog({})
    log.append(changelog_rows(5))
    store = ListStore()
    restore([Changelog(store, LOG, limit=3)], log.consumer(None), lambda: False)
    assert store.kept == {0: 3}


def test_offsets_follow_from_what_was_written():
    """Each commit of a transaction leaves a control record, which is there before the next transaction writes."""
    changelog = Changelog(ListStore(), LOG, position=10)
    positions = []
    for total, lost in ((3, 0), (3, 0), (5, 0), (9, 1), (10, 1)):
        changelog.wrote(total, lost=lost, marks=True)
        positions.append(changelog.position)
    assert positions == [13, 13, 16, 20, 20]
    changelog.wrote(12, lost=0, marks=False)
    assert changelog.position == 23
    changelog.wrote(13, lost=0, marks=False)
    assert changelog.position == 24


def test_checkpoints_are_written_every_10_000_records(tmp_path):
    task: Any = SimpleNamespace(task_id="0_0", partition=0, stores={"counts": ListStore()}, consumed=lambda: {IN: 7})
    held = LocalTask((0, 0), task, TaskFiles(tmp_path), {"counts": (LOG, False)})

    held.changelogs[0].position = 0

    def checkpoint(end: int, *, enforce: bool = False) -> bool:
        held.produced[LOG.topic] = end
        held.note_positions({}, marks=False)
        return held.checkpoint(enforce=enforce)

    assert not checkpoint(10_000)
    assert checkpoint(10_001)
    assert read_checkpoint(tmp_path) == {LOG: 10_000}
    assert not checkpoint(20_001)
    assert checkpoint(20_001, enforce=True)


def older(directory: StateDirectory) -> Path:
    """Return the directory of a task as a streamkit left it whose stores did not hold offsets."""
    path = directory.task("0_0")
    (path / ".streamkit-state").write_text(json.dumps({"engine": directory.engine, "format": 1}))
    return path


def test_exactly_once_trusts_no_state_of_an_older_streamkit_without_a_checkpoint(tmp_path):
    directory = StateDirectory(tmp_path, "app")
    changelogs = {"counts": (LOG, False)}
    (older(directory) / directory.engine).mkdir()
    assert open_files(directory, "0_0", changelogs, eos=True).offsets == {}
    assert [path.name for path in directory.task("0_0").iterdir()] == [".streamkit-state"]
    write_checkpoint(older(directory), {LOG: 3})
    (directory.task("0_0") / directory.engine / "counts").mkdir(parents=True)
    assert open_files(directory, "0_0", changelogs, eos=True).offsets == {LOG: 3}


def test_a_checkpoint_beside_stores_that_hold_offsets_says_nothing(tmp_path):
    directory = StateDirectory(tmp_path, "app")
    directory.claim("0_0")
    write_checkpoint(directory.task("0_0"), {LOG: 3})
    assert open_files(directory, "0_0", {"counts": (LOG, False)}, eos=True).offsets is None


def test_a_store_that_the_checkpoint_does_not_name_is_restored_into_nothing(tmp_path):
    directory = StateDirectory(tmp_path, "app")
    for store in ("counts", "others", "unlogged"):
        (older(directory) / directory.engine / store).mkdir(parents=True)
    foreign = TopicPartition("another-counts-changelog", 0)
    write_checkpoint(directory.task("0_0"), {LOG: 3, foreign: 9})
    changelogs = {"counts": (LOG, False), "others": (TopicPartition("app-others-changelog", 0), False)}
    assert open_files(directory, "0_0", changelogs, eos=False).offsets == {LOG: 3}
    assert sorted(os.listdir(directory.task("0_0") / directory.engine)) == ["counts", "unlogged"]


@pytest.mark.parametrize("eos", [False, True])
def test_a_store_whose_files_are_gone_is_restored_whatever_the_checkpoint_says(tmp_path, eos):
    directory = StateDirectory(tmp_path, "app")
    write_checkpoint(older(directory), {LOG: 3})
    assert open_files(directory, "0_0", {"counts": (LOG, False)}, eos=eos).offsets == {}


# -- Threads -----------------------------------------------------------------------------------------------------------


class Harness:
    """One stream thread, driven round by round in the test's own thread."""

    def __init__(self, tmp_path, program: FakeProgram, settings: Settings | None = None, stores: tuple[str, ...] = ()):
        self.clock = Clock(0)
        self.log = FakeLog({"in": 1, "out": 1})
        sub = SimpleNamespace(id=0, nodes={}, is_global=False, stores=stores, source_topics=("in",))
        serde: Any = serdes.Serde
        definitions = {name: StoreDef(name, "key_value", serde, serde, changelog_topic=name) for name in stores}
        plan: Any = SimpleNamespace(
            application="app",
            config={},
            sub_topologies=(sub,),
            stores=definitions,
            external_topics={},
            internal_topics={"again": SimpleNamespace(kind="repartition")},
            internal_name=lambda topic: f"app-{topic}",
            changelog_name=lambda name: f"app-{name}-changelog",
        )
        self.shared = Shared(
            plan,
            self.log,
            settings or Settings(),
            StateDirectory(tmp_path, "app"),
            TopicsOnLog({"in": 1}, {0: program.topics}),
            clock=self.clock,
            elapsed=self.clock,
            programs={0: program},  # type: ignore[dict-item]
        )
        self.thread = StreamThread("t", self.shared)
        stores: Any = SimpleNamespace(open=lambda spec, name, services: self._store(services))
        self.thread._tasks.stores = stores
        self.stores: list[ListStore] = []
        self.kept: dict[int, int] = {}
        self.thread._open()
        self.thread._to(ThreadState.STARTING)
        self.thread.assign([(0, 0)])

    def _store(self, services):
        self.stores.append(ListStore(services, self.kept))
        return self.stores[-1]

    def send(self, count: int) -> None:
        start = len(self.log.rows[IN])
        self.log.append([("in", None, str(n).encode(), n, None, 0) for n in range(start, start + count)])

    def values(self, topic: str = "out") -> list[bytes]:
        return [row[2] for row in self.log.rows[TopicPartition(topic, 0)]]

    def round(self) -> None:
        """Have the updater do what there is between taking up an assignment and the rest of a round."""
        tasks = self.thread._tasks
        self.thread._committer.begin()
        self.thread._take_assignment()
        while any(task.active for task in tasks.updater._tasks.values()):
            tasks.updater.round()
        self.thread._round()


def test_a_round_processes_what_was_polled(tmp_path):
    harness = Harness(tmp_path, FakeProgram())
    harness.send(3)
    harness.round()
    assert harness.values() == [b"0", b"1", b"2"]
    assert harness.thread.state is ThreadState.RUNNING
    assert harness.log.offsets == {}


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
    harness.thread.assign([(0, 0)])
    harness.log.append(changelog_rows(1))
    harness.round()
    assert harness.stores[-1].rows == [(b"0", b"v")]


def test_exactly_once_commits_output_and_offsets_together(tmp_path):
    harness = Harness(tmp_path, FakeProgram(), Settings(exactly_once=True, commit_interval_ms=100))
    harness.send(2)
    harness.round()
    assert harness.values() == []
    harness.clock.now = 101
    harness.round()
    assert harness.values() == [b"0", b"1"]
    assert harness.log.events == ["begin", "commit transaction of 2", "begin"]
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


def test_full_partitions_are_paused_and_resumed(tmp_path):
    program = FakeProgram(("in", "other"))
    harness = Harness(tmp_path, program, Settings(buffered_records=3, max_idle_ms=1_000_000))
    harness.shared.topics = TopicsOnLog({"in": 1, "other": 1}, {0: program.topics})
    harness.send(4)
    harness.round()
    consumer: Any = harness.thread._consumer
    assert consumer.paused == {IN}
    harness.log.append([("other", None, b"x", 100, None, 0)])
    harness.round()
    assert consumer.paused == set()
    assert harness.values() == [b"0", b"1", b"2", b"3"]


def test_repartition_topics_are_purged(tmp_path):
    program = FakeProgram(("app-again",))
    harness = Harness(tmp_path, program)
    harness.shared.topics = TopicsOnLog({"app-again": 1}, {0: program.topics})
    harness.log.append([("app-again", None, b"x", 1, None, 0)] * 3)
    harness.round()
    harness.clock.now = 30_001
    harness.round()
    assert harness.log.purged == {TopicPartition("app-again", 0): 3}


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


def test_a_thread_that_fails_dies_with_its_error(tmp_path):
    def boom(rt, value, time):
        raise RuntimeError("bug")

    harness = Harness(tmp_path, FakeProgram(on_record=boom))
    harness.send(1)
    thread = StreamThread("t2", harness.shared)
    thread.assign([(0, 0)])
    thread.run()
    assert thread.state is ThreadState.DEAD
    assert isinstance(thread.error, ProcessingError)
    assert harness.log.offsets == {}


def test_idle_is_only_who_has_nothing_to_read_and_nothing_to_commit(tmp_path):
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
