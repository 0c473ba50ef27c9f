"""An ordered map in memory: a dict whose keys are sorted only when a range is read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from sortedcontainers import SortedList

from streamkit.state.base import BytesMap


class KeyOrder:
    """The keys of a dict in byte order, sorted on first use and kept up to date from the keys that changed.

    The owner of the dict calls `touch` for every key that appears or disappears; most stores are never
    ranged over, and for them `active` stays False and nothing is done.
    """

    __slots__ = ("_data", "_keys", "_touched", "active")

    def __init__(self, data: dict[bytes, Any]):
        self._data = data
        self._keys: SortedList = SortedList()
        self._touched: set[bytes] = set()
        self.active = False

    def touch(self, key: bytes) -> None:
        """Note that a key has appeared or disappeared, exactly once each time."""
        touched = self._touched
        if key in touched:
            touched.remove(key)  # it came and went, or the other way round
            return
        touched.add(key)
        if len(touched) > 1000 + len(self._data) // 2:
            # No range was read for a while: sorting all is cheaper than catching up.
            self.reset()

    def reset(self) -> None:
        """Forget the order."""
        self.active = False
        self._keys = SortedList()
        self._touched.clear()

    def keys(
        self, low: bytes | None, high: bytes | None, reverse: bool = False, include_high: bool = True
    ) -> Iterator[bytes]:
        """Return keys from low to high; the dict must not change meanwhile."""
        self._catch_up()
        return self._keys.irange(low, high, (True, include_high), reverse)

    def _catch_up(self) -> None:
        if not self.active:
            self._keys = SortedList(self._data)
            self.active = True
        elif self._touched:
            data, keys = self._data, self._keys
            for key in self._touched:
                if key in data:
                    keys.add(key)
                else:
                    keys.remove(key)
        else:
            return
        self._touched.clear()


class MemoryMap(BytesMap):
    """A map that lives as long as the process; commit has nothing to do."""

    def __init__(self) -> None:
        self._data: dict[bytes, bytes] = {}
        self._order = KeyOrder(self._data)
        self.get = self._data.get  # type: ignore[method-assign,assignment]  # as fast as the dict itself

    def get(self, key: bytes) -> bytes | None:
        """Return a value or None."""
        return self._data.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set a value; None deletes."""
        data = self._data
        if self._order.active and (key in data) is (value is None):
            self._order.touch(key)
        if value is None:
            data.pop(key, None)
        else:
            data[key] = value

    def put_many(self, items: list[tuple[bytes, bytes | None]]) -> None:
        """Apply many writes at once, the last one of a key winning."""
        self._order.reset()
        data = self._data
        data.update(items)  # type: ignore[arg-type]
        for key, value in items:
            if value is None and data.get(key) is None:
                data.pop(key, None)

    def range(
        self,
        low: bytes | None,
        high: bytes | None,
        reverse: bool = False,
        include_high: bool = True,
        limit: int | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return entries from low to high in byte order, at most `limit`, as they are now."""
        data = self._data
        return iter([(key, data[key]) for key in islice(self._order.keys(low, high, reverse, include_high), limit)])

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Return all entries, in no order; the map must not change meanwhile."""
        return iter(self._data.items())

    def __len__(self) -> int:
        return len(self._data)

    def rows_estimate(self) -> int | None:
        """Return how many entries there are."""
        return len(self._data)

    def commit(self) -> None:
        """Do nothing: memory is as durable as it gets."""

    def close(self) -> None:
        """Drop everything."""
        self._data.clear()
        self._order.reset()
