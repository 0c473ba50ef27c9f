"""Metrics of the user's Python code, and of the steps that call it; they belong to a task and end with it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from streamkit.errors import StreamkitError

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
USER = "user"
"""The group of the user's own metrics; other groups belong to steps."""


class UserCounter:
    """A number that grows."""

    kind = "counter"
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, amount: float = 1) -> None:
        """Add an amount. Raises StreamkitError for one below 0."""
        if amount < 0:
            raise StreamkitError(f"a counter can't be reduced by {-amount}; use a gauge")
        self.value += amount

    def read(self) -> tuple[float, int]:
        """Return the value, and 0."""
        return self.value, 0


class UserGauge:
    """A number that rises and falls."""

    kind = "gauge"
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        """Set the value."""
        self.value = float(value)

    def add(self, amount: float = 1) -> None:
        """Add an amount, which may be negative."""
        self.value += amount

    def read(self) -> tuple[float, int]:
        """Return the value, and 0."""
        return self.value, 0


class UserTimer:
    """Durations: their number and their sum in seconds."""

    kind = "timer"
    __slots__ = ("count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0

    def record(self, seconds: float) -> None:
        """Add a duration in seconds."""
        self.count += 1
        self.seconds += seconds

    @contextmanager
    def time(self) -> Iterator[None]:
        """Add the duration of a `with` block."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.record(time.perf_counter() - began)

    def read(self) -> tuple[float, int]:
        """Return the sum in seconds and the number of durations."""
        return self.seconds, self.count


MetricT = TypeVar("MetricT", UserCounter, UserGauge, UserTimer)


@dataclass(frozen=True)
class MetricValue:
    """A metric as of one moment. node: the step's node, empty for the user's own; number: the value, or seconds of a timer."""

    group: str
    node: str
    name: str
    kind: str
    number: float
    count: int


class TaskMetrics:
    """The metrics of one task by group, node and name."""

    def __init__(self) -> None:
        self._metrics: dict[tuple[str, str, str], UserCounter | UserGauge | UserTimer] = {}

    def of(self, kind: type[MetricT], name: str, group: str = USER, node: str = "") -> MetricT:
        """Return a metric, which the first call creates. Raises StreamkitError if a metric of another kind has the name, or Prometheus does not allow it."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise StreamkitError(
                f"the name of a metric {name!r} must be made of letters, digits and _, and not begin with a digit"
            )
        metric = self._metrics.setdefault((group, node, name), kind())
        if not isinstance(metric, kind):
            raise StreamkitError(f"the metric {name!r} is already a {metric.kind}, not a {kind.kind}")
        return metric

    def view(self) -> tuple[MetricValue, ...]:
        """Return the values of all metrics; any thread may call it."""
        return tuple(
            MetricValue(group, node, name, metric.kind, *metric.read())
            for (group, node, name), metric in list(self._metrics.items())
        )


class UserMetrics:
    """The user's own metrics of a task: `context.metrics`."""

    def __init__(self, metrics: TaskMetrics):
        self._metrics = metrics

    def counter(self, name: str) -> UserCounter:
        """Return the counter of a name; equal names are the same counter. Raises StreamkitError."""
        return self._metrics.of(UserCounter, name)

    def gauge(self, name: str) -> UserGauge:
        """Return the gauge of a name. Raises StreamkitError."""
        return self._metrics.of(UserGauge, name)

    def timer(self, name: str) -> UserTimer:
        """Return the timer of a name. Raises StreamkitError."""
        return self._metrics.of(UserTimer, name)
