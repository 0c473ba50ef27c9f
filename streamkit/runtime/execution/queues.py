"""Record queues of a task (PartitionGroup), and the runs of consecutive records that they select."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, TypeAlias, cast

from streamkit.errors import ProcessingError, RegistryError, SerdeError, TimestampError
from streamkit.metrics import DropReason
from streamkit.operators.core.task_services import FailedRecord
from streamkit.record import Columns, Headers, RecordBatch, TopicPartition
from streamkit.runtime.execution.dead_letters import human_reason, place_of
from streamkit.runtime.execution.metadata import UNKNOWN
from streamkit.serdes.plain import shown

Extractor: TypeAlias = Callable[
    [list[bytes | None], list[bytes | None], list[int], list[Headers | None], Sequence[int], int], list[int | Exception]
]
"""Returns the timestamps of records, given by their columns and partition. An item may be an Exception."""

LATEST_TIME = 2**63 - 1
"""The highest timestamp (ms) that a record can have."""
LONG = 16
"""The number of consecutive records of one queue from which a separate run costs less than a merged one."""

HeapEntry: TypeAlias = "tuple[int, int, RecordQueue]"
"""(head timestamp, rank, queue): the smallest is processed next."""


@dataclass(frozen=True)
class QueueServices:
    """The services of the task that its queues use."""

    now: Callable[[], int]
    dropped: Callable[[str, str], None]
    """(reason, position of the record)."""
    skips: Callable[[Exception], bool]
    """Whether the deserialization handler skips a record that fails with this error."""
    failed: Callable[[Exception, FailedRecord], None]
    """Calls the deserialization handler: counts a skipped record and writes its dead letter, or raises."""


class UnreadRecord(NamedTuple):
    """A record without a valid timestamp. `record`: passed to the handler; None if the topic's policy alone decides.

    `place`: the number of records that the queue received before it. Offsets do not give this position: a batch job may sort records by key.
    """

    place: int
    error: Exception
    record: FailedRecord | None = None


class RecordQueue:
    """The queued records of one partition. A record without a valid timestamp fails when it is at the head (RecordQueue)."""

    def __init__(self, partition: TopicPartition, policy: str, extractor: Extractor | None, services: QueueServices):
        self.partition = partition
        self.rank = 0
        """The position among the task's queues by topic name, then partition; between equal timestamps the lowest goes first."""
        self.size = 0
        self._added = 0
        """The number of records that the queue has got."""
        self.partition_time = UNKNOWN
        self._time_before = UNKNOWN
        """The partition time before records were taken."""
        self.skipped = False
        """Whether records were skipped before they were taken, so their offsets still need a commit."""
        self._policy = policy
        self._extractor = extractor
        self._services = services
        self._chunks: deque[tuple[Columns, int]] = deque()
        """Columns, and the highest timestamp in them."""
        self._at = 0
        self._assigned_time = UNKNOWN
        """The highest timestamp extracted so far: the partition time for `use_partition_time`."""
        self.failures: deque[UnreadRecord] = deque()
        """Queued records without a valid timestamp, which end the task when they are at the head."""
        self.unhandled: deque[UnreadRecord] = deque()
        """Records that were omitted from the queue; the handler is called for each once all records before it have been taken.
        """

    def add(self, batch: RecordBatch) -> None:
        """Append a batch, and extract the timestamps of its records."""
        if not batch.offsets:
            return
        columns, highest = self.timed(batch)
        if columns.offsets:
            self._chunks.append((columns, highest))
            self.size += len(columns.offsets)
            self._added += len(columns.offsets)

    def timed(self, batch: RecordBatch) -> tuple[Columns, int]:
        """Return the records of a batch with their extracted timestamps, without skipped ones, and the highest timestamp (ms)."""
        columns, times = batch.columns, batch.times
        if self._extractor is not None:
            columns, times = self._extract(columns), None
        elif self._policy == "wallclock":
            columns, times = columns._replace(timestamps=[self._services.now()] * len(columns.offsets)), None
        elif (times[0] if times else min(columns.timestamps)) < 0:
            columns, times = self._repair(columns), None
        highest = times[1] if times else max(columns.timestamps, default=UNKNOWN)
        self._assigned_time = max(self._assigned_time, highest)
        return columns, highest

    def head_time(self) -> int:
        """Return the head record's timestamp (ms); the queue must not be empty."""
        return self._chunks[0][0].timestamps[self._at]

    def check_head(self) -> None:
        """Raise the error of the head record if it has no valid timestamp."""
        if self.failures and self.failures[0].place == self._added - self.size:
            _, error, record = self.failures[0]
            if record is not None:
                self._services.failed(error, record)
            raise error

    def handle_skipped(self) -> None:
        """Call the handler for the skipped records before the head.

        A commit covers exactly these, so under exactly-once each has one dead letter.
        """
        head = self._added - self.size
        while self.unhandled and self.unhandled[0].place <= head:
            _, error, record = self.unhandled.popleft()
            self._services.failed(error, cast(FailedRecord, record))

    def head_offset(self) -> int | None:
        """Return the offset of the head record, None if the queue is empty."""
        return self._chunks[0][0].offsets[self._at] if self._chunks else None

    def take(self, limit: int, before: HeapEntry | None, due: int | None = None) -> tuple[Columns, int]:
        """Return the next records and their highest timestamp: at most `limit`, all of one chunk.

        `before`: the (time, rank) of each is smaller than this. `due`: a time (ms) that only the last record may reach, so
        that punctuators fire at the right record.
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
            stop = _end_at(chunk.timestamps, start, stop, due)
        if self.failures:
            # The failing record becomes the head and raises its error there, after all records before it were processed.
            stop = min(stop, start + self.failures[0].place - (self._added - self.size))
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

    def batch_size(self) -> int:
        """Return the number of remaining records of the first batch."""
        return len(self._chunks[0][0].offsets) - self._at

    def is_ahead(self, before: HeapEntry) -> bool:
        """Return whether many consecutive records precede another queue's head."""
        times, at = self._chunks[0][0].timestamps, self._at + LONG
        return at < len(times) and times[at] < before[0]

    def merge_times(self, limit: int, due: int | None) -> list[int]:
        """Return the highest timestamp up to each of the next records that `take` would return at most."""
        (chunk, highest), start = self._chunks[0], self._at
        stop = min(len(chunk.offsets), start + limit)
        if due is not None and highest >= due:
            stop = _end_at(chunk.timestamps, start, stop, due)
        times = chunk.timestamps[start:stop]
        return times if times == sorted(times) else list(accumulate(times, max))

    def put_back(self, columns: Columns, highest: int) -> None:
        """Put back the records that were taken last; `highest`: the highest timestamp of the other records of that run."""
        if self._at:
            chunk, at_most = self._chunks[0]
            self._chunks[0] = chunk.slice(self._at, len(chunk.offsets)), at_most
            self._at = 0
        self._chunks.appendleft((columns, max(columns.timestamps)))
        self.size += len(columns.offsets)
        self.partition_time = max(self._time_before, highest)

    def _one(self, chunk: Columns, at: int, before: HeapEntry) -> tuple[Columns, int] | None:
        """Return the next record alone if the one after it belongs to another run, as when records of two topics alternate."""
        keys, values, timestamps, headers, offsets = chunk
        next_at = at + 1
        if next_at == len(timestamps):
            self._chunks.popleft()
            self._at = 0
        else:
            time = timestamps[next_at]
            if time < before[0] or (time == before[0] and self.rank < before[1]):
                return None
            self._at = next_at
        self.size -= 1
        time = timestamps[at]
        if time > self.partition_time:
            self.partition_time = time
        return Columns([keys[at]], [values[at]], [time], [headers[at]], [offsets[at]]), time

    def restore_time(self, time: int) -> None:
        """Set the partition time of the last commit (ms)."""
        self.partition_time = self._assigned_time = time

    def _end_of_run(self, timestamps: list[int], start: int, stop: int, before: HeapEntry) -> int:
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
        omitted = 0
        for at, time in enumerate(times):
            if type(time) is int and 0 <= time <= LATEST_TIME:
                continue
            if type(time) is int and time < 0:
                keep[at] = False
                self._dropped(columns, at)
            else:
                error = _extraction_error(time)
                keep[at] = not self._services.skips(error)
                unread = self._unread(columns, at, self._added + at - omitted, error)
                (self.failures if keep[at] else self.unhandled).append(unread)
                times[at] = max(self._assigned_time, 0)
            omitted += not keep[at]
        # Items that are not an int were replaced or are omitted.
        return self._keep(columns._replace(timestamps=cast("list[int]", times)), keep)

    def _unread(self, columns: Columns, at: int, place: int, error: Exception) -> UnreadRecord:
        keys, values, timestamps, headers, offsets = columns
        topic, partition = self.partition
        record = FailedRecord(topic, partition, offsets[at], timestamps[at], keys[at], values[at], headers[at])
        return UnreadRecord(place, error, record)

    def _repair(self, columns: Columns) -> Columns:
        """Apply the policy to negative timestamps (FailOnInvalidTimestamp, LogAndSkipOnInvalidTimestamp, UsePartitionTimeOnInvalidTimestamp)."""
        times = list(columns.timestamps)
        keep = [True] * len(times)
        highest, omitted = self._assigned_time, 0
        for at, time in enumerate(times):
            if time < 0:
                if self._policy == "log_and_skip":
                    keep[at] = False
                    omitted += 1
                    self._dropped(columns, at)
                    continue
                if self._policy != "use_partition_time" or highest < 0:
                    self._fail(columns, at, self._added + at - omitted)
                times[at] = max(highest, 0)
            highest = max(highest, times[at])
        return self._keep(columns._replace(timestamps=times), keep)

    def _dropped(self, columns: Columns, at: int) -> None:
        self._services.dropped(DropReason.TIMESTAMP, place_of(*self.partition, columns.offsets[at]))

    def _keep(self, columns: Columns, keep: list[bool]) -> Columns:
        if all(keep):
            return columns
        self.skipped = True
        return columns.keep(keep)

    def _fail(self, columns: Columns, at: int, place: int) -> None:
        offset = columns.offsets[at]
        what = f"the timestamp {columns.timestamps[at]} is negative"
        if self._policy == "use_partition_time":
            what += " and the partition has no time yet"
        self.failures.append(UnreadRecord(place, ProcessingError(f"{place_of(*self.partition, offset)}: {what}")))


