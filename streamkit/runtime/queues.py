"""Record queues of a task: records get their timestamps here, and the next run is chosen (PartitionGroup)."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Any, NamedTuple

from streamkit.errors import ProcessingError, SerdeError
from streamkit.record import RecordBatch, TopicPartition
from streamkit.runtime.handlers import human_reason
from streamkit.runtime.metadata import UNKNOWN

Extractor = Callable[[list, list, list, list, list, int], list]


class Columns(NamedTuple):
    """Parallel columns of consecutive records of one partition."""

    keys: list
    values: list
    timestamps: list
    headers: list
    offsets: list

    def slice(self, start: int, stop: int) -> Columns:
        """Return the records from start up to stop."""
        return Columns(
            self.keys[start:stop],
            self.values[start:stop],
            self.timestamps[start:stop],
            self.headers[start:stop],
            self.offsets[start:stop],
        )


@dataclass(frozen=True)
class QueueServices:
    """What queues ask of their task."""

    now: Callable[[], int]
    dropped: Callable[[int], None]
    undecodable: Callable[[Exception, TopicPartition, Columns, int], None]
    """Bytes that a timestamp expression could not read: return to skip the record at this index, or raise."""


class RecordQueue:
    """Records of one partition, waiting; one that can't be given a time fails when it reaches the head (RecordQueue)."""

    def __init__(self, partition: TopicPartition, policy: str, extractor: Extractor | None, services: QueueServices):
        self.partition = partition
        self.rank = 0
        """Place among the task's queues by topic name, then partition: it decides between equal timestamps."""
        self.size = 0
        self.partition_time = UNKNOWN
        self._time_before = UNKNOWN
        """The partition time before records were taken."""
        self.skipped = False
        """Whether records were dropped before they could be taken, so that their offsets still need a commit."""
        self._policy = policy
        self._extractor = extractor
        self._services = services
        self._chunks: deque[tuple[Columns, int]] = deque()
        """Columns, and the highest timestamp in them."""
        self._at = 0
        self._assigned_time = UNKNOWN
        """The highest timestamp given out so far: the partition time as use_partition_time sees it."""
        self.failures: deque[tuple[int, Exception]] = deque()
        """(offset, error) of records that can't be given a time."""

    def add(self, batch: RecordBatch) -> None:
        """Append a batch, giving its records their timestamps."""
        columns = Columns(batch.keys, batch.values, batch.timestamps, batch.headers, batch.offsets)
        if not columns.offsets:
            return
        if self._extractor is not None:
            columns = self._extract(columns)
        elif self._policy == "wallclock":
            columns = columns._replace(timestamps=[self._services.now()] * len(columns.offsets))
        elif min(columns.timestamps) < 0:
            columns = self._repair(columns)
        if columns.offsets:
            highest = max(columns.timestamps)
            self._assigned_time = max(self._assigned_time, highest)
            self._chunks.append((columns, highest))
            self.size += len(columns.offsets)

    def head_time(self) -> int:
        """Return the head record's timestamp (ms); the queue must not be empty."""
        return self._chunks[0][0].timestamps[self._at]

    def check_head(self) -> None:
        """Raise what the extraction of the head record raised, if anything."""
        if self.failures and self.failures[0][0] <= self._chunks[0][0].offsets[self._at]:
            raise self.failures[0][1]

    def head_offset(self) -> int | None:
        """Return the offset of the head record, None when empty."""
        return self._chunks[0][0].offsets[self._at] if self._chunks else None

    def take(self, limit: int, before: tuple | None, due: int | None = None) -> tuple[Columns, int]:
        """Return the next records and their highest timestamp: at most `limit`, all of one chunk.

        `before`: each one's (time, rank) is smaller than this.

        `due`: a time (ms) that no record but the last one reaches, so that punctuators fire where they must.
        """
        (chunk, highest), start = self._chunks[0], self._at
        if before is not None and not self.failures:
            one = self._one(chunk, start, before)
            if one is not None:
                return one
        stop = min(len(chunk.offsets), start + limit)
        if before is not None:
            stop = self._end_of_run(chunk.timestamps, start, stop, before)
        if due is not None and highest >= due:
            stop = next((at + 1 for at in range(start, stop) if chunk.timestamps[at] >= due), stop)
        if self.failures:
            # The failing record itself becomes the head and raises there, after everything before it was processed.
            stop = min(stop, bisect_left(chunk.offsets, self.failures[0][0]))
        taken, self._time_before = chunk, self.partition_time
        if stop - start < len(chunk.offsets):
            taken = chunk.slice(start, stop)
            highest = max(taken.timestamps)
        if stop == len(chunk.offsets):
            self._chunks.popleft()
            self._at = 0
        else:
            self._at = stop
        self.size -= stop - start
        if highest > self.partition_time:
            self.partition_time = highest
        return taken, highest

    def put_back(self, columns: Columns, highest: int) -> None:
        """Take records back that were taken last, the highest timestamp of the others being this."""
        if self._at:
            chunk, at_most = self._chunks[0]
            self._chunks[0] = chunk.slice(self._at, len(chunk.offsets)), at_most
            self._at = 0
        self._chunks.appendleft((columns, max(columns.timestamps)))
        self.size += len(columns.offsets)
        self.partition_time = max(self._time_before, highest)

    def _one(self, chunk: Columns, at: int, before: tuple) -> tuple[Columns, int] | None:
        """Return the next record alone if the one after it is not to be taken with it, as where two topics take turns."""
        keys, values, timestamps, headers, offsets = chunk
        following = at + 1
        if following == len(timestamps):
            self._chunks.popleft()
            self._at = 0
        else:
            time = timestamps[following]
            if time < before[0] or (time == before[0] and self.rank < before[1]):
                return None
            self._at = following
        self.size -= 1
        time = timestamps[at]
        if time > self.partition_time:
            self.partition_time = time
        return Columns([keys[at]], [values[at]], [time], [headers[at]], [offsets[at]]), time

    def restore_time(self, time: int) -> None:
        """Take the partition time of the last commit (ms)."""
        self.partition_time = self._assigned_time = time

    def _end_of_run(self, timestamps: list, start: int, stop: int, before: tuple[int, int]) -> int:
        limit, other_rank = before[0], before[1]
        # On equal times the queue of the smaller rank goes first.
        if self.rank > other_rank:
            limit -= 1
        at = start + 1
        while at < stop and timestamps[at] <= limit:
            at += 1
        return at

    def _extract(self, columns: Columns) -> Columns:
        assert self._extractor is not None
        times = self._extractor(*columns, self.partition.partition)
        keep = [True] * len(times)
        for at, time in enumerate(times):
            if type(time) is int and time >= 0:
                continue
            keep[at] = False
            if isinstance(time, SerdeError):
                self._services.undecodable(time, self.partition, columns, at)
            elif type(time) is int:
                self._services.dropped(1)
            else:
                keep[at] = True
                self._fail(columns, at, time)
                times[at] = max(self._assigned_time, 0)
        return self._keep(columns._replace(timestamps=times), keep)

    def _repair(self, columns: Columns) -> Columns:
        """Apply the policy to negative timestamps (FailOnInvalidTimestamp and its siblings)."""
        times = list(columns.timestamps)
        keep = [True] * len(times)
        highest = self._assigned_time
        for at, time in enumerate(times):
            if time < 0:
                if self._policy == "log_and_skip":
                    keep[at] = False
                    self._services.dropped(1)
                    continue
                if self._policy != "use_partition_time" or highest < 0:
                    self._fail(columns, at, None)
                times[at] = max(highest, 0)
            highest = max(highest, times[at])
        return self._keep(columns._replace(timestamps=times), keep)

    def _keep(self, columns: Columns, keep: list[bool]) -> Columns:
        if all(keep):
            return columns
        self.skipped = True
        return Columns(*(list(compress(column, keep)) for column in columns))

    def _fail(self, columns: Columns, at: int, reason: Any) -> None:
        topic, partition = self.partition
        offset = columns.offsets[at]
        if isinstance(reason, ProcessingError):
            self.failures.append((offset, reason))
            return
        if reason is None:
            what = f"the timestamp {columns.timestamps[at]} is negative"
            if self._policy == "use_partition_time":
                what += " and the partition has no time yet"
        elif isinstance(reason, Exception):
            what = f"the timestamp expression failed: {human_reason(reason)}"
        else:
            what = f"the timestamp expression gave {reason!r}, not a whole number of milliseconds"
        error = ProcessingError(f"topic {topic}, partition {partition}, offset {offset}: {what}")
        if isinstance(reason, Exception):
            error.__cause__ = reason
        self.failures.append((offset, error))


