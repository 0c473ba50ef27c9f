"""Ends an application in order by SIGTERM and SIGINT."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any


def catch_signals(asked: threading.Event) -> Callable[[], None]:
    """Have SIGTERM and SIGINT set the event; return what puts the old handlers back. Only the main thread can do so."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None

    def ask(number: int, frame: Any) -> None:
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore
