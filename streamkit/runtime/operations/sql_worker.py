"""The process that runs a query: DuckDB bounds neither the memory of single values nor the time of all functions.

It reads the query and its tables from the standard input, and writes one line of JSON. The parent ends it when the time is over.
"""

from __future__ import annotations

import json
import math
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import IO, NamedTuple, TypedDict

import duckdb

from streamkit.serdes.plain import Json, plain


class Header(TypedDict):
    """A query. schemas, tables: to create, the SQL names of these with the bytes of their Arrow streams; settings: of DuckDB.

    rows, bytes: of the result; memory: of the process, in bytes; seconds: it ends after these at the latest.
    """

    sql: str
    settings: list[str]
    schemas: list[str]
    tables: list[tuple[str, int]]
    rows: int
    bytes: int
    memory: int
    seconds: int


class Answer(NamedTuple):
    """A result, or why there is none. rows: the texts of JSON arrays; refused: `memory` or `result` for a limit."""

    columns: list[str]
    rows: list[str]
    is_cut: bool = False
    error: str | None = None
    refused: str | None = None


def serve(source: IO[bytes], target: IO[bytes]) -> None:
    """Answer one query."""
    header: Header = json.loads(source.readline())
    _bound(header["memory"], header["seconds"])
    try:
        answer = _run(header, source)
    except (duckdb.OutOfMemoryException, MemoryError):
        answer = Answer([], [], refused="memory")
    except duckdb.Error as error:
        answer = Answer([], [], error=str(error))
    target.write(json.dumps(answer._asdict()).encode())


def _bound(memory: int, seconds: int) -> None:
    with suppress(AttributeError):  # not on Windows
        signal.alarm(seconds)  # for a parent that has ended
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def _run(header: Header, source: IO[bytes]) -> Answer:
    database = duckdb.connect(":memory:")
    for setting in header["settings"]:
        database.execute(f"SET {setting}")
    for schema in header["schemas"]:
        database.execute(f"CREATE SCHEMA {schema}")
    for name, size in header["tables"]:
        import pyarrow as pa  # takes as long as a small query

        database.register("arrow_rows", pa.ipc.open_stream(source.read(size)).read_all())
        database.execute(f"CREATE TABLE {name} AS SELECT * FROM arrow_rows")
        database.unregister("arrow_rows")
    database.execute(f"SET search_path = '{','.join(header['schemas'])}'")
    database.execute("SET lock_configuration = true")
    result = database.execute(header["sql"])
    columns, rows, size = _distinct([name for name, *_ in result.description]), list[str](), 0
    while (row := result.fetchone()) is not None:
        if len(rows) == header["rows"]:
            return Answer(columns, rows, is_cut=True)
        rows.append(json.dumps([_plain_cell(cell) for cell in row], ensure_ascii=False))
        size += len(rows[-1])
        if size > header["bytes"]:
            return Answer([], [], refused="result")
    return Answer(columns, rows)


def _distinct(names: Iterable[str]) -> list[str]:
    """Number names that occur again, as of two tables with the same columns: a row of JSON has each name once."""
    distinct: list[str] = []
    for name in names:
        number, free = 1, name
        while free in distinct:
            free, number = f"{name}_{number}", number + 1
        distinct.append(free)
    return distinct


def _plain_cell(value: object) -> Json:
    """Return a value of a result as plain data: times in UTC as ISO 8601, numbers as such."""
    if isinstance(value, datetime):
        return f"{(value.astimezone(UTC) if value.tzinfo else value).replace(tzinfo=None).isoformat()}Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        whole = value == value.to_integral_value()
        return int(value) if whole else float(value) if Decimal(repr(float(value))) == value else str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(name): _plain_cell(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_cell(item) for item in value]
    return plain(value)


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
