"""The write-back cache of a store, and the byte budget that the caches of a thread share.

Entries are lists, so that generated code can change them in place:

    entry = entries.get(key)                  # a hit: entry[VALUE] is the value, None a deletion
    entry[VALUE] = new; entry[TIME] = t; entry[DATA] = None
    if entry[PUT] and context is entry[CONTEXT]:   # and the topic's name is as long as before
        entry[PUT] = entry[USED] = tick()
    else:
        renew(key, entry, context)            # renew is cache.renew: the size of the entry changes

Ordering costs one number a write: flushes sort dirty entries by PUT, eviction finds the eldest by USED.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any, TypeAlias

from streamkit.record import Headers, RecordContext, Value
from streamkit.state.definitions import CurrentTopic
from streamkit.state.engines.memory import KeyOrder

VALUE, TIME, CONTEXT, PUT, USED, DATA, SIZE, TOPIC = range(8)

ENTRY_BYTES = 45
"""Bytes of an entry beside key, value, topic and headers: node 24, dirty flag 1, record context 20 (NamedCache, LRUCacheEntry)."""

_LARGE = 1 << 20
"""Bytes that few records have: brokers reject larger ones by default."""

_MAX_SEARCHES = 100_000
"""The highest number of searches in `_searches`."""

_INDEX = b"\xff"
"""The first byte of the keys of index entries: the keys beside them begin with a time, whose first byte is lower."""

CacheEntry: TypeAlias = list[Any]
"""An entry, by VALUE, TIME, …: a list of fixed places, which lists have no type for, that generated code changes in place."""

CachedRow = tuple[bytes, int, Value]
"""(key, timestamp, value) of an entry; the value of a deletion is None."""

_Update = tuple[int, bytes, Value, int, RecordContext, "bytes | None", int, CacheEntry]
"""A dirty entry in a flush: PUT, its key, VALUE, TIME, CONTEXT, DATA, TOPIC and the entry."""

Apply = Callable[[bytes, Value, int, RecordContext, "bytes | None"], None]
"""(key, value, timestamp, context, encoded value): write one dirty entry through and forward it."""


def headers_of(context: RecordContext) -> Headers | None:
    """Return the current record's headers."""
    return context[0] if isinstance(context, tuple) else context


def headers_size(context: RecordContext) -> int:
    """Return the size of the current record's headers in bytes (ProcessorRecordContext.residentMemorySizeEstimate)."""
    headers = headers_of(context)
    if not headers:
        return 0
    return sum(_characters(name) + len(value or b"") for name, value in headers)


def _characters(text: str) -> int:
    """Return how many UTF-16 units a text has."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


class CacheBudget:
    """The bytes that all caches of one thread share (ThreadCache)."""

    __slots__ = ("max_bytes", "miscounted", "roomy_bytes", "tick", "ticks", "used")

    def __init__(self, max_bytes: int):
        self.resize(max_bytes)
        self.used = 0
        """The total that Java counts; the real size of all entries is this minus `miscounted`."""
        self.miscounted = 0
        self.ticks = count(1)
        """The stamps: generated code calls `next`, which costs half of a call of `tick`."""
        self.tick = self.ticks.__next__

    def resize(self, max_bytes: int) -> None:
        """Set how many bytes the caches may use; the next put evicts the excess."""
        self.max_bytes = max_bytes
        self.roomy_bytes = max_bytes - max(max_bytes // 2, _LARGE)
        """While no more than this is used, one more entry of any size fits."""

    def count_twice(self, more: int) -> None:
        """Add the bytes by which a cache grew during a flush a second time (ThreadCache.flush and maybeEvict).

        Java compares a cache's size before and after, although it has added each change in between already: an update that
        a flush forwards may read or write the same store. The total stays wrong, too small or too large. It is corrected
        here once memory would no longer be bounded.
        """
        self.used += more
        self.miscounted += more
        if abs(self.miscounted) > max(self.max_bytes, _LARGE):
            self.used -= self.miscounted
            self.miscounted = 0


class _Searches:
    """The searches of one record's key, up to one suffix, of which a later one did not search the same entries and more."""

    __slots__ = ("_firsts", "_last", "_stamps")

    def __init__(self, first: bytes, last: bytes, stamp: int) -> None:
        # Both ascend: a search replaces the earlier ones that began at its first suffix or after it.
        self._firsts = [first]
        self._stamps = array("q", [stamp])
        self._last = last

    def add(self, first: bytes, last: bytes, stamp: int) -> bool:
        """Add a later search of suffixes from first to last; False if it is neither up to the same suffix nor of all entries before."""
        if last != self._last and (first > self._firsts[0] or last < self._last):
            return False
        self._last = last
        while self._firsts and self._firsts[-1] >= first:
            self._firsts.pop()
            self._stamps.pop()
        self._firsts.append(first)
        self._stamps.append(stamp)
        return True

    def stamp_of(self, suffix: bytes) -> int:
        """Return the stamp of the last search that an entry with this suffix was in; 0 if it was in none."""
        place = bisect_right(self._firsts, suffix)
        return self._stamps[place - 1] if place and suffix <= self._last else 0


