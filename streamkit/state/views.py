"""Stores as custom processors use them: keys and values are objects, times come from the current record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, NoReturn, TypeAlias, TypeVar, TypeVarTuple

from streamkit.errors import SerdeError, StateError, StreamkitError
from streamkit.record import Key, RecordContext, Value, WindowedKey
from streamkit.serdes.formats.primitives import StringSerde
from streamkit.state.definitions import Store, imported
from streamkit.state.layouts import MAX_LONG, prefix_end
from streamkit.state.stores.changelogged import MapStore
from streamkit.state.stores.key_value import KeyValueStore, Row
from streamkit.state.stores.session_store import SessionStore
from streamkit.state.stores.versioned import VersionedStore
from streamkit.state.stores.window_store import WindowStore

StoreT = TypeVar("StoreT", bound=MapStore)
Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

_SHORT = 256
"""Characters of a text that is below any limit of sizes, and does not count for a round."""

Now = Callable[[], tuple[int, RecordContext]]
"""Returns (timestamp in ms, context) of the record that is being processed."""


class View(Generic[StoreT]):
    """Base class of the views, with error messages for wrong use."""

    kind = ""

    def __init__(self, store: StoreT, now: Now):
        self._store = store
        self._now = now
        self._encoded = store.key_serde.encode

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        methods = ", ".join(
            sorted(method for method in dir(type(self)) if not method.startswith("_") and method != "kind")
        )
        raise AttributeError(f"store {self._store.name!r} is a {self.kind} store and has no {name!r}; it has {methods}")

    def _raw(self, key: Key) -> bytes:
        """Return the bytes of a key. Raises SerdeError."""
        try:
            data = self._encoded(key) if key is not None else None
        except SerdeError as error:
            raise SerdeError(f"store {self._store.name!r}, key: {error}") from error
        if data is None:
            raise SerdeError(f"store {self._store.name!r}: a key must not be null")
        return data

    def _write(self, method: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Call a store's method that encodes a value. Raises SerdeError that names the store."""
        try:
            return method(*arguments)
        except SerdeError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: SerdeError) -> SerdeError:
        return SerdeError(f"store {self._store.name!r}, value: {error}")

    def _time(self, time: object) -> int:
        """Return a time that a processor passed. Raises StreamkitError if it is not an int of milliseconds."""
        if type(time) is not int or not -MAX_LONG <= time <= MAX_LONG:
            raise StreamkitError(f"store {self._store.name!r}: {time!r} is no time; expected milliseconds")
        return time


def _text_encoder(encode: Callable[[Key], bytes]) -> Callable[[Key], bytes]:
    """Return `encode` for keys of text; most are short and well-formed, and need none of its calls."""

    def encode_text(key: Key) -> bytes:
        if type(key) is str and len(key) < _SHORT:
            try:
                return key.encode()
            except UnicodeEncodeError:
                pass
        return encode(key)

    return encode_text


class KeyValueView(View[KeyValueStore]):
    """A key_value store: reads see every write at once; bounds are inclusive."""

    kind = "key_value"

    def __init__(self, store: KeyValueStore, now: Now):
        super().__init__(store, now)
        self._encode = _text_encoder(self._raw) if type(store.key_serde) is StringSerde else self._raw
        self._decode = store.key_serde.decode

    def get(self, key: Key) -> Value:
        """Return the value of a key, or None."""
        row = self._store.get(self._encode(key))
        return None if row is None else row[0]

    def put(self, key: Key, value: Value) -> None:
        """Set a value; None deletes."""
        data, (time, context) = self._encode(key), self._now()
        try:
            # `_write`, without its calls.
            self._store.put(data, value, time, context)
        except SerdeError as error:
            raise self._refusal(error) from error

    def put_if_absent(self, key: Key, value: Value) -> Value:
        """Set a value unless there is one; return its previous value."""
        before = self._write(self._store.put_if_absent, self._encode(key), value, *self._now())
        return None if before is None else before[0]

    def delete(self, key: Key) -> Value:
        """Delete a key; return its previous value."""
        before = self._store.delete(self._encode(key), *self._now())
        return None if before is None else before[0]

    def range(self, low: Key = None, high: Key = None, reverse: bool = False) -> Iterator[tuple[Key, Value]]:
        """Yield (key, value) from low to high in byte order of keys; None: unbounded."""
        first = None if low is None else self._encode(low)
        last = None if high is None else self._encode(high)
        return self._rows(self._store.range(first, last, reverse, use=True))

    def prefix(self, prefix: Key, reverse: bool = False) -> Iterator[tuple[Key, Value]]:
        """Yield (key, value) of all keys whose bytes begin with the bytes of `prefix`."""
        low = self._encode(prefix)
        return self._rows(self._store.range(low, prefix_end(low), reverse, include_high=False, use=True))

    def all(self, reverse: bool = False) -> Iterator[tuple[Key, Value]]:
        """Yield all (key, value) in byte order of keys."""
        return self._rows(self._store.range(None, None, reverse, use=True))

    def count(self, reverse: bool = False) -> int:
        """Return how many keys there are."""
        return self._store.count()

    def _rows(self, rows: Iterator[Row]) -> Iterator[tuple[Key, Value]]:
        return ((self._decode(key), value) for key, value, _ in rows)


