"""The rows of each key of a join's window store, as its other side reads them: no bytes are packed or unpacked for a fetch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from struct import Struct
from typing import TypeAlias

from streamkit.state.stores.key_rows import KEY_BYTES, MAX_BYTES, RowsOfKeys

JoinRow: TypeAlias = tuple[int, int, bytes]
"""(timestamp, sequence number, value bytes) of a record."""

SUFFIX = Struct(">qi")
"""What follows the key in a row: timestamp and sequence number."""

_unpack = SUFFIX.unpack
_ROW_BYTES = 190
"""Bytes of Python's objects for a row beside those of its value: a tuple, two numbers, the value's header, a slot of a list."""
_TRIM_EACH = 16
"""How many rows of a key are added between two searches for expired ones."""


class JoinRows(RowsOfKeys[list[JoinRow]]):
    """The rows of keys by timestamp and sequence number."""

    __slots__ = ()

    def put(self, key: bytes, suffix: bytes, data: bytes | None) -> None:
        """Set or delete a row."""
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
        """Drop all expired rows, and keys that have no others."""
        alive = self._first_alive()
        self._large.clear()
        for key, rows in list(self._keys.items()):
            if not rows or rows[-1][0] < alive:
                self._drop(key)
            elif rows[0][0] < alive:
                self._drop_first(rows, alive)

    def _insert(self, rows: list[JoinRow], row: JoinRow) -> None:
        """Add a late row, or set one again that the map has already."""
        self._remove(rows, row[0], row[1])
        rows.insert(bisect_left(rows, row), row)

    def _remove(self, rows: list[JoinRow], time: int, sequence: int) -> None:
        place = bisect_left(rows, (time, sequence))
        if place < len(rows) and rows[place][:2] == (time, sequence):
            self._bytes -= _ROW_BYTES + len(rows[place][2])
            del rows[place]

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
