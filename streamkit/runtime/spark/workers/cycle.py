"""Runs sub-topologies that read each other's output, such as both sides of a foreign-key join, in one Spark task."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING

from streamkit.errors import InvalidTopologyError
from streamkit.plan.partitions import task_count
from streamkit.record import Columns, OutputTuple, RecordBatch, TaskId
from streamkit.runtime.execution.task import Task
from streamkit.runtime.spark.workers import arrow_rows
from streamkit.runtime.spark.workers.kept_tasks import (
    BatchTask,
    Reading,
    StateWriter,
    fill,
    leading_state,
    memory_of,
    resume,
)
from streamkit.runtime.spark.workers.output_collector import OutputCollector
from streamkit.runtime.spark.workers.task_stores import KeptStores
from streamkit.runtime.spark.workers.worker import (
    Loaded,
    StageWork,
    check_state,
    commit,
    drain,
    load,
    mark_errors,
    new_task,
    records,
    source_id,
)
from streamkit.serdes.partitioner import partition as partition_of

if TYPE_CHECKING:
    import pyarrow as pa


@mark_errors
def run_cycle(work: StageWork, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run all tasks of a cycle over rows sorted by time, and yield their output.

    As in `try`, everything that a record causes is processed before the next record. The output therefore does not depend on
    the relative speed of the tasks.
    """
    loaded = load(work.plan)
    with closing(_Cycle(loaded, work)) as cycle:
        for batch in batches:
            for rows in _runs(batch):
                cycle.process(rows)
                yield from cycle.output()
        yield from cycle.finish()


class _Cycle:
    """The tasks of a cycle, and the records that they write to each other."""

    def __init__(self, loaded: Loaded, work: StageWork):
        self._work = work
        self._loaded = loaded
        self._stores = work.new_stores(loaded.plan)
        self._collector = OutputCollector(work.output, source_id(min(work.stage.subs), 0), self._stores.directory)
        self._tasks: dict[TaskId, BatchTask] = {}
        self._readers: dict[tuple[str, int], list[Task]] = {}
        self._reading = Reading()
        self._topics_read: set[str] = set()
        self._undelivered: deque[OutputTuple] = deque()
        self._output: list[OutputTuple] = []

    def _open(self) -> None:
        """Create the tasks, once their stores have the rows of the checkpoint."""
        layout = self._work.layout
        saved = {} if self._work.kept is None else self._work.kept.tasks
        for index in self._work.stage.subs:
            for partition in range(task_count(layout.sources[index], layout.partitions)):
                check_state(self._work, self._loaded.subs[index], partition, self._stores)
                task = new_task(self._loaded, self._work, index, partition, self._stores)
                self._tasks[TaskId(index, partition)] = task
                for place in task.inputs:
                    self._readers.setdefault((place.topic, place.partition), []).append(task)
                    self._topics_read.add(place.topic)
        shared = saved.get(self._shared_id())
        if shared is not None:
            self._reading.restore(shared)
            self._collector.restore(shared["written"])
        for task in self._tasks.values():
            resume(task, saved.get(task.task_id))
            self._collect(task)

    def _tasks_by_id(self) -> Iterator[tuple[str, BatchTask]]:
        return ((task.task_id, task) for task in self._tasks.values())

    def _shared_id(self) -> str:
        """Return the id of the task that the state shared by all tasks is saved with."""
        return str(TaskId(min(self._work.stage.subs), 0))

    def process(self, rows: pa.RecordBatch) -> None:
        """Process rows of one topic and partition, one by one, or fill a store with them."""
        partition = rows.column(arrow_rows.PARTITION)[0].as_py()
        topic = rows.column(arrow_rows.TOPIC)[0].as_py()
        kept = self._work.kept
        if kept is not None and isinstance(self._stores, KeptStores) and leading_state(rows):
            fill(kept, self._stores, rows, partition)
            return
        if not self._tasks:
            self._open()
        self._reading.note(rows, topic, partition)
        batch = records(rows, partition, self._reading.offsets)
        for key, value, time, headers, offset in zip(*batch.columns, strict=True):
            self._deliver(RecordBatch(topic, partition, Columns([key], [value], [time], [headers], [offset])))
            self._deliver_written()

    def output(self) -> Iterator[pa.RecordBatch]:
        """Yield the output of the tasks so far."""
        for task in self._tasks.values():
            self._stores.commit(task)
        if self._output:
            yield from self._collector.collect(self._output)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Commit, close the processors, and yield the rest. Raises InvalidTopologyError."""
        kept = self._work.kept
        for task in self._tasks.values():
            task.flush_stores()
            self._collect(task)
        self._deliver_written()
        memories = {}
        for name, task in self._tasks_by_id():
            if kept is None:
                commit(task, self._work.ends)
            else:
                memories[name] = memory_of(task, self._loaded.plan)
            self._collect(task)
        if self._undelivered:
            raise InvalidTopologyError(
                f"a processor forwards a record to {self._undelivered[0][0]} in its close, when the tasks that read this topic have ended"
            )
        if self._work.drops is not None:
            for task_id, task in self._tasks.items():
                self._work.drops.add(task_id, 0, task)
        yield from self.output()
        yield from self._collector.finish()
        if kept is None or not isinstance(self._stores, KeptStores) or not memories:
            return
        memories[self._shared_id()] |= {**self._reading.to_json(), "written": self._collector.position()}
        for name, task in self._tasks_by_id():
            yield from StateWriter(kept, self._stores).write(task, memories[name])

    def close(self) -> None:
        """Close processors and stores."""
        for task in self._tasks.values():
            task.close()
        self._stores.close()

    def _deliver_written(self) -> None:
        """Pass the tasks' output to the tasks that read it, until no output is left."""
        while self._undelivered:
            topic, key, value, time, headers, number = self._undelivered.popleft()
            count = self._work.layout.partitions[topic]
            if number is None:
                number = 0 if key is None else partition_of(key, count)
            offset = self._reading.offsets.get((topic, number), 0)
            self._reading.offsets[topic, number] = offset + 1
            stamp = -1 if time is None else time
            self._deliver(RecordBatch(topic, number, Columns([key], [value], [stamp], [headers], [offset])))

    def _deliver(self, batch: RecordBatch) -> None:
        for task in self._readers.get((batch.topic, batch.partition), ()):
            task.add(batch)
            drain(task)
            self._collect(task)

    def _collect(self, task: Task) -> None:
        if not task.output:
            return
        self._undelivered.extend(row for row in task.output if row[0] in self._topics_read)
        self._output.extend(task.output)
        del task.output[:]


def _runs(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch in runs of one topic and partition. Rows with and without their own offsets are in separate runs."""
    import numpy as np

    if not len(batch):
        return
    numbers = batch.column(arrow_rows.PARTITION).to_numpy()
    topics = batch.column(arrow_rows.TOPIC).dictionary_encode().indices.to_numpy()
    own = batch.column(arrow_rows.SOURCE).to_numpy() == 0
    cuts = np.flatnonzero((np.diff(numbers) != 0) | (np.diff(topics) != 0) | np.diff(own)) + 1
    for start, stop in pairwise([0, *cuts.tolist(), len(batch)]):
        yield batch.slice(start, stop - start)
