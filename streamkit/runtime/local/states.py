"""The states of threads and clients with their transitions (KafkaStreams.State), and the counters and stage times of threads."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from time import perf_counter
from weakref import WeakKeyDictionary

from streamkit.errors import StateError
from streamkit.latency import NodeLatency, Samples, figures_of
from streamkit.metrics import DroppedCount, DroppedRecords
from streamkit.record import RecordBatch, TaskId, TopicPartition
from streamkit.runtime.execution.task import Task
from streamkit.runtime.local.local_task import LocalTask
from streamkit.user_metrics import MetricValue

MICROS = 1000
"""Microseconds in a millisecond; stages are measured in microseconds."""
FETCH, QUEUE, PROCESS, SEND, COMMIT, MARKERS = STAGES = ("fetch", "queue", "process", "send", "commit", "markers")
"""The stages of a record, in order, and the pauses of its thread. A record's timestamp begins `fetch`, which ends when the thread has
the record; `queue` ends when its processing begins, after other tasks and commits; `process` ends when the producer has the results of
its batch; `send` ends when the thread sees that brokers have acknowledged them. `commit` is the duration of a commit, and `markers` the
wait for the markers of the previous transaction.
"""


@dataclass(frozen=True)
class StageFigures:
    """How long a stage took within the last minute, in milliseconds."""

    stage: str
    count: int
    """The number of records; in the last two stages, of commits."""
    p50: float
    p99: float
    max: float


class StageTimes:
    """The stages of one thread. Only this thread adds to them. clock: returns the time of day in ms."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._samples = Samples()
        self._arrivals: WeakKeyDictionary[Task, deque[tuple[int, float]]] = WeakKeyDictionary()
        """The queued records of each task, by poll: their number, and the time of the poll."""
        self._sent: deque[tuple[int, int, float]] = deque()
        """Unacknowledged calls of `sent`: the rows sent in total after the call, the rows of the call, and its time."""
        self._rows = 0

    def add(self, stage: str, seconds: float, count: int = 1) -> None:
        """Add the duration of a stage for `count` records."""
        self._samples.at(stage, self._clock()).add([int(seconds * 1000 * MICROS)], count)

    def polled(self, tasks: Iterable[tuple[Task, RecordBatch]]) -> None:
        """Note batches that were polled now, before they are queued."""
        at, now = perf_counter(), self._clock()
        for task, batch in tasks:
            times = batch.timestamps
            ages = sorted((max(0, now - times[0]) * MICROS, max(0, now - times[-1]) * MICROS))
            self._samples.at(FETCH, now).add(ages, len(times))
            waiting = self._arrivals.setdefault(task, deque())
            if not task.has_records():
                # Skipped records, and those of an earlier role of the task, were not processed.
                waiting.clear()
            waiting.append((len(times), at))

    def processed(self, task: Task, count: int, began: float, ended: float) -> None:
        """Note records that a call has processed, between two times of `perf_counter`."""
        self.add(PROCESS, ended - began, count)
        waiting = self._arrivals.get(task)
        while waiting and count > 0:
            left, at = waiting.popleft()
            self.add(QUEUE, began - at, min(left, count))
            if left > count:
                waiting.appendleft((left - count, at))
            count -= left

    def sent(self, rows: Sequence[object]) -> None:
        """Note rows that the producer has taken."""
        self._rows += len(rows)
        self._sent.append((self._rows, len(rows), perf_counter()))

    def acknowledged(self, queued: int) -> None:
        """Note how many rows brokers have not acknowledged yet; acknowledgments come roughly in the order of the rows."""
        sent, now = self._sent, perf_counter()
        while sent and sent[0][0] <= self._rows - queued:
            _, count, at = sent.popleft()
            self.add(SEND, now - at, count)

    def forget_sent(self) -> None:
        """Forget rows that are not acknowledged: their producer drops them."""
        self._sent.clear()

    def view(self) -> tuple[NodeLatency, ...]:
        """Return all durations (microseconds) by stage."""
        return self._samples.view()


def stage_figures(stages: Iterable[NodeLatency], now: int) -> tuple[StageFigures, ...]:
    """Return the figures of a thread's stages in the order that records take; `now`: the time of day in ms."""
    by_node = {figure.node: figure for figure in figures_of(stages, now)}
    return tuple(
        StageFigures(name, figure.count, figure.p50 / MICROS, figure.p99 / MICROS, figure.max / MICROS)
        for name in STAGES
        if (figure := by_node.get(name)) is not None
    )


class ThreadState(Enum):
    """States of a stream thread."""

    CREATED = "CREATED"
    STARTING = "STARTING"
    PARTITIONS_REVOKED = "PARTITIONS_REVOKED"
    PARTITIONS_ASSIGNED = "PARTITIONS_ASSIGNED"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    DEAD = "DEAD"


class ClientState(Enum):
    """States of an application instance."""

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"


