"""The state of a running application, as a line of the log at intervals."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamkit.runtime.local.client import Application
    from streamkit.runtime.local.status_model import ApplicationStatus

log = logging.getLogger("streamkit.run")


@contextmanager
def summaries(application: Application, interval_ms: int) -> Iterator[None]:
    """Log a line at each interval (log.summary.interval.ms; below 0: never) until the end of the block."""
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(interval_ms / 1000):
            log.info("%s", summary(application.status()))

    thread = threading.Thread(target=write, name="summaries", daemon=True)
    if interval_ms > 0:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if thread.ident is not None:
            thread.join()


def summary(status: ApplicationStatus) -> str:
    """Return the state in one line."""
    parts = [
        f"{len(status.tasks)} tasks on {len(status.threads)} threads",
        f"{status.rate:,.0f} records/s",
        f"lag {count(status.lag)}",
    ]
    if status.unowned:
        parts.append(f"{len(status.unowned)} of {len(status.inputs)} input partitions without an owner")
    dropped, letters = (sum(getattr(each, name) for each in status.drops) for name in ("dropped", "dead_letters"))
    if dropped:
        parts.append(f"{dropped:,} records dropped, {letters:,} dead letters")
    if status.restoring:
        left = sum(each.total - each.restored for each in status.restoring)
        parts.append(f"restoring {len(status.restoring)} changelogs, {left:,} records left, {eta(_longest(status))}")
    return f"{status.application} {status.shown_state}: {', '.join(parts)}"


def _longest(status: ApplicationStatus) -> float | None:
    times = [each.eta_seconds for each in status.restoring]
    return None if None in times else max((time for time in times if time is not None), default=None)


def count(number: int | None) -> str:
    """Return a number with separators; ? where it is unknown."""
    return "?" if number is None else f"{number:,}"


def eta(seconds: float | None) -> str:
    """Return the time that is left; ? where it is unknown."""
    return "?" if seconds is None else f"{timedelta(seconds=round(seconds))} left"
