"""Windows of queries: the windows of a record, and a check that every record comes before its windows close."""

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
"""The maximum number of windows of a record; a query creates a row for each."""
IN_ORDER = TimeWindows(0, 1, 1)
"""Windows in which every record is late whose time is earlier than that of a record before it."""
_CHUNK_BITS = 12
"""The rows of a chunk, as a power of two. Chunks with possibly late rows are read a second time."""
_PIECE, _FIRST, _LAST, _BEFORE = "piece", "first", "last", "before"


def first_start(windows: TimeWindows, time: str) -> str:
    """Return the SQL for the start of the first window that contains a time.

    >>> first_start(TimeWindows(0, 60, 60), "t")
    '((t DIV 60L) * 60L)'
    """
    behind = windows.size - windows.advance
    shifted = f"greatest(0L, {time} - {behind}L)" if behind else time
    return f"(({shifted} DIV {windows.advance}L) * {windows.advance}L)"


def window_starts(windows: TimeWindows, time: str) -> str:
    """Return the SQL for the starts of all windows that contain a time, one row each."""
    first = first_start(windows, time)
    return first if windows.size == windows.advance else f"explode(sequence({first}, {time}, {windows.advance}L))"


def refuse_late(source: SqlSource, opened: OpenedInput, windows: TimeWindows) -> None:
    """Raise InexactError if a record might come after one of its windows has closed, which would depend on its partition.

    At any record, and in any partition, stream time is at most the highest time of the input so far. Repartition topics do
    not change this, and neither do other topics, because a task takes a record only after those with lower times. The check
    first compares each chunk of rows by its lowest and highest time, and then, row by row, the chunks with possibly late rows.
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
    # The query itself refuses all other times.
    times = times.where(sf.col(TIME).between(0, LATEST - windows.size))
    candidates = _perhaps_late(
        times.groupBy(*chunk).agg(sf.min(TIME).alias(_FIRST), sf.max(TIME).alias(_LAST)), windows
    )
    if candidates is None:
        return
    up_to = Window.partitionBy(*chunk).orderBy(*place).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = times.join(sf.broadcast(times.sparkSession.createDataFrame(candidates)), chunk)
    highest = sf.greatest(sf.max(TIME).over(up_to), sf.col(_BEFORE)).alias(_LAST)
    is_late = f"{first_start(windows, ticked(TIME))} + {windows.size}L <= {_LAST} - {windows.grace}L"
    if rows.select(TIME, highest).where(is_late).limit(1).collect():
        late = (
            "have earlier times than records before them"
            if windows is IN_ORDER
            else "come after their windows have closed"
        )
        raise InexactError(f"records of {source.topic} {late}")


def _perhaps_late(chunks: DataFrame, windows: TimeWindows) -> pa.Table | None:
    """Return the chunks with possibly late rows, each with the highest time before it; None if there are none.

    The driver computes this, because there are few chunks.
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
    before, may_be_late = list[int](), list[bool]()
    for first, last in zip(rows[_FIRST].to_pylist(), rows[_LAST].to_pylist(), strict=True):
        before.append(highest)
        highest = max(highest, last)
        start = max(0, first - behind) // windows.advance * windows.advance
        may_be_late.append(start + windows.size <= highest - windows.grace)
    if not any(may_be_late):
        return None
    return rows.select(names).append_column(_BEFORE, pa.array(before, pa.int64())).filter(pa.array(may_be_late))
