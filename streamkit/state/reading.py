"""Reads of stores from outside their task: pages of rows, in the order of bytes, that leave caches as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from streamkit.errors import QueryError
from streamkit.record import WindowedKey
from streamkit.state.definitions import StoreDef
from streamkit.state.key_value import KeyValueStore
from streamkit.state.keys import MAX_LONG, TWO_LONGS, pack_long, prefix_end
from streamkit.state.session import SessionStore
from streamkit.state.versioned import VersionedStore
from streamkit.state.window import WindowStore

KINDS = {
    "key_value": ("get", "range", "prefix", "all"),
    "timestamped_key_value": ("get", "range", "prefix", "all"),
    "window": ("windows", "all"),
    "session": ("sessions", "all"),
    "versioned": ("get", "versions", "all"),
}
"""What may be asked of a store, by its type; the stores of joins and buffers offer `all` only."""


@dataclass(frozen=True)
class Query:
    """A page of a store. Keys are bytes, times milliseconds; what the kind does not use is ignored."""

    kind: str
    key: bytes | None = None
    """Of get, prefix, windows, sessions and versions; windows and sessions of all keys where None."""
    low: bytes | None = None
    high: bytes | None = None
    """Bounds of range, both included."""
    start: int = 0
    end: int = MAX_LONG
    """Window starts, versions' times, or for sessions earliest end and latest start; both included."""
    as_of: int | None = None
    """Of a versioned get."""
    reverse: bool = False
    limit: int = 100
    after: tuple[bytes, int] | None = None
    """Place and partition of the last row of the page before."""


class StoredRow(NamedTuple):
    """A row, decoded; `place` orders rows and stays the same between pages."""

    place: bytes
    key: Any
    value: Any
    timestamp: int | None


def kinds_of(store_type: str) -> tuple[str, ...]:
    """Return what may be asked of a type of stores."""
    return KINDS.get(store_type, ("all",))


def require_kind(definition: StoreDef, kind: str) -> None:
    """Raise QueryError unless a store answers this kind of query."""
    offered = kinds_of(definition.type)
    if kind not in offered:
        raise QueryError(
            f"store {definition.name} is a {definition.type} store: it answers {', '.join(offered)}, not {kind}"
        )


def read(store: Any, query: Query, partition: int) -> list[StoredRow]:
    """Return a page of a store that holds `partition`; the caller makes sure that nothing is written meanwhile.

    Raises QueryError for what the store's type does not offer.
    """
    require_kind(store.definition, query.kind)
    if isinstance(store, KeyValueStore):
        return _key_value(store, query, partition)
    reader = next((read for kind, read in _READERS.items() if isinstance(store, kind)), _any_rows)
    return list(islice(_beyond(reader(store, query), query, partition), query.limit))


def _key_value(store: KeyValueStore, query: Query, partition: int) -> list[StoredRow]:
    decode = store.key_serde.decode
    if query.kind == "get":
        found = store.peek(query.key or b"")
        return [] if found is None else [StoredRow(query.key or b"", decode(query.key or b""), *found)]
    low, high, include_high = query.low, query.high, True
    if query.kind == "prefix":
        low, high, include_high = query.key, prefix_end(query.key or b""), False
    if query.after is not None:
        place, before = query.after
        # Of equal keys in several partitions the page ended with that of `before`.
        if query.reverse:
            high, include_high = place, partition < before
        else:
            low = place if partition > before else place + b"\0"
    rows = store.range(low, high, query.reverse, include_high, query.limit)
    return [StoredRow(key, decode(key), value, time) for key, value, time in islice(rows, query.limit)]


def _windows(store: WindowStore, query: Query) -> Iterator[StoredRow]:
    decode, size, reverse = store.key_serde.decode, store.window_size, query.reverse
    low, high = max(0, query.start), min(query.end, MAX_LONG)
    if query.after is not None:
        at = int.from_bytes(query.after[0][:8], "big")
        low, high = (low, min(high, at)) if reverse else (max(low, at), high)
    if low > high:
        return
    if query.key is None:
        rows = sorted(store.fetch_all(low, high), key=lambda row: (row.start, row.key), reverse=reverse)
    else:
        rows = store.fetch_range(query.key, low, high, reverse)
    for row in rows:
        key = WindowedKey(decode(row.key), row.start, min(row.start + size, MAX_LONG))
        yield StoredRow(pack_long(row.start) + row.key, key, row.value, row.timestamp)


def _sessions(store: SessionStore, query: Query) -> Iterator[StoredRow]:
    decode = store.key_serde.decode
    if query.key is None:
        rows = [row for row in store.all() if row.end >= query.start and row.start <= query.end]
    else:
        rows = store.find(query.key, query.start, query.end)
    rows.sort(key=lambda row: (row.end, row.start, row.key), reverse=query.reverse)
    for row in rows:
        place = TWO_LONGS.pack(row.end, row.start) + row.key
        yield StoredRow(place, WindowedKey(decode(row.key), row.start, row.end), row.value, None)


def _versions(store: VersionedStore, query: Query) -> Iterator[StoredRow]:
    decode, key = store.key_serde.decode, query.key
    if query.kind == "get":
        found = store.get(key or b"", query.as_of)
        if found is not None:
            yield StoredRow(key or b"", decode(key or b""), *found)
    elif query.kind == "versions":
        # The newest first, as in MultiVersionedKeyQuery; `reverse` turns that round.
        rows = list(store.versions(key or b"", query.start, query.end))
        for value, time in reversed(rows) if query.reverse else rows:
            place = pack_long(MAX_LONG - time) + (key or b"")
            yield StoredRow(place, decode(key or b""), value, time)
    else:
        latest = list(store.all())
        for raw, value, time in reversed(latest) if query.reverse else latest:
            yield StoredRow(raw, decode(raw), value, time)


def _any_rows(store: Any, query: Query) -> Iterator[StoredRow]:
    rows = [StoredRow(repr(key).encode(), key, value, None) for key, value in store.rows()]
    rows.sort(key=lambda row: row.place, reverse=query.reverse)
    return iter(rows)


_READERS: dict[type, Callable[[Any, Query], Iterator[StoredRow]]] = {
    WindowStore: _windows,
    SessionStore: _sessions,
    VersionedStore: _versions,
}


def _beyond(rows: Iterator[StoredRow], query: Query, partition: int) -> Iterator[StoredRow]:
    """Leave out what came on an earlier page."""
    after = query.after
    if after is None:
        return rows
    if query.reverse:
        return (row for row in rows if (row.place, partition) < after)
    return (row for row in rows if (row.place, partition) > after)
