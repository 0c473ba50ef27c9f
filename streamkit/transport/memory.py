"""A log in memory for one thread: what `try` and tests write to and read from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import time_ns

from streamkit.errors import OffsetOutOfRangeError, ProductionError, TopicError, TransportError
from streamkit.record import Headers, OutputRow, RecordBatch, TopicPartition
from streamkit.serdes.partitioner import partition as partition_of
from streamkit.transport.base import (
    EARLIEST,
    LATEST,
    Admin,
    CommittedOffset,
    Consumer,
    NewTopic,
    Producer,
    TopicInfo,
    Transport,
)
from streamkit.transport.groups import Generation, encode_generation

Stored = tuple[bytes | None, bytes | None, int, Headers | None]


@dataclass
class _Partition:
    """Records by offset; those before `first` are deleted, their places empty."""

    first: int = 0
    records: list[Stored] = field(default_factory=list)


class MemoryTransport(Transport):
    """Topics in dicts; offers neither transactions nor membership. A topic that is written to is created on the way.

    partitions: of topics created on the way; 0 creates none, so that a missing topic is an error.
    """

    def __init__(self, partitions: int = 1):
        self._default = partitions
        self._topics: dict[str, tuple[NewTopic, list[_Partition]]] = {}
        self._offsets: dict[tuple[str, TopicPartition], CommittedOffset] = {}
        self._turn = 0

    def consumer(
        self, group: str | None, *, read_committed: bool = False, role: str = "main", client_id: str = ""
    ) -> Consumer:
        return MemoryConsumer(self, group)

    def producer(self, *, transactional_id: str | None = None, client_id: str = "") -> Producer:
        if transactional_id is not None:
            raise TransportError("the log in memory offers no transactions")
        return MemoryProducer(self)

    def admin(self) -> Admin:
        return MemoryAdmin(self)

    def close(self) -> None:
        pass

    def append(self, row: OutputRow | tuple) -> None:
        """Write one row. Raises ProductionError."""
        topic, key, value, timestamp, headers, number = row
        if topic not in self._topics and self._default:
            self._topics[topic] = (NewTopic(topic, self._default), [_Partition() for _ in range(self._default)])
        partitions = self._topics[topic][1] if topic in self._topics else []
        if number is None and partitions:
            self._turn += key is None
            number = self._turn % len(partitions) if key is None else partition_of(key, len(partitions))
        if number is None or not 0 <= number < len(partitions):
            what = f"it has no partition {number}" if partitions else "the topic does not exist"
            raise ProductionError(f"a record for topic {topic} could not be written: {what}")
        time = time_ns() // 1_000_000 if timestamp is None or timestamp == -1 else timestamp
        partitions[number].records.append((key, value, time, headers))

    def find(self, place: TopicPartition) -> _Partition:
        """Return a partition. Raises TopicError."""
        partitions = self._topics[place.topic][1] if place.topic in self._topics else []
        if not 0 <= place.partition < len(partitions):
            raise TopicError(f"topic {place.topic} has no partition {place.partition} in memory")
        return partitions[place.partition]


class MemoryProducer(Producer):
    """Writes at once."""

    def __init__(self, log: MemoryTransport):
        self._log = log

    def send(self, rows: Sequence[OutputRow | tuple]) -> None:
        for row in rows:
            self._log.append(row)

    def flush(self) -> None:
        pass

    def begin(self) -> None:
        raise TransportError("the log in memory offers no transactions")

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset], group_metadata: bytes | None) -> None:
        raise TransportError("the log in memory offers no transactions")

    def abort(self) -> None:
        raise TransportError("the log in memory offers no transactions")

    def close(self) -> None:
        pass


class MemoryConsumer(Consumer):
    """Never waits: in one thread nobody could write meanwhile."""

    def __init__(self, log: MemoryTransport, group: str | None):
        self._log = log
        self._group = group
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._positions.clear()
        self._paused.clear()
        self.add(positions)

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        for place, offset in positions.items():
            found = self._log.find(place)
            self._positions[place] = {EARLIEST: found.first, LATEST: len(found.records)}.get(offset, offset)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        for place in partitions:
            self._positions.pop(place, None)
            self._paused.discard(place)

    def poll(self, max_records: int, timeout_ms: int) -> list[RecordBatch]:
        batches = []
        for place, position in self._positions.items():
            found = self._log.find(place)
            if not found.first <= position <= len(found.records):
                text = f"offset {position} of {place.topic} [{place.partition}] is out of range"
                raise OffsetOutOfRangeError(text, *place)
            rows = found.records[position : position + max_records] if place not in self._paused else []
            if rows:
                columns = tuple(map(list, zip(*rows, strict=True)))
                offsets = list(range(position, position + len(rows)))
                batches.append(RecordBatch(*place, (*columns, offsets)))  # type: ignore[arg-type]
                max_records -= len(rows)
            if max_records <= 0:
                break
        for batch in batches:
            place = TopicPartition(batch.topic, batch.partition)
            # To the end of the line: with small limits each partition has its turn.
            del self._positions[place]
            self._positions[place] = batch.offsets[-1] + 1
        return batches

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.update(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.difference_update(partitions)

    def position(self, partition: TopicPartition) -> int:
        if partition not in self._positions:
            raise TransportError(f"{partition.topic} [{partition.partition}] is not assigned")
        return self._positions[partition]

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: len(self._log.find(place).records) for place in partitions}

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self._log.find(place).first for place in partitions}

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        result = {}
        for place, time in times.items():
            found = self._log.find(place)
            later = (o for o, record in enumerate(found.records) if o >= found.first and record[2] >= time)
            result[place] = next(later, len(found.records))
        return result

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        offsets, group = self._log._offsets, self._need_group()
        return {place: offsets[group, place] for place in partitions if (group, place) in offsets}

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        group = self._need_group()
        self._log._offsets.update({(group, place): offset for place, offset in offsets.items()})

    def group_metadata(self) -> bytes:
        return encode_generation(Generation(self._need_group()))

    def close(self) -> None:
        pass

    def _need_group(self) -> str:
        if self._group is None:
            raise TransportError("this consumer has no group")
        return self._group


class MemoryAdmin(Admin):
    """Administration of the log in memory."""

    def __init__(self, log: MemoryTransport):
        self._log = log

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        known = self._log._topics
        wanted = known if names is None else [name for name in names if name in known]
        return {name: TopicInfo(name, len(known[name][1])) for name in wanted}

    def topic_config(self, name: str) -> dict[str, str]:
        if name not in self._log._topics:
            raise TopicError(f"the settings of topic {name} could not be read: it does not exist")
        return dict(self._log._topics[name][0].config)

    def create_topics(self, topics: Sequence[NewTopic]) -> None:
        for topic in topics:
            if topic.partitions < 1:
                raise TopicError(f"topic {topic.name} could not be created: it needs a partition at least")
            self._log._topics.setdefault(topic.name, (topic, [_Partition() for _ in range(topic.partitions)]))

    def delete_topics(self, names: Sequence[str]) -> None:
        for name in names:
            self._log._topics.pop(name, None)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        for place, offset in before.items():
            found = self._log.find(place)
            if offset > len(found.records):
                raise TopicError(f"records of {place.topic} [{place.partition}] before {offset} could not be deleted")
            for gone in range(found.first, offset):
                found.records[gone] = (None, None, 0, None)
            found.first = max(found.first, offset)

    def group_members(self, group: str) -> list[str]:
        return []

    def remove_members(self, group: str) -> list[str]:
        return []

    def close(self) -> None:
        pass
