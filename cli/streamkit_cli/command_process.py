"""The process of a command: events that signals set, the output of the user's Python code, and the log."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from datetime import UTC, datetime
from enum import StrEnum
from types import FrameType
from typing import TextIO

from streamkit.errors import StreamkitError
from streamkit.repeats import Repeats
from streamkit.runtime.local.signal_handlers import set_from_handler


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and SIGINT set; a second SIGINT interrupts as usual.

    Afterwards SIGTERM has no effect: the process is about to end with the exit code of its work.
    """
    stop_requested = threading.Event()

    def request_stop(number: int, frame: FrameType | None) -> None:
        set_from_handler(stop_requested)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGTERM, request_stop)
    before = signal.signal(signal.SIGINT, request_stop)
    try:
        yield stop_requested
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, before)


@contextmanager
def restarting() -> Iterator[threading.Event]:
    """Yield an event that SIGHUP sets."""
    restart_requested = threading.Event()
    before = signal.signal(signal.SIGHUP, lambda number, frame: set_from_handler(restart_requested))
    try:
        yield restart_requested
    finally:
        signal.signal(signal.SIGHUP, before)


# Where the user's Python code writes: stdout is for what a command prints, so `print` and the log of a processor go to stderr.

USER_LOG = "streamkit.user"


@contextmanager
def user_output() -> Iterator[TextIO]:
    """Redirect what user code prints to stderr while the block runs; yield the command's own stdout."""
    stdout = sys.stdout
    with redirect_stdout(sys.stderr):
        yield stdout


@contextmanager
def user_log() -> Iterator[None]:
    """Write lines of `context.log` from level info to stderr, for commands that have no log of their own."""
    log, handler = logging.getLogger(USER_LOG), logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    level, propagates = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagates


# The log of the process: lines of text or of JSON on stderr.

VERBOSE = "--verbose"
_CLIENTS = ("streamkit.kafka", "kafka")
"""Loggers of Kafka's clients, for debugging; streamkit logs their important errors itself."""


class LogLevel(StrEnum):
    """The lowest level of lines that are written."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class JsonLines(logging.Formatter):
    """Formats each record as a line of JSON."""

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
    """Lines of time, level and message; the message begins with the application if the process runs several."""

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
        # Longest first: a thread `orders-eu-…` belongs to `orders-eu`, not to `orders`.
        self._applications = sorted(applications, key=len, reverse=True)

    def filter(self, record: logging.LogRecord) -> bool:
        thread = record.threadName or ""
        for application in self._applications:
            if thread == application or thread.startswith(f"{application}-"):
                record.application = application
                break
        return True


def name_applications(applications: Iterable[str]) -> None:
    """Add to each line the application whose thread logs it; called after `set_up_log`."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(_ApplicationOfThread(applications))


def set_up_log(level: LogLevel, as_json: bool = False, handler: logging.Handler | None = None) -> None:
    """Write streamkit's log, and warnings of other libraries, to stderr or through `handler`.

    At level debug, all lines of other libraries are written. Repeated lines are counted. Uncaught exceptions of threads
    are logged.
    """
    chosen = handler or logging.StreamHandler(sys.stderr)
    chosen.setFormatter(JsonLines() if as_json else TextLines())
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


def log_end(error: StreamkitError) -> int:
    """Log the error that ended the process, and return its exit code."""
    count_repeats()
    cause = error.__cause__ if VERBOSE in sys.argv else None
    text = "; ".join([str(error), *getattr(error, "__notes__", ())])
    logging.getLogger("streamkit").error("%s", text, exc_info=cause)
    return error.exit_code
