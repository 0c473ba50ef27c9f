"""Buffers in order of time: for suppress (InMemoryTimeOrderedKeyValueChangeBuffer), and for a join with grace."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import ClassVar, NamedTuple

from streamkit.errors import StateError
from streamkit.hashing import bucket_count, bucket_order, list_hash
from streamkit.record import Headers, Key, Value
from streamkit.serdes.sides import Side, changes_side, guarded, side_of
from streamkit.state.definitions import BytesMap, ChangelogRecord, Rows, Store, StoreContext, StoreDef, StoreSize
from streamkit.state.layouts import (
    MAX_LONG,
    MAX_SEQUENCE,
    BufferValue,
    ProcessorRecordContext,
    decode_buffer_value,
    headed_value,
    pack_int,
    pack_long,
    split_headed_value,
    timestamp_of_prefix,
    unpack_long,
)
from streamkit.state.stores.changelogged import Log, NumberedStore, no_log

VERSION: Headers = [("v", b"\x03")]
_MAX_STALE = 1_000
"""The number of entries of deleted keys that may stay in the queue before it is rebuilt."""


_PRIOR, _OLD = "vh.prior", "vh.old"
"""Headers of a changelog record with the timestamp and headers of the prior and the old value; those of the new value are the
record's own."""
_NO_PREFIX = headed_value(b"", -1, None)


def _logged(value: BufferValue) -> tuple[BufferValue, Headers]:
    """Convert a value with headers to its form in the changelog: the value, and the headers of its record."""
    headers = list(VERSION)
    if value.prior is not None and value.prior != value.old:
        headers.append((_PRIOR, split_headed_value(value.prior)[0]))
    if value.old is not None:
        headers.append((_OLD, split_headed_value(value.old)[0]))
    prior, old, new = (None if data is None else split_headed_value(data)[1] for data in value[:3])
    return BufferValue(prior, old, new, value.context), headers


def _headed(value: BufferValue, headers: Headers) -> BufferValue:
    """Convert a value of a changelog record to its form in the buffer. Records written without the headers format lack these headers."""
    prefixes, context = dict(headers), value.context

    def part(data: bytes | None, name: str) -> bytes | None:
        if data is None:
            return None
        return (prefixes.get(name) or headed_value(b"", context.timestamp, None)) + data

    old = part(value.old, _OLD)
    prior = old if value.prior == value.old and _PRIOR not in prefixes else part(value.prior, _PRIOR)
    new = None if value.new is None else headed_value(value.new, context.timestamp, context.headers)
    return BufferValue(prior, old, new, context)


def _buffered(data: bytes) -> tuple[bytes | None, bytes | None]:
    buffered = decode_buffer_value(data)[0]
    return buffered.new, buffered.old


class Eviction(NamedTuple):
    """An update that leaves a buffer: key bytes, values, and the context of the last record that updated it."""

    key: bytes
    new: Value
    old: Value
    context: ProcessorRecordContext


