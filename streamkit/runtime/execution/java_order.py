"""The choice among queues with equal head timestamps, by the order of java.util.PriorityQueue (TopologyTestDriver)."""

from __future__ import annotations

from streamkit.runtime.execution.queues import PartitionGroup, RecordQueue
from streamkit.runtime.execution.runs import Part, Run


class JavaPartitionGroup(PartitionGroup):
    """Queues in a binary heap by head timestamp alone, one record at a time.

    Between equal timestamps Java's order is that of its heap, which `try` shows. Tasks of a running application choose by
    topic, which does not depend on the order of arrival.
    """

    # `_heap` has queues here. The base class reads only the length of the list, and replaces it by an empty one.

    def next_run(self, limit: int, due: int | None = None) -> Part | None:
        """Take the next record, as PartitionGroup.next_run does with a limit of 1."""
        if not self._heap:
            return None
        first: RecordQueue = self._heap[0]  # type: ignore[assignment]  # see above
        if first.failures:
            first.check_head()
        queue = self._poll()
        columns, highest = queue.take(1, None, due)
        if queue.size:
            self._push(queue)
        return queue.partition, columns, highest

    def next_merged(self, limit: int, due: int | None = None) -> Run | None:
        """Return None: records are taken one at a time."""
        return None

    def _push(self, queue: RecordQueue) -> None:
        heap: list[RecordQueue] = self._heap  # type: ignore[assignment]  # see above
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
        heap: list[RecordQueue] = self._heap  # type: ignore[assignment]  # see above
        first, last = heap[0], heap.pop()
        if heap:
            self._sift_down(heap, last)
        return first

    def _sift_down(self, heap: list[RecordQueue], queue: RecordQueue) -> None:
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
