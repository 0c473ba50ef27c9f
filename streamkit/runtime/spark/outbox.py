"""What tasks put out, as rows for the next stage: with partitions, with their place in the order, or only the last of a key."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streamkit.errors import ProcessingError
from streamkit.runtime.spark import wire
from streamkit.serdes.partitioner import partition as partition_of

BATCH = 20_000
NOWHERE = -1
"""The partition of a record for a topic whose number of partitions nobody has said."""


@dataclass(frozen=True)
class Wanted:
    """Which records are kept, and how."""

    partitions: Mapping[str, int]
    """Counts by topic on the log."""
    topics: frozenset[str] | None = None
    """Topics whose records somebody reads or writes down; None: all."""
    final: frozenset[str] = frozenset()
    """Topics of which only the last record of each key counts."""
    forbidden: frozenset[str] = frozenset()
    """Topics that a route may not choose: the file reads them, and what reads them could have run before."""


class Outbox:
    """Collects the output of the tasks of one Spark task."""

    def __init__(self, wanted: Wanted, source: int):
        self._wanted = wanted
        self._source = source
        self._sequence = 0
        self._highest: dict[tuple[str, int], int] = {}
        self._last: dict[tuple[str, bytes | None], tuple[tuple, int]] = {}

    def take(self, output: list[tuple]) -> Iterator[Any]:
        """Empty a task's output and yield Arrow batches of it."""
        rows = self._kept(output)
        del output[:]
        for start in range(0, len(rows), BATCH):
            yield self._batch(rows[start : start + BATCH])

    def rest(self) -> Iterator[Any]:
        """Yield the last records of keys, in the order in which they came."""
        # A key that comes again moves to the end, so that the order is that of the records that are left.
        rows, numbers = [], []
        for row, number in self._last.values():
            rows.append(row)
            numbers.append(number)
            if len(rows) == BATCH:
                yield self._batch(rows, numbers)
                rows, numbers = [], []
        if rows:
            yield self._batch(rows, numbers)
        self._last = {}

    def _kept(self, output: list[tuple]) -> list[tuple]:
        wanted = self._wanted
        topics = {row[0] for row in output}
        strayed = topics & wanted.forbidden
        if strayed:
            raise ProcessingError(
                f"a route chose topic {min(strayed)}, which the file also reads; a batch job can't feed it back"
            )
        rows: Collection[tuple] = output
        if wanted.topics is not None and not topics <= wanted.topics:
            kept = wanted.topics
            rows = [row for row in output if row[0] in kept]
        if topics.isdisjoint(wanted.final):
            return list(rows)
        return self._without_final(rows)

    def _without_final(self, rows: Collection[tuple]) -> list[tuple]:
        final, last, sequence = self._wanted.final, self._last, self._sequence
        others = []
        for row in rows:
            if row[0] in final:
                place = row[0], row[1]
                if place in last:
                    del last[place]
                last[place] = row, sequence
                sequence += 1
            else:
                others.append(row)
        self._sequence = sequence
        return others

    def _batch(self, rows: list[tuple], numbers: list[int] | None = None) -> Any:
        count = len(rows)
        topics, keys, values, times, headers, partitions = zip(*rows, strict=True)
        if numbers is None:
            numbers = list(range(self._sequence, self._sequence + count))
            self._sequence += count
        places = self._places(topics, keys, partitions, numbers)
        stamps = [-1 if time is None else time for time in times]
        order = self._order(topics, places, stamps)
        return wire.to_batch((topics, places, keys, values, stamps, headers, order, [self._source] * count, numbers))

    def _places(self, topics: tuple, keys: tuple, partitions: tuple, numbers: list[int]) -> list[int]:
        counts = self._wanted.partitions
        if set(map(counts.get, set(topics))) == {1}:
            return [0] * len(topics)
        places = []
        for topic, key, number, turn in zip(topics, keys, partitions, numbers, strict=True):
            if number is None:
                number = _place(counts.get(topic), key, turn)
            places.append(number)
        return places

    def _order(self, topics: tuple, places: list[int], stamps: list[int]) -> Any:
        """Return the highest timestamp so far of each row's partition: by it tasks merge what they read."""
        import numpy as np

        times = np.array(stamps, dtype=np.int64)
        found = np.empty_like(times)
        numbers = np.array(places)
        names = np.array(topics) if len(set(topics)) > 1 else None
        for topic in set(topics):
            mine = None if names is None else names == topic
            for place in np.unique(numbers if mine is None else numbers[mine]).tolist():
                rows = numbers == place if mine is None else mine & (numbers == place)
                before = self._highest.get((topic, place), -1)
                highest = np.maximum.accumulate(np.maximum(times[rows], before))
                self._highest[topic, place] = int(highest[-1])
                found[rows] = highest
        return found


def _place(count: int | None, key: bytes | None, turn: int) -> int:
    if count is None:
        return NOWHERE
    # Without a key a producer spreads records as it likes; here by turns, the same at every try.
    return turn % count if key is None else partition_of(key, count)