def _extraction_error(result: int | Exception) -> Exception:
    """Return the error of a record for which an extractor returned no valid timestamp."""
    if isinstance(result, SerdeError | RegistryError):
        return result
    if isinstance(result, Exception):
        error = TimestampError(f"the timestamp expression failed: {human_reason(result)}")
        error.__cause__ = result
        return error
    if type(result) is int:
        return TimestampError(f"the timestamp expression gave {shown(result, 80)}, which is beyond 64 bits")
    hint = "; parse_time(TEXT) gives those of a time as text" if isinstance(result, str) else ""
    return TimestampError(
        f"the timestamp expression gave {shown(result, 80)}, not a whole number of milliseconds{hint}"
    )


def _end_at(times: list[int], start: int, stop: int, due: int) -> int:
    """Return the index after the first timestamp from `start` to `stop` that reaches a time."""
    return next((at + 1 for at in range(start, stop) if times[at] >= due), stop)


@dataclass(frozen=True)
class Idling:
    """How long a task waits for its empty partitions."""

    max_idle_ms: int = 0
    """max.task.idle.ms: -1 never waits; 0 waits while an empty partition has lag; more waits that long even without lag."""


class PartitionGroup:
    """The queues of a task; selects the longest run of records of the queue with the oldest head (PartitionGroup)."""

    def __init__(self, queues: Iterable[RecordQueue], idling: Idling | None = None):
        self.queues: dict[TopicPartition, RecordQueue] = {queue.partition: queue for queue in queues}
        self.stream_time = UNKNOWN
        self._idle_ms = (idling or Idling()).max_idle_ms
        self._heap: list[HeapEntry] = []
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
        """Add a partition (of a new topic that matches a pattern)."""
        self.queues[queue.partition] = queue
        for rank, partition in enumerate(sorted(self.queues)):
            self.queues[partition].rank = rank
        self._heap = []
        for waiting in self.queues.values():
            if waiting.size:
                self._push(waiting)

    def buffered(self) -> int:
        """Return the number of records in all queues."""
        return sum(queue.size for queue in self.queues.values())

    def has_work(self) -> bool:
        """Return whether there are records to process, or skipped ones to handle."""
        return bool(self._heap) or any(queue.unhandled for queue in self.queues.values())

    def handle_skipped(self) -> None:
        """Call the handler for the skipped records that the task has reached."""
        for queue in self.queues.values():
            if queue.unhandled:
                queue.handle_skipped()

    def set_lags(self, lags: Mapping[TopicPartition, int]) -> None:
        """Set how many records of partitions are not fetched yet; for other partitions this is unknown."""
        self._lags = dict(lags)

    def ready(self, clock: Callable[[], int]) -> bool:
        """Return whether the task may process, or must wait for an empty partition (max.task.idle.ms)."""
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

    def next_run(self, limit: int, due: int | None = None) -> Part | None:
        """Take the next records of one partition, with their highest timestamp; return None if there are none.

        Raises the error of a failed extraction. `limit`: the maximum number; `due`: the run ends with the first record whose
        timestamp (ms) reaches it.
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

    def next_merged(self, limit: int, due: int | None = None) -> Run | None:
        """Take the next records of several partitions in the order of `next_run`; return None if a run of one costs less.

        The run ends when one of the queues needs another batch or is empty.
        """
        heap = self._heap
        if len(heap) < 2 or limit < 2 or heap[0][2].is_ahead(min(heap[1:3])):
            return None
        queues = [queue for queue in self.queues.values() if queue.size]
        queues.sort(key=lambda queue: queue.rank)
        if any(queue.failures for queue in queues):
            return None
        # Examine only as much of a long batch as the short ones beside it may need.
        limit = min(limit, LONG * len(queues) * min(queue.batch_size() for queue in queues))
        order = merged_order([queue.merge_times(limit, due) for queue in queues], limit)
        parts = []
        for number, queue in enumerate(queues):
            count = order.count(number)
            # The number of each queue remains its position in the list.
            taken = queue.take(count, None) if count else (Columns([], [], [], [], []), UNKNOWN)
            parts.append((queue.partition, *taken))
        self._heap = [(queue.head_time(), queue.rank, queue) for queue in queues if queue.size]
        heapq.heapify(self._heap)
        return Run(parts, order)

    def put_back(self, parts: Iterable[Part]) -> None:
        """Put back the last records of a run, each part with the highest timestamp of its other records."""
        for partition, columns, highest in parts:
            self.queues[partition].put_back(columns, highest)
        self._heap = []
        for queue in self.queues.values():
            if queue.size:
                self._push(queue)

    def restore_time(self, partition: TopicPartition, time: int) -> None:
        """Set the partition time of a committed offset; the task's stream time is the highest of them."""
        self.queues[partition].restore_time(time)
        self.stream_time = max(self.stream_time, time)

    def _push(self, queue: RecordQueue) -> None:
        heapq.heappush(self._heap, (queue.head_time(), queue.rank, queue))


