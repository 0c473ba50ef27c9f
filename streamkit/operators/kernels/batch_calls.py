"""Calls functions over batches of records (`batch`), which receive lists, or columns of numpy, pandas or Arrow."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias

from streamkit.distribution import install_command
from streamkit.errors import StreamkitError
from streamkit.operators.kernels.processor_calls import ProcessorContext, UserCode
from streamkit.operators.kernels.replays import Fail, Failed, HeldRecord, HoldingStep, Replays
from streamkit.record import Operand, Record, Value
from streamkit.rounds import many
from streamkit.suggestions import number_of

if TYPE_CHECKING:
    from streamkit.operators.core.task_services import Forward


class Batches(NamedTuple):
    """How a step calls its function: with up to `size` records at once, whose values are lists or columns of a library."""

    size: int
    form: str


class BatchContext(ProcessorContext):
    """The context of a batch processor, which forwards only the results of its function."""

    calling = False

    def forward(self, record: Record, to: str | None = None) -> None:
        """Forward a record from a timer. Raises StreamkitError while the function runs."""
        if self.calling:
            raise StreamkitError(
                "process_values with batch forwards what the function returns for each record; forward is for timers"
            )
        super().forward(record, to)


class BatchFunction(UserCode):
    """A function that takes lists, or a class whose objects are called with lists."""

    method = "__call__"
    parameters: ClassVar[tuple[str, ...]] = ("keys", "values")

    def __init__(self, target: Callable[..., Value], context: ProcessorContext, form: str):
        super().__init__(target, context)
        # Only batch processors take the context as an argument.
        self._arguments = ()
        self._columns = None if form == "list" else maker(form)

    def results(self, records: Sequence[HeldRecord]) -> Sequence[Value | Failed]:
        """Return the results of records. All of them are failures if the call fails or the number of results is wrong."""
        try:
            results = results_of(self._called(records))
            if len(results) != len(records):
                raise StreamkitError(
                    f"{self.name} returned {number_of(len(results), 'result')} for {number_of(len(records), 'record')}; expected one for each, in "
                    "their order"
                )
        except Exception as error:
            return [Failed(error)] * len(records)
        if any(isinstance(result, Exception) for result in results):
            return [Failed(result) if isinstance(result, Exception) else result for result in results]
        return results

    def _called(self, records: Sequence[HeldRecord]) -> Value:
        values = [record.value for record in records]
        return self._function(
            [record.key for record in records], values if self._columns is None else self._columns(values)
        )


class BatchProcess(BatchFunction):
    """A processor of lists of records: a class with `process(self, records)`, or a function that takes a list.

    Columns, if any, are passed after the records. While the function runs, the context is the last record's.
    """

    method = "process"
    parameters: ClassVar[tuple[str, ...]] = ("records",)

    def __init__(self, target: Callable[..., Value], context: ProcessorContext, form: str):
        super().__init__(target, context, form)
        passed = 1 if form == "list" else 2
        self._arguments = (context,) if self.takes_more_than(passed) else ()

    def _called(self, records: Sequence[HeldRecord]) -> Value:
        passed = [Record(held.key, held.value, held.timestamp, tuple(held.context[0] or ())) for held in records]
        more = () if self._columns is None else (self._columns([held.value for held in records]),)
        last = records[-1]
        context = self._context
        assert isinstance(context, BatchContext)
        with context.at(last.context, last.timestamp, None):
            context.calling = True
            try:
                return self._function(passed, *more, *self._arguments)
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
        """Create the object, if the target is a class."""
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

    def deliver(self, record: HeldRecord, result: Operand) -> None:
        for value in many(list(result)):
            self.forward(record.key, value, record.timestamp, record.context)


class BatchTransform(_BatchStep):
    """Forwards the records that a batch processor returns for each record; their keys must equal its key."""

    function = BatchProcess

    def deliver(self, record: HeldRecord, result: Value) -> None:
        with self.context.at(record.context, record.timestamp, (record.key,)):
            self.context.forward_all(result)


# Values as columns of numpy, pandas or Arrow, and results of such functions as lists.

Columns: TypeAlias = Value
"""Columns of one of the libraries, which have no common type."""


def maker(form: str) -> Callable[[list[Value]], Columns]:
    """Import a library, and return the function that turns values into its columns. Raises StreamkitError if it is missing.

    Objects become one column per field; other values become one column without a name.
    """
    try:
        return {"numpy": _numpy, "pandas": _pandas, "arrow": _arrow}[form]()
    except ImportError as error:
        library = "pyarrow" if form == "arrow" else form
        raise StreamkitError(f"'as: {form}' needs {library}: {install_command('columns')}") from error


def results_of(answer: Value) -> list[Value]:
    """Return a function's results as a list, one for each record. Raises StreamkitError if they are neither a list nor columns.

    >>> results_of({"a": [1, 2], "b": [3, 4]})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 4}]
    """
    if isinstance(answer, list):
        return answer
    if inspect.iscoroutine(answer):
        answer.close()
        raise StreamkitError("a function over batches can't be async; `enrich` takes async functions")
    for method in ("to_pylist", "tolist"):
        convert = getattr(answer, method, None)
        if callable(convert):
            rows = convert()
            return rows if isinstance(rows, list) else [rows]
    if hasattr(answer, "columns") and hasattr(answer, "to_dict"):  # a DataFrame
        return list(answer.to_dict("records"))
    if isinstance(answer, Mapping):
        columns = [results_of(column) for column in answer.values()]
        if len({len(column) for column in columns}) > 1:
            raise StreamkitError("the columns that a function over batches returned have different lengths")
        return [dict(zip(answer, row, strict=True)) for row in zip(*columns, strict=True)]
    if isinstance(answer, Iterable) and not isinstance(answer, (str, bytes)):
        return list(answer)
    raise StreamkitError(f"a function over batches returns a list or columns, not {type(answer).__name__}")


def _fields(values: list[Operand]) -> dict[str, list[Value]] | None:
    """Return the fields of objects as columns, with None for absent fields; return None if the values are not objects."""
    names = list(values[0]) if isinstance(values[0], dict) else []
    if names and all(type(value) is dict and len(value) == len(names) for value in values):
        try:
            return {name: [value[name] for value in values] for name in names}
        except KeyError:
            pass  # equally many fields, but different ones
    if not any(isinstance(value, dict) for value in values):
        return None
    if not all(value is None or isinstance(value, dict) for value in values):
        return None
    fields = dict.fromkeys(name for value in values if value is not None for name in value)
    return {name: [None if value is None else value.get(name) for value in values] for name in fields}


_EXACT = 2**53
"""Beyond it, doubles leave out whole numbers."""


def _loses_digits(values: list[Value]) -> bool:
    """Return whether doubles would change a whole number. A column with a float or an absent value consists of doubles."""
    kinds = set(map(type, values))
    if not (kinds > {int} and kinds <= {int, float, type(None)}):
        return False
    return any(isinstance(value, int) and not -_EXACT <= value <= _EXACT for value in values)


def _is_mixed(values: list[Value]) -> bool:
    """Return whether numpy would change values: convert them to the type of others, or cut null characters off their ends."""
    kinds = set(map(type, values)) - {type(None)}
    if len(kinds) != 1:
        return len(kinds) > 1 and kinds != {int, float}
    numbers = [value for value in values if isinstance(value, int)] if int in kinds else []
    if numbers:
        return not -(2**63) <= min(numbers) <= max(numbers) < 2**63
    if str in kinds:
        return "\0" in "".join(value for value in values if isinstance(value, str))
    return any(isinstance(value, bytes) and value.endswith(b"\0") for value in values if bytes in kinds)


def _numpy() -> Callable[[list[Value]], Columns]:
    import numpy

    def column(values: list[Value]) -> Columns:
        if _loses_digits(values) or _is_mixed(values):
            # No record may change another one's value: which records are in a batch is a matter of chance.
            exact = numpy.empty(len(values), object)
            exact[:] = values
            return exact
        if None in values and all(value is None or type(value) in (int, float) for value in values):
            return numpy.array([numpy.nan if value is None else value for value in values])
        return numpy.array(values)

    def columns(values: list[Value]) -> Columns:
        fields = _fields(values)
        return column(values) if fields is None else {name: column(field) for name, field in fields.items()}

    return columns


def _pandas() -> Callable[[list[Value]], Columns]:
    import pandas

    def column(values: list[Value]) -> Columns:
        return pandas.Series(values, dtype=object if _loses_digits(values) else None)

    def columns(values: list[Value]) -> Columns:
        fields = _fields(values)
        if fields is None:
            return column(values)
        return pandas.DataFrame({name: column(field) for name, field in fields.items()})

    return columns


def _arrow() -> Callable[[list[Value]], Columns]:
    import pyarrow

    def columns(values: list[Value]) -> Columns:
        fields = _fields(values)
        return pyarrow.array(values) if fields is None else pyarrow.RecordBatch.from_pydict(fields)

    return columns
