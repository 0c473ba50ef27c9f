"""A map of rows with a time to live, and the order in which they are due: an index in the same engine and the same batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from heapq import merge
from itertools import chain, islice
from typing import TYPE_CHECKING

from streamkit.state.base import BytesMap
from streamkit.state.keys import pack_long, prefix_end, unpack_long
from streamkit.state.overlay import METADATA_KEY

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from streamkit.state.offsets import StoreOffsets

_INDEX = METADATA_KEY + b"\x00"
"""What the rows of the index begin with: the time at which a row is due, and its key, follow."""
_BEYOND = METADATA_KEY + b"\x01"
"""The first key behind the index. Keys of records that begin with METADATA_KEY get this in its place."""
_TIME_AT, _KEY_AT = len(_INDEX), len(_INDEX) + 8
_CHUNK = 50_000
_TICKS = 100
"""Into how many ticks a time to live is divided: a row is deleted so much later at most."""
_LAST = 2**63 - 1

_WITH_TTL = ", ttl "
_UNFINISHED = _WITH_TTL + "unfinished"
"""The layout of a store whose index is being made or deleted."""


def tick_of(ttl: int) -> int:
    """Return the distance (ms) of the times at which rows with a time to live (ms) are looked at.

    >>> tick_of(3_600_000), tick_of(50)
    (36000, 1)
    """
    return max(1, ttl // _TICKS)


def layout_with(layout: str, ttl: int | None) -> str:
    """Return the layout of a store's rows with that of the index beside them."""
    return layout if ttl is None else f"{layout}{_WITH_TTL}{ttl} ms"


def without_ttl(layout: str) -> str:
    """Return the layout of a store's rows alone."""
    return layout.partition(_WITH_TTL)[0]


def unfinished(layout: str) -> str:
    """Return the layout of a store whose index is not that of its rows; who opens the store makes it again.

    >>> unfinished("key_value, ttl 50 ms")
    'key_value, ttl unfinished'
    """
    return without_ttl(layout) + _UNFINISHED


