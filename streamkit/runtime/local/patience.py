"""Bears passing faults for task.timeout.ms (KIP-572)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from streamkit.errors import TransportError

log = logging.getLogger(__name__)

WARN_AFTER_MS = 5_000
WARN_EVERY_MS = 30_000


class Patience:
    """Since when each task has had nothing but faults; `clock` in milliseconds, only ever forward."""

    def __init__(self, limit_ms: int, clock: Callable[[], int]):
        self._limit_ms = limit_ms
        self._clock = clock
        self._since: dict[str, int] = {}
        self._failing_since: int | None = None
        self._warn_at = 0

    def bear(self, error: TransportError, tasks: Iterable[str] = ()) -> None:
        """Note a passing fault that keeps these tasks from going on; none: it costs only time.

        Most pass at once and need no line: a warning comes when it goes on, and now and then while it does.
        Raises TransportError once a task has waited for longer than task.timeout.ms.
        """
        now = self._clock()
        for task in tasks:
            if now - self._since.setdefault(task, now) > self._limit_ms:
                text = f"task {task} made no progress within {self._limit_ms} ms (task.timeout.ms): {error}"
                raise TransportError(text) from error
        if self._failing_since is None:
            self._failing_since, self._warn_at = now, now + WARN_AFTER_MS
        if now >= self._warn_at:
            log.warning("%s; trying again", error)
            self._warn_at = now + WARN_EVERY_MS
        else:
            log.info("%s; trying again", error)

    def relieve(self, tasks: Iterable[str] = ()) -> None:
        """Note that nothing failed this time, and that these tasks made progress."""
        self._failing_since = None
        if self._since:
            for task in tasks:
                self._since.pop(task, None)
