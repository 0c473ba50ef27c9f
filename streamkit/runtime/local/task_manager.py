"""The tasks of a stream thread: creates, restores, runs and closes them (TaskManager)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from streamkit.errors import RetriableTransportError, TaskCorruptedError, UnreachableError
from streamkit.record import TaskId, TopicPartition
from streamkit.runtime.execution.store_opening import DirectoryStores
from streamkit.runtime.execution.task import Task
from streamkit.runtime.execution.task_environment import TaskEnvironment, TaskSpec
from streamkit.runtime.local.committer import Committer
from streamkit.runtime.local.local_task import LocalTask, open_files
from streamkit.runtime.local.setup import Shared
from streamkit.runtime.local.state_updater import StateUpdater
from streamkit.state.directory import delete_checkpoint

log = logging.getLogger(__name__)

NEVER = 2**63 - 1
"""A time (ms) that no clock reaches."""


class TaskManager:
    """The assigned tasks of a stream thread: running ones here, the others in the state updater."""

    def __init__(self, owner: str, shared: Shared, committer: Committer):
        self.running: dict[TaskId, LocalTask] = {}
        self.by_partition: dict[TopicPartition, LocalTask] = {}
        self.awake: dict[TaskId, LocalTask] = {}
        """Running tasks that may have something to process, punctuate, send or commit; a round visits no other task."""
        self._timers: dict[TaskId, int] = {}
        """When the wall-clock punctuators of resting tasks are due (ms)."""
        self._next_timer = NEVER
        """No timer is due before this time (ms)."""
        self.updater = StateUpdater(owner.replace("StreamThread", "StateUpdater"), shared)
        self.stores = DirectoryStores(shared.plan, shared.directory, shared.cache_bytes, shared.topics.ids)
        self._owner = owner
        self._shared = shared
        self._settings = shared.settings
        self.stopping: Callable[[], bool] = lambda: False
        """Returns whether the thread is stopping."""
        self._wanted: dict[TaskId, bool] = {}
        self._committer = committer

    def offset_sums(self) -> dict[TaskId, int]:
        """Return the offset sum of each stateful task (LocalTask.offset_sum); any thread may call it."""
        tasks = [*self.updater.tasks(), *list(self.running.values())]
        return {task.id: task.offset_sum() for task in tasks if task.changelogs}

    def tasks(self) -> list[LocalTask]:
        """Return all tasks, running or in the updater; any thread may call it."""
        return [*list(self.running.values()), *self.updater.tasks()]

    @property
    def settled(self) -> bool:
        """Whether all assigned tasks exist here, restored or not."""
        return len(self._wanted) == len(self.running) + len(self.updater.tasks())

    @property
    def restored(self) -> bool:
        """Whether all assigned active tasks run."""
        return len(self.running) == sum(self._wanted.values())

    # -- Assignment ---------------------------------------------------------------------------------------------------

    def change_to(self, active: Sequence[TaskId], standby: Sequence[TaskId]) -> None:
        """Change to exactly these tasks.

        Raises TransportError before any task is closed, so the caller may retry. Raises StateError if files of a task can't
        be written; such a task is closed.
        """
        wanted = {**dict.fromkeys(standby, False), **dict.fromkeys(active, True)}
        # A task whose processors were closed by an attempt that failed can't stay as it is.
        leaving = [task for task in self.running.values() if not wanted.get(task.id) or task.task.closing]
        if leaving:
            # Before a task is closed, so that a commit that fails with a transient error can be retried.
            self._commit_now()
            for task in leaving:
                task.task.close_processors()
            self._commit_now()
        self._wanted = wanted
        self._let_go(leaving)
        wrong = [task.id for task in self.updater.tasks() if wanted.get(task.id) is not task.active]
        self._let_go(self.updater.take(wrong))
        self.create_missing()

    def _commit_now(self) -> None:
        self.commit()
        if self._committer.postponed:
            raise RetriableTransportError("the group is about to change again")

    def create_missing(self) -> None:
        """Create missing assigned tasks, unless another thread of the process still owns them."""
        if self.settled:
            return
        here = {*self.running, *(task.id for task in self.updater.tasks())}
        for task_id, active in self._wanted.items():
            if task_id not in here and self._shared.claims.claim(task_id, self._owner):
                try:
                    task = self._create(task_id)
                except BaseException:
                    self._shared.claims.release(task_id, self._owner)
                    raise
                task.active = active
                self.updater.add(task)

    def collect_restored(self) -> int:
        """Start the tasks that the updater has restored and handle failed ones; return the number of started tasks.

        Raises the error of a failed task; a corrupted task is restored from the beginning instead.
        """
        failed = self.updater.failed()
        errors = [error for task in failed for error in self._close_failed(task, task.error)]
        if errors:
            raise errors[0]
        if failed:
            self.create_missing()
        restored = self.updater.restored()
        try:
            for task in restored:
                self._start(task)
        except BaseException:
            # They start in a later round. A failure after the first line of `_start` belongs to a running task.
            self.updater.put_back([task for task in restored if task.id not in self.running])
            raise
        return len(restored)

    # -- Rest ---------------------------------------------------------------------------------------------------------

    def wake(self, task: LocalTask) -> None:
        """Have the rounds visit a running task until it has nothing left to do."""
        self.awake[task.id] = task
        task.wakes += 1

    def wake_due(self) -> None:
        """Wake the tasks whose wall-clock punctuators are due."""
        now = self._shared.clock()
        if now < self._next_timer:
            return
        for task_id in [task_id for task_id, due in self._timers.items() if due <= now]:
            del self._timers[task_id]
            self.wake(self.running[task_id])
        self._next_timer = min(self._timers.values(), default=NEVER)

    def rest(self) -> None:
        """Let the tasks rest that have nothing left to do, after a round has processed and punctuated all that are awake."""
        for task in list(self.awake.values()):
            if task.task.at_rest:
                del self.awake[task.id]
                due = task.task.next_wall_clock
                if due is not None:
                    self._timers[task.id] = due
                    self._next_timer = min(self._next_timer, due)

    # -- Commit -------------------------------------------------------------------------------------------------------

    def commit_if_due(self) -> bool:
        """Commit if the interval has passed or a task has requested it; return whether anything was committed."""
        return self._committer.commit_if_due(self.awake.values(), self.running.values())

    def commit(self) -> bool:
        """Commit all tasks; return whether there was anything to commit (Committer.commit)."""
        return self._committer.commit(self.running.values())

    # -- Failures -----------------------------------------------------------------------------------------------------

    def handle_corruption(self, error: TaskCorruptedError) -> None:
        """Close the running tasks without a commit, and restart them from their last commit (TaskManager.handleCorruption).

        The stores on disk match that commit, unless the error reports damage. Raises the error for a store that can't be
        restored.
        """
        damage = error if error.on_disk else None
        wiped, failures = False, []
        for task in list(self.running.values()):
            try:
                wiped = self._close(task, quietly=True, damage=damage) or wiped
            except Exception as failure:
                failures.append(failure)
        if failures:
            raise failures[0]
        if damage is not None and not wiped:
            raise error  # a global store
        self.create_missing()

    def lose_all(self) -> None:
        """Close all active tasks without a commit, since others may already own them.

        Standbys stay (TaskManager.handleLostAll).
        """
        self._wanted = {task_id: active for task_id, active in self._wanted.items() if not active}
        self._close_all(list(self.running.values()), quietly=True)
        self._let_go(self.updater.take([task.id for task in self.updater.tasks() if task.active]), quietly=True)

    def close(self, *, clean: bool, wait: Callable[[], bool] = lambda: False) -> None:
        """Close all tasks; `clean`: commit and write checkpoints first. Raises the error of a clean close.

        `wait`: waits a moment if a rebalance postpones the commit, or brokers are not ready for it, and returns whether to try
        again.
        """
        try:
            if clean:
                committed = self._commit_last(wait, "the last records will be processed again")
                for task in self.running.values():
                    task.task.close_processors()
                if not (committed and self._commit_last(wait, "what processors forwarded in close() has no commit")):
                    self._write_last()
                for task in self.running.values():
                    task.checkpoint(enforce=True)
        except BaseException:
            clean = False
            raise
        finally:
            self._wanted = {}
            try:
                self._close_all(list(self.running.values()), quietly=not clean)
            finally:
                self.updater.stop()
                self.updater.close()
                self._let_go(self.updater.take([task.id for task in self.updater.tasks()]), quietly=not clean)

    def _commit_last(self, wait: Callable[[], bool], consequence: str) -> bool:
        """Commit; return False if a rebalance takes too long. `consequence`: of a missing commit, for the log."""
        while True:
            failure = None
            try:
                self.commit()
            except (RetriableTransportError, UnreachableError) as error:
                # Such as markers of the commit before, which are not there yet.
                failure = error
            if failure is None and not self._committer.postponed:
                return True
            if not wait():
                busy = "brokers do not take its last commit" if failure else "the group is still in a rebalance"
                log.warning("%s: %s; %s", self._owner, busy, consequence)
                if failure is not None:
                    raise failure
                return False

    def _write_last(self) -> None:
        """Write without a commit what processors forwarded when they were closed: no record would cause it again.

        Under exactly-once the close of the tasks reports it as lost.
        """
        ended = [task for task in self.running.values() if task.task.wrote_at_end and task.task.commit_needed]
        if ended and not self._settings.exactly_once:
            self._committer.write(ended)
            for task in ended:
                task.task.wrote_at_end = False

    def _wipe_damaged(self, task_id: TaskId, error: TaskCorruptedError) -> bool:
        """Delete the damaged store of a task so that it is restored, or all stores with changelogs if none is named.

        Returns whether the damaged store belongs to this task. Raises the error for a store without a changelog.
        """
        directory, name = self._shared.directory, str(task_id)
        folder = directory.task(name)
        if error.path is not None and folder not in error.path.parents:
            return False
        stores = self._changelogs(task_id, persistent=True)
        damaged = [store for store in stores if error.path in (None, directory.store(name, store))]
        if error.path is not None and not damaged:
            raise error
        log.warning("task %s: %s; it is restored from its changelogs", name, error)
        delete_checkpoint(folder)
        for store in damaged:
            directory.wipe_store(name, store)
        return True

    # -- Inside -------------------------------------------------------------------------------------------------------

    def _create(self, task_id: TaskId) -> LocalTask:
        shared = self._shared
        plan = shared.plan
        sub = next(part for part in plan.sub_topologies if part.id == task_id.sub_topology)
        name = str(task_id)
        persistent = self._changelogs(task_id, persistent=True)
        unlogged = [
            store for store in sub.stores if plan.stores[store].persistent and plan.changelog_name(store) is None
        ]
        spec = TaskSpec(name, task_id.partition, sub, shared.program(sub), shared.topics.partitions_of(task_id))
        environment = TaskEnvironment(
            plan,
            clock=shared.clock,
            open_store=self.stores.open,
            partitions=shared.partitions,
            elapsed=shared.elapsed,
            handlers=self._settings.handlers,
            idling=self._settings.idling,
            emit_intervals=self._settings.emit_intervals,
            global_stores=shared.global_stores,
            print_line=shared.print_line,
            stopping=self.stopping,
            max_request_size=self._settings.max_request_size,
            tracing=None if shared.telemetry is None else shared.telemetry.tracing,
            measures_latency=True,
        )
        files = open_files(shared.directory, name, persistent, self._settings.exactly_once, unlogged)
        changelogs = self._changelogs(task_id)
        # A transaction has the changelogs and the output together.
        owned = {} if self._settings.exactly_once else changelogs
        last = frozenset(
            partition.topic
            for store, (partition, is_input) in owned.items()
            if not is_input and plan.stores[store].kind.compared
        )
        local_task = LocalTask(task_id, Task(spec, environment), files, changelogs, last)
        if files.offsets is not None:
            shared.directory.upgrade(name)
        return local_task

    def _changelogs(self, task_id: TaskId, *, persistent: bool = False) -> dict[str, tuple[TopicPartition, bool]]:
        """Return a task's changelogs by store: the partition, and whether it is an input of the task."""
        plan = self._shared.plan
        sub = next(part for part in plan.sub_topologies if part.id == task_id.sub_topology)
        return {
            name: (TopicPartition(topic, task_id.partition), plan.stores[name].source_topic is not None)
            for name in sub.stores
            if (topic := plan.changelog_name(name)) is not None and (plan.stores[name].persistent or not persistent)
        }

    def _start(self, task: LocalTask) -> None:
        # First, because a task that runs without its partitions would wait forever.
        self._committer.consumer.add(task.start_positions)
        self.running[task.id] = task
        self.by_partition.update(dict.fromkeys(task.start_positions, task))
        self.wake(task)
        task.run()
        task.task.start(task.committed)
        task.commit_positions(task.at_end)
        self._committer.send(task)

    def _let_go(self, tasks: Sequence[LocalTask], *, quietly: bool = False) -> None:
        """Close tasks that no longer run here, and pass tasks that change their role to the updater.

        A task that fails is closed; if its store is damaged, it is restored. Raises the first other error after the last
        task, unless `quietly`.
        """
        closing: list[LocalTask] = []
        errors: list[BaseException] = []
        for task in tasks:
            if isinstance(task.error, TaskCorruptedError):
                # It left the updater before `collect_restored`.
                errors += self._close_failed(task, task.error)
                continue
            active = self._wanted.get(task.id)
            try:
                if task.id in self.running:
                    self._remove_running(task)
                task.suspend()
                if active is not None:
                    task.follow(active=active)
            except Exception as error:
                log.debug("suspending %s failed", task.name, exc_info=True)
                errors += self._close_failed(task, error)
                continue
            if active is None:
                closing.append(task)
            else:
                self.updater.add(task)
        self._close_all(closing, quietly=quietly)
        if errors and not quietly:
            raise errors[0]

    def _close_failed(self, task: LocalTask, error: BaseException | None) -> list[BaseException]:
        """Close a task that failed, and return the error unless the task is restored instead: its state is damaged.

        The damaged store may belong to another task that failed with it.
        """
        damage = error if isinstance(error, TaskCorruptedError) else None
        try:
            self._close(task, quietly=True, damage=damage)
        except Exception as failure:
            return [failure]
        return [] if error is damage or error is None else [error]

    def _close_all(self, tasks: Iterable[LocalTask], *, quietly: bool) -> None:
        """Close tasks, running ones too. Raises the first error after the last task, unless `quietly`."""
        errors: list[Exception] = []
        for task in tasks:
            try:
                self._close(task, quietly=quietly)
            except Exception as error:
                errors.append(error)
        if errors and not quietly:
            raise errors[0]

    def _remove_running(self, task: LocalTask) -> None:
        """Remove a task from the running ones, also if the consumer fails: it must not commit after an abort."""
        partitions = [partition for partition, owner in self.by_partition.items() if owner is task]
        for partition in partitions:
            del self.by_partition[partition]
        del self.running[task.id]
        self.awake.pop(task.id, None)
        self._timers.pop(task.id, None)
        self._committer.consumer.remove(partitions)

    def _close(self, task: LocalTask, *, quietly: bool, damage: TaskCorruptedError | None = None) -> bool:
        """Close a task, a running one too, and give up the claim to it.

        The store that `damage` reports is wiped before, since another thread may open it right after. Returns whether it
        belongs to this task. Raises the errors of `_wipe_damaged`, and unless `quietly` those of the close.
        """
        try:
            self._close_stores(task, quietly=quietly)
            return damage is not None and self._wipe_damaged(task.id, damage)
        finally:
            self._shared.claims.release(task.id, self._owner)
            self._shared.cycles.note_closed()

    def _close_stores(self, task: LocalTask, *, quietly: bool) -> None:
        try:
            try:
                if task.id in self.running:
                    self._remove_running(task)
            finally:
                is_committed = task.task.closing and not task.task.commit_needed
                task.task.close()
                if task.task.wrote_at_end and not is_committed:
                    # No record causes it again: a processor may have collected it since long before the last commit.
                    log.warning("task %s: what its processors forwarded in close() is lost", task.name)
                if task.files.directory is not None:
                    self._shared.directory.release(task.name)
        except Exception:
            # An error of the close must not hide an earlier one.
            if not quietly:
                raise
            log.debug("closing %s failed", task.name, exc_info=True)
