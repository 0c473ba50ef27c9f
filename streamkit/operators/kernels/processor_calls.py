"""Runs the user's Python code: custom processors, transformers of tables' values, and processors of global stores."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from streamkit import durations
from streamkit.errors import ConfigError, StreamkitError
from streamkit.record import FullContext, Headers, Key, Record, RecordContext, Value
from streamkit.serdes.serde import same
from streamkit.state.definitions import Store
from streamkit.state.layouts import MAX_LONG
from streamkit.state.views import ProcessorStore, processor_view
from streamkit.suggestions import did_you_mean, listed
from streamkit.user_metrics import MetricT, UserMetrics

if TYPE_CHECKING:
    from streamkit.operators.core.task_services import Cancellable, Forward, TaskServices


NOWHERE: FullContext = (None, None, -1, -1)
"""The context of punctuators: no headers, no topic, partition and offset -1."""


class ProcessorContext:
    """The task's services that a custom processor may use; times in milliseconds (ProcessorContext).

    `topic`, `partition`, `offset` and `headers` belong to the current record. In a timer, `partition` and `offset` are -1, and the others None.
    """

    def __init__(
        self,
        rt: TaskServices,
        node: int,
        stores: ProcessorStores,
        forward: Forward,
        children: dict[str, Forward],
    ):
        self._rt = rt
        self._node = node
        self._read_only = stores.shared
        self._stores = {name: processor_view(store, self._now) for name, store in stores.own.items()}
        self._forward = forward
        self._children = children
        self._fixed_key: tuple[Key] | None = None
        self._record_context = NOWHERE
        self._timestamp = 0
        self.task_id: str = rt.task_id
        self.application_id: str = rt.application_id
        self.metrics = UserMetrics(rt.metrics)
        self.log = rt.log(node)
        self.place = rt.place_of_node(node)

    def store(self, name: str) -> ProcessorStore:
        """Return a store that the step names, or the read-only store of a global table. Raises StreamkitError."""
        store = self._stores.get(name)
        if store is None and name in self._read_only:
            store = self._stores[name] = processor_view(self._rt.store(name), None)
        if store is None:
            raise StreamkitError(
                f"no store {name!r} is connected to this step{_known_names('its stores', name, self._stores)}"
            )
        return store

    def forward(self, record: Record, to: str | None = None) -> None:
        """Forward a record to all children, or to the child with the name `to`. Raises StreamkitError for any other object."""
        if not isinstance(record, Record):
            raise StreamkitError(f"forward takes a Record, not {type(record).__name__}; see record.replace(…)")
        if self._fixed_key is not None and not _same_key(record.key, self._fixed_key[0]):
            raise StreamkitError("process_values may not change the key; use process")
        _check_record(record)
        if to is None:
            target = self._forward
        else:
            child = self._children.get(to)
            if child is None:
                raise StreamkitError(f"no child is called {to!r}{_known_names('children', to, self._children)}")
            target = child
        context = self._record_context
        if record.headers or context[0]:
            context = (list(record.headers) or None, *context[1:])
        target(record.key, record.value, record.timestamp, context)

    def schedule(
        self, interval: str | int, kind: str, callback: Callable[[int], object], start: int | datetime | None = None
    ) -> Cancellable:
        """Call back at an interval ("10s", or milliseconds) of "stream_time" or "wall_clock"; the result has `cancel()`.

        `start`: milliseconds since the epoch, or a datetime with a time zone. The callback runs at that time and at
        whole intervals after it, even if the time has passed (KIP-1146).
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
            saved = self._record_context, self._timestamp
            self._record_context, self._timestamp = NOWHERE, timestamp
            try:
                self.forward_all(callback(timestamp))
            finally:
                self._record_context, self._timestamp = saved

        return self._rt.schedule(self._node, milliseconds, kind, fire, first)

    def forward_all(self, result: object) -> None:
        """Forward the result of a processor: a record, several (also from a generator), or nothing."""
        if result is None:
            return
        if isinstance(result, Record):
            self.forward(result)
        elif isinstance(result, Iterable) and not isinstance(result, (str, bytes, Mapping)):
            for record in result:
                self.forward(record)
        else:
            raise StreamkitError(f"a processor returns records or nothing, not {type(result).__name__}")

    def step_metric(self, kind: type[MetricT], group: str, name: str) -> MetricT:
        """Return one of streamkit's own metrics of the step."""
        return self._rt.metrics.of(kind, name, group, self._rt.node_name(self._node))

    @contextmanager
    def at(self, c: FullContext, t: int, key: tuple[Key] | None) -> Iterator[None]:
        """Make a record the current one while the block runs. `key`: the key that forwarded records must have."""
        saved = self._record_context, self._timestamp, self._fixed_key
        self._record_context, self._timestamp, self._fixed_key = c, t, key
        try:
            yield
        finally:
            self._record_context, self._timestamp, self._fixed_key = saved

    def commit(self) -> None:
        """Request a commit as soon as possible."""
        self._rt.request_commit()

    @property
    def topic(self) -> str | None:
        """The topic that the current record was read from."""
        return self._record_context[1]

    @property
    def partition(self) -> int:
        """The partition that the current record was read from."""
        return self._record_context[2]

    @property
    def offset(self) -> int:
        """The offset of the current record."""
        return self._record_context[3]

    @property
    def timestamp(self) -> int:
        """The time of the current record, or of the timer that fires; -1 if a lookup did not find a row."""
        return self._timestamp

    @property
    def headers(self) -> Headers:
        """The headers of the current record."""
        return list(self._record_context[0] or ())

    @property
    def stream_time(self) -> int:
        """The highest timestamp that the task has read (stream time)."""
        return self._rt.stream_time()

    @property
    def wall_clock(self) -> int:
        """The task's clock."""
        return self._rt.wall_clock()

    def _now(self) -> tuple[int, RecordContext]:
        # A write's changelog record, and a record that leaves a cache, get the time and the context of the current record, or
        # of the timer that fires.
        return self._timestamp, self._record_context


