"""Session stores: sessions by key, start and end, kept for a retention time (SessionStore)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from streamkit.metrics import DropReason
from streamkit.record import Headers, Key, RecordContext, Value, WindowedKey
from streamkit.serdes.sides import Side, side_of, windowed_side
from streamkit.state.definitions import BytesMap, ChangelogRecord, Query, Rows, StoreContext, StoreDef, StoredRow
from streamkit.state.engines.segments import Segments, of_segments
from streamkit.state.layouts import MAX_LONG, TWO_LONGS, pack_long, session_key, split_session_key, unpack_long
from streamkit.state.stores.cache import USED, CacheBudget, CacheEntry, headers_of
from streamkit.state.stores.changelogged import CachedMapStore
from streamkit.state.stores.key_rows import KeyedOrder

_SUFFIX = 16
"""The bytes of end and start after the key in a row."""
_LAST = TWO_LONGS.pack(MAX_LONG, MAX_LONG)


class Session(NamedTuple):
    """A row of a session store: key bytes, start and end (ms, both included), value."""

    key: bytes
    start: int
    end: int
    value: Value


class SessionStore(CachedMapStore):
    """Sessions by key + end8 + start8, in the map, the changelog and the cache alike; values are plain.

    The timestamp given with a write becomes that of the changelog record. With `headers` a deletion there has the headers
    of the record (ChangeLoggingSessionBytesStoreWithHeaders).
    Option `time_ordered`: `find_sessions` is cheap; stores that emit on close need that.
    """

    around: ClassVar[tuple[int, int]] = (0, 16)
    converts: ClassVar[bool] = True
    volatile: ClassVar[tuple[str, ...]] = ("observed_time",)

    def __init__(
        self, definition: StoreDef, entries: BytesMap, context: StoreContext, budget: CacheBudget | None = None
    ):
        super().__init__(definition, entries, context, budget)
        indexed = bool(definition.options.get("time_ordered"))
        self._segments: Segments = Segments(
            entries,
            definition.retention or 0,
            definition.persistent,
            suffix=16,
            indexed=indexed,
            interval=definition.segment_interval,
        )
        self._cached_order: KeyedOrder | None = None
        if self.cache is not None:
            self._cached_order = self.cache.order = KeyedOrder(self.cache.entries, _SUFFIX)
            self.cache.rows_of = self._cached_rows
            self.cache.on_leave = self._note_gone
        # A session that grows leaves a deletion behind at each of its earlier ends: hundreds for a live one, if records are close.
        self._live: dict[bytes, set[bytes]] = {}
        """The rows of cached sessions that are not deleted, by key."""

    @property
    def observed_time(self) -> int:
        """The latest end that was written, -1 before the first."""
        return self._segments.observed

    @observed_time.setter
    def observed_time(self, time: int) -> None:
        self._segments.observed = time

    def keeps(self, end: int, time: int) -> bool:
        """Return whether `find_sessions` finds a session with that end after one that ends at `time` is written."""
        segments = self._segments
        if segments.indexed and self.persistent:
            return end // segments.interval >= (time - segments.retention) // segments.interval
        return end > time - segments.retention - segments.margin

    def keep_open_sessions(self) -> None:
        """Read sessions in memory until they have closed: by default they expire one millisecond earlier (InMemorySessionStore)."""
        if not self.persistent:
            self._segments.margin = 1

    @property
    def searched_from(self) -> int:
        """The earliest end (ms) from which Java's store can search: in a cache on disk less than a segment before the epoch.

        (CachingSessionStore.CacheIteratorWrapper)
        """
        return -MAX_LONG if self.cache is None or not self.persistent else 1 - self._segments.interval

    def put(
        self, key: bytes, start: int, end: int, value: Value, timestamp: int, context: RecordContext = None
    ) -> bool:
        """Set a session, or delete it with None; False if it had expired: counted as dropped, but logged, as in Java.

        A cached session is checked when it leaves the cache. Raises SerdeError.
        """
        row = session_key(key, start, end)
        if self.cache is not None:
            self._cache_put(row, value, timestamp, context)
            return True
        return self._write(row, end, None if value is None else self._encode(value), timestamp, context)

    def remove(self, key: bytes, start: int, end: int, timestamp: int, context: RecordContext = None) -> None:
        """Delete a session; one that has expired is not counted as dropped."""
        row = session_key(key, start, end)
        if self.cache is not None:
            self._cache_put(row, None, timestamp, context)
            return
        # In memory a deletion does not advance the observed time (InMemorySessionStore.remove); no row there has a later end.
        if self.persistent or end <= self._segments.observed:
            self._store(row, end, None)
        self._log(row, None, timestamp, headers_of(context) if self.keeps_headers else None)

    def _write(self, row: bytes, end: int, data: bytes | None, timestamp: int, context: RecordContext) -> bool:
        kept = self._store(row, end, data)
        if not kept:
            self._dropped(DropReason.EXPIRED)
        self._log(row, data, timestamp, headers_of(context) if data is None and self.keeps_headers else None)
        return kept

    def _store(self, row: bytes, end: int, data: bytes | None) -> bool:
        return self._segments.put(end, row[:-16], row[-16:], data)

    def fetch_session(self, key: bytes, start: int, end: int) -> Value:
        """Return the value of one session, or None."""
        row = session_key(key, start, end)
        if self.cache is not None:
            entry = self.cache.entries.get(row)
            if entry is not None:
                entry[USED] = self.cache.tick()
                return self._entry_value(entry)
        data = self._segments.get(end, row)
        return None if data is None else self._decode(data)

    def find(
        self, key: bytes, earliest_end: int, latest_start: int, reverse: bool = False, use: bool = False
    ) -> list[Session]:
        """Return the sessions of a key with end >= earliest_end and start <= latest_start.

        Ordered by (end, start); in memory sessions of equal end come by falling start, as in Java. `use`: the task itself
        reads, so that cached entries count as used.
        """
        earliest_end = max(0, earliest_end)
        first, alive = TWO_LONGS.pack(earliest_end, 0), self._segments.first_alive(earliest_end)
        entries = self.entries
        stored_rows: dict[bytes, bytes | CacheEntry] = {
            row: data
            for suffix, data in zip(*self._segments.of_key(key, pack_long(alive), _LAST), strict=True)
            if (row := key + suffix) not in entries
        }
        if self.cache is not None:
            for row in self._live.get(key, ()):
                entry = entries.get(row)  # None while the row is put, or if its value could not be written
                if entry is not None and row[-_SUFFIX:] >= first:
                    stored_rows[row] = entry
            if use and not reverse:
                self.cache.use_range(key, first, _LAST)
            elif use:
                self.cache.use(row for row in reversed(self._cached_rows(key)) if row[-_SUFFIX:] >= first)
        rows = [session for row, stored in stored_rows.items() if (session := self._session(row, stored)) is not None]
        return self._ordered([row for row in rows if row.start <= latest_start], reverse)

    def _cached_rows(self, key: bytes) -> list[bytes]:
        """Return the rows of a key in the cache, deletions included, by end and start."""
        assert self._cached_order is not None
        return self._cached_order.of_key(key, b"", _LAST)

    def _cache_put(self, key: bytes, value: Value, timestamp: int, context: RecordContext) -> None:
        if value is None:
            self._note_gone(key)
        else:
            self._live.setdefault(key[:-_SUFFIX], set()).add(key)
        super()._cache_put(key, value, timestamp, context)

    def _note_gone(self, row: bytes) -> None:
        rows = self._live.get(row[:-_SUFFIX])
        if rows is not None:
            rows.discard(row)
            if not rows:
                del self._live[row[:-_SUFFIX]]

    def forget(self) -> None:
        """Empty the cache without writing it."""
        super().forget()
        self._live.clear()

    def fetch(self, key: bytes, reverse: bool = False) -> list[Session]:
        """Return all sessions of a key in the order of `find`."""
        return self.find(key, 0, MAX_LONG, reverse)

    def find_sessions(self, earliest_end: int, latest_end: int) -> list[Session]:
        """Return the sessions of all keys that end from earliest_end to latest_end, by (end, start, key).

        In a persistent store an expired session is found as long as its segment exists, as in Java; in memory it is not,
        and the order is (end, key) (RocksDBTimeOrderedSessionSegmentedBytesStore, InMemorySessionStore). Stores that emit on
        close have no cache, so none is read.
        """
        segments = self._segments
        low = max(0, earliest_end)
        if segments.indexed and self.persistent:
            rows = [
                (index[16:] + index[:16], TWO_LONGS.unpack_from(index)[0])
                for index in segments.indexes(low, latest_end, expired=True)
            ]
            stored = [(row, data) for row, end in rows if (data := segments.get(end, row, expired=True)) is not None]
        else:
            low = segments.first_alive(low)
            stored = list(segments.between(low, latest_end))
        sessions = [session for row, data in stored if (session := self._session(row, data)) is not None]
        alive = [row for row in sessions if low <= row.end <= latest_end]
        if self.persistent:
            return sorted(alive, key=lambda row: (row.end, row.start, row.key))
        return sorted(alive, key=lambda row: (row.end, row.key, row.start))

    def all(self) -> list[Session]:
        """Return all sessions by (key, end, start); a cached one also after it has expired."""
        alive = self._segments.first_alive(0)
        stored_rows: dict[bytes, bytes | CacheEntry] = {
            row: data
            for row, data in self._segments.between(alive, MAX_LONG)
            if TWO_LONGS.unpack_from(row, len(row) - 16)[0] >= alive
        }
        if self.cache is not None:
            stored_rows.update(self.cache.entries)
        rows = [session for row, stored in stored_rows.items() if (session := self._session(row, stored)) is not None]
        return sorted(rows, key=lambda row: (row.key, row.end, row.start))

    def _session(self, row: bytes, stored: bytes | CacheEntry) -> Session | None:
        """Return a session from a cache entry (a list) or from bytes; None for a deletion."""
        value = self._entry_value(stored) if isinstance(stored, list) else self._decode(stored)
        return None if value is None else Session(*split_session_key(row), value)

    def _ordered(self, rows: list[Session], reverse: bool) -> list[Session]:
        sign = 1 if self.persistent else -1
        rows.sort(key=lambda row: (row.end, sign * row.start), reverse=reverse)
        return rows

    def _answers(self, query: Query) -> Iterator[StoredRow]:
        decode = self.key_serde.decode
        if query.key is None:
            rows = [row for row in self.all() if row.end >= query.start and row.start <= query.end]
        else:
            rows = self.find(query.key, query.start, query.end)
        rows.sort(key=lambda row: (row.end, row.start, row.key), reverse=query.reverse)
        for row in rows:
            place = TWO_LONGS.pack(row.end, row.start) + row.key
            yield StoredRow(place, WindowedKey(decode(row.key), row.start, row.end), row.value, None)

    @classmethod
    def changelog_sides(cls, definition: StoreDef) -> tuple[Side, Side]:
        serde = definition.key_serde

        def decode(data: bytes) -> WindowedKey:
            key, start, end = split_session_key(data)
            return WindowedKey(serde.decode(key), start, end)

        return windowed_side(serde, decode), side_of(definition.value_serde)

    @classmethod
    def changelog_records(cls, rows: Rows) -> Iterator[ChangelogRecord]:
        for key, data in of_segments(rows):
            yield ChangelogRecord(0, key, data, unpack_long(key, len(key) - 16)[0])

    def rows(self) -> Iterator[tuple[Key, Value]]:
        """Yield (WindowedKey, value), decoded, by key, end and start, cache included."""
        decode = self.key_serde.decode
        return ((WindowedKey(decode(row.key), row.start, row.end), row.value) for row in self.all())

    def restore_batch(
        self, keys: list[bytes], values: list[bytes | None], timestamps: list[int], headers: list[Headers | None]
    ) -> None:
        unpack = unpack_long
        self._segments.load(
            (unpack(key, len(key) - 16)[0], key, value) for key, value in zip(keys, values, strict=True)
        )

    def _apply(self, key: bytes, value: Value, timestamp: int, context: RecordContext, data: bytes | None) -> None:
        if value is not None and data is None:
            data = self._encode(value)  # generated code changed the entry in place
        raw, start, end = split_session_key(key)
        listener = self._listener
        old = self._segments.get(end, key) if self._send_old or data is None else None
        if self._forwards and data is None and old is None:
            return  # put and deleted within the cache
        self._write(key, end, data, timestamp, context)
        if listener is not None:
            if value is None and data is not None:
                value = self._decode(data)
            before = self._decode(old) if old is not None and self._send_old else None
            if self.keeps_headers:
                # Java forwards the headers that the row has, which are none (SessionCacheFlushListenerWithHeader).
                context = (None, *context[1:]) if isinstance(context, tuple) else None
            listener(raw, start, end, value, before, timestamp, context)
