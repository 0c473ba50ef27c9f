"""Restores active tasks, updates standbys and finds start positions, in a thread of its own (DefaultStateUpdater, StoreChangelogReader)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from streamkit.config.settings import BY_DURATION, OffsetReset, parse_reset
from streamkit.errors import (
    OffsetOutOfRangeError,
    RetriableTransportError,
    StateError,
    StreamkitError,
    TaskCorruptedError,
    TransportError,
    UnreachableError,
)
from streamkit.record import RecordBatch, TaskId, TopicPartition
from streamkit.runtime.execution.dead_letters import one_line
from streamkit.runtime.local.local_task import LocalTask, TaskTimeout
from streamkit.runtime.local.restore import (
    BATCH,
    Changelog,
    Event,
    RestoreProgress,
    describe_lost,
    log_restored,
    progress_of,
)
from streamkit.runtime.local.setup import Shared
from streamkit.state.definitions import Store
from streamkit.transport.log_interface import EARLIEST, LATEST, CommittedOffset, Consumer

log = logging.getLogger(__name__)

POLL_MS = 100
RETRY_SECONDS = 0.1
LOG_EVERY_MS = 10_000


class StateUpdater:
    """A thread with its own consumer. It owns a task from `add` until `restored`, `failed` or `take` returns it.

    Standbys wait while active tasks are restored. As in Java, a checkpoint is written after a commit interval with enough new
    records, and whenever a task is returned.
    """

    def __init__(self, name: str, shared: Shared):
        self.name = name
        self._shared = shared
        self._settings = shared.settings
        self._timeout = TaskTimeout(shared.settings.task_timeout_ms, shared.elapsed)
        self._start_positions = StartPositions(shared, name)
        # Listeners of restores are called with it, and may read the status, which needs it.
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._tasks: dict[TaskId, LocalTask] = {}
        self._restored: list[LocalTask] = []
        self._failed: list[LocalTask] = []
        self._roles: dict[TaskId, int] = {}
        """The role of each task as of the beginning of the round (LocalTask.roles)."""
        self._bounds_at = 0
        """The time before which the bounds of changelogs are not looked up again after a failed look-up."""
        # Changelogs that the consumer reads, and partitions whose records are discarded, because they were returned or are read
        # again.
        self._reading: dict[TopicPartition, Changelog] = {}
        self._discarded: set[TopicPartition] = set()
        self._last_checkpoint = self._last_limits = self._last_log = shared.elapsed()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        # Its thread starts with the first bulk load.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix=f"{name}-writer")

    # -- From the stream thread, and for status ------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, task: LocalTask) -> None:
        """Restore an active task, or follow the changelogs of a standby."""
        task.error = None
        with self._lock:
            self._tasks[task.id] = task
        self._wake.set()

    def restored(self) -> list[LocalTask]:
        """Return the restored active tasks with their start positions; they leave the updater."""
        if not self._restored:
            return []
        with self._lock:
            done, self._restored = self._restored, []
        return done

    def put_back(self, tasks: Sequence[LocalTask]) -> None:
        """Take back tasks from `restored` that could not be started."""
        with self._lock:
            self._restored = [*tasks, *self._restored]

    def failed(self) -> list[LocalTask]:
        """Return the tasks that failed, each of which has its error; they leave the updater."""
        if not self._failed:
            return []
        with self._lock:
            failed, self._failed = self._failed, []
        return failed

    def take(self, ids: Collection[TaskId]) -> list[LocalTask]:
        """Remove and return tasks in any state; the caller owns them and calls `suspend` on each."""
        with self._lock:
            taken = [task for task in self._all_tasks() if task.id in ids]
            for task in taken:
                self._remove(task, "suspend")
            self._restored = [task for task in self._restored if task.id not in ids]
            self._failed = [task for task in self._failed if task.id not in ids]
        return taken

    def tasks(self) -> list[LocalTask]:
        """Return the tasks of the updater."""
        with self._lock:
            return self._all_tasks()

    @contextmanager
    def entered(self, timeout: float) -> Iterator[None]:
        """Lock the stores of the updater for a read. Raises StateError if it was busy for `timeout` seconds."""
        if not self._lock.acquire(timeout=timeout):
            raise StateError(f"the state updater was busy for {timeout:g} s")
        try:
            yield
        finally:
            self._lock.release()

    def stores(self, name: str) -> list[tuple[int, Store, bool]]:
        """Return (partition, store, False) for a store in the updater's tasks; the caller holds the lock."""
        tasks = [local_task.task for local_task in self._all_tasks()]
        return [(task.partition, task.stores[name], False) for task in tasks if name in task.stores]

    def progress(self) -> list[RestoreProgress]:
        """Return the progress of the tasks' changelogs, as far as their bounds are known."""
        with self._lock:
            tasks = list(self._tasks.values())
        return [
            progress_of(task.name, task.active, changelog)
            for task in tasks
            for changelog in task.changelogs
            if changelog.start is not None
        ]

    def stop(self) -> None:
        """Make the thread end; its tasks stay here for `take`."""
        self._stop.set()
        self._wake.set()

    def close(self) -> None:
        """Wait for the end of the thread, and close the consumers."""
        if self._thread.ident is not None:
            self._thread.join()
        self._writer.shutdown()
        self._leave()

    # -- The thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self.round():
                if not self._tasks:
                    # Without tasks, which is the usual case, no connection is kept.
                    self._leave()
                self._wake.wait(RETRY_SECONDS if self._tasks else None)
                self._wake.clear()

    def round(self) -> bool:
        """Run one round; return False if the thread should wait: for a task, for the end of a pause, or after an error."""
        try:
            return self._round()
        except OffsetOutOfRangeError as error:
            self._out_of_range(error)
            return True
        except (RetriableTransportError, UnreachableError) as error:
            with self._lock:
                # The consumer's positions may be past records that were not applied.
                self._discarded.update(self._reading)
            try:
                self._timeout.note_error(error, [task.name for task in list(self._tasks.values()) if self._waits(task)])
            except Exception as final:
                self._fail_all(final)
            return False
        except BaseException as error:
            self._fail_all(error)
            return False

    def _round(self) -> bool:
        if self._shared.paused.is_set():
            return False
        with self._lock:
            tasks = list(self._tasks.values())
            self._roles = {task.id: task.roles for task in tasks}
            discarded, self._discarded = self._discarded, set()
        restoring = any(task.active for task in tasks)
        failure = self._try_bounds([task for task in tasks if task.active or not restoring])
        wanted = {
            changelog.partition: changelog
            for task in tasks
            if task.active or not restoring
            for changelog in task.changelogs
            if not changelog.at_limit and not (task.active and changelog.complete) and changelog.start is not None
        }
        self._read(wanted, discarded)
        if wanted:
            self._apply(self._start_positions.consumer.poll(BATCH, POLL_MS))
        self._end_loads(tasks)
        self._finish_restored()
        if failure is not None:
            raise failure
        if not self._bounds_at:
            # All requests of this round succeeded, and no look-up is postponed.
            self._timeout.note_progress()
        self._checkpoint()
        self._log_progress()
        return bool(wanted)

    def _is_here(self, task: LocalTask) -> bool:
        """Whether a task is still in the updater, and still has the role that it had when the round began."""
        return self._tasks.get(task.id) is task and self._roles.get(task.id) == task.roles

    def _waits(self, task: LocalTask) -> bool:
        """Whether the last error delays an active task. A failed look-up of bounds delays only tasks whose bounds are unknown."""
        return task.active and (not self._bounds_at or _is_fresh(task))

    def _try_bounds(self, tasks: list[LocalTask]) -> TransportError | None:
        """Look up bounds; return the error of a failed look-up, which must not stop the tasks whose bounds are known.

        After a failure, these tasks run for at least as long as the look-up took, and the next look-up is for one task
        only: a partition without a leader must not delay the others.
        """
        began = self._shared.elapsed()
        if began < self._bounds_at:
            return None
        try:
            if self._bounds_at:
                self._find_bounds(next(([task] for task in tasks if _is_fresh(task)), []))
            self._find_bounds(tasks)
        except (RetriableTransportError, UnreachableError) as error:
            now = self._shared.elapsed()
            self._bounds_at = now + max(1, now - began)
            with self._lock:
                for task in tasks:
                    if _is_fresh(task) and self._is_here(task):
                        # The next look-up is for another task.
                        self._tasks[task.id] = self._tasks.pop(task.id)
                        break
            return error
        self._bounds_at = 0
        return None

    def _find_bounds(self, tasks: list[LocalTask]) -> None:
        """Look up the bounds of new changelogs, and the committed offsets of source topics."""
        fresh = [task for task in tasks if _is_fresh(task)]
        now = self._shared.elapsed()
        # A standby may apply a source topic up to the committed offset of its active task.
        due = now - self._last_limits > self._settings.commit_interval_ms
        limited = [
            (task, changelog)
            for task in tasks
            if task in fresh or (due and not task.active)
            for changelog in task.changelogs
            if changelog.limit is not None
        ]
        if limited:
            committed = self._start_positions.committed([changelog.partition for _, changelog in limited])
            with self._lock:
                for task, changelog in limited:
                    offset = committed.get(changelog.partition)
                    if self._is_here(task):
                        changelog.limit = max(changelog.limit or 0, offset.offset if offset else 0)
            self._last_limits = now
        if not fresh:
            return
        bounds = self._start_positions.bounds([changelog.partition for task in fresh for changelog in task.changelogs])
        for task in fresh:
            try:
                # A bulk load reopens the files of a store: no query may read it meanwhile. A standby that has become active
                # since has another end: the last record that its previous owner wrote.
                with self._lock:
                    if not self._is_here(task):
                        continue
                    for changelog in task.changelogs:
                        changelog.begin(*bounds[changelog.partition])
                        changelog.begin_load(self._writer)
            except TaskCorruptedError as error:
                self._fail([task], error)
                continue
            self._notify("start", task)

    def _read(self, wanted: dict[TopicPartition, Changelog], discarded: set[TopicPartition]) -> None:
        """Make the consumer read exactly these changelogs, each from its position."""
        consumer = self._start_positions.consumer
        gone = [at for at, changelog in self._reading.items() if at in discarded or wanted.get(at) is not changelog]
        if gone:
            consumer.remove(gone)
            for at in gone:
                del self._reading[at]
        more = {at: changelog for at, changelog in wanted.items() if at not in self._reading}
        if more:
            consumer.add({at: changelog.position or 0 for at, changelog in more.items()})
            self._reading.update(more)

    def _apply(self, batches: Iterable[RecordBatch]) -> None:
        with self._lock:
            owners = {changelog: task for task in self._tasks.values() for changelog in task.changelogs}
            for batch in batches:
                partition = TopicPartition(batch.topic, batch.partition)
                changelog = self._reading[partition]
                if partition in self._discarded or changelog not in owners:
                    continue
                task = owners[changelog]
                stop = changelog.end if task.active else changelog.limit
                count = changelog.apply(batch, stop)
                self._shared.metrics.add("restore-total" if task.active else "update-total", count, task.name)
                if stop is not None and batch.offsets[-1] >= stop:
                    # The other records are read again once they may be applied.
                    self._discarded.add(partition)
                    changelog.position = stop
                else:
                    changelog.position = batch.offsets[-1] + 1
                self._notify("batch", task, [changelog])
            for partition, changelog in self._reading.items():
                if partition not in self._discarded:
                    # Includes transaction markers, which poll never returns.
                    changelog.position = self._start_positions.consumer.position(partition)

    def _end_loads(self, tasks: list[LocalTask]) -> None:
        """End the bulk load of restored stores."""
        loaded = [
            task for task in tasks if any(changelog.loading and changelog.complete for changelog in task.changelogs)
        ]
        if loaded:
            with self._lock:
                for task in loaded:
                    if self._tasks.get(task.id) is task:
                        for changelog in task.changelogs:
                            if changelog.complete:
                                changelog.end_load()

    def _finish_restored(self) -> None:
        """Move active tasks whose stores are restored to `restored`."""
        with self._lock:
            done = [
                t for t in self._tasks.values() if t.active and all(changelog.complete for changelog in t.changelogs)
            ]
            self._roles = {task.id: task.roles for task in self._tasks.values()}
        for task in done:
            try:
                self._start_positions.set_start(task)
            except (RetriableTransportError, UnreachableError):
                # The error may concern this task only, for example a committed offset in a lost transaction: the others go first next time.
                with self._lock:
                    if self._tasks.get(task.id) is task:
                        self._tasks[task.id] = self._tasks.pop(task.id)
                raise
            with self._lock:
                if not self._is_here(task):
                    continue
                task.checkpoint(enforce=True)
                self._remove(task, "end")
                self._restored.append(task)
            for changelog in task.changelogs:
                log_restored(changelog)

    def _checkpoint(self) -> None:
        now = self._shared.elapsed()
        if now - self._last_checkpoint > self._settings.commit_interval_ms:
            with self._lock:
                for task in self._tasks.values():
                    task.checkpoint(enforce=False)
            self._last_checkpoint = now

    def _log_progress(self) -> None:
        now = self._shared.elapsed()
        if now - self._last_log > LOG_EVERY_MS:
            self._last_log = now
            for progress in self.progress():
                if progress.active:
                    log.info("restoring %s", progress)

    def _leave(self) -> None:
        self._reading = {}
        self._start_positions.close()

    # -- Errors -------------------------------------------------------------------------------------------------------

    def _out_of_range(self, error: OffsetOutOfRangeError) -> None:
        partition = TopicPartition(error.topic, error.partition)
        with self._lock:
            tasks = [
                t for t in self._tasks.values() if any(changelog.partition == partition for changelog in t.changelogs)
            ]
        for task in tasks:
            paths = [changelog.path for changelog in task.changelogs if changelog.partition == partition]
            corrupted = TaskCorruptedError(describe_lost(self._start_positions.consumer, error), path=paths[0])
            corrupted.__cause__ = error
            self._fail([task], corrupted)

    def _fail_all(self, error: BaseException) -> None:
        log.debug("%s: updating failed", self.name, exc_info=error)
        self._fail(self.tasks(), error)

    def _fail(self, tasks: list[LocalTask], error: BaseException) -> None:
        with self._lock:
            for task in tasks:
                if self._tasks.get(task.id) is task:
                    self._abort_loads(task)
                    self._remove(task, "suspend")
                    task.error = error
                    self._failed.append(task)

    # -- The caller has the lock ----------------------------------------------------------------------------------------

    def _all_tasks(self) -> list[LocalTask]:
        return [*self._tasks.values(), *self._restored, *self._failed]

    def _abort_loads(self, task: LocalTask) -> None:
        for changelog in task.changelogs:
            try:
                changelog.end_load()
            except StateError as error:
                # This is the task's error or a consequence; the store accepts no further commit.
                log.debug("%s: %s", self.name, error)

    def _remove(self, task: LocalTask, event: Event) -> None:
        if self._tasks.pop(task.id, None) is not None:
            self._discarded.update(changelog.partition for changelog in task.changelogs)
            self._notify(event, task)

    def _notify(self, event: Event, task: LocalTask, changelogs: list[Changelog] | None = None) -> None:
        listener = self._shared.restore_listener
        if listener is not None:
            for changelog in task.changelogs if changelogs is None else changelogs:
                try:
                    listener(event, progress_of(task.name, task.active, changelog))
                except Exception as error:
                    log.error("%s: the restore listener failed: %s", self.name, one_line(str(error)))


