"""Rows of a store as the bytes of a Parquet file: Spark moves many of them as one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def pack(keys: Sequence[bytes], values: Sequence[bytes | None]) -> bytes:
    """Return the bytes of a Parquet file with the columns `key` and `value`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
    sink = pa.BufferOutputStream()
    # It is read once, by the next step of the same job: compression would take longer than the bytes.
    pq.write_table(table, sink, compression="none", use_dictionary=False, write_statistics=False)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def unpack(data: bytes | pa.Buffer) -> pa.Table:
    """Return the columns `key` and `value` of the bytes of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Spark writes a checksum for each page.
    file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    return file.read(columns=["key", "value"], use_threads=False)