# A run: consecutive records of one partition or of several, which a program processes in order.

Position: TypeAlias = tuple[str | None, int, int]
"""(topic, partition, offset) of the current record."""

Part: TypeAlias = tuple[TopicPartition, Columns, int]
"""The records of a run from one partition, in order, and their highest timestamp."""

MAX_RUN = 16_384
"""The maximum number of records in a run."""
MAX_OUTPUT_ROWS = 100_000
"""The number of output rows after which a round ends."""


def merged_order(queues: list[list[int]], limit: int) -> list[int]:
    """Return which queue gives each of the next records, at most `limit`, until one of the queues ends.

    queues: for each queue, by rank, the highest timestamp up to each of its next records; none is empty. The queue with the
    lowest head is next; between equal heads, the lowest rank (PartitionGroup). A late record counts with the time of the
    records before it, since it is older than every other head and is taken right after them.
    """
    end, last = min((times[-1], number) for number, times in enumerate(queues))
    times: list[int] = []
    owners: list[int] = []
    for number, mine in enumerate(queues):
        stop = bisect_right(mine, end) if number <= last else bisect_left(mine, end)
        times += mine[:stop]
        owners += [number] * stop
    # The sort is stable: it keeps the ranks of equal times, and the order within a queue.
    return [owners[at] for at in sorted(range(len(times)), key=times.__getitem__)[:limit]]


