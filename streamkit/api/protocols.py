"""What processors, serdes and stores look like to Python, for annotations (org.apache.kafka.streams.processor.api)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Literal, Protocol

from streamkit.record import Headers, Record, WindowedKey


class Timer(Protocol):
    """A scheduled call (Cancellable)."""

    def cancel(self) -> None:
        """End it: it is not called again."""


class ProcessorContext(Protocol):
    """What a processor may use of its task; times are milliseconds (ProcessorContext).

    topic, partition, offset and headers are those of the record that is processed; in a timer they are None, -1, -1, [].
    timestamp is that of the record, or of the timer.
    """

    task_id: str
    application_id: str

    @property
    def topic(self) -> str | None: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def stream_time(self) -> int: ...
    @property
    def wall_clock(self) -> int: ...

    def store(self, name: str) -> Any:
        """Return a store of the step, or the store of a global table, which is read only."""

    def forward(self, record: Record, to: str | None = None) -> None:
        """Forward a record to all children, or to the one that is named."""

    def schedule(
        self,
        interval: str | int,
        kind: Literal["stream_time", "wall_clock"],
        callback: Callable[[int], Any],
        start: int | datetime | None = None,
    ) -> Timer:
        """Call back at an interval ("10s", or milliseconds); what the callback returns or yields is forwarded.

        `start`: a time (ms, or a datetime with a time zone) that all calls are aligned with (KIP-1146).
        """

    def commit(self) -> None:
        """Request a commit as soon as possible."""


class Processor(Protocol):
    """A class for `process: {call: module:Class}`; `init(context)` and `close()` may be added, and are called then.

    One object is made for each task. What `process` returns or yields is forwarded.
    """

    def process(self, record: Record) -> Record | Iterable[Record] | None:
        """Process one record."""


class Serde(Protocol):
    """An object for a serde `{call: module:object}`; `to_json` and `from_json` may be added for JSON Lines."""

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a value, which is never None."""

    def decode(self, data: bytes) -> Any:
        """Return the value of bytes."""


class KeyValueStore(Protocol):
    """A store of type key_value as processors see it; bounds are inclusive, order is that of the keys' bytes."""

    def get(self, key: Any) -> Any:
        """Return the value of a key, or None."""

    def put(self, key: Any, value: Any) -> None:
        """Set a value; None deletes."""

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Set a value unless there is one; return what was there."""

    def delete(self, key: Any) -> Any:
        """Delete a key; return what was there."""

    def range(self, low: Any = None, high: Any = None, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        """Return (key, value) from low to high."""

    def prefix(self, prefix: Any, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        """Return (key, value) of the keys whose bytes begin with those of `prefix`."""

    def all(self, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        """Return every (key, value)."""

    def count(self, reverse: bool = False) -> int:
        """Return the number of keys."""


class WindowStore(Protocol):
    """A store of type window as processors see it; times are window starts, in milliseconds."""

    def put(self, key: Any, value: Any, start: int) -> None:
        """Set the value of a window; None deletes."""

    def fetch(self, key: Any, low: int, high: int | None = None, reverse: bool = False) -> Any:
        """Return the value of one window, or with `high` the (start, value) of windows from low to high."""

    def fetch_all(self, low: int, high: int, reverse: bool = False) -> list[tuple[WindowedKey, Any]]:
        """Return (windowed key, value) of every window from low to high."""

    def all(self, reverse: bool = False) -> list[tuple[WindowedKey, Any]]:
        """Return (windowed key, value) of every window."""


class SessionStore(Protocol):
    """A store of type session as processors see it; starts and ends are inclusive, in milliseconds."""

    def put(self, key: Any, start: int, end: int, value: Any) -> None:
        """Set the value of a session; None deletes."""

    def remove(self, key: Any, start: int, end: int) -> None:
        """Delete a session."""

    def fetch(self, key: Any, reverse: bool = False) -> list[tuple[WindowedKey, Any]]:
        """Return (windowed key, value) of the sessions of a key."""

    def find(
        self, key: Any, earliest_end: int, latest_start: int, reverse: bool = False
    ) -> list[tuple[WindowedKey, Any]]:
        """Return (windowed key, value) of a key's sessions with end >= earliest_end and start <= latest_start."""


class VersionedStore(Protocol):
    """A store of type versioned as processors see it; times are milliseconds."""

    def put(self, key: Any, value: Any, timestamp: int) -> int:
        """Set the value from `timestamp` on (None deletes); return the time until which it is valid, -1 if the latest."""

    def get(self, key: Any, as_of: int | None = None) -> tuple[Any, int] | None:
        """Return (value, timestamp) of the latest version, or of the one valid at `as_of`."""

    def delete(self, key: Any, timestamp: int) -> tuple[Any, int] | None:
        """Delete from `timestamp` on; return the (value, timestamp) that was valid then."""
