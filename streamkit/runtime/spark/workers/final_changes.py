"""Stores that forward only the final change of each key or window, once all records are processed."""

from __future__ import annotations

import sys
from abc import abstractmethod

from streamkit.record import RecordContext, Value
from streamkit.state.definitions import BytesMap, StoreContext, StoreDef
from streamkit.state.layouts import pack_long, unpack_long
from streamkit.state.stores.cache import CONTEXT, DATA, PUT, TIME, VALUE, CacheBudget, CacheEntry
from streamkit.state.stores.changelogged import CachedMapStore
from streamkit.state.stores.key_value import KeyValueStore
from streamkit.state.stores.window_store import WindowStore

_ENTRY_BYTES = 350
"""The memory that an entry takes: a list, its place in a dict, key, value and timestamp."""
_LONGS = range(-(2**63), 2**63)


class _FinalStore(CachedMapStore):
    """A store whose cache holds all entries; beyond `limit` bytes all are forwarded and move to the map below.

    Unlike a cache it forwards the deletion of a key that it has never forwarded: each key has a final change.
    """

    def __init__(self, definition: StoreDef, entries: BytesMap, context: StoreContext, limit: int):
        super().__init__(definition, entries, context, CacheBudget(sys.maxsize))
        self._max_entries = limit // _ENTRY_BYTES
        self._is_long = definition.value_serde.spec == "long"
        self._has_moved = False

    @abstractmethod
    def _forward(self, row: bytes, value: Value, entry: CacheEntry) -> None:
        """Forward an entry to the listener."""

    @abstractmethod
    def _move(self, row: bytes, data: bytes | None, timestamp: int) -> None:
        """Write an entry to the map below."""

    def flush(self) -> None:
        """Forward the final changes; they stay in memory, since no record follows."""
        encode, decode, forward = self._encode, self._decode, self._forward
        for row, entry in self.entries.items():
            if entry[PUT]:
                value, data = entry[VALUE], entry[DATA]
                if value is None and data is not None:
                    value = decode(data)
                elif data is None and value is not None and not self._is_long:
                    # Generated code has changed the value in place: it raises here where it does not encode.
                    encode(value)
                if self._listener is not None:
                    forward(row, value, entry)

    def commit(self) -> None:
        """Move entries to the map below where there are too many."""
        if len(self.entries) > self._max_entries:
            self._move_all()
        super().commit()

    def _move_all(self) -> None:
        assert self.cache is not None
        self.flush()
        for row, entry in self.entries.items():
            if entry[PUT]:
                value, data = entry[VALUE], entry[DATA]
                if value is not None and data is None:
                    data = self._encode(value)
                self._move(row, data, entry[TIME])
        self.cache.clear()
        self._has_moved = True

    def _set_entry(self, row: bytes, value: Value, timestamp: int, context: RecordContext) -> None:
        if value is None or (self._is_long and value.__class__ is int and value in _LONGS):
            data = None
        else:
            data = self._encode(value)
            value = self.value_serde.as_decoded(value) if self.holds_decoded else None
        self.entries[row] = [value, timestamp, context, 1, 1, data, 0, 0]

    def _value_and_time(self, entry: CacheEntry) -> tuple[Value, int] | None:
        value = self._entry_value(entry)
        return None if value is None else (value, entry[TIME])


class FinalKeyValueStore(_FinalStore, KeyValueStore):
    """Values by key."""

    def get(self, key: bytes) -> tuple[Value, int] | None:
        """Return (value, timestamp), or None."""
        entry = self.entries.get(key)
        if entry is not None:
            return self._value_and_time(entry)
        return self.load(key) if self._has_moved else None

    def put(self, key: bytes, value: Value, timestamp: int, context: RecordContext = None) -> None:
        """Set a value, or delete with None. Raises SerdeError."""
        if value is None:
            timestamp = _time_of_update(self.get(key), timestamp)
        self._set_entry(key, value, timestamp, context)

    def _forward(self, row: bytes, value: Value, entry: CacheEntry) -> None:
        assert self._listener is not None
        self._listener(row, value, None, entry[TIME], entry[CONTEXT])

    def _move(self, row: bytes, data: bytes | None, timestamp: int) -> None:
        self._map.put(row, None if data is None else pack_long(timestamp) + data)


class FinalWindowStore(_FinalStore, WindowStore):
    """Values by key and start of a window."""

    def fetch(self, key: bytes, start: int) -> tuple[Value, int] | None:
        """Return (value, timestamp) of one window, or None."""
        entry = self.entries.get(key + pack_long(start))
        if entry is not None:
            return self._value_and_time(entry)
        return super().fetch(key, start) if self._has_moved else None

    def put(self, key: bytes, start: int, value: Value, timestamp: int, context: RecordContext = None) -> bool:
        """Set a window, or delete it with None. Raises SerdeError."""
        if value is None:
            timestamp = _time_of_update(self.fetch(key, start), timestamp)
        self._set_entry(key + pack_long(start), value, timestamp, context)
        return True

    def _forward(self, row: bytes, value: Value, entry: CacheEntry) -> None:
        assert self._listener is not None
        start = unpack_long(row, len(row) - 8)[0]
        self._listener(row[:-8], start, start + self.window_size, value, None, entry[TIME], entry[CONTEXT])

    def _move(self, row: bytes, data: bytes | None, timestamp: int) -> None:
        # The segments drop a window that has expired in the meantime; its records are late, so no step reads it.
        stored = None if data is None else pack_long(timestamp) + data
        self._segments.put(unpack_long(row, len(row) - 8)[0], row[:-8], row[-8:], stored)


def _time_of_update(found: tuple[Value, int] | None, timestamp: int) -> int:
    """Return the timestamp that a deletion is forwarded with; the store keeps the record's own."""
    return timestamp if found is None else max(timestamp, found[1])
