"""Values as columns of numpy, pandas or Arrow, and results of such functions as lists."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from streamkit.distribution import install_command
from streamkit.errors import StreamkitError
from streamkit.record import Value

Columns: TypeAlias = Value
"""Columns of one of the libraries, which have no type in common."""


def maker(form: str) -> Callable[[list[Value]], Columns]:
    """Return the function that turns values into columns; it imports the library. Raises StreamkitError where it is missing.

    Values that are objects become one column a field, other values one column without a name.
    """
    try:
        return {"numpy": _numpy, "pandas": _pandas, "arrow": _arrow}[form]()
    except ImportError as error:
        library = "pyarrow" if form == "arrow" else form
        raise StreamkitError(f"'as: {form}' needs {library}: {install_command('columns')}") from error


def results_of(found: Value) -> list[Value]:
    """Return a function's results, one for each record. Raises StreamkitError for an object that is no list or columns.

    >>> results_of({"a": [1, 2], "b": [3, 4]})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 4}]
    """
    if isinstance(found, list):
        return found
    if inspect.iscoroutine(found):
        found.close()
        raise StreamkitError("a function over batches can't be async; `enrich` takes async functions")
    for method in ("to_pylist", "tolist"):
        convert = getattr(found, method, None)
        if callable(convert):
            made = convert()
            return made if isinstance(made, list) else [made]
    if hasattr(found, "columns") and hasattr(found, "to_dict"):  # a DataFrame
        return list(found.to_dict("records"))
    if isinstance(found, Mapping):
        columns = [results_of(column) for column in found.values()]
        if len({len(column) for column in columns}) > 1:
            raise StreamkitError("the columns that a function over batches returned have different lengths")
        return [dict(zip(found, row, strict=True)) for row in zip(*columns, strict=True)]
    if isinstance(found, Iterable) and not isinstance(found, (str, bytes)):
        return list(found)
    raise StreamkitError(f"a function over batches returns a list or columns, not {type(found).__name__}")


def _fields(values: list[Value]) -> dict[str, list[Value]] | None:
    """Return the fields of objects as columns, None where a field is absent; None for values that are no objects."""
    names = list(values[0]) if isinstance(values[0], dict) else []
    if names and all(type(value) is dict and len(value) == len(names) for value in values):
        try:
            return {name: [value[name] for value in values] for name in names}
        except KeyError:
            pass  # equal numbers of other fields
    if not any(isinstance(value, dict) for value in values):
        return None
    if not all(value is None or isinstance(value, dict) for value in values):
        return None
    found = dict.fromkeys(name for value in values if value is not None for name in value)
    return {name: [None if value is None else value.get(name) for value in values] for name in found}


def _numpy() -> Callable[[list[Value]], Columns]:
    import numpy

    def column(values: list[Value]) -> Columns:
        if None in values and all(value is None or type(value) in (int, float) for value in values):
            return numpy.array([numpy.nan if value is None else value for value in values])
        return numpy.array(values)

    def made(values: list[Value]) -> Columns:
        fields = _fields(values)
        return column(values) if fields is None else {name: column(each) for name, each in fields.items()}

    return made


def _pandas() -> Callable[[list[Value]], Columns]:
    import pandas

    def made(values: list[Value]) -> Columns:
        fields = _fields(values)
        return pandas.Series(values) if fields is None else pandas.DataFrame(fields)

    return made


def _arrow() -> Callable[[list[Value]], Columns]:
    import pyarrow

    def made(values: list[Value]) -> Columns:
        fields = _fields(values)
        return pyarrow.array(values) if fields is None else pyarrow.RecordBatch.from_pydict(fields)

    return made
