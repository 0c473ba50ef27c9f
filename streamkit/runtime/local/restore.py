"""Restores stores from their changelogs, in batches (StoreChangelogReader)."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Literal

from streamkit.errors import (
    IncompatibleStateError,
    OffsetOutOfRangeError,
    SerdeError,
    TaskCorruptedError,
    TransportError,
)
from streamkit.record import Columns, RecordBatch, TopicPartition
from streamkit.state.definitions import Store
from streamkit.transport.log_interface import Consumer

log = logging.getLogger(__name__)

BATCH = 10_000
LOAD_FROM = 100_000
"""The minimum number of records for which `begin_load` is used; with it, RocksDB opens its files twice."""
_POLL_MS = 100


@dataclass(eq=False)
class Changelog:
    """A store that follows its changelog, with positions and counts."""

    store: Store
    partition: TopicPartition
    path: Path | None = None
    """The directory of the store."""
    checkpoint: int | None = None
    """The last offset that had been applied to the store when it was opened."""
    marked: bool = False
    """Whether a control record follows the last record that this process wrote to the changelog."""
    produced: int = 0
    """The number of records that this process has written to the changelog up to `position`."""
    limit: int | None = None
    """Stop before this offset: the committed offset of a source topic that serves as the changelog."""
    restored: int = 0
    """Records applied since `start`."""
    start: int | None = None
    position: int | None = None
    """The next offset to apply; None: not looked up."""
    end: int | None = None
    """The offset up to which the store is restored; None: not looked up.

    For a standby: the end of the log when it was looked up.
    """

    loading: bool = False
    """Whether `begin_load` of the store is in force."""
    began: float = 0.0
    """The time at which restoring began, by the monotonic clock in seconds."""
    rows_of: Callable[[RecordBatch], Columns] | None = None
    """Returns the rows that a batch restores; None: its records."""

    @property
    def complete(self) -> bool:
        """Whether the store is restored to the end."""
        return self.end is not None and self.position is not None and self.position >= self.end

    @property
    def at_limit(self) -> bool:
        """Whether no record may be applied before another commit."""
        return self.limit is not None and self.position is not None and self.position >= self.limit

    def begin(self, first: int, end: int) -> None:
        """Set the bounds of the changelog. Raises TaskCorruptedError if the log does not contain the position."""
        where = f"{self.partition.topic}-{self.partition.partition}"
        position = self.position
        if position is None:
            position = self.checkpoint + 1 if self.checkpoint is not None and self.checkpoint >= 0 else first
        if position > end:
            self._refuse(position, f"which ends at {end}")
        if self.position is None and position < first:
            self._refuse(position, f"and its records from {position} to {first - 1} were deleted since, {DELETED}")
        self.position = position
        if self.start is None:
            self.start, self.began = self.position, monotonic()
        self.end = end if self.limit is None else min(end, self.limit)
        log.debug("restoring %s from %s to %s", where, self.position, self.end)

    def begin_load(self, executor: Executor) -> None:
        """Prepare the store for a bulk load if there are many records; `executor` writes them while others are read."""
        if not self.loading and (self.end or 0) - (self.position or 0) >= LOAD_FROM:
            self.loading = True
            self.store.begin_load(executor)

    def end_load(self) -> None:
        """End the load, and commit the store. Raises the error of a commit that failed."""
        if self.loading:
            self.loading = False
            self.store.end_load()
            self.store.commit()

    def _refuse(self, position: int, bound: str) -> None:
        self.position = None  # must not get into a checkpoint
        where = f"{self.partition.topic}-{self.partition.partition}"
        text = f"the state of store {self.store.name} goes up to offset {position - 1} of {where}, {bound}"
        raise TaskCorruptedError(text, path=self.path)

    def wrote(self, total: int, *, marks: bool) -> None:
        """Advance the position by the records that a commit wrote.

        `total`: the number of records that this process has written to the changelog. This number determines the offsets, since
        only this task writes here, one commit after the other, and no handler drops any.
        Records that other processes wrote before they were fenced make the real offsets higher; some records are then read
        again. The control record of this commit may be written after its response, so it counts with the next commit.
        """
        written = total - self.produced
        self.produced = total
        if written > 0 and self.position is not None:
            self.position += written + self.marked
            self.marked = marks

    def seconds(self) -> float:
        """Return the seconds since restoring began."""
        return monotonic() - self.began if self.began else 0.0

    def _misread(self, batch: RecordBatch, error: Exception) -> str:
        definition = self.store.definition
        return (
            f"store {definition.name} holds {definition.kind.rows} with the key serde {definition.key_serde.spec} and the value "
            f"serde {definition.value_serde.spec}, and records {batch.offsets[0]} to {batch.offsets[-1]} of its changelog "
            f"{batch.topic}, partition {batch.partition}, have others ({error}): the store had another kind or other serdes "
            "under this name. Give it another name, or reset the application with `streamkit reset-offsets`; `streamkit "
            "diff OLD NEW` shows all changes between two versions"
        )

    def apply(self, batch: RecordBatch, stop: int | None) -> int:
        """Apply the records of a batch before the offset `stop` durably; return their number."""
        batch = batch.before(stop)
        if len(batch):
            try:
                rows = batch.columns if self.rows_of is None else self.rows_of(batch)
                # Stores skip records without a key, which only source topics have.
                self.store.restore_batch(rows.keys, rows.values, rows.timestamps, rows.headers)  # type: ignore[arg-type]
            except (struct.error, ValueError, IndexError, SerdeError) as error:
                raise IncompatibleStateError(self._misread(batch, error)) from error
            self.store.note_position(self.partition.partition, batch.offsets[-1] + 1)
            self.store.commit()
            self.restored += len(batch)
        return len(batch)


def restore(changelogs: Iterable[Changelog], consumer: Consumer, stopped: Callable[[], bool]) -> bool:
    """Restore stores up to the current ends of their changelogs; return False if `stopped` returned true before.

    Raises TaskCorruptedError if a checkpoint is outside the log, TransportError.
    """
    by_partition = {changelog.partition: changelog for changelog in changelogs}
    with ThreadPoolExecutor(1, thread_name_prefix="restore-writer") as writer:
        if not _restore(by_partition, consumer, stopped, writer):
            return False
    for changelog in by_partition.values():
        log_restored(changelog)
    return True


def _restore(
    by_partition: dict[TopicPartition, Changelog], consumer: Consumer, stopped: Callable[[], bool], writer: Executor
) -> bool:
    partitions = list(by_partition)
    ends, firsts = consumer.end_offsets(partitions), consumer.beginning_offsets(partitions)
    for partition, changelog in by_partition.items():
        changelog.begin(firsts[partition], ends[partition])
        changelog.begin_load(writer)
    pending = {partition: changelog for partition, changelog in by_partition.items() if not changelog.complete}
    consumer.assign({partition: changelog.position or 0 for partition, changelog in pending.items()})
    try:
        while pending:
            if stopped():
                return False
            for batch in consumer.poll(BATCH, _POLL_MS):
                changelog = by_partition[TopicPartition(batch.topic, batch.partition)]
                changelog.apply(batch, changelog.end)
            for partition, changelog in pending.items():
                # The last offset may be a transaction's control record, which poll never returns.
                changelog.position = min(consumer.position(partition), changelog.end or 0)
            pending = {partition: changelog for partition, changelog in pending.items() if not changelog.complete}
    finally:
        consumer.assign({})
        for changelog in by_partition.values():
            changelog.end_load()
    return True


def log_restored(changelog: Changelog) -> None:
    """Log how many records of a changelog were restored."""
    if changelog.restored:
        noun = "record" if changelog.restored == 1 else "records"
        partition = changelog.partition
        place = f"{partition.topic}-{partition.partition} from offset {changelog.start}"
        log.info("restored %d %s of %s in %.2f s", changelog.restored, noun, place, changelog.seconds())


# The fate of the records at an offset that a partition no longer has.

DELETED = "by the topic's retention (retention.ms, retention.bytes) or on request (delete-records)"


def describe_lost(consumer: Consumer, error: OffsetOutOfRangeError) -> str:
    """Describe what happened to the records at a partition's position; return the error's text if no broker answers."""
    partition = TopicPartition(error.topic, error.partition)
    try:
        first = consumer.beginning_offsets([partition])[partition]
        end = consumer.end_offsets([partition])[partition]
        position = consumer.position(partition)
    except (TransportError, KeyError):
        return str(error)
    place = f"{partition.topic}-{partition.partition}"
    if position < first:
        return (
            f"{place}: the records from offset {position} to {first - 1} were deleted before they were read, {DELETED}"
        )
    if position > end:
        return (
            f"{place}: the next offset is {position}, and the partition ends at {end}: the topic was deleted and created "
            "again, or its log was truncated"
        )
    return str(error)


# The progress of restoring, for logs, listeners and status pages (StateRestoreListener, StandbyUpdateListener).


@dataclass(frozen=True)
class RestoreProgress:
    """The progress of one store with its changelog, at one moment."""

    task: str
    active: bool
    """Whether the task runs once it is restored; False: a standby, which follows its changelogs indefinitely."""
    store: str
    changelog: TopicPartition
    start: int
    """The offset at which the restore began."""
    position: int
    """The next offset to apply."""
    end: int
    """The end of the changelog when it was last looked up."""
    restored: int
    """Records applied since `start`."""
    seconds: float
    """Time since the restore began."""

    @property
    def remaining(self) -> int:
        """Return the number of remaining offsets, including transaction markers and compacted records."""
        return max(0, self.end - self.position)

    @property
    def rate(self) -> float:
        """Return the records per second since the start."""
        return self.restored / self.seconds if self.seconds > 0 else 0.0

    @property
    def eta_seconds(self) -> float | None:
        """Return the remaining time at the rate so far; None if it is not known yet."""
        if not self.remaining:
            return 0.0
        done = self.position - self.start
        return self.remaining * self.seconds / done if done > 0 else None

    def __str__(self) -> str:
        place = f"{self.changelog.topic}-{self.changelog.partition}"
        text = f"{place}: {self.restored:,} records, {self.remaining:,} left, {self.rate:,.0f} a second"
        eta = self.eta_seconds
        return text if eta is None else f"{text}, done in {eta:.0f} s"


Event = Literal["start", "batch", "end", "suspend"]
RestoreListener = Callable[[Event, RestoreProgress], None]
"""Called by the updater's thread, so it must be quick; `suspend`: the restore was stopped before its end. Standbys have no end.
"""


def progress_of(task: str, is_active: bool, changelog: Changelog) -> RestoreProgress:
    """Return the progress of a task, by its name, with one of its changelogs."""
    position = changelog.position or 0
    return RestoreProgress(
        task,
        is_active,
        changelog.store.name,
        changelog.partition,
        changelog.start or 0,
        position,
        max(position, changelog.end or 0),
        changelog.restored,
        changelog.seconds(),
    )
