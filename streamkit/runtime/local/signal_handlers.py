"""Stops an application cleanly on SIGTERM and SIGINT."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType


def set_from_handler(event: threading.Event) -> None:
    """Set an event from the handler of a signal, in a separate thread.

    A handler runs between two instructions of the main thread, which may hold the event's lock (Event.wait): it would deadlock.
    """
    try:
        threading.Thread(target=event.set, name="signal", daemon=True).start()
    except RuntimeError:
        # No thread can be started. The risk is small, and ignoring the signal would be worse.
        event.set()


def catch_signals(event: threading.Event) -> Callable[[], None]:
    """Set the event on SIGTERM and SIGINT; return a function that restores the old handlers. For the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None

    def handle(number: int, frame: FrameType | None) -> None:
        set_from_handler(event)

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore
