"""Windows of queries: the windows of a record, and a check that every record comes before its windows close."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Literal

from streamkit.durations import DAY_MS
from streamkit.errors import InexactError
from streamkit.operators.core.parsed_values import TimeWindows
from streamkit.runtime.spark.job_options import PARQUET
from streamkit.runtime.spark.rows.file_system import BLOCK, FILE, INDEX, ROW, same_path
from streamkit.runtime.spark.rows.files import FILES, OpenedInput
from streamkit.runtime.spark.rows.input_columns import TIMES, WHOLE, without_case
from streamkit.runtime.spark.rows.output_columns import ticked
from streamkit.runtime.spark.spark_session import classic_context
from streamkit.runtime.spark.sql.sources import LATEST, ORDER, TIME, SqlSource, file_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

MOST_WINDOWS = 1000
"""The maximum number of windows of a record; a query creates a row for each."""
IN_ORDER = TimeWindows(0, 1, 1)
"""Windows in which every record is late whose time is earlier than that of a record before it."""
_CHUNK_BITS = 12
"""The rows of a chunk, as a power of two. Chunks with possibly late rows are read a second time."""
_PIECE, _FIRST, _LAST, _BEFORE = "piece", "first", "last", "before"
_MOST_ROWS = 1 << 26
"""The rows whose timestamps the driver reads by itself, in about a second."""
_MOST_FILES = 256
"""The files that the driver has open for this."""
_BATCH = 1 << 17


@dataclass(frozen=True)
class Span:
    """The lowest and the highest timestamp of a file, in ms, and its size in bytes."""

    first: int
    last: int
    path: str
    size: int = 1


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
    A job of Spark does that unless the driver has seen that no record is late.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    if source.is_by_time or is_seen_in_time(source, opened, windows):
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


def is_seen_in_time(source: SqlSource, opened: OpenedInput, windows: TimeWindows) -> bool:
    """Return whether the driver sees in local Parquet files that no record is late, which costs far less than a job of Spark.

    False if it can't tell. Rows that the input leaves out count too, so that a record can seem to be late, but none to be in time.
    """
    import pyarrow as pa

    try:
        files = _times_in_files(source, opened)
        return files is not None and _are_in_time(chain.from_iterable(files.values()), windows)
    except (pa.ArrowException, OSError):
        return False


def spans_of_files(source: SqlSource, opened: OpenedInput) -> list[Span] | None:
    """Return the spans of an input's files with rows, in their order; None unless the driver sees that timestamps order all rows."""
    import numpy as np
    import pyarrow as pa

    spans, highest = list[Span](), 0
    try:
        for path, batches in (_times_in_files(source, opened) or {}).items():
            first = None
            for times in filter(len, batches):
                if times[0] < highest or (np.diff(times) < 0).any():
                    return None
                first, highest = int(times[0]) if first is None else first, int(times[-1])
            spans += [] if first is None else [Span(first, highest, path, os.path.getsize(path))]
    except (pa.ArrowException, OSError):
        return None
    return spans or None


def stretches(inputs: Sequence[Sequence[Span]], tasks: int) -> list[list[list[Span]]]:
    """Return the files of each input for each of some tasks: all records of a task come before those of the next one.

    Records of several inputs follow each other by time, then by the place of their input. tasks: the most tasks.

    >>> one, other = [Span(0, 4, "a"), Span(4, 8, "b")], [Span(1, 3, "c"), Span(5, 9, "d")]
    >>> [[[span.path for span in found] for found in part] for part in stretches([one, other], 9)]
    [[['a'], ['c']], [['b'], ['d']]]
    """
    pieces = sorted(
        (span.first, place, at, span) for place, spans in enumerate(inputs) for at, span in enumerate(spans)
    )
    parts, ends = list[list[list[Span]]](), [-1 for _ in inputs]
    for first, place, _, span in pieces:
        # The files of one input follow each other, also if a time is in both.
        if all(end < first or other == place for other, end in enumerate(ends)):
            parts.append([[] for _ in inputs])
        parts[-1][place].append(span)
        ends[place] = span.last
    sizes = [size_of(part) for part in parts]
    whole, before, found = max(1, sum(sizes)), 0, dict[int, list[list[Span]]]()
    for part, size in zip(parts, sizes, strict=True):
        task = (2 * before + size) * min(tasks, len(parts)) // (2 * whole)
        known = found.setdefault(task, [[] for _ in inputs])
        found[task] = [[*one, *other] for one, other in zip(known, part, strict=True)]
        before += size
    return list(found.values())