_T = ThreadState
_C = ClientState
_FOLLOWERS: dict[Enum, frozenset[Enum]] = {
    _T.CREATED: frozenset((_T.STARTING, _T.PENDING_SHUTDOWN)),
    _T.STARTING: frozenset((_T.PARTITIONS_REVOKED, _T.PARTITIONS_ASSIGNED, _T.PENDING_SHUTDOWN)),
    _T.PARTITIONS_REVOKED: frozenset((_T.PARTITIONS_REVOKED, _T.PARTITIONS_ASSIGNED, _T.PENDING_SHUTDOWN)),
    _T.PARTITIONS_ASSIGNED: frozenset((_T.PARTITIONS_REVOKED, _T.PARTITIONS_ASSIGNED, _T.RUNNING, _T.PENDING_SHUTDOWN)),
    _T.RUNNING: frozenset((_T.PARTITIONS_REVOKED, _T.PARTITIONS_ASSIGNED, _T.RUNNING, _T.PENDING_SHUTDOWN)),
    _T.PENDING_SHUTDOWN: frozenset((_T.DEAD,)),
    _T.DEAD: frozenset(),
    _C.CREATED: frozenset((_C.REBALANCING, _C.PENDING_SHUTDOWN)),
    _C.REBALANCING: frozenset((_C.REBALANCING, _C.RUNNING, _C.PENDING_SHUTDOWN, _C.PENDING_ERROR)),
    _C.RUNNING: frozenset((_C.REBALANCING, _C.RUNNING, _C.PENDING_SHUTDOWN, _C.PENDING_ERROR)),
    _C.PENDING_SHUTDOWN: frozenset((_C.NOT_RUNNING,)),
    _C.NOT_RUNNING: frozenset(),
    _C.PENDING_ERROR: frozenset((_C.ERROR,)),
    _C.ERROR: frozenset(),
}


def check_transition(old: Enum, new: Enum) -> None:
    """Raise StateError unless `new` may follow `old`."""
    if new not in _FOLLOWERS[old]:
        raise StateError(f"{new.value} can't follow {old.value}")


def client_state(threads: list[ThreadState], global_ready: bool) -> ClientState:
    """Return RUNNING when all threads are running or dead and the global thread is up, else REBALANCING."""
    running = all(state in (_T.RUNNING, _T.DEAD) for state in threads)
    return _C.RUNNING if running and global_ready else _C.REBALANCING


# Counters of stream threads: incremented once per batch, and published as a view at intervals.

PUBLISH_SECONDS = 0.25
_IDLE_VIEW_SECONDS = 2.0
"""The interval of views without work, which take most of an idle thread's time. Only positions change then, past transaction markers."""
_WORK = (
    "task-created-total",
    "task-closed-total",
    "poll-records-total",
    "process-total",
    "punctuate-total",
    "commit-total",
)


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
    """The processing time, measured by batch."""
    metrics: tuple[MetricValue, ...] = ()
    """The times of the user's code, and of the steps that call it."""


@dataclass(frozen=True)
class ThreadView:
    """A thread as of the last publication; totals are since its start."""

    tasks: tuple[TaskView, ...] = ()
    rejected: tuple[DroppedCount, ...] = ()
    """Records that the log rejected and the thread dropped, by topic."""
    totals: Mapping[str, float] = field(default_factory=dict)
    """Totals by the name of the metric in Kafka Streams, such as `poll-total`. A ratio there is a total of seconds, as in `poll-seconds`."""
    stages: tuple[NodeLatency, ...] = ()
    """The durations of its stages (microseconds)."""


class ThreadCounters:
    """The counters of one thread: only that thread adds; any thread may read `view`, which is replaced and never changed."""

    def __init__(self) -> None:
        self.view = ThreadView()
        self._totals: defaultdict[str, float] = defaultdict(int)
        self._next = 0.0
        self._viewed_at = 0.0
        self._viewed_work = 0.0
        self._resting: WeakKeyDictionary[LocalTask, tuple[int, TaskView]] = WeakKeyDictionary()
        """The last view of each task at rest, and how often the task had been woken by then."""

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
        awake: Container[TaskId],
        position: Callable[[TopicPartition], int],
        rejected: DroppedRecords,
        stages: StageTimes,
        *,
        now: bool = False,
    ) -> None:
        """Replace the view if it is due or `now` is set; called at most once per round. `awake`: the tasks that may have changed."""
        clock, totals = time.monotonic(), self._totals
        if clock < self._next and not now:
            return
        self._next = clock + PUBLISH_SECONDS
        views, work = self.view.tasks, sum(totals.get(name, 0) for name in _WORK)
        if now or work != self._viewed_work or clock >= self._viewed_at + _IDLE_VIEW_SECONDS:
            views = tuple(self._view_of(active, position, active.id in awake) for active in tasks)
            self._viewed_at, self._viewed_work = clock, work
        self.view = ThreadView(views, rejected.view(), dict(totals), stages.view())

    def _view_of(self, active: LocalTask, position: Callable[[TopicPartition], int], awake: bool) -> TaskView:
        """Return the view of a task; while it rests, only positions change."""
        positions = _positions(active.task, position)
        wakes, view = self._resting.get(active, (-1, None))
        if awake or view is None or wakes != active.wakes:
            view = _task_view(active, positions)
        elif positions != view.positions:
            view = replace(view, positions=positions)
        if not awake:
            self._resting[active] = active.wakes, view
        return view


def _positions(task: Task, position: Callable[[TopicPartition], int]) -> dict[TopicPartition, int]:
    heads = ((partition, task.head_offset(partition)) for partition in task.inputs)
    positions = {partition: position(partition) if head is None else head for partition, head in heads}
    return {partition: offset for partition, offset in positions.items() if offset >= 0}


def _task_view(active: LocalTask, positions: Mapping[TopicPartition, int]) -> TaskView:
    task = active.task
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
