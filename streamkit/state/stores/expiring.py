"""Key-value stores with a time to live: a row is deleted, by stream time, so long after its last write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from streamkit.record import RecordContext, Value
from streamkit.state.definitions import StoreContext, StoreDef
from streamkit.state.engines.ages import AgedMap, unfinished
from streamkit.state.keys import unpack_long
from streamkit.state.stores.cache import DATA, PUT, TIME, VALUE, CacheBudget
from streamkit.state.stores.key_value import KeyValueStore

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from streamkit.state.files.store_offsets import Owner

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
                found = rows.get(key)
                if found is None:
                    continue
                data = found
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
        found = [(time, key) for time in times for key in self._waiting.pop(time)]
        heapify(found)
        return found

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
        """Empty the cache into the store and the changelog, forwarding each last update to the listener."""
        super().flush()
        if self.cache is not None and not self.cache.dirty:
            self._waiting.clear()

    def forget(self) -> None:
        """Drop all cached entries, which must be flushed."""
        super().forget()
        self._waiting.clear()

    def begin_load(self, executor: Executor) -> None:
        """Prepare for many records of the changelog (see Store.begin_load)."""
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
