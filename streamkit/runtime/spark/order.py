"""The order in which a task takes records of several topics: each queue by its offsets, the oldest head first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamkit.runtime.spark import arrow_rows
from streamkit.runtime.spark.spill import SpillingStores
from streamkit.runtime.spark.worker import Batches, StageWork, by_partition, by_topic, load, new_task, records, told


@told
def order_rows(work: StageWork, batches: Batches) -> Iterator[Any]:
    """Give rows of external topics, sorted by partition, topic and offset, their place: the highest time up to each.

    The smallest of them is the queue with the oldest head, whatever late records stand behind it. Times come from the
    topics' own expressions where they have any.
    """
    times = _Times(work)
    highest, last = -1, None
    try:
        for batch in batches:
            for partition, part in by_partition(batch):
                for rows in by_topic(part):
                    if rows.column(arrow_rows.ORDER).null_count == 0:
                        yield rows
                        continue
                    place = rows.column(arrow_rows.TOPIC)[0].as_py(), partition
                    if place != last:
                        highest, last = -1, place
                    ordered, highest = _ordered(rows, times.of(rows, partition), highest)
                    yield ordered
    finally:
        times.close()


class _Times:
    """Times of records as their queues will see them."""

    def __init__(self, work: StageWork):
        loaded = load(work.plan)
        self._stores = SpillingStores(loaded.plan, work.spill_bytes)
        self._tasks = [new_task(loaded, work, index, 0, self._stores) for index in work.stage.subs]

    def of(self, rows: Any, partition: int) -> list[int]:
        """Return the times (ms) of the rows of one topic; -1 where a record has none."""
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


def _ordered(rows: Any, times: list[int], highest: int) -> tuple[Any, int]:
    import numpy as np
    import pyarrow as pa

    order = np.maximum.accumulate(np.maximum(np.array(times, dtype=np.int64), highest))
    field = rows.schema.field(arrow_rows.ORDER)
    return rows.set_column(arrow_rows.ORDER, field, pa.array(order, pa.int64())), int(order[-1])
