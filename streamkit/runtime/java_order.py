"""The choice among queues whose heads are equally old, as java.util.PriorityQueue makes it (TopologyTestDriver)."""

from __future__ import annotations

from typing import Any

from streamkit.record import TopicPartition
from streamkit.runtime.queues import Columns, PartitionGroup, RecordQueue


class JavaPartitionGroup(PartitionGroup):
    """Queues in a binary heap by head timestamp alone, one record at a time.

    Where timestamps are equal Java's order is that of its heap, and `try` shows it; live tasks break ties by topic, which
    no scheduling can change.
    """

    def next_run(self, limit: int, due: int | None = None) -> tuple[TopicPartition, Columns, int] | None:
        """Take the next record, as PartitionGroup.next_run does with a limit of 1."""
        if not self._heap:
            return None
        first: RecordQueue = self._heap[0]  # type: ignore[assignment]
        if first.failures:
            first.check_head()
        queue = self._poll()
        columns, highest = queue.take(1, None, due)
        if queue.size:
            self._push(queue)
        return queue.partition, columns, highest

    def _push(self, queue: RecordQueue) -> None:
        heap: list[Any] = self._heap
        heap.append(queue)
        time, at = queue.head_time(), len(heap) - 1
        while at > 0:
            parent = (at - 1) >> 1
            if heap[parent].head_time() <= time:
                break
            heap[at] = heap[parent]
            at = parent
        heap[at] = queue

    def _poll(self) -> RecordQueue:
        heap: list[Any] = self._heap
        first, last = heap[0], heap.pop()
        if heap:
            self._sift_down(heap, last)
        result: RecordQueue = first
        return result

    def _sift_down(self, heap: list[Any], queue: RecordQueue) -> None:
        size, at, time = len(heap), 0, queue.head_time()
        while at < size >> 1:
            child = 2 * at + 1
            if child + 1 < size and heap[child].head_time() > heap[child + 1].head_time():
                child += 1
            if time <= heap[child].head_time():
                break
            heap[at] = heap[child]
            at = child
        heap[at] = queue
