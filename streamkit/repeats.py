"""A log handler that counts repeated messages in place of writing them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

SECONDS = 60.0
SAME = 5
DISTINCT = 100
_FEWER = 10
_LONGEST = 500
"""Characters of a message that a count quotes."""


_Key: TypeAlias = tuple[str, int, str, int, str]
"""Logger, level, file, line, and the application if the process runs several."""


class _Place:
    """The messages that one line of code has logged at one level since the last count."""

    __slots__ = ("counts", "last", "others", "room")

    def __init__(self, room: int):
        self.room = room
        """How many different messages are written."""
        self.counts: dict[tuple[str, str], int] = {}
        """How often each message came."""
        self.others = 0
        """Messages that came when the table was full."""
        self.last: logging.LogRecord | None = None


class Repeats(logging.Handler):
    """Passes records to another handler, and counts those that repeat.

    The same message from one line of code at one level (with an exception: of the same type and text too) is written
    `same` times within `seconds`. Further ones are counted; a line of the same level and logger reports the count at the
    end of that time, and at the close. While a message keeps repeating, only these counts are written. Different
    messages from one line of code are all written, up to `distinct` of them; beyond that they are counted together, and
    a tenth as many are written while that continues. Critical records are always written.

    `clock`: seconds, monotonic.
    """

    def __init__(
        self,
        inner: logging.Handler,
        *,
        seconds: float = SECONDS,
        same: int = SAME,
        distinct: int = DISTINCT,
        clock: Callable[[], float] = time.monotonic,
    ):
        super().__init__()
        # For basicConfig, which gives a formatter to those without.
        self.formatter = inner.formatter
        self._inner = inner
        self._seconds = seconds
        self._same = same
        self._distinct = distinct
        self._clock = clock
        self._places: dict[_Key, _Place] = {}
        self._began = clock()
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it."""
        if self._clock() - self._began >= self._seconds:
            self.count()
        if record.levelno >= logging.CRITICAL or self._is_new(record):
            self._inner.handle(record)
        elif self._timer is None:
            self._start_timer()

    def count(self) -> None:
        """Log how many records were left out since the last count, and begin the next count."""
        self.acquire()
        try:
            now = self._clock()
            seconds = max(1, round(now - self._began))
            before, self._places, self._began = self._places, {}, now
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            for key, place in before.items():
                self._count_place(key, place, seconds)
        finally:
            self.release()

    def setFormatter(self, fmt: logging.Formatter | None) -> None:
        """Set how the other handler writes."""
        super().setFormatter(fmt)
        self._inner.setFormatter(fmt)

    def flush(self) -> None:
        """Flush the other handler."""
        self._inner.flush()

    def close(self) -> None:
        """Count, and close both."""
        self.count()
        self._inner.close()
        super().close()

    def _is_new(self, record: logging.LogRecord) -> bool:
        key = record.name, record.levelno, record.pathname, record.lineno, getattr(record, "application", "")
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = _Place(self._distinct)
        text = _text_of(record)
        count = place.counts.get(text)
        if count is None and len(place.counts) >= place.room:
            place.others += 1
            place.last = record
            return False
        place.counts[text] = count = (count or 0) + 1
        return count <= self._same

    def _count_place(self, key: _Key, place: _Place, seconds: int) -> None:
        again = _Place(max(1, self._distinct // _FEWER) if place.others else self._distinct)
        for text, count in place.counts.items():
            if count > self._same:
                self._write(key, f"{_quoted(*text)} … {count - self._same:,} more times in {seconds} s")
                # The message is counted on until it has not come for that long.
                again.counts[text] = self._same
                again.room += 1
        if place.others and place.last is not None:
            last = _quoted(*_text_of(place.last))
            self._write(key, f"{last} … and {place.others:,} different lines like this in {seconds} s")
        if again.counts or place.others:
            self._places[key] = again

    def _write(self, key: _Key, text: str) -> None:
        name, level, path, line, application = key
        record = logging.LogRecord(name, level, path, line, "%s", (text,), None)
        if application:
            record.application = application
        self._inner.handle(record)

    def _start_timer(self) -> None:
        left = max(0.0, self._began + self._seconds - self._clock())
        timer = threading.Timer(left, self.count)
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:
            # No thread can be started: the next record writes the count.
            return
        self._timer = timer


def _text_of(record: logging.LogRecord) -> tuple[str, str]:
    """Return the message, and the type and text of its exception."""
    error = record.exc_info[1] if record.exc_info else None
    try:
        return record.getMessage(), "" if error is None else f"{type(error).__name__}: {error}"
    except Exception:
        # The other handler reports the mistake in a message and its arguments.
        return str(record.msg), type(error).__name__


def _quoted(text: str, error: str) -> str:
    """Return the first line of a message, which may end with blanks, with its exception."""
    first = text.strip().partition("\n")[0]
    line = f"{first}: {error.strip().partition(chr(10))[0]}" if error else first
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
