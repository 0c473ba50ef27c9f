"""Rates from samples of totals, and end offsets of partitions."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping
from threading import Lock

from streamkit.errors import StreamkitError
from streamkit.record import TopicPartition
from streamkit.transport.log_interface import Consumer, Transport

log = logging.getLogger(__name__)

RATE_SECONDS = 10.0
"""The time over which rates are computed."""
_SAMPLE_SECONDS = 0.5
_ENDS_SECONDS = 1.0

Key = tuple[str, ...]
"""The name of a total, such as ("task", "0_1")."""


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
        """Return the increase of a total per second; 0 for a new total, or one that began again."""
        with self._lock:
            if not self._samples:
                return 0.0
            last, totals = self._samples[-1]
            first = next((each for each in self._samples if key in each[1]), None)
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
        """Return the known end offsets, at most a second old; fewer while the log does not respond."""
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
            log.info("the ends of the inputs are not known: %s", error)
            self._known = {}
        self._read_at = time.monotonic()

    def close(self) -> None:
        """Close the consumer."""
        with self._lock:
            self._closed = True
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None
