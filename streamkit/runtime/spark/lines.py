"""Records as lines of JSON: what tasks put out, written where it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from streamkit.runtime.records import RecordJson
from streamkit.runtime.spark.outbox import Outbox, Wanted
from streamkit.serdes.json_text import to_text

LINE = "value"
LINES_DDL = f"{LINE} string"


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

    lines = _of_one_topic(form, columns) or [to_text(record) for record in _records(form, columns)]
    return pa.RecordBatch.from_arrays([pa.array(lines, pa.binary()).cast(pa.string())], names=[LINE])


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
    write = orjson.dumps if form.is_plain(topic) else to_text
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
