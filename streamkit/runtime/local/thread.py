"""A stream thread: its consumer and producer, and the loop: poll, process, punctuate, commit (StreamThread)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import partial
from time import monotonic, perf_counter
from typing import Any

from streamkit.errors import (
    FencedError,
    OffsetOutOfRangeError,
    RetriableTransportError,
    TaskCorruptedError,
    UnreachableError,
)
from streamkit.record import TopicPartition
from streamkit.runtime.local.assignor import Id
from streamkit.runtime.local.committer import Committer
from streamkit.runtime.local.counters import ThreadCounters
from streamkit.runtime.local.gate import Gate
from streamkit.runtime.local.local_task import LocalTask
from streamkit.runtime.local.pace import Pace
from streamkit.runtime.local.patience import Patience
from streamkit.runtime.local.progress import RestoreProgress
from streamkit.runtime.local.setup import Shared
from streamkit.runtime.local.starts import reset_positions
from streamkit.runtime.local.states import ThreadState, check_transition
from streamkit.runtime.local.tasks import TaskManager, names
from streamkit.runtime.local.updater import StateUpdater
from streamkit.transport.base import EARLIEST, LATEST, Producer

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.1
"""How long a thread waits after a passing fault."""


class StreamThread:
    """Runs the tasks that it is assigned until it is told to stop or something fails for good."""

    def __init__(self, name: str, shared: Shared, transactional_id: str | None = None, number: int = 1):
        self.name = name
        self.number = number
        self.state = ThreadState.CREATED
        self.error: BaseException | None = None
        self.activity = 0
        """Grows with everything that the thread does: unchanged between two looks means idle in between."""
        self.idle = False
        """Whether the last round found nothing and left nothing to commit."""
        self.positions: dict[TopicPartition, int] = {}
        """The next offsets to read, as of the last idle round."""
        self.polled_at = monotonic()
        """When the thread last came around to polling: a sign of life, on the monotonic clock."""
        self.counters = ThreadCounters()
        self.gate = Gate()
        """Held whenever the thread may touch its tasks and their stores."""
        self.lost = threading.Event()
        """Set: the thread has given up its active tasks because the group may have gone on without them."""
        self._shared = shared
        self._settings = shared.settings
        self._tasks = TaskManager(name, shared)
        self._paused: set[TopicPartition] = set()
        self._patience = Patience(self._settings.task_timeout_ms, shared.elapsed)
        self._pace = Pace(self._settings.max_poll_interval_ms)
        self._assigned: tuple[list[Id], list[Id]] | None = None
        self._last_assignment: tuple[list[Id], list[Id]] = [], []
        self._lose = False
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._settled = threading.Event()
        self._transactional_id = transactional_id
        self._thread = threading.Thread(target=self.run, name=name, daemon=True)

    # -- From other threads ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start."""
        self.polled_at = monotonic()
        self._thread.start()

    def assign(self, active: Sequence[Id], standby: Sequence[Id] = ()) -> None:
        """Have the thread run exactly these tasks, and keep these standbys, from its next round on."""
        with self._lock:
            self._assigned = self._last_assignment = list(active), list(standby)
            self._settled.clear()
            self.idle = False

    @property
    def assignment(self) -> tuple[list[Id], list[Id]]:
        """What the thread was told last to run, and to keep standbys of."""
        return self._last_assignment

    def resize_cache(self, cache_bytes: int) -> None:
        """Have the thread's caches hold so many bytes together; what is too much leaves with the next writes."""
        self._tasks.stores.resize(cache_bytes)

    def lose(self) -> None:
        """Have the thread give up all active tasks as they are: others own them now (TaskManager.handleLostAll)."""
        with self._lock:
            self._lose = True
            self._assigned = None
            self._settled.clear()
            self.idle = False

    def settled(self) -> bool:
        """Return whether the last assignment is in force: what it took away is closed, what it gave is held here."""
        return self._settled.is_set()

    def stores(self, name: str) -> list[tuple[int, Any, bool]]:
        """Return (partition, store, True) of a store in the tasks that run; for who came through the gate."""
        tasks = [held.task for held in self._tasks.running.values()]
        return [(task.partition, task.stores[name], True) for task in tasks if name in task.stores]

    def offset_sums(self) -> dict[Id, int]:
        """Return how far each stateful task of the thread is: RUNNING, or the sum of its changelogs' offsets."""
        return self._tasks.offset_sums()

    @property
    def updater(self) -> StateUpdater:
        """What restores the thread's tasks, and keeps its standbys."""
        return self._tasks.updater

    def held(self) -> list[LocalTask]:
        """Return the tasks that are here, active and standby."""
        return self._tasks.held()

    def restore_progress(self) -> list[RestoreProgress]:
        """Return how far the stores are that are being restored, or follow as standbys."""
        return self._tasks.updater.progress()

    def stop(self) -> None:
        """Ask the thread to commit, close its tasks and end."""
        self._stop.set()

    @property
    def stopping(self) -> bool:
        """Whether the thread was asked to end, or has."""
        return self._stop.is_set() or self.state in (ThreadState.PENDING_SHUTDOWN, ThreadState.DEAD)

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
            self._tasks.updater.start()
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
        shared, transport = self._shared, self._shared.transport
        self._consumer = transport.consumer(
            shared.plan.application, read_committed=self._settings.read_committed, client_id=f"{self.name}-consumer"
        )
        self._committer = Committer(shared, self._consumer, self._make_producer, self.gate)
        self._tasks.connect(self._consumer, self._committer)

    def _make_producer(self) -> Producer:
        client_id = f"{self.name}-producer"
        return self._shared.transport.producer(transactional_id=self._transactional_id, client_id=client_id)

    def _round(self) -> None:
        tasks = self._tasks
        self.polled_at = monotonic()
        try:
            # Fences a predecessor and ends its transaction before committed offsets are read.
            self._committer.begin()
            self._take_assignment()
            started = tasks.collect()
            self.counters.add("task-created-total", started)
            self._join_in()
            self._publish()
            with self.gate.opened(), self.counters.timed("poll"):
                batches = self._consumer.poll(self._settings.max_poll_records, self._settings.poll_ms)
            polled_at = self._shared.elapsed()
            for batch in batches:
                tasks.by_partition[TopicPartition(batch.topic, batch.partition)].add(batch)
                self.counters.add("poll-records-total", len(batch.offsets))
            self.counters.add("poll-total")
            self._update_lags()
            with self.counters.timed("process"):
                worked = not self._shared.paused.is_set() and self._process(polled_at)
            self._balance_fetching()
            self._note_idleness(bool(batches or worked or started))
        except TaskCorruptedError as error:
            if not error.on_disk:  # else the line is that of the store
                log.warning("%s: %s; its tasks start again from their last commit", self.name, error)
            self._committer.restart()
            tasks.revive(error)
        except FencedError as error:
            self._fenced(error)
        except OffsetOutOfRangeError as error:
            self._reset(error)
        except (RetriableTransportError, UnreachableError) as error:
            # A failed read costs only time; what waits to be committed must not wait forever.
            waiting = [task for task in tasks.running.values() if task.task.commit_needed]
            self._patience.bear(error, names(waiting))
            with self.gate.opened():
                self._stop.wait(RETRY_SECONDS)

    def _fenced(self, error: FencedError) -> None:
        """Give up everything active: others may have it. What is left, the group says next (TaskMigratedException)."""
        if not self._has_group():
            raise error
        log.warning("%s: %s; its tasks are given up, the group assigns them again", self.name, error)
        with self._lock:
            # What was assigned before is no longer true.
            self._assigned = None
        self._give_up()
        self._settled.set()
        self.lost.set()

    def _has_group(self) -> bool:
        coordinator = self._shared.coordinator
        return coordinator is not None and coordinator.group_metadata() is not None

    def _give_up(self) -> None:
        self._committer.restart()
        self._tasks.lose()

    def _reset(self, error: OffsetOutOfRangeError) -> None:
        """Go where the topic's reset policy says: the records at the committed offset are gone. Raises StreamkitError."""
        partition = TopicPartition(error.topic, error.partition)
        position = reset_positions(self._shared, self._consumer, [partition])[partition]
        where = {LATEST: "the end", EARLIEST: "the beginning"}.get(position, f"offset {position}")
        log.warning("%s; going on from %s", error, where)
        self._consumer.remove([partition])
        self._consumer.add({partition: position})

    def _process(self, polled_at: int) -> bool:
        """Let tasks process, punctuate and commit until nothing is left; return whether anything happened."""
        worked = False
        pace, committer, elapsed = self._pace, self._committer, self._shared.elapsed
        tasks = list(self._tasks.running.values())
        add = self.counters.add
        while True:
            count, interrupted = 0, False
            for held in tasks:
                count += held.task.process(pace.records)
                committer.send(held)
                # Who reads must not wait for long batches.
                interrupted = self.gate.let_in() or interrupted
            add("process-total", count)
            for held in tasks:
                if held.task.punctuate():
                    interrupted = True
                    add("punctuate-total")
                    committer.send(held)
            began = perf_counter()
            if self._tasks.commit_if_due():
                interrupted = True
                add("commit-total")
                add("commit-seconds", perf_counter() - began)
                self._patience.relieve(names(tasks))
            expiring = any(held.task.expiring for held in tasks)
            worked = worked or interrupted or count > 0 or expiring
            if not (count or expiring) or self._stop.is_set():
                return worked
            pace.after(interrupted=interrupted, since_poll_ms=elapsed() - polled_at)

    def _publish(self, *, now: bool = False) -> None:
        self.counters.publish(self._tasks.running.values(), self._consumer.position, now=now)

    def _update_lags(self) -> None:
        """Tell tasks that wait for empty partitions how far these lag."""
        if self._settings.max_idle_ms < 0:
            return
        for held in self._tasks.running.values():
            task = held.task
            inputs = task.inputs
            if len(inputs) == 1 or not task.has_records():
                continue
            empty = [partition for partition in inputs if not task.buffered(partition)]
            if empty:
                task.set_lags(self._consumer.lags(empty))

    def _balance_fetching(self) -> None:
        """Stop fetching what a task has enough of, fetch again below the limit (buffered.records.per.partition).

        Once a round instead of once a batch: queues are nearly always empty by now, and pausing costs a request.
        """
        limit = self._settings.buffered_records
        full = {tp for tp, task in self._tasks.by_partition.items() if task.buffered(tp) > limit}
        if full != self._paused:
            self._consumer.resume((self._paused - full) & self._tasks.by_partition.keys())
            self._consumer.pause(full - self._paused)
            self._paused = full

    def _note_idleness(self, worked: bool) -> None:
        self._patience.relieve()
        if worked:
            self.activity += 1
            self.idle = False
            return
        tasks = self._tasks
        if self._shared.until_idle.is_set():
            for held in tasks.running.values():
                held.keep_ends()
            if tasks.commit():
                self.activity += 1
            self.positions = {tp: self._consumer.position(tp) for tp in tasks.by_partition}
        with self._lock:
            self.idle = (
                self._assigned is None
                and tasks.restored
                and not any(held.task.commit_needed or held.task.has_records() for held in tasks.running.values())
            )

    # -- Assignment ---------------------------------------------------------------------------------------------------

    def _take_assignment(self) -> None:
        with self._lock:
            wanted, self._assigned = self._assigned, None
            lose, self._lose = self._lose, False
        if lose:
            self._give_up()
        if wanted is None:
            if not self._settled.is_set():
                self._tasks.create_missing()
        else:
            self.activity += 1
            try:
                self._change_to(*wanted)
                self._publish(now=True)
            except (FencedError, RetriableTransportError, UnreachableError, TaskCorruptedError):
                # Tried again in the next round, unless something newer was assigned meanwhile.
                with self._lock:
                    self._assigned = wanted if self._assigned is None else self._assigned
                raise
        with self._lock:
            if self._assigned is None and self._tasks.settled:
                self._settled.set()

    def _change_to(self, active: list[Id], standby: list[Id]) -> None:
        leaving = sum(task not in active for task in self._tasks.running)
        if leaving:
            self._to(ThreadState.PARTITIONS_REVOKED)
        self._tasks.change_to(active, standby)
        self.counters.add("task-closed-total", leaving)
        self._to(ThreadState.PARTITIONS_ASSIGNED)

    def _join_in(self) -> None:
        """Run as soon as all active tasks do; until then those that do are not held up by the others."""
        if self.state is ThreadState.PARTITIONS_ASSIGNED and self._tasks.restored and not self._stop.is_set():
            self._to(ThreadState.RUNNING)

    # -- End ----------------------------------------------------------------------------------------------------------

    def _shut_down(self, clean: bool) -> None:
        self._to(ThreadState.PENDING_SHUTDOWN)
        if not clean and not self._settings.exactly_once:
            # What was put out before the failure is out, dead letters included; offsets are not committed.
            self._send_rest()
        committer, consumer = getattr(self, "_committer", None), getattr(self, "_consumer", None)
        close_tasks = partial(self._tasks.close, clean=clean)
        for close in (close_tasks, *(resource.close for resource in (committer, consumer) if resource is not None)):
            try:
                close()
            except BaseException as error:
                if isinstance(error, FencedError) and self._has_group():
                    # The group went on while the tasks were closed: their next owner begins at their last commit.
                    log.warning("%s: %s; its tasks go on from their last commit", self.name, error)
                else:
                    self.error = self.error or error
        self._to(ThreadState.DEAD)

    def _send_rest(self) -> None:
        try:
            for held in self._tasks.running.values():
                self._committer.send(held)
        except Exception:
            log.debug("%s: sending the rest failed", self.name, exc_info=True)

    def _to(self, state: ThreadState) -> None:
        check_transition(self.state, state)
        self.state = state
        self._shared.changed(self)
