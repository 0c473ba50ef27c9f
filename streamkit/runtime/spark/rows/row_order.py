"""The order of input rows without a position in a file: by a column of whole numbers or times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import unquote

from streamkit.durations import DAY_MS
from streamkit.errors import TransportError
from streamkit.runtime.spark.job_options import Place
from streamkit.runtime.spark.rows.input_columns import TIMES, WHOLE, expression, instant

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_EPOCH = "1970-01-01 00:00:00"


@dataclass(frozen=True)
class RowOrder:
    """A column, or an expression, that orders rows."""

    column: Column
    kind: str
    """The name of its type in Spark."""
    is_time: bool

    @property
    def number(self) -> Column:
        """The position of a row: its whole number, or its time in microseconds."""
        from pyspark.sql import functions as sf

        if self.kind in TIMES:
            return sf.unix_micros(instant(self.column, self.kind))
        number = sf.unix_date(self.column) if self.kind == "date" else self.column
        return sf.try_multiply(number.cast("bigint"), sf.lit(self._unit))

    def up_to(self, number: int) -> Column:
        """Return the condition that a row's position is at most this one, in the column's type so that Spark can push it into scans."""
        from pyspark.sql import functions as sf

        if self.kind == "timestamp":
            return self.column <= sf.timestamp_micros(sf.lit(number))
        if self.kind == "timestamp_ntz":
            return self.column <= sf.lit(_EPOCH).cast("timestamp_ntz") + sf.lit(timedelta(microseconds=number))
        whole = sf.lit(number // self._unit)
        return self.column <= (
            sf.date_from_unix_date(whole.cast("int")) if self.kind == "date" else whole.cast(self.kind)
        )

    @property
    def _unit(self) -> int:
        if self.kind == "date":
            return DAY_MS * 1000
        return 1000 if self.is_time else 1  # milliseconds of a timestamp


def row_order(frame: DataFrame, place: Place, order: str, setting: str) -> RowOrder:
    """Return the order of an input's rows. Raises TransportError for a column whose type can't order rows."""
    column = expression(place, frame.columns, setting, order)
    kind = frame.select(column).dtypes[0][1]
    if kind not in (*WHOLE, *TIMES, "date"):
        raise TransportError(
            f"{place.path}: {setting}={order}: the column is of type {kind}; expected whole numbers or times"
        )
    return RowOrder(column, kind, kind in (*TIMES, "date") or setting == "timestamp")


# Positions of rows in files: Spark's hidden columns for them, and their text in messages.


FILE, BLOCK, ROW, INDEX = "_streamkit_file", "_streamkit_block", "_streamkit_row", "_streamkit_index"

FILE_OF_SPARK, INDEX_OF_SPARK = "_metadata.file_path", "_metadata.row_index"
"""Spark's own columns, which only rows of files have."""


def position_columns(place: str) -> list[str]:
    """Return SQL of the columns of a row's position: its file, the offset of its block in the file, and its index among all rows."""
    return [
        f"{FILE_OF_SPARK} AS {FILE}",
        f"CAST({place} AS BIGINT) AS {BLOCK}",
        f"monotonically_increasing_id() AS {ROW}",
    ]


def same_path(name: str) -> str:
    """Return the normal form of a file's name; Spark writes both file:/a and file:///a.

    >>> same_path("file:///a%20b"), same_path("file:/a%20b"), same_path("s3a://lake/a")
    ('/a b', '/a b', 's3a://lake/a')
    """
    return unquote(re.sub("^file:/+", "/", name))


def place_of_line(path: str, block: int, row: int) -> str:
    """Return the file and line number of a row. A block is a part of a file, which a task reads from the first line that begins in it."""
    if not block:
        return f"{path}:{row + 1}"
    if not path.startswith("/"):
        return f"{path}: line {row + 1} after byte {block}"
    with open(path, "rb") as file:
        lines = sum(file.read(min(1 << 20, block - at)).count(b"\n") for at in range(0, block, 1 << 20))
    # A line that begins at the end of a block belongs to that block.
    return f"{path}:{lines + 2 + row}"
