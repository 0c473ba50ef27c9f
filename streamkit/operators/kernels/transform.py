"""Python callables that compute a table's values (ValueTransformerWithKey): their context and their calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from streamkit.errors import StreamkitError
from streamkit.operators.kernels.processor_calls import NOWHERE, ProcessorContext, ProcessorStores, UserCode
from streamkit.record import FullContext, Key, Record, RecordContext, Value

if TYPE_CHECKING:
    from streamkit.operators.core.task_services import TaskServices

UNKNOWN = -1
"""The timestamp of a row that does not exist (ConsumerRecord.NO_TIMESTAMP)."""


class TransformContext(ProcessorContext):
    """The context of `process_values` on a table, without `forward` (ForwardingDisabledProcessorContext)."""

    def __init__(self, rt: TaskServices, node: int, stores: ProcessorStores):
        super().__init__(rt, node, stores, _refuse_forward, {})

    def forward(self, record: Record, to: str | None = None) -> NoReturn:
        """Raise StreamkitError: a table has one value for each key, which is returned."""
        raise StreamkitError("process_values of a table can't forward records; what it returns is the row's new value")


class Transformer(UserCode):
    """Computes the values of a table's rows with the user's class, or their function of key and value."""

    method = "transform"
    parameters = ("key", "value")

    def transform(self, k: Key, v: Value, t: int, c: FullContext) -> Value:
        """Return the new value of a row; its present value may be None. Raises StreamkitError for a record."""
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

    def look_up(self, k: Key, found: tuple[Value, int] | None) -> tuple[Value, int] | None:
        """Return the new (value, timestamp) of a row of the parent, also where there is none (KTableTransformValuesGetter).

        The row is not the current record: the context has the row's time, and neither topic nor headers.
        """
        v, t = found if found is not None else (None, UNKNOWN)
        value = self.transform(k, v, t, NOWHERE)
        return None if value is None else (value, t)


def _refuse_forward(k: Key, v: Value, t: int, c: RecordContext) -> None:
    raise AssertionError("forward is refused")
