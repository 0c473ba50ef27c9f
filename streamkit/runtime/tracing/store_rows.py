"""The rows of a store that a record of a key may change, read without an effect on the store."""

from __future__ import annotations

import json
from itertools import islice

from streamkit.errors import StreamkitError
from streamkit.record import Key, Value
from streamkit.runtime.records import row_writer
from streamkit.serdes.plain import Json
from streamkit.state.reading import Query, read
from streamkit.state.store_interface import Store

MOST = 1000
"""Rows of a store that are compared where its rows can't be read by key."""
_BY_KEY = ("versions", "windows", "sessions", "get")

Rows = dict[str, tuple[Json, Json]]
"""Keys and values in JSON form, by the text of the key."""


def rows_of_key(store: Store, key: Key, *, any_key: bool) -> Rows | None:
    """Return the rows of a key, or all rows where `any_key` or where the store has no query by key; None for too many."""
    kind = next((each for each in _BY_KEY if each in store.definition.kind.queries), None)
    if any_key or kind is None or key is None:
        rows = list(islice(store.rows(), MOST + 1))
        return _json(store, rows) if len(rows) <= MOST else None
    try:
        raw = store.definition.key_serde.encode(key)
    except (StreamkitError, TypeError, ValueError, AttributeError):
        return {}  # the node uses other keys than the record's, as a join by another key does
    found = read(store, Query(kind, key=raw, limit=MOST), 0)
    return _json(
        store, [(row.key, row.value) for row in found], [row.timestamp for row in found] if kind == "versions" else None
    )


def _json(store: Store, rows: list[tuple[Key, Value]], times: list[int | None] | None = None) -> Rows:
    write = row_writer(store.definition)
    found: Rows = {}
    for number, (key, value) in enumerate(rows):
        key_json, value_json = write(key, value)
        if times is not None:
            key_json = {"key": key_json, "timestamp": times[number]}
        found[json.dumps(key_json, sort_keys=True)] = key_json, value_json
    return found