class SuppressBuffer(Store):
    """Updates by (buffer time, key bytes), always in memory; `flush` logs the keys that changed since the last flush.

    Changelog records carry the header v=03 and no timestamp of their own: the producer assigns one.
    `size` is in bytes as Java counts them (8 + key + values + 20 + topic + headers), `count` in records. With `headers`, each
    value in the buffer has a prefix of its timestamp and headers, which the changelog stores as headers of its record. The prefix of
    the new value belongs to its record, that of the old value to the update that the record replaces.
    """

    @classmethod
    def changelog_sides(cls, definition: StoreDef) -> tuple[Side, Side]:
        return side_of(definition.key_serde), changes_side(definition.value_serde, _buffered)

    @classmethod
    def changelog_records(cls, rows: Rows) -> Iterator[ChangelogRecord]:
        for key, data in rows:
            yield ChangelogRecord(0, key, data, None, VERSION)

    def __init__(self, definition: StoreDef, context: StoreContext):
        self.definition = definition
        self.name = definition.name
        self.key_serde = definition.key_serde
        self.value_serde = definition.value_serde
        self.size = 0
        self._entries: dict[bytes, tuple[int, BufferValue]] = {}
        self._queue: list[tuple[int, bytes]] = []
        self._dirty: dict[bytes, None] = {}
        self._buckets = bucket_count(0)
        """The number of buckets of Java's set of dirty keys, which never shrinks."""
        self._log: Log = context.log if definition.logging else no_log
        self._keeps_headers = definition.keeps_headers
        self.topic = context.topic
        self._encode = definition.value_serde.encode
        self._decode = definition.value_serde.decode

    def measure(self) -> StoreSize:
        """Return the number of buffered records."""
        return StoreSize(rows=self.count)

    @property
    def count(self) -> int:
        """The number of buffered records."""
        return len(self._entries)

    @property
    def min_time(self) -> int:
        """The lowest buffer time, or the largest long when the buffer is empty."""
        self._drop_stale_heads()
        return self._queue[0][0] if self._queue else MAX_LONG

    def put(self, time: int, key: bytes, new: Value, old: Value, context: ProcessorRecordContext) -> None:
        """Buffer an update. It replaces the key's previous update, but keeps that update's time. Raises SerdeError."""
        old_data = None if old is None else self._encode(old)
        new_data = None if new is None else self._encode(new)
        before = self._entries.get(key)
        if self._keeps_headers:
            replaced = None if before is None else before[1].new
            prefix = _NO_PREFIX if replaced is None else split_headed_value(replaced)[0]
            old_data = None if old_data is None else prefix + old_data
            new_data = None if new_data is None else headed_value(new_data, context.timestamp, context.headers)
        prior = old_data if before is None else before[1].prior
        self._place(time, key, BufferValue(prior, old_data, new_data, context))
        self._dirty[key] = None

    def _place(self, time: int, key: bytes, value: BufferValue) -> None:
        before = self._entries.get(key)
        if before is None:
            heappush(self._queue, (time, key))
            self.size += 8 + len(key)
        else:
            time = before[0]
            self.size -= before[1].size()
        self._entries[key] = time, value
        self.size += value.size()

    def _drop_stale_heads(self) -> None:
        """Drop heads of the queue whose keys were deleted by a restored record."""
        queue, entries = self._queue, self._entries
        while queue:
            time, key = queue[0]
            entry = entries.get(key)
            if entry is not None and entry[0] == time:
                return
            heappop(queue)

    def first(self) -> Eviction | None:
        """Return the update with the lowest (time, key) without removing it, or None."""
        self._drop_stale_heads()
        if not self._queue:
            return None
        key = self._queue[0][1]
        value = self._entries[key][1]
        return Eviction(key, self._value(value.new), self._value(value.old), value.context)

    def _value(self, data: bytes | None) -> Value:
        if data is None:
            return None
        return self._decode(split_headed_value(data)[1] if self._keeps_headers else data)

    def remove_first(self) -> None:
        """Remove the update that `first` returns."""
        self._drop_stale_heads()
        _, key = heappop(self._queue)
        _, value = self._entries.pop(key)
        self.size -= 8 + len(key) + value.size()
        self._dirty[key] = None

    def evict_until(self, time: int) -> Iterator[Eviction]:
        """Remove, one by one, all updates with a buffer time <= `time`, including those that are put meanwhile.

        An update is removed after the caller has processed it, as in Java, so that downstream joins see the value before it.
        """
        while self.min_time <= time:
            entry = self.first()
            if entry is not None:
                yield entry
                self.remove_first()

    def prior(self, key: bytes) -> tuple[bool, Value]:
        """Return (True, the value that the buffer's readers last saw) for a buffered key, else (False, None)."""
        entry = self._entries.get(key)
        if entry is None:
            return False, None
        return True, self._value(entry[1].prior)

    def holds(self, key: bytes) -> bool:
        """Return whether a key is buffered."""
        return key in self._entries

    def prior_time(self, key: bytes) -> int:
        """Return the timestamp of the value that `prior` returns; -1 if it is unknown, which it always is without `headers`."""
        prior = self._entries[key][1].prior
        return -1 if prior is None or not self._keeps_headers else timestamp_of_prefix(split_headed_value(prior)[0])

    def flush(self) -> None:
        """Log the keys that changed since the last flush, in the order of Java's HashSet of them."""
        keys = list(self._dirty)
        self._buckets = bucket_count(len(keys), self._buckets)
        # Bytes.hashCode() is that of an array of signed bytes.
        codes = [list_hash(byte - 256 if byte > 127 else byte for byte in key) for key in keys]
        for key in bucket_order(keys, codes, self._buckets):
            entry = self._entries.get(key)
            if entry is None:
                self._log(key, None, None, None)
            else:
                value, headers = _logged(entry[1]) if self._keeps_headers else (entry[1], VERSION)
                self._log(key, value.encode(entry[0]), None, headers)
        self._dirty.clear()

    def commit(self) -> None:
        """Do nothing: only the changelog is durable."""

    def rows(self) -> Iterator[tuple[Key, Value]]:
        """Yield (key, new value) of the buffered updates, decoded, in byte order of keys."""
        for key, (_, value) in sorted(self._entries.items(), key=lambda entry: entry[0]):
            yield self.key_serde.decode(key), self._value(value.new)

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers | None) -> None:
        """Apply one changelog record. Raises StateError for a format that Kafka Streams 2.4 and later do not write."""
        if value is None:
            entry = self._entries.pop(key, None)
            if entry is not None:
                # Its entry in the queue is skipped later: a search for it here would make restoring quadratic.
                self.size -= 8 + len(key) + entry[1].size()
                self._drop_stale()
            return
        versions = [data for name, data in headers or () if name == "v"]
        if versions[-1:] != [b"\x03"]:
            raise StateError(f"The changelog of {self.name} has a record of an unknown format: header v is not 03")
        buffered, time = decode_buffer_value(value)
        self._place(time, key, _headed(buffered, headers or []) if self._keeps_headers else buffered)

    def _drop_stale(self) -> None:
        """Remove queue entries of deleted keys once they are the majority: a standby never takes the head of the queue."""
        if len(self._queue) > _MAX_STALE + 2 * len(self._entries):
            self._queue = [(time, key) for key, (time, _) in self._entries.items()]
            heapify(self._queue)

    def close(self) -> None:
        """Drop everything."""
        self._entries.clear()
        self._queue.clear()
        self._dirty.clear()
        self.size = 0


