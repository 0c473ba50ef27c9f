"""A snapshot of an application instance: states, tasks, rates, lag, restores. Reading it never blocks a stream thread."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from threading import Lock
from typing import TYPE_CHECKING

from streamkit.errors import StreamkitError
from streamkit.latency import figures_of, histograms_of
from streamkit.plan.model import Plan
from streamkit.record import TopicPartition
from streamkit.runtime.local.internal_topics import TopicsOnLog
from streamkit.runtime.local.local_task import LocalTask
from streamkit.runtime.local.restore import RestoreProgress
from streamkit.runtime.local.setup import wall_clock
from streamkit.runtime.local.states import TaskView, ThreadView, stage_figures
from streamkit.runtime.local.status_model import (
    ApplicationStatus,
    DropStatus,
    GroupStatus,
    InputStatus,
    PartitionStatus,
    Recent,
    RestoreStatus,
    StorePart,
    StoreParts,
    StoreStatus,
    TaskStatus,
    ThreadStatus,
    TopicStatus,
)
from streamkit.runtime.operations.group_lag import GroupLag, GroupReader, PartitionLag
from streamkit.transport.log_interface import Consumer, Transport

if TYPE_CHECKING:
    from streamkit.runtime.local.queries import InstanceMetadataReader
    from streamkit.runtime.local.stream_thread import StreamThread


log = logging.getLogger(__name__)


class StatusReader:
    """Creates snapshots of one application; used by any number of threads."""

    def __init__(self, application: InstanceMetadataReader, transport: Transport):
        self._application = application
        self._plan = application.plan
        self._ends = Ends(transport)
        self._inputs = InputReader(application.plan, transport)
        self._rates = Rates()
        self._counted: dict[str, tuple[tuple[TaskView, ...], dict[Key, float]]] = {}
        """The last task views of each thread with their totals, which an idle thread uses again."""
        self._parts = StoreParts()
        self._measuring = Lock()
        self._started = time.monotonic()
        self._sub_of_store = {
            name: sub.id for sub in self._plan.sub_topologies for name in sub.stores if name in self._plan.stores
        }

    def read(self, *, lag: bool = True) -> ApplicationStatus:
        """Return a snapshot; `lag`: read the end offsets of the inputs from the log, at most once a second."""
        application = self._application
        self.sample()
        threads = list(application.threads)
        views = [(thread, thread.counters.view) for thread in threads]
        local_tasks = [(thread.name, task) for thread in threads for task in thread.tasks()]
        global_thread = application.global_thread
        followed = {} if global_thread is None else global_thread.followed()
        drops = [drop for thread, view in views for drop in _drops(thread.name, view)]
        if global_thread is not None:
            drops += [DropStatus(global_thread.name, "global", **asdict(drop)) for drop in global_thread.drops]
        inputs = [tp for _, view in views for task in view.tasks for tp in task.consumed]
        inputs += [changelog.partition for _, task in local_tasks for changelog in task.changelogs]
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
                stage_figures(view.stages, wall_clock()),
            )
            for thread, view in views
        )
        error = application.error
        group = self._inputs.read(application.topics) if lag else None
        return ApplicationStatus(
            self._plan.application,
            application.process_id,
            application.state.value,
            application.paused,
            None if error is None else str(error),
            time.monotonic() - self._started,
            sum(thread.rate for thread in statuses),
            statuses,
            self._stores(statuses, self._store_parts(local_tasks, ends)),
            tuple(
                _restore(progress)
                for progress in application.restore_progress()
                if progress.active and progress.remaining
            ),
            self._topics(statuses),
            inputs_of(application.topics, statuses, group),
            GroupStatus(None) if group is None else GroupStatus(group.members, group.rebalancing),
            tuple(drops),
        )

    def sample(self) -> None:
        """Take a sample for the rates if one is due; cheap enough to be called in a loop."""
        if not self._rates.due():
            return
        totals: dict[Key, float] = {}
        for thread in list(self._application.threads):
            view = thread.counters.view
            totals.update({("thread", thread.name, name): count for name, count in view.totals.items()})
            if view.tasks is not self._counted.get(thread.name, (None,))[0]:
                self._counted[thread.name] = view.tasks, _task_totals(view.tasks)
            totals.update(self._counted[thread.name][1])
        self._rates.add(totals)

    def close(self) -> None:
        """Close the connections."""
        self._ends.close()
        self._inputs.close()

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
            task.process_seconds,
            task.buffered,
            tuple(inputs),
            task.produced,
            {topic: self._rates.of(("out", task.id, topic)) for topic in task.produced},
            self._restored(task.id),
            task.stores,
            figures_of(task.latency, wall_clock()),
            histograms_of(task.latency),
        )

    def _updating(self, thread: StreamThread) -> list[TaskStatus]:
        """Return a thread's standbys and its active tasks that are being restored."""
        behind: dict[str, int] = {}
        for progress in thread.restore_progress():
            behind[progress.task] = behind.get(progress.task, 0) + progress.remaining
        running = {task.id for task in thread.counters.view.tasks}
        return [
            TaskStatus(
                local_task.name,
                "active" if local_task.active else "standby",
                "RESTORING" if local_task.active else "RUNNING",
                behind.get(local_task.name, 0),
                *(0, 0.0, 0, 0.0, 0, 0.0, 0),
                # The start positions are not known before the task is restored.
                tuple(
                    PartitionStatus(queue.topic, queue.partition, None, None, None, 0, 0.0)
                    for queue in local_task.task.inputs
                    if local_task.active
                ),
                {},
                {},
                self._restored(local_task.name),
                tuple(local_task.task.stores),
                (),
                (),
            )
            for local_task in thread.updater.tasks()
            # The view may be older than the state of the updater.
            if local_task.name not in running
        ]

    def _restored(self, task: str) -> int:
        totals = self._application.metrics.totals()
        return totals.get(("restore-total", task), 0) + totals.get(("update-total", task), 0)

    def _store_parts(
        self,
        local_tasks: Iterable[tuple[str, LocalTask]],
        ends: Mapping[TopicPartition, int],
    ) -> dict[str, list[StorePart]]:
        parts: dict[str, list[StorePart]] = {}
        global_thread = self._application.global_thread
        with self._measuring:
            for thread, task in local_tasks:
                for name, part in self._parts.of_task(task, thread, ends).items():
                    parts.setdefault(name, []).append(part)
            if global_thread is not None:
                for name, (store, places) in global_thread.followed().items():
                    parts[name] = [self._parts.of_global(store, global_thread.name, places, ends)]
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
        names = dict.fromkeys([partition.topic for task in tasks for partition in task.inputs])
        names.update(dict.fromkeys(topic for task in tasks for topic in task.produced))
        result = []
        for name in names:
            read = [partition for task in tasks for partition in task.inputs if partition.topic == name]
            lags = [partition.lag for partition in read]
            result.append(
                TopicStatus(
                    name,
                    sum(partition.processed for partition in read),
                    sum(partition.rate for partition in read),
                    sum(task.produced.get(name, 0) for task in tasks),
                    sum(self._rates.of(("out", task.id, name)) for task in tasks),
                    None if not lags or None in lags else sum(lag for lag in lags if lag is not None),
                )
            )
        return tuple(result)