class Cache:
    """Entries of one store by key.

    VALUE, TIME, CONTEXT, PUT (stamp, 0 if clean), USED (stamp), DATA (bytes), SIZE (bytes), TOPIC (the part of SIZE that
    is the topic's name). `key_overhead`, `value_overhead`: the bytes that keys and values have in Java's cache beside
    those here; a deletion has no value.
    """

    def __init__(
        self, budget: CacheBudget, apply: Apply, topic: CurrentTopic, key_overhead: int = 0, value_overhead: int = 0
    ):
        self.budget = budget
        self.tick, self.ticks = budget.tick, budget.ticks
        self.entries: dict[bytes, CacheEntry] = {}
        self.size = 0
        """Bytes of all entries."""
        self.dirty: list[bytes] = []
        self.order = KeyOrder(self.entries)
        self._apply = apply
        self._topic = topic
        self._base = ENTRY_BYTES + key_overhead
        self._value_overhead = value_overhead
        # Keys by stamp, and the stamps in an array: a list of tuples would take a tenth of the cache's memory.
        self._eldest: list[bytes] = []
        self._stamps = array("q")
        self._searches: dict[bytes, _Searches] = {}
        self._searched = 0
        self.rows_of: Callable[[bytes], Iterable[bytes]] = lambda key: ()
        """Return the keys of a record's key's entries; a store that calls `use_range` sets it."""
        self.on_leave: Callable[[bytes], None] | None = None
        """Called with the key of each entry that leaves the cache, except by `clear`."""
        self._suffix, self._falling = 0, False
        self.indexed = False
        """Whether `put_index` was called."""

    def put(self, key: bytes, value: Value, timestamp: int, context: RecordContext, data: bytes | None) -> None:
        """Set a dirty entry; `data` is the encoded value, or None if value is None. May evict entries, which flushes the cache."""
        budget = self.budget
        topic = self._topic.size
        size = self._base + len(key) + topic
        if data is not None:
            size += self._value_overhead + len(data)
        # Most records have no headers: `headers_size`, without its call.
        if context[0] if context.__class__ is tuple else context:
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

    def renew(self, key: bytes, entry: CacheEntry, context: RecordContext) -> None:
        """Update stamps and size after a change in place: the value has the same size, the record's context may not."""
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

    def put_index(self, key: bytes) -> None:
        """Set the dirty entry of Java's index by key for an entry, without value, topic and headers; may evict entries.

        (TimeOrderedCachingWindowStore.put)
        """
        self.indexed = True
        row, stamp = _INDEX + key, self.tick()
        entry = self.entries.get(row)
        if entry is None:
            self._insert(row, [None, 0, None, stamp, stamp, b"", self._base + len(key), 0])
            self.dirty.append(row)
        else:
            if not entry[PUT]:
                self.dirty.append(row)
            entry[PUT] = entry[USED] = stamp
        if self.budget.used > self.budget.max_bytes:
            self._evict()

    def load(self, key: bytes, value: Value, timestamp: int, data: bytes, more: int = 0) -> None:
        """Add a clean entry that was read from the store's map; Java's value has so many bytes `more`, of headers."""
        size = self._base + len(key) + self._value_overhead + len(data) + more
        self._insert(key, [value, timestamp, None, 0, self.tick(), data, size, 0])
        if self.budget.used > self.budget.max_bytes:
            self._evict()

    def _insert(self, key: bytes, entry: CacheEntry) -> None:
        self.entries[key] = entry
        self.size += entry[SIZE]
        self.budget.used += entry[SIZE]
        if self.order.active:
            self.order.touch(key)

    def _take(self, key: bytes) -> CacheEntry:
        entry = self.entries.pop(key)
        self.size -= entry[SIZE]
        if self.order.active:
            self.order.touch(key)
        if self.on_leave is not None:
            self.on_leave(key)
        return entry

    def use(self, keys: Iterable[bytes]) -> None:
        """Mark entries as used, in this order."""
        entries, tick = self.entries, self.tick
        for key in keys:
            entries[key][USED] = tick()

    def use_range(self, key: bytes, first: bytes, last: bytes, falling: bool = False) -> None:
        """Mark the entries of a record's key with suffixes (of one length) from first to last as used now, in this order.

        `falling`: the last one was used first, as in all searches of the cache. The entries get their stamps only when an
        eviction needs them, so that a search takes the same time however many there are.
        """
        self._suffix, self._falling = len(first), falling
        if self._searched >= _MAX_SEARCHES:
            self._stamp_all()
        self._searched += 1
        stamp, searches = self.tick(), self._searches.get(key)
        if searches is None or not searches.add(first, last, stamp):
            if searches is not None:
                self._stamp(key)
            self._searches[key] = _Searches(first, last, stamp)

    def _stamp(self, key: bytes) -> None:
        """Give the entries of a record's key the stamps of searches for them, if they have no later ones."""
        searches = self._searches.pop(key)
        for row in self.rows_of(key):
            entry, stamp = self.entries[row], searches.stamp_of(row[-self._suffix :])
            if entry[USED] < stamp:
                entry[USED] = stamp

    def _stamp_all(self) -> None:
        for key in list(self._searches):
            self._stamp(key)
        self._searched = 0

    def marking_used(self, rows: Iterable[CachedRow]) -> Iterator[CachedRow]:
        """Yield rows, and mark the entry of each as used when its turn comes."""
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
            # As in Java the space is free only now: entries that the flush put into other caches could not use it.
            budget.used -= entry[SIZE]

    def _eldest_key(self) -> bytes:
        # A snapshot of stamps, eldest last: an entry used since then has a newer stamp and is skipped,
        # so that the first unchanged one is the eldest of all. One sort serves many evictions.
        entries = self.entries
        while True:
            while self._eldest:
                key, stamp = self._eldest.pop(), self._stamps.pop()
                entry = entries.get(key)
                if entry is not None and entry[USED] == stamp:
                    if self._searches and key[: -self._suffix] in self._searches:
                        self._stamp(key[: -self._suffix])
                    if entry[USED] == stamp:
                        return key
            self._stamp_all()
            # Entries with the same stamp belong to one record's key, and were used in the order of `use_range`.
            self._eldest = sorted(entries, reverse=not self._falling) if self._suffix else list(entries)
            self._eldest.sort(key=lambda key: entries[key][USED], reverse=True)
            self._stamps = array("q", [entries[key][USED] for key in self._eldest])

    def flush(self, first: tuple[bytes, CacheEntry] | None = None) -> None:
        """Write all dirty entries through in the order of their last put; `first` is an entry that was evicted."""
        if not self.dirty:
            return
        entries = self.entries
        keys = self.dirty if first is None else [key for key in self.dirty if key != first[0]]
        flushed = [entries[key] for key in keys]
        if first is not None:
            keys.append(first[0])
            flushed.append(first[1])
            first[1][PUT] = 0
        work = [
            (entry[PUT], key, entry[VALUE], entry[TIME], entry[CONTEXT], entry[DATA], entry[TOPIC], entry)
            for key, entry in zip(keys, flushed, strict=True)
        ]
        work.sort()
        # All entries are clean before the first listener runs: it may put entries again.
        for entry in flushed:
            entry[PUT] = 0
        self.dirty.clear()
        apply, current = self._apply, self._topic
        topic_before, size_before = current.size, self.size
        for _, key, value, timestamp, context, data, topic, _ in self._by_index(work) if self.indexed else work:
            # Stores below count the sizes of their entries with the topic of the update's record.
            current.size = topic
            apply(key, value, timestamp, context, data)
        current.size = topic_before
        self.budget.count_twice(self.size - size_before)
        for _, key, value, _, _, data, _, entry in work:
            if value is not None or data is not None:
                continue
            if entry[VALUE] is None and entry[DATA] is None and not entry[PUT] and entries.get(key) is entry:
                self.budget.used -= self._take(key)[SIZE]

    def _by_index(self, work: list[_Update]) -> Iterator[_Update]:
        """Yield each update once: at its own turn, or at that of its index entry, if that comes first.

        An index entry writes the entry beside it again, even if that is clean, and uses it, unless it has left the cache
        (TimeOrderedCachingWindowStore.putAndMaybeForward).
        """
        done: set[bytes] = set()
        for update in work:
            key = update[1]
            if key[:1] == _INDEX:
                key = key[1:]
                entry = None if key in done else self.entries.get(key)
                if entry is None:
                    continue
                entry[USED] = self.tick()
                update = (0, key, entry[VALUE], entry[TIME], entry[CONTEXT], entry[DATA], entry[TOPIC], entry)
            elif key in done:
                continue
            done.add(key)
            yield update

    def clear(self) -> None:
        """Drop all entries, dirty or not."""
        self.budget.used -= self.size
        self.size = 0
        self.entries.clear()
        self.dirty.clear()
        self.order.reset()
        self._eldest.clear()
        del self._stamps[:]
        self._searches.clear()
        self._searched = 0
