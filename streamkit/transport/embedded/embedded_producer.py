"""The producer of the embedded log: one write transaction for each call, or one at the commit of a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from streamkit.errors import DamagedLogError, FencedError, ProductionError, RetriableTransportError, TransportError
from streamkit.record import OutputTuple, TopicPartition
from streamkit.transport.embedded.database import Database, Execute, one
from streamkit.transport.embedded.embedded_groups import check_generation
from streamkit.transport.embedded.log_tables import Router, append, commit_offsets, missing, partition_counts
from streamkit.transport.groups import decode_generation
from streamkit.transport.log_interface import CommittedOffset, Producer


class EmbeddedProducer(Producer):
    """Writes the rows of each send at once; those of a transaction stay in memory until it commits."""

    def __init__(self, directory: Path, transactional_id: str | None):
        self._database = Database(directory)
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
            self._write(groups)
        else:
            for place, more in groups.items():
                self._open.setdefault(place, []).extend(more)
        if unknown:
            raise missing(unknown[0][0], unknown[0][5], unknown)

    def _write(self, groups: dict[TopicPartition, list[OutputTuple]]) -> None:
        try:
            with self._database.write() as execute:
                append(execute, groups)
        except (RetriableTransportError, DamagedLogError):
            raise
        except TransportError as error:
            topics = ", ".join(sorted({place.topic for place in groups}))
            raise ProductionError(f"records for topic {topics} could not be written: {error}") from error

    def flush(self) -> None:
        pass

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

    def _group(self, rows: Sequence[OutputTuple]) -> tuple[dict[TopicPartition, list[OutputTuple]], list[OutputTuple]]:
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
