"""Sub-topologies that read what they write, such as both sides of a foreign-key join: in one Spark task, over a log in it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from streamkit.record import RecordBatch
from streamkit.runtime.spark import arrow_rows
from streamkit.runtime.spark.outbox import Outbox
from streamkit.runtime.spark.spill import SpillingStores
from streamkit.runtime.spark.worker import (
    Batches,
    Loaded,
    StageWork,
    commit,
    drain,
    load,
    new_task,
    records,
    source_id,
    told,
)
from streamkit.runtime.task import Task
from streamkit.serdes.partitioner import partition as partition_of


@told
def run_cycle(work: StageWork, batches: Batches) -> Iterator[Any]:
    """Run all tasks of a cycle over rows in the order of their times; yield what they write, what they read back too.

    Each record's consequences are followed to their end before the next record is taken, as `try` does it, so that what
    comes out does not depend on how far one task has got when another one answers.
    """
    loaded = load(work.plan)
    cycle = _Cycle(loaded, work)
    try:
        for batch in batches:
            for rows in _runs(batch):
                cycle.take(rows)
                yield from cycle.output()
        yield from cycle.finish()
    finally:
        cycle.close()


class _Cycle:
    """The tasks of a cycle and the log between them."""

    def __init__(self, loaded: Loaded, work: StageWork):
        self._work = work
        self._stores = SpillingStores(loaded.plan, work.spill_bytes)
        self._outbox = Outbox(work.wanted, source_id(min(work.stage.subs), 0), self._stores.directory)
        self._tasks: dict[tuple[int, int], Task] = {}
        self._readers: dict[tuple[str, int], list[Task]] = {}
        self._offsets: dict[tuple[str, int], int] = {}
        self._read: set[str] = set()
        self._waiting: deque[tuple] = deque()
        self._out: list[tuple] = []
        try:
            for index in work.stage.subs:
                self._open(loaded, index)
        except BaseException:
            self.close()
            raise

    def _open(self, loaded: Loaded, index: int) -> None:
        counts = self._work.wanted.partitions
        topics = self._work.sources[index]
        for partition in range(max((counts[topic] for topic in topics), default=0)):
            task = new_task(loaded, self._work, index, partition, self._stores)
            self._tasks[index, partition] = task
            for place in task.inputs:
                self._readers.setdefault((place.topic, place.partition), []).append(task)
                self._read.add(place.topic)
            task.start({})
            self._collect(task)

    def take(self, rows: Any) -> None:
        """Process rows of one topic and partition, one by one."""
        partition = rows.column(arrow_rows.PARTITION)[0].as_py()
        topic = rows.column(arrow_rows.TOPIC)[0].as_py()
        offsets = {topic: self._offsets.get((topic, partition), 0)}
        batch = records(rows, partition, offsets)
        self._offsets[topic, partition] = offsets[topic]
        columns = (batch.keys, batch.values, batch.timestamps, batch.headers, batch.offsets)
        for key, value, time, headers, offset in zip(*columns, strict=True):
            self._deliver(RecordBatch(topic, partition, ([key], [value], [time], [headers], [offset])))
            self._settle()

    def output(self) -> Iterator[Any]:
        """Yield what the tasks have written so far."""
        for task in self._tasks.values():
            self._stores.settle(task)
        if self._out:
            yield from self._outbox.take(self._out)

    def finish(self) -> Iterator[Any]:
        """Commit, and yield the rest."""
        for task in self._tasks.values():
            commit(task, self._work.ends)
            self._collect(task)
        self._settle()
        yield from self.output()
        yield from self._outbox.rest()

    def close(self) -> None:
        """Close processors and stores."""
        for task in self._tasks.values():
            task.close()
        self._stores.close()

    def _settle(self) -> None:
        """Pass what was written to its readers, until nothing more is written."""
        while self._waiting:
            topic, key, value, time, headers, number = self._waiting.popleft()
            count = self._work.wanted.partitions[topic]
            if number is None:
                number = 0 if key is None else partition_of(key, count)
            offset = self._offsets.get((topic, number), 0)
            self._offsets[topic, number] = offset + 1
            self._deliver(RecordBatch(topic, number, ([key], [value], [time], [headers], [offset])))

    def _deliver(self, batch: RecordBatch) -> None:
        for task in self._readers.get((batch.topic, batch.partition), ()):
            task.add(batch)
            drain(task)
            self._collect(task)

    def _collect(self, task: Task) -> None:
        if not task.output:
            return
        self._waiting.extend(row for row in task.output if row[0] in self._read)
        self._out.extend(task.output)
        del task.output[:]


def _runs(batch: Any) -> Iterator[Any]:
    """Yield the rows of a batch in runs of one topic and partition."""
    import numpy as np

    if not len(batch):
        return
    numbers = batch.column(arrow_rows.PARTITION).to_numpy()
    topics = batch.column(arrow_rows.TOPIC).dictionary_encode().indices.to_numpy()
    cuts = np.flatnonzero((np.diff(numbers) != 0) | (np.diff(topics) != 0)) + 1
    starts = [0, *cuts.tolist(), len(batch)]
    for start, stop in pairwise(starts):
        yield batch.slice(start, stop - start)
