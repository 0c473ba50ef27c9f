"""Stream threads: a consumer, a producer, and the loop: poll, process, punctuate, commit (StreamThread)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from time import monotonic, perf_counter, sleep
from typing import Literal, get_args

from streamkit.errors import (
    FencedError,
    OffsetOutOfRangeError,
    RetriableTransportError,
    StateError,
    StoppedError,
    TaskCorruptedError,
    TransportError,
    UnreachableError,
    UsageError,
)
from streamkit.record import TaskId, TopicPartition
from streamkit.runtime.local.committer import Committer
from streamkit.runtime.local.gate import Gate
from streamkit.runtime.local.local_task import LocalTask, TaskTimeout
from streamkit.runtime.local.restore import RestoreProgress, describe_lost
from streamkit.runtime.local.setup import Settings, Shared
from streamkit.runtime.local.state_updater import StateUpdater, reset_positions
from streamkit.runtime.local.states import COMMIT, StageTimes, ThreadCounters, ThreadState, check_transition
from streamkit.runtime.local.task_manager import TaskManager
from streamkit.state.definitions import Store
from streamkit.transport.log_interface import EARLIEST, LATEST

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.1
"""How long a thread waits after a transient error."""
LAST_COMMIT_SECONDS = 10.0
"""How long a thread tries its last commit: during a rebalance, or while brokers restart."""
_FEW_RECORDS = 1000
"""If a poll returns fewer records, the log had no more: their results are sent without waiting for others."""


class StreamThread:
    """Runs its assigned tasks until it is stopped, or fails."""

    def __init__(self, name: str, shared: Shared, transactional_id: str | None = None, number: int = 1):
        self.name = name
        self.number = number
        self.state = ThreadState.CREATED
        self.error: BaseException | None = None
        self.activity = 0
        """Grows with all work of the thread: if two reads are equal, the thread was idle in between."""
        self.idle = False
        """Whether the last round had no records and left nothing to commit; only `--until-idle` asks."""
        self.positions: dict[TopicPartition, int] = {}
        """The next offsets to read, as of the last idle round."""
        self.polled_at = monotonic()
        """The time of the thread's last poll, by the monotonic clock."""
        self.on_change: Callable[[StreamThread], None] = lambda thread: None
        """Called by the thread after its state changed."""
        self.counters = ThreadCounters()
        self.gate = Gate()
        """Locked whenever the thread may use its tasks and their stores."""
        self.lost = threading.Event()
        """Set: the thread has closed its active tasks because the group may have removed this member."""
        self._shared = shared
        self._settings = shared.settings
        self._stages = StageTimes(shared.clock)
        self._committer = Committer(name, shared, self.gate, transactional_id, self._stages)
        self._tasks = TaskManager(name, shared, self._committer)
        self._fetching = Fetching(self._committer, self._tasks, self._settings)
        self._timeout = TaskTimeout(self._settings.task_timeout_ms, shared.elapsed)
        self._out_of_range: dict[TopicPartition, OffsetOutOfRangeError] = {}
        """Partitions whose positions are to be reset: the committed offset does not exist."""
        self._iterations = Iterations(self._settings.longest_round_ms)
        self._assigned: tuple[list[TaskId], list[TaskId]] | None = None
        self._last_assignment: tuple[list[TaskId], list[TaskId]] = [], []
        self._lose = False
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._tasks.stopping = self._stop.is_set
        self._settled = threading.Event()
        self._thread = threading.Thread(target=self.run, name=name, daemon=True)

    # -- From other threads ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self.polled_at = monotonic()
        self._thread.start()

    def assign(self, active: Sequence[TaskId], standby: Sequence[TaskId] = ()) -> None:
        """Assign exactly these active tasks and standbys to the thread, from its next round."""
        with self._lock:
            self._assigned = self._last_assignment = list(active), list(standby)
            self._settled.clear()
            self.idle = False

    @property
    def assignment(self) -> tuple[list[TaskId], list[TaskId]]:
        """The last assignment: active tasks and standbys."""
        return self._last_assignment

    def resize_cache(self, cache_bytes: int) -> None:
        """Set the size of the thread's caches; the next writes evict entries above it."""
        self._tasks.stores.resize(cache_bytes)

    def lose(self) -> None:
        """Make the thread close all active tasks without a commit: others own them now (TaskManager.handleLostAll)."""
        with self._lock:
            self._lose = True
            self._keep_standbys()
            # A thread that replaces this one must not take them either.
            self._last_assignment = [], self._last_assignment[1]
            self._settled.clear()
            self.idle = False

    def settled(self) -> bool:
        """Return whether the last assignment is applied: revoked tasks are closed, assigned ones exist here."""
        return self._settled.is_set()

    def stores(self, name: str) -> list[tuple[int, Store, bool]]:
        """Return (partition, store, True) for a store in the running tasks; the caller holds the gate."""
        tasks = [local_task.task for local_task in self._tasks.running.values()]
        return [(task.partition, task.stores[name], True) for task in tasks if name in task.stores]

    def offset_sums(self) -> dict[TaskId, int]:
        """Return the offset sum of each stateful task of the thread, or RUNNING."""
        return self._tasks.offset_sums()

    @property
    def updater(self) -> StateUpdater:
        """The state updater, which restores the thread's tasks and updates its standbys."""
        return self._tasks.updater

    def tasks(self) -> list[LocalTask]:
        """Return the tasks of the thread, active and standby."""
        return self._tasks.tasks()

    def restore_progress(self) -> list[RestoreProgress]:
        """Return the progress of stores that are being restored, or updated as standbys."""
        return self._tasks.updater.progress()

    def stop(self) -> None:
        """Make the thread commit, close its tasks and end."""
        self._stop.set()

    @property
    def started(self) -> bool:
        """Whether the thread has been started; it may have ended since."""
        return self._thread.ident is not None

    @property
    def stopping(self) -> bool:
        """Whether the thread is stopping, or has ended."""
        return self._stop.is_set() or self.state in (ThreadState.PENDING_SHUTDOWN, ThreadState.DEAD)

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end, at most `timeout` seconds; return whether the thread has ended."""
        if self.started:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    # -- The thread ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until stopped; `error` is the exception that ended the thread otherwise."""
        clean = False
        self.gate.acquire()
        try:
            self._committer.open()
            self._tasks.updater.start()
            self._to(ThreadState.STARTING)
            while not self._stop.is_set():
                self._round()
            clean = True
        except StoppedError as error:
            if not self._stop.is_set():
                self.error = error
            log.warning("%s: %s", self.name, error)
        except BaseException as error:
            self.error = error
            log.debug("%s failed", self.name, exc_info=True)
        finally:
            try:
                self._shut_down(clean)
            finally:
                self.gate.release()

    def _round(self) -> None:
        tasks = self._tasks
        self.polled_at = monotonic()
        self._iterations.began = self._shared.elapsed()
        try:
            self._begin()
            self._reset_out_of_range()
            started = tasks.collect_restored()
            self.counters.add("task-created-total", started)
            self._set_running()
            self._publish()
            with self.gate.opened(), self.counters.timed("poll"):
                batches = self._committer.consumer.poll(self._settings.max_poll_records, self._poll_ms())
            if not batches:
                self._committer.send_rest()
            polled_at = self._shared.elapsed()
            arrived = [(tasks.by_partition[TopicPartition(batch.topic, batch.partition)], batch) for batch in batches]
            self._stages.polled([(local_task.task, batch) for local_task, batch in arrived])
            for local_task, batch in arrived:
                tasks.wake(local_task)
                local_task.task.add(batch)
                self.counters.add("poll-records-total", len(batch.offsets))
            self.counters.add("poll-total")
            self._fetching.update_lags()
            with self.counters.timed("process"):
                # While paused, too: what was processed before is committed.
                paused = self._shared.paused.is_set()
                worked = self._commit_if_due() if paused else self._process(polled_at)
            if sum(len(batch.offsets) for batch in batches) < min(_FEW_RECORDS, self._settings.max_poll_records):
                self._committer.send_now(tasks.awake.values())
            self._committer.note_acknowledged()
            self._fetching.balance()
            if not paused:
                tasks.rest()
            self._note_idleness(bool(batches or worked or started))
        except TaskCorruptedError as error:
            self._iterations.note_failure(self._shared.elapsed())
            if not error.on_disk:  # otherwise the store has logged the line
                log.warning("%s: %s; its tasks start again from their last commit", self.name, error)
            self._committer.restart()
            tasks.handle_corruption(error)
        except FencedError as error:
            self._iterations.note_failure(self._shared.elapsed())
            self._fenced(error)
        except OffsetOutOfRangeError as error:
            # librdkafka reports it once.
            self._out_of_range[TopicPartition(error.topic, error.partition)] = error
        except (RetriableTransportError, UnreachableError) as error:
            self._delay(error)

    def _poll_ms(self) -> int:
        """Return how long a poll may wait: not longer than the next commit."""
        limit, left = self._settings.poll_ms, self._committer.ms_to_commit(self._tasks.awake.values())
        return limit if left is None else min(limit, left)

    def _begin(self) -> None:
        """Begin a transaction, and take a new assignment."""
        try:
            # Fences a predecessor and ends its transaction before committed offsets are read.
            self._committer.begin()
        except (RetriableTransportError, UnreachableError):
            # The outcome of the last transaction may stay unknown for a long time, and the group must not wait for this thread,
            # unless there is something to commit. The offsets of an open transaction are not read (KIP-447).
            self._take_assignment()
            raise
        self._take_assignment()

    def _delay(self, error: TransportError) -> None:
        """Wait. A failed read only causes a delay, but tasks with uncommitted records must not be delayed indefinitely."""
        self._timeout.note_error(error, self._uncommitted())
        with self.gate.opened():
            self._stop.wait(RETRY_SECONDS)

    def _uncommitted(self) -> Iterator[str]:
        """Return the names of the tasks that have processed records without committing them."""
        return (task.name for task in self._tasks.awake.values() if task.task.commit_needed)

    def _fenced(self, error: FencedError) -> None:
        """Close all active tasks: others may own them. The group assigns tasks again (TaskMigratedException)."""
        if not self._has_group():
            raise error
        log.warning("%s: %s; its tasks are closed, and the group assigns them again", self.name, error)
        with self._lock:
            self._keep_standbys()
        self._close_active()
        with self._lock:
            if self._assigned is None:
                self._settled.set()
        self.lost.set()

    def _keep_standbys(self) -> None:
        """Drop the active tasks of an assignment that is not applied yet, for a caller that holds the lock.

        Its standbys stay: another thread may wait until this one gives up a standby that has moved to it.
        """
        if self._assigned is not None:
            self._assigned = [], self._assigned[1]

    def _has_group(self) -> bool:
        coordinator = self._shared.coordinator
        return coordinator is not None and coordinator.group_metadata() is not None

    def _close_active(self) -> None:
        try:
            self._committer.restart()
        finally:
            self._tasks.lose_all()

    def _reset_out_of_range(self) -> None:
        """Reset the positions that were out of range. Raises TransportError; the next round then tries the rest again."""
        for partition, error in list(self._out_of_range.items()):
            if partition in self._tasks.by_partition:
                self._reset(error)
            del self._out_of_range[partition]

    def _reset(self, error: OffsetOutOfRangeError) -> None:
        """Continue at the position of the topic's reset policy: the committed offset is out of range. Raises StreamkitError."""
        partition = TopicPartition(error.topic, error.partition)
        consumer = self._committer.consumer
        lost = describe_lost(consumer, error)
        position = reset_positions(self._shared, consumer, [partition], lost)[partition]
        where = {LATEST: "the end", EARLIEST: "the beginning"}.get(position, f"offset {position}")
        find = {EARLIEST: consumer.beginning_offsets, LATEST: consumer.end_offsets}.get(position)
        # First, because a request may fail: the partition is unassigned only afterwards.
        start = position if find is None else find([partition])[partition]
        log.warning("%s; continuing from %s", lost, where)
        consumer.remove([partition])
        consumer.add({partition: start})
        if position != EARLIEST:
            for local_task in self._tasks.running.values():
                if partition in local_task.task.inputs:
                    self._tasks.wake(local_task)
                    local_task.commit_positions([partition])

    def _process(self, polled_at: int) -> bool:
        """Process, punctuate and commit until no record is left; return whether there was any work."""
        worked = False
        iterations, committer, elapsed = self._iterations, self._committer, self._shared.elapsed
        add = self.counters.add
        while True:
            count, interrupted = 0, False
            self._tasks.wake_due()
            tasks = self._tasks.awake.values()
            iterations.began = elapsed()
            for local_task in tasks:
                began = perf_counter()
                done = local_task.task.process(iterations.records)
                ended = perf_counter()
                count += done
                local_task.process_seconds += ended - began
                if self._lose:
                    # Others own the tasks: after a long step, old rows would come after theirs in changelogs and outputs.
                    return True
                committer.send(local_task)
                if done:
                    self._stages.processed(local_task.task, done, began, ended)
                # Readers of stores must not wait for long batches.
                interrupted = self.gate.admit_waiting() or interrupted
            add("process-total", count)
            for local_task in tasks:
                if local_task.task.punctuate():
                    if self._lose:
                        return True
                    interrupted = True
                    add("punctuate-total")
                    committer.send(local_task)
            interrupted = self._commit_if_due() or interrupted
            expiring = any(local_task.task.expiring for local_task in tasks)
            worked = worked or interrupted or count > 0 or expiring
            if not (count or expiring) or self._stop.is_set():
                return worked
            now = elapsed()
            iterations.adapt(now, interrupted=interrupted)
            if now - polled_at > self._settings.longest_without_poll_ms:
                # The group would soon take this member for stuck.
                return True

    def _commit_if_due(self) -> bool:
        began = perf_counter()
        if not self._tasks.commit_if_due():
            return False
        self.counters.add("commit-total")
        took = perf_counter() - began
        self.counters.add("commit-seconds", took)
        self._stages.add(COMMIT, took)
        self._timeout.note_progress()
        return True

    def _publish(self, *, now: bool = False) -> None:
        committer = self._committer
        tasks, position = self._tasks, committer.consumer.position
        self.counters.publish(tasks.running.values(), tasks.awake, position, committer.rejected, self._stages, now=now)

    def _note_idleness(self, worked: bool) -> None:
        self._timeout.note_progress(self._uncommitted())
        if worked:
            self.activity += 1
            self.idle = False
            return
        if not self._shared.until_idle.is_set():
            return
        tasks = self._tasks
        if tasks.commit():
            self.activity += 1
        self.positions = {tp: self._committer.consumer.position(tp) for tp in tasks.by_partition}
        with self._lock:
            self.idle = (
                self._assigned is None
                and tasks.restored
                and not any(
                    local_task.task.commit_needed or local_task.task.has_records()
                    for local_task in tasks.running.values()
                )
            )

    # -- Assignment ---------------------------------------------------------------------------------------------------

    def _take_assignment(self) -> None:
        with self._lock:
            wanted, self._assigned = self._assigned, None
            lose, self._lose = self._lose, False
        if lose:
            self._close_active()
        if wanted is None:
            # Also long after an assignment: a task that starts again may wait until its directory is free.
            self._tasks.create_missing()
        else:
            self.activity += 1
            try:
                self._change_to(*wanted)
                self._publish(now=True)
            except (FencedError, RetriableTransportError, UnreachableError, TaskCorruptedError):
                # The next round retries, unless there is a newer assignment. If others own the tasks, it retries only standbys.
                with self._lock:
                    if self._assigned is None:
                        self._assigned = wanted
                        if self._lose:
                            self._keep_standbys()
                raise
        with self._lock:
            # Tasks that were lost meanwhile are still open: the member must not join a generation that would accept their commits.
            if self._assigned is None and not self._lose and self._tasks.settled:
                self._settled.set()

    def _change_to(self, active: list[TaskId], standby: list[TaskId]) -> None:
        leaving = sum(task not in active for task in self._tasks.running)
        if leaving:
            self._to(ThreadState.PARTITIONS_REVOKED)
        self._tasks.change_to(active, standby)
        self.counters.add("task-closed-total", leaving)
        self._to(ThreadState.PARTITIONS_ASSIGNED)

    def _set_running(self) -> None:
        """Change to RUNNING once all active tasks run; running tasks are processed before that."""
        if self.state is ThreadState.PARTITIONS_ASSIGNED and self._tasks.restored and not self._stop.is_set():
            self._to(ThreadState.RUNNING)

    # -- End ----------------------------------------------------------------------------------------------------------

    def _shut_down(self, clean: bool) -> None:
        steps: list[Callable[[], object]] = [partial(self._to, ThreadState.PENDING_SHUTDOWN)]
        if not clean and not self._settings.exactly_once:
            # Send the output before the failure, dead letters included; offsets are not committed.
            steps.append(self._send_rest)
        if self._committer.is_open:
            # The final counts, for the status of an ended application and the last export of metrics.
            steps.append(partial(self._publish, now=True))
        steps += [partial(self._tasks.close, clean=clean, wait=self._patience()), self._committer.close]
        for step in steps:
            # Close each of them, even if one fails: a task that stays open would never run anywhere else.
            try:
                step()
            except BaseException as error:
                fenced = isinstance(error, FencedError) and self._has_group()
                if fenced or (isinstance(error, TaskCorruptedError) and not error.on_disk):
                    # The group removed this member while the tasks were closed, or the last commit has no answer: the next owner
                    # of the tasks finds in the log whether it was made.
                    log.warning("%s: %s; its tasks continue from their last commit", self.name, error)
                else:
                    self.error = self.error or error
        self._to(ThreadState.DEAD)

    def _patience(self) -> Callable[[], bool]:
        """Return a function that waits until the last commit may be possible; it returns False once that takes too long."""
        deadline = monotonic() + LAST_COMMIT_SECONDS

        def wait() -> bool:
            if monotonic() > deadline:
                return False
            with self.gate.opened():
                sleep(RETRY_SECONDS)
            return True

        return wait

    def _send_rest(self) -> None:
        try:
            for local_task in self._tasks.running.values():
                self._committer.send(local_task)
        except Exception:
            log.debug("%s: sending the remaining output failed", self.name, exc_info=True)

    def _to(self, state: ThreadState) -> None:
        check_transition(self.state, state)
        self.state = state
        self.on_change(self)


