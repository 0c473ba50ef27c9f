"""Protocols of processors, serdes and stores, for annotations (org.apache.kafka.streams.processor.api); functions as processors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from logging import Logger, LoggerAdapter
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

from streamkit.record import Headers, Record, WindowedKey
from streamkit.record import Operand as Key
from streamkit.record import Operand as Value


class Timer(Protocol):
    """A scheduled call (Cancellable)."""

    def cancel(self) -> None:
        """Cancel it: it is not called again."""


class Counter(Protocol):
    """A metric that grows; in /metrics `streamkit_user_NAME_total`."""

    def add(self, amount: float = 1) -> None:
        """Add an amount of at least 0."""


class Gauge(Protocol):
    """A metric that rises and falls; in /metrics `streamkit_user_NAME`."""

    def set(self, value: float) -> None:
        """Set the value."""

    def add(self, amount: float = 1) -> None:
        """Add an amount, which may be negative."""


class Stopwatch(Protocol):
    """A metric of durations; in /metrics `streamkit_user_NAME_seconds_count` and `streamkit_user_NAME_seconds_sum`."""

    def record(self, seconds: float) -> None:
        """Add a duration."""

    def time(self) -> AbstractContextManager[None]:
        """Add the duration of a `with` block."""


class UserMetrics(Protocol):
    """The metrics of the user's code in a task; equal names are the same metric."""

    def counter(self, name: str) -> Counter:
        """Return the counter of a name."""

    def gauge(self, name: str) -> Gauge:
        """Return the gauge of a name."""

    def timer(self, name: str) -> Stopwatch:
        """Return the timer of a name."""


class ProcessorContext(Protocol):
    """The services of the task that a processor uses; times are milliseconds (ProcessorContext).

    topic, partition, offset and headers belong to the current record; in a timer they are None, -1, -1, [].
    timestamp is that of the record, or of the timer.
    """

    task_id: str
    application_id: str
    log: LoggerAdapter[Logger]
    """The log `streamkit.user`; lines begin with the task and the node."""
    metrics: UserMetrics

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
        """Return a store of the step, or the store of a global table, which is read only.

        It is one of the protocols below; a processor annotates it with the one of its declaration.
        """

    def forward(self, record: Record, to: str | None = None) -> None:
        """Forward a record to all children, or to the one that is named."""

    def schedule(
        self,
        interval: str | int,
        kind: Literal["stream_time", "wall_clock"],
        callback: Callable[[int], object],
        start: int | datetime | None = None,
    ) -> Timer:
        """Call back at an interval ("10s", or milliseconds); records that the callback returns or yields are forwarded.

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


class Lookup(Protocol):
    """A function, or a class with this method, for `enrich`; `async` or not.

    A class is created once per task; `init(context)` and `close()` may be added, and may be async.
    """

    def __call__(self, argument: Value) -> Value:
        """Return the result for an argument, with `batch` a list of results for a list of arguments."""


class Transformer(Protocol):
    """A class for `process_values` on a table; `init(context)` and `close()` may be added."""

    def transform(self, key: Key, value: Value) -> Value:
        """Return the new value of a row, None to delete it; `value` is None for a deleted row."""


class BatchFunction(Protocol):
    """A function, or a class with this method, for `{call: …, batch: N}` of `map_values`, `filter` and `flat_map_values`.

    A class is created once per task; `init(context)` and `close()` may be added.
    """

    def __call__(self, keys: list[Key], values: Value) -> Value:
        """Return a result for each record, as a list or as columns; a result may be an exception.

        values: a list, or with `as` columns of that library.
        """


class BatchProcessor(Protocol):
    """A class for `process_values: {call: …, batch: N}`; `init(context)` and `close()` may be added."""

    def process(self, records: list[Record]) -> Sequence[Record | Iterable[Record] | Exception | None]:
        """Return, for each record, the records to forward; with `as`, the columns of the values are a second argument."""


class Serde(Protocol):
    """An object for a serde `{call: module:object}`; `to_json` and `from_json` may be added for JSON Lines."""

    def encode(self, value: Value) -> bytes:
        """Return the bytes of a value, which is never None."""

    def decode(self, data: bytes) -> Value:
        """Return the value of bytes."""


class KeyValueStore(Protocol):
    """A store of type key_value as processors see it; bounds are inclusive, and rows are in the order of the keys' bytes."""

    def get(self, key: Key) -> Value:
        """Return the value of a key, or None."""

    def put(self, key: Key, value: Value) -> None:
        """Set a value; None deletes."""

    def put_if_absent(self, key: Key, value: Value) -> Value:
        """Set a value unless the key has one; return the previous value."""

    def delete(self, key: Key) -> Value:
        """Delete a key; return its value."""

    def range(self, low: Key = None, high: Key = None, reverse: bool = False) -> Iterator[tuple[Key, Value]]:
        """Return (key, value) from low to high."""

    def prefix(self, prefix: Key, reverse: bool = False) -> Iterator[tuple[Key, Value]]:
        """Return (key, value) of all keys whose bytes begin with the bytes of `prefix`."""

    def all(self, reverse: bool = False) -> Iterator[tuple[Key, Value]]:
        """Return every (key, value)."""

    def count(self, reverse: bool = False) -> int:
        """Return the number of keys."""


