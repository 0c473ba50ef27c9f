"""Reads the records of a topic without a group: without end, up to end offsets, or only the last ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from streamkit.record import TopicPartition

if TYPE_CHECKING:
    from streamkit.record import Headers, RecordBatch
    from streamkit.runtime.operations.reading.record_filter import RecordFilter
    from streamkit.runtime.operations.reading.topic_forms import Decoded
    from streamkit.serdes.plain import Json
    from streamkit.transport.log_interface import Consumer

POLL_RECORDS = 1000
POLL_MS = 200
_FURTHER = 4
"""The factor by which the search for the last records goes back further, where it has not found enough."""

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
    """A record that meets the conditions."""

    row: Row
    decoded: Decoded


def record_json(found: Found, *, offsets: bool = False) -> dict[str, Json]:
    """Return a record as an object; `error` has the reason where a side did not decode, which is {"base64": …} then."""
    from streamkit.runtime.records import headers_to_json

    row, decoded = found
    record: dict[str, Json] = {
        "topic": row.topic,
        "key": decoded.sides[0].json(decoded.key),
        "value": decoded.sides[1].json(decoded.value),
        "timestamp": row.timestamp,
    }
    if row.headers:
        record["headers"] = headers_to_json(row.headers)
    record["partition"] = row.partition
    if offsets:
        record["offset"] = row.offset
    if decoded.problems:
        record["error"] = "; ".join(f"{name}: {reason}" for name, reason in decoded.problems.items())
    return record


class Reading:
    """Reads assigned partitions; nothing is committed. stopped: returns whether to end now."""

    def __init__(
        self,
        consumer: Consumer,
        record_filter: RecordFilter,
        stopped: Callable[[], bool],
        poll_records: int = POLL_RECORDS,
    ):
        self._poll_records = poll_records
        self._consumer = consumer
        self._filter = record_filter
        self._stopped = stopped

    def follow(self, first: Offsets, *, until_idle: bool = False, most: int | None = None) -> Iterator[list[Found]]:
        """Yield the selected records as they arrive, a list for each poll; with `until_idle` up to the current end."""
        self._consumer.assign(first)
        # Where every record is selected, none is fetched that is not printed.
        size = self._poll_records
        if most is not None and self._filter.is_open:
            size = min(size, most)
        while not self._stopped():
            batches = self._consumer.poll(size, POLL_MS)
            yield list(self._wanted(batches))
            if not batches and until_idle and self._is_past(self._consumer.end_offsets(list(first))):
                return

    def between(
        self, first: Offsets, ends: Offsets, enough: Callable[[TopicPartition], bool] = lambda place: False
    ) -> Iterator[list[Found]]:
        """Yield the selected records before these ends; of a partition none after the poll that was enough."""
        left = {place: offset for place, offset in first.items() if offset < ends[place]}
        self._consumer.assign(left)
        while left and not self._stopped():
            yield list(self._wanted(self._consumer.poll(POLL_RECORDS, POLL_MS), ends))
            done = [place for place in left if self._consumer.position(place) >= ends[place] or enough(place)]
            self._consumer.remove(done)
            for place in done:
                del left[place]

    def first(self, number: int, first: Offsets, ends: Offsets) -> list[Found]:
        """Return the first of the selected records before these ends.

        Of the first `number` of each partition, by offset, the `number` with the earliest timestamps; in the order of
        timestamp, partition and offset.
        """
        kept: dict[TopicPartition, list[Found]] = {place: [] for place in first}
        for found in self.between(first, ends, lambda place: len(kept[place]) >= number):
            for each in found:
                kept[TopicPartition(each.row.topic, each.row.partition)].append(each)
        return sorted((each for rows in kept.values() for each in rows[:number]), key=_order)[:number]

    def last(self, number: int, first: Offsets, ends: Offsets) -> list[Found]:
        """Return the last of the selected records before these ends.

        Of the last `number` of each partition, by offset, the `number` with the latest timestamps; in the order of
        timestamp, partition and offset. Since offsets may be missing and records may not be selected, the search goes back
        until each partition has `number` records or is at `first`.
        """
        kept: dict[TopicPartition, deque[Found]] = {place: deque(maxlen=number) for place in first}
        distance = max(number, POLL_RECORDS if not self._filter.is_open else number)
        incomplete = list(first) if number else []
        while incomplete and not self._stopped():
            positions = {place: max(first[place], ends[place] - distance) for place in incomplete}
            for place in incomplete:
                kept[place].clear()
            for found in self.between(positions, ends):
                for each in found:
                    kept[TopicPartition(each.row.topic, each.row.partition)].append(each)
            incomplete = [
                place for place in incomplete if len(kept[place]) < number and positions[place] > first[place]
            ]
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
                decoded = self._filter.decode_matching(row)
                if decoded is not None:
                    yield Found(row, decoded)


def _order(found: Found) -> tuple[int, int, int]:
    return found.row.timestamp, found.row.partition, found.row.offset
