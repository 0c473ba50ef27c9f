"""Topics and records in the database: looking up partitions, appending rows, reading batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from time import time_ns
from typing import NamedTuple

from streamkit.errors import OffsetOutOfRangeError, ProductionError, TopicError
from streamkit.record import RecordBatch, TopicPartition
from streamkit.serdes.partitioner import partition as partition_of
from streamkit.transport.embedded.codec import decode, encode

MAX_BATCH = 5_000
"""Records in one stored batch at most: what a read decodes at least."""

MAX_BATCH_BYTES = 4 << 20
"""Bytes of the values in one stored batch at most, if it holds more than one record."""
MOST_BYTES = 16 << 20
"""Bytes after which a read ends."""

Execute = Callable


class Bounds(NamedTuple):
    """A partition's number in the database, its first offset and the one after its last."""

    id: int
    first: int
    next: int


def bounds(execute: Execute, partition: TopicPartition) -> Bounds:
    """Look a partition up. Raises TopicError."""
    row = execute(
        "SELECT p.id, p.first, p.next FROM partitions p JOIN topics t ON p.topic = t.id WHERE t.name = ? AND p.number = ?",
        partition,
    ).fetchone()
    if row is None:
        raise TopicError(f"topic {partition.topic} has no partition {partition.partition} in the embedded log")
    return Bounds(*row)


class Router:
    """Finds the partition of each row: the row's own, that of its key (murmur2), or for null keys one a call in turn."""

    def __init__(self) -> None:
        self._turn = 0

    def group(
        self, rows: Iterable[tuple], counts: dict[str, int]
    ) -> tuple[dict[TopicPartition, list[tuple]], list[tuple]]:
        """Return the rows by partition, order kept, and those whose topic or partition is not there."""
        self._turn += 1
        groups: dict[TopicPartition, list[tuple]] = {}
        lost: list[tuple] = []
        adds: dict[tuple[str, int | None], Callable] = {}
        for row in rows:
            topic, key, _, _, _, number = row
            count = counts.get(topic, 0)
            if number is None and count:
                number = partition_of(key, count) if key is not None else self._turn % count
            add = adds.get((topic, number))
            if add is None:
                if 0 <= (number or 0) < count:
                    add = groups.setdefault(TopicPartition(topic, number), []).append
                else:
                    add = lost.append
                adds[topic, number] = add
            add(row)
        return groups, lost


def missing(topic: str, number: int | None, rows: list[tuple] | None = None) -> ProductionError:
    """Return the error for rows whose topic or partition is not there; the first one's are named."""
    what = "the topic does not exist" if number is None else f"it has no partition {number}"
    return ProductionError(f"a record for topic {topic} could not be written: {what}", rows)


def partition_counts(execute: Execute) -> dict[str, int]:
    """Return the number of partitions of every topic."""
    return dict(execute("SELECT name, partitions FROM topics").fetchall())


def append(execute: Execute, groups: dict[TopicPartition, list[tuple]]) -> None:
    """Write rows at the ends of their partitions, inside the caller's write transaction. Raises ProductionError."""
    for place, rows in groups.items():
        try:
            found = bounds(execute, place)
        except TopicError as error:
            raise missing(place.topic, None) from error
        offset = found.next
        for part in _parts(rows):
            _, keys, values, times, headers, _ = zip(*part, strict=True)
            if None in times or -1 in times:
                now = time_ns() // 1_000_000
                times = tuple(now if time is None or time == -1 else time for time in times)
            offset += len(part)
            execute(
                "INSERT INTO batches VALUES (?, ?, ?, ?, ?)",
                (found.id, offset - 1, len(part), max(times), encode(keys, values, times, headers)),
            )
        execute("UPDATE partitions SET next = ? WHERE id = ?", (offset, found.id))


def _parts(rows: list[tuple]) -> Iterator[list[tuple]]:
    """Yield rows in batches that are no longer and no larger than one should be."""
    for start in range(0, len(rows), MAX_BATCH):
        part = rows[start : start + MAX_BATCH] if len(rows) > MAX_BATCH else rows
        if len(part) > 1 and sum([len(row[2]) for row in part if row[2] is not None]) > MAX_BATCH_BYTES:
            middle = len(part) // 2
            yield from _parts(part[:middle])
            yield from _parts(part[middle:])
        else:
            yield part


def read(
    execute: Execute, place: TopicPartition, position: int, max_records: int
) -> tuple[list[RecordBatch], RecordBatch | None]:
    """Return records from `position` on, at most max_records or a little over MOST_BYTES, and the rest of the last stored batch, decoded already.

    Raises TopicError when the position is outside of what the partition has.
    """
    found = bounds(execute, place)
    if not found.first <= position <= found.next:
        text = f"offset {position} of {place.topic} [{place.partition}] is out of range: it has {found.first} to {found.next}"
        raise OffsetOutOfRangeError(text, *place)
    batches: list[RecordBatch] = []
    left, room = max_records, MOST_BYTES
    if position == found.next:
        return batches, None
    cursor = execute(
        "SELECT last, count, data FROM batches WHERE partition = ? AND last >= ? ORDER BY last", (found.id, position)
    )
    for last, count, data in cursor:
        batch = RecordBatch(*place, (*decode(data, count), list(range(last - count + 1, last + 1))))  # type: ignore[arg-type]
        skip = position - batch.offsets[0]
        if skip > 0:
            batch = cut(batch, skip, count)
        if len(batch) > left:
            # An open cursor would keep the write-ahead log from being emptied.
            cursor.close()
            return [*batches, cut(batch, 0, left)], cut(batch, left, len(batch))
        batches.append(batch)
        position = last + 1
        left -= len(batch)
        room -= len(data)
        if left == 0 or room < 0:
            cursor.close()
            break
    return batches, None


def cut(batch: RecordBatch, start: int, end: int) -> RecordBatch:
    """Return a part of a batch."""
    columns = (batch.keys, batch.values, batch.timestamps, batch.headers, batch.offsets)
    return RecordBatch(batch.topic, batch.partition, tuple(column[start:end] for column in columns))  # type: ignore[arg-type]


def offset_for_time(execute: Execute, place: TopicPartition, time: int) -> int:
    """Return the first offset whose time is at least `time`; the end when there is none."""
    found = bounds(execute, place)
    cursor = execute(
        "SELECT last, count, data FROM batches WHERE partition = ? AND last >= ? AND latest >= ? ORDER BY last",
        (found.id, found.first, time),
    )
    for last, count, data in cursor:
        for offset, timestamp in enumerate(decode(data, count)[2], last - count + 1):
            if timestamp >= time and offset >= found.first:
                cursor.close()
                return offset
    return found.next


def commit_offsets(execute: Execute, group: str, rows: Sequence[tuple[str, int, int, str]]) -> None:
    """Write (topic, partition, offset, metadata) of a group, inside the caller's write transaction."""
    for topic, number, offset, metadata in rows:
        execute("INSERT OR REPLACE INTO offsets VALUES (?, ?, ?, ?, ?)", (group, topic, number, offset, metadata))
