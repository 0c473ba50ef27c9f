"""Key-value stores whose rows have a time to live: what nothing writes to for so long is deleted, by stream time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from streamkit.state.ages import AgedMap, unfinished
from streamkit.state.base import StoreContext
from streamkit.state.cache import DATA, PUT, TIME, VALUE, CacheBudget
from streamkit.state.definitions import StoreDef
from streamkit.state.key_value import KeyValueStore
from streamkit.state.keys import unpack_long

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from streamkit.state.offsets import Owner

Expire = Callable[[bytes, Any, int], None]
"""(key bytes, old value or None, time in ms): delete a row that is due, and forward its deletion."""


class ExpiringStore(KeyValueStore):
    """A key-value store that deletes rows when they are due.

    The row counts as readers see it: the cache's where there is one. A deletion is what a table does with a record without a
    value: it goes through the cache to the changelog and to the listener.
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
        """Keys whose rows wait in the cache, by a time at which they are due, or before it. The map has the others."""
        self._whole: Owner | None = None
        """Whose the store is once its index is made, while it is loaded without one."""

    def on_expiry(self, expire: Expire, wants_old: bool) -> None:
        """Have rows deleted by `expire`, which is given the old value where it wants it."""
        self._expire, self._wants_old = expire, wants_old

    def expire(self, until: int) -> Iterator[None]:
        """Delete the rows that are due until a tick (ms), by time and key; yields after each.

        No other row may be written in between; commits and readers may come.
        """
        entries, due_at = self.entries, self._map.due_at
        waiting, stored = self._due_in_cache(until), self._map.due(until)
        ahead = next(stored, None)
        while waiting or ahead is not None:
            if ahead is None or (waiting and waiting[0] <= ahead):
                time, key = heappop(waiting)
            else:
                time, key = ahead
                ahead = next(stored, None)
            entry = entries.get(key)
            if entry is None or not entry[PUT]:
                data = self._map.get(key)
                if data is None:
                    continue
                due = due_at(unpack_long(data)[0])
                if due != time:
                    # A commit in between has written a row that had changed in place.
                    if time < due <= until:
                        heappush(waiting, (due, key))
                    continue
                old = self._decode(data[8:]) if self._wants_old else None
            else:
                if entry[VALUE] is None and entry[DATA] is None:
                    continue
                due = due_at(entry[TIME])
                if due != time:
                    # Changed in place since: what is noted of an entry is never later than it is due.
                    if time < due <= until:
                        heappush(waiting, (due, key))
                    elif time < due:
                        self._note(key, due)
                    continue
                old = self._entry_value(entry) if self._wants_old else None
            self._expire(key, old, time)
            yield
        self._map.passed()

    def _due_in_cache(self, until: int) -> list[tuple[int, bytes]]:
        """Take (time, key) of what waits in the cache and is noted as due, as a heap."""
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

    def _cache_put(self, key: bytes, value: Any, timestamp: int, context: Any) -> None:
        if value is not None:
            self._note(key, self._map.due_at(timestamp))
        super()._cache_put(key, value, timestamp, context)

    def replace_bytes(self, key: bytes, data: bytes | None, timestamp: int, context: Any = None) -> None:
        """Set a row of a table by its bytes (see KeyValueStore.replace_bytes)."""
        if data is not None:
            self._note(key, self._map.due_at(timestamp))
        super().replace_bytes(key, data, timestamp, context)

    def flush(self) -> None:
        """Empty the cache into the store and the changelog, forwarding each last update to the listener."""
        super().flush()
        if self.cache is not None and not self.cache.dirty:
            self._waiting.clear()

    def forget(self) -> None:
        """Drop cached entries that are written through."""
        super().forget()
        self._waiting.clear()

    def begin_load(self, beside: Executor) -> None:
        """Expect many records of the changelog (see Store.begin_load)."""
        super().begin_load(beside)
        offsets = self._offsets
        if self._map.defers and self._whole is None and offsets is not None:
            # Each commit of the load says that the index is missing: a process that ends in between leaves it so.
            self._whole = offsets.owner
            self._offsets = offsets.owned_by(replace(offsets.owner, layout=unfinished(offsets.owner.layout)))

    def end_load(self) -> None:
        """Be as before `begin_load`; a commit is due, which says that the index is there."""
        super().end_load()
        if self._whole is not None and self._offsets is not None:
            self._offsets = self._offsets.owned_by(self._whole)
            self._whole = None

    def _delete(self, key: bytes, old: Any, time: int) -> None:
        self.put(key, None, time)
