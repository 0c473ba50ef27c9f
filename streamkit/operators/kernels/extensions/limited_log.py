"""Lines of the `log` step, at most so many a second."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from streamkit.record import Value
from streamkit.serdes.plain import shown

LONGEST = 10_000


class LimitedLog:
    """The lines of one node. log_line: takes (level, text); limit: lines a second; clock: seconds."""

    def __init__(
        self,
        log_line: Callable[[int, str], None],
        name: str,
        level: int,
        limit: int,
        clock: Callable[[], float] = monotonic,
    ):
        self._log_line = log_line
        self._name = name
        self._level = level
        self._limit = limit
        self._clock = clock
        self._second = 0
        self._written = 0
        self._left_out = 0

    def has_room(self) -> bool:
        """Return whether another line may be written in this second; counts the line that is left out if not."""
        second = int(self._clock())
        if second != self._second:
            self._second, self._written = second, 0
        if self._written < self._limit:
            self._written += 1
            return True
        self._left_out += 1
        return False

    def write(self, value: Value) -> None:
        """Write a line, and before it how many were left out since the last one."""
        text = value if isinstance(value, str) else shown(value, LONGEST)
        line = f"{self._name}: {text[:LONGEST]}".replace("\r", "\\r").replace("\n", "\\n")
        if self._left_out:
            line = f"({self._left_out} lines left out) {line}"
            self._left_out = 0
        self._log_line(self._level, line)
