"""Restores active tasks and keeps standbys up to date, beside processing (DefaultStateUpdater, StoreChangelogReader)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from streamkit.errors import (
    OffsetOutOfRangeError,
    RetriableTransportError,
    StateError,
    TaskCorruptedError,
    UnreachableError,
)
from streamkit.record import RecordBatch, TopicPartition
from streamkit.runtime.local.assignor import Id
from streamkit.runtime.local.local_task import LocalTask
from streamkit.runtime.local.patience import Patience
from streamkit.runtime.local.progress import Event, RestoreProgress, progress_of
from streamkit.runtime.local.restore import BATCH, Changelog, log_restored
from streamkit.runtime.local.setup import Shared
from streamkit.runtime.local.starts import Starts

log = logging.getLogger(__name__)

POLL_MS = 100
RETRY_SECONDS = 0.1
LOG_EVERY_MS = 10_000


class StateUpdater:
    """A thread with a consumer of its own. A task is its own from `add` until `restored`, `failed` or `take` gives it back.

    Standbys wait while active tasks are restored. Java's rules for checkpoints: after every commit interval when enough
    has come, and whenever a task is given back.
    """

    def __init__(self, name: str, shared: Shared):
        self.name = name
        self._shared = shared
        self._settings = shared.settings
        self._patience = Patience(shared.settings.task_timeout_ms, shared.elapsed)
        self._starts = Starts(shared, name)
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._tasks: dict[Id, LocalTask] = {}
        self._restored: list[LocalTask] = []
        self._failed: list[tuple[LocalTask, BaseException]] = []
        # What is being read; what was given back, or has to be read again from its position, is not to be applied.
        self._reading: dict[TopicPartition, Changelog] = {}
        self._void: set[TopicPartition] = set()
        self._last_checkpoint = self._last_limits = self._last_log = shared.elapsed()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        # Its thread begins with the first store that is loaded.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix=f"{name}-writer")

    # -- From the stream thread, and for status ------------------------------------------------------------

    def start(self) -> None:
        """Start."""
        self._thread.start()

    def add(self, task: LocalTask) -> None:
        """Restore an active task, or follow the changelogs of a standby."""
        with self._lock:
            self._tasks[task.id] = task
        self._wake.set()

    def restored(self) -> list[LocalTask]:
        """Give back the active tasks that are restored, with the offsets at which they start."""
        if not self._restored:
            return []
        with self._lock:
            done, self._restored = self._restored, []
        return done

    def failed(self) -> list[tuple[LocalTask, BaseException]]:
        """Give back the tasks that could not be updated, each with the reason."""
        if not self._failed:
            return []
        with self._lock:
            failed, self._failed = self._failed, []
        return failed

    def take(self, ids: Collection[Id]) -> list[LocalTask]:
        """Give back tasks, wherever they are here, their checkpoints written. Raises StateError."""
        with self._lock:
            taken = [task for task in self._held() if task.id in ids]
            for task in taken:
                for changelog in task.changelogs:
                    changelog.end_load()
            for task in taken:
                self._let_go(task, "suspend")
            self._restored = [task for task in self._restored if task.id not in ids]
            self._failed = [entry for entry in self._failed if entry[0].id not in ids]
            for task in taken:
                task.checkpoint(enforce=True)
        return taken

    def tasks(self) -> list[LocalTask]:
        """Return the tasks that are here."""
        with self._lock:
            return self._held()

    @contextmanager
    def entered(self, timeout: float) -> Iterator[None]:
        """Keep the updater from changing its stores, for a read. Raises StateError when it was busy for `timeout` seconds."""
        if not self._lock.acquire(timeout=timeout):
            raise StateError(f"the state updater was busy for {timeout:g} s")
        try:
            yield
        finally:
            self._lock.release()

    def stores(self, name: str) -> list[tuple[int, Any, bool]]:
        """Return (partition, store, False) of a store in the tasks here; to be called with the lock held."""
        tasks = [held.task for held in self._held()]
        return [(task.partition, task.stores[name], False) for task in tasks if name in task.stores]

    def progress(self) -> list[RestoreProgress]:
        """Return how far the changelogs of the tasks here are, those that have been looked up."""
        with self._lock:
            tasks = list(self._tasks.values())
        return [
            progress_of(task, changelog)
            for task in tasks
            for changelog in task.changelogs
            if changelog.start is not None
        ]

    def stop(self) -> None:
        """Ask the thread to end; its tasks stay here for `take`."""
        self._stop.set()
        self._wake.set()

    def close(self) -> None:
        """Wait for the end of the thread and leave the log."""
        if self._thread.ident is not None:
            self._thread.join()
        self._writer.shutdown()
        self._leave()

    # -- The thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self.round():
                if not self._tasks:
                    # No connection is kept before it is needed, which is rare.
                    self._leave()
                self._wake.wait(RETRY_SECONDS if self._tasks else None)
                self._wake.clear()

    def round(self) -> bool:
        """Do what there is to do now; return False to wait for more: a task, an end of a pause, or a fault to pass."""
        try:
            return self._round()
        except OffsetOutOfRangeError as error:
            self._out_of_range(error)
            return True
        except (RetriableTransportError, UnreachableError) as error:
            with self._lock:
                # The consumer may be past what was not applied.
                self._void.update(self._reading)
            try:
                self._patience.bear(error, [task.name for task in self._tasks.values() if task.active])
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
            void, self._void = self._void, set()
        restoring = any(task.active for task in tasks)
        self._look_up([task for task in tasks if task.active or not restoring])
        wanted = {
            changelog.partition: changelog
            for task in tasks
            if task.active or not restoring
            for changelog in task.changelogs
            if not changelog.at_limit and not (task.active and changelog.complete) and changelog.start is not None
        }
        self._read(wanted, void)
        if wanted:
            self._apply(self._starts.consumer.poll(BATCH, POLL_MS))
        self._end_loads(tasks)
        self._patience.relieve(self._hand_over())
        self._checkpoint()
        self._log_progress()
        return bool(wanted)

    def _look_up(self, tasks: list[LocalTask]) -> None:
        """Find out where changelogs begin and end, and up to where source topics are committed."""
        fresh = [task for task in tasks if any(changelog.start is None for changelog in task.changelogs)]
        now = self._shared.elapsed()
        # What a standby may take of a source topic grows with every commit of its active task.
        due = now - self._last_limits > self._settings.commit_interval_ms
        limited = [
            changelog
            for task in tasks
            if task in fresh or (due and not task.active)
            for changelog in task.changelogs
            if changelog.limit is not None
        ]
        if limited:
            committed = self._starts.committed([changelog.partition for changelog in limited])
            for changelog in limited:
                offset = committed.get(changelog.partition)
                changelog.limit = max(changelog.limit or 0, offset.offset if offset else 0)
            self._last_limits = now
        if not fresh:
            return
        bounds = self._starts.bounds([changelog.partition for task in fresh for changelog in task.changelogs])
        for task in fresh:
            try:
                for changelog in task.changelogs:
                    changelog.begin(*bounds[changelog.partition])
                    changelog.begin_load(self._writer)
            except TaskCorruptedError as error:
                self._fail([task], error)
                continue
            self._tell("start", task)

    def _read(self, wanted: dict[TopicPartition, Changelog], void: set[TopicPartition]) -> None:
        """Have the consumer read exactly these changelogs, each from its position."""
        consumer = self._starts.consumer
        gone = [at for at, changelog in self._reading.items() if at in void or wanted.get(at) is not changelog]
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
                if partition in self._void or changelog not in owners:
                    continue
                task = owners[changelog]
                stop = changelog.end if task.active else changelog.limit
                count = changelog.apply(batch, stop)
                self._shared.metrics.add("restore-total" if task.active else "update-total", count, task.name)
                if stop is not None and batch.offsets[-1] >= stop:
                    # The rest is read again once it may be applied.
                    self._void.add(partition)
                    changelog.position = stop
                else:
                    changelog.position = batch.offsets[-1] + 1
                self._tell("batch", task, [changelog])
            for partition, changelog in self._reading.items():
                if partition not in self._void:
                    # Past markers of transactions, too, which poll never gives.
                    changelog.position = self._starts.consumer.position(partition)

    def _end_loads(self, tasks: list[LocalTask]) -> None:
        """Have stores that were loaded ready for processing, and for following."""
        loaded = [each for task in tasks for each in task.changelogs if each.loading and each.complete]
        if loaded:
            with self._lock:
                for changelog in loaded:
                    changelog.end_load()

    def _hand_over(self) -> list[str]:
        """Give back active tasks whose stores are restored; return their names."""
        with self._lock:
            done = [t for t in self._tasks.values() if t.active and all(each.complete for each in t.changelogs)]
        ready = []
        for task in done:
            self._starts.find(task)
            with self._lock:
                if self._tasks.get(task.id) is not task:
                    continue
                task.checkpoint(enforce=True)
                self._let_go(task, "end")
                self._restored.append(task)
            ready.append(task.name)
            for changelog in task.changelogs:
                log_restored(changelog)
        return ready

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
        self._starts.close()

    # -- Faults -------------------------------------------------------------------------------------------------------

    def _out_of_range(self, error: OffsetOutOfRangeError) -> None:
        partition = TopicPartition(error.topic, error.partition)
        with self._lock:
            tasks = [t for t in self._tasks.values() if any(each.partition == partition for each in t.changelogs)]
        for task in tasks:
            paths = [each.path for each in task.changelogs if each.partition == partition]
            corrupted = TaskCorruptedError(str(error), path=paths[0])
            corrupted.__cause__ = error
            self._fail([task], corrupted)

    def _fail_all(self, error: BaseException) -> None:
        log.debug("%s: updating failed", self.name, exc_info=error)
        self._fail(self.tasks(), error)

    def _fail(self, tasks: list[LocalTask], error: BaseException) -> None:
        with self._lock:
            for task in tasks:
                if self._tasks.get(task.id) is task:
                    self._give_up_loads(task)
                    self._let_go(task, "suspend")
                    self._failed.append((task, error))

    # -- Inside; the lock is held ---------------------------------------------------------------------------------------

    def _held(self) -> list[LocalTask]:
        return [*self._tasks.values(), *self._restored, *(task for task, _ in self._failed)]

    def _give_up_loads(self, task: LocalTask) -> None:
        for changelog in task.changelogs:
            try:
                changelog.end_load()
            except StateError as error:
                # It is what the task fails with, or a consequence; the store takes no commit any more.
                log.debug("%s: %s", self.name, error)

    def _let_go(self, task: LocalTask, event: Event) -> None:
        if self._tasks.pop(task.id, None) is not None:
            self._void.update(changelog.partition for changelog in task.changelogs)
            self._tell(event, task)

    def _tell(self, event: Event, task: LocalTask, changelogs: list[Changelog] | None = None) -> None:
        listener = self._shared.restore_listener
        if listener is not None:
            for changelog in task.changelogs if changelogs is None else changelogs:
                listener(event, progress_of(task, changelog))