def _is_fresh(task: LocalTask) -> bool:
    """Whether the bounds of some changelog of a task are not known yet."""
    return any(changelog.start is None for changelog in task.changelogs)


# Start positions of tasks: bounds of changelogs, committed offsets, and the reset policy if nothing is committed.


def reset_positions(
    shared: Shared, consumer: Consumer, partitions: Iterable[TopicPartition], lost: str | None = None
) -> dict[TopicPartition, int]:
    """Return EARLIEST, LATEST or an offset for each partition, by the topic's reset policy (StreamThread.resetOffsets).

    lost: what happened to the records at the committed offset; None if there is no such offset. Raises StreamkitError for the
    policy none, TransportError.
    """
    bounds: dict[TopicPartition, int] = {}
    times: dict[TopicPartition, int] = {}
    now = shared.clock()
    for partition in partitions:
        reset = _policy(shared, partition.topic)
        if reset.policy == "none":
            why = lost or f"no offset is committed for {partition.topic}-{partition.partition}"
            raise StreamkitError(
                f"{why}, and its reset policy is none; set a start offset with `streamkit reset-offsets`"
            )
        if reset.policy == BY_DURATION:
            times[partition] = max(0, now - reset.duration_ms)
        else:
            bounds[partition] = LATEST if reset.policy == "latest" else EARLIEST
    # If all records are older, reading begins at the end.
    return {**bounds, **(consumer.offsets_for_times(times) if times else {})}


