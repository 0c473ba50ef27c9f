"""How far a job is: stages, records and rates, drawn on a terminal, else as lines now and then."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

from streamkit.runtime.spark.globals import classic_context

_LINE_SECONDS = 10.0
_DRAW_SECONDS = 0.5


@dataclass(frozen=True)
class Snapshot:
    """Where a job is."""

    stage: str
    done: int
    tasks: int
    records: int
    """Read by all stages so far."""

    def text(self, seconds: float) -> str:
        """Return one line."""
        rate = f", {self.records / seconds:,.0f}/s" if self.records and seconds > 0 else ""
        return f"{self.stage}: {self.done}/{self.tasks} tasks, {self.records:,} records{rate}, {seconds:.0f} s"


def snapshot(context: Any) -> Snapshot | None:
    """Return where the jobs of a context are; None between jobs."""
    tracker = context.statusTracker()
    active = sorted(tracker.getActiveStageIds())
    infos = [info for info in map(tracker.getStageInfo, active) if info is not None]
    if not infos:
        return None
    store = context._jsc.sc().statusStore()
    description = ""
    records = 0
    for stage in store.stageList(None) if hasattr(store, "stageList") else ():
        records += stage.inputRecords() + stage.shuffleReadRecords()
    if infos and store.lastStageAttempt(infos[0].stageId).description().isDefined():
        description = store.lastStageAttempt(infos[0].stageId).description().get()
    done = sum(info.numCompletedTasks for info in infos)
    return Snapshot(description or infos[0].name, done, sum(info.numTasks for info in infos), records)


@contextmanager
def shown(spark: Any, out: TextIO = sys.stderr) -> Iterator[None]:
    """Show the progress of what runs inside."""
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


def _print(context: Any, ended: threading.Event, out: TextIO) -> None:
    started = time.monotonic()
    while not ended.wait(_LINE_SECONDS):
        now = _safe(context)
        if now is not None:
            print(now.text(time.monotonic() - started), file=out, flush=True)


def _draw(context: Any, ended: threading.Event, out: TextIO) -> None:
    from rich.console import Console

    started = time.monotonic()
    with Console(file=out).status("starting") as status:
        while not ended.wait(_DRAW_SECONDS):
            now = _safe(context)
            if now is not None:
                status.update(now.text(time.monotonic() - started))


def _safe(context: Any) -> Snapshot | None:
    # Stages come and go between two questions, and a session that ends answers none.
    try:
        return snapshot(context)
    except Exception:
        return None
