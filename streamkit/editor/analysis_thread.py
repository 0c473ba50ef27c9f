"""One thread that analyses files, the newest version of each first; older versions are given up."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable

from streamkit.editor.analysis import Analysis
from streamkit.editor.texts import Text

Analyse = Callable[[Text, Callable[[], bool]], Analysis | None]
Done = Callable[[Analysis], None]
logger = logging.getLogger(__name__)
_IDLE_S = 0.5
_MOST_GARBAGE = 200
"""Analyses whose garbage may wait for a pause."""


class Worker:
    """Analyses texts that wait `pause_s` for further changes. done: called in the thread with each finished analysis."""

    def __init__(self, analyse: Analyse, done: Done, pause_s: float):
        self.pause_s = pause_s
        self._analyse = analyse
        self._done = done
        self._changed = threading.Condition()
        self._waiting: dict[str, tuple[Text, float]] = {}
        """By file: its newest text, and when its analysis may begin (monotonic clock)."""
        self._uncollected = 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="analysis", daemon=True)
        self._thread.start()

    def submit(self, text: Text, now: bool = False) -> None:
        """Analyse a text in place of an older version of it that still waits or is being analysed."""
        with self._changed:
            self._waiting[text.file] = (text, time.monotonic() + (0.0 if now else self.pause_s))
            self._changed.notify_all()

    def forget(self, file: str) -> None:
        """Drop the waiting text of a closed file."""
        with self._changed:
            self._waiting.pop(file, None)

    def close(self) -> None:
        """Stop after the analysis that is running."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _next(self) -> Text | None:
        """Wait for the text that is due first, and return it; None at the end."""
        with self._changed:
            while not self._is_closed:
                file, (text, due) = min(
                    self._waiting.items(), key=lambda item: item[1][1], default=("", (None, float("inf")))
                )
                remaining = due - time.monotonic()
                if text is not None and remaining <= 0:
                    del self._waiting[file]
                    return text
                self._changed.wait(None if text is None else remaining)
        return None

    def _collect(self) -> None:
        """Collect garbage in a pause: automatically, it would come while an analysis makes its many objects.

        An analysis itself leaves no circles of objects behind; the tracebacks of its errors do.
        """
        self._uncollected += 1
        with self._changed:
            goes_on = self._changed.wait_for(lambda: self._waiting or self._is_closed, _IDLE_S)
        if not goes_on or self._uncollected >= _MOST_GARBAGE:
            gc.collect()
            self._uncollected = 0

    def _run(self) -> None:
        while (text := self._next()) is not None:
            newest = text

            def is_old(current: Text = newest) -> bool:
                return self._is_closed or current.file in self._waiting

            try:
                analysis = self._analyse(text, is_old)
                if analysis is not None:
                    self._done(analysis)
            except Exception:
                # One text must not end the analysis of all later ones.
                logger.exception("the analysis of %s failed", text.file)
            self._collect()
