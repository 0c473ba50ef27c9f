"""Tables of which only the end counts: each key's or window's last change is held back until all are in."""

from __future__ import annotations

import sys
from abc import abstractmethod
from typing import Any

from streamkit.state.base import BytesMap, StoreContext
from streamkit.state.cache import CONTEXT, DATA, PUT, TIME, VALUE, CacheBudget
from streamkit.state.definitions import StoreDef
from streamkit.state.key_value import KeyValueStore
from streamkit.state.keys import pack_long, unpack_long
from streamkit.state.stored import CachedMapStore
from streamkit.state.window import WindowStore

_ENTRY_BYTES = 350
"""What an entry takes of the process: a list, its place in a dict, key, value and timestamp."""
_LONGS = range(-(2**63), 2**63)


class _Held(CachedMapStore):
    """A store all of which is in its cache; beyond `limit` bytes everything is forwarded and moves to the map below.

    Unlike a cache it forwards deletions of what never left it: an update of each key must come out.
    """

    def __init__(self, definition: StoreDef, entries: BytesMap, context: StoreContext, limit: int):
        super().__init__(definition, entries, context, CacheBudget(sys.maxsize))
        self._most = limit // _ENTRY_BYTES
        self._is_long = definition.value_serde.spec == "long"
        self._has_moved = False

    @abstractmethod
    def _forward(self, row: bytes, value: Any, entry: list[Any]) -> None:
        """Tell the listener of an entry."""

    @abstractmethod
    def _move(self, row: bytes, data: bytes | None, timestamp: int) -> None:
        """Write an entry to the map below."""

    def flush(self) -> None:
        """Forward the last changes; they stay in memory, as nothing comes after them."""
        encode, decode, forward = self._encode, self._decode, self._forward
        for row, entry in self.entries.items():
            if entry[PUT]:
                value, data = entry[VALUE], entry[DATA]
                if value is None and data is not None:
                    value = decode(data)
                elif data is None and value is not None and not self._is_long:
                    encode(value)  # generated code has changed it in place: refuse what does not fit
                if self._listener is not None:
                    forward(row, value, entry)

    def commit(self) -> None:
        """Write rows out where too many are held."""
        if len(self.entries) > self._most:
            self._make_room()
        super().commit()

    def _make_room(self) -> None:
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

    def _hold(self, row: bytes, value: Any, timestamp: int, context: Any) -> None:
        if value is None or (self._is_long and value.__class__ is int and value in _LONGS):
            data = None
        else:
            data = self._encode(value)
            value = self.value_serde.held(value) if self.holds_decoded else None
        self.entries[row] = [value, timestamp, context, 1, 1, data, 0, 0]

    def _held(self, entry: list[Any]) -> tuple[Any, int] | None:
        value = self._entry_value(entry)
        return None if value is None else (value, entry[TIME])


class HeldStore(_Held, KeyValueStore):
    """Values by key."""

    def get(self, key: bytes) -> tuple[Any, int] | None:
        """Return (value, timestamp), or None."""
        entry = self.entries.get(key)
        if entry is not None:
            return self._held(entry)
        return self.load(key) if self._has_moved else None

    def put(self, key: bytes, value: Any, timestamp: int, context: Any = None) -> None:
        """Set a value, or delete with None. Raises SerdeError."""
        if value is None:
            timestamp = _time_of_update(self.get(key), timestamp)
        self._hold(key, value, timestamp, context)

    def _forward(self, row: bytes, value: Any, entry: list[Any]) -> None:
        self._listener(row, value, None, entry[TIME], entry[CONTEXT])

    def _move(self, row: bytes, data: bytes | None, timestamp: int) -> None:
        self._map.put(row, None if data is None else pack_long(timestamp) + data)


class HeldWindowStore(_Held, WindowStore):
    """Values by key and start of a window."""

    def fetch(self, key: bytes, start: int) -> tuple[Any, int] | None:
        """Return (value, timestamp) of one window, or None."""
        entry = self.entries.get(key + pack_long(start))
        if entry is not None:
            return self._held(entry)
        return super().fetch(key, start) if self._has_moved else None

    def put(self, key: bytes, start: int, value: Any, timestamp: int, context: Any = None) -> bool:
        """Set a window, or delete it with None. Raises SerdeError."""
        if value is None:
            timestamp = _time_of_update(self.fetch(key, start), timestamp)
        self._hold(key + pack_long(start), value, timestamp, context)
        return True

    def _forward(self, row: bytes, value: Any, entry: list[Any]) -> None:
        start = unpack_long(row, len(row) - 8)[0]
        self._listener(row[:-8], start, start + self.window_size, value, None, entry[TIME], entry[CONTEXT])

    def _move(self, row: bytes, data: bytes | None, timestamp: int) -> None:
        # A window that has expired meanwhile is of no use: records for it are late.
        stored = None if data is None else pack_long(timestamp) + data
        self._segments.put(unpack_long(row, len(row) - 8)[0], row[:-8], row[-8:], stored)


def _time_of_update(found: tuple[Any, int] | None, timestamp: int) -> int:
    """Return the time with which a deletion is forwarded, which is not that of the record, with which it is stored."""
    return timestamp if found is None else max(timestamp, found[1])
