"""A run: consecutive records of one partition or of several, which a program processes in order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TypeAlias

from streamkit.record import Columns, TopicPartition

Position: TypeAlias = tuple[str | None, int, int]
"""(topic, partition, offset) of the current record."""

Part: TypeAlias = tuple[TopicPartition, Columns, int]
"""The records of a run from one partition, in order, and their highest timestamp."""

MAX_RUN = 16_384
"""The most records of a run."""
MAX_OUTPUT_ROWS = 100_000
"""Rows of output after which a round ends."""


def merged_order(queues: list[list[int]], limit: int) -> list[int]:
    """Return which queue gives each of the next records, at most `limit`, until one of the queues ends.

    queues: for each queue, by rank, the highest timestamp up to each of its next records; none is empty. The queue with
    the lowest head is next, between equal ones that of the lowest rank (PartitionGroup). A late record has the time of
    those before it, since it is taken right after them: it is older than every other head.
    """
    end, last = min((times[-1], number) for number, times in enumerate(queues))
    times: list[int] = []
    owners: list[int] = []
    for number, mine in enumerate(queues):
        stop = bisect_right(mine, end) if number <= last else bisect_left(mine, end)
        times += mine[:stop]
        owners += [number] * stop
    # The sort is stable: it keeps the ranks of equal times, and the order within a queue.
    return [owners[at] for at in sorted(range(len(times)), key=times.__getitem__)[:limit]]


class Run:
    """A run of records, which computes its stream time only when it is needed, and may end early."""

    __slots__ = ("_at", "_before", "_places", "_time", "_times", "order", "parts", "rest")

    def __init__(self, parts: list[Part], order: list[int] | None = None):
        """Make a run of one part, or of several, given with the place in `parts` of each record's."""
        self.parts = parts
        self.order = order
        self.rest: list[Part] = []
        """The unprocessed records of a run that ended early, each with the highest timestamp of its processed ones."""
        self._at = 0
        self._before = self._time = -1
        self._places: list[list[int]] | None = None
        self._times: list[int] | None = parts[0][1].timestamps if order is None else None

    def begin(self, stream_time: int) -> None:
        """Set the stream time (ms) before the run."""
        self._before = self._time = stream_time

    @property
    def highest(self) -> int:
        """The highest timestamp of the run (ms)."""
        return max(highest for _, _, highest in self.parts)

    def time_at(self, position: Position | None) -> int:
        """Return the highest timestamp up to the current record; without a position, that of the complete run."""
        times = self._times
        if times is None:
            times = self._times = self._merged_times()
        stop = len(times) if position is None else self._index(position) + 1
        if stop < self._at:
            # A step forwards a record that it held back while the run went on.
            self._time, self._at = self._before, 0
        if stop > self._at:
            self._time = max(self._time, max(times[self._at : stop]))
            self._at = stop
        return self._time

    def end_at(self, position: Position | None) -> None:
        """Make the current record the last one; the others are the `rest`."""
        if position is None or self.rest:
            return
        done = self._index(position) + 1
        order = self.order
        if order is not None:
            # The task's loop iterates over this list, and ends.
            del order[done:]
        for number, (partition, columns, _) in enumerate(self.parts):
            mine = done if order is None else order.count(number)
            if mine < len(columns.offsets):
                rest = columns.slice(mine, len(columns.offsets))
                # The program's loop iterates over this list, and ends.
                del columns.timestamps[mine:]
                highest = max(columns.timestamps, default=-1)
                self.rest.append((partition, rest, highest))
                self.parts[number] = partition, columns, highest
        if order is not None:
            self._times = None

    def _index(self, position: Position) -> int:
        """Return the place of a record in the run."""
        topic, partition, offset = position
        if self.order is None:
            return bisect_left(self.parts[0][1].offsets, offset)
        if self._places is None:
            self._places = [[] for _ in self.parts]
            for at, number in enumerate(self.order):
                self._places[number].append(at)
        for places, (source, columns, _) in zip(self._places, self.parts, strict=True):
            if source == (topic, partition):
                return places[bisect_left(columns.offsets, offset)]
        raise AssertionError(f"{position} is not in the run")

    def _merged_times(self) -> list[int]:
        assert self.order is not None
        times = [iter(columns.timestamps) for _, columns, _ in self.parts]
        return [next(times[number]) for number in self.order]
