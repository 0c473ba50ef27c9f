"""The data of a status: an instance, its threads, tasks, stores and topics, and all inputs of its application."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamkit.latency import LatencyFigures, LatencyHistogram
from streamkit.runtime.local.instance.store_status import StorePart


@dataclass(frozen=True)
class PartitionStatus:
    """An input partition of a task; offsets, None where unknown."""

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
    """Changelog records applied while the task was restored, and while it was a standby."""
    stores: tuple[str, ...]
    latency: tuple[LatencyFigures, ...]
    """End-to-end latencies at sources and terminal nodes that a record has reached lately."""
    histograms: tuple[LatencyHistogram, ...]
    """All of them since the task was created."""


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

    @property
    def short_name(self) -> str:
        """The name without application and process, such as StreamThread-1."""
        at = self.name.find("StreamThread-")
        return self.name[at:] if at >= 0 else self.name


@dataclass(frozen=True)
class RestoreStatus:
    """A changelog that is being restored; counts are offsets, compacted records included."""

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
    """Of the partitions that this instance reads; None where it reads none or the log does not respond."""


@dataclass(frozen=True)
class StoreStatus:
    """A store of the topology."""

    name: str
    type: str
    persistent: bool
    is_global: bool
    sub_topology: int
    tasks: tuple[str, ...]
    """The tasks of this instance that have it."""
    parts: tuple[StorePart, ...]
    """The part of each of them."""


@dataclass(frozen=True)
class InputStatus:
    """An input partition of the application, of this instance or another one; offsets, None where unknown."""

    topic: str
    partition: int
    task: str
    member: str | None
    """The name of the group's member that owns it; None where none does, or the group does not exist."""
    state: str
    """RUNNING or RESTORING of a task of this instance, ASSIGNED to a member, UNOWNED, or UNKNOWN without an answer of the log."""
    committed: int | None
    position: int | None
    """The next offset to process, of this instance's tasks."""
    end: int | None
    lag: int | None
    """Records up to the end: from the position of this instance's tasks, else from the last commit."""


@dataclass(frozen=True)
class DropStatus:
    """Dropped records and dead letters of one task for one reason, since the task was created."""

    thread: str
    task: str | None
    """None for records that the log rejected: those of a thread."""
    reason: str
    dropped: int
    dead_letters: int
    message: str
    """The message of the last one."""
    at_ms: int


@dataclass(frozen=True)
class GroupStatus:
    """The application's group; None of a member: nothing is known, because the log does not answer."""

    members: tuple[str, ...] | None
    """The names of the active members: process id of the state directory, host and process."""
    rebalancing: bool = False


@dataclass(frozen=True)
class ApplicationStatus:
    """One instance of an application, and the inputs of all instances."""

    application: str
    process: str
    """The process id of the state directory, with which the names of group members begin; empty before the start."""
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
        """The state for people: PAUSED for a running instance that is paused."""
        return "PAUSED" if self.paused and self.state in ("RUNNING", "REBALANCING") else self.state

    @property
    def unowned(self) -> tuple[InputStatus, ...]:
        """The input partitions that no member of the group owns."""
        return tuple(each for each in self.inputs if each.state == "UNOWNED")

    @property
    def tasks(self) -> tuple[TaskStatus, ...]:
        """The tasks of all threads."""
        return tuple(task for thread in self.threads for task in thread.tasks)

    @property
    def lag(self) -> int | None:
        """The sum of the lags of all inputs of the application; None where one is unknown."""
        return total_lag(each.lag for each in self.inputs)

    @property
    def own_lag(self) -> int | None:
        """The sum of the lags of this instance's inputs; None where one is unknown."""
        return total_lag(each.lag for task in self.tasks if task.kind == "active" for each in task.inputs)


def total_lag(lags: Iterable[int | None]) -> int | None:
    """Return the sum of lags; None where one is unknown.

    >>> total_lag([1, 2]), total_lag([1, None])
    (3, None)
    """
    known = list(lags)
    return None if None in known else sum(lag for lag in known if lag is not None)
