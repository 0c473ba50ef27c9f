"""The rows between Spark stages as Arrow columns: records with their position in their partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from streamkit.record import Columns, Headers
from streamkit.serdes.plain import Json

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

TOPIC, PARTITION, KEY, VALUE, TIMESTAMP, HEADERS, ORDER, SOURCE, OFFSET = range(9)
NAMES = ("topic", "partition", "key", "value", "timestamp", "headers", "order", "source", "offset")
"""order: the highest timestamp up to the record within its source partition, null if it is not known yet.

source, offset: 0 and the offset on the log; or, for a record of a task, the task's number (from 1) and the record's index in its output.
"""
HEADERS_DDL = "array<struct<name:string,value:binary>>"
DDL = (
    "topic string, partition int, key binary, value binary, timestamp bigint, "
    f"headers {HEADERS_DDL}, `order` bigint, source bigint, offset bigint"
)

PLACE, PLACE_BITS = "place", 47
"""A column of rows that are sorted by key: the high bits are the number of a key bucket, the PLACE_BITS low bits order its rows.

If the rows have no column `offset`, the low bits are the offset; offsets on a log are smaller than 2**PLACE_BITS.
"""
_CONSTANTS = {"topic": "string", "headers": HEADERS_DDL, "order": "bigint", "source": "bigint"}
"""Columns that are constant for a topic on the log. Rows may omit them, which saves the time to move them."""

Row: TypeAlias = tuple[str, int | None, bytes | None, bytes | None, int, Headers | None, int | None, int, int]
"""(topic, partition, key, value, timestamp, headers, order, source, offset)."""

RowColumns: TypeAlias = tuple[
    Iterable[str],
    Iterable[int | None],
    Iterable[bytes | None],
    Iterable[bytes | None],
    Iterable[int | None],
    Iterable[Headers | None],
    Iterable[int | None],
    Iterable[int],
    Iterable[int],
]
"""The columns of rows, in the order of NAMES; partitions are not None."""


def with_all_columns(frame: DataFrame, topic: str) -> DataFrame:
    """Return the rows of a topic with all columns."""
    from pyspark.sql import functions as sf

    constants = {"topic": topic, "source": 0}
    missing = _CONSTANTS.keys() - set(frame.columns)
    if not missing:
        return frame
    selected = [
        sf.lit(constants.get(name)).cast(_CONSTANTS[name]).alias(name) if name in missing else sf.col(name)
        for name in NAMES
    ]
    return frame.select(*selected)


def batch_with_all_columns(batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    """Return an Arrow batch of a topic's rows with all columns."""
    import pyarrow as pa

    if batch.schema.names == list(NAMES):
        return batch
    count, have = len(batch), set(batch.schema.names)
    constants = {"topic": topic, "source": 0}

    def column(field: pa.Field) -> pa.Array:
        if field.name in have:
            return batch.column(field.name)
        if field.name == "offset":
            return pa.array(batch.column(PLACE).to_numpy() & ((1 << PLACE_BITS) - 1), field.type)
        return pa.repeat(pa.scalar(constants.get(field.name), field.type), count)

    return pa.RecordBatch.from_arrays([column(field) for field in schema()], schema=schema())


@cache
def schema() -> pa.Schema:
    """Return the Arrow schema of the rows."""
    import pyarrow as pa

    types = (pa.string(), pa.int32(), pa.binary(), pa.binary(), pa.int64(), _headers_type(), *[pa.int64()] * 3)
    return pa.schema(list(zip(NAMES, types, strict=True)))


def to_batch(columns: RowColumns) -> pa.RecordBatch:
    """Return columns of rows as an Arrow batch."""
    import pyarrow as pa

    fields = schema()
    topics, partitions, keys, values, times, headers, *others = columns
    before = [
        pa.array(column, field.type)
        for column, field in zip((topics, partitions, keys, values, times), fields, strict=False)
    ]
    behind = [pa.array(column, pa.int64()) for column in others]
    return pa.RecordBatch.from_arrays([*before, _headers_array(headers), *behind], schema=fields)


def values_of(array: pa.Array) -> list[Any]:
    """Return the values of an Arrow column as a list. NumPy makes this ten times faster than value by value."""
    if array.null_count == len(array):
        return [None] * len(array)
    values: list[Any] = (
        array.to_pylist()
        if array.null_count and not _is_object(array)
        else array.to_numpy(zero_copy_only=False).tolist()
    )
    return values


def plain_of(array: pa.Array) -> list[Json]:
    """Return the values of an Arrow column as plain data; structs and maps become objects.

    Raises KeyError for a map with a duplicate key.
    """
    import pyarrow.types as kinds

    if kinds.is_struct(array.type) and len({field.name for field in array.type}) == array.type.num_fields > 0:
        names = [field.name for field in array.type]
        rows: list[Json] = [
            dict(zip(names, cells, strict=True)) for cells in zip(*map(plain_of, array.flatten()), strict=True)
        ]
        if array.null_count:
            rows = [row if valid else None for row, valid in zip(rows, values_of(array.is_valid()), strict=True)]
        return rows
    if (
        _is_object(array)
        or kinds.is_integer(array.type)
        or kinds.is_float64(array.type)
        or kinds.is_boolean(array.type)
    ):
        return values_of(array)
    plain: list[Json] = array.to_pylist(maps_as_pydicts="strict")
    return plain


def headers_of(array: pa.Array) -> list[Headers | None]:
    """Return the headers of a column in the form of records."""
    if array.null_count == len(array):
        return [None] * len(array)
    return [
        None if headers is None else [(header["name"], header["value"]) for header in headers]
        for headers in array.to_pylist()
    ]


def _is_object(array: pa.Array) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_binary(array.type) or kinds.is_string(array.type))


@cache
def _headers_type() -> pa.DataType:
    import pyarrow as pa

    return pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


def _headers_array(column: Iterable[Headers | None]) -> pa.Array:
    import pyarrow as pa

    rows = list(column)
    if not any(rows):
        return pa.nulls(len(rows), _headers_type())
    plain = [None if not headers else [{"name": name, "value": value} for name, value in headers] for headers in rows]
    return pa.array(plain, _headers_type())


def constant_batch(place: tuple[str, int], columns: Columns) -> pa.RecordBatch:
    """Return records of one partition of the log as an Arrow batch."""
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


def pack(keys: Sequence[bytes], values: Sequence[bytes | None]) -> bytes:
    """Return the bytes of a Parquet file with the columns `key` and `value`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
    sink = pa.BufferOutputStream()
    # Not compressed: the next step of the same job reads the file once, and compression would take longer than moving it.
    pq.write_table(table, sink, compression="none", use_dictionary=False, write_statistics=False)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpack(data: bytes | pa.Buffer) -> pa.Table:
    """Return the columns `key` and `value` of a Parquet file, given as bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Spark writes a checksum for each page.
    file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    return file.read(columns=["key", "value"], use_threads=False)
