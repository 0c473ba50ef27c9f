"""Reads the first rows of an input in the order of a job, without reading much more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from streamkit.runtime.spark.rows.files import FILES, OFFSETS, OpenedInput, narrowed, of_file
from streamkit.runtime.spark.rows.input_columns import WHOLE
from streamkit.runtime.spark.rows.positions import BLOCK, FILE, ROW, same_path
from streamkit.runtime.spark.rows.row_order import RowOrder, row_order

if TYPE_CHECKING:
    from pyspark.sql import Column

_MOST_FILES = 64
"""Maximum number of files per Spark job, because a job's plan grows with the number of files."""


def by_files(opened: OpenedInput) -> Iterator[OpenedInput]:
    """Yield an input with the order FILES in parts whose partitions are in the order of the rows.

    For `take`, Spark reads partitions one after another until it has enough rows; each partition is within one file. Each
    part has twice as many files as the previous one, because a condition may select few rows of each file.
    """
    names = sorted(opened.source.inputFiles(), key=same_path)
    first, size = 0, 1
    while first < len(names):
        frames = [of_file(opened, name).frame for name in names[first : first + size]]
        yield replace(opened, frame=reduce(lambda one, other: one.union(other), frames))
        first, size = first + size, min(2 * size, _MOST_FILES)


def first_rows(opened: OpenedInput, limit: int) -> OpenedInput:
    """Return the first rows of an input with columns; all rows of an input of lines, which may contain several topics."""
    from pyspark.sql import functions as sf

    if opened.place.has_lines:
        return opened
    by = _by_offset(opened) if opened.order == OFFSETS else opened.by
    if by is not None:
        opened = _up_to_last(opened, by, limit)
    # Sorted by file name, not by URI. Rows without an offset come after rows with one.
    by_file = [sf.url_decode(sf.replace(sf.col(FILE), sf.lit("+"), sf.lit("%2B"))), BLOCK, ROW]
    offset = [_offset().asc_nulls_last()] if opened.order == OFFSETS else []
    in_order = [*offset, *by_file] if opened.order in (FILES, OFFSETS) else [ROW, BLOCK]
    return replace(opened, frame=opened.frame.orderBy(*in_order).limit(limit))


def _up_to_last(opened: OpenedInput, by: RowOrder, limit: int) -> OpenedInput:
    """Return an input reduced to its first rows.

    Spark first reads one column of all rows, and then only the files and row groups that can contain the first rows.
    """
    from pyspark.sql import functions as sf

    number = _offset() if opened.order == OFFSETS else sf.col(ROW)
    first = opened.frame.select(number.alias("number")).orderBy(sf.col("number").asc_nulls_last()).limit(limit)
    (found,) = first.agg(sf.count("number").alias("count"), sf.max("number").alias("last")).collect()
    return opened if found["count"] < limit else narrowed(opened, by.up_to(found["last"]))


def _by_offset(opened: OpenedInput) -> RowOrder | None:
    """Return the order of rows by their offset, if the offset is a whole number."""
    if dict(opened.frame.dtypes)["offset"] not in WHOLE:
        return None
    return row_order(opened.source, opened.place, opened.place.columns.offset or "offset", "offset")


def _offset() -> Column:
    from pyspark.sql import functions as sf

    return sf.col("offset").try_cast("bigint")


__all__ = ["by_files", "first_rows"]
