"""An ordered map in memory, a dict whose keys are sorted only when a range is read; and the view of what a map has committed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import NoReturn

from sortedcontainers import SortedList

from streamkit.state.definitions import BytesMap


def bytes_of(items: Iterable[tuple[bytes, bytes | None]]) -> int:
    """Return the bytes of writes as Java counts them (AbstractTransactionBuffer.stage): each write, again if its key was written before.

    >>> bytes_of([(b"key", b"value"), (b"key", None)])
    11
    """
    return sum(len(key) + len(value or b"") for key, value in items)


Scan = Callable[["bytes | None", "bytes | None", bool, bool, "int | None"], Iterator[tuple[bytes, bytes]]]
"""Returns entries as BytesMap.range does."""


class CommittedMap(BytesMap):
    """A map that is only read, by two functions of the map whose commits it shows."""

    def __init__(self, get: Callable[[bytes], bytes | None], scan: Scan):
        self._get = get
        self._scan = scan

    def get(self, key: bytes) -> bytes | None:
        """Return a committed value or None."""
        return self._get(key)

    def range(
        self,
        low: bytes | None,
        high: bytes | None,
        reverse: bool = False,
        include_high: bool = True,
        limit: int | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return committed entries from low to high in byte order."""
        return self._scan(low, high, reverse, include_high, limit)

    def put(self, key: bytes, value: bytes | None) -> NoReturn:
        """Raise AssertionError: queries write nothing."""
        raise AssertionError("a committed view is only read")

    def put_many(self, items: list[tuple[bytes, bytes | None]]) -> NoReturn:
        """Raise AssertionError: queries write nothing."""
        raise AssertionError("a committed view is only read")

    def commit(self) -> None:
        """Do nothing: there are no writes."""

    def close(self) -> None:
        """Do nothing: the map itself is closed by its store."""


class KeyOrder:
    """The keys of a dict in byte order, sorted on first use and updated from the keys that changed.

    The owner of the dict calls `touch` for every key that appears or disappears. Most stores never read a
    range; then `active` stays False, and `touch` need not be called.
    """

    __slots__ = ("_data", "_keys", "_touched", "active")

    def __init__(self, data: Collection[bytes]):
        self._data = data
        self._keys: SortedList = SortedList()
        self._touched: set[bytes] = set()
        self.active = False

    def touch(self, key: bytes) -> None:
        """Note that a key has appeared or disappeared, exactly once each time."""
        touched = self._touched
        if key in touched:
            touched.remove(key)  # added and removed, or removed and added
            return
        touched.add(key)
        if len(touched) > 1000 + len(self._data) // 2:
            # No range was read for a while: sorting all is cheaper than applying the changes.
            self.reset()

    def reset(self) -> None:
        """Drop the order; the next range sorts all keys."""
        self.active = False
        self._keys = SortedList()
        self._touched.clear()

    def keys(
        self, low: bytes | None, high: bytes | None, reverse: bool = False, include_high: bool = True
    ) -> Iterator[bytes]:
        """Return keys from low to high; the dict must not change meanwhile."""
        self._update()
        keys: Iterator[bytes] = self._keys.irange(low, high, (True, include_high), reverse)
        return keys

    def _update(self) -> None:
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
    """A map in memory, which is lost with the process; a commit does nothing."""

    def __init__(self) -> None:
        self._data: dict[bytes, bytes] = {}
        self._order = KeyOrder(self._data)
        self.get = self._data.get  # type: ignore[method-assign,assignment]  # no call between caller and dict on the hot path

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
        data.update(items)  # type: ignore[arg-type]  # the loop below removes the Nones
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
        """Do nothing: memory is not durable."""

    def close(self) -> None:
        """Drop everything."""
        self._data.clear()
        self._order.reset()


class UndoMap(MemoryMap):
    """A map in memory that knows what its last commit had: the values before the writes since (InMemoryTransactionBuffer)."""

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[bytes, bytes | None] = {}
        self._before_order = KeyOrder(self._before)
        self._written = 0

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set a value; None deletes."""
        self._note(key)
        self._written += len(key) + len(value or b"")
        super().put(key, value)

    def put_many(self, items: list[tuple[bytes, bytes | None]]) -> None:
        """Apply many writes at once, the last one of a key winning."""
        for key, _ in items:
            self._note(key)
        self._written += bytes_of(items)
        super().put_many(items)

    def committed(self) -> BytesMap:
        """Return the entries as of the last commit."""
        return CommittedMap(self._committed_get, self._committed_range)

    def uncommitted_bytes(self) -> int:
        """Return how many bytes of keys and values were written since the last commit."""
        return self._written

    def commit(self) -> None:
        """Forget the values before."""
        self._before.clear()
        self._written = 0
        self._before_order.reset()

    def close(self) -> None:
        """Drop everything."""
        self.commit()
        super().close()

    def _note(self, key: bytes) -> None:
        if key not in self._before:
            if self._before_order.active:
                self._before_order.touch(key)
            self._before[key] = self._data.get(key)

    def _committed_get(self, key: bytes) -> bytes | None:
        return self._before[key] if key in self._before else self._data.get(key)

    def _committed_range(
        self, low: bytes | None, high: bytes | None, reverse: bool, include_high: bool, limit: int | None
    ) -> Iterator[tuple[bytes, bytes]]:
        before = self._before
        old = ((key, before[key]) for key in self._before_order.keys(low, high, reverse, include_high))
        # Each value before a write hides a row at most.
        most = None if limit is None else limit + len(before)
        rows = self.range(low, high, reverse, include_high, most)
        kept = ((key, data) for key, data in rows if key not in before)
        merged = merge(old, kept, key=lambda entry: entry[0], reverse=reverse)
        return islice(((key, data) for key, data in merged if data is not None), limit)
