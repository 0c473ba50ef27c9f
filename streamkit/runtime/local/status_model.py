"""The data of a status: an instance, its threads, tasks, stores and topics, and all inputs of its application."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar

from streamkit.latency import LatencyFigures, LatencyHistogram
from streamkit.record import TopicPartition
from streamkit.runtime.local.local_task import LocalTask
from streamkit.runtime.local.states import StageFigures
from streamkit.state.definitions import KINDS, Store, StoreSize

_SCOPES = {"window": "in-memory-window", "join_window": "in-memory-window", "session": "in-memory-session"}
"""By type of store the scope of its metrics, where it is not `in-memory` (BytesStoreSupplier.metricsScope)."""
_GLOBAL_TASK = "-1_-1"
"""The task of global stores in metrics (GlobalProcessorContextImpl)."""


@dataclass(frozen=True)
class PartitionStatus:
    """An input partition of a task; unknown offsets are None."""

    topic: str
    partition: int
    position: int | None
    """The next offset to process."""
    end: int | None
    lag: int | None
    processed: int
    rate: float
    """Records a second."""


@dataclass(frozen=True)
class TaskStatus:
    """A task of a thread; totals are since it was created."""

    id: str
    kind: str
    """active or standby."""
    state: str
    """RUNNING or RESTORING."""
    behind: int
    """The lag in changelog records of standbys, and of tasks that are being restored."""
    processed: int
    rate: float
    dropped: int
    dropped_rate: float
    commits: int
    process_seconds: float
    """The time of processing, measured by batch."""
    buffered: int
    inputs: tuple[PartitionStatus, ...]
    produced: Mapping[str, int]
    """Records written by topic, changelogs included."""
    produced_rates: Mapping[str, float]
    restored: int
    """Changelog records applied during the task's restore and while it was a standby."""
    stores: tuple[str, ...]
    latency: tuple[LatencyFigures, ...]
    """Recent end-to-end latencies at sources and terminal nodes."""
    histograms: tuple[LatencyHistogram, ...]
    """All end-to-end latencies since the task was created."""


@dataclass(frozen=True)
class ThreadStatus:
    """A stream thread; totals are since its start."""

    name: str
    state: str
    error: str | None
    rate: float
    tasks: tuple[TaskStatus, ...]
    totals: Mapping[str, float]
    """By Kafka Streams' names of metrics: process-total, commit-total, poll-total …; process-seconds and the like."""
    rates: Mapping[str, float]
    """The same, a second."""
    stages: tuple[StageFigures, ...]
    """How long the stages of its records took lately, in their order."""

    @property
    def short_name(self) -> str:
        """The name without application and process, such as StreamThread-1."""
        at = self.name.find("StreamThread-")
        return self.name[at:] if at >= 0 else self.name


@dataclass(frozen=True)
class RestoreStatus:
    """A changelog that is being restored; counts are offsets, including compacted records."""

    task: str
    store: str
    topic: str
    partition: int
    position: int
    end: int
    restored: int
    total: int
    rate: float
    eta_seconds: float | None
    """None before the rate is known."""


@dataclass(frozen=True)
class TopicStatus:
    """The records that this instance has read from and written to one topic."""

    topic: str
    consumed: int
    consumed_rate: float
    produced: int
    produced_rate: float
    lag: int | None
    """Of the partitions that this instance reads; None if it reads none or the log does not respond."""


@dataclass(frozen=True)
class StoreStatus:
    """A store of the topology."""

    name: str
    type: str
    persistent: bool
    is_global: bool
    sub_topology: int
    tasks: tuple[str, ...]
    """The tasks of this instance that have the store."""
    parts: tuple[StorePart, ...]
    """The part of each of them."""


@dataclass(frozen=True)
class InputStatus:
    """An input partition of the application, of this instance or another one; unknown offsets are None."""

    topic: str
    partition: int
    task: str
    member: str | None
    """The name of the group member that owns it; None if no member does, or the group does not exist."""
    state: str
    """RUNNING or RESTORING for a task of this instance, ASSIGNED to a member, UNOWNED, or UNKNOWN if the log does not respond.
    """
    committed: int | None
    position: int | None
    """The next offset to process, of this instance's tasks."""
    end: int | None
    lag: int | None
    """The number of records up to the end: from the position of this instance's tasks, else from the last commit."""


@dataclass(frozen=True)
class DropStatus:
    """Dropped records and dead letters of one task for one reason, since the task was created."""

    thread: str
    task: str | None
    """None for records that the log rejected, which are counted per thread; `global` for those of all global stores."""
    reason: str
    dropped: int
    dead_letters: int
    message: str
    """The message of the last one."""
    at_ms: int


@dataclass(frozen=True)
class GroupStatus:
    """The application's group; None if it is unknown because the log does not respond."""

    members: tuple[str, ...] | None
    """The names of the active members, each made of the process id of the state directory, the host and the process."""
    rebalancing: bool = False