# The fetching of a stream thread: pauses full partitions, and looks up the lags of empty ones.


class Fetching:
    """Pauses partitions of a thread's consumer, and sets the lags that its tasks wait for."""

    def __init__(self, committer: Committer, tasks: TaskManager, settings: Settings):
        self._committer = committer
        self._tasks = tasks
        self._settings = settings

    def update_lags(self) -> None:
        """Set the lags of tasks with several partitions, which wait for empty ones (max.task.idle.ms).

        Also of partitions that have records now, because they may be empty before the next poll (PartitionGroup.updateLags).
        """
        if self._settings.max_idle_ms < 0 or len(self._tasks.by_partition) == len(self._tasks.running):
            # Nothing waits for another partition if each task has one.
            return
        for local_task in self._tasks.awake.values():
            task = local_task.task
            if len(task.inputs) > 1 and task.has_records():
                task.set_lags(self._committer.consumer.lags(task.inputs))

    def balance(self) -> None:
        """Pause partitions with enough buffered records, and resume the others (buffered.records.per.partition).

        It runs once per round, not once per batch, because queues are nearly always empty by now and a pause costs a
        request. Only the consumer knows which ones are paused: it forgets those that are removed.
        """
        limit, consumer = self._settings.buffered_records, self._committer.consumer
        full: list[TopicPartition] = []
        others: list[TopicPartition] = []
        # A partition is paused because of records that are queued, so its task is awake.
        for local_task in self._tasks.awake.values():
            for partition in local_task.task.inputs:
                (full if local_task.task.buffered(partition) > limit else others).append(partition)
        consumer.resume(others)
        consumer.pause(full)