class AgedMap(BytesMap):
    """Rows that begin with their timestamp (8 bytes) on a map, with an index by the time at which each is due.

    A row is due at the first tick at or after its timestamp plus `ttl` (ms). The index has one entry a row; it holds no
    more than the rows do, so that it can be made again from them. Entries that are not committed are here, those of a map
    on disk are in it, behind METADATA_KEY, where no read of the rows comes to.
    """

    def __init__(self, inner: BytesMap, ttl: int):
        self._inner = inner
        self.ttl = ttl
        self.tick = tick_of(ttl)
        self._new: dict[int, set[bytes]] = {}
        """Keys by the time at which they are due, as far as their entries are not in the map below."""
        self._gone: set[bytes] = set()
        """Entries of the map below that are no longer true, as whole keys."""
        self._first = 0
        """Before this time the map below has no entry that matters: all that were due have been deleted or have moved."""
        self._next = self._written = _LAST
        """The time of the entry after those that were gone through, and the lowest one that was written meanwhile."""
        self._seen: tuple[bytes | None, bytes | None] = None, None
        """The last row that was read or written: mostly what the next `put` replaces."""
        self.defers = False
        """Whether `put_many` leaves the index alone until the end of a load."""

    def due_at(self, timestamp: int) -> int:
        """Return when a row with this timestamp is due (ms)."""
        tick = self.tick
        return min(max(0, -(-(timestamp + self.ttl) // tick) * tick), _LAST)

    def due(self, until: int) -> Iterator[tuple[int, bytes]]:
        """Yield (time, key) of rows that are due until then, by time and key; some have been written or deleted since."""
        self._next = self._written = _LAST
        new = sorted((time, key) for time in self._new if time <= until for key in self._new[time])
        if not self._inner.durable or until < self._first:
            self._next = self._first
            return iter(new)
        return merge(new, self._stored_until(until))

    def _stored_until(self, until: int) -> Iterator[tuple[int, bytes]]:
        # One entry more is read than is due: until its time nothing has to be looked for here.
        for entry, _ in self._inner.stored(_INDEX + pack_long(self._first), _BEYOND):
            time = unpack_long(entry, _TIME_AT)[0]
            if time > until:
                self._next = time
                return
            yield time, entry[_KEY_AT:]

    def passed(self) -> None:
        """Note that all that `due` gave has been looked at."""
        self._first = min(self._next, self._written)

    # -- The map ------------------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> bytes | None:  # type: ignore[override]
        """What the map below writes beside its entries."""
        return self._inner.metadata

    @metadata.setter
    def metadata(self, data: bytes | None) -> None:
        self._inner.metadata = data

    def get(self, key: bytes) -> bytes | None:
        """Return a value or None."""
        data = self._inner.get(_outer(key) if key.startswith(METADATA_KEY) else key)
        self._seen = key, data
        return data

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set a value; None deletes."""
        seen = self._seen
        old = seen[1] if seen[0] == key else self.get(key)
        self._move(key, old, value)
        self._inner.put(_outer(key) if key.startswith(METADATA_KEY) else key, value)
        self._seen = key, value

    def put_many(self, items: list[tuple[bytes, bytes | None]]) -> None:
        """Apply many writes at once, the last one of a key winning (restoring)."""
        if self.defers:
            outer = [(_outer(key) if key.startswith(METADATA_KEY) else key, value) for key, value in items]
            self._inner.put_many(outer)
            self._seen = None, None
            return
        get, move = self._inner.get, self._move
        rows = {_outer(key) if key.startswith(METADATA_KEY) else key: (key, value) for key, value in items}
        for row, (key, value) in rows.items():
            move(key, get(row), value)
        self._inner.put_many([(row, value) for row, (_, value) in rows.items()])
        self._seen = None, None

    def range(
        self,
        low: bytes | None,
        high: bytes | None,
        reverse: bool = False,
        include_high: bool = True,
        limit: int | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return entries from low to high in byte order, at most `limit`, as they are now; without the index."""
        low, high = (None if each is None else _outer(each) for each in (low, high))
        inner = self._inner.range
        if high is not None and high < _INDEX:
            return inner(low, high, reverse, include_high, limit)
        behind = map(_inward, inner(max(low or b"", _BEYOND), high, reverse, include_high, limit))
        if low is not None and low >= _BEYOND:
            return behind
        parts = [inner(low, _INDEX, reverse, False, limit), behind]
        return islice(chain(*reversed(parts) if reverse else parts), limit)

    def bytes_on_disk(self) -> int | None:
        """Return the size of its files; None where there are none. Any thread may ask."""
        return self._inner.bytes_on_disk()

    def rows_estimate(self) -> int | None:
        """Return about how many rows there are: on disk each has an entry in the index. Any thread may ask."""
        found = self._inner.rows_estimate()
        return found if found is None or not self._inner.durable or self.defers else (found + 1) // 2

    def begin_load(self, beside: Executor) -> None:
        """Expect many writes and hardly a read (see BytesMap.begin_load).

        An index that follows each row has to read the row before it, which costs more than the writes, and waits for them.
        A map that is empty gets its index at the end instead, from the rows that are left then.
        """
        self.defers = self.defers or (self._inner.durable and not any(True for _ in self.range(None, None, limit=1)))
        self._inner.begin_load(beside)

    def end_load(self) -> None:
        """Be as before `begin_load`: all that was committed is written, and the index with it."""
        if self.defers:
            self.commit()
            self.make_index()
            self.defers = False
        self._inner.end_load()

    def make_index(self) -> None:
        """Write the index of a map that has none, from the rows that are committed."""
        inner, due_at = self._inner, self.due_at
        # One scan: while it is loaded, RocksDB sorts what it has in memory for each. It does not see what is written here.
        for chunk in _chunks(inner.range(None, None)):
            rows = [_inward(row) if row[0].startswith(_BEYOND) else row for row in chunk]
            entries = [_INDEX + pack_long(due_at(unpack_long(data)[0])) + key for key, data in rows]
            entries.sort()  # a quarter less time than in the order of the rows
            inner.put_many([(entry, b"") for entry in entries])
            inner.commit()
        self._first = 0

    def commit(self) -> None:
        """Write everything since the last commit, entries of the index included, in one write batch."""
        if self._inner.durable:
            self._write_index()
        self._inner.commit()

    def close(self) -> None:
        """Release files; what was not committed is gone."""
        self._new.clear()
        self._gone.clear()
        self._inner.close()

    def _write_index(self) -> None:
        if self.defers:
            self._new.clear()
            self._gone.clear()
        if not self._new and not self._gone:
            return
        # A row may have moved away from an entry and back: what is new goes last.
        entries: list[tuple[bytes, bytes | None]] = [(entry, None) for entry in self._gone]
        for time, keys in self._new.items():
            head = _INDEX + pack_long(time)
            entries += [(head + key, b"") for key in keys]
        if self._new:
            self._written = min(self._written, min(self._new))
            self._first = min(self._first, self._written)
        self._inner.put_many(entries)
        self._new.clear()
        self._gone.clear()

    def _move(self, key: bytes, old: bytes | None, new: bytes | None) -> None:
        """Have the index follow a row that is written."""
        if old is not None:
            if new is not None and old[:8] == new[:8]:
                return
            was = self.due_at(unpack_long(old)[0])
            now = None if new is None else self.due_at(unpack_long(new)[0])
            if was == now:
                return
            keys = self._new.get(was)
            if keys is None or key not in keys:
                self._gone.add(_INDEX + pack_long(was) + key)
            else:
                keys.remove(key)
                if not keys:
                    del self._new[was]
        elif new is None:
            return
        else:
            now = self.due_at(unpack_long(new)[0])
        if now is not None:
            found = self._new.get(now)
            if found is None:
                self._new[now] = {key}
            else:
                found.add(key)


def relaid(rows: BytesMap, found: StoreOffsets, layout: str) -> StoreOffsets:
    """Return the metadata of a store whose index was made again, or deleted, where its layout differs in that alone.

    `found`: the metadata as it is. A process that ends in between leaves a layout that the next one takes up here.
    """
    before, base = found.owner.layout, without_ttl(layout)
    if without_ttl(before) != base or before == layout:
        return found
    inner = rows._inner if isinstance(rows, AgedMap) else rows
    if before == base:
        _rename(inner, _outer)
    _commit(inner, found, unfinished(base))
    for chunk in _chunks(inner.stored(_INDEX, _BEYOND)):
        inner.put_many([(entry, None) for entry, _ in chunk])
        inner.commit()
    if isinstance(rows, AgedMap):
        rows.make_index()
    else:
        _rename(inner, lambda key: _inward((key, b""))[0])
    return _commit(inner, found, layout)


def _rename(inner: BytesMap, name: Callable[[bytes], bytes]) -> None:
    """Give rows whose keys begin like METADATA_KEY their keys with an index beside them, or without one."""
    awkward = list(inner.range(METADATA_KEY + b"\x00", prefix_end(METADATA_KEY), include_high=False))
    inner.put_many([(key, None) for key, _ in awkward])
    inner.put_many([(name(key), value) for key, value in awkward])


def _commit(inner: BytesMap, found: StoreOffsets, layout: str) -> StoreOffsets:
    marked = replace(found, owner=replace(found.owner, layout=layout))
    inner.metadata = marked.encode()
    inner.commit()
    return marked


def _chunks(entries: Iterable[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    entries = iter(entries)
    while chunk := list(islice(entries, _CHUNK)):
        yield chunk


def rows_of(inner: BytesMap, layout: str) -> BytesMap:
    """Return the rows of a map of this layout, without an index if it has one; to be read only."""
    return AgedMap(inner, 1) if _WITH_TTL in layout else inner


def _outer(key: bytes) -> bytes:
    """Return the key in the map of a row's key: keys that begin as the index does lie behind it, in the same order."""
    at = len(METADATA_KEY)
    return _BEYOND + key[at:] if key.startswith(METADATA_KEY) and len(key) > at else key


def _inward(entry: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    key, value = entry
    return (METADATA_KEY + key[len(_BEYOND) :], value) if key.startswith(_BEYOND) else entry
