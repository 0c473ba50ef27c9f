"""The write-back cache of a store, and the byte budget that the caches of a thread share.

Entries are lists, so that generated code can change them in place:

    entry = entries.get(key)                  # a hit: entry[VALUE] is the value, None a deletion
    entry[VALUE] = new; entry[TIME] = t; entry[CONTEXT] = c; entry[DATA] = None
    if not entry[PUT]: mark(key)              # mark is cache.dirty.append
    entry[PUT] = entry[USED] = tick()

Ordering costs one number a write: flushes sort dirty entries by PUT, eviction finds the eldest by USED.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from streamkit.state.memory import KeyOrder

VALUE, TIME, CONTEXT, PUT, USED, DATA, SIZE = range(7)

ENTRY_BYTES = 45
"""What an entry costs beside key and value: node 24, dirty flag 1, record context 20 (NamedCache, LRUCacheEntry)."""

Apply = Callable[[bytes, Any, int, Any, "bytes | None"], None]
"""(key, value, timestamp, context, encoded value): write one dirty entry through and forward it."""


class CacheBudget:
    """The bytes that all caches of one thread may hold together (ThreadCache)."""

    __slots__ = ("max_bytes", "tick", "used")

    def __init__(self, max_bytes: int):
        self.max_bytes = max_bytes
        self.used = 0
        self.tick = count(1).__next__


class Cache:
    """Entries of one store by key: VALUE, TIME, CONTEXT, PUT (stamp, 0 if clean), USED (stamp), DATA (bytes), SIZE."""

    def __init__(self, budget: CacheBudget, apply: Apply):
        self.budget = budget
        self.tick = budget.tick
        self.entries: dict[bytes, list[Any]] = {}
        self.dirty: list[bytes] = []
        self.order = KeyOrder(self.entries)
        self._apply = apply
        self._eldest: list[tuple[int, bytes]] = []

    def put(self, key: bytes, value: Any, timestamp: int, context: Any, data: bytes | None) -> None:
        """Set a dirty entry; `data` is the encoded value, or None where value is None. May evict, that is flush."""
        entry = self.entries.get(key)
        size = ENTRY_BYTES + len(key) + (0 if data is None else len(data))
        stamp = self.tick()
        if entry is None:
            self._insert(key, [value, timestamp, context, stamp, stamp, data, size])
            self.dirty.append(key)
        else:
            if not entry[PUT]:
                self.dirty.append(key)
            self.budget.used += size - entry[SIZE]
            entry[:] = (value, timestamp, context, stamp, stamp, data, size)
        if self.budget.used > self.budget.max_bytes:
            self._evict()

    def load(self, key: bytes, value: Any, timestamp: int, data: bytes) -> None:
        """Set a clean entry that was read from the store below."""
        size = ENTRY_BYTES + len(key) + len(data)
        self._insert(key, [value, timestamp, None, 0, self.tick(), data, size])
        if self.budget.used > self.budget.max_bytes:
            self._evict()

    def _insert(self, key: bytes, entry: list[Any]) -> None:
        self.entries[key] = entry
        self.budget.used += entry[SIZE]
        if self.order.active:
            self.order.touch(key)

    def _remove(self, key: bytes) -> list[Any]:
        entry = self.entries.pop(key)
        self.budget.used -= entry[SIZE]
        if self.order.active:
            self.order.touch(key)
        return entry

    def _evict(self) -> None:
        """Drop the least recently used entries of this cache until the thread's total fits or nothing is left."""
        budget = self.budget
        while budget.used > budget.max_bytes and self.entries:
            key = self._eldest_key()
            entry = self._remove(key)
            if entry[PUT]:
                self.flush((key, entry))

    def _eldest_key(self) -> bytes:
        # A snapshot of stamps, eldest last: an entry used since then has a newer stamp and is passed over,
        # so that the first one unchanged is the eldest of all. Sorting is paid once for many evictions.
        entries = self.entries
        while True:
            while self._eldest:
                stamp, key = self._eldest.pop()
                entry = entries.get(key)
                if entry is not None and entry[USED] == stamp:
                    return key
            self._eldest = sorted(((entry[USED], key) for key, entry in entries.items()), reverse=True)

    def flush(self, first: tuple[bytes, list[Any]] | None = None) -> None:
        """Write all dirty entries through in the order of their last put, an evicted one before all others."""
        if not self.dirty:
            return
        entries = self.entries
        evicted = None if first is None else first[0]
        batch = [(entries[key][PUT], key, entries[key]) for key in self.dirty if key != evicted]
        # Everything is clean before the first listener runs: it may come back with new puts.
        self.dirty.clear()
        batch.sort()
        work = [] if first is None else [(first[0], *first[1])]
        work += [(key, *entry) for _, key, entry in batch]
        for _, _, entry in batch:
            entry[PUT] = 0
        apply = self._apply
        for key, value, timestamp, context, _, _, data, _ in work:
            apply(key, value, timestamp, context, data)
        for _, key, entry in batch:
            if entry[VALUE] is None and entry[DATA] is None and not entry[PUT] and entries.get(key) is entry:
                self._remove(key)

    def clear(self) -> None:
        """Forget everything, dirty or not."""
        self.budget.used -= sum(entry[SIZE] for entry in self.entries.values())
        self.entries.clear()
        self.dirty.clear()
        self.order.reset()
        self._eldest.clear()
