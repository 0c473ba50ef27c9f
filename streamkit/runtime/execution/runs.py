"""A run: consecutive records of one partition that a program processes with one call."""

from __future__ import annotations

from bisect import bisect_left
from typing import TypeAlias

from streamkit.record import Columns

Position: TypeAlias = tuple[str | None, int, int]
"""(topic, partition, offset) of the current record."""

MAX_RUN = 16_384
"""The most records of a run."""
MAX_OUTPUT_ROWS = 100_000
"""Rows of output after which a round ends."""


class Run:
    """A run of several records, which computes its stream time only when it is needed, and may end early."""

    __slots__ = ("_at", "_before", "_time", "columns", "rest")

    def __init__(self, before: int, columns: Columns):
        self._before = self._time = before
        self.columns = columns
        self.rest: Columns | None = None
        """The unprocessed records of a run that ended early."""
        self._at = 0

    def time_at(self, position: Position | None) -> int:
        """Return the highest timestamp up to the current record; without a position, that of the complete run."""
        offsets = self.columns.offsets
        stop = len(offsets) if position is None else bisect_left(offsets, position[2]) + 1
        if stop < self._at:
            # A step forwards a record that it held back while the run went on.
            self._time, self._at = self._before, 0
        if stop > self._at:
            self._time = max(self._time, max(self.columns.timestamps[self._at : stop]))
            self._at = stop
        return self._time

    def end_at(self, position: Position | None) -> None:
        """Make the current record the last one; the others are the `rest`."""
        offsets = self.columns.offsets
        if position is None or self.rest is not None:
            return
        done = bisect_left(offsets, position[2]) + 1
        if done < len(offsets):
            self.rest = self.columns.slice(done, len(offsets))
            # The program's loop iterates over this list, and ends.
            del self.columns.timestamps[done:]
