"""A run: consecutive records of one partition that a program is given at once, and what is known while it goes on."""

from __future__ import annotations

from bisect import bisect_left

from streamkit.runtime.queues import Columns

LONGEST_RUN = 16_384
"""Records that the program is given at most at a time."""
MOST_ROWS = 100_000
"""Rows of output beyond which a round ends."""


class Run:
    """A run of several records: its stream time, known exactly when it is asked for, and where it ends."""

    __slots__ = ("_at", "_time", "columns", "rest")

    def __init__(self, before: int, columns: Columns):
        self._time = before
        self.columns = columns
        self.rest: Columns | None = None
        """What is left where the run ended early."""
        self._at = 0

    def time_at(self, position: tuple | None) -> int:
        """Return the highest timestamp up to the current record; without a position, that of the whole run."""
        offsets = self.columns.offsets
        stop = len(offsets) if position is None else bisect_left(offsets, position[2]) + 1
        if stop > self._at:
            self._time = max(self._time, max(self.columns.timestamps[self._at : stop]))
            self._at = stop
        return self._time

    def end_at(self, position: tuple | None) -> None:
        """Make the current record the last one; the others are the `rest`."""
        offsets = self.columns.offsets
        if position is None or self.rest is not None:
            return
        done = bisect_left(offsets, position[2]) + 1
        if done < len(offsets):
            self.rest = self.columns.slice(done, len(offsets))
            # The program's loop goes through this list.
            del self.columns.timestamps[done:]
