"""The consumer of the embedded log: reads partitions in turn, and waits for writes of other connections."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from time import monotonic

from streamkit.errors import TransportError
from streamkit.record import RecordBatch, TopicPartition
from streamkit.transport.embedded.database import Database, one
from streamkit.transport.embedded.log_tables import bounds, commit_offsets, offset_for_time, read
from streamkit.transport.groups import Generation, encode_generation
from streamkit.transport.log_interface import EARLIEST, LATEST, CommittedOffset, Consumer


class EmbeddedConsumer(Consumer):
    """Reads stored batches; records that were decoded beyond a poll's limit are returned by the next."""

    def __init__(self, directory: Path, group: str | None):
        self._database = Database(directory)
        self._group = group
        self._positions: dict[TopicPartition, int] = {}
        self._decoded: dict[TopicPartition, RecordBatch] = {}
        self._paused: set[TopicPartition] = set()
        self._never = threading.Event()
        """Never set: the consumer waits without interruption."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self.remove(list(self._positions))
        self.add(positions)

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        with self._database.read() as execute:
            for partition, offset in positions.items():
                found = bounds(execute, partition)
                self._positions[partition] = {EARLIEST: found.first, LATEST: found.next}.get(offset, offset)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._positions.pop(partition, None)
            self._decoded.pop(partition, None)
            self._paused.discard(partition)

    def poll(self, max_records: int, timeout_ms: int) -> list[RecordBatch]:
        deadline = monotonic() + timeout_ms / 1000
        while True:
            # Before the read: a write during the read must end the wait.
            version = self._database.version()
            batches = self._read(max_records)
            left = deadline - monotonic()
            if batches or left <= 0:
                return batches
            self._database.wait_for_change(version, left, self._never)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.update(p for p in partitions if p in self._positions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.difference_update(partitions)

    def position(self, partition: TopicPartition) -> int:
        try:
            return self._positions[partition]
        except KeyError as error:
            raise TransportError(f"{partition.topic} [{partition.partition}] is not assigned") from error

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        with self._database.read() as execute:
            return {partition: bounds(execute, partition).next for partition in partitions}

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        with self._database.read() as execute:
            return {partition: bounds(execute, partition).first for partition in partitions}

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        with self._database.read() as execute:
            return {partition: offset_for_time(execute, partition, time) for partition, time in times.items()}

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        result = {}
        with self._database.read() as execute:
            for partition in partitions:
                where = "grp = ? AND topic = ? AND partition = ?"
                row = one(execute, "offsets", "offset, metadata", where, (self._require_group(), *partition))
                if row is not None:
                    result[partition] = CommittedOffset(*row)
        return result

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        rows = [(p.topic, p.partition, c.offset, c.metadata) for p, c in offsets.items()]
        with self._database.write() as execute:
            commit_offsets(execute, self._require_group(), rows)

    def group_metadata(self) -> bytes:
        return encode_generation(Generation(self._require_group()))

    def close(self) -> None:
        self._database.close()

    def _read(self, max_records: int) -> list[RecordBatch]:
        ready: list[RecordBatch] = []
        left = max_records
        for partition in list(self._positions):
            if partition in self._paused:
                continue
            try:
                batches = self._read_partition(partition, left)
            except TransportError:
                if ready:
                    # Their positions have advanced; the next poll begins with this partition, and raises its error.
                    break
                raise
            if not batches:
                continue
            # Move the partition to the end of the dict, so that with small limits each one is read in turn.
            del self._positions[partition]
            self._positions[partition] = batches[-1].offsets[-1] + 1
            ready += batches
            left -= sum(map(len, batches))
            if left <= 0:
                break
        return ready

    def _read_partition(self, partition: TopicPartition, limit: int) -> list[RecordBatch]:
        rest = self._decoded.pop(partition, None)
        if rest is None:
            with self._database.read() as execute:
                batches, rest = read(execute, partition, self._positions[partition], limit)
        elif len(rest) > limit:
            batches, rest = [rest.slice(0, limit)], rest.slice(limit, len(rest))
        else:
            batches, rest = [rest], None
        if rest is not None:
            self._decoded[partition] = rest
        return batches

    def _require_group(self) -> str:
        if self._group is None:
            raise TransportError("this consumer has no group")
        return self._group
