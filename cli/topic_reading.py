"""The records of a topic, read without a group: on and on, to an end, or only the last ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from streamkit.record import TopicPartition

if TYPE_CHECKING:
    from streamkit.record import Headers, RecordBatch
    from streamkit.runtime.topic_forms import Decoded
    from streamkit.transport.base import Consumer

    from .record_tests import RecordTests

POLL_RECORDS = 1000
POLL_MS = 200
_FURTHER = 4
"""By how much further back the next look for the last records goes where the one before has not found enough."""

Offsets = Mapping[TopicPartition, int]


class Row(NamedTuple):
    """A record as it lies on the log."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None


class Found(NamedTuple):
    """A record that is wanted."""

    row: Row
    decoded: Decoded


class Reading:
    """Reads partitions by hand-made assignment; nothing is committed. stopped: says whether to end now."""

    def __init__(self, consumer: Consumer, tests: RecordTests, stopped: Callable[[], bool]):
        self._consumer = consumer
        self._tests = tests
        self._stopped = stopped

    def on(self, first: Offsets, *, until_idle: bool = False, most: int | None = None) -> Iterator[list[Found]]:
        """Yield what is wanted as it arrives, a list for each poll; with `until_idle` up to the moving end."""
        self._consumer.assign(first)
        # Where every record is wanted, none is fetched that is not printed.
        size = POLL_RECORDS if most is None or not self._tests.is_open else min(POLL_RECORDS, most)
        while not self._stopped():
            batches = self._consumer.poll(size, POLL_MS)
            yield list(self._wanted(batches))
            if not batches and until_idle and self._is_past(self._consumer.end_offsets(list(first))):
                return

    def between(self, first: Offsets, ends: Offsets) -> Iterator[list[Found]]:
        """Yield what is wanted before these ends."""
        left = {place: offset for place, offset in first.items() if offset < ends[place]}
        self._consumer.assign(left)
        while left and not self._stopped():
            yield list(self._wanted(self._consumer.poll(POLL_RECORDS, POLL_MS), ends))
            done = [place for place in left if self._consumer.position(place) >= ends[place]]
            self._consumer.remove(done)
            for place in done:
                del left[place]

    def last(self, number: int, first: Offsets, ends: Offsets) -> list[Found]:
        """Return the last of what is wanted before these ends.

        Of the last `number` of each partition, by offset, the `number` with the latest timestamps; in the order of
        timestamp, partition and offset. Offsets may be missing and records not wanted, so looks go further back until
        each partition has given its share or is at `first`.
        """
        kept: dict[TopicPartition, deque[Found]] = {place: deque(maxlen=number) for place in first}
        distance = max(number, POLL_RECORDS if not self._tests.is_open else number)
        looked = list(first) if number else []
        while looked and not self._stopped():
            starts = {place: max(first[place], ends[place] - distance) for place in looked}
            for place in looked:
                kept[place].clear()
            for found in self.between(starts, ends):
                for each in found:
                    kept[TopicPartition(each.row.topic, each.row.partition)].append(each)
            looked = [place for place in looked if len(kept[place]) < number and starts[place] > first[place]]
            distance *= _FURTHER
        found = sorted((each for rows in kept.values() for each in rows), key=_order)
        return found[-number:] if number else []

    def _is_past(self, ends: Offsets) -> bool:
        return all(self._consumer.position(place) >= end for place, end in ends.items())

    def _wanted(self, batches: list[RecordBatch], ends: Offsets | None = None) -> Iterator[Found]:
        for batch in batches:
            end = None if ends is None else ends[TopicPartition(batch.topic, batch.partition)]
            columns = (batch.offsets, batch.timestamps, batch.keys, batch.values, batch.headers)
            for fields in zip(*columns, strict=True):
                if end is not None and fields[0] >= end:
                    break
                row = Row(batch.topic, batch.partition, *fields)
                decoded = self._tests.wanted(row)
                if decoded is not None:
                    yield Found(row, decoded)


def _order(found: Found) -> tuple[Any, ...]:
    return found.row.timestamp, found.row.partition, found.row.offset