def size_of(inputs: Sequence[Sequence[Span]]) -> int:
    """Return the bytes of files."""
    return sum(span.size for spans in inputs for span in spans)


def _times_in_files(source: SqlSource, opened: OpenedInput) -> dict[str, Iterator[NDArray[np.int64]]] | None:
    """Return the timestamps of an input in milliseconds, by its files, in the order of its rows; None if Spark might read others from them."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    place, name, paths = opened.place, opened.place.columns.timestamp or TIME, sorted(map(same_path, opened.files))
    is_plain = isinstance(name, str) and name in opened.source.columns and "." not in name
    if place.format != PARQUET or source.order != FILES or source.has_made_times or not is_plain or not paths:
        return None
    is_near = classic_context(opened.source.sparkSession) is not None and all(path.startswith("/") for path in paths)
    if not is_near or len(paths) > _MOST_FILES:
        return None
    kind = opened.schema[TIME].dataType.simpleString()
    files: dict[str, Iterator[NDArray[np.int64]]] = {}
    rows = 0
    for path in paths:
        file = ParquetFile(path, coerce_int96_timestamp_unit="us")
        rows += file.metadata.num_rows
        names = [column for column in file.schema_arrow.names if without_case(column) == without_case(name)]
        if names != [name] or rows > _MOST_ROWS:
            return None
        stored = file.schema_arrow.field(name).type
        # Spark may shift times of the type INT96, which have no zone, if other programs have written them.
        is_instant = pa.types.is_timestamp(stored) and stored.unit in ("ms", "us")
        is_of_spark = kind == "timestamp_ntz" or getattr(stored, "tz", None) or "parquet-mr" in file.metadata.created_by
        is_known = (
            (kind in WHOLE and pa.types.is_signed_integer(stored))
            or (kind == "date" and pa.types.is_date32(stored))
            or (kind in TIMES and is_instant and is_of_spark)
        )
        if not is_known:
            return None
        batches = file.iter_batches(_BATCH, columns=[name])
        files[path] = (_milliseconds(batch.column(0)) for batch in batches)
    return files


def _milliseconds(times: pa.Array) -> NDArray[np.int64]:
    import pyarrow as pa

    is_date, is_micros = (
        pa.types.is_date32(times.type),
        times.type == pa.timestamp("us", getattr(times.type, "tz", None)),
    )
    numbers = times.cast(pa.int32()) if is_date else times
    whole = numbers.cast(pa.int64())
    whole = whole.fill_null(0) if whole.null_count else whole
    array: NDArray[np.int64] = whole.to_numpy()
    return array * DAY_MS if is_date else array // 1000 if is_micros else array


def _are_in_time(batches: Iterator[NDArray[np.int64]], windows: TimeWindows) -> bool:
    import numpy as np

    highest, behind = -1, windows.size - windows.advance
    for batch in batches:
        times = batch
        if times.size and (times.min() < 0 or times.max() > LATEST - windows.size):
            # The query itself refuses other times.
            times = batch[(batch >= 0) & (batch <= LATEST - windows.size)]
        if not times.size:
            continue
        stream_times = np.maximum(np.maximum.accumulate(times), highest)
        highest = int(stream_times[-1])
        # The first window of a record ends after it.
        if (stream_times - times).max() <= windows.grace:
            continue
        starts = np.maximum(times - behind, 0) // windows.advance * windows.advance
        if (starts + windows.size <= stream_times - windows.grace).any():
            return False
    return True


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
