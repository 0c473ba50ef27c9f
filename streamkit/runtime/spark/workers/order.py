"""The order in which a task takes the records of several topics: the queue with the oldest head first (PartitionGroup)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from streamkit.runtime.spark.workers import arrow_rows
from streamkit.runtime.spark.workers.task_stores import SpillingStores
from streamkit.runtime.spark.workers.worker import (
    StageWork,
    by_partition,
    by_topic,
    load,
    mark_errors,
    new_task,
    records,
)

if TYPE_CHECKING:
    import pyarrow as pa


@mark_errors
def order_rows(work: StageWork, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Set the order of external topics' rows to the highest time up to each row. The rows are sorted by partition, topic and offset.

    The row with the smallest order is the head of the next queue, even if late records follow it. Times come from the topics'
    `timestamp` expressions if they have one.
    """
    times = _Times(work)
    before = {} if work.kept is None else work.kept.orders_of(work.stage.subs)
    highest, last = -1, None
    try:
        for batch in batches:
            for partition, part in by_partition(batch):
                for rows in chain.from_iterable(map(_by_origin, by_topic(part))):
                    if rows.column(arrow_rows.ORDER).null_count == 0:
                        yield rows
                        continue
                    place = rows.column(arrow_rows.TOPIC)[0].as_py(), partition
                    if place != last:
                        highest, last = before.get(place, -1), place
                    ordered, highest = _ordered(rows, times.of(rows, partition), highest)
                    yield ordered
    finally:
        times.close()


def _by_origin(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield external rows, which have no order yet, before rows that the job wrote, which have one."""
    outside = rows.column(arrow_rows.ORDER).null_count
    return (part for part in (rows.slice(0, outside), rows.slice(outside)) if len(part))


class _Times:
    """Computes the times of records with the timestamp extractors of their topics."""

    def __init__(self, work: StageWork):
        loaded = load(work.plan)
        self._stores = SpillingStores(loaded.plan, work.spill_bytes)
        self._tasks = [new_task(loaded, work, index, 0, self._stores) for index in work.stage.subs]

    def of(self, rows: pa.RecordBatch, partition: int) -> list[int]:
        """Return the times (ms) of one topic's rows; -1 for a record without a time."""
        topic = rows.column(arrow_rows.TOPIC)[0].as_py()
        extractor = next((found for task in self._tasks if (found := task.extractor(topic)) is not None), None)
        if extractor is None:
            return arrow_rows.values_of(rows.column(arrow_rows.TIMESTAMP))
        each = records(rows, partition, {})
        times = extractor(each.keys, each.values, each.timestamps, each.headers, each.offsets, partition)
        return [time if type(time) is int else -1 for time in times]

    def close(self) -> None:
        """Close the tasks."""
        for task in self._tasks:
            task.close_stores()
        self._stores.close()


def _ordered(rows: pa.RecordBatch, times: list[int], highest: int) -> tuple[pa.RecordBatch, int]:
    import numpy as np
    import pyarrow as pa

    order = np.maximum.accumulate(np.maximum(np.array(times, dtype=np.int64), highest))
    field = rows.schema.field(arrow_rows.ORDER)
    return rows.set_column(arrow_rows.ORDER, field, pa.array(order, pa.int64())), int(order[-1])
