"""The state of a running application, as a table on a terminal that is redrawn."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from streamkit_cli.tables import count, eta

if TYPE_CHECKING:
    from streamkit.runtime.local.client import Application
    from streamkit.runtime.local.status_model import ApplicationStatus, DropStatus, RestoreStatus, TaskStatus

_REFRESHES_A_SECOND = 2
_HEADS = 12
"""The number of lines that are not rows of tasks: titles, headers and the tables below."""
_STATES = {"RUNNING": "green", "ERROR": "red", "PENDING_ERROR": "red"}


class ConsoleHandler(logging.Handler):
    """Writes lines of the log above the table."""

    def __init__(self, console: Console):
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        style = "red" if record.levelno >= logging.ERROR else "yellow" if record.levelno >= logging.WARNING else "dim"
        self._console.print(Text(self.format(record), style))


@contextmanager
def table(application: Application, console: Console) -> Iterator[None]:
    """Draw the application's state until the end of the block, and leave its last state there."""

    def draw() -> RenderableType:
        return render(application.status(), console.height)

    with Live(get_renderable=draw, console=console, refresh_per_second=_REFRESHES_A_SECOND):
        yield


def render(status: ApplicationStatus, height: int) -> RenderableType:
    """Return the state as tables that fit a terminal of `height` lines."""
    head = Text.assemble(
        (status.application, "bold"),
        "  ",
        (status.shown_state, _STATES.get(status.shown_state, "yellow")),
        f"  up {timedelta(seconds=int(status.uptime_seconds))}",
        f"  {status.rate:,.0f} records/s",
        f"  lag {count(status.lag)}",
    )
    parts: list[RenderableType] = [head]
    if status.error:
        parts.append(Text(status.error, "red"))
    if status.unowned:
        named = ", ".join(f"{each.topic} {each.partition}" for each in status.unowned)
        parts.append(Text(f"{len(status.unowned)} of {len(status.inputs)} inputs without an owner: {named}", "red"))
    room = max(3, height - _HEADS - len(status.topics) - len(status.restoring) - len(status.drops))
    parts += [_tasks(status, room), _topics(status)]
    if status.drops:
        parts.append(_dropped(status.drops))
    if status.restoring:
        parts.append(_restoring(status.restoring))
    return Group(*parts)


def _table(*columns: str) -> Table:
    """Return a table whose columns that end with : are of numbers."""
    made = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column.rstrip(":"), justify="right" if column.endswith(":") else "left", no_wrap=True)
    return made


def _tasks(status: ApplicationStatus, room: int) -> Table:
    made = _table("TASK", "THREAD", "STATE", "RECORDS/S:", "LAG:", "PROCESSED:", "DROPPED:", "STORES")
    rows = [(thread.short_name, task) for thread in status.threads for task in thread.tasks]
    # Where not all fit, tasks with the largest lag are shown.
    shown = sorted(rows, key=lambda row: _lag(row[1]) or 0, reverse=True)[:room] if len(rows) > room else rows
    for thread, task in shown:
        made.add_row(
            task.id,
            thread,
            task.state if task.kind == "active" else task.kind,
            f"{task.rate:,.0f}",
            count(_lag(task)),
            f"{task.processed:,}",
            Text(f"{task.dropped:,}", "yellow" if task.dropped else ""),
            ", ".join(task.stores),
        )
    if len(rows) > room:
        made.add_row("…", f"{len(rows) - room} more")
    return made


def _topics(status: ApplicationStatus) -> Table:
    made = _table("TOPIC", "READ/S:", "WRITTEN/S:", "LAG:")
    read = {each.topic for each in status.inputs}
    for each in status.topics:
        lag = count(each.lag) if each.topic in read else "-"
        made.add_row(each.topic, f"{each.consumed_rate:,.0f}", f"{each.produced_rate:,.0f}", lag)
    return made


def _dropped(drops: tuple[DropStatus, ...]) -> Table:
    made = _table("DROPPED", "TASK", "RECORDS:", "DEAD LETTERS:", "LAST")
    for each in drops:
        counts = f"{each.dropped:,}", f"{each.dead_letters:,}"
        made.add_row(each.reason, each.task or "-", *counts, each.message, style="yellow")
    return made


def _restoring(running: tuple[RestoreStatus, ...]) -> Table:
    made = _table("RESTORING", "TASK", "", "RECORDS:", "RECORDS/S:", "ETA:")
    for each in running:
        made.add_row(
            each.store,
            each.task,
            ProgressBar(total=max(each.total, 1), completed=each.restored, width=20),
            f"{each.restored:,} of {each.total:,}",
            f"{each.rate:,.0f}",
            eta(each.eta_seconds),
        )
    return made


def _lag(task: TaskStatus) -> int | None:
    lags = [each.lag for each in task.inputs]
    return None if None in lags else sum(lag for lag in lags if lag is not None)
