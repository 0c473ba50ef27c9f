"""An application of one thread on an embedded log, which a test tells its tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamkit.plan.model import Plan
from streamkit.record import TaskId
from streamkit.runtime.local.client import Application
from streamkit.runtime.local.restore import RestoreProgress
from streamkit.runtime.local.stream_thread import StreamThread
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.log_interface import Transport
from tests.broker.support import until
from tests.cli.support import LIMIT_S
from tests.runtime.counting import PARTITIONS, counting, rows

KEYS = 6
ALL = [TaskId(0, number) for number in range(PARTITIONS)]
CHANGELOG = "app-counts-changelog"
GUARANTEES = ["at_least_once", "exactly_once_v2"]


class Started:
    """An application whose only thread is told by the test what to do."""

    def __init__(self, log: Transport, folder: Path, plan: Plan | None = None, **config):
        self.events: list[tuple[str, RestoreProgress]] = []
        self.application = Application(plan or counting(folder, **config), log)
        self.application.set_restore_listener(lambda event, progress: self.events.append((event, progress)))

    def __enter__(self) -> Started:
        self.application.start()
        until(lambda: self.application._maintain() or self.application.ready, "the start")
        (self.thread,) = self.application.threads
        return self

    def __exit__(self, *exc: object) -> None:
        self.application.stop()
        self.application.raise_error()

    thread: StreamThread

    def assign(self, active, standby=()) -> None:
        self.thread.assign(active, standby)
        until(lambda: self.thread.settled() and self.thread._tasks.restored, "the assignment")

    def standby_row(self, key: str, partition: int) -> int | None:
        """What a standby's store has for a key."""
        with self.thread.updater.entered(LIMIT_S):
            stores = {number: store for number, store, _ in self.thread.updater.stores("counts")}
            found = stores[partition].get(key.encode()) if partition in stores else None
        return found and found[0]


def counted(log: EmbeddedTransport, to: int) -> None:
    until(lambda: dict(rows(log, "counts")) == {f"k{key}": to for key in range(KEYS)}, f"the counts up to {to}")


def write_changelog(log: EmbeddedTransport, key: str, count: int, partition: int) -> None:
    producer = log.producer()
    producer.send([(CHANGELOG, key.encode(), count.to_bytes(8), 1, None, partition)])
    producer.flush()
    producer.close()


def said(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [message for message in caplog.messages if words in message]


def rows_of(log: EmbeddedTransport) -> list[tuple[str, int]]:
    return rows(log, "counts")