class ProcessorStores:
    """The stores that a processor may use: its own by name, and the names of those that all processors may read."""

    __slots__ = ("own", "shared")

    def __init__(self, own: dict[str, Store], shared: tuple[str, ...]):
        self.own = own
        self.shared = shared


class UserCode:
    """An instance of the user's class, which is created when the task begins, or the user's function.

    `method`: the method that a class must have; `parameters`: the method's parameters. A function may take the context
    after them.
    """

    method: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]]

    def __init__(self, target: Callable[..., Any], context: ProcessorContext):
        self._target = target
        self._context = context
        self._instance: object = None
        # The user's code may return values of any type.
        self._function: Callable[..., Any] = target
        self._class = _class_of(target)
        takes_context = self.takes_more_than(len(self.parameters))
        self._arguments: tuple[ProcessorContext, ...] = (context,) if takes_context else ()

    def takes_more_than(self, count: int) -> bool:
        """Return whether the target is a function that takes more than `count` positional arguments."""
        return self._class is None and _takes_more_than(self._target, count)

    @property
    def name(self) -> str:
        """The name of the class or the function, for messages."""
        named = self._target.func if isinstance(self._target, partial) else self._target
        return getattr(named, "__name__", None) or repr(named)

    def init(self) -> None:
        """Create the instance of a class and call its `init`, if any. Raises StreamkitError, and errors of the user's code."""
        if self._class is None:
            return
        if not any(self.method in vars(base) for base in self._class.__mro__ if base is not object):
            expected = f"{self.method}({', '.join(('self', *self.parameters))})"
            raise StreamkitError(f"class {self._class.__name__} has no method {expected}")
        self._instance = self._target()
        self._function = getattr(self._instance, self.method)
        init = getattr(self._instance, "init", None)
        if init is not None:
            self.finish(init(self._context))

    def finish(self, result: object) -> None:
        """Handle the result of an object's `init` or `close`."""

    def close(self) -> None:
        """Call the instance's `close` if it has one."""
        instance, self._instance = self._instance, None
        close = getattr(instance, "close", None)
        if close is not None:
            self.finish(close())


class CustomProcessor(UserCode):
    """The user's processor."""

    method = "process"
    parameters = ("record",)

    def __init__(self, target: Callable[..., Any], context: ProcessorContext, fixed_key: bool):
        super().__init__(target, context)
        self._fixed_key = fixed_key

    def process(self, k: Key, v: Value, t: int, c: FullContext) -> None:
        """Call the processor with a record and forward its result."""
        context = self._context
        saved = context._record_context, context._timestamp, context._fixed_key
        context._record_context, context._timestamp = c, t
        context._fixed_key = (k,) if self._fixed_key else None
        try:
            result = self._function(Record(k, v, t, tuple(c[0] or ())), *self._arguments)
            if result.__class__ is Record:
                context.forward(result)
            elif result is not None:
                context.forward_all(result)
        finally:
            context._record_context, context._timestamp, context._fixed_key = saved


