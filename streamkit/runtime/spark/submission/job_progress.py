"""The progress of a job: stages, records and rates, on a status line of a terminal or as a line every 10 s."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from streamkit.runtime.spark.workers.globals import classic_context

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_LINE_SECONDS = 10.0
_DRAW_SECONDS = 0.5


@dataclass(frozen=True)
class Snapshot:
    """The progress of a job at a moment."""

    stage: str
    done: int
    tasks: int
    records: int
    """Read by all stages so far."""

    def text(self, seconds: float) -> str:
        """Return one line."""
        rate = f", {self.records / seconds:,.0f}/s" if self.records and seconds > 0 else ""
        return f"{self.stage}: {self.done}/{self.tasks} tasks, {self.records:,} records{rate}, {seconds:.0f} s"


def snapshot(context: SparkContext) -> Snapshot | None:
    """Return the progress of the jobs of a context; None between jobs."""
    tracker = context.statusTracker()
    active = sorted(tracker.getActiveStageIds())
    infos = [info for info in map(tracker.getStageInfo, active) if info is not None]
    if not infos:
        return None
    java_context = context._jsc
    assert java_context is not None
    store = java_context.sc().statusStore()
    description = ""
    records = 0
    for stage in store.stageList(None) if hasattr(store, "stageList") else ():
        records += stage.inputRecords() + stage.shuffleReadRecords()
    if infos and store.lastStageAttempt(infos[0].stageId).description().isDefined():
        description = store.lastStageAttempt(infos[0].stageId).description().get()
    done = sum(info.numCompletedTasks for info in infos)
    return Snapshot(description or infos[0].name, done, sum(info.numTasks for info in infos), records)


@contextmanager
def show_progress(spark: SparkSession, out: TextIO = sys.stderr) -> Iterator[None]:
    """Show the progress of the jobs that run inside the block."""
    context = classic_context(spark)
    if context is None:
        yield
        return
    ended = threading.Event()
    target = _draw if out.isatty() else _print
    thread = threading.Thread(target=target, args=(context, ended, out), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _print(context: SparkContext, ended: threading.Event, out: TextIO) -> None:
    started = time.monotonic()
    while not ended.wait(_LINE_SECONDS):
        now = _snapshot_or_none(context)
        if now is not None:
            print(now.text(time.monotonic() - started), file=out, flush=True)


def _draw(context: SparkContext, ended: threading.Event, out: TextIO) -> None:
    from rich.console import Console

    started = time.monotonic()
    with Console(file=out).status("starting") as status:
        while not ended.wait(_DRAW_SECONDS):
            now = _snapshot_or_none(context)
            if now is not None:
                status.update(now.text(time.monotonic() - started))


def _snapshot_or_none(context: SparkContext) -> Snapshot | None:
    # A stage may end between two calls, and a session that ends raises errors.
    try:
        return snapshot(context)
    except Exception:
        return None
