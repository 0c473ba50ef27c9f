"""Key-value stores with timestamps, cached or not (TimestampedKeyValueStore, CachingKeyValueStore)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from streamkit.record import Headers, Key, RecordContext, Value
from streamkit.state.keys import pack_long, prefix_end, unpack_long
from streamkit.state.stores.cache import DATA, TIME, USED, VALUE, CachedRow
from streamkit.state.stores.changelogged import MAX_DECODED, CachedMapStore, timestamped_rows

Row = tuple[bytes, Value, int]


class KeyValueStore(CachedMapStore):
    """Values with the timestamp of their last update, by key bytes.

    In the map a value is timestamp8 + value; in the changelog it is plain and the timestamp is the record's.
    The plain store of custom processors is the same with the record's timestamp: its changelog has the same bytes.
    """

    def get(self, key: bytes) -> tuple[Value, int] | None:
        """Return (value, timestamp), or None."""
        cache = self.cache
        if cache is None:
            data = self._map.get(key)
            return None if data is None else (self._decode(data[8:]), unpack_long(data)[0])
        entry = cache.entries.get(key)
        if entry is None:
            return self.load(key)
        entry[USED] = cache.tick()
        value = entry[VALUE]
        if value is None:
            data = entry[DATA]
            if data is None:
                return None
            value = self._decode(data)
            if self.holds_decoded:
                entry[VALUE] = value
        return value, entry[TIME]

    def peek(self, key: bytes) -> tuple[Value, int] | None:
        """Return (value, timestamp) as `get` does, but leave the cache as it is: queries from outside evict nothing."""
        entry = self.entries.get(key)
        if entry is not None:
            value = self._entry_value(entry)
            return None if value is None else (value, entry[TIME])
        data = self._map.get(key)
        return None if data is None else (self._decode(data[8:]), unpack_long(data)[0])

    def load(self, key: bytes) -> tuple[Value, int] | None:
        """Return (value, timestamp) of a key that is not in the cache, and keep it there."""
        data = self._map.get(key)
        if data is None:
            return None
        timestamp = unpack_long(data)[0]
        data = data[8:]
        value = self._decode(data)
        if self.cache is not None:
            self.cache.load(key, value if self.holds_decoded and len(data) <= MAX_DECODED else None, timestamp, data)
        return value, timestamp

    def replace(self, key: bytes, value: Value, timestamp: int, context: RecordContext = None) -> None:
        """Set a value as a table does that reads the previous value first (KTableSource). Raises SerdeError.

        The read adds an entry to the cache, and may evict others. Where half of the cache and 1 MiB are free it can evict
        nothing, and is left out.
        """
        cache = self.cache
        if cache is not None and cache.budget.used > cache.budget.roomy_bytes and key not in cache.entries:
            self.load(key)
        self.put(key, value, timestamp, context)

    def replace_bytes(self, key: bytes, data: bytes | None, timestamp: int, context: RecordContext = None) -> None:
        """Set a value by its bytes, as `replace` does, in a store with a cache; the caller knows that they can be decoded."""
        cache = self.cache
        assert cache is not None
        budget = cache.budget
        if budget.used > budget.roomy_bytes and key not in cache.entries:
            self.load(key)
        cache.put(key, None, timestamp, context, data)

    def put(self, key: bytes, value: Value, timestamp: int, context: RecordContext = None) -> None:
        """Set a value, or delete with None; a cache passes `context` to the listener. Raises SerdeError."""
        if self.cache is not None:
            self._cache_put(key, value, timestamp, context)
        elif value is None:
            self._map.put(key, None)
            self._log(key, None, timestamp, None)
        else:
            data = self._encode(value)
            self._map.put(key, pack_long(timestamp) + data)
            self._log(key, data, timestamp, None)

    def put_if_absent(
        self, key: bytes, value: Value, timestamp: int, context: RecordContext = None
    ) -> tuple[Value, int] | None:
        """Set a value unless there is one; return the previous value and timestamp."""
        previous = self.get(key)
        if previous is None:
            self.put(key, value, timestamp, context)
        return previous

    def delete(self, key: bytes, timestamp: int, context: RecordContext = None) -> tuple[Value, int] | None:
        """Delete a key; return the previous value and timestamp."""
        previous = self.get(key)
        self.put(key, None, timestamp, context)
        return previous

    def range(
        self,
        low: bytes | None,
        high: bytes | None,
        reverse: bool = False,
        include_high: bool = True,
        limit: int | None = None,
        use: bool = False,
    ) -> Iterator[Row]:
        """Yield (key, value, timestamp) from low to high, both included, in byte order; through the cache.

        `limit`: how many the caller will take; more may come. `use`: the task itself reads, so that cached entries count as used.
        """
        if low is not None and high is not None and low > high:
            return
        decode = self._decode
        cache = self.cache
        if cache is None or not cache.entries:
            stored = self._map.range(low, high, reverse, include_high, limit)
            for key, data in stored:
                yield key, decode(data[8:]), unpack_long(data)[0]
            return
        cached = [
            (key, cache.entries[key][TIME], self._entry_value(cache.entries[key]))
            for key in cache.order.keys(low, high, reverse, include_high)
        ]
        # Each cached entry may hide a stored one.
        stored = self._map.range(low, high, reverse, include_high, None if limit is None else limit + len(cached))
        used = cache.marking_used(cached) if use else iter(cached)
        for key, timestamp, value in _merged(used, stored, reverse, decode):
            if value is not None:
                yield key, value, timestamp

    def prefix(self, prefix: bytes, reverse: bool = False) -> Iterator[Row]:
        """Yield entries whose key begins with `prefix`."""
        return self.range(prefix, prefix_end(prefix), reverse, include_high=False)

    def all(self, reverse: bool = False) -> Iterator[Row]:
        """Yield all entries in byte order of their keys."""
        return self.range(None, None, reverse)

    def count(self) -> int:
        """Return how many keys there are, the cache included."""
        return sum(1 for _ in self.all())

    def rows(self) -> Iterator[tuple[Key, Value]]:
        """Yield (key, value), decoded, in byte order of keys, cache included."""
        decode = self.key_serde.decode
        return ((decode(key), value) for key, value, _ in self.all())

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers | None) -> None:
        """Apply one changelog record."""
        self._map.put(key, None if value is None else pack_long(timestamp) + value)

    def restore_batch(
        self, keys: list[bytes], values: list[bytes | None], timestamps: list[int], headers: list[Headers | None]
    ) -> None:
        """Apply consecutive changelog records, given as columns; a source topic may have records without a key."""
        self._map.put_many(timestamped_rows(keys, values, timestamps))

    def _apply(self, key: bytes, value: Value, timestamp: int, context: RecordContext, data: bytes | None) -> None:
        if value is not None and data is None:
            data = self._encode(value)  # generated code changed the entry in place
        old = self._map.get(key) if self._send_old or data is None else None
        if self._forwards and data is None and old is None:
            return  # put and deleted within the cache
        self._map.put(key, None if data is None else pack_long(timestamp) + data)
        self._log(key, data, timestamp, None)
        listener = self._listener
        if listener is not None:
            if value is None and data is not None:
                value = self._decode(data)
            before = self._decode(old[8:]) if old is not None and self._send_old else None
            listener(key, value, before, timestamp, context)


def _merged(
    entries: Iterator[CachedRow], stored: Iterator[tuple[bytes, bytes]], reverse: bool, decode: Callable[[bytes], Value]
) -> Iterator[CachedRow]:
    """Merge cached entries with stored rows by key. A cached entry hides a stored row; a deletion has the value None."""
    cached = next(entries, None)
    for key, data in stored:
        while cached is not None and (cached[0] > key if reverse else cached[0] < key):
            yield cached
            cached = next(entries, None)
        if cached is not None and cached[0] == key:
            yield cached
            cached = next(entries, None)
        else:
            yield key, unpack_long(data)[0], decode(data[8:])
    while cached is not None:
        yield cached
        cached = next(entries, None)
