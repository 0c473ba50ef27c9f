"""Counters that are updated at most once per batch (with the names of Kafka Streams' metrics), and counts of dropped records."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from time import time
from typing import cast


class Metrics:
    """Totals by (metric, labels); the owner adds, any thread may read."""

    def __init__(self) -> None:
        self._totals: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, amount: int = 1, labels: str = "") -> None:
        """Add to a total, such as `dropped-records-total` of task `0_1`."""
        self._totals[name, labels] += amount

    def totals(self) -> Mapping[tuple[str, str], int]:
        """Return a copy of all totals."""
        return dict(self._totals)


class DropReason(StrEnum):
    """Why a step or a store drops a record without a failure."""

    NULL = "no key or no value"
    LATE = "late: its window is closed, or its time has passed"
    EXPIRED = "expired: older than the store keeps rows"
    STALE = "superseded by a newer version of its row"
    TIMESTAMP = "timestamp below 0"
    NO_PARTITION = "the step's partition expression gives none"


_LINES = {
    DropReason.LATE: ("late ", "window closed"),
    DropReason.EXPIRED: ("expired ", "older than the store keeps rows"),
    DropReason.STALE: ("superseded ", "the row has a newer version"),
}
"""The parts of a log line by reason: the kind of the records, and the reason as it follows the topic."""
_TOPIC = re.compile(r"topic (\S+), partition [0-9]+, offset")


@dataclass(frozen=True)
class DroppedCount:
    """The number of records dropped for one reason, how many of them became dead letters, and the last one."""

    reason: str
    dropped: int
    dead_letters: int
    message: str
    """The message of the last one: its failure, or its place on the log."""
    at_ms: int
    """The time (wall clock) of the last one."""


class DropWarnings:
    """Logs dropped records, at most one line a minute for each task and reason; used by one thread.

    The first record of a reason is logged at once. `write` logs the others a minute later, and `close` the rest.
    """

    INTERVAL_MS = 60_000

    def __init__(self, log: logging.Logger):
        self._log = log
        self._waiting: dict[tuple[str, str], tuple[int, str]] = {}
        """The number of records that are not logged yet, and the last message, by task and reason."""
        self._logged: dict[tuple[str, str], int] = {}
        """The time (ms, monotonic) of the last line, by task and reason."""

    def note(self, task: str, counts: Iterable[DroppedCount], noted: dict[str, int]) -> None:
        """Note the records of a task that were dropped since the last call. `noted`: its numbers by reason, as of that call and then of this one."""
        for count in counts:
            dropped = count.dropped - noted.get(count.reason, 0)
            if dropped:
                noted[count.reason] = count.dropped
                before, _ = self._waiting.get((task, count.reason), (0, ""))
                self._waiting[task, count.reason] = before + dropped, count.message

    def write(self, now: int) -> None:
        """Log the lines that are due at a time (ms, monotonic)."""
        due = [key for key in self._waiting if key not in self._logged or now - self._logged[key] >= self.INTERVAL_MS]
        for key in due:
            dropped, message = self._waiting.pop(key)
            self._log.warning("task %s: %s", key[0], dropped_line(key[1], dropped, message, " in the last minute"))
            self._logged[key] = now

    def close(self, now: int) -> None:
        """Log all records that are not logged yet."""
        self._logged.clear()
        self.write(now)


def dropped_line(reason: str, dropped: int, message: str, when: str = "") -> str:
    """Return the log line for records that were dropped for a reason. `message`: the message of the last record (DroppedCount)."""
    kind, detail = _LINES.get(cast(DropReason, reason), ("", reason))
    topic = _TOPIC.search(message)
    place = f"topic {topic[1]}, " if topic is not None and not detail.startswith("topic ") else ""
    return f"dropped {dropped:,} {kind}record{'' if dropped == 1 else 's'}{when} ({place}{detail})"


class _Entry:
    """The count of one reason. Its message is formatted only at the end of a round, because later records replace most messages."""

    __slots__ = ("at", "dead_letters", "dropped", "message")

    def __init__(self) -> None:
        self.dropped = self.dead_letters = 0
        self.message: Callable[[], str] | str = ""
        self.at = 0.0


class DroppedRecords:
    """Dropped records and dead letters by reason; used by one thread."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def add(self, reason: str, message: Callable[[], str] | str, *, dropped: int = 1, dead_letters: int = 0) -> None:
        """Count records of a reason; `message`: the message of the last one, or a function that returns it."""
        entry = self._entries.get(reason)
        if entry is None:
            entry = self._entries[reason] = _Entry()
        entry.dropped += dropped
        entry.dead_letters += dead_letters
        entry.message = message
        entry.at = time()

    def settle(self) -> None:
        """Format the messages, to release their errors: the traceback of an error keeps all columns of a batch in memory."""
        for entry in self._entries.values():
            if not isinstance(entry.message, str):
                entry.message = entry.message()

    def view(self) -> tuple[DroppedCount, ...]:
        """Return the counts by reason, in the order of their first records."""
        self.settle()
        return tuple(self._view(reason, entry) for reason, entry in self._entries.items())

    @staticmethod
    def _view(reason: str, entry: _Entry) -> DroppedCount:
        return DroppedCount(str(reason), entry.dropped, entry.dead_letters, str(entry.message), int(entry.at * 1000))
