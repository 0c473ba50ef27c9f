"""Records as lines of JSON, which tasks make of their output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from streamkit.record import Headers, OutputTuple
from streamkit.runtime.records import RecordJson
from streamkit.runtime.spark.workers.globals import classic_context
from streamkit.runtime.spark.workers.output_collector import OutputCollector, OutputSpec
from streamkit.serdes.formats.json_text import to_text
from streamkit.serdes.plain import Document as Json
from streamkit.serdes.size import MAX_DEPTH

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

LINE = "value"
LINES_DDL = f"{LINE} string"
_LONGEST = 1 << 30
"""Bytes of a line: the longest text that Spark takes."""
_ENDING, _OWN_ENDING = ".txt", ".jsonl"
_DONE = "_SUCCESS"
_MARKED = "mapreduce.fileoutputcommitter.marksuccessfuljobs"


LineColumns: TypeAlias = tuple[
    Sequence[str],
    Sequence[bytes | None],
    Sequence[bytes | None],
    Sequence[int],
    Sequence[Headers | None],
    Sequence[int],
]
"""Records: topics, keys, values, timestamps, headers and partitions."""


class JsonOutputCollector(OutputCollector):
    """Collects the output of a task and gives it as lines of JSON."""

    def __init__(self, spec: OutputSpec, source: int, directory: Callable[[], Path], form: RecordJson):
        super().__init__(spec, source, directory)
        self._form = form

    def _batch(self, rows: list[OutputTuple]) -> pa.RecordBatch:
        topics, keys, values, times, headers, partitions = zip(*rows, strict=True)
        places = self._places(topics, keys, partitions, self._numbers(len(rows)))
        stamps = [-1 if time is None else time for time in times]
        return lines_of(self._form, (topics, keys, values, stamps, headers, places))


def lines_of(form: RecordJson, columns: LineColumns) -> pa.RecordBatch:
    """Return records as an Arrow batch of lines; partition -1: unknown."""
    import pyarrow as pa

    lines = _of_one_topic(form, columns) or list(map(_line, _records(form, columns)))
    return pa.RecordBatch.from_arrays([pa.array(lines, pa.binary()).cast(pa.string())], names=[LINE])


def _line(record: dict[str, Json]) -> bytes:
    # A value within the limits of serdes has more characters in a line, and is one level deeper.
    return to_text(record, _LONGEST, MAX_DEPTH + 1)


def _of_one_topic(form: RecordJson, columns: LineColumns) -> list[bytes]:
    """Return the lines of records of one topic, decoded by columns; none where the records do not allow it."""
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


def _records(form: RecordJson, columns: LineColumns) -> Iterator[dict[str, Json]]:
    for row in zip(*columns, strict=True):
        record = form.decode(row)
        if row[5] >= 0:
            record["partition"] = row[5]
        yield record


def write_text(frame: DataFrame, path: str, mode: str) -> None:
    """Write a frame of lines to files `part-….jsonl` of a directory, and `_SUCCESS` at the end.

    Spark's own suffix for text is .txt. It stays with Spark Connect, which gives no access to the file system.
    """
    context = classic_context(frame.sparkSession)
    if context is None:
        frame.write.mode(mode).text(path)
        return
    frame.write.mode(mode).option(_MARKED, "false").text(path)
    assert context._jvm is not None
    java = context._jvm.org.apache.hadoop.fs.Path
    folder = java(path)
    files = folder.getFileSystem(context._jsc.hadoopConfiguration())
    for status in files.listStatus(folder):
        name = status.getPath().getName()
        if name.startswith("part-") and _ENDING in name:
            files.rename(status.getPath(), java(folder, name.replace(_ENDING, _OWN_ENDING)))
    files.create(java(folder, _DONE)).close()
