"""The process's own log: lines of text or of JSON on stderr."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer

from streamkit.errors import StreamkitError
from streamkit.repeats import Repeats

VERBOSE = "--verbose"
_CLIENTS = ("streamkit.kafka", "kafka")
"""Loggers of Kafka's clients, for debugging; streamkit logs their important errors itself."""


class LogFormat(StrEnum):
    """The formats of lines."""

    text = "text"
    json = "json"


class LogLevel(StrEnum):
    """The least important lines that are written."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


Form = Annotated[
    LogFormat, typer.Option("--log-format", envvar="STREAMKIT_LOG_FORMAT", help="Lines of the log: text or JSON.")
]
Level = Annotated[
    LogLevel | None,
    typer.Option(
        "--log-level",
        envvar="STREAMKIT_LOG_LEVEL",
        help="The least important lines that are written; info by default, with --until-idle warning.",
        show_default=False,
    ),
]


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        data = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        application = getattr(record, "application", None)
        if application is not None:
            data["application"] = application
        if record.exc_info:
            data["traceback"] = self.formatException(record.exc_info)
        return json.dumps(data, ensure_ascii=False)


class TextLines(logging.Formatter):
    """Lines of time, level and message; the message begins with the application where the process runs several."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        application = getattr(record, "application", None)
        if application is not None:
            record.message = f"{application}: {record.message}"
        return super().formatMessage(record)


class _ApplicationOfThread(logging.Filter):
    """Adds the application to records of its threads, whose names begin with its id."""

    def __init__(self, applications: Iterable[str]):
        super().__init__()
        # Of `orders` and `orders-eu`, a thread `orders-eu-…` belongs to the longer name.
        self._applications = sorted(applications, key=len, reverse=True)

    def filter(self, record: logging.LogRecord) -> bool:
        thread = record.threadName or ""
        for application in self._applications:
            if thread == application or thread.startswith(f"{application}-"):
                record.application = application
                break
        return True


def name_applications(applications: Iterable[str]) -> None:
    """Add to each line the application whose thread logs it; called after `set_up`."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(_ApplicationOfThread(applications))


def set_up(form: LogFormat, level: LogLevel, handler: logging.Handler | None = None) -> None:
    """Write streamkit's log to stderr, or through `handler`; other libraries' warnings too, and more at level debug.

    Repeated lines of all loggers are counted. Uncaught exceptions of threads are logged.
    """
    chosen = handler or logging.StreamHandler(sys.stderr)
    chosen.setFormatter(JsonLines() if form is LogFormat.json else TextLines())
    number = logging.getLevelNamesMapping()[level.value.upper()]
    verbose = level is LogLevel.debug
    logging.basicConfig(
        level=number if verbose else max(number, logging.WARNING), handlers=[Repeats(chosen)], force=True
    )
    logging.getLogger("streamkit").setLevel(number)
    threading.excepthook = _log_end_of_thread
    for clients in _CLIENTS:
        # At level debug kafka-python logs the bytes that it sends, passwords included.
        logging.getLogger(clients).setLevel(logging.INFO if verbose else logging.CRITICAL + 1)


def count_repeats() -> None:
    """Write the counts of repeated lines so far, before the last line of the process."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, Repeats):
            handler.count()


def _log_end_of_thread(ended: threading.ExceptHookArgs) -> None:
    """Log an exception that ended a thread, in place of printing it."""
    if ended.exc_type is SystemExit or ended.exc_value is None:
        return
    name = "" if ended.thread is None else ended.thread.name
    exception = ended.exc_type, ended.exc_value, ended.exc_traceback
    logging.getLogger("streamkit").error("the thread %s failed", name, exc_info=exception)


def chosen_level(context: typer.Context, level: LogLevel | None, until_idle: bool) -> LogLevel:
    """Return the level of a run: a job that ends on its own is silent unless something is wrong, so that cron is too.

    The command line overrides the environment, --verbose too.
    """
    source = context.get_parameter_source("log_level")
    typed = source is not None and source.name == "COMMANDLINE"
    if VERBOSE in sys.argv and not typed:
        return LogLevel.debug
    if level is not None:
        return level
    return LogLevel.warning if until_idle else LogLevel.info


def log_end(error: StreamkitError) -> int:
    """Log the error that ended the process, and return its exit code."""
    count_repeats()
    cause = error.__cause__ if VERBOSE in sys.argv else None
    text = "; ".join([str(error), *getattr(error, "__notes__", ())])
    logging.getLogger("streamkit").error("%s", text, exc_info=cause)
    return error.exit_code
