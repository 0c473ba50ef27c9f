"""Counters of stream threads: incremented once a batch, and published as a view at an interval."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from streamkit.latency import NodeLatency
from streamkit.metrics import DroppedCount, DroppedRecords
from streamkit.record import TopicPartition
from streamkit.runtime.local.local_task import LocalTask
from streamkit.user_metrics import MetricValue

PUBLISH_SECONDS = 0.25


@dataclass(frozen=True)
class TaskView:
    """A task as of the last publication; totals are since the task was created."""

    id: str
    processed: int
    dropped: int
    drops: tuple[DroppedCount, ...]
    """Dropped records by reason."""
    stores: tuple[str, ...]
    consumed: Mapping[TopicPartition, int]
    """Records taken from each input partition."""
    positions: Mapping[TopicPartition, int]
    """The next offset to process of each input partition; missing before the first fetch."""
    produced: Mapping[str, int]
    """Records written to each topic, changelogs included."""
    buffered: int
    commits: int
    latency: tuple[NodeLatency, ...]
    """The end-to-end latencies at sources and terminal nodes."""
    process_seconds: float
    """The time of processing, measured by batch."""
    metrics: tuple[MetricValue, ...] = ()
    """Those of the user's code, and of the steps that call it."""


@dataclass(frozen=True)
class ThreadView:
    """A thread as of the last publication; totals are since its start."""

    tasks: tuple[TaskView, ...] = ()
    rejected: tuple[DroppedCount, ...] = ()
    """Records that the log rejected and the thread dropped, by topic."""
    totals: Mapping[str, float] = field(default_factory=dict)
    """By Kafka Streams' names of metrics, such as `poll-total`; `poll-seconds` and the like where Kafka Streams has a ratio."""


class ThreadCounters:
    """The counters of one thread: only it adds, every thread may read `view`, which is replaced and never changed."""

    def __init__(self) -> None:
        self.view = ThreadView()
        self._totals: defaultdict[str, float] = defaultdict(int)
        self._next = 0.0

    def add(self, name: str, amount: float = 1) -> None:
        """Add to a total of the thread."""
        self._totals[name] += amount

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the duration of the block to `NAME-seconds`."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._totals[f"{name}-seconds"] += time.perf_counter() - began

    def publish(
        self,
        tasks: Iterable[LocalTask],
        position: Callable[[TopicPartition], int],
        rejected: DroppedRecords,
        *,
        now: bool = False,
    ) -> None:
        """Replace the view if it is due, or in any case with `now`; called once a round at most."""
        clock = time.monotonic()
        if clock < self._next and not now:
            return
        self._next = clock + PUBLISH_SECONDS
        views = tuple(_task_view(active, position) for active in tasks)
        self.view = ThreadView(views, rejected.view(), dict(self._totals))


def _task_view(active: LocalTask, position: Callable[[TopicPartition], int]) -> TaskView:
    task = active.task
    positions = {}
    for partition in task.inputs:
        head = task.head_offset(partition)
        offset = position(partition) if head is None else head
        if offset >= 0:
            positions[partition] = offset
    consumed = task.taken()
    return TaskView(
        task.task_id,
        sum(consumed.values()),
        active.dropped + task.dropped_total,
        task.drops.view(),
        tuple(task.stores),
        consumed,
        positions,
        dict(active.produced),
        sum(map(task.buffered, task.inputs)),
        active.commits,
        task.latency.view(),
        active.process_seconds,
        task.metrics.view(),
    )
