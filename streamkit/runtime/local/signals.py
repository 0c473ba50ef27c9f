"""Ends an application in order by SIGTERM and SIGINT."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any


def set_from_handler(event: threading.Event) -> None:
    """Set an event from the handler of a signal, on a thread of its own.

    A handler runs between two instructions of the main thread, which may hold the lock of the event just then
    (Event.wait); it would wait for itself.
    """
    try:
        threading.Thread(target=event.set, name="signal", daemon=True).start()
    except RuntimeError:
        # No more threads: the risk is small, and a signal without an effect is worse.
        event.set()


def catch_signals(asked: threading.Event) -> Callable[[], None]:
    """Have SIGTERM and SIGINT set the event; return what puts the old handlers back. Only the main thread can do so."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None

    def ask(number: int, frame: Any) -> None:
        set_from_handler(asked)

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore
