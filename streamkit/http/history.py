"""The last hour of an instance: a point every five seconds, and the warnings and errors that it logged."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from streamkit.errors import StreamkitError
from streamkit.runtime.execution.dead_letters import one_line
from streamkit.runtime.local.status_model import total_lag
from streamkit.serdes.plain import Document, Json

if TYPE_CHECKING:
    from streamkit.runtime.local.client import Application

INTERVAL_S = 5
POINTS = 3600 // INTERVAL_S
EVENTS = 100
_LONGEST = 500
"""Characters of an event's text."""


class Point(NamedTuple):
    """The state at one time."""

    time: int
    """Milliseconds, a multiple of the interval: points of several instances have equal times."""
    rate: float
    """Records a second."""
    lag: int | None
    """The lag of all inputs of the application; for inputs of other instances, measured from their last commits."""
    own_lag: int | None
    """Of the inputs that this instance processes."""
    own_committed_lag: int | None
    """Of the same inputs from their last commits, as the other instances know it; None before the first commit."""
    owned: int
    """The number of these inputs."""
    partitions: int
    """The number of all inputs."""
    latency: float | None
    """The highest 99th percentile (ms) of the end-to-end latencies at the nodes; None if no record came lately."""
    memory: int | None
    """Resident bytes of the process."""


class LogEvents(logging.Handler):
    """The last warnings and errors of streamkit's own loggers; equal ones in a row are one with a count."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._events: deque[dict[str, Document]] = deque(maxlen=EVENTS)

    def emit(self, record: logging.LogRecord) -> None:
        """Add a record of the log."""
        text = one_line(record.getMessage())[:_LONGEST]
        kind = "error" if record.levelno >= logging.ERROR else "warning"
        at = int(record.created * 1000)
        last = self._events[-1] if self._events else None
        if last is not None and last["text"] == text:
            # Replaced and not changed: another thread may be writing it as JSON.
            self._events[-1] = {**last, "time": at, "count": last["count"] + 1}
        else:
            self._events.append({"time": at, "kind": kind, "text": text, "count": 1})

    def list(self) -> Iterable[dict[str, Document]]:
        """Return the events, the oldest first."""
        self.acquire()
        try:
            return list(self._events)
        finally:
            self.release()


class History:
    """Samples an application in a separate thread until the server closes."""

    def __init__(self, application: Application, closing: threading.Event):
        self._application = application
        self._closing = closing
        self._points: deque[Point] = deque(maxlen=POINTS)
        self._events = LogEvents()

    def start(self) -> None:
        """Begin to sample, and to keep log lines."""
        threading.Thread(target=self._run, name="http-history", daemon=True).start()

    def points(self, after: int) -> list[Point]:
        """Return the points later than a time in milliseconds."""
        return [point for point in list(self._points) if point.time > after]

    @property
    def newest(self) -> int:
        """The time of the newest point, 0 before the first."""
        points = list(self._points)
        return points[-1].time if points else 0

    def events(self) -> list[dict[str, Json]]:
        """Return the last errors, warnings and rebalances, the newest first."""
        rebalances = [
            {"time": rebalance.time, "kind": "rebalance", "text": rebalance.text, "count": 1}
            for rebalance in self._application.rebalances
        ]
        events = sorted([*self._events.list(), *rebalances], key=lambda event: -event["time"])
        return events[:EVENTS]

    def _run(self) -> None:
        logger = logging.getLogger("streamkit")
        logger.addHandler(self._events)
        try:
            while not self._closing.wait(INTERVAL_S - time.time() % INTERVAL_S):
                self.sample(int(time.time() / INTERVAL_S) * INTERVAL_S * 1000)
        finally:
            logger.removeHandler(self._events)

    def sample(self, now_ms: int) -> None:
        """Add a point."""
        try:
            status = self._application.status()
        except StreamkitError:
            return
        latency = max((latency.p99 for task in status.tasks for latency in task.latency), default=None)
        own = [partition for partition in status.inputs if partition.position is not None]
        point = Point(
            now_ms,
            round(status.rate, 1),
            status.lag,
            total_lag(partition.lag for partition in own),
            total_lag(_difference(partition.end, partition.committed) for partition in own),
            len(own),
            len(status.inputs),
            latency,
            resident_bytes(),
        )
        self._points.append(point)


def _difference(end: int | None, committed: int | None) -> int | None:
    return None if end is None or committed is None else max(0, end - committed)


def resident_bytes() -> int | None:
    """Return the resident memory of the process; if the system does not offer it, its peak; else None."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        pass
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
