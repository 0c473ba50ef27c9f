"""Functions that take lists of records: `map_values`, `filter`, `flat_map_values` and `process_values` with `batch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from streamkit.errors import StreamkitError
from streamkit.operators.kernels.processor_calls import ProcessorContext, UserCode
from streamkit.operators.kernels.replays import Fail, Failed, HeldRecord, HoldingStep, Replays
from streamkit.operators.kernels.value_columns import maker, results_of
from streamkit.record import FullContext, Record, Value
from streamkit.rounds import many

if TYPE_CHECKING:
    from streamkit.operators.core.task_services import Forward


class Batches(NamedTuple):
    """How a step calls its function: up to `size` records at once, values as lists or as columns of a library."""

    size: int
    form: str


class BatchContext(ProcessorContext):
    """The context of a processor of batches: while its function runs, it forwards nothing but what it returns."""

    calling = False

    def forward(self, record: Record, to: str | None = None) -> None:
        """Forward a record of a timer. Raises StreamkitError while the function runs."""
        if self.calling:
            raise StreamkitError(
                "process_values with batch forwards what the function returns for each record; forward is for timers"
            )
        super().forward(record, to)


class BatchFunction(UserCode):
    """A function of lists, or a class whose objects are called with them."""

    method = "__call__"
    parameters: ClassVar[tuple[str, ...]] = ("keys", "values")

    def __init__(self, target: Callable[..., Value], context: ProcessorContext, form: str):
        super().__init__(target, context)
        # Only processors of batches take the context as an argument.
        self._arguments = ()
        self._columns = None if form == "list" else maker(form)

    def results(self, records: Sequence[HeldRecord]) -> Sequence[Value | Failed]:
        """Return the results of records; each is a failure where the call fails or the number of results is wrong."""
        try:
            found = results_of(self._called(records))
            if len(found) != len(records):
                raise StreamkitError(
                    f"{self.name} returned {len(found)} results for {len(records)} records; expected one for each, in "
                    "their order"
                )
        except Exception as error:
            return [Failed(error)] * len(records)
        if any(isinstance(each, Exception) for each in found):
            return [Failed(each) if isinstance(each, Exception) else each for each in found]
        return found

    def _called(self, records: Sequence[HeldRecord]) -> Value:
        values = [record.value for record in records]
        return self._function(
            [record.key for record in records], values if self._columns is None else self._columns(values)
        )


class BatchProcess(BatchFunction):
    """A processor of lists of records: `process(self, records)` of a class, or a function of them.

    With columns these follow the records. The context is that of the last record while the function runs.
    """

    method = "process"
    parameters: ClassVar[tuple[str, ...]] = ("records",)

    def __init__(self, target: Callable[..., Value], context: ProcessorContext, form: str):
        super().__init__(target, context, form)
        passed = 1 if form == "list" else 2
        self._arguments = (context,) if self.takes_more_than(passed) else ()

    def _called(self, records: Sequence[HeldRecord]) -> Value:
        given = [Record(each.key, each.value, each.timestamp, _headers(each.context)) for each in records]
        more = () if self._columns is None else (self._columns([each.value for each in records]),)
        last = records[-1]
        context = self._context
        assert isinstance(context, BatchContext)
        with context.at(last.context, last.timestamp, None):
            context.calling = True
            try:
                return self._function(given, *more, *self._arguments)
            finally:
                context.calling = False


class _BatchStep(HoldingStep):
    """A step with a function over batches."""

    function: type[BatchFunction] = BatchFunction

    def __init__(
        self,
        target: Callable[..., Value],
        context: ProcessorContext,
        batches: Batches,
        replays: Replays,
        steps: tuple[int, Forward, Fail],
    ):
        node, forward, fail = steps
        super().__init__(replays, node, batches.size, fail)
        self.forward = forward
        self.called = self.function(target, context, batches.form)
        self.context = context

    def init(self) -> None:
        """Make the object of a class."""
        self.report(self.context.place)
        self.called.init()

    def close(self) -> None:
        """Call the object's `close` if it has one."""
        self.clear()
        self.called.close()

    def results(self, records: Sequence[HeldRecord]) -> Sequence[Value | Failed]:
        return self.called.results(records)


class BatchMap(_BatchStep):
    """Forwards each record with its result as the value."""

    def deliver(self, record: HeldRecord, result: Value) -> None:
        self.forward(record[0], result, record[2], record[3])


class BatchKeep(_BatchStep):
    """Forwards the records whose result is true."""

    def deliver(self, record: HeldRecord, result: Value) -> None:
        if result:
            self.forward(record.key, record.value, record.timestamp, record.context)


class BatchDrop(_BatchStep):
    """Forwards the records whose result is not true."""

    def deliver(self, record: HeldRecord, result: Value) -> None:
        if not result:
            self.forward(record.key, record.value, record.timestamp, record.context)


class BatchFlatMap(_BatchStep):
    """Forwards a record for each item of a record's result."""

    def deliver(self, record: HeldRecord, result: Value) -> None:
        for value in many(list(result)):
            self.forward(record.key, value, record.timestamp, record.context)


class BatchTransform(_BatchStep):
    """Forwards the records that a processor of batches returns for each record; their keys must be its key."""

    function = BatchProcess

    def deliver(self, record: HeldRecord, result: Value) -> None:
        with self.context.at(record.context, record.timestamp, (record.key,)):
            self.context.forward_all(result)


def _headers(context: FullContext) -> tuple[tuple[str, bytes | None], ...]:
    return tuple(context[0] or ())
