"""A snapshot of an application instance: states, tasks, rates, lag, restoring. Reading it never stops a stream thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

from streamkit.record import TopicPartition
from streamkit.runtime.local.counters import TaskView
from streamkit.runtime.local.progress import RestoreProgress
from streamkit.runtime.local.sampling import Ends, Key, Rates
from streamkit.runtime.local.store_status import StorePart, StoreParts
from streamkit.transport.base import Transport

if TYPE_CHECKING:
    from streamkit.runtime.local.client import Application
    from streamkit.runtime.local.local_task import LocalTask
    from streamkit.runtime.local.thread import StreamThread

log = logging.getLogger(__name__)


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
    """A task of a thread; totals are since it was made."""

    id: str
    kind: str
    """active or standby."""
    state: str
    """RUNNING or RESTORING."""
    behind: int
    """Changelog records that are to be applied yet: of standbys, and of tasks that are being restored."""
    processed: int
    rate: float
    dropped: int
    dropped_rate: float
    commits: int
    buffered: int
    inputs: tuple[PartitionStatus, ...]
    produced: Mapping[str, int]
    """Records written by topic, changelogs included."""
    produced_rates: Mapping[str, float]
    restored: int
    """Changelog records applied while the task was restored, and while it was a standby."""
    stores: tuple[str, ...]


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
    """The traffic of this instance with one topic: an edge of the topology."""

    topic: str
    consumed: int
    consumed_rate: float
    produced: int
    produced_rate: float
    lag: int | None
    """Of the partitions that this instance reads; None where it reads none or the log does not answer."""


@dataclass(frozen=True)
class StoreStatus:
    """A store of the topology."""

    name: str
    type: str
    persistent: bool
    is_global: bool
    sub_topology: int
    tasks: tuple[str, ...]
    """The tasks of this instance that hold it."""
    parts: tuple[StorePart, ...]
    """What each of them holds of it."""


@dataclass(frozen=True)
class ApplicationStatus:
    """One instance of an application."""

    application: str
    state: str
    error: str | None
    uptime_seconds: float
    rate: float
    threads: tuple[ThreadStatus, ...]
    stores: tuple[StoreStatus, ...]
    restoring: tuple[RestoreStatus, ...]
    topics: tuple[TopicStatus, ...]

    @property
    def tasks(self) -> tuple[TaskStatus, ...]:
        """The tasks of all threads."""
        return tuple(task for thread in self.threads for task in thread.tasks)

    @property
    def lag(self) -> int | None:
        """The lag of all inputs together; None where one is unknown."""
        lags = [each.lag for task in self.tasks if task.kind == "active" for each in task.inputs]
        return None if None in lags else sum(lag for lag in lags if lag is not None)


class StatusReader:
    """Makes snapshots of one application; may be used by any number of threads."""

    def __init__(self, application: Application, transport: Transport):
        self._application = application
        self._plan = application.plan
        self._ends = Ends(transport)
        self._rates = Rates()
        self._parts = StoreParts()
        self._measuring = Lock()
        self._started = time.monotonic()
        self._sub_of_store = {
            name: sub.id for sub in self._plan.sub_topologies for name in sub.stores if name in self._plan.stores
        }

    def read(self, *, lag: bool = True) -> ApplicationStatus:
        """Return a snapshot; `lag`: ask the log for the ends of the inputs, at most once a second."""
        application = self._application
        self.sample()
        threads = list(application.threads)
        views = [(thread, thread.counters.view) for thread in threads]
        held = [task for thread in threads for task in thread.held()]
        followed = {} if application.global_thread is None else application.global_thread.followed()
        inputs = [tp for _, view in views for task in view.tasks for tp in task.consumed]
        inputs += [changelog.partition for task in held for changelog in task.changelogs]
        inputs += [tp for _, places in followed.values() for tp in places]
        ends = self._ends.of(dict.fromkeys(inputs)) if lag else {}
        statuses = tuple(
            ThreadStatus(
                thread.name,
                thread.state.value,
                None if thread.error is None else str(thread.error),
                self._rates.of(("thread", thread.name, "process-total")),
                (*(self._task(task, ends) for task in view.tasks), *self._updating(thread)),
                view.totals,
                {name: self._rates.of(("thread", thread.name, name)) for name in view.totals},
            )
            for thread, view in views
        )
        error = application.error
        return ApplicationStatus(
            self._plan.application,
            application.state.value,
            None if error is None else str(error),
            time.monotonic() - self._started,
            sum(thread.rate for thread in statuses),
            statuses,
            self._stores(statuses, self._store_parts(held, followed, ends)),
            tuple(_restore(each) for each in application.restore_progress() if each.active and each.remaining),
            self._topics(statuses),
        )

    def sample(self) -> None:
        """Take a sample for the rates if one is due; cheap enough to be called in a loop."""
        if not self._rates.due():
            return
        totals: dict[Key, float] = {}
        for thread in list(self._application.threads):
            view = thread.counters.view
            totals.update({("thread", thread.name, name): count for name, count in view.totals.items()})
            for task in view.tasks:
                totals["task", task.id] = task.processed
                totals["dropped", task.id] = task.dropped
                for partition, count in task.consumed.items():
                    totals["in", task.id, partition.topic, str(partition.partition)] = count
                for topic, count in task.produced.items():
                    totals["out", task.id, topic] = count
        self._rates.add(totals)

    def close(self) -> None:
        """Leave the log."""
        self._ends.close()

    def _task(self, task: TaskView, ends: Mapping[TopicPartition, int]) -> TaskStatus:
        inputs = []
        for partition, count in task.consumed.items():
            position, end = task.positions.get(partition), ends.get(partition)
            lag = None if position is None or end is None else max(0, end - position)
            rate = self._rates.of(("in", task.id, partition.topic, str(partition.partition)))
            inputs.append(PartitionStatus(*partition, position, end, lag, count, rate))
        return TaskStatus(
            task.id,
            "active",
            "RUNNING",
            0,
            task.processed,
            self._rates.of(("task", task.id)),
            task.dropped,
            self._rates.of(("dropped", task.id)),
            task.commits,
            task.buffered,
            tuple(inputs),
            task.produced,
            {topic: self._rates.of(("out", task.id, topic)) for topic in task.produced},
            self._restored(task.id),
            task.stores,
        )

    def _updating(self, thread: StreamThread) -> list[TaskStatus]:
        """Return the standbys of a thread, and the tasks that are to run when they are restored."""
        behind: dict[str, int] = {}
        for each in thread.restore_progress():
            behind[each.task] = behind.get(each.task, 0) + each.remaining
        running = {task.id for task in thread.counters.view.tasks}
        return [
            TaskStatus(
                held.name,
                "active" if held.active else "standby",
                "RESTORING" if held.active else "RUNNING",
                behind.get(held.name, 0),
                *(0, 0.0, 0, 0.0, 0, 0),
                # Where they will begin is not known before they are restored.
                tuple(
                    PartitionStatus(each.topic, each.partition, None, None, None, 0, 0.0)
                    for each in held.task.inputs
                    if held.active
                ),
                {},
                {},
                self._restored(held.name),
                tuple(held.task.stores),
            )
            for held in thread.updater.tasks()
            # The view may be a moment older than the updater.
            if held.name not in running
        ]

    def _restored(self, task: str) -> int:
        totals = self._application.metrics.totals()
        return totals.get(("restore-total", task), 0) + totals.get(("update-total", task), 0)

    def _store_parts(
        self,
        held: Iterable[LocalTask],
        followed: Mapping[str, tuple[Any, list[TopicPartition]]],
        ends: Mapping[TopicPartition, int],
    ) -> dict[str, list[StorePart]]:
        parts: dict[str, list[StorePart]] = {}
        with self._measuring:
            for task in held:
                for name, part in self._parts.of_task(task, ends).items():
                    parts.setdefault(name, []).append(part)
            for name, (store, places) in followed.items():
                parts[name] = [self._parts.of_global(store, places, ends)]
        return parts

    def _stores(self, threads: Iterable[ThreadStatus], parts: Mapping[str, list[StorePart]]) -> tuple[StoreStatus, ...]:
        holders: dict[str, list[str]] = {}
        for thread in threads:
            for task in thread.tasks:
                for name in task.stores:
                    holders.setdefault(name, []).append(task.id)
        subs = {sub.id: sub for sub in self._plan.sub_topologies}
        return tuple(
            StoreStatus(
                name,
                self._plan.stores[name].type,
                self._plan.stores[name].persistent,
                subs[sub].is_global,
                sub,
                tuple(sorted(holders.get(name, ()))),
                tuple(sorted(parts.get(name, ()), key=lambda part: part.task)),
            )
            for name, sub in self._sub_of_store.items()
        )

    def _topics(self, threads: Iterable[ThreadStatus]) -> tuple[TopicStatus, ...]:
        tasks = [task for thread in threads for task in thread.tasks]
        names = dict.fromkeys([each.topic for task in tasks for each in task.inputs])
        names.update(dict.fromkeys(topic for task in tasks for topic in task.produced))
        result = []
        for name in names:
            read = [each for task in tasks for each in task.inputs if each.topic == name]
            lags = [each.lag for each in read]
            result.append(
                TopicStatus(
                    name,
                    sum(each.processed for each in read),
                    sum(each.rate for each in read),
                    sum(task.produced.get(name, 0) for task in tasks),
                    sum(self._rates.of(("out", task.id, name)) for task in tasks),
                    None if not lags or None in lags else sum(lag for lag in lags if lag is not None),
                )
            )
        return tuple(result)


def _restore(progress: RestoreProgress) -> RestoreStatus:
    return RestoreStatus(
        progress.task,
        progress.store,
        *progress.changelog,
        progress.position,
        progress.end,
        progress.position - progress.start,
        progress.end - progress.start,
        progress.rate,
        progress.eta_seconds,
    )
