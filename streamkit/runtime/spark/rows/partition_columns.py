"""Rows of an output in files, in folders by columns and times, and in an order within each file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from streamkit.errors import UsageError
from streamkit.runtime.spark.rows.output_columns import ticked
from streamkit.runtime.spark.submission.job_options import Place
from streamkit.runtime.spark.submission.partition_transforms import BUCKET, TIMES, Transform

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameWriter

_FORMS = dict(zip(TIMES, ("yyyy", "yyyy-MM", "yyyy-MM-dd", "yyyy-MM-dd-HH"), strict=True))
_NESTED = ("struct<", "array<", "map<", "binary")


def check_columns(place: Place, topic: str, types: Mapping[str, str]) -> None:
    """Raise UsageError where `partition_by` or `sort_by` of an output names what its columns do not have."""
    shown = f"--output {topic}={place.path}"
    for setting, names in (
        ("partition_by", [each.column for each in place.layout.partition_by]),
        ("sort_by", place.layout.sort_by),
    ):
        for name in names:
            if name not in types:
                raise UsageError(f"{shown}: {setting}: there is no column {name}; there are {', '.join(types)}")
    for each in place.layout.partition_by:
        kind = types[each.column]
        if each.kind in TIMES and kind not in ("timestamp", "date"):
            raise UsageError(
                f"{shown}: partition_by={each.text}: the column is of type {kind}; expected a time or a date"
            )
        if each.kind == BUCKET and not place.is_table:
            raise UsageError(
                f"{shown}: partition_by={each.text}: files have folders by columns and times; tables have buckets"
            )
        if not each.kind and kind.startswith(_NESTED):
            raise UsageError(
                f"{shown}: partition_by={each.text}: the column is of type {kind}, which names no partition"
            )


def arranged(rows: DataFrame, place: Place) -> DataFrameWriter:
    """Return a writer of rows in the folders and the order that an output has."""
    layout = place.layout
    folders = [(_folder(each), each) for each in layout.partition_by]
    for name, each in folders:
        if each.kind:
            rows = rows.withColumn(name, _time(each, rows.schema[each.column].dataType.simpleString()))
    if layout.sort_by:
        rows = rows.sortWithinPartitions(*(ticked(name) for name in (*(name for name, _ in folders), *layout.sort_by)))
    writer = rows.write
    return writer.partitionBy(*(name for name, _ in folders)) if folders else writer


def _folder(each: Transform) -> str:
    return f"{each.column}_{each.kind.removesuffix('s')}" if each.kind else each.column


def _time(each: Transform, kind: str) -> Column:
    """Return the year, month, day or hour of a time in UTC, whatever the zone of the session."""
    from pyspark.sql import functions as sf

    column = sf.col(ticked(each.column))
    if kind == "date":
        return sf.date_format(column.cast("timestamp_ntz"), _FORMS[each.kind])
    zero, seconds = sf.lit(0), sf.unix_micros(column).cast("decimal(20,0)") / 1_000_000
    utc = sf.lit("1970-01-01").cast("timestamp_ntz") + sf.make_dt_interval(zero, zero, zero, seconds)
    return sf.date_format(utc, _FORMS[each.kind])
