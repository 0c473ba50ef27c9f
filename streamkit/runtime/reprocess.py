"""Global stores with a processor of the user's are restored through it, record by record (KIP-813, KAFKA-7663)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamkit.operators.topic_store import GlobalStoreUpdate
from streamkit.plan.model import ProcessorNode, SubTopology
from streamkit.record import RecordBatch
from streamkit.runtime.local.restore import Changelog
from streamkit.runtime.task import Task


def reprocesses(sub: SubTopology) -> bool:
    """Tell whether the records of a global sub-topology go through a processor of the user's."""
    return any(
        isinstance(node, ProcessorNode) and isinstance(node.processor, GlobalStoreUpdate) for node in sub.nodes.values()
    )


def reprocess(task: Task, batch: RecordBatch) -> None:
    """Process a batch to restore a store; records without a key are left out, as in Java. Raises ProcessingError."""
    columns: Any = (batch.keys, batch.values, batch.timestamps, batch.headers, batch.offsets)
    if None in batch.keys:
        kept = [place for place, key in enumerate(batch.keys) if key is not None]
        columns = tuple([column[place] for place in kept] for column in columns)
    task.update(RecordBatch(batch.topic, batch.partition, columns))
    del task.output[:]


@dataclass(eq=False)
class ReprocessedTopic(Changelog):
    """A partition whose records restore a global store by going through the task's processor."""

    task: Task | None = None

    def apply(self, batch: RecordBatch, stop: int | None) -> int:
        """Process the records of a batch before the offset `stop`; return how many. Raises ProcessingError."""
        assert self.task is not None
        count = len(batch) if stop is None else sum(offset < stop for offset in batch.offsets)
        columns: Any = (batch.keys, batch.values, batch.timestamps, batch.headers, batch.offsets)
        if count:
            reprocess(self.task, RecordBatch(batch.topic, batch.partition, tuple(column[:count] for column in columns)))
            self.task.flush_stores()
            self.store.note_position(self.partition.partition, batch.offsets[count - 1] + 1)
            self.store.commit()
            self.restored += count
        return count
