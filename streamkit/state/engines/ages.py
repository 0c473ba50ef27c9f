"""A map of rows with a time to live, and the order in which they are due: an index in the same engine and the same batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from heapq import merge
from itertools import chain, islice
from typing import TYPE_CHECKING

from streamkit.state.definitions import BytesMap, MapOnMap
from streamkit.state.engines.overlay import METADATA_KEY
from streamkit.state.layouts import pack_long, prefix_end, unpack_long
from streamkit.state.store_offsets import WITH_TTL, StoreOffsets

if TYPE_CHECKING:
    from concurrent.futures import Executor


_INDEX = METADATA_KEY + b"\x00"
"""The prefix of the index; the time at which a row is due, and the row's key, follow it."""
_BEYOND = METADATA_KEY + b"\x01"
"""The first key behind the index. Keys of records that begin with METADATA_KEY get this in its place."""
_TIME_AT, _KEY_AT = len(_INDEX), len(_INDEX) + 8
_CHUNK = 50_000
_TICKS = 100
"""The number of ticks in a time to live: a row is deleted one tick later at most."""
_LAST = 2**63 - 1
_MOST_KNOWN = 200_000
"""The maximum number of rows whose timestamps are kept between a read and a write."""
_UNKNOWN = -(2**63) - 1
"""The timestamp of a row that was not read."""

_UNFINISHED = WITH_TTL + "unfinished"
"""The layout of a store whose index is being made or deleted."""


