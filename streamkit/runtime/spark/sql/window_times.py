"""Windows of queries: which ones a record is in, and whether all records come before their windows close."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from streamkit.errors import InexactError
from streamkit.operators.core.parsed_values import TimeWindows
from streamkit.runtime.spark.rows.files import OpenedInput
from streamkit.runtime.spark.rows.output_columns import ticked
from streamkit.runtime.spark.rows.row_order import BLOCK, FILE, INDEX, ROW
from streamkit.runtime.spark.sql.sources import LATEST, ORDER, TIME, SqlSource, file_order

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

MOST_WINDOWS = 1000
"""The windows that a record may be in: a query makes a row for each of them."""
IN_ORDER = TimeWindows(0, 1, 1)
"""Windows for which each record is late that has an earlier time than one before it."""
_CHUNK_BITS = 12
"""Rows of a chunk, as a power of two: those of which some might be late are read a second time."""
_PIECE, _FIRST, _LAST, _BEFORE = "piece", "first", "last", "before"


def first_start(windows: TimeWindows, time: str) -> str:
    """Return SQL of the start of the first window that has a time.

    >>> first_start(TimeWindows(0, 60, 60), "t")
    '((t DIV 60L) * 60L)'
    """
    behind = windows.size - windows.advance
    shifted = f"greatest(0L, {time} - {behind}L)" if behind else time
    return f"(({shifted} DIV {windows.advance}L) * {windows.advance}L)"


def window_starts(windows: TimeWindows, time: str) -> str:
    """Return SQL of the starts of all windows that have a time, a row for each."""
    first = first_start(windows, time)
    return first if windows.size == windows.advance else f"explode(sequence({first}, {time}, {windows.advance}L))"


def refuse_late(source: SqlSource, opened: OpenedInput, windows: TimeWindows) -> None:
    """Raise InexactError if a record might come after a window of it has closed: its partition then decides.

    The stream time at a record, in whatever partition and behind whatever repartition topic, is at most the highest time of the
    input up to the record. That holds for records that are merged with those of other topics too, since a task takes a record
    only after those of lower times. Chunks of rows are compared with that by their least and highest times, and only those in
    which a row might be late are compared row by row.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    if source.is_by_time:
        return
    times = source.frame(opened, (), True)
    place = source.order_columns(times)
    if ORDER in times.columns:
        chunk, index = [_PIECE], ORDER
    else:
        # A block is a row's index in its file, or the part of a file that one task reads.
        has_index = INDEX in opened.frame.columns
        chunk, index = ([FILE, _PIECE], BLOCK) if has_index else ([FILE, BLOCK, _PIECE], ROW)
    times = times.withColumn(_PIECE, sf.shiftright(index, _CHUNK_BITS))
    # The query itself refuses other times.
    times = times.where(sf.col(TIME).between(0, LATEST - windows.size))
    some = _perhaps_late(times.groupBy(*chunk).agg(sf.min(TIME).alias(_FIRST), sf.max(TIME).alias(_LAST)), windows)
    if some is None:
        return
    up_to = Window.partitionBy(*chunk).orderBy(*place).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = times.join(sf.broadcast(times.sparkSession.createDataFrame(some)), chunk)
    highest = sf.greatest(sf.max(TIME).over(up_to), sf.col(_BEFORE)).alias(_LAST)
    is_late = f"{first_start(windows, ticked(TIME))} + {windows.size}L <= {_LAST} - {windows.grace}L"
    if rows.select(TIME, highest).where(is_late).limit(1).collect():
        late = "have earlier times than those before" if windows is IN_ORDER else "come after their windows have closed"
        raise InexactError(f"records of {source.topic} {late}")


def _perhaps_late(chunks: DataFrame, windows: TimeWindows) -> pa.Table | None:
    """Return the chunks in which a row might be late, with the highest time before them; None if there are none.

    The driver looks at them, since they are few.
    """
    import pyarrow as pa
    from pyspark.sql import functions as sf

    names = [name for name in chunks.columns if name not in (_FIRST, _LAST)]
    table = chunks.withColumn(_BEFORE, file_order() if FILE in names else sf.lit("")).toArrow()
    order: list[tuple[str, Literal["ascending"]]] = [
        (_BEFORE, "ascending"),
        *((name, "ascending") for name in names if name != FILE),
    ]
    rows = table.sort_by(order).drop_columns([_BEFORE])
    highest, behind = -1, windows.size - windows.advance
    before, is_some = list[int](), list[bool]()
    for first, last in zip(rows[_FIRST].to_pylist(), rows[_LAST].to_pylist(), strict=True):
        before.append(highest)
        highest = max(highest, last)
        start = max(0, first - behind) // windows.advance * windows.advance
        is_some.append(start + windows.size <= highest - windows.grace)
    if not any(is_some):
        return None
    return rows.select(names).append_column(_BEFORE, pa.array(before, pa.int64())).filter(pa.array(is_some))
