"""Custom processors in Python: their context, and calling them (org.apache.kafka.streams.processor.api)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from streamkit import durations
from streamkit.errors import ConfigError, StreamkitError
from streamkit.record import Headers, Record
from streamkit.serdes.equality import same
from streamkit.state.views import processor_view
from streamkit.suggestions import did_you_mean, listed

Forward = Callable[[Any, Any, int, Any], None]

NOWHERE = (None, None, -1, -1)
"""The context of punctuators: no headers, no topic, partition and offset -1."""


class ProcessorContext:
    """What a custom processor may ask of its task; times in milliseconds (ProcessorContext).

    `topic`, `partition`, `offset`, `headers` are those of the current record; in a timer they are None and -1.
    """

    def __init__(self, rt: Any, node: int, stores: ProcessorStores, forward: Forward, children: dict[str, Forward]):
        self._rt = rt
        self._node = node
        self._shared = stores.shared
        self._stores = {name: processor_view(store, self._now) for name, store in stores.own.items()}
        self._forward = forward
        self._children = children
        self._fixed_key: tuple[Any] | None = None
        self._at: Any = NOWHERE
        self._timestamp = 0
        self.task_id: str = rt.task_id
        self.application_id: str = rt.application_id

    def store(self, name: str) -> Any:
        """Return one of the stores that the step names, or a global table's, to be read only. Raises StreamkitError."""
        found = self._stores.get(name)
        if found is None and name in self._shared:
            found = self._stores[name] = processor_view(self._rt.store(name), None)
        if found is None:
            raise StreamkitError(
                f"no store {name!r} is connected to this step{_known('its stores', name, self._stores)}"
            )
        return found

    def forward(self, record: Record, to: str | None = None) -> None:
        """Hand a record to all children, or to the one that is named. Raises StreamkitError for what is no record."""
        if not isinstance(record, Record):
            raise StreamkitError(f"forward takes a Record, not {type(record).__name__}; see record.replace(…)")
        if self._fixed_key is not None and not _same(record.key, self._fixed_key[0]):
            raise StreamkitError("process_values may not change the key; use process")
        _check(record)
        if to is None:
            target = self._forward
        else:
            found = self._children.get(to)
            if found is None:
                raise StreamkitError(f"no child is called {to!r}{_known('children', to, self._children)}")
            target = found
        target(record.key, record.value, record.timestamp, (list(record.headers) or None, *self._at[1:]))

    def schedule(
        self, interval: str | int, kind: str, callback: Callable[[int], Any], start: int | datetime | None = None
    ) -> Any:
        """Call back at an interval ("10s", milliseconds) of "stream_time" or "wall_clock"; the result has `cancel()`.

        `start`: milliseconds since the epoch, or a datetime with a time zone; calls come then and at whole intervals after
        it, also where it has passed (KIP-1146).
        """
        if kind not in ("stream_time", "wall_clock"):
            raise StreamkitError(f"schedule takes stream_time or wall_clock, not {kind!r}")
        if not callable(callback):
            raise StreamkitError(f"schedule takes a function to call back, not {type(callback).__name__}")
        try:
            milliseconds = durations.parse(interval, 1)
        except ConfigError as error:
            raise StreamkitError(f"schedule: the interval {interval!r} {error}") from None
        first = None if start is None else _start_ms(start)

        def fire(timestamp: int) -> None:
            saved = self._at, self._timestamp
            self._at, self._timestamp = NOWHERE, timestamp
            try:
                self.forward_all(callback(timestamp))
            finally:
                self._at, self._timestamp = saved

        return self._rt.schedule(self._node, milliseconds, kind, fire, first)

    def forward_all(self, result: Any) -> None:
        """Forward what a processor returned or yields: a record, several, or nothing."""
        if result is None:
            return
        if isinstance(result, Record):
            self.forward(result)
        elif isinstance(result, Iterable) and not isinstance(result, (str, bytes, Mapping)):
            for record in result:
                self.forward(record)
        else:
            raise StreamkitError(f"a processor returns records or nothing, not {type(result).__name__}")

    def commit(self) -> None:
        """Ask for a commit as soon as possible."""
        self._rt.request_commit()

    @property
    def topic(self) -> str | None:
        """The topic that the current record was read from."""
        return self._at[1]

    @property
    def partition(self) -> int:
        """The partition that the current record was read from."""
        return self._at[2]

    @property
    def offset(self) -> int:
        """The offset of the current record."""
        return self._at[3]

    @property
    def timestamp(self) -> int:
        """The time of the current record, or of the timer that fires; -1 for a row that a look-up did not find."""
        return self._timestamp

    @property
    def headers(self) -> Headers:
        """The headers of the current record."""
        return list(self._at[0] or ())

    @property
    def stream_time(self) -> int:
        """The highest timestamp that the task has seen."""
        return self._rt.stream_time()

    @property
    def wall_clock(self) -> int:
        """The task's clock."""
        return self._rt.wall_clock()

    def _now(self) -> tuple[int, Any]:
        # What the changelog record of a write gets, and what leaves a cache: the time and the context of the record in
        # hand, or of the timer that fires.
        return self._timestamp, self._at


