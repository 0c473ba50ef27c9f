"""The topics that an application's start has found or made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamkit.plan.partitions import task_inputs, tasks_of
from streamkit.record import TaskId, TopicPartition


@dataclass(frozen=True)
class TopicsOnLog:
    """The existing topics, and the tasks that result from them."""

    partitions: Mapping[str, int]
    """Partition counts by name on the log."""
    inputs: Mapping[int, tuple[str, ...]]
    """Source topics on the log by sub-topology, patterns resolved."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """The ids of the changelogs (Admin.topic_ids)."""

    def count(self, topic: str) -> int:
        """Return a topic's partition count, 1 for one that is not known (a routed topic)."""
        return self.partitions.get(topic, 1)

    def tasks(self) -> list[TaskId]:
        """Return all tasks: for each sub-topology as many as the most partitions of its source topics (PartitionGrouper)."""
        return list(tasks_of(self.inputs, self.partitions))

    def partitions_of(self, task: TaskId) -> tuple[TopicPartition, ...]:
        """Return a task's input partitions: the one with its number of every source topic that has it."""
        return task_inputs(self.inputs[task.sub_topology], task.partition, self.partitions)
