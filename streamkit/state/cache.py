"""The write-back cache of a store, and the byte budget that the caches of a thread share.

Entries are lists, so that generated code can change them in place:

    entry = entries.get(key)                  # a hit: entry[VALUE] is the value, None a deletion
    entry[VALUE] = new; entry[TIME] = t; entry[DATA] = None
    if entry[PUT] and context is entry[CONTEXT]:   # and the record is from a topic whose name is as long
        entry[PUT] = entry[USED] = tick()
    else:
        renew(key, entry, context)            # renew is cache.renew: what the entry costs has changed

Ordering costs one number a write: flushes sort dirty entries by PUT, eviction finds the eldest by USED.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

from streamkit.state.base import CurrentTopic
from streamkit.state.memory import KeyOrder

VALUE, TIME, CONTEXT, PUT, USED, DATA, SIZE, TOPIC = range(8)

ENTRY_BYTES = 45
"""What an entry costs beside key, value, topic and headers: node 24, dirty flag 1, record context 20 (NamedCache, LRUCacheEntry)."""

_LARGE = 1 << 20
"""Bytes that records hardly ever have: brokers refuse more by default."""

_MAX_NOTED = 10_000
"""For how many keys it is noted at most that their entries were used."""

Apply = Callable[[bytes, Any, int, Any, "bytes | None"], None]
"""(key, value, timestamp, context, encoded value): write one dirty entry through and forward it."""


def headers_size(context: Any) -> int:
    """Return what the headers of a current record cost (ProcessorRecordContext.residentMemorySizeEstimate)."""
    headers = context[0] if context.__class__ is tuple else context
    if not headers:
        return 0
    return sum(_characters(name) + len(value or b"") for name, value in headers)


def _characters(text: str) -> int:
    """Return how many UTF-16 units a text has."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