@dataclass(frozen=True)
class ApplicationStatus:
    """One instance of an application, and the inputs of all instances."""

    application: str
    process: str
    """The process id of the state directory, the prefix of this member's name in the group; empty before the start."""
    state: str
    paused: bool
    error: str | None
    uptime_seconds: float
    rate: float
    threads: tuple[ThreadStatus, ...]
    stores: tuple[StoreStatus, ...]
    restoring: tuple[RestoreStatus, ...]
    topics: tuple[TopicStatus, ...]
    inputs: tuple[InputStatus, ...]
    """All input partitions of the application."""
    group: GroupStatus
    drops: tuple[DropStatus, ...]

    @property
    def shown_state(self) -> str:
        """The displayed state: PAUSED for a running instance that is paused."""
        return "PAUSED" if self.paused and self.state in ("RUNNING", "REBALANCING") else self.state

    @property
    def unowned(self) -> tuple[InputStatus, ...]:
        """The input partitions that no member of the group owns."""
        return tuple(partition for partition in self.inputs if partition.state == "UNOWNED")

    @property
    def tasks(self) -> tuple[TaskStatus, ...]:
        """The tasks of all threads."""
        return tuple(task for thread in self.threads for task in thread.tasks)

    def keys_in_memory(self) -> Iterator[tuple[Mapping[str, str], int]]:
        """Yield the attributes and the value of Kafka Streams' metric num-keys for each store in memory (KIP-1250).

        Buffers of suppress have no such metric there.
        """
        for store in self.stores:
            if not store.persistent and not KINDS[store.type].in_memory_only:
                scope = f"{_SCOPES.get(store.type, 'in-memory')}-state-id"
                for part in store.parts:
                    if part.rows is not None:
                        task = _GLOBAL_TASK if part.task == GLOBAL else part.task
                        yield {"thread-id": part.thread, "task-id": task, scope: store.name}, part.rows

    @property
    def lag(self) -> int | None:
        """The sum of the lags of all inputs of the application; None if one is unknown."""
        return total_lag(partition.lag for partition in self.inputs)

    @property
    def own_lag(self) -> int | None:
        """The sum of the lags of this instance's inputs; None if one is unknown."""
        return total_lag(partition.lag for task in self.tasks if task.kind == "active" for partition in task.inputs)


def total_lag(lags: Iterable[int | None]) -> int | None:
    """Return the sum of lags; None if one is unknown.

    >>> total_lag([1, 2]), total_lag([1, None])
    (3, None)
    """
    known = list(lags)
    return None if None in known else sum(lag for lag in known if lag is not None)


# The stores of an instance: rows, bytes on disk, and positions in their changelogs.

GLOBAL = "global"
"""The name that replaces the task of a global store."""
_SIZE_SECONDS = 5.0
"""How long a size is cached, since an estimate of rows reads some of them."""


@dataclass(frozen=True)
class StorePart:
    """A store of one task, active or standby; a value is None if it is unknown or the store is in memory."""

    task: str
    thread: str
    bytes: int | None
    """Of its files."""
    rows: int | None
    """An estimate, except in memory."""
    changelog: str | None
    offset: int | None
    """The exclusive changelog offset up to which the store on disk is complete; for a global store the sum over its partitions.
    """
    end: int | None
    """The end offset of the changelog."""
    committed_ms: int | None
    """When the offset last changed, since the epoch."""


class StoreParts:
    """Reads the parts of stores; used by one thread at a time."""

    def __init__(self) -> None:
        self._sizes: dict[int, tuple[float, Store, StoreSize]] = {}

    def of_task(self, task: LocalTask, thread: str, ends: Mapping[TopicPartition, int]) -> dict[str, StorePart]:
        """Return the parts of the stores of a thread's task by name."""
        places = {changelog.store.name: changelog.partition for changelog in task.changelogs}
        stores = list(task.task.stores.values())
        return {
            store.name: self._part(task.name, thread, store, [places[store.name]] if store.name in places else [], ends)
            for store in stores
        }

    def of_global(
        self, store: Store, thread: str, places: Iterable[TopicPartition], ends: Mapping[TopicPartition, int]
    ) -> StorePart:
        """Return the size and position of a global store that reads these partitions."""
        return self._part(GLOBAL, thread, store, list(places), ends)

    def _part(
        self, task: str, thread: str, store: Store, places: list[TopicPartition], ends: Mapping[TopicPartition, int]
    ) -> StorePart:
        size = self._size(store)
        offsets = [store.position(place.partition) for place in places]
        known = [ends.get(place) for place in places]
        return StorePart(
            task,
            thread,
            size.bytes,
            size.rows,
            places[0].topic if places else None,
            _sum(offsets),
            _sum(known),
            store.committed_ms,
        )

    def _size(self, store: Store) -> StoreSize:
        now = time.monotonic()
        size = self._sizes.get(id(store))
        if size is None or size[1] is not store or now - size[0] > _SIZE_SECONDS:
            self._sizes = {key: entry for key, entry in self._sizes.items() if now - entry[0] <= _SIZE_SECONDS}
            size = self._sizes[id(store)] = now, store, store.measure()
        return size[2]


def _sum(numbers: list[int | None]) -> int | None:
    present = [number for number in numbers if number is not None]
    return sum(present) if present and len(present) == len(numbers) else None


# A value that is expensive to read and that many threads request.

T = TypeVar("T")


class Recent(Generic[T]):
    """A value that is read at most once in some seconds; used by any number of threads."""

    def __init__(self, seconds: float = 1.0):
        self._seconds = seconds
        self._lock = Lock()
        self._value: T | None = None
        self._read_at = float("-inf")
        self._frozen = False

    def get(self, read: Callable[[], T]) -> T | None:
        """Return the value, read again if it is too old; None only after a `freeze` before the first read."""
        with self._lock:
            if not self._frozen and time.monotonic() - self._read_at > self._seconds:
                self._value = read()
                self._read_at = time.monotonic()
            return self._value

    def freeze(self) -> None:
        """Stop reading and return the last value from now on; wait for a read in progress."""
        with self._lock:
            self._frozen = True
