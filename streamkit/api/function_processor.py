"""Functions as processors with stores and timers: the decorator `processor`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

if TYPE_CHECKING:
    from streamkit.api.protocols import ProcessorContext
    from streamkit.record import Record


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
