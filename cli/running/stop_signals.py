"""Events that SIGTERM, SIGINT and SIGHUP set."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from streamkit.runtime.local.instance.signal_handlers import set_from_handler


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Give an event that SIGTERM and SIGINT set; a second SIGINT interrupts as usual.

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
    """Give an event that SIGHUP sets."""
    restart_requested = threading.Event()
    before = signal.signal(signal.SIGHUP, lambda number, frame: set_from_handler(restart_requested))
    try:
        yield restart_requested
    finally:
        signal.signal(signal.SIGHUP, before)
