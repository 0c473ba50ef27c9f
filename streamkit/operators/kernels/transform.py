"""Python callables that give a table's values (ValueTransformerWithKey): their context, and calling them."""

from __future__ import annotations

from typing import Any

from streamkit.errors import StreamkitError
from streamkit.operators.kernels.process import NOWHERE, ProcessorContext, ProcessorStores, UserCode
from streamkit.record import Record

UNKNOWN = -1
"""The timestamp of a row that is not there (ConsumerRecord.NO_TIMESTAMP)."""


class TransformContext(ProcessorContext):
    """What `process_values` of a table may ask of its task: all but forwarding (ForwardingDisabledProcessorContext)."""

    def __init__(self, rt: Any, node: int, stores: ProcessorStores):
        super().__init__(rt, node, stores, _nowhere, {})

    def forward(self, record: Any, to: str | None = None) -> None:
        """Raise StreamkitError: a table has one value for each key, which is returned."""
        raise StreamkitError("process_values of a table can't forward records; what it returns is the row's new value")


class Transformer(UserCode):
    """What gives a table's rows their values: the user's class, or their function of key and value."""

    method = "transform"
    parameters = ("key", "value")

    def transform(self, k: Any, v: Any, t: int, c: Any) -> Any:
        """Return the new value of a row; its present value may be None. Raises StreamkitError for a record."""
        context = self._context
        saved = context._at, context._timestamp
        context._at, context._timestamp = c, t
        try:
            result = self._call(k, v, *self._arguments)
        finally:
            context._at, context._timestamp = saved
        if type(result) is Record:
            raise StreamkitError("process_values of a table returns the row's new value, not a record")
        return result

    def look_up(self, k: Any, found: tuple[Any, int] | None) -> tuple[Any, int] | None:
        """Return the new (value, timestamp) of what a look-up found, also where that is nothing (KTableTransformValuesGetter).

        The current record is not what is looked up: context has its time, and neither topic nor headers.
        """
        v, t = found if found is not None else (None, UNKNOWN)
        value = self.transform(k, v, t, NOWHERE)
        return None if value is None else (value, t)


def _nowhere(k: Any, v: Any, t: int, c: Any) -> None:
    raise AssertionError("forward is refused")
