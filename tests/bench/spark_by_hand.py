"""Works of `spark_engines` as Python functions by hand: Spark moves Arrow batches, and the functions count in dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import orjson
import pyarrow as pa

_SCHEMA = pa.schema(
    [("key", pa.string()), ("window_start", pa.int64()), ("value", pa.int64()), ("timestamp", pa.int64())]
)
_DDL = "key string, window_start bigint, value bigint, timestamp bigint"
_WINDOW = 60_000

Rows = Iterator[tuple[str, int, int]]
"""The key, the start of the window and the time of each row to count."""


def _lists(batch: pa.RecordBatch, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(batch.column(name).to_pylist() for name in names), strict=True)


def _users(batch: pa.RecordBatch) -> Rows:
    return ((user, 0, at) for user, at in _lists(batch, "user", "at"))


def _windows(batch: pa.RecordBatch) -> Rows:
    return ((user, at - at % _WINDOW, at) for user, at in _lists(batch, "user", "at"))


def _items(batch: pa.RecordBatch) -> Rows:
    rows = _lists(batch, "item", "kind", "amount", "at")
    return (
        (item, 0, at) for item, kind, amount, at in rows if amount > 100 and kind in ("a", "b") and item is not None
    )


def _items_of_text(batch: pa.RecordBatch) -> Rows:
    for payload, at in _lists(batch, "payload", "at"):
        order = orjson.loads(payload)
        if order["amount"] > 100 and order["kind"] in ("a", "b") and order.get("item") is not None:
            yield order["item"], 0, at


def _counts(rows_of: Callable[[pa.RecordBatch], Rows], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    counts: dict[tuple[str, int], int] = {}
    times: dict[tuple[str, int], int] = {}
    for batch in batches:
        for key, start, at in rows_of(batch):
            group = key, start
            counts[group] = counts.get(group, 0) + 1
            if at > times.get(group, -1):
                times[group] = at
    yield _batch(counts, times)


def _merged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    counts: dict[tuple[str, int], int] = {}
    times: dict[tuple[str, int], int] = {}
    for batch in batches:
        for key, start, count, at in _lists(batch, *_SCHEMA.names):
            group = key, start
            counts[group] = counts.get(group, 0) + count
            times[group] = max(at, times.get(group, -1))
    yield _batch(counts, times)


def _batch(counts: dict[tuple[str, int], int], times: dict[tuple[str, int], int]) -> pa.RecordBatch:
    keys, starts = [key for key, _ in counts], [start for _, start in counts]
    return pa.record_batch([keys, starts, list(counts.values()), list(times.values())], schema=_SCHEMA)


def _counted(rows_of: Callable[[pa.RecordBatch], Rows], rows: Any, other: Any) -> Any:
    partitions = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions"))
    counted = rows.mapInArrow(partial(_counts, rows_of), _DDL).repartition(partitions, "key")
    merged = counted.mapInArrow(_merged, _DDL)
    return merged if rows_of is _windows else merged.drop("window_start")


def _joined(rows: Any, items: Any) -> Any:
    weights = dict(items.collect())

    def join(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = [
                (user, weights[item], at)
                for user, item, amount, at in _lists(batch, "user", "item", "amount", "at")
                if amount > 900 and item in weights
            ]
            columns = list(zip(*found, strict=True)) or [(), (), ()]
            yield pa.record_batch([pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], names)

    kinds, names = (pa.string(), pa.int64(), pa.int64()), ["key", "value", "timestamp"]
    return rows.select("user", "item", "amount", "at").mapInArrow(join, "key string, value bigint, timestamp bigint")


FRAMES: dict[str, Callable[[Any, Any], Any]] = {
    "count by key": lambda rows, other: _counted(_users, rows.select("user", "at"), other),
    "count by key in windows": lambda rows, other: _counted(_windows, rows.select("user", "at"), other),
    "filter, count by another key": lambda rows, other: _counted(
        _items, rows.select("item", "kind", "amount", "at"), other
    ),
    "filter, count by another key, of JSON text": lambda rows, other: _counted(
        _items_of_text, rows.select("payload", "at"), other
    ),
    "filter, join with a global table": _joined,
}
"""Makes the rows of a work, by its title, from those of the orders and of the other topic."""
