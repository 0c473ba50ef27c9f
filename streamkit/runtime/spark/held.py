"""Tables of which only the end counts: each key's last change is held back until all are in."""

from __future__ import annotations

import sys
from typing import Any

from streamkit.state.base import BytesMap, StoreContext
from streamkit.state.cache import CONTEXT, DATA, PUT, TIME, VALUE, CacheBudget
from streamkit.state.definitions import StoreDef
from streamkit.state.key_value import KeyValueStore
from streamkit.state.keys import pack_long

_ENTRY_BYTES = 350
"""What an entry takes of the process: a list, its place in a dict, key, value and timestamp."""
_LONGS = range(-(2**63), 2**63)


class HeldStore(KeyValueStore):
    """A store all of which is in its cache; beyond `limit` bytes everything is forwarded and moves to the map below.

    Unlike a cache it forwards deletions of keys that never left it: an update of each key must come out.
    """

    def __init__(self, definition: StoreDef, entries: BytesMap, context: StoreContext, limit: int):
        super().__init__(definition, entries, context, CacheBudget(sys.maxsize))
        self._most = limit // _ENTRY_BYTES
        self._is_long = definition.value_serde.spec == "long"
        self._has_moved = False

    def get(self, key: bytes) -> tuple[Any, int] | None:
        """Return (value, timestamp), or None."""
        entry = self.entries.get(key)
        if entry is None:
            return self.load(key) if self._has_moved else None
        value = self._entry_value(entry)
        return None if value is None else (value, entry[TIME])

    def flush(self) -> None:
        """Forward each key's last change; it stays in memory, as nothing comes after it."""
        listener, encode, decode = self._listener, self._encode, self._decode
        for key, entry in self.entries.items():
            if entry[PUT]:
                value, data = entry[VALUE], entry[DATA]
                if value is None and data is not None:
                    value = decode(data)
                elif data is None and value is not None and not self._is_long:
                    encode(value)  # generated code has changed it in place: refuse what does not fit
                listener(key, value, None, entry[TIME], entry[CONTEXT])

    def commit(self) -> None:
        """Make room where too much is held."""
        if len(self.entries) > self._most:
            self._make_room()
        super().commit()

    def _make_room(self) -> None:
        assert self.cache is not None
        self.flush()
        for key, entry in self.entries.items():
            if entry[PUT]:
                value, data = entry[VALUE], entry[DATA]
                if value is not None and data is None:
                    data = self._encode(value)
                self._map.put(key, None if data is None else pack_long(entry[TIME]) + data)
        self.cache.clear()
        self._has_moved = True

    def put(self, key: bytes, value: Any, timestamp: int, context: Any = None) -> None:
        """Set a value, or delete with None. Raises SerdeError."""
        if value is None or (self._is_long and value.__class__ is int and value in _LONGS):
            data = None
        else:
            data = self._encode(value)
            if not self.holds_decoded:
                value = None
        self.entries[key] = [value, timestamp, context, 1, 1, data, 0]
