"""The rows of each key of a windowed store, in order: what a fetch by key and time would otherwise scan the map for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from streamkit.state.keys import pack_long
from streamkit.state.memory import KeyOrder

MAX_ROWS = 1 << 18
"""Rows and keys that are held at most; beyond them the keys that came first are read anew when they are asked for."""
_TRIM_FROM = 32

Load = Callable[[bytes], Iterable[tuple[bytes, bytes]]]


class KeyRows:
    """The rows of keys by suffix, which is what follows the key in a row and begins with its time.

    All that is alive of a key is held, or nothing of it. `load` reads a key's rows as (suffix, data), in order;
    `first_alive` tells the time before which rows are never read again; `complete`: the map is empty now.
    """

    __slots__ = ("_complete", "_count", "_first_alive", "_keys", "_load")

    def __init__(self, load: Load, first_alive: Callable[[], int], complete: bool):
        self._load = load
        self._first_alive = first_alive
        self._complete = complete
        self._keys: dict[bytes, tuple[list[bytes], list[bytes]]] = {}
        self._count = 0

    def put(self, key: bytes, suffix: bytes, data: bytes | None) -> None:
        """Set or delete a row."""
        rows = self._keys.get(key)
        if rows is None:
            if not self._complete or data is None:
                return
            rows = self._hold(key, [], [])
        suffixes, values = rows
        if data is not None and (not suffixes or suffix > suffixes[-1]):
            suffixes.append(suffix)
            values.append(data)
            self._count += 1
            if len(suffixes) > _TRIM_FROM:
                self._trim(suffixes, values)
            return
        place = bisect_left(suffixes, suffix)
        there = place < len(suffixes) and suffixes[place] == suffix
        if data is None:
            if there:
                del suffixes[place], values[place]
                self._count -= 1
        elif there:
            values[place] = data
        else:
            suffixes.insert(place, suffix)
            values.insert(place, data)
            self._count += 1

    def between(self, key: bytes, first: bytes, last: bytes) -> tuple[Sequence[bytes], Sequence[bytes]]:
        """Return suffixes and data of a key's rows from suffix `first` to `last`, both included, as they are now."""
        rows = self._keys.get(key)
        if rows is None:
            if self._complete:
                return (), ()
            found = list(self._load(key))
            rows = self._hold(key, [suffix for suffix, _ in found], [data for _, data in found])
        suffixes, values = rows
        low = bisect_left(suffixes, first)
        if low == len(suffixes):
            return (), ()
        high = bisect_right(suffixes, last, low)
        return suffixes[low:high], values[low:high]

    def _hold(self, key: bytes, suffixes: list[bytes], values: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        rows = self._keys[key] = (suffixes, values)
        self._count += len(suffixes) + 1
        if self._count > MAX_ROWS:
            self._evict()
        return rows

    def _trim(self, suffixes: list[bytes], values: list[bytes]) -> None:
        """Drop what has expired when it is half of a key's rows, so that a row is moved once on average."""
        alive = pack_long(self._first_alive())
        if suffixes[len(suffixes) // 2] < alive:
            gone = bisect_left(suffixes, alive)
            del suffixes[:gone], values[:gone]
            self._count -= gone

    def _evict(self) -> None:
        """Drop the keys that came first, down to half of what may be held, but never the one in hand."""
        self._complete = False
        keys = self._keys
        while self._count > MAX_ROWS // 2 and len(keys) > 1:
            suffixes, _ = keys.pop(next(iter(keys)))
            self._count -= len(suffixes) + 1


class KeyedOrder(KeyOrder):
    """The keys of a dict whose keys end in a suffix of `length` bytes, in order for each of the keys before it."""

    __slots__ = ("_length", "_suffixes")

    def __init__(self, data: dict[bytes, Any], length: int):
        super().__init__(data)
        self._length = length
        self._suffixes: dict[bytes, list[bytes]] = {}

    def of_key(self, key: bytes, first: bytes, last: bytes) -> list[bytes]:
        """Return a key's rows, suffixes included, from suffix `first` to `last`, both included."""
        if not self.active or self._touched:
            self._sort()
        suffixes = self._suffixes.get(key)
        if suffixes is None:
            return []
        return [key + each for each in suffixes[bisect_left(suffixes, first) : bisect_right(suffixes, last)]]

    def reset(self) -> None:
        """Forget the order."""
        super().reset()
        self._suffixes = {}

    def _sort(self) -> None:
        length, suffixes, data = self._length, self._suffixes, self._data
        if not self.active:
            self._touched.clear()
            for row in data:
                suffixes.setdefault(row[:-length], []).append(row[-length:])
            for each in suffixes.values():
                each.sort()
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