def _drops(thread: str, view: ThreadView) -> Iterator[DropStatus]:
    for task in view.tasks:
        for drop in task.drops:
            yield DropStatus(thread, task.id, **asdict(drop))
    for drop in view.rejected:
        yield DropStatus(thread, None, **asdict(drop))


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


# All inputs of an application as seen by one of its instances: its own positions, and the group's commits and owners.


class InputReader:
    """Reads the group's lag, at most once a second; used by any number of threads."""

    def __init__(self, plan: Plan, transport: Transport):
        self._reader = GroupReader(plan, transport, "status")
        self._topics: TopicsOnLog | None = None
        self._lag = Recent[GroupLag | None]()

    def read(self, topics: TopicsOnLog | None) -> GroupLag | None:
        """Return the lag of the group; None before the start and while the log does not respond."""
        if topics is None:
            return None
        self._topics = topics
        return self._lag.get(self._read)

    def close(self) -> None:
        """Close the connections."""
        self._lag.freeze()
        self._reader.close()

    def _read(self) -> GroupLag | None:
        assert self._topics is not None
        try:
            return self._reader.read(self._topics.inputs, self._topics.partitions)
        except StreamkitError as error:
            log.info("can't read the group's offsets: %s", error)
            return None


def inputs_of(
    topics: TopicsOnLog | None, threads: Iterable[ThreadStatus], group: GroupLag | None
) -> tuple[InputStatus, ...]:
    """Return all input partitions; none before the start. group: None if the log does not respond."""
    if topics is None:
        return ()
    own = {
        TopicPartition(partition.topic, partition.partition): (task.state, partition)
        for thread in threads
        for task in thread.tasks
        if task.kind == "active"
        for partition in task.inputs
    }
    known = (
        {}
        if group is None
        else {TopicPartition(partition.topic, partition.partition): partition for partition in group.partitions}
    )
    statuses = []
    for task in topics.tasks():
        for place in topics.partitions_of(task):
            state, mine = own.get(place, (None, None))
            other = known.get(place)
            committed, end, lag = (None, None, None) if other is None else (other.committed, other.end, other.lag)
            member = None if other is None else other.member
            position = None if mine is None else mine.position
            if mine is not None and mine.lag is not None:
                end, lag = mine.end, mine.lag
            shown = state or _state(other)
            statuses.append(InputStatus(*place, str(task), member, shown, committed, position, end, lag))
    return tuple(statuses)