class WindowView(View[WindowStore]):
    """A window store."""

    kind = "window"

    def put(self, key: Key, value: Value, start: int) -> None:
        """Set the value of a window; None deletes."""
        self._write(self._store.put, self._raw(key), self._time(start), value, *self._now())

    def fetch(
        self, key: Key, low: int, high: int | None = None, reverse: bool = False
    ) -> Value | list[tuple[int, Value]]:
        """Return the value of one window, or with `high` the (start, value) of windows that start from low to high."""
        raw = self._raw(key)
        if high is None:
            row = self._store.fetch(raw, low)
            return None if row is None else row[0]
        return [(start, value) for _, start, value, _ in self._store.walk(raw, low, high, reverse)]

    def fetch_all(self, low: int, high: int, reverse: bool = False) -> list[tuple[WindowedKey, Value]]:
        """Return (windowed key, value) of all windows that start from low to high."""
        decode, size = self._store.key_serde.decode, self._store.window_size
        return [
            (WindowedKey(decode(row.key), row.start, min(row.start + size, MAX_LONG)), row.value)
            for row in self._store.fetch_all(low, high, reverse, use=True)
        ]

    def all(self, reverse: bool = False) -> list[tuple[WindowedKey, Value]]:
        """Return (windowed key, value) of all windows."""
        return self.fetch_all(0, MAX_LONG, reverse)


class SessionView(View[SessionStore]):
    """A session store; starts and ends are both included."""

    kind = "session"

    def put(self, key: Key, start: int, end: int, value: Value) -> None:
        """Set the value of a session; None deletes."""
        self._write(self._store.put, self._raw(key), self._time(start), self._time(end), value, *self._now())

    def remove(self, key: Key, start: int, end: int) -> None:
        """Delete a session."""
        self._store.remove(self._raw(key), self._time(start), self._time(end), *self._now())

    def fetch(self, key: Key, reverse: bool = False) -> list[tuple[WindowedKey, Value]]:
        """Return (windowed key, value) of all sessions of a key."""
        return self.find(key, 0, MAX_LONG, reverse)

    def find(
        self, key: Key, earliest_end: int, latest_start: int, reverse: bool = False
    ) -> list[tuple[WindowedKey, Value]]:
        """Return (windowed key, value) of a key's sessions with end >= earliest_end and start <= latest_start.

        Raises StreamkitError if Kafka Streams can't search: from a segment or more before the epoch in a cached store on disk.
        """
        searched_from = self._store.searched_from
        if earliest_end < searched_from:
            raise StreamkitError(
                f"store {self._store.name!r}: earliest_end is {earliest_end} ms, and a search of a cached store can't begin "
                f"before {searched_from} ms, as in Kafka Streams; no session ends before 0"
            )
        rows = self._store.find(self._raw(key), earliest_end, latest_start, reverse, use=True)
        return [(WindowedKey(key, row.start, row.end), row.value) for row in rows]


class VersionedView(View[VersionedStore]):
    """A versioned store."""

    kind = "versioned"

    def put(self, key: Key, value: Value, timestamp: int) -> int:
        """Set the value from `timestamp` on (None deletes); see VersionedStore.put for the result."""
        self._now()
        return self._write(self._store.put, self._raw(key), value, self._time(timestamp))

    def delete(self, key: Key, timestamp: int) -> tuple[Value, int] | None:
        """Delete from `timestamp` on; return the (value, timestamp) that was valid then."""
        self._now()
        return self._store.delete(self._raw(key), self._time(timestamp))

    def get(self, key: Key, as_of: int | None = None) -> tuple[Value, int] | None:
        """Return (value, timestamp) of the latest version, or of the one valid at `as_of`."""
        return self._store.get(self._raw(key), as_of)


ProcessorStore: TypeAlias = KeyValueView | WindowView | SessionView | VersionedView
"""A store as a custom processor uses it."""


def _refusing(store: Store) -> Now:
    """Return a stand-in for the timestamps of writes, which raises because processors may only read the store."""

    def refuse() -> NoReturn:
        raise StreamkitError(f"store {store.name!r} is kept from its topic; processors can only read it")

    return refuse


def processor_view(store: Store, now: Now | None) -> ProcessorStore:
    """Return a store as custom processors use it; without `now` it is read-only (AbstractReadOnlyDecorator).

    Raises StateError for a kind that they can't use.
    """
    kind = store.definition.kind
    if kind.view is None:
        raise StateError(f"Store {store.name} is {kind.title}, which processors can't use")
    view: Callable[[Store, Now], ProcessorStore] = imported(kind.view)
    return view(store, _refusing(store) if now is None else now)
