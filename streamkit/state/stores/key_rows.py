"""The rows of each key of a windowed store, in order, so that a fetch by key and time need not scan the map."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Sequence
from struct import Struct
from typing import Generic, TypeAlias, TypeVar

from streamkit.state.engines.memory import KeyOrder
from streamkit.state.layouts import pack_long, unpack_long

MAX_BYTES = 64 << 20
"""The maximum number of bytes that the rows of one store use here. Above it the oldest keys are dropped, and read again when needed."""
ROW_BYTES, KEY_BYTES = 120, 400
"""Overhead in bytes of the Python objects for a value and a key: object headers, list slots, a dict entry."""
_TRIM_FROM = 32
_LARGE = 4
"""A key is not kept again if its rows took more than a fourth of MAX_BYTES: each fetch reads only rows from its time on."""

R = TypeVar("R")
Load = Callable[[bytes, int], Iterable[tuple[bytes, bytes]]]


class RowsOfKeys(ABC, Generic[R]):
    """The rows of keys; either all rows of a key that have not expired are kept, or none.

    `load` reads a key's rows as (suffix, data), in order, starting at a time (ms); `first_alive` returns the time before which
    rows have expired; `complete`: the map is empty now.
    """

    __slots__ = ("_bytes", "_complete", "_first_alive", "_keys", "_large", "_load")

    def __init__(self, load: Load, first_alive: Callable[[], int], complete: bool):
        self._load = load
        self._first_alive = first_alive
        self._complete = complete
        self._keys: dict[bytes, R] = {}
        self._large: set[bytes] = set()
        self._bytes = 0

    @property
    def size(self) -> int:
        """The approximate number of bytes that are kept."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._keys)

    @abstractmethod
    def put(self, key: bytes, suffix: bytes, data: bytes | None) -> None:
        """Set or delete a row."""

    @abstractmethod
    def expire(self) -> None:
        """Drop all expired rows, and keys that have no others."""

    @abstractmethod
    def _cost(self, key: bytes, rows: R) -> int:
        """Return about how many bytes a key takes with its rows."""

    def forget(self) -> None:
        """Drop all rows; they are read from the map when needed."""
        self._complete = False
        self._keys.clear()
        self._large.clear()
        self._bytes = 0

    def _kept(self, key: bytes, rows: R) -> R:
        """Keep the rows of a key, unless they are large, and return them."""
        if key not in self._large:
            self._keep(key, rows)
            if self._bytes > MAX_BYTES:
                self._evict()
        return rows

    def _keep(self, key: bytes, rows: R) -> R:
        self._keys[key] = rows
        self._bytes += self._cost(key, rows)
        return rows

    def _loaded(self, key: bytes, time: int) -> Iterable[tuple[bytes, bytes]]:
        """Return the rows of a key in the map; for a large key only those from `time` on."""
        return self._load(key, time if key in self._large else 0)

    def _drop(self, key: bytes) -> int:
        cost = self._cost(key, self._keys.pop(key))
        self._bytes -= cost
        return cost

    def _evict(self) -> None:
        """Drop the keys that were added first, until half of MAX_BYTES is free."""
        self._complete = False
        # Iterate over a copy: finding the first key of a dict means skipping the slots of all keys deleted before it.
        for key in list(self._keys):
            if self._bytes <= MAX_BYTES // 2:
                break
            if self._drop(key) > MAX_BYTES // _LARGE:
                self._large.add(key)


