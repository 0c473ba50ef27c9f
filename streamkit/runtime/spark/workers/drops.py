"""The records that the tasks of a job drop, counted in the workers and reported by the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias, cast

from streamkit.metrics import DroppedCount, dropped_line
from streamkit.record import TaskId
from streamkit.runtime.execution.task import Task

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext
    from pyspark.accumulators import AccumulatorParam

_Place: TypeAlias = tuple[int, int, int, int]
"""A part of a task's input: sub-topology, partition, Spark's number of its own task, and the key bucket."""
_Drops: TypeAlias = dict[_Place, tuple[DroppedCount, ...]]


class Drops:
    """The dropped records of a job. Spark sends it to the workers, which add to it; the driver reads it."""

    def __init__(self, accumulator: Accumulator[_Drops]):
        self._accumulator = accumulator

    @staticmethod
    def of(context: SparkContext) -> Drops:
        """Return the object for a new job."""
        return Drops(context.accumulator({}, cast("AccumulatorParam[_Drops]", _Merged())))

    def add(self, task_id: TaskId, bucket: int, task: Task) -> None:
        """Add what a task has dropped, at its end. bucket: the key bucket at which it ended."""
        found = task.drops.view()
        if found:
            from pyspark import TaskContext

            context = TaskContext.get()
            number = 0 if context is None else context.partitionId()
            self._accumulator.add({(task_id.sub_topology, task_id.partition, number, bucket): found})

    def describe(self) -> list[str]:
        """Return a line for each sub-topology and reason."""
        totals: Counter[tuple[int, str]] = Counter()
        messages: dict[tuple[int, str], str] = {}
        for (index, *_), counts in sorted(self._accumulator.value.items()):
            for count in counts:
                totals[index, count.reason] += count.dropped
                messages[index, count.reason] = count.message
        return [
            f"sub-topology {index}: {dropped_line(reason, dropped, messages[index, reason])}"
            for (index, reason), dropped in totals.items()
        ]


class _Merged:
    """How Spark combines what its tasks have added. A task that runs again drops the same records, which count once."""

    def zero(self, value: Mapping[_Place, tuple[DroppedCount, ...]]) -> _Drops:
        return {}

    def addInPlace(self, value1: _Drops, value2: _Drops) -> _Drops:
        value1.update(value2)
        return value1
