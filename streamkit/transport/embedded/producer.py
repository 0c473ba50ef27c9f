"""The producer of the embedded log: one write transaction a call, or one for a whole transaction at its commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from streamkit.errors import FencedError, ProductionError, RetriableTransportError, TransportError
from streamkit.record import OutputRow, TopicPartition
from streamkit.transport.base import CommittedOffset, Producer
from streamkit.transport.embedded.database import Database
from streamkit.transport.embedded.groups import check_generation
from streamkit.transport.embedded.log import Execute, Router, append, commit_offsets, missing, partition_counts
from streamkit.transport.groups import decode_generation


class EmbeddedProducer(Producer):
    """Writes what each send gives at once. Of an open transaction the rows wait in memory until it commits."""

    def __init__(self, directory: Path, transactional_id: str | None):
        self._database = Database(directory)
        self._transactional_id = transactional_id
        self._epoch: int | None = None
        self._open: dict[TopicPartition, list[tuple]] | None = None
        self._counts: dict[str, int] = {}
        self._version = -1
        self._router = Router()

    def send(self, rows: Sequence[OutputRow | tuple]) -> None:
        if not rows:
            return
        if self._transactional_id is not None and self._open is None:
            raise TransportError("a transactional producer sends between begin and commit only")
        groups, lost = self._group(rows)
        if self._open is None:
            self._write(groups)
        else:
            for place, more in groups.items():
                self._open.setdefault(place, []).extend(more)
        if lost:
            raise missing(lost[0][0], lost[0][5], lost)

    def _write(self, groups: dict[TopicPartition, list[tuple]]) -> None:
        try:
            with self._database.write() as execute:
                append(execute, groups)
        except RetriableTransportError:
            raise
        except TransportError as error:
            topics = ", ".join(sorted({place.topic for place in groups}))
            raise ProductionError(f"records for topic {topics} could not be written: {error}") from error

    def flush(self) -> None:
        pass

    def begin(self) -> None:
        self._need_transactions()
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
        self._need_transactions()
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
        self._need_transactions()
        self._open = None

    def close(self) -> None:
        self._database.close()

    def _group(self, rows: Sequence[OutputRow | tuple]) -> tuple[dict[TopicPartition, list[tuple]], list[tuple]]:
        # Topics are created by other connections, whose writes change the version.
        version = self._database.version()
        if version != self._version:
            with self._database.read() as execute:
                self._counts = partition_counts(execute)
            self._version = version
        return self._router.group(rows, self._counts)

    def _current_epoch(self, execute: Execute) -> int | None:
        row = execute("SELECT epoch FROM producers WHERE id = ?", (self._transactional_id,)).fetchone()
        return row and row[0]

    def _check_epoch(self, execute: Execute) -> None:
        if self._current_epoch(execute) != self._epoch:
            raise FencedError(f"another producer has taken the transactional id {self._transactional_id}")

    def _need_transactions(self) -> None:
        if self._transactional_id is None:
            raise TransportError("this producer has no transactional id")
