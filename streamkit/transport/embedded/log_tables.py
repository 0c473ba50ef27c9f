"""Topics and records in the database: finds partitions, appends rows, reads batches."""

from __future__ import annotations

import sqlite3
import struct
import sys
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import accumulate, pairwise
from time import time_ns
from typing import NamedTuple

import google_crc32c

from streamkit.errors import OffsetOutOfRangeError, ProductionError, TopicError
from streamkit.record import Columns, Headers, OutputTuple, RecordBatch, TopicPartition
from streamkit.serdes.partitioner import partition as partition_of
from streamkit.transport.embedded.database import Damage, Execute, checksum, every, verify

BATCHES = ("batches", "records")
"""The tables of batches: one for version 1 of the file, and one with checksums."""
MAX_BATCH = 5_000
"""The maximum number of records in one stored batch; a read decodes complete batches."""

MAX_BATCH_BYTES = 4 << 20
"""The maximum bytes of keys, values and headers in one stored batch of several records."""
MAX_READ_BYTES = 16 << 20
"""The size of stored batches (bytes) after which a read ends."""


class Bounds(NamedTuple):
    """A partition's id in the database, its first offset and its end offset."""

    id: int
    first: int
    next: int


def bounds(execute: Execute, partition: TopicPartition) -> Bounds:
    """Return the bounds of a partition. Raises TopicError."""
    row = execute(
        "SELECT p.id, p.first, p.next FROM checked_partitions p JOIN checked_topics t ON p.topic = t.id "
        "WHERE t.name = ? AND p.number = ?",
        partition,
    ).fetchone()
    if row is None:
        verify(execute, "topics")
        verify(execute, "partitions")
        raise TopicError(f"topic {partition.topic} has no partition {partition.partition} in the embedded log")
    return Bounds(*row)


class Router:
    """Selects the partition of each row: its own, by its key (murmur2), or for null keys the next partition with each call."""

    def __init__(self) -> None:
        self._turn = 0

    def group(
        self, rows: Iterable[OutputTuple], counts: dict[str, int]
    ) -> tuple[dict[TopicPartition, list[OutputTuple]], list[OutputTuple]]:
        """Return the rows by partition, in order, and the rows whose topic or partition does not exist."""
        self._turn += 1
        groups: dict[TopicPartition, list[OutputTuple]] = {}
        unknown: list[OutputTuple] = []
        appends: dict[tuple[str, int | None], Callable[[OutputTuple], None]] = {}
        for row in rows:
            topic, key, _, _, _, number = row
            count = counts.get(topic, 0)
            if number is None and count:
                number = partition_of(key, count) if key is not None else self._turn % count
            add = appends.get((topic, number))
            if add is None:
                if number is not None and 0 <= number < count:
                    add = groups.setdefault(TopicPartition(topic, number), []).append
                else:
                    add = unknown.append
                appends[topic, number] = add
            add(row)
        return groups, unknown


def missing(topic: str, number: int | None, rows: list[OutputTuple] | None = None) -> ProductionError:
    """Return the error for rows whose topic or partition does not exist; its message names the topic and partition of the first row."""
    what = "the topic does not exist" if number is None else f"it has no partition {number}"
    error = ProductionError(f"a record for topic {topic} could not be written: {what}", rows)
    error.is_missing = True
    return error


def partition_counts(execute: Execute) -> dict[str, int]:
    """Return the number of partitions of every topic."""
    return dict(every(execute, "topics", "name, partitions"))


def append(execute: Execute, groups: dict[TopicPartition, list[OutputTuple]]) -> None:
    """Append rows to their partitions, inside the caller's write transaction. Raises ProductionError."""
    for place, rows in groups.items():
        try:
            limits = bounds(execute, place)
        except TopicError as error:
            raise missing(place.topic, None) from error
        offset = limits.next
        for part in _parts(rows):
            _, keys, values, times, headers, _ = zip(*part, strict=True)
            if None in times or -1 in times:
                now = time_ns() // 1_000_000
                times = tuple(now if time is None or time == -1 else time for time in times)
            offset += len(part)
            data, latest = encode(keys, values, times, headers), max(times)
            crc = google_crc32c.value(data)
            head = checksum(*place, offset - 1, len(part), latest, crc)
            execute(
                "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)",
                (limits.id, offset - 1, len(part), latest, head, crc, data),
            )
        execute("UPDATE partitions SET next = ? WHERE id = ?", (offset, limits.id))


