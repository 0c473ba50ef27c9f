"""Reads of stores from outside their task: pages of rows, in the order of bytes, that leave caches as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from streamkit.errors import QueryError
from streamkit.record import Key, Value, WindowedKey
from streamkit.state.definitions import Store, StoreDef
from streamkit.state.layouts import MAX_LONG, TWO_LONGS, pack_long, prefix_end
from streamkit.state.stores.key_value import KeyValueStore
from streamkit.state.stores.session_store import SessionStore
from streamkit.state.stores.versioned import VersionedStore
from streamkit.state.stores.window_store import WindowStore


@dataclass(frozen=True)
class Query:
    """A query for a page of a store. Keys are bytes, times milliseconds; a kind ignores the fields that it does not use."""

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
    """Place and partition of the last row of the previous page."""


class StoredRow(NamedTuple):
    """A row, decoded; `place` orders rows and stays the same between pages."""

    place: bytes
    key: Key
    value: Value
    timestamp: int | None


def require_kind(definition: StoreDef, kind: str) -> None:
    """Raise QueryError unless a store answers this kind of query."""
    offered = definition.kind.queries
    if kind not in offered:
        raise QueryError(
            f"store {definition.name} is a {definition.type} store: it answers {', '.join(offered)}, not {kind}"
        )


def read(store: Store, query: Query, partition: int) -> list[StoredRow]:
    """Return a page of a store that holds `partition`; the caller prevents writes in the meantime.

    Raises QueryError for a kind of query that the store's type does not answer.
    """
    require_kind(store.definition, query.kind)
    if isinstance(store, KeyValueStore):
        return _key_value(store, query, partition)
    return list(islice(_beyond(_rows(store, query), query, partition), query.limit))


def _rows(store: Store, query: Query) -> Iterator[StoredRow]:
    if isinstance(store, WindowStore):
        return _windows(store, query)
    if isinstance(store, SessionStore):
        return _sessions(store, query)
    if isinstance(store, VersionedStore):
        return _versions(store, query)
    return _any_rows(store, query)


def _key_value(store: KeyValueStore, query: Query, partition: int) -> list[StoredRow]:
    decode = store.key_serde.decode
    if query.kind == "get":
        found = store.peek(query.key or b"")
        return [] if found is None else [StoredRow(query.key or b"", decode(query.key or b""), *found)]
    low, high, include_high = query.low, query.high, True
    if query.kind == "prefix":
        low, high, include_high = query.key, prefix_end(query.key or b""), False
    if query.after is not None:
        place, last_partition = query.after
        # Several partitions may have an equal key; the page ended with the row of `last_partition`.
        if query.reverse:
            high, include_high = place, partition < last_partition
        else:
            low = place if partition > last_partition else place + b"\0"
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
        # The newest first, as in MultiVersionedKeyQuery; `reverse` returns the oldest first.
        rows = list(store.versions(key or b"", query.start, query.end))
        for value, time in reversed(rows) if query.reverse else rows:
            place = pack_long(MAX_LONG - time) + (key or b"")
            yield StoredRow(place, decode(key or b""), value, time)
    else:
        latest = list(store.all())
        for raw, value, time in reversed(latest) if query.reverse else latest:
            yield StoredRow(raw, decode(raw), value, time)


def _any_rows(store: Store, query: Query) -> Iterator[StoredRow]:
    rows = [StoredRow(repr(key).encode(), key, value, None) for key, value in store.rows()]
    rows.sort(key=lambda row: row.place, reverse=query.reverse)
    return iter(rows)


def _beyond(rows: Iterator[StoredRow], query: Query, partition: int) -> Iterator[StoredRow]:
    """Leave out the rows of earlier pages."""
    after = query.after
    if after is None:
        return rows
    if query.reverse:
        return (row for row in rows if (row.place, partition) < after)
    return (row for row in rows if (row.place, partition) > after)
