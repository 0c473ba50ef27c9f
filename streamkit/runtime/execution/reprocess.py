"""Restores global stores that have a custom processor through this processor, record by record (KIP-813, KAFKA-7663)."""

from __future__ import annotations

from dataclasses import dataclass

from streamkit.operators.core.operator import ProcessorNode
from streamkit.operators.steps.topics.topic_store import GlobalStoreUpdate
from streamkit.plan.model import SubTopology
from streamkit.record import RecordBatch
from streamkit.runtime.execution.task import Task
from streamkit.runtime.local.tasks.restore import Changelog


def reprocesses(sub: SubTopology) -> bool:
    """Return whether a global sub-topology has a custom processor."""
    return any(
        isinstance(node, ProcessorNode) and isinstance(node.processor, GlobalStoreUpdate) for node in sub.nodes.values()
    )


def reprocess(task: Task, batch: RecordBatch) -> None:
    """Process a batch to restore a store; records without a key are left out, as in Java. Raises ProcessingError."""
    if None in batch.keys:
        columns = batch.columns.keep([key is not None for key in batch.keys])
        batch = RecordBatch(batch.topic, batch.partition, columns)
    task.update(batch)
    del task.output[:]


@dataclass(eq=False)
class ReprocessedTopic(Changelog):
    """A partition whose records restore a global store through the task's processor."""

    task: Task | None = None

    def apply(self, batch: RecordBatch, stop: int | None) -> int:
        """Process the records of a batch before the offset `stop`; return how many. Raises ProcessingError."""
        assert self.task is not None
        batch = batch.before(stop)
        if len(batch):
            reprocess(self.task, batch)
            self.task.flush_stores()
            self.store.note_position(self.partition.partition, batch.offsets[-1] + 1)
            self.store.commit()
            self.restored += len(batch)
        return len(batch)