@dataclass(frozen=True)
class Idling:
    """How long a task waits for its empty partitions."""

    max_idle_ms: int = 0
    """max.task.idle.ms: -1 never waits; 0 waits while an empty partition lags; more: at lag 0 too, so long."""


class PartitionGroup:
    """The queues of a task: gives the longest run of records from the queue with the oldest head (PartitionGroup)."""

    def __init__(self, queues: Iterable[RecordQueue], idling: Idling | None = None):
        self.queues: dict[TopicPartition, RecordQueue] = {queue.partition: queue for queue in queues}
        self.stream_time = UNKNOWN
        self._idle_ms = (idling or Idling()).max_idle_ms
        self._heap: list[tuple[int, int, RecordQueue]] = []
        self._lags: dict[TopicPartition, int] = {}
        self._deadlines: dict[TopicPartition, int] = {}
        for rank, partition in enumerate(sorted(self.queues)):
            self.queues[partition].rank = rank

    def add(self, batch: RecordBatch) -> RecordQueue:
        """Queue a batch and return its queue."""
        queue = self.queues[TopicPartition(batch.topic, batch.partition)]
        was_empty = queue.size == 0
        queue.add(batch)
        if was_empty and queue.size:
            self._push(queue)
        return queue

    def add_queue(self, queue: RecordQueue) -> None:
        """Take in another partition (a topic that a pattern matches has appeared)."""
        self.queues[queue.partition] = queue
        for rank, partition in enumerate(sorted(self.queues)):
            self.queues[partition].rank = rank
        self._heap = []
        for each in self.queues.values():
            if each.size:
                self._push(each)

    def buffered(self) -> int:
        """Return how many records wait in all queues."""
        return sum(queue.size for queue in self.queues.values())

    def set_lags(self, lags: Mapping[TopicPartition, int]) -> None:
        """Note how many records partitions have that were not fetched yet; partitions not named are unknown."""
        self._lags = dict(lags)

    def ready(self, clock: Callable[[], int]) -> bool:
        """Return whether the task may process: no empty partition is worth waiting for (max.task.idle.ms)."""
        if not self._heap:
            return False
        if self._idle_ms < 0:
            return True
        if len(self._heap) == len(self.queues):
            if self._deadlines:
                self._deadlines.clear()
            return True
        now = clock()
        for partition, queue in self.queues.items():
            if queue.size:
                self._deadlines.pop(partition, None)
            elif self._lags.get(partition, -1) != 0:
                self._deadlines.pop(partition, None)
                return False
            elif now < self._deadlines.setdefault(partition, now + self._idle_ms):
                return False
        return True

    def next_run(self, limit: int, due: int | None = None) -> tuple[TopicPartition, Columns, int] | None:
        """Take the next records of one partition, with their highest timestamp; None when there are none.

        Raises what extraction raised.
        `limit`: at most so many; `due`: none after the first record whose timestamp (ms) reaches it.
        """
        heap = self._heap
        if not heap:
            return None
        queue = heap[0][2]
        if queue.failures:
            queue.check_head()
        count = len(heap)
        before = None if count == 1 else heap[1] if count == 2 or heap[1] < heap[2] else heap[2]
        columns, highest = queue.take(limit, before, due)
        if queue.size:
            heapq.heapreplace(heap, (queue.head_time(), queue.rank, queue))
        else:
            heapq.heappop(heap)
        return queue.partition, columns, highest

    def put_back(self, partition: TopicPartition, columns: Columns, highest: int) -> None:
        """Take back the last records of a run, the highest timestamp of the others being this."""
        self.queues[partition].put_back(columns, highest)
        self._heap = []
        for queue in self.queues.values():
            if queue.size:
                self._push(queue)

    def restore_time(self, partition: TopicPartition, time: int) -> None:
        """Take the partition time of a committed offset; the task's stream time is the highest of them."""
        self.queues[partition].restore_time(time)
        self.stream_time = max(self.stream_time, time)

    def _push(self, queue: RecordQueue) -> None:
        heapq.heappush(self._heap, (queue.head_time(), queue.rank, queue))