# The buffer of a stream-table join with grace: records wait until their grace is over (RocksDBTimeOrderedKeyValueBuffer).

_TIME_FIRST = b"\x00"


class JoinGraceBuffer(NumberedStore):
    """Records by (timestamp, key, arrival); keys are 0 + timestamp8 + key + sequence4, in map and changelog.

    Values are encoded as `BufferValue` without a prior or an old value. The producer assigns the timestamps of changelog records.
    """

    around: ClassVar[tuple[int, int]] = (9, 4)

    @classmethod
    def changelog_sides(cls, definition: StoreDef) -> tuple[Side, Side]:
        serde = definition.key_serde
        key = Side(guarded(lambda data: serde.decode(data[9:-4])), serde.to_json, serde)
        return key, changes_side(definition.value_serde, _buffered)

    @classmethod
    def changelog_records(cls, rows: Rows) -> Iterator[ChangelogRecord]:
        for key, data in rows:
            yield ChangelogRecord(0, key, data, None)

    def __init__(self, definition: StoreDef, entries: BytesMap, context: StoreContext):
        super().__init__(definition, entries, context)
        self.grace = definition.grace or 0
        self.observed_time = -1
        self._encode = definition.value_serde.encode
        self._decode = definition.value_serde.decode

    def put(self, key: bytes, value: Value, context: ProcessorRecordContext) -> bool:
        """Buffer a record (value not None) until its grace is over. Return False if it is over already, so that the join is due now.

        Raises SerdeError.
        """
        timestamp = context.timestamp
        if timestamp < self.observed_time - self.grace:
            return False
        self._sequence = (self._sequence + 1) & MAX_SEQUENCE
        row = _TIME_FIRST + pack_long(timestamp) + key + pack_int(self._sequence)
        data = BufferValue(None, None, self._encode(value), context).encode(0)
        self._map.put(row, data)
        self.observed_time = max(self.observed_time, timestamp)
        self._log(row, data, None, None)
        return True

    def release(self) -> Iterator[Eviction]:
        """Remove, one by one, the records with timestamp <= observed time - grace, by (timestamp, key, arrival)."""
        bound = self.observed_time - self.grace
        if bound < 0:
            return
        end = _TIME_FIRST + pack_long(bound + 1)
        for row, data in list(self._map.range(None, end, include_high=False)):
            value, _ = decode_buffer_value(data)
            assert value.new is not None
            yield Eviction(row[9:-4], self._decode(value.new), None, value.context)
            self._map.put(row, None)
            self._log(row, None, None, None)

    def rows(self) -> Iterator[tuple[Key, Value]]:
        """Yield (key, value) of the buffered records, decoded, by (timestamp, key, arrival)."""
        for row, data in self._map.range(None, None):
            new = decode_buffer_value(data)[0].new
            yield self.key_serde.decode(row[9:-4]), None if new is None else self._decode(new)

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers | None) -> None:
        self.note_numbers((key,))
        self._map.put(key, value)
        self.observed_time = max(self.observed_time, unpack_long(key, 1)[0])