def _parts(rows: list[OutputTuple]) -> Iterator[list[OutputTuple]]:
    """Yield rows in batches within MAX_BATCH and MAX_BATCH_BYTES."""
    for start in range(0, len(rows), MAX_BATCH):
        part = rows[start : start + MAX_BATCH] if len(rows) > MAX_BATCH else rows
        if len(part) > 1 and _size(part) > MAX_BATCH_BYTES:
            middle = len(part) // 2
            yield from _parts(part[:middle])
            yield from _parts(part[middle:])
        else:
            yield part


def _size(rows: list[OutputTuple]) -> int:
    headers = [len(name) + len(value or b"") for row in rows if row[4] for name, value in row[4]]
    keys = [len(row[1]) for row in rows if row[1] is not None]
    return sum(keys) + sum([len(row[2]) for row in rows if row[2] is not None]) + sum(headers)


def read(
    execute: Execute, place: TopicPartition, position: int, max_records: int
) -> tuple[list[RecordBatch], RecordBatch | None]:
    """Return records from `position` on, and the decoded rest of the last stored batch.

    At most max_records, and not much more than MAX_READ_BYTES. Raises OffsetOutOfRangeError if the partition does not have the
    position, TopicError for an unknown partition.
    """
    limits = bounds(execute, place)
    if not limits.first <= position <= limits.next:
        text = f"offset {position} of {place.topic} [{place.partition}] is out of range: it has {limits.first} to {limits.next}"
        raise OffsetOutOfRangeError(text, *place)
    batches: list[RecordBatch] = []
    left, room = max_records, MAX_READ_BYTES
    if position == limits.next:
        return batches, None
    with closing(_stored(execute, place, limits, position, "data")) as stored:
        for last, count, _, data in stored:
            offsets = list(range(last - count + 1, last + 1))
            batch = RecordBatch(*place, Columns(*_decoded(place, last, count, data), offsets))
            skip = position - offsets[0]
            if skip > 0:
                batch = batch.slice(skip, count)
            if len(batch) > left:
                return [*batches, batch.slice(0, left)], batch.slice(left, len(batch))
            batches.append(batch)
            position = last + 1
            left -= len(batch)
            room -= len(data)
            if left == 0 or room < 0:
                break
    return batches, None


def offset_for_time(execute: Execute, place: TopicPartition, time: int) -> int:
    """Return the first offset whose time is at least `time`; the end offset if there is none."""
    limits = bounds(execute, place)
    with closing(_stored(execute, place, limits, limits.first, "NULL")) as heads:
        for end, _, latest, _ in heads:
            if latest < time:
                continue
            with closing(_stored(execute, place, limits, end, "data")) as stored:
                last, count, _, data = next(stored)
            for offset, timestamp in enumerate(_decoded(place, last, count, data)[2], last - count + 1):
                if timestamp >= time and offset >= limits.first:
                    return offset
    return limits.next


def _stored(
    execute: Execute, place: TopicPartition, limits: Bounds, position: int, data: str
) -> Generator[tuple[int, int, int, bytes], None, None]:
    """Yield last offset, number of records, latest time and data of each batch, from the batch that contains `position` to the end.

    data: "data", or "NULL" to read none. Raises Damage if a batch is missing or was changed. The caller is in one transaction,
    so batches and bounds belong to the same commit.
    """
    cursor = execute(
        f"SELECT last, count, latest, -1, -1, {data} FROM batches WHERE partition = ?1 AND last >= ?2 UNION ALL "
        f"SELECT last, count, latest, head, crc, {data} FROM records WHERE partition = ?1 AND last >= ?2 ORDER BY last",
        (limits.id, position),
    )
    where = f"{place.topic} [{place.partition}]"
    try:
        begins = None
        while row := cursor.fetchone():
            last, count, latest, head, crc, content = row
            # Those of version 1 have -1 in place of checksums.
            if head != -1 and (
                head != checksum(*place, last, count, latest, crc)
                or (content is not None and google_crc32c.value(content) != crc)
            ):
                raise Damage(f"records of {where} from offset {position} on were changed")
            first = last - count + 1
            if first > position or (begins is not None and first != begins):
                raise Damage(f"records of {where} are missing: after offset {position - 1} comes {first}")
            yield last, count, latest, content
            position = begins = last + 1
        if position != limits.next:
            raise Damage(f"records of {where} are missing: it ends at {position}, and not at {limits.next}")
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise
        raise Damage(f"records of {where} from offset {position} on cannot be read: {error}") from error
    finally:
        # An open cursor would prevent checkpoints of the write-ahead log.
        cursor.close()


def _decoded(place: TopicPartition, last: int, count: int, data: bytes) -> Encoded:
    try:
        return decode(data, count)
    except (ValueError, OverflowError, struct.error) as error:
        raise Damage(
            f"records {last - count + 1} to {last} of {place.topic} [{place.partition}] were changed: {error}"
        ) from error


