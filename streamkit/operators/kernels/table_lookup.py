"""Lookups of windowed tables by their keys' bytes (KStreamWindowAggregateValueGetter, KStreamSessionWindowAggregateValueGetter)."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from streamkit.record import Value

if TYPE_CHECKING:
    from streamkit.state.stores.session_store import SessionStore
    from streamkit.state.stores.window_store import WindowStore

_LONG = Struct(">q")
_TWO_LONGS = Struct(">qq")


class WindowLookup:
    """Returns (value, timestamp) for a key with its window's start, or None."""

    def __init__(self, store: WindowStore):
        self._fetch = store.fetch

    def __call__(self, key: bytes) -> tuple[Value, int] | None:
        return self._fetch(key[:-8], _LONG.unpack(key[-8:])[0])


class SessionLookup:
    """Returns (value, end) for a key with its session's end and start, or None."""

    def __init__(self, store: SessionStore):
        self._fetch = store.fetch_session

    def __call__(self, key: bytes) -> tuple[Value, int] | None:
        end, start = _TWO_LONGS.unpack(key[-16:])
        value = self._fetch(key[:-16], start, end)
        return None if value is None else (value, end)
