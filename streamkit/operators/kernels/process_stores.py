"""Stores as custom processors see them: decoded keys and values in place of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from streamkit.errors import StreamkitError
from streamkit.record import WindowedKey


class VersionedRecord(NamedTuple):
    """A value of a versioned store and since when it is valid (ms)."""

    value: Any
    timestamp: int


class _Facade:
    def __init__(self, store: Any, context: Any):
        self._store = store
        self._context = context
        self._encode = store.key_serde.encode
        self._decode = store.key_serde.decode

    def _key(self, key: Any) -> bytes:
        if key is None:
            raise StreamkitError("a store's key may not be None")
        return self._encode(key)

    def _bound(self, key: Any) -> bytes | None:
        return None if key is None else self._encode(key)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        kind = type(self).__name__.removesuffix("Facade").lower()
        raise StreamkitError(f"a {kind} store has no {name}()")


class KeyValueFacade(_Facade):
    """A key_value store: get put put_if_absent delete range prefix all count."""

    def get(self, key: Any) -> Any:
        """Return the value, or None."""
        found = self._store.get(self._key(key))
        return None if found is None else found[0]

    def put(self, key: Any, value: Any) -> None:
        """Set a value; None deletes."""
        self._store.put(self._key(key), value, self._context.timestamp, None)

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Set a value where there is none; return the one that was there, or None."""
        found = self._store.put_if_absent(self._key(key), value, self._context.timestamp, None)
        return None if found is None else found[0]

    def delete(self, key: Any) -> Any:
        """Delete and return what was there, or None."""
        found = self._store.delete(self._key(key), self._context.timestamp, None)
        return None if found is None else found[0]

    def range(self, low: Any, high: Any, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        """Yield (key, value) from low to high, both included, in the order of the keys' bytes; None: no bound."""
        yield from self._rows(self._store.range(self._bound(low), self._bound(high), reverse))

    def prefix(self, prefix: Any, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        """Yield (key, value) of the keys whose bytes begin like those of `prefix`."""
        yield from self._rows(self._store.prefix(self._key(prefix), reverse))

    def all(self, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        """Yield every (key, value) in the order of the keys' bytes."""
        yield from self._rows(self._store.all(reverse))

    def count(self, reverse: bool = False) -> int:
        """Return how many keys there are."""
        return self._store.count()

    def _rows(self, rows: Any) -> Iterator[tuple[Any, Any]]:
        for row in list(rows):
            yield self._decode(row[0]), row[1]


class WindowFacade(_Facade):
    """A window store; starts in milliseconds."""

    def put(self, key: Any, value: Any, start: int) -> None:
        """Set the value of a window; None deletes."""
        self._store.put(self._key(key), start, value, self._context.timestamp, None)

    def fetch(self, key: Any, start: int, to: int | None = None) -> Any:
        """Return the value of one window, or with `to` an iterator of (start, value) from `start` to `to`, both included."""
        if to is None:
            found = self._store.fetch(self._key(key), start)
            return None if found is None else found[0]
        return iter([(row.start, row.value) for row in self._store.fetch_range(self._key(key), start, to)])

    def fetch_all(self, start: int, to: int) -> Iterator[tuple[WindowedKey, Any]]:
        """Yield (windowed key, value) of all windows that start from `start` to `to`, both included."""
        size = self._store.window_size
        for row in self._store.fetch_all(start, to):
            yield WindowedKey(self._decode(row.key), row.start, row.start + size), row.value


class SessionFacade(_Facade):
    """A session store; start and end in milliseconds, both included."""

    def put(self, key: Any, start: int, end: int, value: Any) -> None:
        """Set the value of a session; None deletes."""
        self._store.put(self._key(key), start, end, value, self._context.timestamp, None)

    def remove(self, key: Any, start: int, end: int) -> None:
        """Delete a session."""
        self._store.remove(self._key(key), start, end, self._context.timestamp, None)

    def fetch(self, key: Any) -> Iterator[tuple[WindowedKey, Any]]:
        """Yield (windowed key, value) of a key's sessions."""
        yield from self._rows(self._store.fetch(self._key(key)))

    def find(self, key: Any, earliest_end: int, latest_start: int) -> Iterator[tuple[WindowedKey, Any]]:
        """Yield the sessions of a key that end at or after `earliest_end` and start at or before `latest_start`."""
        yield from self._rows(self._store.find(self._key(key), earliest_end, latest_start))

    def _rows(self, rows: Any) -> Iterator[tuple[WindowedKey, Any]]:
        for row in list(rows):
            yield WindowedKey(self._decode(row.key), row.start, row.end), row.value


class VersionedFacade(_Facade):
    """A versioned store; timestamps in milliseconds."""

    def put(self, key: Any, value: Any, timestamp: int) -> None:
        """Set the value that holds from a time on; None: deleted from then on."""
        self._store.put(self._key(key), value, timestamp)

    def get(self, key: Any, as_of: int | None = None) -> VersionedRecord | None:
        """Return the latest value, or the one that held at `as_of`; None where there was none."""
        found = self._store.get(self._key(key)) if as_of is None else self._store.get(self._key(key), as_of)
        return None if found is None else VersionedRecord(found[0], found[1])


_FACADES = {
    "key_value": KeyValueFacade,
    "timestamped_key_value": KeyValueFacade,
    "window": WindowFacade,
    "session": SessionFacade,
    "versioned": VersionedFacade,
}


def facade(store: Any, context: Any) -> Any:
    """Return a store as processors see it."""
    return _FACADES[store.definition.type](store, context)
