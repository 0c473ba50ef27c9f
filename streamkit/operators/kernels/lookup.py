"""Lookups of windowed tables by their keys' bytes (KStreamWindowAggregateValueGetter, KStreamSessionWindowAggregateValueGetter)."""

from __future__ import annotations

from struct import Struct
from typing import Any

_LONG = Struct(">q")
_TWO_LONGS = Struct(">qq")


class WindowLookup:
    """Gives (value, timestamp) for a key with its window's start, or None."""

    def __init__(self, store: Any):
        self._fetch = store.fetch

    def __call__(self, key: bytes) -> tuple[Any, int] | None:
        return self._fetch(key[:-8], _LONG.unpack(key[-8:])[0])


class SessionLookup:
    """Gives (value, end) for a key with its session's end and start, or None."""

    def __init__(self, store: Any):
        self._fetch = store.fetch_session

    def __call__(self, key: bytes) -> tuple[Any, int] | None:
        end, start = _TWO_LONGS.unpack(key[-16:])
        value = self._fetch(key[:-16], start, end)
        return None if value is None else (value, end)
