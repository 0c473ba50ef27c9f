"""Records as lines of JSON: what tasks put out, written where it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamkit.runtime.records import RecordJson
from streamkit.runtime.spark.globals import classic_context
from streamkit.runtime.spark.outbox import Outbox, Wanted
from streamkit.serdes.json_text import to_text
from streamkit.serdes.size import MAX_DEPTH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LINE = "value"
LINES_DDL = f"{LINE} string"
_LONGEST = 1 << 30
"""Bytes of a line: what Spark takes as one text."""
_ENDING, _OWN_ENDING = ".txt", ".jsonl"
_DONE = "_SUCCESS"
_MARKED = "mapreduce.fileoutputcommitter.marksuccessfuljobs"


class Lines(Outbox):
    """Collects the output of a task and gives it as lines."""

    def __init__(self, wanted: Wanted, source: int, directory: Callable[[], Path], form: RecordJson):
        super().__init__(wanted, source, directory)
        self._form = form

    def _batch(self, rows: list[tuple]) -> Any:
        topics, keys, values, times, headers, partitions = zip(*rows, strict=True)
        places = self._places(topics, keys, partitions, self._numbers(len(rows)))
        stamps = [-1 if time is None else time for time in times]
        return lines_of(self._form, (topics, keys, values, stamps, headers, places))


def lines_of(form: RecordJson, columns: Sequence[Sequence[Any]]) -> Any:
    """Return columns topic, key, value, timestamp, headers, partition as an Arrow batch of lines; partition -1: unknown."""
    import pyarrow as pa

    lines = _of_one_topic(form, columns) or list(map(_line, _records(form, columns)))
    return pa.RecordBatch.from_arrays([pa.array(lines, pa.binary()).cast(pa.string())], names=[LINE])


def _line(record: dict) -> bytes:
    # A value within the bounds of serdes may have more characters as a part of a line, and has one level more.
    return to_text(record, _LONGEST, MAX_DEPTH + 1)


def _of_one_topic(form: RecordJson, columns: Sequence[Sequence[Any]]) -> list[bytes]:
    """Return the lines of records of one topic, decoded a column at a time; none where that can't be done."""
    import orjson

    topics, keys, values, times, headers, partitions = columns
    if len(set(topics)) > 1 or any(headers) or min(partitions, default=-1) < 0:
        return []
    topic = topics[0]
    found = form.columns(topic, keys, values)
    if found is None:
        return []
    write = orjson.dumps if form.is_plain(topic) else _line
    return [
        write({"topic": topic, "key": key, "value": value, "timestamp": time, "partition": number})
        for key, value, time, number in zip(*found, times, partitions, strict=True)
    ]


def _records(form: RecordJson, columns: Sequence[Sequence[Any]]) -> Iterator[dict]:
    for row in zip(*columns, strict=True):
        record = form.decode(row)
        if row[5] >= 0:
            record["partition"] = row[5]
        yield record


def write_text(frame: DataFrame, path: str, mode: str) -> None:
    """Write a frame of lines to files `part-….jsonl` of a directory, and `_SUCCESS` last of all.

    Spark calls every file of text .txt. Where a session gives no way to its file systems (Spark Connect) they stay so.
    """
    context = classic_context(frame.sparkSession)
    if context is None:
        frame.write.mode(mode).text(path)
        return
    frame.write.mode(mode).option(_MARKED, "false").text(path)
    java = context._jvm.org.apache.hadoop.fs.Path
    folder = java(path)
    files = folder.getFileSystem(context._jsc.hadoopConfiguration())
    for status in files.listStatus(folder):
        name = status.getPath().getName()
        if name.startswith("part-") and _ENDING in name:
            files.rename(status.getPath(), java(folder, name.replace(_ENDING, _OWN_ENDING)))
    files.create(java(folder, _DONE)).close()
