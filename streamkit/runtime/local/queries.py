"""Interactive queries over the stores of one instance (StreamThreadStateStoreProvider, QueryableStoreProvider).

Reads run between the batches of the thread that owns the task: they see all earlier writes, including cached ones, and no
partial batch. A committed read sees what the last commit has (IsolationLevel, KIP-892).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import NamedTuple

from streamkit.errors import StateError, StoreUnavailableError, UnknownStoreError
from streamkit.metrics import Metrics
from streamkit.plan.model import Plan
from streamkit.record import TaskId
from streamkit.runtime.local.coordinator import Coordinator
from streamkit.runtime.local.gate import Gate
from streamkit.runtime.local.global_thread import GlobalThread
from streamkit.runtime.local.internal_topics import TopicsOnLog
from streamkit.runtime.local.local_task import sums_on_disk
from streamkit.runtime.local.rebalance_listener import Rebalance, RebalanceListener
from streamkit.runtime.local.restore import RestoreProgress
from streamkit.runtime.local.setup import Shared
from streamkit.runtime.local.states import ClientState, ThreadState
from streamkit.runtime.local.stream_thread import StreamThread, Threads
from streamkit.runtime.local.subscription_codec import InstanceMetadata, KeyMetadata, key_metadata
from streamkit.state.definitions import Query, Store, StoredRow
from streamkit.state.directory import StateDirectory
from streamkit.suggestions import did_you_mean, listed

WAIT_SECONDS = 10.0
"""How long a query waits for a thread that is busy with one batch."""


_ALIVE = (ThreadState.RUNNING, ThreadState.PARTITIONS_ASSIGNED, ThreadState.PARTITIONS_REVOKED)
Enter = Callable[[float], AbstractContextManager[None]]
"""Waits at most this many seconds until stores may be read."""
Find = Callable[[], "list[tuple[int, Store, bool]]"]
"""Returns (partition, store, whether its task is running); called inside the context of Enter."""


class Row(NamedTuple):
    """A row and its partition."""

    place: bytes
    partition: int
    row: StoredRow


@dataclass(frozen=True)
class Answer:
    """An ordered page of rows of several tasks, and the partitions that were read."""

    rows: list[Row]
    partitions: frozenset[int]
    standbys: frozenset[int]
    """The partitions that were read from a standby, or from a task that is being restored."""


class LocalStores:
    """The stores of this instance, for reads by any thread."""

    def __init__(self, application: InstanceMetadataReader):
        self._application = application
        self._plan = application.plan

    def read(
        self, name: str, query: Query, partitions: Collection[int] | None = None, *, stale: bool = False
    ) -> Answer:
        """Return a page of a store, from these partitions or all partitions of this instance.

        `stale`: also read standbys and restoring tasks if there is no active task. Raises UnknownStoreError,
        StoreUnavailableError before the tasks run or without one of `partitions`, QueryError.
        """
        require_store(self._plan, name)
        if query.committed is None:
            # Only what a query itself asks for is refused by a store without commits. Java's setting has no effect on such stores.
            keeps_commits = not self._plan.stores[name].kind.in_memory_only
            query = replace(query, committed=self._plan.config.queries_committed and keeps_commits)
        state = self._application.state
        if state not in (ClientState.RUNNING, ClientState.REBALANCING):
            raise StoreUnavailableError(f"the application is {state.value}: its stores can't be read")
        pages: dict[int, list[StoredRow]] = {}
        standbys = set()
        for enter, stores in self._places(name, stale):
            try:
                with enter(WAIT_SECONDS):
                    for partition, store, active in stores():
                        if partition in pages or (partitions is not None and partition not in partitions):
                            continue
                        pages[partition] = (store.committed() if query.committed else store).page(query, partition)
                        if not active:
                            standbys.add(partition)
            except StateError as error:
                raise StoreUnavailableError(f"store {name} can't be read now: {error}") from error
        if partitions is None and query.kind == "get" and not pages:
            raise StoreUnavailableError(f"store {name} has no running task here")
        missing = set(partitions or ()) - set(pages)
        if missing:
            wanted = ", ".join(map(str, sorted(missing)))
            raise StoreUnavailableError(f"store {name} has no running task for partition {wanted} here")
        return Answer(merged(pages, query), frozenset(pages), frozenset(standbys))

    def partitions(self, name: str) -> list[int]:
        """Return the partitions of a store in the whole application. Raises StoreUnavailableError before the start."""
        require_store(self._plan, name)
        tasks = self._application.tasks()
        owners = {sub.id for sub in self._plan.sub_topologies if name in sub.stores}
        return [partition for sub, partition in tasks if sub in owners]

    def _places(self, name: str, stale: bool) -> Iterator[tuple[Enter, Find]]:
        """Yield each lock with the function that finds the store under it: running tasks first, then tasks in the updaters."""
        application = self._application
        if is_global(self._plan, name):
            gate, find = application.global_stores(name)
            yield gate.entered, find
            return
        threads = list(application.threads)
        for thread in threads:
            # A thread that is applying an assignment may have tasks that it is about to close.
            if thread.state is ThreadState.RUNNING or (stale and thread.state in _ALIVE):
                yield thread.gate.entered, partial(_running_stores, thread, name, stale)
        for thread in threads if stale else ():
            yield thread.updater.entered, partial(thread.updater.stores, name)


def _running_stores(thread: StreamThread, name: str, stale: bool) -> list[tuple[int, Store, bool]]:
    # The state of the thread may have changed while the reader waited.
    return thread.stores(name) if stale or thread.state is ThreadState.RUNNING else []


def require_store(plan: Plan, name: str) -> None:
    """Raise UnknownStoreError with the nearest name unless the topology has the store."""
    if name in plan.stores:
        return
    hint = did_you_mean(name, plan.stores, f"it has {listed(plan.stores)}")
    raise UnknownStoreError(f"{plan.application} has no store {name}{hint}")


def is_global(plan: Plan, name: str) -> bool:
    """Return whether a store belongs to a global table, so that every instance has all its rows."""
    return any(sub.is_global and name in sub.stores for sub in plan.sub_topologies)


def merged(pages: dict[int, list[StoredRow]], query: Query) -> list[Row]:
    """Return the ordered merge of the sorted pages of several partitions, as one page."""
    columns = [[Row(row.place, partition, row) for row in rows] for partition, rows in pages.items()]
    rows = heapq.merge(*columns, key=lambda row: row[:2], reverse=query.reverse)
    return list(islice(rows, query.limit))


# The metadata of an instance that callers read: threads, tasks, other instances, metrics, progress (KafkaStreams).


class InstanceMetadataReader:
    """The part of an Application that only reads its state; every thread may call it."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.state = ClientState.CREATED
        self.error: BaseException | None = None
        self.process_id = ""
        """The process id of the state directory, the prefix of this member's name in the group; empty before the start."""
        self.global_thread: GlobalThread | None = None
        self._threads: Threads | None = None
        self._directory: StateDirectory | None = None
        self._coordinator: Coordinator | None = None
        self._shared: Shared | None = None
        self._rebalance_listener: RebalanceListener | None = None

    @property
    def threads(self) -> list[StreamThread]:
        """The stream threads, including ended ones that have not been replaced yet."""
        return [] if self._threads is None else self._threads.all

    def global_stores(self, name: str) -> tuple[Gate, Find]:
        """Return the gate of the global thread, and the function that finds a store under it. Raises StoreUnavailableError."""
        thread = self.global_thread
        if thread is None:
            raise StoreUnavailableError(f"store {name} can't be read before the application has started")
        return thread.gate, lambda: thread.stores(name)

    @property
    def paused(self) -> bool:
        """Whether `pause` is in force."""
        return self._shared is not None and self._shared.paused.is_set()

    @property
    def topics(self) -> TopicsOnLog | None:
        """The topics found at the start; None before."""
        return None if self._shared is None else self._shared.topics

    @property
    def ends_all(self) -> bool:
        """Whether the group's assignment contains a failed instance's request that all instances stop."""
        return self._coordinator is not None and self._coordinator.all_must_end

    @property
    def ready(self) -> bool:
        """Whether this instance has its assignment, and every thread runs its tasks."""
        return (
            self.state is ClientState.RUNNING
            and self._rebalance_listener is not None
            and self._rebalance_listener.settled
        )

    def metadata_for_all(self) -> list[InstanceMetadata]:
        """Return the instances of the application according to the group's last assignment; none before the first one."""
        return [] if self._coordinator is None else list(self._coordinator.instances)

    def key_metadata(self, name: str, key: bytes) -> KeyMetadata:
        """Return the location of a key, by its bytes, without the window in window and session stores.

        For a global store it is this instance. Raises UnknownStoreError, StoreUnavailableError before the start.
        """
        require_store(self.plan, name)
        if is_global(self.plan, name):
            return KeyMetadata(0, self.plan.config.application_server)
        return key_metadata(self.plan, self._topics(), name, key, self.metadata_for_all())

    def tasks(self) -> list[TaskId]:
        """Return all tasks of the application. Raises StoreUnavailableError before the start."""
        return self._topics().tasks()

    def _topics(self) -> TopicsOnLog:
        if self._shared is None:
            raise StoreUnavailableError("the application has not started: its tasks are not known")
        return self._shared.topics

    @property
    def rebalances(self) -> list[Rebalance]:
        """The last assignments of the group to this instance, the oldest first."""
        return [] if self._rebalance_listener is None else list(self._rebalance_listener.rebalances)

    @property
    def metrics(self) -> Metrics:
        """The metrics since the start; empty before."""
        return Metrics() if self._shared is None else self._shared.metrics

    def restore_progress(self) -> list[RestoreProgress]:
        """Return the progress of stores that are being restored or updated as standbys."""
        return [progress for thread in list(self.threads) for progress in thread.restore_progress()]

    def task_offset_sums(self) -> dict[TaskId, int]:
        """Return the offset sum of each task with state here (TaskManager.taskOffsetSums).

        It is RUNNING for running tasks, and the sum of offsets for other tasks of a thread, or on disk with a readable
        checkpoint.
        """
        sums = {} if self._directory is None else sums_on_disk(self._directory)
        for thread in list(self.threads):
            sums.update(thread.offset_sums())
        return sums
