"""The clients of the embedded log: its consumer, its producer and its admin."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from secrets import randbits
from time import monotonic
from typing import TypeAlias

from streamkit.errors import FencedError, ProductionError, TopicError, TransportError
from streamkit.record import OutputTuple, RecordBatch, TopicPartition
from streamkit.transport.embedded.database import Database, Execute, every, one
from streamkit.transport.embedded.embedded_groups import check_generation, described, members, remove
from streamkit.transport.embedded.log_tables import (
    BATCHES,
    Router,
    append,
    bounds,
    commit_offsets,
    missing,
    offset_for_time,
    partition_counts,
    read,
)
from streamkit.transport.log_interface import (
    EARLIEST,
    LATEST,
    Admin,
    CommittedOffset,
    Consumer,
    Generation,
    GroupDescription,
    NewTopic,
    Producer,
    TopicInfo,
    decode_generation,
    encode_generation,
)


class EmbeddedConsumer(Consumer):
    """Reads stored batches; records decoded beyond a poll's limit are returned by the next poll.

    for_stores: its records go to stores without a commit of the group. They are on disk before a poll returns them, as a loss of
    power would otherwise leave the stores ahead of the log.
    """

    def __init__(self, directory: Path, group: str | None, *, for_stores: bool = False):
        self._database = Database(directory, synced=group is not None)
        self._for_stores = for_stores
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
                limits = bounds(execute, partition)
                self._positions[partition] = {EARLIEST: limits.first, LATEST: limits.next}.get(offset, offset)

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
            if batches and self._for_stores:
                self._database.sync()
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
        group = self._require_group()
        with self._database.write() as execute:
            if described(execute, group).members:
                # As on Kafka, where only the members commit then, with their generation.
                raise FencedError(f"offsets could not be committed: group {group} has members")
            commit_offsets(execute, group, rows)

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
                    # Their positions have advanced; the next poll begins with this partition and raises its error.
                    break
                raise
            if not batches:
                continue
            # Move the partition to the end of the dict, so that small limits read each partition in turn.
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


# The producer of the embedded log: one write transaction for each call, or one at the commit of a transaction.

_Groups: TypeAlias = dict[TopicPartition, list[OutputTuple]]


class EmbeddedProducer(Producer):
    """Writes the rows of each send at once; rows of a transaction stay in memory until it commits."""

    def __init__(self, directory: Path, transactional_id: str | None):
        self._database = Database(directory, synced=transactional_id is not None)
        self._transactional_id = transactional_id
        self._epoch: int | None = None
        self._open: dict[TopicPartition, list[OutputTuple]] | None = None
        self._counts: dict[str, int] = {}
        self._version = -1
        self._router = Router()

    def send(self, rows: Sequence[OutputTuple]) -> None:
        if not rows:
            return
        if self._transactional_id is not None and self._open is None:
            raise TransportError("a transactional producer sends between begin and commit only")
        groups, unknown = self._group(rows)
        if self._open is None:
            unknown = self._write(groups, unknown, rows)
        else:
            for place, more in groups.items():
                self._open.setdefault(place, []).extend(more)
        if unknown:
            raise missing(unknown[0][0], unknown[0][5], unknown)

    def _write(self, groups: _Groups, unknown: list[OutputTuple], rows: Sequence[OutputTuple]) -> list[OutputTuple]:
        """Write grouped rows, and return those whose topic or partition does not exist by then."""
        # An error of the log, such as a full disk, stays a TransportError: no handler may drop records because of it.
        while True:
            try:
                with self._database.write() as execute:
                    append(execute, groups)
                return unknown
            except ProductionError:
                # A topic was deleted while this waited for the lock. Nothing is written, and the other rows must be.
                self._version = -1
                groups, unknown = self._group(rows)

    def flush(self) -> None:
        pass

    def hasten(self, seconds: float) -> bool:
        return True

    def begin(self) -> None:
        self._require_transactional_id()
        with self._database.write() as execute:
            if self._epoch is None:
                execute(
                    "INSERT INTO producers VALUES (?, 0) ON CONFLICT (id) DO UPDATE SET epoch = epoch + 1",
                    (self._transactional_id,),
                )
                self._epoch = self._current_epoch(execute)
            self._check_epoch(execute)
        self._open = {}

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset], group_metadata: bytes | None) -> None:
        self._require_transactional_id()
        if self._open is None:
            raise TransportError("no transaction has begun")
        if offsets and group_metadata is None:
            raise TransportError("offsets in a transaction need the metadata of their group")
        with self._database.write() as execute:
            self._check_epoch(execute)
            append(execute, self._open)
            if offsets and group_metadata is not None:
                generation = decode_generation(group_metadata)
                check_generation(execute, generation)
                rows = [(p.topic, p.partition, c.offset, c.metadata) for p, c in offsets.items()]
                commit_offsets(execute, generation.group, rows)
        self._open = None

    def abort(self) -> None:
        self._require_transactional_id()
        self._open = None
        if self._epoch is not None:
            with self._database.read() as execute:
                self._check_epoch(execute)

    def close(self) -> None:
        self._database.close()

    def _group(self, rows: Sequence[OutputTuple]) -> tuple[_Groups, list[OutputTuple]]:
        # Other connections create topics, and their writes change the version.
        version = self._database.version()
        if version != self._version:
            with self._database.read() as execute:
                self._counts = partition_counts(execute)
            self._version = version
        return self._router.group(rows, self._counts)

    def _current_epoch(self, execute: Execute) -> int | None:
        row = one(execute, "producers", "epoch", "id = ?", (str(self._transactional_id),))
        return None if row is None else int(row[0])

    def _check_epoch(self, execute: Execute) -> None:
        if self._current_epoch(execute) != self._epoch:
            raise FencedError(f"another producer has taken the transactional id {self._transactional_id}")

    def _require_transactional_id(self) -> None:
        if self._transactional_id is None:
            raise TransportError("this producer has no transactional id")


# Administration of the embedded log.

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


class EmbeddedAdmin(Admin):
    """Administration by rows; a topic's settings are stored, but have no effect."""

    def __init__(self, directory: Path):
        self._database = Database(directory)

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        with self._database.read() as execute:
            known: dict[str, int] = dict(sorted(every(execute, "topics", "name, partitions")))
        wanted = known if names is None else [name for name in names if name in known]
        return {name: TopicInfo(name, known[name]) for name in wanted}

    def topic_config(self, name: str) -> dict[str, str]:
        with self._database.read() as execute:
            row = one(execute, "topics", "config", "name = ?", (name,))
        if row is None:
            raise TopicError(f"the settings of topic {name} could not be read: it does not exist")
        config: dict[str, str] = json.loads(row[0])
        return config

    def topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        with self._database.read() as execute:
            known: dict[str, int] = dict(every(execute, "topics", "name, id"))
        return {name: str(known[name]) for name in names if name in known}

    def create_topics(self, topics: Sequence[NewTopic]) -> None:
        for topic in topics:
            check_new_topic(topic)
        with self._database.write() as execute:
            for topic in topics:
                # A random id is never reused; SQLite would reuse the id of a deleted row.
                row = execute(
                    "INSERT INTO topics (id, name, partitions, config) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING "
                    "RETURNING id",
                    (randbits(62), topic.name, topic.partitions, json.dumps(dict(topic.config))),
                ).fetchone()
                for number in range(topic.partitions if row else 0):
                    execute("INSERT INTO partitions (topic, number) VALUES (?, ?)", (row[0], number))

    def delete_topics(self, names: Sequence[str]) -> None:
        with self._database.write() as execute:
            for name in names:
                row = one(execute, "topics", "id", "name = ?", (name,))
                if row is None:
                    continue
                for table in BATCHES:
                    execute(f"DELETE FROM {table} WHERE partition IN (SELECT id FROM partitions WHERE topic = ?)", row)
                execute("DELETE FROM topics WHERE id = ?", row)
                execute("DELETE FROM partitions WHERE topic = ?", row)
                execute("DELETE FROM offsets WHERE topic = ?", (name,))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        with self._database.write() as execute:
            for partition, offset in before.items():
                limits = bounds(execute, partition)
                offset = limits.next if offset == -1 else offset
                if offset > limits.next:
                    where = f"{partition.topic} [{partition.partition}]"
                    raise TopicError(
                        f"records of {where} before {offset} could not be deleted: it ends at {limits.next}"
                    )
                execute("UPDATE partitions SET first = max(first, ?) WHERE id = ?", (offset, limits.id))
                # A batch that ends after the offset stays complete; readers begin at `first`.
                for table in BATCHES:
                    execute(f"DELETE FROM {table} WHERE partition = ? AND last < ?", (limits.id, offset))

    def describe_group(self, group: str) -> GroupDescription:
        with self._database.read() as execute:
            return described(execute, group)

    def remove_members(self, group: str) -> list[str]:
        with self._database.write() as execute:
            gone = sorted(members(execute, group))
            for member in gone:
                remove(execute, group, member)
        return gone

    def close(self) -> None:
        self._database.close()


def check_new_topic(topic: NewTopic) -> None:
    """Raise TopicError for a name or a number of partitions that Kafka rejects."""
    if not _NAME.fullmatch(topic.name) or topic.name in (".", ".."):
        raise TopicError(
            f"topic {topic.name!r} could not be created: names are of 1 to 249 ASCII letters, digits, . _ -"
        )
    if topic.partitions < 1:
        raise TopicError(f"topic {topic.name} could not be created: it needs at least one partition")
