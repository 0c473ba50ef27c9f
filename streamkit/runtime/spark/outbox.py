"""What tasks put out, as rows for the next stage: with partitions, with their place in the order, or only the last of a key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from streamkit.errors import ProcessingError
from streamkit.runtime.spark import arrow_rows
from streamkit.runtime.spark.last import LastOfKeys
from streamkit.runtime.spark.partitioning import partitions_of
from streamkit.serdes.partitioner import partition as partition_of

BATCH = 20_000
MOST_KEYS = 300_000
"""Of a topic whose last records are kept in memory."""
NOWHERE = -1
"""The partition of a record for a topic whose number of partitions is not known."""


@dataclass(frozen=True)
class Wanted:
    """Which records are kept, and how."""

    partitions: Mapping[str, int]
    """Counts by topic on the log."""
    topics: frozenset[str] | None = None
    """Topics whose records are read or written; None: all."""
    final: frozenset[str] = frozenset()
    """Topics of which only the last record of each key counts."""
    forbidden: frozenset[str] = frozenset()
    """Topics that a route may not choose: the file reads them, and what reads them could have run before."""


class Outbox:
    """Collects the output of the tasks of one Spark task; `directory`: where it may put what is too much for memory."""

    def __init__(self, wanted: Wanted, source: int, directory: Callable[[], Path]):
        self._wanted = wanted
        self._directory = directory
        self._source = source
        self._sequence = 0
        self._highest: dict[tuple[str, int], int] = {}
        self._last: dict[str, LastOfKeys] = {}

    def take(self, output: list[tuple]) -> Iterator[Any]:
        """Empty a task's output and yield Arrow batches of it."""
        rows = self._kept(output)
        del output[:]
        for start in range(0, len(rows), BATCH):
            yield self._batch(rows[start : start + BATCH])

    def rest(self) -> Iterator[Any]:
        """Yield the last records of keys."""
        for last in self._last.values():
            left = last.rest()
            while chunk := list(islice(left, BATCH)):
                yield self._batch(chunk)
        self._last = {}

    def _kept(self, output: list[tuple]) -> list[tuple]:
        wanted = self._wanted
        topics = {row[0] for row in output}
        strayed = topics & wanted.forbidden
        if strayed:
            raise ProcessingError(
                f"a route chose topic {min(strayed)}, which the file also reads; a batch job can't feed it back"
            )
        rows = output
        if wanted.topics is not None and not topics <= wanted.topics:
            kept = wanted.topics
            rows = [row for row in output if row[0] in kept]
        if topics.isdisjoint(wanted.final) or not rows:
            return list(rows)
        return self._without_final(rows, {row[0] for row in rows})

    def _without_final(self, rows: Sequence[tuple], topics: set[str]) -> list[tuple]:
        """Keep the last record of each key where only that counts; return the other rows."""
        final = self._wanted.final
        if len(topics) == 1 and topics <= final:
            self._remember(next(iter(topics)), rows)
            return []
        for topic in topics & final:
            self._remember(topic, [row for row in rows if row[0] == topic])
        return [row for row in rows if row[0] not in final]

    def _remember(self, topic: str, rows: Sequence[tuple]) -> None:
        if topic not in self._last:
            path = f"last-{len(self._last)}"
            self._last[topic] = LastOfKeys(lambda: self._directory() / path, MOST_KEYS)
        self._last[topic].remember(rows)

    def _batch(self, rows: list[tuple]) -> Any:
        count = len(rows)
        topics, keys, values, times, headers, partitions = zip(*rows, strict=True)
        numbers = self._numbers(count)
        places = self._places(topics, keys, partitions, numbers)
        stamps = [-1 if time is None else time for time in times]
        order = self._order(topics, places, stamps)
        return arrow_rows.to_batch(
            (topics, places, keys, values, stamps, headers, order, [self._source] * count, numbers)
        )

    def _numbers(self, count: int) -> list[int]:
        """Return the places of the next rows among all that the task puts out."""
        first = self._sequence
        self._sequence += count
        return list(range(first, first + count))

    def _places(self, topics: tuple, keys: tuple, partitions: tuple, numbers: list[int]) -> list[int]:
        counts = self._wanted.partitions
        names = set(topics)
        if len(names) == 1 and (count := counts.get(topics[0])) and partitions.count(None) == len(partitions):
            return self._by_keys(keys, count, numbers)
        places = []
        for topic, key, number, turn in zip(topics, keys, partitions, numbers, strict=True):
            if number is None:
                number = _place(counts.get(topic), key, turn)
            places.append(number)
        return places

    def _by_keys(self, keys: tuple, count: int, numbers: list[int]) -> list[int]:
        import pyarrow as pa

        column = pa.array(keys, pa.binary())
        found = partitions_of(column, count).tolist()
        if column.null_count:
            return [
                _place(count, None, turn) if key is None else at
                for at, key, turn in zip(found, keys, numbers, strict=True)
            ]
        return found

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