def tick_of(ttl: int) -> int:
    """Return the interval (ms) at which rows with a time to live (ms) are deleted.

    >>> tick_of(3_600_000), tick_of(50)
    (36000, 1)
    """
    return max(1, ttl // _TICKS)


def without_ttl(layout: str) -> str:
    """Return the layout of a store's rows alone."""
    return layout.partition(WITH_TTL)[0]


def unfinished(layout: str) -> str:
    """Return the layout of a store with an incomplete index, which is written again when the store is opened.

    >>> unfinished("key_value, ttl 50 ms")
    'key_value, ttl unfinished'
    """
    return without_ttl(layout) + _UNFINISHED


class AgedMap(MapOnMap):
    """Rows that begin with their timestamp (8 bytes) on a map, with an index by the time at which each may be due.

    A row is due at the first tick at or after its timestamp plus `ttl` (ms). It has an entry in the index that is not later.
    A write with a later timestamp does not move the entry: when it is taken the row is not due yet, and gets a new entry. So
    most writes need no write to the index. Entries without a row, or of a row that has another entry, are skipped. The index
    can be written again from the rows. Uncommitted entries are in this object; those of a map on disk are in that map,
    after METADATA_KEY, if no read of rows returns them.
    """

    def __init__(self, inner: BytesMap, ttl: int):
        super().__init__(inner)
        self.ttl = ttl
        self.tick = tick_of(ttl)
        self._new: dict[int, set[bytes]] = {}
        """Keys by the time of their entries, for entries that are not in the map below."""
        self._gone: set[bytes] = set()
        """Entries of the map below that are to be deleted, as whole keys."""
        self._owed: set[bytes] = set()
        """Keys whose entries were taken: a row that remains gets a new entry when it is written, or with the commit."""
        self._first = 0
        """Before this time all entries of the map below were taken."""
        self._next = self._written = _LAST
        """The time of the first entry after those that `due` returned, and the lowest time that was written since."""
        self._known: dict[bytes, int | None] = {}
        """Timestamps of rows that were read and not written since; None: the row does not exist."""
        self.defers = False
        """Whether `put_many` leaves the index alone until the end of a load."""

    def due_at(self, timestamp: int) -> int:
        """Return when a row with this timestamp is due (ms)."""
        tick = self.tick
        return min(max(0, -(-(timestamp + self.ttl) // tick) * tick), _LAST)

    def due(self, until: int) -> Iterator[tuple[int, bytes]]:
        """Yield the entries until then as (time, key), in order; their rows may be due later, or deleted."""
        self._next = self._written = _LAST
        new = sorted((time, key) for time in self._new if time <= until for key in self._new[time])
        if not self._inner.durable or until < self._first:
            self._next = self._first
            return iter(new)
        return merge(new, self._stored_until(until))

    def _stored_until(self, until: int) -> Iterator[tuple[int, bytes]]:
        # One entry more is read than is due: until its time no scan is needed.
        for entry, _ in self._inner.stored(_INDEX + pack_long(self._first), _BEYOND):
            time = unpack_long(entry, _TIME_AT)[0]
            if time > until:
                self._next = time
                return
            yield time, entry[_KEY_AT:]

    def take(self, time: int, key: bytes) -> None:
        """Delete an entry that `due` returned, before its row is read."""
        self._remove(time, key)
        self._owed.add(key)

    def note(self, key: bytes, time: int) -> None:
        """Add an entry for a row that is not written, at the time (ms) at which it is due."""
        self._known.pop(key, None)
        self._owed.discard(key)
        self._add(time, key)

    def passed(self) -> None:
        """Note that all entries that `due` returned have been taken."""
        self._first = min(self._next, self._written)

    def finds(self, key: bytes, timestamp: int) -> bool:
        """Return whether the row has an entry that is early enough for a write with this timestamp (ms), as far as is known."""
        known = self._known.get(key)
        return known is not None and known <= timestamp and key not in self._owed

    # -- The map ------------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        """Return a value or None."""
        data = self._inner.get(_outer(key) if key.startswith(METADATA_KEY) else key)
        if len(self._known) < _MOST_KNOWN:
            self._known[key] = None if data is None else unpack_long(data)[0]
        return data

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set a value; None deletes."""
        row = _outer(key) if key.startswith(METADATA_KEY) else key
        was = self._known.pop(key, _UNKNOWN)
        if was == _UNKNOWN:
            data = self._inner.get(row)
            was = None if data is None else unpack_long(data)[0]
        now = None if value is None else unpack_long(value)[0]
        if was is None or now is None or now < was or key in self._owed:
            self._follow(key, was, now)
        self._inner.put(row, value)

    def put_many(self, items: list[tuple[bytes, bytes | None]]) -> None:
        """Apply many writes at once, the last one of a key winning (restoring)."""
        self._known.clear()
        if self.defers:
            outer = [(_outer(key) if key.startswith(METADATA_KEY) else key, value) for key, value in items]
            self._inner.put_many(outer)
            return
        get, follow = self._inner.get, self._follow
        rows = {_outer(key) if key.startswith(METADATA_KEY) else key: (key, value) for key, value in items}
        for row, (key, value) in rows.items():
            old = get(row)
            was, now = (None if data is None else unpack_long(data)[0] for data in (old, value))
            follow(key, was, now)
        self._inner.put_many([(row, value) for row, (_, value) in rows.items()])

    def range(
        self,
        low: bytes | None,
        high: bytes | None,
        reverse: bool = False,
        include_high: bool = True,
        limit: int | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return entries from low to high in byte order, at most `limit`, as they are now; without the index."""
        low, high = (None if bound is None else _outer(bound) for bound in (low, high))
        inner = self._inner.range
        if high is not None and high < _INDEX:
            return inner(low, high, reverse, include_high, limit)
        behind = map(_inward, inner(max(low or b"", _BEYOND), high, reverse, include_high, limit))
        if low is not None and low >= _BEYOND:
            return behind
        parts = [inner(low, _INDEX, reverse, False, limit), behind]
        return islice(chain(*reversed(parts) if reverse else parts), limit)

    def committed(self) -> BytesMap | None:
        """Return the rows as of the last commit."""
        inner = self._inner.committed()
        return None if inner is None else AgedMap(inner, self.ttl)

    def rows_estimate(self) -> int | None:
        """Return about how many rows there are: on disk each has an entry in the index. Every thread may call it."""
        entries = self._inner.rows_estimate()
        return entries if entries is None or not self._inner.durable or self.defers else (entries + 1) // 2

    def begin_load(self, executor: Executor) -> None:
        """Prepare for many writes and few reads (see BytesMap.begin_load).

        To update the index with each row, the previous row has to be read, which costs more than the writes, and waits for
        them. The index of a map that is empty is written at the end instead, from the rows that are left.
        """
        self.defers = self.defers or (self._inner.durable and not any(True for _ in self.range(None, None, limit=1)))
        self._inner.begin_load(executor)

    def end_load(self) -> None:
        """End the load: return when all commits, and the index, are written."""
        if self.defers:
            self.commit()
            self.make_index()
            self.defers = False
        self._inner.end_load()

    def make_index(self) -> None:
        """Write the index of a map that has none, from the committed rows."""
        inner, due_at = self._inner, self.due_at
        # One scan: during a load RocksDB sorts its buffer for each scan. The scan does not return the entries written here.
        for chunk in _chunks(inner.range(None, None)):
            rows = [_inward(row) if row[0].startswith(_BEYOND) else row for row in chunk]
            entries = [_INDEX + pack_long(due_at(unpack_long(data)[0])) + key for key, data in rows]
            entries.sort()  # a quarter less time than in the order of the rows
            inner.put_many([(entry, b"") for entry in entries])
            inner.commit()
        self._first = 0

    def commit(self) -> None:
        """Write everything since the last commit, entries of the index included, in one write batch."""
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        for key in self._owed:
            data = self._inner.get(_outer(key) if key.startswith(METADATA_KEY) else key)
            if data is not None:
                self._add(self.due_at(unpack_long(data)[0]), key)
        self._owed.clear()
        if self._inner.durable:
            self._write_index()
        self._inner.commit()

    def close(self) -> None:
        """Close the files; uncommitted writes are lost."""
        for buffer in (self._new, self._gone, self._owed, self._known):
            buffer.clear()
        self._inner.close()

    def _write_index(self) -> None:
        if self.defers:
            self._new.clear()
            self._gone.clear()
        if not self._new and not self._gone:
            return
        # An entry may have been deleted and added again: new entries go last.
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

    def _follow(self, key: bytes, was: int | None, now: int | None) -> None:
        """Update the index for a row that is written; `was`, `now`: its timestamps (ms), None without one."""
        if now is None:
            self._owed.discard(key)
            if was is not None:
                # The entry of a row that was written once. Any other entry is skipped when it is taken.
                self._remove(self.due_at(was), key)
            return
        if was is None or now < was or key in self._owed:
            self._owed.discard(key)
            due = self.due_at(now)
            if was is not None:
                before = self.due_at(was)
                if before != due:
                    self._remove(before, key)
            self._add(due, key)

    def _add(self, time: int, key: bytes) -> None:
        keys = self._new.get(time)
        if keys is None:
            self._new[time] = {key}
        else:
            keys.add(key)

    def _remove(self, time: int, key: bytes) -> None:
        keys = self._new.get(time)
        if keys is not None and key in keys:
            keys.remove(key)
            if not keys:
                del self._new[time]
        elif self._inner.durable:
            self._gone.add(_INDEX + pack_long(time) + key)


def relaid(rows: BytesMap, metadata: StoreOffsets, layout: str) -> StoreOffsets:
    """Write or delete the index of a store if only that differs in its layout; return the new metadata.

    `metadata`: as it is now. A process that ends in between leaves the layout `unfinished`, and the next one repeats it.
    """
    before, base = metadata.owner.layout, without_ttl(layout)
    if without_ttl(before) != base or before == layout:
        return metadata
    inner = rows._inner if isinstance(rows, AgedMap) else rows
    if before == base:
        _rename(inner, _outer)
    _commit(inner, metadata, unfinished(base))
    for chunk in _chunks(inner.stored(_INDEX, _BEYOND)):
        inner.put_many([(entry, None) for entry, _ in chunk])
        inner.commit()
    if isinstance(rows, AgedMap):
        rows.make_index()
    else:
        _rename(inner, lambda key: _inward((key, b""))[0])
    return _commit(inner, metadata, layout)


def _rename(inner: BytesMap, name: Callable[[bytes], bytes]) -> None:
    """Rename the rows whose keys begin with METADATA_KEY to their keys with an index, or without one."""
    awkward = list(inner.range(METADATA_KEY + b"\x00", prefix_end(METADATA_KEY), include_high=False))
    inner.put_many([(key, None) for key, _ in awkward])
    inner.put_many([(name(key), value) for key, value in awkward])


def _commit(inner: BytesMap, metadata: StoreOffsets, layout: str) -> StoreOffsets:
    marked = replace(metadata, owner=replace(metadata.owner, layout=layout))
    inner.metadata = marked.encode()
    inner.commit()
    return marked


def _chunks(entries: Iterable[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    entries = iter(entries)
    while chunk := list(islice(entries, _CHUNK)):
        yield chunk


def rows_of(inner: BytesMap, layout: str) -> BytesMap:
    """Return the rows of a map of this layout, without its index; for reads only."""
    return AgedMap(inner, 1) if WITH_TTL in layout else inner


def row_key(key: bytes) -> bytes | None:
    """Return the row's key of a key of the map below an AgedMap; None for an entry of the index."""
    return None if _INDEX <= key < _BEYOND else _inward((key, b""))[0]


def _outer(key: bytes) -> bytes:
    """Return the map's key for a row's key: keys with the prefix of the index are moved behind it, in the same order."""
    at = len(METADATA_KEY)
    return _BEYOND + key[at:] if key.startswith(METADATA_KEY) and len(key) > at else key


def _inward(entry: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    key, value = entry
    return (METADATA_KEY + key[len(_BEYOND) :], value) if key.startswith(_BEYOND) else entry
