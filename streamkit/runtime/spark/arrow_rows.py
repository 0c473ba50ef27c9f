"""The rows that travel between Spark stages, as Arrow columns: records with their place in the order of their partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from streamkit.record import Headers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOPIC, PARTITION, KEY, VALUE, TIMESTAMP, HEADERS, ORDER, SOURCE, OFFSET = range(9)
NAMES = ("topic", "partition", "key", "value", "timestamp", "headers", "order", "source", "offset")
"""order: the highest timestamp up to the record within its source partition, null where it is not known yet.

source, offset: 0 and the offset on the log; or the number of the task that wrote the record, from 1, and the record's place
among those of that task.
"""
HEADERS_DDL = "array<struct<name:string,value:binary>>"
DDL = (
    "topic string, partition int, key binary, value binary, timestamp bigint, "
    f"headers {HEADERS_DDL}, `order` bigint, source bigint, offset bigint"
)

PLACE, PLACE_BITS = "place", 47
"""A column of rows that come by keys: the number of a bucket of keys, above so many bits that sort the rows in it.

They are the offset, where there is no such column; offsets on a log stay below them.
"""
_CONSTANTS = {"topic": "string", "headers": HEADERS_DDL, "order": "bigint", "source": "bigint"}
"""Columns that rows of one topic on the log may go without, as all of them have the same there; what Spark does not have to
move takes it no time."""

Row = tuple
"""(topic, partition, key, value, timestamp, headers, order, source, offset)."""


def whole(frame: DataFrame, topic: str) -> DataFrame:
    """Return the rows of a topic with all columns."""
    from pyspark.sql import functions as sf

    constants = {"topic": topic, "source": 0}
    missing = _CONSTANTS.keys() - set(frame.columns)
    if not missing:
        return frame
    found = [
        sf.lit(constants.get(name)).cast(_CONSTANTS[name]).alias(name) if name in missing else sf.col(name)
        for name in NAMES
    ]
    return frame.select(*found)


def widened(batch: Any, topic: str) -> Any:
    """Return an Arrow batch of a topic's rows with all columns."""
    import pyarrow as pa

    if batch.schema.names == list(NAMES):
        return batch
    count, have = len(batch), set(batch.schema.names)
    constants = {"topic": topic, "source": 0}

    def column(field: Any) -> Any:
        if field.name in have:
            return batch.column(field.name)
        if field.name == "offset":
            return pa.array(batch.column(PLACE).to_numpy() & ((1 << PLACE_BITS) - 1), field.type)
        return pa.repeat(pa.scalar(constants.get(field.name), field.type), count)

    return pa.RecordBatch.from_arrays([column(field) for field in schema()], schema=schema())


@cache
def schema() -> Any:
    """Return the Arrow schema of the rows."""
    import pyarrow as pa

    types = (pa.string(), pa.int32(), pa.binary(), pa.binary(), pa.int64(), _headers_type(), *[pa.int64()] * 3)
    return pa.schema(list(zip(NAMES, types, strict=True)))


def to_batch(columns: Sequence[Iterable[Any]]) -> Any:
    """Return nine columns of rows as an Arrow batch; headers in the form of records."""
    import pyarrow as pa

    fields = schema()
    arrays = [
        _headers_array(column) if index == HEADERS else pa.array(column, fields.field(index).type)
        for index, column in enumerate(columns)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=fields)


def values_of(array: Any) -> list[Any]:
    """Return an Arrow column of bytes, text or numbers as a list; through NumPy, ten times faster than value by value."""
    if array.null_count == len(array):
        return [None] * len(array)
    if array.null_count and not _is_object(array):
        return array.to_pylist()
    return array.to_numpy(zero_copy_only=False).tolist()


def headers_of(array: Any) -> list[Headers | None]:
    """Return the headers of a column in the form of records."""
    if array.null_count == len(array):
        return [None] * len(array)
    return [
        None if found is None else [(header["name"], header["value"]) for header in found]
        for found in array.to_pylist()
    ]


def _is_object(array: Any) -> bool:
    import pyarrow.types as kinds

    return kinds.is_binary(array.type) or kinds.is_string(array.type)


@cache
def _headers_type() -> Any:
    import pyarrow as pa

    return pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


def _headers_array(column: Any) -> Any:
    import pyarrow as pa

    found = list(column)
    if not any(found):
        return pa.nulls(len(found), _headers_type())
    plain = [None if not headers else [{"name": name, "value": value} for name, value in headers] for headers in found]
    return pa.array(plain, _headers_type())


def constant_batch(place: tuple[str, int], columns: Sequence[Sequence[Any]]) -> Any:
    """Return records of one partition of the log as an Arrow batch: keys, values, timestamps, headers, offsets."""
    import pyarrow as pa

    topic, partition = place
    keys, values, times, headers, offsets = columns
    count = len(offsets)
    arrays = [
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(times, pa.int64()),
        _headers_array(headers),
        pa.nulls(count, pa.int64()),
        pa.repeat(pa.scalar(0, pa.int64()), count),
        pa.array(offsets, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema())
