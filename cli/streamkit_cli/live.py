"""The live table that shows the state of a running application on a terminal."""

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
_OTHER_LINES = 12
"""Lines that are not rows of tasks: titles, headers and the tables below."""
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
    """Draw the application's state until the end of the block, and leave the last drawing on the terminal."""

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
        named = ", ".join(f"{partition.topic} {partition.partition}" for partition in status.unowned)
        parts.append(Text(f"{len(status.unowned)} of {len(status.inputs)} inputs without an owner: {named}", "red"))
    room = max(3, height - _OTHER_LINES - len(status.topics) - len(status.restoring) - len(status.drops))
    parts += [_tasks(status, room), _topics(status)]
    if status.drops:
        parts.append(_dropped(status.drops))
    if status.restoring:
        parts.append(_restoring(status.restoring))
    return Group(*parts)


def _table(*columns: str) -> Table:
    """Return a table. A column whose name ends with `:` holds numbers."""
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column.rstrip(":"), justify="right" if column.endswith(":") else "left", no_wrap=True)
    return table


def _tasks(status: ApplicationStatus, room: int) -> Table:
    table = _table("TASK", "THREAD", "STATE", "RECORDS/S:", "LAG:", "PROCESSED:", "DROPPED:", "STORES")
    rows = [(thread.short_name, task) for thread in status.threads for task in thread.tasks]
    # If not all tasks fit, those with the largest lag are the interesting ones.
    shown = sorted(rows, key=lambda row: _lag(row[1]) or 0, reverse=True)[:room] if len(rows) > room else rows
    for thread, task in shown:
        table.add_row(
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
        table.add_row("…", f"{len(rows) - room} more")
    return table


def _topics(status: ApplicationStatus) -> Table:
    table = _table("TOPIC", "READ/S:", "WRITTEN/S:", "LAG:")
    read = {partition.topic for partition in status.inputs}
    for topic in status.topics:
        lag = count(topic.lag) if topic.topic in read else "-"
        table.add_row(topic.topic, f"{topic.consumed_rate:,.0f}", f"{topic.produced_rate:,.0f}", lag)
    return table


def _dropped(drops: tuple[DropStatus, ...]) -> Table:
    table = _table("DROPPED", "TASK", "RECORDS:", "DEAD LETTERS:", "LAST")
    for drop in drops:
        counts = f"{drop.dropped:,}", f"{drop.dead_letters:,}"
        table.add_row(drop.reason, drop.task or "-", *counts, drop.message, style="yellow")
    return table


def _restoring(running: tuple[RestoreStatus, ...]) -> Table:
    table = _table("RESTORING", "TASK", "", "RECORDS:", "RECORDS/S:", "ETA:")
    for store in running:
        table.add_row(
            store.store,
            store.task,
            ProgressBar(total=max(store.total, 1), completed=store.restored, width=20),
            f"{store.restored:,} of {store.total:,}",
            f"{store.rate:,.0f}",
            eta(store.eta_seconds),
        )
    return table


def _lag(task: TaskStatus) -> int | None:
    lags = [partition.lag for partition in task.inputs]
    return None if None in lags else sum(lag for lag in lags if lag is not None)
