"""The start, while no broker answers: tried again and again, as the clients of Kafka Streams do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import TypeVar

from streamkit.errors import RetriableTransportError, TransportError, UnreachableError

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
WARN_EVERY_SECONDS = 30.0
QUIET_SECONDS = 3.0
"""How long a call may take before a line says that it waits."""
_LOOK_SECONDS = 0.05
Result = TypeVar("Result")


class StopAskedError(Exception):
    """The application was asked to end before it had started."""


class Waiting:
    """Calls what needs the log until it succeeds, `stop` is set, or `limit_ms` have passed since it first failed.

    limit_ms None: without an end; place: where the log is, for messages.
    """

    def __init__(self, stop: threading.Event | None, limit_ms: int | None, place: str):
        self._stop = stop or threading.Event()
        self._limit_ms = limit_ms
        self._place = place
        self._quiet_until = monotonic() + QUIET_SECONDS

    def apart(self, action: Callable[[], Result]) -> Result:
        """Call on a thread of its own, so that a call without an answer does not hold up the end.

        Raises StopAskedError, UnreachableError, and what the action raises.
        """
        return self.here(lambda: self._on_a_thread(action))

    def here(self, action: Callable[[], Result], limit_ms: int | None = None) -> Result:
        """Call on this thread; `limit_ms` goes before that of the object. Raises as `apart` does."""
        since: float | None = None
        warn_at = 0.0
        limit_ms = self._limit_ms if limit_ms is None else limit_ms
        while True:
            if self._stop.is_set():
                raise StopAskedError
            try:
                return action()
            except (RetriableTransportError, UnreachableError) as error:
                now = monotonic()
                since = now if since is None else since
                if limit_ms is not None and now - since >= limit_ms / 1000:
                    raise _too_long(error, limit_ms) from error
                if now >= warn_at:
                    log.warning("%s; trying again", error)
                    warn_at = now + WARN_EVERY_SECONDS
            self._stop.wait(RETRY_SECONDS)

    def _on_a_thread(self, action: Callable[[], Result]) -> Result:
        results: list[Result] = []
        failures: list[BaseException] = []

        def run() -> None:
            try:
                results.append(action())
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run, name="start", daemon=True)
        thread.start()
        while thread.is_alive():
            if self._stop.is_set():
                raise StopAskedError
            if monotonic() >= self._quiet_until:
                self._quiet_until = float("inf")
                log.warning("no answer from %s yet; waiting for it", self._place)
            thread.join(_LOOK_SECONDS)
        if failures:
            raise failures[0]
        return results[0]


def _too_long(error: TransportError, limit_ms: int) -> TransportError:
    return type(error)(f"{error}; it was tried for {limit_ms} ms (task.timeout.ms)")
