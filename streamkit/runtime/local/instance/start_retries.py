"""Repeats the start while no broker responds, as the clients of Kafka Streams do."""

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
QUIET_SECONDS = 2.0
"""Seconds after which a call that waits is logged."""
_CHECK_SECONDS = 0.05
Result = TypeVar("Result")


class StopRequestedError(Exception):
    """The application was stopped before it had started."""


class StartRetries:
    """Repeats calls that need the log until they succeed, `stop` is set, or `limit_ms` have passed since the first failure.

    limit_ms None: no limit; place: the address of the log, for messages; tried: returns what was tried to reach it, None
    where that succeeded.
    """

    def __init__(
        self,
        stop: threading.Event | None,
        limit_ms: int | None,
        place: str,
        tried: Callable[[], str | None] = lambda: None,
    ):
        self._stop = stop or threading.Event()
        self._limit_ms = limit_ms
        self._place = place
        self._tried = tried
        self._quiet_until = monotonic() + QUIET_SECONDS

    def call_in_thread(self, action: Callable[[], Result]) -> Result:
        """Call in a separate thread, so that a call without a response does not delay a stop.

        Raises StopRequestedError, UnreachableError, and what the action raises.
        """
        return self.call(lambda: self._on_a_thread(action))

    def call(self, action: Callable[[], Result], limit_ms: int | None = None) -> Result:
        """Call in this thread; `limit_ms` replaces that of the object. Raises as `call_in_thread` does."""
        since: float | None = None
        warn_at = 0.0
        limit_ms = self._limit_ms if limit_ms is None else limit_ms
        while True:
            if self._stop.is_set():
                raise StopRequestedError
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

    def _warn(self, waiting: threading.Thread) -> None:
        tried = self._tried()
        if not waiting.is_alive() or self._stop.is_set():
            return
        if tried is None:
            # A broker accepts connections: it is busy, or this machine is.
            log.info("no answer from %s yet; waiting for it", self._place)
        else:
            log.warning("no answer from %s yet; waiting for it; tried %s", self._place, tried)

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
                raise StopRequestedError
            if monotonic() >= self._quiet_until:
                self._quiet_until = float("inf")
                # A connection may take longer than a stop may wait.
                threading.Thread(target=self._warn, args=(thread,), name="silence", daemon=True).start()
            thread.join(_CHECK_SECONDS)
        if failures:
            raise failures[0]
        return results[0]


def _too_long(error: TransportError, limit_ms: int) -> TransportError:
    return type(error)(f"{error}; it was tried for {limit_ms} ms (task.timeout.ms)")