def _policy(shared: Shared, topic: str) -> OffsetReset:
    plan = shared.plan
    entry = plan.external_topics.get(topic)
    if entry is not None and entry.reset is not None:
        return entry.reset
    stem = topic.removeprefix(f"{plan.application}-")
    if stem != topic and stem in plan.internal_topics:
        # Java uses the application's policy for internal topics, and therefore loses records or never starts.
        return OffsetReset()
    return parse_reset(plan.config.auto_offset_reset)


class StartPositions:
    """The consumer of a state updater, and its requests to the log; a slow response does not block running tasks."""

    def __init__(self, shared: Shared, name: str):
        self._shared = shared
        self._name = name
        self._consumer: Consumer | None = None
        self._uncommitted: Consumer | None = None

    @property
    def consumer(self) -> Consumer:
        """The consumer for changelogs and the application's committed offsets; opened on first use."""
        if self._consumer is None:
            self._consumer = self._open("restore-consumer", read_committed=self._shared.settings.restore_read_committed)
        return self._consumer

    def bounds(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first and end offsets of changelogs, open transactions included.

        The last stable offset may be behind an acknowledged commit; restoring up to the real end waits for it
        (StoreChangelogReader.endOffsetForChangelogs).
        """
        if not partitions:
            return {}
        end_consumer = self.consumer
        if self._shared.settings.restore_read_committed:
            end_consumer = self._uncommitted = self._uncommitted or self._open("end-consumer", read_committed=False)
        firsts, ends = end_consumer.beginning_offsets(partitions), end_consumer.end_offsets(partitions)
        return {partition: (firsts[partition], ends[partition]) for partition in partitions}

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the application's committed offsets, after pending transactions that commit some have ended."""
        return self.consumer.committed(partitions) if partitions else {}

    def set_start(self, task: LocalTask) -> None:
        """Set the start positions of a task's inputs. Raises StreamkitError for the reset policy none, TransportError."""
        inputs = task.task.inputs
        task.committed = self.committed(inputs)
        start_positions = {partition: offset.offset for partition, offset in task.committed.items()}
        named = reset_positions(self._shared, self.consumer, [at for at in inputs if at not in start_positions])
        start_positions.update({at: position for at, position in named.items() if position >= 0})
        for name, offsets_of in ((EARLIEST, self.consumer.beginning_offsets), (LATEST, self.consumer.end_offsets)):
            partitions = [at for at, position in named.items() if position == name]
            if partitions:
                start_positions.update(offsets_of(partitions))
        task.at_end = [at for at, position in named.items() if position != EARLIEST]
        task.start_positions = start_positions

    def close(self) -> None:
        """Close the consumers."""
        for consumer in (self._consumer, self._uncommitted):
            if consumer is not None:
                consumer.close()
        self._consumer = self._uncommitted = None

    def _open(self, role: str, *, read_committed: bool) -> Consumer:
        shared = self._shared
        return shared.transport.consumer(
            shared.plan.application, read_committed=read_committed, role="restore", client_id=f"{self._name}-{role}"
        )