def commit_offsets(execute: Execute, group: str, rows: Sequence[tuple[str, int, int, str]]) -> None:
    """Write (topic, partition, offset, metadata) of a group, inside the caller's write transaction."""
    for topic, number, offset, metadata in rows:
        execute(
            "INSERT INTO offsets VALUES (?, ?, ?, ?, ?) ON CONFLICT (grp, topic, partition) DO UPDATE "
            "SET offset = excluded.offset, metadata = excluded.metadata",
            (group, topic, number, offset, metadata),
        )


# Columns of a batch as bytes: lengths, then the concatenated values; little-endian on every machine.
#
# A column of bytes is: int32 lengths (-1 for None), then the concatenation. A batch is: uint32 sizes of its four parts
# (timestamps int64, keys, values, headers), then the parts; headers are empty when no record has any, else int32 counts
# (-1 for None), the column of names and the column of values.

Encoded = tuple[list[bytes | None], list[bytes | None], list[int], list[Headers | None]]
_SIZES = struct.Struct("<IIII")
_SIZE = struct.Struct("<I")


def encode(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps: Sequence[int],
    headers: Sequence[Headers | None],
) -> bytes:
    """Return the bytes of one batch.

    >>> decode(encode([b"k", None], [b"", b"v"], [1, 2], [None, [("h", None)]]), 2)
    ([b'k', None], [b'', b'v'], [1, 2], [None, [('h', None)]])
    """
    parts = (_pack("q", timestamps), _column(keys), _column(values), _headers(headers))
    return _SIZES.pack(*map(len, parts)) + b"".join(parts)


def decode(data: bytes, count: int) -> Encoded:
    """Decode the bytes of a batch of `count` records. Raises ValueError, OverflowError or struct.error for others."""
    sizes = _SIZES.unpack_from(data)
    ends = list(accumulate(sizes, initial=_SIZES.size))
    if sizes[0] != 8 * count or ends[-1] != len(data):
        raise ValueError(f"{len(data)} bytes of {count} records should be {ends[-1]}")
    times, keys, values, headers = (data[start:end] for start, end in pairwise(ends))
    return (
        _read_column(keys, count),
        _read_column(values, count),
        _unpack("q", times),
        _read_headers(headers, count) if headers else [None] * count,
    )


def _pack(kind: str, numbers: Sequence[int]) -> bytes:
    packed = array(kind, numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _unpack(kind: str, data: bytes) -> list[int]:
    numbers = array(kind)
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def _column(values: Sequence[bytes | None]) -> bytes:
    if None in values:
        lengths = [-1 if value is None else len(value) for value in values]
        return _pack("i", lengths) + b"".join([value for value in values if value])
    return _pack("i", list(map(len, values))) + b"".join(values)  # type: ignore[arg-type]  # none is None


def _read_column(data: bytes, count: int) -> list[bytes | None]:
    lengths = _unpack("i", data[: 4 * count])
    if min(lengths, default=0) >= 0:
        ends = list(accumulate(lengths, initial=4 * count))
        _check_end(ends[-1], data)
        return [data[start:end] for start, end in pairwise(ends)]
    ends = list(accumulate([max(length, 0) for length in lengths], initial=4 * count))
    _check_end(ends[-1], data)
    return [data[start : start + length] if length >= 0 else None for start, length in zip(ends, lengths, strict=False)]


def _check_end(end: int, data: bytes) -> None:
    if end != len(data):
        raise ValueError(f"a column has {len(data)} bytes, and not {end}")


def _headers(headers: Sequence[Headers | None]) -> bytes:
    if not any(headers):
        return b""
    pairs = [pair for header in headers if header for pair in header]
    counts = _pack("i", [-1 if header is None else len(header) for header in headers])
    names = _column([name.encode() for name, _ in pairs])
    return counts + _SIZE.pack(len(names)) + names + _column([value for _, value in pairs])


def _read_headers(data: bytes, count: int) -> list[Headers | None]:
    counts = _unpack("i", data[: 4 * count])
    start = 4 * count + _SIZE.size
    size = _SIZE.unpack_from(data, 4 * count)[0]
    total = sum(number for number in counts if number > 0)
    names = _read_column(data[start : start + size], total)
    values = _read_column(data[start + size :], total)
    pairs = iter([(name.decode(), value) for name, value in zip(names, values, strict=True)])  # type: ignore[union-attr]  # names are never None
    return [None if number <= 0 else [next(pairs) for _ in range(number)] for number in counts]