class CacheBudget:
    """The bytes that all caches of one thread may hold together (ThreadCache)."""

    __slots__ = ("max_bytes", "miscounted", "roomy_bytes", "tick", "used")

    def __init__(self, max_bytes: int):
        self.resize(max_bytes)
        self.used = 0
        """What Java's total is; what the caches hold is this less `miscounted`."""
        self.miscounted = 0
        self.tick = count(1).__next__

    def resize(self, max_bytes: int) -> None:
        """Set how many bytes the caches may hold; what is too much leaves them with the next put."""
        self.max_bytes = max_bytes
        self.roomy_bytes = max_bytes - max(max_bytes // 2, _LARGE)
        """Up to this much in use one more entry fits, however large."""

    def count_twice(self, more: int) -> None:
        """Add what a cache has grown by while it was flushed (ThreadCache.flush and maybeEvict).

        Java compares a cache's size before and after, although each change in between has been added already: an update that
        a flush forwards may read or write the same store. The total stays wrong, too small or too large. It is put right
        where memory would not be bounded any more.
        """
        self.used += more
        self.miscounted += more
        if abs(self.miscounted) > max(self.max_bytes, _LARGE):
            self.used -= self.miscounted
            self.miscounted = 0


class Cache:
    """Entries of one store by key.

    VALUE, TIME, CONTEXT, PUT (stamp, 0 if clean), USED (stamp), DATA (bytes), SIZE (bytes), TOPIC (how much of SIZE is the
    topic's name). `overhead`: what keys and values have beside their bytes here in Java's cache, deletions `key_overhead`.
    """

    def __init__(
        self, budget: CacheBudget, apply: Apply, topic: CurrentTopic, key_overhead: int = 0, value_overhead: int = 0
    ):
        self.budget = budget
        self.tick = budget.tick
        self.entries: dict[bytes, list[Any]] = {}
        self.size = 0
        """Bytes of all entries."""
        self.dirty: list[bytes] = []
        self.order = KeyOrder(self.entries)
        self._apply = apply
        self._topic = topic
        self._base = ENTRY_BYTES + key_overhead
        self._value_overhead = value_overhead
        # Keys by stamp, and the stamps. A tuple for each would be a tenth of the cache's memory, again and again.
        self._eldest: list[bytes] = []
        self._stamps = array("q")
        self._noted: dict[bytes, tuple[int, list[bytes]]] = {}
        self._suffix = 0

    def put(self, key: bytes, value: Any, timestamp: int, context: Any, data: bytes | None) -> None:
        """Set a dirty entry; `data` is the encoded value, or None where value is None. May evict, that is flush."""
        budget = self.budget
        topic = self._topic.size
        size = self._base + len(key) + topic
        if data is not None:
            size += self._value_overhead + len(data)
        if context is not None:
            size += headers_size(context)
        stamp = self.tick()
        entry = self.entries.get(key)
        if entry is None:
            self.entries[key] = [value, timestamp, context, stamp, stamp, data, size, topic]
            if self.order.active:
                self.order.touch(key)
            self.dirty.append(key)
        else:
            if not entry[PUT]:
                self.dirty.append(key)
            size -= entry[SIZE]
            entry[:] = (value, timestamp, context, stamp, stamp, data, size + entry[SIZE], topic)
        self.size += size
        budget.used += size
        if budget.used > budget.max_bytes:
            self._evict()

    def renew(self, key: bytes, entry: list[Any], context: Any) -> None:
        """Finish a change in place, of a value by one of the same size, by a record that may cost more or less."""
        topic = self._topic.size
        more = topic - entry[TOPIC]
        if context is not entry[CONTEXT]:
            more += headers_size(context) - headers_size(entry[CONTEXT])
            entry[CONTEXT] = context
        if not entry[PUT]:
            self.dirty.append(key)
        entry[PUT] = entry[USED] = self.tick()
        if more:
            entry[TOPIC] = topic
            entry[SIZE] += more
            self.size += more
            self.budget.used += more
        if self.budget.used > self.budget.max_bytes:
            self._evict()

    def load(self, key: bytes, value: Any, timestamp: int, data: bytes) -> None:
        """Set a clean entry that was read from the store below."""
        size = self._base + len(key) + self._value_overhead + len(data)
        self._insert(key, [value, timestamp, None, 0, self.tick(), data, size, 0])
        if self.budget.used > self.budget.max_bytes:
            self._evict()

    def _insert(self, key: bytes, entry: list[Any]) -> None:
        self.entries[key] = entry
        self.size += entry[SIZE]
        self.budget.used += entry[SIZE]
        if self.order.active:
            self.order.touch(key)

    def _take(self, key: bytes) -> list[Any]:
        entry = self.entries.pop(key)
        self.size -= entry[SIZE]
        if self.order.active:
            self.order.touch(key)
        return entry

    def use(self, keys: Iterable[bytes]) -> None:
        """Note that entries were looked at, in this order."""
        entries, tick = self.entries, self.tick
        for key in keys:
            entries[key][USED] = tick()

    def use_later(self, key: bytes, suffixes: list[bytes]) -> None:
        """Note that the entries of a record's key with these suffixes (all of one length, rising) were used now.

        The last one was used first. They get their stamp when an eviction needs it: a later note about the same entries
        makes up for this one, so that a search that looks at many entries costs no more than one that looks at few.
        """
        noted = self._noted
        before = noted.get(key)
        if before is not None and not (suffixes[0] <= before[1][0] and before[1][-1] <= suffixes[-1]):
            self._stamp(key)
        elif before is None and len(noted) >= _MAX_NOTED:
            self._stamp_all()
        self._suffix = len(suffixes[0])
        noted[key] = self.tick(), suffixes

    def _stamp(self, key: bytes) -> None:
        """Give the entries of a record's key the stamp that was noted for them, where they have no later one."""
        stamp, suffixes = self._noted.pop(key)
        for suffix in suffixes:
            entry = self.entries.get(key + suffix)
            if entry is not None and entry[USED] < stamp:
                entry[USED] = stamp

    def _stamp_all(self) -> None:
        for key in list(self._noted):
            self._stamp(key)

    def looked_at(self, rows: Iterable[Any]) -> Iterator[Any]:
        """Yield rows that begin with their key, each noted as used when its turn comes."""
        entries, tick = self.entries, self.tick
        for row in rows:
            entry = entries.get(row[0])
            if entry is not None:
                entry[USED] = tick()
            yield row

    def _evict(self) -> None:
        """Drop the least recently used entries of this cache until the thread's total fits or nothing is left."""
        budget = self.budget
        while budget.used > budget.max_bytes and self.entries:
            key = self._eldest_key()
            entry = self._take(key)
            if entry[PUT]:
                self.flush((key, entry))
            # As in Java the space is free only now: what the flush put into other caches found none.
            budget.used -= entry[SIZE]

    def _eldest_key(self) -> bytes:
        # A snapshot of stamps, eldest last: an entry used since then has a newer stamp and is passed over,
        # so that the first one unchanged is the eldest of all. Sorting is paid once for many evictions.
        entries = self.entries
        while True:
            while self._eldest:
                key, stamp = self._eldest.pop(), self._stamps.pop()
                entry = entries.get(key)
                if entry is not None and entry[USED] == stamp:
                    if self._noted and key[: -self._suffix] in self._noted:
                        self._stamp(key[: -self._suffix])
                    if entry[USED] == stamp:
                        return key
            self._stamp_all()
            # Entries with the same stamp are of one record's key, and were used in falling order.
            self._eldest = sorted(entries) if self._suffix else list(entries)
            self._eldest.sort(key=lambda key: entries[key][USED], reverse=True)
            self._stamps = array("q", [entries[key][USED] for key in self._eldest])

    def flush(self, first: tuple[bytes, list[Any]] | None = None) -> None:
        """Write all dirty entries through in the order of their last put, an evicted one before all others."""
        if not self.dirty:
            return
        entries = self.entries
        keys = self.dirty if first is None else [key for key in self.dirty if key != first[0]]
        found = [entries[key] for key in keys]
        if first is not None:
            keys.append(first[0])
            found.append(first[1])
            first[1][PUT] = 0
        work = [
            (entry[PUT], key, entry[VALUE], entry[TIME], entry[CONTEXT], entry[DATA], entry[TOPIC], entry)
            for key, entry in zip(keys, found, strict=True)
        ]
        work.sort()
        # Everything is clean before the first listener runs: it may come back with new puts.
        for entry in found:
            entry[PUT] = 0
        self.dirty.clear()
        apply, current = self._apply, self._topic
        topic_before, size_before = current.size, self.size
        for _, key, value, timestamp, context, data, topic, _ in work:
            # What an update does further down is done in the name of its record.
            current.size = topic
            apply(key, value, timestamp, context, data)
        current.size = topic_before
        self.budget.count_twice(self.size - size_before)
        for _, key, value, _, _, data, _, entry in work:
            if value is not None or data is not None:
                continue
            if entry[VALUE] is None and entry[DATA] is None and not entry[PUT] and entries.get(key) is entry:
                self.budget.used -= self._take(key)[SIZE]

    def clear(self) -> None:
        """Forget everything, dirty or not."""
        self.budget.used -= self.size
        self.size = 0
        self.entries.clear()
        self.dirty.clear()
        self.order.reset()
        self._eldest.clear()
        del self._stamps[:]
        self._noted.clear()
