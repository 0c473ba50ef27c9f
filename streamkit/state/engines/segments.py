"""Segments of rows that expire together: the rules of retention, and a map where a segment is one range of keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from streamkit.state.definitions import BytesMap
from streamkit.state.layouts import MAX_LONG, pack_long, unpack_long
from streamkit.state.stores.key_rows import JoinRows, KeyRows

_TIME_INDEX = b"\xff"
MIN_INTERVAL = 60_000
_FEW_SEGMENTS = 16
_DROP_AFTER = 200_000
"""How many rows are loaded before expired segments are deleted: each deletion costs a scan."""


def interval_of(retention: int, interval: int | None) -> int:
    """Return the length of a segment (ms): `interval`, or else half the retention, at least a minute."""
    return max(retention // 2, MIN_INTERVAL) if interval is None else interval


class Segments:
    """Rows by segment8 + row key, with the observed time of their store.

    A row belongs to the segment of its time (a window's start, a session's end). Java's in-memory stores drop a row
    by its own time; RocksDB's drop complete segments, so that they still accept some expired rows, which no read
    returns (InMemoryWindowStore, AbstractRocksDBSegmentedBytesStore). Observed time is not kept across restarts.
    `suffix`: how many bytes follow the key in a row, beginning with the time. `indexed`: rows are also listed as
    `ff` + suffix + key. `interval`: the length of a segment (ms); None: half the retention, at least a minute.
    """

    def __init__(
        self,
        rows: BytesMap,
        retention: int,
        persistent: bool,
        suffix: int,
        indexed: bool = False,
        interval: int | None = None,
        by_key: type[KeyRows | JoinRows] = KeyRows,
    ):
        self._rows = rows
        self._suffix = suffix
        self.retention = retention
        self.interval = interval_of(retention, interval)
        self.observed = -1
        self.indexed = indexed
        self.margin = 0
        """How much older than the retention a row may be and still be read (AbstractDualSchemaRocksDBSegmentedBytesStore)."""
        self._persistent = persistent
        self._first, self._last = self._existing()
        self._expired_at = 0
        self._loaded: int | None = None
        """Rows since expired segments were last deleted; None: they are deleted as they expire."""
        self._key_rows = by_key(self._rows_of, lambda: self.first_alive(0), complete=self._last < self._first)
        self._put_by_key = self._key_rows.put
        self._prefix = 0, pack_long(0)
        """The segment that was written last, and its bytes."""

    def _existing(self) -> tuple[int, int]:
        """Return the first and last segment of a map that was opened; (0, -1) if it is empty."""
        ends = [
            unpack_long(key)[0]
            for reverse in (False, True)
            for key, _ in self._rows.range(None, _TIME_INDEX, reverse, include_high=False, limit=1)
        ]
        return (ends[0], ends[1]) if ends else (0, -1)

    def put(self, time: int, key: bytes, suffix: bytes, data: bytes | None) -> bool:
        """Advance to `time` and set or delete the row key + suffix; False if it has expired."""
        segment = time // self.interval
        if time > self.observed:
            self.observed = time
            if (time - self.retention) // self.interval > self._first:
                self._advance(time)
        elif self._persistent:
            if segment < max(0, self.observed - self.retention) // self.interval:
                return False
        elif time <= self.observed - self.retention:
            return False
        prefix = self._prefix
        if prefix[0] != segment:
            prefix = self._prefix = segment, pack_long(segment)
        self._rows.put(prefix[1] + key + suffix, data)
        self._put_by_key(key, suffix, data)
        if self.indexed:
            self._rows.put(_TIME_INDEX + suffix + key, None if data is None else b"")
        if segment > self._last:
            if self._last < self._first:
                self._first = segment
            self._last = segment
        elif segment < self._first:
            self._first = segment
        return True

    def begin_load(self) -> None:
        """Prepare for many rows and few reads."""
        self._loaded = 0

    def end_load(self) -> None:
        """End the load, and delete expired segments."""
        if self._loaded is not None:
            self._loaded = None
            self._drop_below(self._first)

    def load(self, rows: Iterable[tuple[int, bytes, bytes | None]]) -> None:
        """Put many rows at once, each given as (time, key + suffix, data): with the result of a `put` of each."""
        interval, retention, persistent = self.interval, self.retention, self._persistent
        observed = self.observed
        kept = []
        for time, row, data in rows:
            if time > observed:
                observed = time
            elif persistent:
                if time // interval < max(0, observed - retention) // interval:
                    continue
            elif time <= observed - retention:
                continue
            kept.append((time // interval, row, data))
        lowest = max(0, observed - retention) // interval
        kept = [entry for entry in kept if entry[0] >= lowest]
        self._key_rows.forget()
        if observed > self.observed:
            self.observed = observed
            if self._first < lowest and self._first <= self._last:
                self._expire(lowest, len(kept))
        if kept:
            self._put_many(kept)

    def _put_many(self, rows: list[tuple[int, bytes, bytes | None]]) -> None:
        self._rows.put_many([(pack_long(segment) + row, data) for segment, row, data in rows])
        if self.indexed:
            length = self._suffix
            self._rows.put_many(
                [(_TIME_INDEX + row[-length:] + row[:-length], None if data is None else b"") for _, row, data in rows]
            )
        numbers = [segment for segment, _, _ in rows]
        first, last = min(numbers), max(numbers)
        self._first, self._last = (
            (first, last) if self._last < self._first else (min(first, self._first), max(last, self._last))
        )

    def _expire(self, segment: int, rows: int) -> None:
        """Delete the segments below `segment`; during a load only once in _DROP_AFTER rows."""
        if self._loaded is None:
            self._drop_below(segment)
            return
        self._first = segment
        self._loaded += rows
        if self._loaded >= _DROP_AFTER:
            self._loaded = 0
            self._drop_below(segment)

    def touch(self, time: int) -> bool:
        """Advance to `time` without a row, as stores in memory do; False if it has expired (InMemoryWindowStore.put)."""
        if time > self.observed:
            self._advance(time)
        return time > self.observed - self.retention

    def _advance(self, time: int) -> None:
        self.observed = time
        lowest = max(0, time - self.retention) // self.interval
        if lowest > self._first and self._first <= self._last:
            self._drop_below(lowest)

    def _drop_below(self, segment: int) -> None:
        self._first = segment
        if self.observed - self._expired_at >= self.retention // 2:
            # A pass visits all keys. With this interval a row is visited three times at most, even if stream time jumps.
            self._expired_at = self.observed
            self._key_rows.expire()
        self._rows.delete_range(None, pack_long(segment))
        if self.indexed:
            self._rows.delete_range(_TIME_INDEX, _TIME_INDEX + pack_long(segment * self.interval))

    def remove(self, time: int, row: bytes) -> None:
        """Delete a row without advancing the observed time."""
        self._rows.put(pack_long(time // self.interval) + row, None)
        self._key_rows.put(row[: -self._suffix], row[-self._suffix :], None)

    def get(self, time: int, row: bytes, expired: bool = False) -> bytes | None:
        """Return a row unless it has expired, or with `expired` as long as its segment exists."""
        if time <= self.observed - self.retention - self.margin and not expired:
            return None
        return self._rows.get(pack_long(time // self.interval) + row)

    @property
    def join_rows(self) -> JoinRows:
        """The rows of keys of a join's store."""
        assert isinstance(self._key_rows, JoinRows)
        return self._key_rows

    def of_key(self, key: bytes, first: bytes, last: bytes) -> tuple[Sequence[bytes], Sequence[bytes]]:
        """Return suffixes and data of a key's rows from suffix `first` to `last`, both included, in order.

        Expired rows are among them unless `first` excludes them.
        """
        assert isinstance(self._key_rows, KeyRows)
        return self._key_rows.between(key, first, last)

    def _rows_of(self, key: bytes, low: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield a key's rows from the time `low` on that have not expired, segment by segment."""
        low, high = self._bounded(low, MAX_LONG)
        if low > high:
            return
        length = len(key) + self._suffix
        first, last = key + pack_long(low), key + pack_long(high) + b"\xff" * (self._suffix - 8)
        for segment in self._between(low // self.interval, high // self.interval):
            prefix = pack_long(segment)
            for row, data in self._rows.range(prefix + first, prefix + last):
                # The range also has longer keys that begin with this one.
                if len(row) == length + 8:
                    yield row[-self._suffix :], data

    def _between(self, first: int, last: int) -> Iterator[int]:
        """Yield the numbers of segments from first to last; if there are many, only those that have rows."""
        if last - first < _FEW_SEGMENTS:
            yield from range(first, last + 1)
            return
        while first <= last:
            entry = next(iter(self._rows.range(pack_long(first), _TIME_INDEX, include_high=False, limit=1)), None)
            if entry is None:
                return
            first = unpack_long(entry[0])[0]
            if first <= last:
                yield first
            first += 1

    def between(self, low: int, high: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of all segments that hold times from low to high."""
        low, high = self._bounded(low, high)
        if low <= high:
            first, end = pack_long(low // self.interval), pack_long(high // self.interval + 1)
            for key, data in self._rows.range(first, end, include_high=False):
                yield key[8:], data

    def indexes(self, low: int, high: int, expired: bool = False) -> Iterator[bytes]:
        """Yield index keys of times from low to high, both included, in byte order; with `expired` all that exist."""
        if expired:
            low, high = max(low, self._first * self.interval), min(high, self.latest)
        else:
            low, high = self._bounded(low, high)
        if low <= high:
            first, end = _TIME_INDEX + pack_long(low), _TIME_INDEX + pack_long(high + 1)
            for key, _ in self._rows.range(first, end, include_high=False):
                yield key[1:]

    @property
    def latest(self) -> int:
        """The upper bound of the rows' times."""
        return (self._last + 1) * self.interval - 1

    def first_alive(self, time: int) -> int:
        """Return the later of `time` and the first time that may still be read."""
        return max(0, time, self.observed - self.retention - self.margin + 1)

    def _bounded(self, low: int, high: int) -> tuple[int, int]:
        """Limit a range of times to rows that have not expired and to existing segments."""
        low = max(self.first_alive(low), self._first * self.interval)
        return low, min(high, self.latest)


def of_segments(rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of a map with segments, without the number of the segment, and without the index by time."""
    return ((key[8:], data) for key, data in rows if not key.startswith(_TIME_INDEX))