class KeyRows(RowsOfKeys[tuple[list[bytes], list[bytes]]]):
    """The rows of keys by suffix, which is what follows the key in a row and begins with its time."""

    __slots__ = ()

    def put(self, key: bytes, suffix: bytes, data: bytes | None) -> None:
        rows = self._keys.get(key)
        if rows is None:
            if not self._complete or data is None:
                return
            rows = self._keep(key, ([], []))
        suffixes, values = rows
        if data is not None and (not suffixes or suffix > suffixes[-1]):
            suffixes.append(suffix)
            values.append(data)
            self._bytes += ROW_BYTES + len(data)
            if len(suffixes) > _TRIM_FROM:
                self._trim(suffixes, values)
            if self._bytes > MAX_BYTES:
                self._evict()
            return
        index = bisect_left(suffixes, suffix)
        there = index < len(suffixes) and suffixes[index] == suffix
        if there:
            self._bytes -= ROW_BYTES + len(values[index])
            del suffixes[index], values[index]
        if data is not None:
            suffixes.insert(index, suffix)
            values.insert(index, data)
            self._bytes += ROW_BYTES + len(data)
            if self._bytes > MAX_BYTES:
                self._evict()

    def between(self, key: bytes, first: bytes, last: bytes) -> tuple[Sequence[bytes], Sequence[bytes]]:
        """Return suffixes and data of a key's rows from suffix `first` to `last`, both included, as they are now."""
        rows = self._keys.get(key)
        if rows is None:
            if self._complete:
                return (), ()
            rows = self._stored(key, first)
        suffixes, values = rows
        low = bisect_left(suffixes, first)
        if low == len(suffixes):
            return (), ()
        high = bisect_right(suffixes, last, low)
        return suffixes[low:high], values[low:high]

    def _stored(self, key: bytes, first: bytes) -> tuple[list[bytes], list[bytes]]:
        """Read the rows of a key from the map and keep them; for a large key read only those from suffix `first` on."""
        rows = list(self._loaded(key, unpack_long(first)[0]))
        return self._kept(key, ([suffix for suffix, _ in rows], [data for _, data in rows]))

    def expire(self) -> None:
        alive = pack_long(self._first_alive())
        self._large.clear()
        for key, (suffixes, values) in list(self._keys.items()):
            if not suffixes or suffixes[-1] < alive:
                self._drop(key)
            elif suffixes[0] < alive:
                self._drop_first(suffixes, values, bisect_left(suffixes, alive))

    def _trim(self, suffixes: list[bytes], values: list[bytes]) -> None:
        """Drop expired rows once they are half of a key's rows, so that a row is moved once on average."""
        alive = pack_long(self._first_alive())
        if suffixes[len(suffixes) // 2] < alive:
            self._drop_first(suffixes, values, bisect_left(suffixes, alive))

    def _drop_first(self, suffixes: list[bytes], values: list[bytes], count: int) -> None:
        self._bytes -= ROW_BYTES * count + sum(map(len, values[:count]))
        del suffixes[:count], values[:count]

    def _cost(self, key: bytes, rows: tuple[list[bytes], list[bytes]]) -> int:
        values = rows[1]
        return KEY_BYTES + len(key) + ROW_BYTES * len(values) + sum(map(len, values))


class KeyedOrder(KeyOrder):
    """Sorts the keys of a dict by the part before their suffix of `length` bytes, then by the suffix."""

    __slots__ = ("_length", "_suffixes")

    def __init__(self, data: Collection[bytes], length: int):
        super().__init__(data)
        self._length = length
        self._suffixes: dict[bytes, list[bytes]] = {}

    def of_key(self, key: bytes, first: bytes, last: bytes) -> list[bytes]:
        """Return a key's rows, suffixes included, from suffix `first` to `last`, both included."""
        suffixes = self.suffixes(key)
        return [key + suffix for suffix in suffixes[bisect_left(suffixes, first) : bisect_right(suffixes, last)]]

    def suffixes(self, key: bytes) -> list[bytes]:
        """Return the suffixes of a key's rows, in order; the list changes with the next row."""
        if not self.active or self._touched:
            self._sort()
        return self._suffixes.get(key, [])

    def reset(self) -> None:
        """Drop the order; the next read sorts all keys."""
        super().reset()
        self._suffixes = {}

    def _sort(self) -> None:
        length, suffixes, data = self._length, self._suffixes, self._data
        if not self.active:
            self._touched.clear()
            for row in data:
                suffixes.setdefault(row[:-length], []).append(row[-length:])
            for of_key in suffixes.values():
                of_key.sort()
            self.active = True
            return
        for row in self._touched:
            key, suffix = row[:-length], row[-length:]
            if row in data:
                insort(suffixes.setdefault(key, []), suffix)
                continue
            mine = suffixes[key]
            del mine[bisect_left(mine, suffix)]
            if not mine:
                del suffixes[key]
        self._touched.clear()


# The rows of each key in a join's window store, in the form that the other side reads, so that a fetch need not unpack bytes.

JoinRow: TypeAlias = tuple[int, int, bytes]
"""(timestamp, sequence number, value bytes) of a record."""

SUFFIX = Struct(">qi")
"""What follows the key in a row: timestamp and sequence number."""

_unpack = SUFFIX.unpack
_ROW_BYTES = 190
"""Overhead in bytes of the Python objects for a row: a tuple, two integers, the value's header, a list slot."""
_TRIM_EACH = 16
"""How many rows of a key are added between two searches for expired ones."""


class JoinRows(RowsOfKeys[list[JoinRow]]):
    """The rows of keys by timestamp and sequence number."""

    __slots__ = ()

    def put(self, key: bytes, suffix: bytes, data: bytes | None) -> None:
        time, sequence = _unpack(suffix)
        rows = self._keys.get(key)
        if rows is None:
            if self._complete and data is not None:
                self._keep(key, [(time, sequence, data)])
                if self._bytes > MAX_BYTES:
                    self._evict()
        elif data is not None:
            self._bytes += _ROW_BYTES + len(data)
            last = rows[-1] if rows else None
            if last is None or time > last[0] or (time == last[0] and sequence > last[1]):
                rows.append((time, sequence, data))
                if not len(rows) % _TRIM_EACH:
                    self._trim(rows)
            else:
                self._insert(rows, (time, sequence, data))
            if self._bytes > MAX_BYTES:
                self._evict()
        else:
            self._remove(rows, time, sequence)

    def fetch(self, key: bytes, low: int, high: int) -> Sequence[JoinRow]:
        """Return a key's rows with timestamps from low to high, both included, in order, as they are now."""
        rows = self._keys.get(key)
        if rows is None:
            if self._complete:
                return ()
            rows = self._kept(key, [(*_unpack(suffix), data) for suffix, data in self._loaded(key, low)])
        if not rows:
            return ()
        last = rows[-1][0]
        if last < low:
            return ()
        first = bisect_left(rows, (low,))
        return rows[first:] if last <= high else rows[first : bisect_left(rows, (high + 1,), first)]

    def expire(self) -> None:
        alive = self._first_alive()
        self._large.clear()
        for key, rows in list(self._keys.items()):
            if not rows or rows[-1][0] < alive:
                self._drop(key)
            elif rows[0][0] < alive:
                self._drop_first(rows, alive)

    def _insert(self, rows: list[JoinRow], row: JoinRow) -> None:
        """Insert a late row, or replace a row that is already present."""
        self._remove(rows, row[0], row[1])
        rows.insert(bisect_left(rows, row), row)

    def _remove(self, rows: list[JoinRow], time: int, sequence: int) -> None:
        index = bisect_left(rows, (time, sequence))
        if index < len(rows) and rows[index][:2] == (time, sequence):
            self._bytes -= _ROW_BYTES + len(rows[index][2])
            del rows[index]

    def _trim(self, rows: list[JoinRow]) -> None:
        """Drop expired rows once they are half of a key's rows, so that a row is moved once on average."""
        alive = self._first_alive()
        if rows[len(rows) // 2][0] < alive:
            self._drop_first(rows, alive)

    def _drop_first(self, rows: list[JoinRow], alive: int) -> None:
        count = bisect_left(rows, (alive,))
        self._bytes -= _ROW_BYTES * count + sum(len(row[2]) for row in rows[:count])
        del rows[:count]

    def _cost(self, key: bytes, rows: list[JoinRow]) -> int:
        return KEY_BYTES + len(key) + _ROW_BYTES * len(rows) + sum(len(row[2]) for row in rows)
