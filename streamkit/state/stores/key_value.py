"""Key-value stores with timestamps, cached or not (TimestampedKeyValueStore), also with a time to live."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import ClassVar

from streamkit.record import Headers, Key, RecordContext, Value
from streamkit.serdes.plain import plain
from streamkit.serdes.sides import RAW, Side, guarded
from streamkit.state.definitions import (
    BytesMap,
    Owner,
    Query,
    RowWriter,
    StoreContext,
    StoreDef,
    StoredRow,
    require_headers,
    require_kind,
)
from streamkit.state.engines.ages import AgedMap, unfinished
from streamkit.state.engines.headed import HeadedMap, headed_row
from streamkit.state.layouts import (
    combined_key,
    decode_headers,
    headers_bytes,
    pack_int,
    pack_long,
    prefix_end,
    split_combined_key,
    unpack_long,
)
from streamkit.state.stores.cache import DATA, PUT, TIME, USED, VALUE, CacheBudget, CachedRow, headers_of
from streamkit.state.stores.changelogged import MAX_DECODED, NO_HEADERS, CachedMapStore, MapStore, timestamped_rows

Row = tuple[bytes, Value, int]


class KeyValueStore(CachedMapStore):
    """Values with the timestamp of their last update, by key bytes.

    In the map a value is timestamp8 + value; in the changelog it is plain and the timestamp is the record's.
    The plain store of custom processors is the same with the record's timestamp: its changelog has the same bytes.
    With `headers`, tombstones in the changelog have the headers of the record; steps write rows without headers
    (ChangeLoggingTimestampedKeyValueBytesStoreWithHeaders).
    """

    converts: ClassVar[bool] = True

    def __init__(
        self, definition: StoreDef, entries: BytesMap, context: StoreContext, budget: CacheBudget | None = None
    ):
        super().__init__(definition, entries, context, budget)
        self._headed = entries if isinstance(entries, HeadedMap) else None

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
        """Return (value, timestamp) like `get`, but do not change the cache: queries from outside evict nothing."""
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
            decoded = value if self.holds_decoded and len(data) <= MAX_DECODED else None
            more = 0 if self._headed is None else headers_bytes(self._headed.headers(key)) - NO_HEADERS
            self.cache.load(key, decoded, timestamp, data, more)
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
            self._log(key, None, timestamp, headers_of(context) if self.keeps_headers else None)
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

    def restore_batch(
        self, keys: list[bytes], values: list[bytes | None], timestamps: list[int], headers: list[Headers | None]
    ) -> None:
        """Apply consecutive changelog records, given as columns; a source topic may have records without a key."""
        if self._headed is None:
            self._map.put_many(timestamped_rows(keys, values, timestamps))
            return
        columns = zip(keys, values, timestamps, headers, strict=True)
        self._headed.put_many(
            [
                (key, None if value is None else headed_row(time, value, header))
                for key, value, time, header in columns
                if key is not None
            ]
        )

    def row_headers(self, key: bytes) -> Headers | None:
        """Return the headers of a row; None if it has none, as every row that a step wrote."""
        entry = self.entries.get(key)
        if self._headed is None or (entry is not None and entry[PUT]):
            return None
        return decode_headers(self._headed.headers(key)) or None

    def page(self, query: Query, partition: int) -> list[StoredRow]:
        require_kind(self.definition, query.kind)
        if query.headers:
            require_headers(self.definition)
        rows = self._page(query, partition)
        return [row._replace(headers=self.row_headers(row.place)) for row in rows] if query.headers else rows

    def _page(self, query: Query, partition: int) -> list[StoredRow]:
        decode = self.key_serde.decode
        if query.kind == "get":
            row = self.peek(query.key or b"")
            return [] if row is None else [StoredRow(query.key or b"", decode(query.key or b""), *row)]
        low, high, include_high = query.low, query.high, True
        if query.kind == "prefix":
            low, high, include_high = query.key, prefix_end(query.key or b""), False
        if query.after is not None:
            place, last_partition = query.after
            # Several partitions may have an equal key; the page ended with the row of `last_partition`.
            if query.reverse:
                high, include_high = place, partition < last_partition
            else:
                low = place if partition > last_partition else place + b"\0"
        rows = self.range(low, high, query.reverse, include_high, query.limit)
        return [StoredRow(key, decode(key), value, time) for key, value, time in islice(rows, query.limit)]

    def _apply(self, key: bytes, value: Value, timestamp: int, context: RecordContext, data: bytes | None) -> None:
        if value is not None and data is None:
            data = self._encode(value)  # generated code changed the entry in place
        old = self._map.get(key) if self._send_old or data is None else None
        if self._forwards and data is None and old is None:
            return  # put and deleted within the cache
        self._map.put(key, None if data is None else pack_long(timestamp) + data)
        self._log(key, data, timestamp, headers_of(context) if data is None and self.keeps_headers else None)
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


# Key-value stores with a time to live: a row is deleted, by stream time, so long after its last write.

Expire = Callable[[bytes, Value, int], None]
"""(key bytes, old value or None, time in ms): deletes a row that is due, and forwards the deletion."""


class ExpiringStore(KeyValueStore):
    """A key-value store that deletes rows when they are due.

    A cached row hides the row of the map, as in reads. A deletion is handled like a tombstone of a table: it goes through
    the cache to the changelog and to the listener.
    """

    _map: AgedMap

    def __init__(
        self, definition: StoreDef, entries: AgedMap, context: StoreContext, budget: CacheBudget | None = None
    ):
        super().__init__(definition, entries, context, budget)
        self.tick = entries.tick
        self._expire: Expire = self._delete
        self._wants_old = False
        self._waiting: dict[int, set[bytes]] = {}
        """Keys of cached rows, by a time at which or after which they are due. The index of the map has the other keys."""
        self._final_owner: Owner | None = None
        """The owner with the final layout, while the store is loaded without an index; else None."""

    def on_expiry(self, expire: Expire, wants_old: bool) -> None:
        """Set the function that deletes rows; it gets the old value if `wants_old`, else None."""
        self._expire, self._wants_old = expire, wants_old

    def expire(self, until: int) -> Iterator[None]:
        """Delete the rows that are due until a tick (ms), by time and key; yields after each.

        No other row may be written in between; commits and reads are allowed.
        """
        entries, rows, due_at = self.entries, self._map, self._map.due_at
        waiting, stored = self._due_in_cache(until), rows.due(until)
        ahead = next(stored, None)
        while waiting or ahead is not None:
            taken = ahead is not None and not (waiting and waiting[0] <= ahead)
            if ahead is None or not taken:
                time, key = heappop(waiting)
            else:
                time, key = ahead
                ahead = next(stored, None)
                rows.take(time, key)
            entry, data = entries.get(key), b""
            if entry is None:
                row = rows.get(key)
                if row is None:
                    continue
                data = row
                due = due_at(unpack_long(data)[0])
            elif entry[VALUE] is None and entry[DATA] is None:
                continue
            else:
                due = due_at(entry[TIME])
            if due == time:
                old = None
                if self._wants_old:
                    old = self._decode(data[8:]) if entry is None else self._entry_value(entry)
                self._expire(key, old, time)
                yield
            elif time < due:
                # The row was written after its entry, or changed in place.
                dirty = entry is not None and entry[PUT]
                if taken and not dirty:
                    rows.note(key, due)
                if due <= until:
                    heappush(waiting, (due, key))
                elif dirty:
                    self._note(key, due)
        rows.passed()

    def _due_in_cache(self, until: int) -> list[tuple[int, bytes]]:
        """Remove the keys of cached rows that may be due from `_waiting`, and return (time, key) as a heap."""
        times = [time for time in self._waiting if time <= until]
        due = [(time, key) for time in times for key in self._waiting.pop(time)]
        heapify(due)
        return due

    def _note(self, key: bytes, due: int) -> None:
        keys = self._waiting.get(due)
        if keys is None:
            self._waiting[due] = {key}
        else:
            keys.add(key)

    def _cache_put(self, key: bytes, value: Value, timestamp: int, context: RecordContext) -> None:
        if value is not None and not self._map.finds(key, timestamp):
            self._note(key, self._map.due_at(timestamp))
        super()._cache_put(key, value, timestamp, context)

    def replace_bytes(self, key: bytes, data: bytes | None, timestamp: int, context: RecordContext = None) -> None:
        """Set a row of a table by its bytes (see KeyValueStore.replace_bytes)."""
        if data is not None and not self._map.finds(key, timestamp):
            self._note(key, self._map.due_at(timestamp))
        super().replace_bytes(key, data, timestamp, context)

    def flush(self) -> None:
        super().flush()
        if self.cache is not None and not self.cache.dirty:
            self._waiting.clear()

    def forget(self) -> None:
        super().forget()
        self._waiting.clear()

    def begin_load(self, executor: Executor) -> None:
        super().begin_load(executor)
        offsets = self._offsets
        if self._map.defers and self._final_owner is None and offsets is not None:
            # Each commit of the load writes that the index is missing, for a process that ends before the load does.
            self._final_owner = offsets.owner
            self._offsets = offsets.owned_by(replace(offsets.owner, layout=unfinished(offsets.owner.layout)))

    def end_load(self) -> None:
        """End the load; the caller commits next, which writes that the index exists."""
        super().end_load()
        if self._final_owner is not None and self._offsets is not None:
            self._offsets = self._offsets.owned_by(self._final_owner)
            self._final_owner = None

    def _delete(self, key: bytes, old: Value, time: int) -> None:
        self.put(key, None, time)


# The store of a foreign-key join on the right table's side: subscriptions by foreign key (CombinedKeySchema).


class SubscriptionStore(MapStore):
    """Subscription bytes (SubscriptionWrapper) with a timestamp, by foreign key and primary key; never cached.

    Keys are length4 of the foreign key + foreign key + primary key. In the map a value is timestamp8 + subscription,
    in the changelog it is plain, and timestamp and headers are the record's
    (ChangeLoggingTimestampedKeyValueBytesStoreWithHeaders).
    """

    around: ClassVar[None] = None

    @classmethod
    def row_writer(cls, definition: StoreDef) -> RowWriter:
        # They have the layout of foreign-key joins, not that of a serde of the file.
        return lambda key, value: (plain(key), plain(value))

    @classmethod
    def changelog_sides(cls, definition: StoreDef) -> tuple[Side, Side]:
        parts = guarded(lambda data: dict(zip(("foreign", "primary"), split_combined_key(data), strict=True)))
        return Side(parts, plain), RAW

    def get(self, foreign: bytes, primary: bytes) -> tuple[bytes, int] | None:
        """Return (subscription, timestamp), or None."""
        data = self._map.get(combined_key(foreign, primary))
        return None if data is None else (data[8:], unpack_long(data)[0])

    def put(
        self,
        foreign: bytes,
        primary: bytes,
        subscription: bytes | None,
        timestamp: int,
        headers: Headers | None = None,
    ) -> None:
        """Set a subscription, or delete it with None."""
        key = combined_key(foreign, primary)
        self._map.put(key, None if subscription is None else pack_long(timestamp) + subscription)
        self._log(key, subscription, timestamp, headers)

    def prefix(self, foreign: bytes) -> list[tuple[bytes, bytes, int]]:
        """Return (primary key, subscription, timestamp) of all subscriptions to a foreign key, by primary key bytes."""
        low = pack_int(len(foreign)) + foreign
        rows = self._map.range(low, prefix_end(low), include_high=False)
        return [(key[len(low) :], data[8:], unpack_long(data)[0]) for key, data in rows]

    def rows(self) -> Iterator[tuple[Key, Value]]:
        """Yield ({"foreign", "primary"} as bytes, subscription bytes) in byte order of keys."""
        for key, data in self._map.range(None, None):
            foreign, primary = split_combined_key(key)
            yield {"foreign": foreign, "primary": primary}, data[8:]

    def restore_batch(
        self, keys: list[bytes], values: list[bytes | None], timestamps: list[int], headers: list[Headers | None]
    ) -> None:
        self._map.put_many(timestamped_rows(keys, values, timestamps))
