"""The stages of a stream thread's records, from the log and back to it: how long each one takes, measured by batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from weakref import WeakKeyDictionary

from streamkit.latency import NodeLatency, Samples, figures_of
from streamkit.record import RecordBatch
from streamkit.runtime.execution.task import Task

MICROS = 1000
"""Stages are measured in microseconds, of which a millisecond has so many."""
FETCH, QUEUE, PROCESS, SEND, COMMIT, MARKERS = STAGES = ("fetch", "queue", "process", "send", "commit", "markers")
"""From a record's timestamp until the thread has it; until its processing begins, as other tasks and commits come first; until
its batch's results are with the producer; until brokers have acknowledged them, as far as the thread has looked. Then what stops
the thread meanwhile: a commit, and the wait for the markers of the transaction before.
"""


@dataclass(frozen=True)
class StageFigures:
    """How long a stage took within the last minute, in milliseconds."""

    stage: str
    count: int
    """Records; commits in the last two stages."""
    p50: float
    p99: float
    max: float


class StageTimes:
    """The stages of one thread, which alone adds to them; `clock`: the time of day in ms."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._samples = Samples()
        self._arrivals: WeakKeyDictionary[Task, deque[tuple[int, float]]] = WeakKeyDictionary()
        """The records of each task's queues, in the order of their polls: their number, and when they were polled."""
        self._sent: deque[tuple[int, int, float]] = deque()
        """Calls whose rows are not known to be acknowledged: the rows sent up to then, those of the call, and its time."""
        self._rows = 0

    def add(self, stage: str, seconds: float, count: int = 1) -> None:
        """Add the duration of a stage for so many records."""
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
    found = {each.node: each for each in figures_of(stages, now)}
    return tuple(
        StageFigures(name, each.count, each.p50 / MICROS, each.p99 / MICROS, each.max / MICROS)
        for name in STAGES
        if (each := found.get(name)) is not None
    )