def _state(partition: PartitionLag | None) -> str:
    """Return the state of an input that no task of this instance reads."""
    if partition is None:
        return "UNKNOWN"
    return "UNOWNED" if partition.member is None else "ASSIGNED"


# Rates from samples of totals, and end offsets of partitions.

RATE_SECONDS = 10.0
"""The time over which rates are computed."""
_SAMPLE_SECONDS = 0.5
_ENDS_SECONDS = 1.0

Key = tuple[str, ...]
"""The name of a total, such as ("task", "0_1")."""


def _task_totals(tasks: Iterable[TaskView]) -> dict[Key, float]:
    totals: dict[Key, float] = {}
    for task in tasks:
        totals["task", task.id] = task.processed
        totals["dropped", task.id] = task.dropped
        for partition, count in task.consumed.items():
            totals["in", task.id, partition.topic, str(partition.partition)] = count
        for topic, count in task.produced.items():
            totals["out", task.id, topic] = count
    return totals


class Rates:
    """Samples of totals over the last seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Mapping[Key, float]]] = deque()
        self._lock = Lock()

    def due(self) -> bool:
        """Return whether the last sample is old enough for another."""
        with self._lock:
            return not self._samples or time.monotonic() - self._samples[-1][0] >= _SAMPLE_SECONDS

    def add(self, totals: Mapping[Key, float]) -> None:
        """Add a sample, and drop those that are too old."""
        with self._lock:
            now = time.monotonic()
            self._samples.append((now, totals))
            while len(self._samples) > 2 and now - self._samples[1][0] >= RATE_SECONDS:
                self._samples.popleft()

    def of(self, key: Key) -> float:
        """Return the increase of a total per second; 0 for a new total, or one that was reset."""
        with self._lock:
            if not self._samples:
                return 0.0
            last, totals = self._samples[-1]
            first = next((sample for sample in self._samples if key in sample[1]), None)
        if first is None or key not in totals or last <= first[0]:
            return 0.0
        return max(0.0, totals[key] - first[1][key]) / (last - first[0])


class Ends:
    """The end offsets of partitions, read with its own consumer."""

    def __init__(self, transport: Transport):
        self._transport = transport
        self._lock = Lock()
        self._consumer: Consumer | None = None
        self._known: dict[TopicPartition, int] = {}
        self._read_at = float("-inf")
        self._closed = False

    def of(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the known end offsets, at most a second old; some are missing while the log does not respond."""
        wanted = list(partitions)
        with self._lock:
            stale = time.monotonic() - self._read_at > _ENDS_SECONDS or any(tp not in self._known for tp in wanted)
            if wanted and stale and not self._closed:
                self._read(wanted)
            return self._known

    def _read(self, partitions: list[TopicPartition]) -> None:
        try:
            if self._consumer is None:
                self._consumer = self._transport.consumer(None, read_committed=True, client_id="status")
            self._known = dict(self._consumer.end_offsets(partitions))
        except StreamkitError as error:
            log.info("can't read the end offsets of the inputs: %s", error)
            self._known = {}
        self._read_at = time.monotonic()

    def close(self) -> None:
        """Close the consumer."""
        with self._lock:
            self._closed = True
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None
