"""The progress of a job: stages, records and rates, on a status line of a terminal or as a line every 10 s."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TextIO, cast

from streamkit.runtime.spark.spark_session import classic_context

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo

_LINE_SECONDS = 10.0
_DRAW_SECONDS = 0.5


@dataclass(frozen=True)
class Snapshot:
    """The progress of a job at a moment."""

    stage: str
    done: int
    tasks: int
    read: int
    """The amount that all stages have read so far."""
    stage_seconds: float
    """Seconds since the first running stage began."""
    unit: str = "records"

    def text(self, seconds: float) -> str:
        """Return the progress as one line; `seconds`: the time since the job began."""
        rate = f", {self.read / seconds:,.0f}/s" if self.read and seconds > 0 else ""
        left = self.stage_seconds / self.done * (self.tasks - self.done) if self.done else 0
        remaining = f", about {left:.0f} s left of this stage" if left >= 1 else ""
        return (
            f"{self.stage}: {self.done}/{self.tasks} tasks, {self.read:,} {self.unit}{rate}, {seconds:.0f} s{remaining}"
        )


class Progress(Protocol):
    """A source of the progress of a session's jobs."""

    def snapshot(self) -> Snapshot | None:
        """Return the progress; None between jobs."""


class ContextProgress:
    """Asks Spark for the progress of the jobs of a context."""

    def __init__(self, context: SparkContext):
        self._context = context
        self._complete: dict[int, int] = {}
        """The records that complete stages have read."""

    def snapshot(self) -> Snapshot | None:
        """Return the progress; None between jobs."""
        tracker = self._context.statusTracker()
        infos = [info for info in map(tracker.getStageInfo, sorted(tracker.getActiveStageIds())) if info is not None]
        if not infos:
            return None
        java_context = self._context._jsc
        assert java_context is not None
        store = java_context.sc().statusStore()
        running = store.lastStageAttempt(infos[0].stageId)
        started = running.submissionTime()
        seconds = time.time() - started.get().getTime() / 1000 if started.isDefined() else 0
        return Snapshot(
            infos[0].name,
            sum(info.numCompletedTasks for info in infos),
            sum(info.numTasks for info in infos),
            sum(self._records(store, index) for index in range(infos[-1].stageId + 1)),
            seconds,
        )

    def _records(self, store: JavaObject, index: int) -> int:
        from py4j.protocol import Py4JJavaError

        if index in self._complete:
            return self._complete[index]
        try:
            stage = store.lastStageAttempt(index)
        except Py4JJavaError:
            return 0  # Spark skipped this stage of another job
        records: int = stage.inputRecords() + stage.shuffleReadRecords()
        if stage.status().toString() == "COMPLETE":
            self._complete[index] = records
        return records


class ConnectProgress:
    """Keeps the last report of a Spark Connect server on its query. Reports have numbers of stages, not names, and bytes, not records."""

    def __init__(self) -> None:
        self._current: StageInfo | None = None
        self._bytes: dict[int, int] = {}
        """The bytes that each stage has read so far."""
        self._began: dict[int, float] = {}

    def update(
        self, stages: Iterable[StageInfo] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        """Take a report on a query (`pyspark.sql.connect.shell.progress.ProgressHandler`)."""
        reported = sorted(stages or (), key=lambda stage: stage.stage_id)
        self._bytes.update((stage.stage_id, stage.num_bytes_read) for stage in reported)
        # Stages that wait for others are reported too.
        current = next((stage for stage in reported if not stage.done and not done), None)
        if current is not None:
            self._began.setdefault(current.stage_id, time.monotonic())
        self._current = current

    def snapshot(self) -> Snapshot | None:
        """Return the last report; None between queries."""
        stage = self._current
        if stage is None:
            return None
        seconds = time.monotonic() - self._began[stage.stage_id]
        name, read = f"stage {stage.stage_id} of Spark", sum(self._bytes.values())
        return Snapshot(name, stage.num_completed_tasks, stage.num_tasks, read, seconds, "bytes")


@contextmanager
def show_progress(spark: SparkSession, out: TextIO = sys.stderr) -> Iterator[None]:
    """Show the progress of the jobs that run inside the block."""
    context = classic_context(spark)
    progress: Progress
    if context is None:
        progress = ConnectProgress()
        spark.registerProgressHandler(cast("ProgressHandler", progress.update))
    else:
        progress = ContextProgress(context)
    ended = threading.Event()
    target = _draw if out.isatty() else _print
    thread = threading.Thread(target=target, args=(progress, ended, out), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _print(progress: Progress, ended: threading.Event, out: TextIO) -> None:
    started = time.monotonic()
    while not ended.wait(_LINE_SECONDS):
        now = _snapshot_or_none(progress)
        if now is not None:
            print(now.text(time.monotonic() - started), file=out, flush=True)


def _draw(progress: Progress, ended: threading.Event, out: TextIO) -> None:
    from rich.console import Console
    from rich.text import Text

    started = time.monotonic()
    with Console(file=out).status("starting") as status:
        while not ended.wait(_DRAW_SECONDS):
            now = _snapshot_or_none(progress)
            if now is not None:
                # A line that wraps would be redrawn below itself.
                status.update(Text(now.text(time.monotonic() - started), overflow="ellipsis", no_wrap=True))


def _snapshot_or_none(progress: Progress) -> Snapshot | None:
    # A stage may end between two calls, and a session that ends raises errors.
    try:
        return progress.snapshot()
    except Exception:
        return None
