"""The process of a command: events that signals set, and the output of the user's Python code."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from types import FrameType
from typing import TextIO

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