class WindowStore(Protocol):
    """A store of type window as processors see it; times are window starts, in milliseconds."""

    def put(self, key: Key, value: Value, start: int) -> None:
        """Set the value of a window; None deletes."""

    def fetch(self, key: Key, low: int, high: int | None = None, reverse: bool = False) -> Value:
        """Return the value of one window, or with `high` the (start, value) of windows from low to high."""

    def fetch_all(self, low: int, high: int, reverse: bool = False) -> list[tuple[WindowedKey, Value]]:
        """Return (windowed key, value) of every window from low to high."""

    def all(self, reverse: bool = False) -> list[tuple[WindowedKey, Value]]:
        """Return (windowed key, value) of every window."""


class SessionStore(Protocol):
    """A store of type session as processors see it; starts and ends are inclusive, in milliseconds."""

    def put(self, key: Key, start: int, end: int, value: Value) -> None:
        """Set the value of a session; None deletes."""

    def remove(self, key: Key, start: int, end: int) -> None:
        """Delete a session."""

    def fetch(self, key: Key, reverse: bool = False) -> list[tuple[WindowedKey, Value]]:
        """Return (windowed key, value) of the sessions of a key."""

    def find(
        self, key: Key, earliest_end: int, latest_start: int, reverse: bool = False
    ) -> list[tuple[WindowedKey, Value]]:
        """Return (windowed key, value) of a key's sessions with end >= earliest_end and start <= latest_start."""


class VersionedStore(Protocol):
    """A store of type versioned as processors see it; times are milliseconds."""

    def put(self, key: Key, value: Value, timestamp: int) -> int:
        """Set the value from `timestamp` on (None deletes); return the time until which it is valid, -1 if the latest."""

    def get(self, key: Key, as_of: int | None = None) -> tuple[Value, int] | None:
        """Return (value, timestamp) of the latest version, or of the one valid at `as_of`."""

    def delete(self, key: Key, timestamp: int) -> tuple[Value, int] | None:
        """Delete from `timestamp` on; return the (value, timestamp) that was valid then."""


# Functions as processors with stores and timers: the decorator `processor`.


Clock: TypeAlias = Literal["stream_time", "wall_clock"]


class FunctionProcessor:
    """A processor that calls a function with each record and the context; the function returns or yields records.

    stores: the stores that the step gets if it names none; timers: interval, kind and function of each.
    """

    function: ClassVar[Callable[..., object]]
    stores: ClassVar[tuple[str, ...]] = ()
    timers: ClassVar[list[tuple[str | int, Clock, Callable[..., object]]]] = []

    def init(self, context: ProcessorContext) -> None:
        """Schedule the timers."""
        self.context = context
        for interval, kind, function in type(self).timers:
            context.schedule(interval, kind, partial(_call, function, context))

    def process(self, record: Record) -> object:
        """Return the records that the function forwards."""
        return type(self).function(record, self.context)

    @classmethod
    def every(
        cls, interval: str | int, kind: Clock = "stream_time"
    ) -> Callable[[Callable[..., object]], Callable[..., object]]:
        """Decorate a function that is called with the time and the context at an interval of "stream_time" or "wall_clock"."""

        def schedule(function: Callable[..., object]) -> Callable[..., object]:
            cls.timers.append((interval, kind, function))
            return function

        return schedule


def _call(function: Callable[..., object], context: ProcessorContext, timestamp: int) -> object:
    return function(timestamp, context)


class ProcessorDecorator:
    """Makes the class of a function."""

    def __init__(self, stores: tuple[str, ...]):
        self._stores = stores

    def __call__(self, function: Callable[..., object]) -> type[FunctionProcessor]:
        members: dict[str, object] = {
            "__doc__": function.__doc__,
            "__module__": function.__module__,
            "__qualname__": function.__qualname__,
            "function": staticmethod(function),
            "stores": self._stores,
            "timers": [],
        }
        return type(function.__name__, (FunctionProcessor,), members)


def processor(*, stores: tuple[str, ...] | list[str] = ()) -> ProcessorDecorator:
    """Decorate a function of a record and the context, for `process`; it returns or yields the records to forward.

    stores: the names of the stores that it uses.
    """
    return ProcessorDecorator(tuple(stores))
