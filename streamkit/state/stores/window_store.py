"""Window stores: windows by key and start, kept for a retention time (WindowStore)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from streamkit.metrics import DropReason
from streamkit.record import Headers, Key, RecordContext, Value, WindowedKey
from streamkit.serdes.sides import Side, side_of
from streamkit.state.definitions import BytesMap, ChangelogRecord, Query, Rows, StoreContext, StoreDef, StoredRow
from streamkit.state.engines.segments import Segments, of_segments
from streamkit.state.layouts import FIRST_SEQUENCE, MAX_LONG, pack_long, unpack_long
from streamkit.state.stores.cache import DATA, TIME, USED, VALUE, CacheBudget, CacheEntry, headers_of
from streamkit.state.stores.changelogged import CachedMapStore, window_key_side
from streamkit.state.stores.key_rows import KeyedOrder

_AFTER_STARTS = b"\x80"
"""Follows all starts: entries of the cache's index come after them."""

Row = tuple[bytes, int, Value, int]
"""The fields of a Window."""


class Window(NamedTuple):
    """A row of a window store: key bytes, start (ms), value, timestamp (ms)."""

    key: bytes
    start: int
    value: Value
    timestamp: int


class WindowStore(CachedMapStore):
    """Windows with the timestamp of their last update.

    In the map a row is key + start8, its value timestamp8 + value. In the changelog the key is key + start8 +
    sequence4 with sequence 0, the value is plain, and the timestamp is the value's (for a deletion, the given one). With
    `headers` a deletion there has the headers of the record (ChangeLoggingTimestampedWindowBytesStoreWithHeaders).
    The cache holds entries by `cache_key`. Option `time_ordered`: reads by time are cheap and come by (start, key), as
    stores that emit on close need (RocksDBTimeOrderedWindowStore, TimeOrderedCachingWindowStore).
    """

    around: ClassVar[tuple[int, int]] = (0, 12)
    converts: ClassVar[bool] = True
    volatile: ClassVar[tuple[str, ...]] = ("observed_time",)

    def __init__(
        self, definition: StoreDef, entries: BytesMap, context: StoreContext, budget: CacheBudget | None = None
    ):
        super().__init__(definition, entries, context, budget)
        self.time_ordered = bool(definition.options.get("time_ordered"))
        self.window_size = definition.window_size or 0
        self._segments: Segments = Segments(
            entries,
            definition.retention or 0,
            definition.persistent,
            suffix=8,
            indexed=self.time_ordered,
            interval=definition.segment_interval,
        )
        if self.time_ordered and definition.persistent:
            self._segments.margin = 1
        # Java has an index by key for all such stores with headers, for others if the windows slide, which have no cache
        # (RocksDbIndexedTimeOrderedWindowBytesStoreSupplier).
        self._cached_index = self.time_ordered and self.keeps_headers
        self._latest_cached = -1
        self._cached_order: KeyedOrder | None = None
        if self.cache is not None and not self.time_ordered:
            order = self._cached_order = self.cache.order = KeyedOrder(self.cache.entries, 8)
            self.cache.rows_of = lambda key: [key + suffix for suffix in order.suffixes(key)]

    @property
    def observed_time(self) -> int:
        """The latest start that was written, -1 before the first."""
        return self._segments.observed

    @observed_time.setter
    def observed_time(self, time: int) -> None:
        self._segments.observed = time

    def keeps(self, start: int, time: int) -> bool:
        """Return whether a window that begins at `start` is found after one that begins at `time` is written."""
        return start > time - self._segments.retention - self._segments.margin

    def cache_key(self, key: bytes, start: int) -> bytes:
        """Return key + start8, the windowed key's topic form; start8 + key if the store is `time_ordered`."""
        return pack_long(start) + key if self.time_ordered else key + pack_long(start)

    def _split(self, cache_key: bytes) -> tuple[bytes, int]:
        if self.time_ordered:
            return cache_key[8:], unpack_long(cache_key)[0]
        return cache_key[:-8], unpack_long(cache_key, len(cache_key) - 8)[0]

    def put(self, key: bytes, start: int, value: Value, timestamp: int, context: RecordContext = None) -> bool:
        """Set a window, or delete it with None; False if it had expired: counted as dropped, but logged, as in Java.

        A cached window is checked when it leaves the cache. Raises SerdeError.
        """
        if self.cache is None:
            data = None if value is None else self._encode(value)
            return self._write(key, start, pack_long(start), data, timestamp, context)
        if start > self._latest_cached:
            self._latest_cached = start
        row = self.cache_key(key, start)
        self._cache_put(row, value, timestamp, context)
        if self._cached_index:
            self.cache.put_index(row)
        return True

    def _write(
        self, key: bytes, start: int, suffix: bytes, data: bytes | None, timestamp: int, context: RecordContext
    ) -> bool:
        kept = self._segments.put(start, key, suffix, None if data is None else pack_long(timestamp) + data)
        if not kept:
            self._dropped(DropReason.EXPIRED)
        headers = headers_of(context) if data is None and self.keeps_headers else None
        self._log(key + suffix + FIRST_SEQUENCE, data, timestamp, headers)
        return kept

    def fetch(self, key: bytes, start: int) -> tuple[Value, int] | None:
        """Return (value, timestamp) of one window, or None."""
        if self.cache is not None:
            entry = self.cache.entries.get(self.cache_key(key, start))
            if entry is not None:
                entry[USED] = self.cache.tick()
                value = self._entry_value(entry)
                return None if value is None else (value, entry[TIME])
        data = self._segments.get(start, key + pack_long(start))
        return None if data is None else (self._decode(data[8:]), unpack_long(data)[0])

    def fetch_range(self, key: bytes, low: int, high: int, reverse: bool = False) -> list[Window]:
        """Return the windows of a key that start from low to high, both included, by start."""
        low = max(0, low)
        rows: dict[int, bytes | CacheEntry] = dict(self._stored_range(key, low, high))
        if self.cache is not None and self.cache.entries and low <= high:
            rows.update(self._cached_range(key, low, high))
        in_order = sorted(rows, reverse=reverse)
        return [row for start in in_order if (row := self._row(key, start, rows[start])) is not None]

    def _stored_range(self, key: bytes, low: int, high: int) -> list[tuple[int, bytes]]:
        low = self._segments.first_alive(low)
        if low > high:
            return []
        suffixes, rows = self._segments.of_key(key, pack_long(low), pack_long(high))
        return [(unpack_long(suffix)[0], data) for suffix, data in zip(suffixes, rows, strict=True)]

    def _cached_range(self, key: bytes, low: int, high: int) -> Iterator[tuple[int, CacheEntry]]:
        assert self.cache is not None
        entries = self.cache.entries
        if self._cached_order is not None:
            for row in self._cached_order.of_key(key, pack_long(low), pack_long(high)):
                yield unpack_long(row, len(key))[0], entries[row]
            return
        for row in self.cache.order.keys(self.cache_key(key, low), self.cache_key(key, high)):
            owner, start = self._split(row)
            if owner == key:
                yield start, entries[row]

    def _row(self, key: bytes, start: int, stored: bytes | CacheEntry) -> Window | None:
        """Return a row from a cache entry (a list) or from bytes; None for a deletion."""
        if isinstance(stored, list):
            value = self._entry_value(stored)
            return None if value is None else Window(key, start, value, stored[TIME])
        return Window(key, start, self._decode(stored[8:]), unpack_long(stored)[0])

    def fetch_all(self, low: int, high: int, reverse: bool = False, use: bool = False) -> list[Window]:
        """Return all windows that start from low to high, both included.

        `use`: the task itself reads, so that cached entries count as used.
        Ordered by (start, key) in memory and if `time_ordered`; else by (segment, key, start), as RocksDB does.
        """
        low = max(0, low)
        rows: dict[tuple[bytes, int], bytes | CacheEntry] = dict(self._stored_all(low, high))
        if self.cache is not None:
            entries = self.cache.entries
            cached = self._cached_between(low, high)
            if use:
                self.cache.use(self._used_by_fetch_all(low, high, reverse))
            for cache_key in cached:
                key, start = self._split(cache_key)
                if low <= start <= high:
                    rows[key, start] = entries[cache_key]
        interval = self._segments.interval if self.persistent and not self.time_ordered else 1
        order = sorted(rows, key=lambda row: (row[1] // interval, row), reverse=reverse)
        return [row for place in order if (row := self._row(*place, rows[place])) is not None]

    def _used_by_fetch_all(self, low: int, high: int, reverse: bool) -> list[bytes]:
        """Return the keys of the cached entries that Java's iterator visits in `fetch_all`, in its order.

        In a store ordered by time, these are the entries of the range and the one after them, if it is in one of their
        segments (TimeOrderedCachingWindowStore); else all entries by segment, key and start (CachingWindowStore). The
        segments of a store in memory are one millisecond long.
        """
        assert self.cache is not None
        interval = self._segments.interval if self.persistent else 1
        if self.time_ordered and self.persistent:
            end = pack_long(max(low, (min(high, self._latest_cached) // interval + 1) * interval))
            rows = []
            for row in self.cache.order.keys(pack_long(low), end, include_high=False):
                rows.append(row)
                if unpack_long(row)[0] > high:
                    break
            return rows
        places = ((row, *self._split(row)) for row in self.cache.entries)
        order = sorted(places, key=lambda place: (place[2] // interval, place[1], place[2]), reverse=reverse)
        return [row for row, _, _ in order]

    def walk(self, key: bytes, low: int, high: int, reverse: bool = False) -> Iterator[Row]:
        """Return the windows of a key that start from low to high, both included, in the order of Java's iterators.

        The rows of the store are read at the beginning. A cached window is read when its turn comes; it counts as used
        then, or may have left the cache. A cached deletion hides a window of the store.
        """
        if self._cached_order is None or not self.entries:
            return iter(self.fetch_range(key, low, high, reverse))
        stored = self._stored_range(key, max(0, low), high)
        if not stored:
            return self._cached_in_turn(key, low, high, reverse, deleted=False)
        if reverse:
            stored.reverse()
        return self._merged(key, stored, self._cached_in_turn(key, low, high, reverse, deleted=True), reverse)

    def _merged(
        self, key: bytes, stored: list[tuple[int, bytes]], cached: Iterator[Row], reverse: bool
    ) -> Iterator[Row]:
        at = 0
        for row in cached:
            start = row[1]
            while at < len(stored) and (stored[at][0] > start if reverse else stored[at][0] < start):
                yield key, stored[at][0], self._decode(stored[at][1][8:]), unpack_long(stored[at][1])[0]
                at += 1
            if at < len(stored) and stored[at][0] == start:
                at += 1
            if row[2] is not None:
                yield row
        for start, data in stored[at:]:
            yield key, start, self._decode(data[8:]), unpack_long(data)[0]

    def _cached_in_turn(self, key: bytes, low: int, high: int, reverse: bool, deleted: bool) -> Iterator[Row]:
        """Yield the cached windows of `walk`; with `deleted` also deletions, as None."""
        assert self.cache is not None
        assert self._cached_order is not None
        entries, tick = self.cache.entries, self.cache.tick
        suffixes = self._cached_order.suffixes(key)
        first, end = bisect_left(suffixes, pack_long(max(0, low))), bisect_right(suffixes, pack_long(high))
        rows, before = suffixes[first:end], []
        if reverse and self.persistent:
            # Java visits complete segments, from the last one that may have entries to that of the lowest start.
            interval = self._segments.interval
            lowest = max(0, min(low, high, self._latest_cached)) // interval * interval
            before = suffixes[bisect_left(suffixes, pack_long(lowest)) : min(first, end)]
        for suffix in reversed(rows) if reverse else rows:
            entry = entries.get(key + suffix)
            if entry is not None:
                entry[USED] = tick()
                value = entry[VALUE]
                if value is None and entry[DATA] is not None:
                    value = self._decode(entry[DATA])
                if value is not None or deleted:
                    yield key, unpack_long(suffix)[0], value, entry[TIME]
        if before:
            self.cache.use_range(key, before[0], before[-1], falling=True)

    def _cached_between(self, low: int, high: int) -> list[bytes]:
        assert self.cache is not None
        if not self.time_ordered:
            return list(self.cache.entries)
        end = pack_long(high + 1) if high < MAX_LONG else _AFTER_STARTS
        return list(self.cache.order.keys(pack_long(low), end, include_high=False)) if low <= high else []

    def _stored_all(self, low: int, high: int) -> Iterator[tuple[tuple[bytes, int], bytes]]:
        low = self._segments.first_alive(low)
        if self.time_ordered:
            for index in self._segments.indexes(low, high):
                key, start = index[8:], unpack_long(index)[0]
                data = self._segments.get(start, key + index[:8])
                if data is not None:
                    yield (key, start), data
            return
        for row, data in self._segments.between(low, high):
            start = unpack_long(row, len(row) - 8)[0]
            if low <= start <= high:
                yield (row[:-8], start), data

    def all(self, reverse: bool = False) -> list[Window]:
        """Return all windows in the order of `fetch_all`; a cached window is returned even after it has expired."""
        return self.fetch_all(0, MAX_LONG, reverse)

    def _answers(self, query: Query) -> Iterator[StoredRow]:
        decode, size, reverse = self.key_serde.decode, self.window_size, query.reverse
        low, high = max(0, query.start), min(query.end, MAX_LONG)
        if query.after is not None:
            at = int.from_bytes(query.after[0][:8], "big")
            low, high = (low, min(high, at)) if reverse else (max(low, at), high)
        if low > high:
            return
        if query.key is None:
            rows = sorted(self.fetch_all(low, high), key=lambda row: (row.start, row.key), reverse=reverse)
        else:
            rows = self.fetch_range(query.key, low, high, reverse)
        for row in rows:
            key = WindowedKey(decode(row.key), row.start, min(row.start + size, MAX_LONG))
            yield StoredRow(pack_long(row.start) + row.key, key, row.value, row.timestamp)

    @classmethod
    def changelog_sides(cls, definition: StoreDef) -> tuple[Side, Side]:
        return window_key_side(definition), side_of(definition.value_serde)

    @classmethod
    def changelog_records(cls, rows: Rows) -> Iterator[ChangelogRecord]:
        for key, data in of_segments(rows):
            yield ChangelogRecord(0, key + FIRST_SEQUENCE, data[8:], unpack_long(data)[0])

    def rows(self) -> Iterator[tuple[Key, Value]]:
        """Yield (WindowedKey, value), decoded, in byte order of key and start, cache included."""
        decode, size = self.key_serde.decode, self.window_size
        for window in sorted(self.all(), key=lambda row: row[:2]):
            yield WindowedKey(decode(window.key), window.start, min(window.start + size, MAX_LONG)), window.value

    def restore_batch(
        self, keys: list[bytes], values: list[bytes | None], timestamps: list[int], headers: list[Headers | None]
    ) -> None:
        pack, unpack = pack_long, unpack_long
        self._segments.load(
            (unpack(key, len(key) - 12)[0], key[:-4], None if value is None else pack(timestamp) + value)
            for key, value, timestamp in zip(keys, values, timestamps, strict=True)
        )

    def _apply(self, key: bytes, value: Value, timestamp: int, context: RecordContext, data: bytes | None) -> None:
        if value is not None and data is None:
            data = self._encode(value)  # generated code changed the entry in place
        raw, suffix = (key[8:], key[:8]) if self.time_ordered else (key[:-8], key[-8:])
        start = unpack_long(suffix)[0]
        listener = self._listener
        old = self._segments.get(start, raw + suffix) if self._send_old or data is None else None
        if self._forwards and data is None and old is None:
            return  # put and deleted within the cache
        self._write(raw, start, suffix, data, timestamp, context)
        if listener is not None:
            if value is None and data is not None:
                value = self._decode(data)
            before = self._decode(old[8:]) if old is not None and self._send_old else None
            listener(raw, start, start + self.window_size, value, before, timestamp, context)
