"""Outputs in files: writes records as files of a directory, which Spark commits together."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from streamkit.errors import TransportError
from streamkit.runtime.records import RecordJson
from streamkit.runtime.spark.job_options import (
    IN_UTC,
    JSON_LINES,
    Place,
)
from streamkit.runtime.spark.rows.file_system import (
    TOKEN,
    FileSystem,
    class_of,
    join,
)
from streamkit.runtime.spark.rows.files import EXACT_TIMES
from streamkit.runtime.spark.rows.output_columns import LOG_TYPES, OutputLayout, arranged, write_columns
from streamkit.runtime.spark.spark_session import (
    classic_context,
)
from streamkit.runtime.spark.workers import arrow_rows
from streamkit.runtime.spark.workers.output_collector import LINE, LINES_DDL, lines_of
from streamkit.runtime.spark.workers.worker import load, mark_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


_ENDING, _OWN_ENDING = ".txt", ".jsonl"
_DONE = "_SUCCESS"
_MOST_ROWS = "spark.sql.files.maxRecordsPerFile"
_BEYOND_THREE_DIGITS = re.compile(r"-c\d{4,}\.[^/]*$")
"""The number of a file of a task, beyond those that Spark writes with equal lengths."""
_COMMITTER = "mapreduce.fileoutputcommitter."
_COMMITTED = {f"{_COMMITTER}marksuccessfuljobs": "false", f"{_COMMITTER}algorithm.version": "1"}
"""Options of Hadoop's committer: it moves files into the directory once all are complete, and `_fresh` writes _SUCCESS."""
_REPLACED = {"partitionOverwriteMode": "static"}
"""An overwrite replaces the whole directory, whatever the session's setting."""
_WRITTEN = {
    "csv": {
        "header": "true",
        "escape": '"',
        # Spark would strip blanks at both ends.
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
        **EXACT_TIMES,
    }
}


def write_files(
    frame: DataFrame,
    place: Place,
    plan: bytes,
    overwrite: bool,
    layout: OutputLayout | None,
    *,
    is_ordered: bool,
    verify: Callable[[], None],
) -> None:
    """Write rows as files of records, which Spark commits together.

    layout: their columns; None for the columns of the log; is_ordered: whether the order of the rows of a key has a meaning.
    verify: raises TransportError if the written files must not stay.
    """
    if place.format == JSON_LINES:
        lines = frame if frame.columns == [LINE] else frame.mapInArrow(partial(write_lines, plan), LINES_DDL)
        with _fresh(frame.sparkSession, place.path, overwrite, verify) as (path, mode):
            _write_text(lines, path, mode)
        return
    if layout is None:
        rows = frame.select(*LOG_TYPES)
    elif frame.columns == list(layout.types):  # the result of a query has its final columns
        rows = frame
    else:
        rows = frame.mapInArrow(partial(write_columns, plan, layout, ()), layout.ddl)
    options = {**IN_UTC, **_REPLACED, **_committed(frame.sparkSession), **_WRITTEN.get(place.format, {})}
    shown = f"--output {place.path if layout is None else layout.place}"
    writer = arranged(rows, place, shown, is_ordered=is_ordered).options(**options).format(place.format)
    with _fresh(frame.sparkSession, place.path, overwrite, verify) as (path, mode):
        writer.mode(mode).save(path)


@contextmanager
def _fresh(
    spark: SparkSession, path: str, overwrite: bool, verify: Callable[[], None] = lambda: None
) -> Iterator[tuple[str, str]]:
    """Yield the path at which a directory is written, and Spark's mode; write _SUCCESS to it at the end. One that exists is replaced
    then: Spark itself would delete it first, and leave nothing if the job fails. Over Spark Connect it does, and writes _SUCCESS.
    """
    files = FileSystem(spark) if overwrite and classic_context(spark) is not None else None
    beside = files.beside(path, uuid.uuid4().hex[:TOKEN]) if files is not None and files.exists(path) else None
    if files is None or beside is None:
        yield path, "overwrite" if overwrite else "error"
        try:
            verify()
            _check_names(spark, path)
            _mark(spark, path)
        except TransportError:
            FileSystem(spark).delete(path)
            raise
        return
    try:
        yield beside, "error"
        verify()
        _check_names(spark, beside)
        _mark(spark, beside)
    except BaseException:
        files.delete(beside)
        raise
    # While files are deleted, the directory must not seem complete.
    files.delete(join(path, _DONE))
    files.delete(path)
    if not files.rename(beside, path):
        raise TransportError(f"{path} was written by another job meanwhile; the files of this one are in {beside}")


def _mark(spark: SparkSession, path: str) -> None:
    """Mark a directory as complete. Over Spark Connect, Spark has done so, and some formats have no directory."""
    files = None if classic_context(spark) is None else FileSystem(spark)
    if files is not None and files.is_folder(path):
        files.write(join(path, _DONE), "")


def _committed(spark: SparkSession) -> Mapping[str, str]:
    return {} if classic_context(spark) is None else _COMMITTED


def resumed(spark: SparkSession, path: str) -> list[str]:
    """Return a line for each directory beside an output that a job has written to replace it, and was killed before it did.

    A complete one takes the place of the output if that was deleted already.
    """
    files, lines = FileSystem(spark), []
    for beside in files.written_beside(path):
        if files.exists(join(beside, _DONE)) and not files.exists(path) and files.rename(beside, path):
            lines.append(f"{path}: a job was killed before it renamed {beside}; it is renamed now")
        else:
            lines.append(f"{path}: {beside} has files of a job that was killed, or still runs; delete it if none does")
    return lines


def _check_names(spark: SparkSession, path: str) -> None:
    """Raise TransportError if a task wrote so many files that the order of their names is not that of their rows."""
    if int(spark.conf.get(_MOST_ROWS, "0") or 0) <= 0 or classic_context(spark) is None:
        return
    if any(_BEYOND_THREE_DIGITS.search(state.name) for state in FileSystem(spark).files(path)):
        raise TransportError(
            f"{path}: {_MOST_ROWS} cuts the rows of a task into more than 1,000 files, whose names do not tell their order; set it higher"
        )


@mark_errors
def write_lines(plan: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows as lines of JSON."""
    form = RecordJson(load(plan).plan)
    for batch in batches:
        columns = (arrow_rows.values_of(batch.column(index)) for index in range(arrow_rows.HEADERS))
        topics, partitions, keys, values, times = columns
        headers = arrow_rows.headers_of(batch.column(arrow_rows.HEADERS))
        yield lines_of(form, (topics, keys, values, times, headers, partitions))


def _write_text(frame: DataFrame, path: str, mode: str) -> None:
    """Write a frame of lines to files `part-….jsonl` of a directory.

    Spark writes text to .txt files, which are renamed. With Spark Connect they keep this suffix, because it gives no access to files.
    """
    context = classic_context(frame.sparkSession)
    if context is None:
        frame.write.mode(mode).text(path)
        return
    frame.write.mode(mode).options(**_COMMITTED).text(path)
    assert context._jvm is not None
    java = class_of(context._jvm, "org.apache.hadoop.fs.Path")
    folder = java(path)
    files = folder.getFileSystem(context._jsc.hadoopConfiguration())
    for status in files.listStatus(folder):
        name = status.getPath().getName()
        if name.startswith("part-") and _ENDING in name:
            files.rename(status.getPath(), java(folder, name.replace(_ENDING, _OWN_ENDING)))