# The number of records that a task processes between punctuation and commits (StreamThread's numIterations).

START = 256
MAX = 65_536
LEAST = 64
"""Commits and punctuators do not make rounds shorter than this: a step that waits for answers would wait for each record."""


@dataclass
class Iterations:
    """The number doubles after each short round, and halves after a punctuator, a commit, or a round that took too long.

    Java starts at 1 and adds 1. Since each round costs Python calls, the number starts higher here and doubles.
    `longest_ms`: a round that takes longer may fail, because its transaction times out or the group gives up the member.
    """

    longest_ms: int
    records: int = START
    began: int = 0
    """When the present round began."""

    def adapt(self, now: int, *, interrupted: bool) -> None:
        """Adapt after a round; `interrupted`: by a punctuator or a commit."""
        took_ms = now - self.began
        if took_ms > self.longest_ms:
            self.records = max(1, self.records // 2)
        elif interrupted:
            self.records = max(min(self.records, LEAST), self.records // 2)
        elif 2 * took_ms <= self.longest_ms:
            self.records = min(MAX, self.records * 2)

    def note_failure(self, now: int) -> None:
        """Adapt after a round that failed, perhaps because it took too long."""
        if now - self.began > self.longest_ms:
            self.records = max(1, self.records // 4)


# The stream threads of an instance, which may be added and removed at run time (KafkaStreams.addStreamThread, removeStreamThread).

FailureResponse = Literal["replace_thread", "shutdown_client", "shutdown_application"]
FailureHandler = Callable[[BaseException], str]
"""Returns the response to the failure of a stream thread (StreamsUncaughtExceptionHandler): a FailureResponse, with dashes
or underscores. Called by that thread."""


def failure_response(name: str) -> FailureResponse:
    """Return the response of a name, with dashes or underscores. Raises UsageError."""
    known: tuple[FailureResponse, ...] = get_args(FailureResponse)
    for response in known:
        if name.lower().replace("-", "_") == response:
            return response
    raise UsageError(f"{name!r} is no response to a failing thread; expected {', '.join(known)}")


class Threads:
    """Creates threads with the lowest free number, and divides the cache and the uncommitted bytes among running ones."""

    def __init__(self, shared: Shared, process: str, cache_bytes: int, others: int):
        """`cache_bytes`: of all threads; `others`: the number of shares for threads outside this set (the global thread)."""
        self.all: list[StreamThread] = []
        self.on_change: Callable[[StreamThread], None] = lambda thread: None
        """Called by each thread after its state changed."""
        self._shared = shared
        self._process = process
        self._client = shared.plan.config.client_id or f"{shared.plan.application}-{process}"
        self._cache_bytes = cache_bytes
        self._others = others
        self._lock = threading.RLock()

    def add(self, count: int = 1) -> list[StreamThread]:
        """Create threads, without tasks and not started."""
        with self._lock:
            self._drop_dead()
            started = [self._make() for _ in range(count)]
            self.split_cache()
        return started

    def start_another(self) -> StreamThread:
        """Create a thread without tasks, and start it."""
        (thread,) = self.add()
        thread.assign([])
        thread.start()
        log.info("added %s; there are now %d threads", thread.name, len(self.alive()))
        return thread

    def end_one(self, timeout: float | None) -> StreamThread | None:
        """End the most recently created thread and return it; None if none has been started.

        Raises StateError if it takes longer than `timeout` seconds; the thread is then still ending, and its number stays
        taken.
        """
        with self._lock:
            # One that is not started yet can't be waited for.
            staying = [thread for thread in self.alive() if thread.started and not thread.stopping]
            if not staying:
                return None
            thread = staying[-1]
            thread.stop()
        if not thread.join(timeout):
            raise StateError(f"{thread.name} did not end within {timeout:g} s; it is still ending")
        with self._lock:
            self.all = [other for other in self.all if other is not thread]
            self.split_cache()
        log.info("removed %s; there are now %d threads", thread.name, len(self.alive()))
        return thread

    def replace(self, dead: StreamThread) -> StreamThread:
        """Create a thread with the name, transactional id and tasks of an ended thread."""
        with self._lock:
            self.all = [other for other in self.all if other is not dead]
            fresh = self._make()
            active, standby = dead.assignment
            if dead.lost.is_set():
                # It has closed its tasks, and the group does not know that yet.
                active = []
                fresh.lost.set()
            fresh.assign(active, standby)
        return fresh

    def unchanged(self) -> AbstractContextManager[object]:
        """Keep other threads from adding, ending or replacing a thread in a block."""
        return self._lock

    def alive(self) -> list[StreamThread]:
        """Return the threads that have not ended."""
        return [thread for thread in self.all if thread.state is not ThreadState.DEAD]

    def split_cache(self) -> None:
        """Set each running thread's share: of the cache, from its next write on, and of the uncommitted bytes."""
        alive = self.alive()
        share = self.share(len(alive))
        for thread in alive:
            thread.resize_cache(share)
        uncommitted = self._shared.plan.config.uncommitted_bytes
        self._shared.uncommitted_bytes = None if uncommitted is None else self._part(uncommitted, len(alive))

    def share(self, count: int) -> int:
        """Return the cache of each of `count` threads, in bytes."""
        return self._part(max(0, self._cache_bytes), count)

    def _part(self, total: int, count: int) -> int:
        return total // max(1, count + self._others)

    def names(self) -> Sequence[str]:
        """Return the names of the threads that have not ended."""
        return [thread.name for thread in self.alive()]

    def _drop_dead(self) -> None:
        self.all = self.alive()

    def _make(self) -> StreamThread:
        application = self._shared.plan.application
        used = {thread.number for thread in self.all}
        number = next(number for number in range(1, len(used) + 2) if number not in used)
        exactly_once = self._shared.settings.exactly_once
        thread = StreamThread(
            f"{self._client}-StreamThread-{number}",
            self._shared,
            f"{application}-{self._process}-{number}" if exactly_once else None,
            number,
        )
        thread.on_change = self.on_change
        self.all = [*self.all, thread]
        return thread
