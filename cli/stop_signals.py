"""SIGTERM and SIGINT as a request to end in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Give an event that SIGTERM and SIGINT set; a second SIGINT interrupts as usual."""
    asked = threading.Event()

    def ask(number: int, frame: Any) -> None:
        asked.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def hang_up() -> Iterator[threading.Event]:
    """Give an event that SIGHUP sets."""
    asked = threading.Event()
    before = signal.signal(signal.SIGHUP, lambda number, frame: asked.set())
    try:
        yield asked
    finally:
        signal.signal(signal.SIGHUP, before)