def _class_of(target: Callable[..., object]) -> type | None:
    """Return the class that a reference names, with or without arguments; None for a function."""
    named = target.func if isinstance(target, partial) else target
    return named if inspect.isclass(named) else None


def _takes_more_than(function: Callable[..., object], count: int) -> bool:
    """Return whether a function takes more than `count` positional arguments."""
    if isinstance(function, partial):
        bound: Mapping[str, object] = function.keywords
        function = function.func
    else:
        bound = {}
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    return (
        len([parameter for parameter in parameters if parameter.kind not in by_name and parameter.name not in bound])
        > count
    )


def _same_key(key: Key, other: Key) -> bool:
    # True, 1 and 1.0 are equal in Python, but their bytes differ.
    return key is other or same(key, other)


def _has_surrogates(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)


def _check_record(record: Record) -> None:
    """Raise StreamkitError for a timestamp or headers that a record on the log can't have (Record)."""
    time = record.timestamp
    if type(time) is not int or not 0 <= time <= MAX_LONG:
        raise StreamkitError(f"the timestamp of a record is {time!r}; expected milliseconds since 1970")
    if not record.headers:
        return
    for header in record.headers:
        fine = isinstance(header, (tuple, list)) and len(header) == 2 and isinstance(header[0], str)
        if not fine or not isinstance(header[1], (bytes, type(None))) or _has_surrogates(header[0]):
            raise StreamkitError(f"the header {header!r} of a record is wrong; expected (name, bytes) or (name, None)")


def _known_names(kind: str, name: str, names: Iterable[str]) -> str:
    known = sorted(names)
    return did_you_mean(str(name), known, f"{kind}: {listed(known)}")


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


# Python callables that compute a table's values (ValueTransformerWithKey): their context and how they are called.

UNKNOWN = -1
"""The timestamp of a row that does not exist (ConsumerRecord.NO_TIMESTAMP)."""


class TransformContext(ProcessorContext):
    """The context of `process_values` on a table, without `forward` (ForwardingDisabledProcessorContext)."""

    def __init__(self, rt: TaskServices, node: int, stores: ProcessorStores):
        super().__init__(rt, node, stores, _refuse_forward, {})

    def forward(self, record: Record, to: str | None = None) -> NoReturn:
        """Raise StreamkitError, because a table has one value per key, which the callable returns."""
        raise StreamkitError("process_values of a table can't forward records; what it returns is the row's new value")


class Transformer(UserCode):
    """Computes the values of a table's rows with the user's class, or the user's function of key and value."""

    method = "transform"
    parameters = ("key", "value")

    def transform(self, k: Key, v: Value, t: int, c: FullContext) -> Value:
        """Return the new value of a row, whose current value may be None. Raises StreamkitError for a record."""
        context = self._context
        saved = context._record_context, context._timestamp
        context._record_context, context._timestamp = c, t
        try:
            result = self._function(k, v, *self._arguments)
        finally:
            context._record_context, context._timestamp = saved
        if type(result) is Record:
            raise StreamkitError("process_values of a table returns the row's new value, not a record")
        return result

    def look_up(
        self, k: Key, row: tuple[Value, int] | None, headers: Headers | None = None
    ) -> tuple[Value, int] | None:
        """Return the new (value, timestamp) for the parent's row, even if the row does not exist (KTableTransformValuesGetter).

        The row is not the current record: the context has the row's time and the headers that its store keeps, but no topic.
        """
        v, t = row if row is not None else (None, UNKNOWN)
        value = self.transform(k, v, t, NOWHERE if headers is None or t == UNKNOWN else (headers, *NOWHERE[1:]))
        return None if value is None else (value, t)


def _refuse_forward(k: Key, v: Value, t: int, c: RecordContext) -> None:
    raise AssertionError("forward is refused")


# The context of a global store's processor (GlobalProcessorContextImpl).


class GlobalProcessorContext(ProcessorContext):
    """A context without timers, stream time and commits, because every process reads all partitions."""

    def schedule(
        self, interval: str | int, kind: str, callback: Callable[[int], object], start: int | datetime | None = None
    ) -> NoReturn:
        """Raise StreamkitError."""
        raise StreamkitError("the processor of a global store has no timers")

    def commit(self) -> None:
        """Do nothing."""

    @property
    def stream_time(self) -> int:
        """Raise StreamkitError."""
        raise StreamkitError("the processor of a global store has no stream time")