class ProcessorStores:
    """Which stores a processor may use: its own by name, and the names of those that all processors may read."""

    __slots__ = ("own", "shared")

    def __init__(self, own: dict[str, Any], shared: tuple[str, ...]):
        self.own = own
        self.shared = shared


class UserCode:
    """An instance of the user's class, made when the task begins, or their function.

    `method`: what a class must have; `parameters`: its own, after which a function may take the context.
    """

    method: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]]

    def __init__(self, target: Any, context: Any):
        self._target = target
        self._context = context
        self._instance: Any = None
        self._call: Any = target
        takes_context = not inspect.isclass(target) and _takes_more_than(target, len(self.parameters))
        self._arguments: tuple[Any, ...] = (context,) if takes_context else ()

    def init(self) -> None:
        """Make the instance of a class, and call its init, if it has one. Raises StreamkitError, and as the user's code."""
        target = self._target
        if not inspect.isclass(target):
            return
        if not callable(getattr(target, self.method, None)):
            expected = f"{self.method}({', '.join(('self', *self.parameters))})"
            raise StreamkitError(f"class {target.__name__} has no method {expected}")
        self._instance = target()
        self._call = getattr(self._instance, self.method)
        init = getattr(self._instance, "init", None)
        if init is not None:
            init(self._context)

    def close(self) -> None:
        """Call its close, if it has one."""
        instance, self._instance = self._instance, None
        close = getattr(instance, "close", None)
        if close is not None:
            close()


class CustomProcessor(UserCode):
    """A processor of the user's."""

    method = "process"
    parameters = ("record",)

    def __init__(self, target: Any, context: ProcessorContext, fixed_key: bool):
        super().__init__(target, context)
        self._fixed_key = fixed_key

    def process(self, k: Any, v: Any, t: int, c: Any) -> None:
        """Hand a record to the processor and forward what it gives."""
        context = self._context
        saved = context._at, context._timestamp, context._fixed_key
        context._at, context._timestamp = c, t
        context._fixed_key = (k,) if self._fixed_key else None
        try:
            result = self._call(Record(k, v, t, tuple(c[0] or ())), *self._arguments)
            if result is not None:
                context.forward_all(result)
        finally:
            context._at, context._timestamp, context._fixed_key = saved


def _takes_more_than(function: Any, count: int) -> bool:
    try:
        return len(inspect.signature(function).parameters) > count
    except (TypeError, ValueError):
        return True


def _same(key: Any, other: Any) -> bool:
    # True is 1 and 1.0 is 1 for Python, but their bytes differ.
    return key is other or same(key, other)


def _check(record: Record) -> None:
    """Raise StreamkitError for what no record on the log can have (Record)."""
    time = record.timestamp
    if type(time) is not int or time < 0:
        raise StreamkitError(f"the timestamp of a record is {time!r}; expected milliseconds since 1970")
    if not record.headers:
        return
    for header in record.headers:
        fine = isinstance(header, (tuple, list)) and len(header) == 2 and isinstance(header[0], str)
        if not fine or not isinstance(header[1], (bytes, type(None))):
            raise StreamkitError(f"the header {header!r} of a record is wrong; expected (name, bytes) or (name, None)")


def _known(what: str, name: str, names: Iterable[str]) -> str:
    found = sorted(names)
    return did_you_mean(str(name), found, f"{what}: {listed(found)}")


def _start_ms(start: int | datetime) -> int:
    """Return the start of a timer in milliseconds since the epoch. Raises StreamkitError."""
    if isinstance(start, datetime):
        if start.utcoffset() is None:
            raise StreamkitError(f"schedule: the start {start} has no time zone")
        number = (start - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    elif isinstance(start, int) and not isinstance(start, bool):
        number = start
    else:
        raise StreamkitError(f"schedule: the start is {start!r}; expected milliseconds since the epoch, or a datetime")
    if number < 0:
        raise StreamkitError(f"schedule: the start {start} is before 1970")
    return number
