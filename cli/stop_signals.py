"""SIGTERM and SIGINT as a request to end in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streamkit.runtime.local.signals import set_from_handler


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Give an event that SIGTERM and SIGINT set; a second SIGINT interrupts as usual.

    Afterwards SIGTERM has no effect: the process is about to end, and its exit code says how the work went.
    """
    asked = threading.Event()

    def ask(number: int, frame: Any) -> None:
        set_from_handler(asked)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGTERM, ask)
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, before)


@contextmanager
def hang_up() -> Iterator[threading.Event]:
    """Give an event that SIGHUP sets."""
    asked = threading.Event()
    before = signal.signal(signal.SIGHUP, lambda number, frame: set_from_handler(asked))
    try:
        yield asked
    finally:
        signal.signal(signal.SIGHUP, before)
