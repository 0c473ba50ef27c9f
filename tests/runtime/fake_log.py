"""A log in memory for stream threads: rows are readable as soon as they are sent, and commits are noted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from streamkit.record import Columns, RecordBatch, TopicPartition
from streamkit.transport.log_interface import (
    EARLIEST,
    Admin,
    CommittedOffset,
    Consumer,
    GroupDescription,
    Producer,
    TopicInfo,
    Transport,
)


class FakeLog(Transport):
    """Partitions are lists of rows; `events` tells in which order things happened."""

    def __init__(self, partitions: Mapping[str, int]):
        self.partitions = dict(partitions)
        self.rows: dict[TopicPartition, list[tuple]] = defaultdict(list)
        self.offsets: dict[TopicPartition, CommittedOffset] = {}
        self.events: list[str] = []
        self.purged: dict[TopicPartition, int] = {}
        self.failures: list[BaseException] = []

    def consumer(self, group: str | None, *, read_committed: bool = False, role: str = "main", client_id: str = ""):
        return FakeConsumer(self)

    def producer(self, *, transactional_id: str | None = None, client_id: str = ""):
        return FakeProducer(self)

    def admin(self):
        return FakeAdmin(self)

    def close(self) -> None:
        pass

    def append(self, rows: Iterable[tuple]) -> None:
        for row in rows:
            self.rows[TopicPartition(row[0], row[5] or 0)].append(row)


class FakeConsumer(Consumer):
    def __init__(self, log: FakeLog):
        self.log = log
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self.positions = {}
        self.add(positions)

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        for tp, offset in positions.items():
            end = len(self.log.rows[tp])
            self.positions[tp] = offset if offset >= 0 else 0 if offset == EARLIEST else end

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            del self.positions[tp]
            self.paused.discard(tp)

    def poll(self, max_records: int, timeout_ms: int) -> list[RecordBatch]:
        if self.log.failures:
            raise self.log.failures.pop(0)
        batches = []
        for tp, position in self.positions.items():
            rows = [] if tp in self.paused else self.log.rows[tp][position : position + max_records]
            if rows:
                columns: Any = [list(column) for column in zip(*rows, strict=True)][1:5]
                offsets = list(range(position, position + len(rows)))
                batches.append(RecordBatch(tp.topic, tp.partition, Columns(*columns, offsets)))
                self.positions[tp] = position + len(rows)
        return batches

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused |= self.positions.keys() & set(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused -= set(partitions)

    def position(self, partition: TopicPartition) -> int:
        return self.positions[partition]

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: len(self.log.rows[tp]) for tp in partitions}

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        rows = self.log.rows
        return {
            tp: next((offset for offset, row in enumerate(rows[tp]) if row[3] >= time), len(rows[tp]))
            for tp, time in times.items()
        }

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        return {tp: self.log.offsets[tp] for tp in partitions if tp in self.log.offsets}

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self.log.events.append("commit offsets")
        self.log.offsets.update(offsets)

    def group_metadata(self) -> bytes:
        return b"group"

    def close(self) -> None:
        pass


class FakeProducer(Producer):
    def __init__(self, log: FakeLog):
        self.log = log
        self.open: list[tuple] | None = None

    def send(self, rows: Sequence[tuple]) -> None:
        if self.open is None:
            self.log.append(rows)
        else:
            self.open.extend(rows)

    def flush(self) -> None:
        self.log.events.append("flush")

    def hasten(self, seconds: float) -> bool:
        return True

    def begin(self) -> None:
        self.log.events.append("begin")
        self.open = []

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset], group_metadata: bytes | None) -> None:
        self.log.events.append(f"commit transaction of {len(self.open or [])}")
        self.log.append(self.open or [])
        self.log.offsets.update(offsets)
        self.open = None

    def abort(self) -> None:
        self.log.events.append("abort")
        self.open = None

    def close(self) -> None:
        pass


class FakeAdmin(Admin):
    def __init__(self, log: FakeLog):
        self.log = log

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, count) for name, count in self.log.partitions.items()}

    def topic_config(self, name: str) -> dict[str, str]:
        return {}

    def create_topics(self, topics: Sequence[Any]) -> None:
        self.log.partitions.update({topic.name: topic.partitions for topic in topics})

    def delete_topics(self, names: Sequence[str]) -> None:
        for name in names:
            del self.log.partitions[name]
        for tp in [tp for tp in self.log.rows if tp.topic in names]:
            del self.log.rows[tp]

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        self.log.purged.update(before)

    def describe_group(self, group: str) -> GroupDescription:
        return GroupDescription()

    def remove_members(self, group: str) -> list[str]:
        return []

    def close(self) -> None:
        pass
