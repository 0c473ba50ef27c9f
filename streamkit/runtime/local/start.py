"""Repeats the start while no broker responds, as the clients of Kafka Streams do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from time import monotonic
from typing import TypeVar

from streamkit.changes.marks import check_marks
from streamkit.changes.of_log import records_of, unknown_changelogs
from streamkit.errors import RetriableTransportError, TransportError, UnreachableError
from streamkit.plan.lookup import internal_topics_on_log
from streamkit.plan.model import Plan
from streamkit.runtime.local.internal_topics import TopicsOnLog, prepare
from streamkit.runtime.operations.migration_journal import check_migrated, read_entries
from streamkit.transport.log_interface import Admin, Transport

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


# Checks at the start, of the state of an earlier version of the application.


def checked_topics(plan: Plan, transport: Transport, force: bool) -> TopicsOnLog:
    """Check changelogs and return the topics of `prepare`; with `force` no changelog is rejected, nor an incomplete migration.

    Raises IncompatibleStateError before anything is created, and what `prepare` raises.
    """
    # The imports run while brokers respond; `membership` waits for them.
    threading.Thread(target=transport.prepare_membership, daemon=True).start()
    with closing(transport.admin()) as admin:
        existing = admin.partition_counts()
        ids = admin.topic_ids(sorted(existing.keys() & internal_topics_on_log(plan).values()))
        migrated = read_entries(plan.application, existing, transport)
        if not force:
            check_marks(plan, ids)
            check_migrated(plan, migrated)
        topics = prepare(plan, admin, existing, ids, create_written=transport.creates_written_topics)
        try:
            copied = {entry.source for entry in migrated.values() if entry.done}
            _warn(plan, {name: count for name, count in existing.items() if name not in copied}, admin, transport)
        except TransportError as error:
            log.info("%s; changelogs that no store has are not looked for", error)
    return topics


def _warn(plan: Plan, existing: Mapping[str, int], admin: Admin, transport: Transport) -> None:
    """Log the changelogs of the application that no store has and that have records: a renamed store starts empty."""
    counts = unknown_changelogs(plan, existing, admin, transport)
    with_records = (
        {name: records for name, records in records_of(transport, counts).items() if records} if counts else {}
    )
    if with_records:
        shown = ", ".join(f"{name} ({records} records)" for name, records in sorted(with_records.items()))
        log.warning(
            "no store of %s has the changelog %s; `streamkit diff --running` says more", plan.application, shown
        )