class Run:
    """A run of records, which computes its stream time only when it is needed, and may end early."""

    __slots__ = ("_at", "_before", "_places", "_time", "_times", "order", "parts", "rest")

    def __init__(self, parts: list[Part], order: list[int] | None = None):
        """Create a run of one part, or of several; then each record is given with the index of its part."""
        self.parts = parts
        self.order = order
        self.rest: list[Part] = []
        """The unprocessed records of a run that ended early, each with the highest timestamp of its processed ones."""
        self._at = 0
        self._before = self._time = -1
        self._places: list[list[int]] | None = None
        self._times: list[int] | None = parts[0][1].timestamps if order is None else None

    def begin(self, stream_time: int) -> None:
        """Set the stream time (ms) before the run."""
        self._before = self._time = stream_time

    @property
    def highest(self) -> int:
        """The highest timestamp of the run (ms)."""
        return max(highest for _, _, highest in self.parts)

    def time_at(self, position: Position | None) -> int:
        """Return the highest timestamp up to the current record; without a position, that of the complete run."""
        times = self._times
        if times is None:
            times = self._times = self._merged_times()
        stop = len(times) if position is None else self._index(position) + 1
        if stop < self._at:
            # A step is forwarding a record that it held back while the run continued.
            self._time, self._at = self._before, 0
        if stop > self._at:
            self._time = max(self._time, max(times[self._at : stop]))
            self._at = stop
        return self._time

    def end_at(self, position: Position | None) -> None:
        """Make the current record the last one; the others are the `rest`."""
        if position is None or self.rest:
            return
        done = self._index(position) + 1
        order = self.order
        if order is not None:
            # The task's loop iterates over this list and therefore ends.
            del order[done:]
        for number, (partition, columns, _) in enumerate(self.parts):
            mine = done if order is None else order.count(number)
            if mine < len(columns.offsets):
                rest = columns.slice(mine, len(columns.offsets))
                # The program's loop iterates over this list and therefore ends.
                del columns.timestamps[mine:]
                highest = max(columns.timestamps, default=-1)
                self.rest.append((partition, rest, highest))
                self.parts[number] = partition, columns, highest
        if order is not None:
            self._times = None

    def _index(self, position: Position) -> int:
        """Return the index of a record in the run."""
        topic, partition, offset = position
        if self.order is None:
            return _index_of(self.parts[0][1].offsets, offset)
        if self._places is None:
            self._places = [[] for _ in self.parts]
            for at, number in enumerate(self.order):
                self._places[number].append(at)
        for places, (source, columns, _) in zip(self._places, self.parts, strict=True):
            if source == (topic, partition):
                return places[_index_of(columns.offsets, offset)]
        raise AssertionError(f"{position} is not in the run")

    def _merged_times(self) -> list[int]:
        assert self.order is not None
        times = [iter(columns.timestamps) for _, columns, _ in self.parts]
        return [next(times[number]) for number in self.order]


def _index_of(offsets: Sequence[int], offset: int) -> int:
    at = bisect_left(offsets, offset)
    # A batch job may sort records by key, so that their offsets do not ascend.
    return at if at < len(offsets) and offsets[at] == offset else offsets.index(offset)
