"""Tolerates transient errors for task.timeout.ms (KIP-572)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from streamkit.errors import TransportError

log = logging.getLogger(__name__)

WARN_AFTER_MS = 5_000
WARN_EVERY_MS = 30_000


class TaskTimeout:
    """The time since which each task has made no progress; `clock`: a monotonic clock in milliseconds."""

    def __init__(self, limit_ms: int, clock: Callable[[], int]):
        self._limit_ms = limit_ms
        self._clock = clock
        self._since: dict[str, int] = {}
        self._failing_since: int | None = None
        self._warn_at = 0

    def note_error(self, error: TransportError, tasks: Iterable[str] = ()) -> None:
        """Note a transient error that blocks these tasks; without tasks it only delays them.

        Logs a warning only where errors continue for WARN_AFTER_MS, and then every WARN_EVERY_MS: most are over at once.
        Raises TransportError once a task has made no progress for longer than task.timeout.ms.
        """
        now = self._clock()
        self._since = {task: self._since.get(task, now) for task in tasks}
        for task, since in self._since.items():
            if now - since > self._limit_ms:
                text = f"task {task} made no progress within {self._limit_ms} ms (task.timeout.ms): {error}"
                raise TransportError(text) from error
        if self._failing_since is None:
            self._failing_since, self._warn_at = now, now + WARN_AFTER_MS
        if now >= self._warn_at:
            log.warning("%s; trying again", error)
            self._warn_at = now + WARN_EVERY_MS
        else:
            log.info("%s; trying again", error)

    def note_progress(self, waiting: Iterable[str] = ()) -> None:
        """Note that there was no error this time; of the tasks that were blocked, those in `waiting` still are.

        A task that is not among them has made progress, or has moved away: if it comes back, its time begins again.
        """
        self._failing_since = None
        if self._since:
            self._since = {task: self._since[task] for task in waiting if task in self._since}
