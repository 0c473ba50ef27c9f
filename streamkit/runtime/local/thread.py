"""A stream thread: its consumer and producer, and the loop: poll, process, punctuate, commit (StreamThread)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from streamkit.errors import (
    FencedError,
    RetriableTransportError,
    StreamkitError,
    TaskCorruptedError,
    UnreachableError,
)
from streamkit.record import TopicPartition
from streamkit.runtime.environment import TaskEnvironment, TaskSpec
from streamkit.runtime.local.active import RUNNING, ActiveTask, open_files
from streamkit.runtime.local.assignor import Id
from streamkit.runtime.local.committer import Committer
from streamkit.runtime.local.counters import ThreadCounters
from streamkit.runtime.local.gate import Gate
from streamkit.runtime.local.pace import Pace
from streamkit.runtime.local.restore import restore
from streamkit.runtime.local.setup import Shared
from streamkit.runtime.local.states import ThreadState, check_transition
from streamkit.runtime.stores import DirectoryStores
from streamkit.runtime.task import Task
from streamkit.transport.base import EARLIEST, LATEST, CommittedOffset

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.1
"""How long a thread waits after a passing fault."""


class StreamThread:
    """Runs the tasks that it is assigned until it is told to stop or something fails for good."""

    def __init__(self, name: str, shared: Shared, transactional_id: str | None = None):
        self.name = name
        self.state = ThreadState.CREATED
        self.error: BaseException | None = None
        self.activity = 0
        """Grows with everything that the thread does: unchanged between two looks means idle in between."""
        self.idle = False
        """Whether the last round found nothing and left nothing to commit."""
        self.positions: dict[TopicPartition, int] = {}
        """The next offsets to read, as of the last idle round."""
        self.counters = ThreadCounters()
        self.gate = Gate()
        """Held whenever the thread may touch its tasks and their stores."""
        self._shared = shared
        self._settings = shared.settings
        self._stores = DirectoryStores(shared.plan, shared.directory, shared.cache_bytes)
        self._tasks: dict[Id, ActiveTask] = {}
        self._by_partition: dict[TopicPartition, Task] = {}
        self._paused: set[TopicPartition] = set()
        self._pace = Pace(self._settings.max_poll_interval_ms)
        self._assigned: list[Id] | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._settled = threading.Event()
        self._transactional_id = transactional_id
        self._thread = threading.Thread(target=self.run, name=name, daemon=True)

    # -- From other threads ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start."""
        self._thread.start()

    def assign(self, active: Sequence[Id], standby: Sequence[Id] = ()) -> None:
        """Have the thread run exactly these tasks, and keep these standbys, from its next round on."""
        with self._lock:
            self._assigned = list(active)
            self._settled.clear()
            self.idle = False

    def settled(self) -> bool:
        """Return whether the last assignment is in force: what it took away is closed, what it gave runs."""
        return self._settled.is_set()

    def stores(self, name: str) -> list[tuple[int, Any, bool]]:
        """Return (partition, store, whether active) of a store in the thread's tasks; for who came through the gate."""
        if self.state is not ThreadState.RUNNING:
            return []
        tasks = [active.task for active in self._tasks.values()]
        return [(task.partition, task.stores[name], True) for task in tasks if name in task.stores]

    def offset_sums(self) -> dict[Id, int]:
        """Return how far each stateful task of the thread is: RUNNING, or the sum of its changelogs' offsets."""
        return {task: RUNNING for task, active in list(self._tasks.items()) if active.changelog_partitions()}

    def stop(self) -> None:
        """Ask the thread to commit, close its tasks and end."""
        self._stop.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end, at most `timeout` seconds; return whether it came."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    # -- The thread ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until stopped; what ends the thread otherwise is in `error`."""
        clean = False
        self.gate.hold()
        try:
            self._open()
            self._to(ThreadState.STARTING)
            while not self._stop.is_set():
                self._round()
            clean = True
        except BaseException as error:
            self.error = error
            log.debug("%s failed", self.name, exc_info=True)
        finally:
            try:
                self._shut_down(clean)
            finally:
                self.gate.release()

    def _open(self) -> None:
        shared = self._shared
        application = shared.plan.application
        exactly_once = self._settings.exactly_once
        transport = shared.transport
        self._consumer = transport.consumer(application, read_committed=exactly_once, client_id=f"{self.name}-consumer")
        self._restorer = transport.consumer(
            None, read_committed=exactly_once, role="restore", client_id=f"{self.name}-restore-consumer"
        )
        producer = transport.producer(transactional_id=self._transactional_id, client_id=f"{self.name}-producer")
        self._committer = Committer(shared, self._consumer, self._restorer, producer)
        # Fences a predecessor and ends its transaction before committed offsets are read.
        self._committer.begin()

    def _round(self) -> None:
        try:
            self._take_assignment()
            self._publish()
            with self.gate.opened(), self.counters.timed("poll"):
                batches = self._consumer.poll(self._settings.max_poll_records, self._settings.poll_ms)
            polled_at = self._shared.clock()
            for batch in batches:
                self._by_partition[TopicPartition(batch.topic, batch.partition)].add(batch)
                self.counters.add("poll-records-total", len(batch.offsets))
            self.counters.add("poll-total")
            self._update_lags()
            with self.counters.timed("process"):
                worked = self._process(polled_at)
            self._balance_fetching()
        except TaskCorruptedError as error:
            log.warning("%s: %s; its tasks are restored from their changelogs", self.name, error)
            self._revive(wipe=True)
            return
        except FencedError as error:
            if self._shared.coordinator is None or self._shared.coordinator.group_metadata() is None:
                raise
            # The group went on without this commit; a rebalance says what is left, until then from the last commit on.
            log.warning("%s: %s; its tasks start again from their last commit", self.name, error)
            self._revive(wipe=False)
            return
        except (RetriableTransportError, UnreachableError) as error:
            self._committer.failed(error)
            with self.gate.opened():
                self._stop.wait(RETRY_SECONDS)
            return
        self._committer.went_well()
        self._note_idleness(bool(batches) or worked)

    def _process(self, polled_at: int) -> bool:
        """Let tasks process, punctuate and commit until nothing is left; return whether anything happened."""
        worked = False
        pace, committer, clock = self._pace, self._committer, self._shared.clock
        tasks = list(self._tasks.values())
        add = self.counters.add
        while True:
            count = 0
            for active in tasks:
                count += active.task.process(pace.records)
                committer.send(active)
                self.gate.let_in()
            add("process-total", count)
            interrupted = False
            for active in tasks:
                if active.task.punctuate():
                    interrupted = True
                    add("punctuate-total")
                    committer.send(active)
            began = perf_counter()
            if committer.commit_if_due(tasks):
                interrupted = True
                add("commit-total")
                add("commit-seconds", perf_counter() - began)
            worked = worked or interrupted or count > 0
            if not count or self._stop.is_set():
                return worked
            pace.after(interrupted=interrupted, since_poll_ms=clock() - polled_at)

    def _publish(self, *, now: bool = False) -> None:
        self.counters.publish(self._tasks.values(), self._consumer.position, now=now)

    def _update_lags(self) -> None:
        """Tell tasks that wait for empty partitions how far these lag; the log is asked only where it matters."""
        if self._settings.max_idle_ms < 0:
            return
        for active in self._tasks.values():
            task = active.task
            inputs = task.inputs
            if len(inputs) == 1 or not task.has_records():
                continue
            empty = [partition for partition in inputs if not task.buffered(partition)]
            if empty:
                ends = self._consumer.end_offsets(empty)
                task.set_lags({tp: max(0, ends[tp] - self._consumer.position(tp)) for tp in empty})

    def _balance_fetching(self) -> None:
        """Stop fetching what a task has enough of, fetch again what it has room for (buffered.records.per.partition).

        Once a round instead of once a batch: queues are nearly always empty by now, and pausing costs a request.
        """
        limit = self._settings.buffered_records
        full = {tp for tp, task in self._by_partition.items() if task.buffered(tp) > limit}
        if full != self._paused:
            self._consumer.resume(self._paused - full)
            self._consumer.pause(full - self._paused)
            self._paused = full

    def _note_idleness(self, worked: bool) -> None:
        if worked:
            self.activity += 1
            self.idle = False
            return
        if self._shared.until_idle.is_set():
            if self._committer.commit(self._tasks.values()):
                self.activity += 1
            self.positions = {tp: self._consumer.position(tp) for tp in self._by_partition}
        with self._lock:
            self.idle = self._assigned is None and not any(
                active.task.commit_needed or active.task.has_records() for active in self._tasks.values()
            )

    # -- Assignment ---------------------------------------------------------------------------------------------------

    def _take_assignment(self) -> None:
        with self._lock:
            wanted, self._assigned = self._assigned, None
        if wanted is None:
            return
        self.activity += 1
        try:
            self._change_to(wanted)
            self._publish(now=True)
        except (FencedError, RetriableTransportError, UnreachableError, TaskCorruptedError) as error:
            # Tried again in the next round, unless something newer was assigned meanwhile.
            with self._lock:
                self._assigned = wanted if self._assigned is None else self._assigned
            if isinstance(error, TaskCorruptedError):
                # What could not be trusted is deleted; the other tasks go on.
                return
            raise
        with self._lock:
            if self._assigned is None:
                self._settled.set()

    def _change_to(self, wanted: list[Id]) -> None:
        self._to(ThreadState.PARTITIONS_REVOKED)
        gone = [task for task in self._tasks if task not in wanted]
        if gone:
            # Before anything is closed: a commit that fails in passing is tried again.
            self._committer.commit([self._tasks[task] for task in gone])
            self._close([self._tasks.pop(task) for task in gone], clean=True)
            self.counters.add("task-closed-total", len(gone))
        self._to(ThreadState.PARTITIONS_ASSIGNED)
        self._add_tasks([task for task in wanted if task not in self._tasks])
        if not self._stop.is_set():
            self._to(ThreadState.RUNNING)

    def _add_tasks(self, ids: list[Id]) -> None:
        """Create, restore and start tasks; all of them or none. What is not restored to the end is no task yet."""
        fresh: dict[Id, ActiveTask] = {}
        started = False
        try:
            for task in ids:
                fresh[task] = self._create(task)
            started = self._start_tasks(list(fresh.values()))
        except TaskCorruptedError as error:
            log.warning("%s: %s; its tasks are restored from their changelogs", self.name, error)
            self._drop(fresh)
            for sub, partition in fresh:
                self._shared.directory.wipe(f"{sub}_{partition}")
            fresh = {}
            raise
        finally:
            if not started:
                self._drop(fresh)
        if started:
            self._tasks.update(fresh)
            self.counters.add("task-created-total", len(fresh))

    def _drop(self, tasks: dict[Id, ActiveTask]) -> None:
        """Close tasks that could not be started; their files stay as the last checkpoint says."""
        for active in tasks.values():
            self._by_partition = {tp: task for tp, task in self._by_partition.items() if task is not active.task}
            self._consumer.remove(active.task.inputs)
            try:
                active.task.close()
            except Exception:
                log.debug("closing %s failed", active.id, exc_info=True)

    def _create(self, task: Id) -> ActiveTask:
        shared = self._shared
        sub = next(each for each in shared.plan.sub_topologies if each.id == task[0])
        task_id = f"{task[0]}_{task[1]}"
        plan = shared.plan
        persistent = any(plan.stores[name].persistent for name in sub.stores)
        files = open_files(shared.directory, task_id, persistent, self._settings.exactly_once)
        spec = TaskSpec(task_id, task[1], sub, shared.program(sub), shared.topics.partitions_of(task))
        environment = TaskEnvironment(
            plan,
            clock=shared.clock,
            open_store=self._stores.open,
            partitions=shared.topics.count,
            handlers=self._settings.handlers,
            idling=self._settings.idling,
            global_stores=shared.global_stores,
        )
        names = {
            name: (topic, plan.stores[name].source_topic is not None)
            for name in sub.stores
            if (topic := plan.changelog_name(name)) is not None
        }
        return ActiveTask(Task(spec, environment), files, names)

    def _start_tasks(self, tasks: list[ActiveTask]) -> bool:
        """Bring tasks to where they stopped; False when the thread was stopped before the end."""
        inputs = [partition for active in tasks for partition in active.task.inputs]
        committed = self._consumer.committed(inputs) if inputs else {}
        changelogs = [changelog for active in tasks for changelog in active.changelogs(committed)]
        if not restore(changelogs, self._restorer, self._stop.is_set, self._shared.restorations.progress):
            return False
        self._consumer.add({partition: self._start_of(partition, committed) for partition in inputs})
        for active in tasks:
            active.task.start(committed)
            self._by_partition.update(dict.fromkeys(active.task.inputs, active.task))
            self._committer.send(active)
        return True

    def _start_of(self, partition: TopicPartition, committed: dict[TopicPartition, CommittedOffset]) -> int:
        if partition in committed:
            return committed[partition].offset
        topic = self._shared.plan.external_topics.get(partition.topic)
        reset = topic.reset if topic is not None else "earliest"
        if reset == "none":
            raise StreamkitError(
                f"no offset is committed for {partition.topic}-{partition.partition}, and its reset policy is none"
            )
        return LATEST if reset == "latest" else EARLIEST

    def _revive(self, *, wipe: bool) -> None:
        """Close all tasks as they are and start again from committed offsets; `wipe`: without what is on disk."""
        tasks = list(self._tasks)
        self._committer.abort()
        self._close(list(self._tasks.values()), clean=False)
        self._tasks = {}
        if wipe:
            for sub, partition in tasks:
                self._shared.directory.wipe(f"{sub}_{partition}")
        with self._lock:
            if self._assigned is None:
                self._assigned = tasks
                self._settled.clear()

    def _close(self, tasks: list[ActiveTask], *, clean: bool) -> None:
        partitions = [tp for tp, task in self._by_partition.items() if any(task is active.task for active in tasks)]
        try:
            if clean:
                self._committer.commit(tasks)
                self._committer.checkpoint(tasks, enforce=True)
        finally:
            for tp in partitions:
                del self._by_partition[tp]
                self._paused.discard(tp)
            for active in tasks:
                try:
                    active.task.close()
                except Exception:
                    # A close that fails after something else did must not hide it.
                    if clean:
                        raise
                    log.debug("closing %s failed", active.id, exc_info=True)
            if partitions:
                self._consumer.remove(partitions)

    # -- End ----------------------------------------------------------------------------------------------------------

    def _shut_down(self, clean: bool) -> None:
        self._to(ThreadState.PENDING_SHUTDOWN)
        if not clean and not self._settings.exactly_once:
            # What was put out before the failure is out, dead letters included; offsets are not committed.
            self._send_rest()
        try:
            self._close(list(self._tasks.values()), clean=clean)
        except BaseException as error:
            self.error = self.error or error
        self._tasks = {}
        for name in ("_committer", "_consumer", "_restorer"):
            resource = getattr(self, name, None)
            try:
                if resource is not None:
                    resource.close()
            except BaseException as error:
                self.error = self.error or error
        self._to(ThreadState.DEAD)

    def _send_rest(self) -> None:
        try:
            for active in self._tasks.values():
                self._committer.send(active)
        except Exception:
            log.debug("%s: sending the rest failed", self.name, exc_info=True)

    def _to(self, state: ThreadState) -> None:
        check_transition(self.state, state)
        self.state = state
        self._shared.changed(self)
