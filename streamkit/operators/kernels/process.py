"""Custom processors in Python: their context, and calling them (org.apache.kafka.streams.processor.api)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from streamkit import durations
from streamkit.errors import StreamkitError
from streamkit.record import Headers, Record
from streamkit.state.views import processor_view

Forward = Callable[[Any, Any, int, Any], None]

NOWHERE = (None, None, -1, -1)
"""The context of punctuators: no headers, no topic, partition and offset -1."""


class ProcessorContext:
    """What a custom processor may ask of its task; times in milliseconds (ProcessorContext).

    `topic`, `partition`, `offset`, `headers` are those of the record in hand; in a timer they are None and -1.
    """

    def __init__(self, rt: Any, node: int, stores: dict[str, Any], forward: Forward, children: dict[str, Forward]):
        self._rt = rt
        self._node = node
        self._stores = {name: processor_view(store, self._now) for name, store in stores.items()}
        self._forward = forward
        self._children = children
        self._fixed_key: tuple[Any] | None = None
        self._at: Any = NOWHERE
        self._timestamp = 0
        self.task_id: str = rt.task_id
        self.application_id: str = rt.application_id

    def store(self, name: str) -> Any:
        """Return one of the stores that the step names. Raises StreamkitError for another."""
        try:
            return self._stores[name]
        except KeyError:
            known = ", ".join(sorted(self._stores)) or "none"
            raise StreamkitError(f"no store {name!r} is connected to this step; its stores: {known}") from None

    def forward(self, record: Record, to: str | None = None) -> None:
        """Hand a record to all children, or to the one that is named. Raises StreamkitError for what is no record."""
        if not isinstance(record, Record):
            raise StreamkitError(f"forward takes a Record, not {type(record).__name__}; see record.replace(…)")
        if self._fixed_key is not None and record.key != self._fixed_key[0]:
            raise StreamkitError("process_values may not change the key; use process")
        if to is None:
            target = self._forward
        else:
            found = self._children.get(to)
            if found is None:
                raise StreamkitError(f"no child is called {to!r}; children: {', '.join(self._children) or 'none'}")
            target = found
        target(record.key, record.value, record.timestamp, (list(record.headers) or None, *self._at[1:]))

    def schedule(self, interval: str | int, kind: str, callback: Callable[[int], Any]) -> Any:
        """Call back at an interval ("10s", milliseconds) of "stream_time" or "wall_clock"; the result has `cancel()`."""
        if kind not in ("stream_time", "wall_clock"):
            raise StreamkitError(f"schedule takes stream_time or wall_clock, not {kind!r}")

        def fire(timestamp: int) -> None:
            saved = self._at, self._timestamp
            self._at, self._timestamp = NOWHERE, timestamp
            try:
                self.forward_all(callback(timestamp))
            finally:
                self._at, self._timestamp = saved

        return self._rt.schedule(self._node, durations.parse(interval, 1), kind, fire)

    def forward_all(self, result: Any) -> None:
        """Forward what a processor returned or yields: a record, several, or nothing."""
        if result is None:
            return
        if isinstance(result, Record):
            self.forward(result)
        elif isinstance(result, Iterable):
            for record in result:
                self.forward(record)
        else:
            raise StreamkitError(f"a processor returns records or nothing, not {type(result).__name__}")

    def commit(self) -> None:
        """Ask for a commit as soon as possible."""
        self._rt.request_commit()

    @property
    def topic(self) -> str | None:
        """The topic that the record in hand was read from."""
        return self._at[1]

    @property
    def partition(self) -> int:
        """The partition that the record in hand was read from."""
        return self._at[2]

    @property
    def offset(self) -> int:
        """The offset of the record in hand."""
        return self._at[3]

    @property
    def headers(self) -> Headers:
        """The headers of the record in hand."""
        return self._at[0] or []

    @property
    def stream_time(self) -> int:
        """The highest timestamp that the task has seen."""
        return self._rt.stream_time()

    @property
    def wall_clock(self) -> int:
        """The task's clock."""
        return self._rt.now()

    def _now(self) -> tuple[int, Any]:
        # What the changelog record of a write gets: the time of the record in hand, or of the timer that fires.
        return self._timestamp, None


class CustomProcessor:
    """A processor of the user's: an instance of their class, or their function."""

    def __init__(self, target: Any, context: ProcessorContext, fixed_key: bool):
        self._context = context
        self._fixed_key = fixed_key
        if inspect.isclass(target):
            instance: Any = target()
            self._init = getattr(instance, "init", None)
            self._close = getattr(instance, "close", None)
            self._call = instance.process
            self._arguments: tuple[Any, ...] = ()
        else:
            self._init = self._close = None
            self._call = target
            self._arguments = (context,) if _takes_context(target) else ()

    def init(self) -> None:
        """Call the processor's init, if it has one."""
        if self._init is not None:
            self._init(self._context)

    def close(self) -> None:
        """Call the processor's close, if it has one."""
        if self._close is not None:
            self._close()

    def process(self, k: Any, v: Any, t: int, c: Any) -> None:
        """Hand a record to the processor and forward what it gives."""
        context = self._context
        saved = context._at, context._timestamp, context._fixed_key
        context._at, context._timestamp = c, t
        context._fixed_key = (k,) if self._fixed_key else None
        try:
            context.forward_all(self._call(Record(k, v, t, tuple(c[0] or ())), *self._arguments))
        finally:
            context._at, context._timestamp, context._fixed_key = saved


def _takes_context(function: Any) -> bool:
    try:
        return len(inspect.signature(function).parameters) >= 2
    except (TypeError, ValueError):
        return True
