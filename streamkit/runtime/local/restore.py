"""Brings stores up to date from their changelogs, in batches (StoreChangelogReader)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from streamkit.errors import TaskCorruptedError
from streamkit.record import RecordBatch, TopicPartition
from streamkit.transport.base import Consumer

log = logging.getLogger(__name__)

BATCH = 10_000
LOAD_FROM = 100_000
"""Records to restore from which a store prepares for many: RocksDB opens its files twice for it."""
_POLL_MS = 100


@dataclass(eq=False)
class Changelog:
    """A store that follows its changelog: where from, and how far."""

    store: Any
    partition: TopicPartition
    path: Path | None = None
    """Where the store lies on disk."""
    checkpoint: int | None = None
    """The last offset that the store had applied when it was opened."""
    marked: bool = False
    """Whether a control record follows the last record that this process wrote to it."""
    produced: int = 0
    """Records that this process has written to it up to `position`."""
    limit: int | None = None
    """Stop before this offset: what is committed of a source topic that serves as the changelog."""
    restored: int = 0
    """Records applied since `start`."""
    start: int | None = None
    position: int | None = None
    """The next offset to apply; None: not looked up."""
    end: int | None = None
    """The offset up to which the store is to be restored; None: not looked up. A standby's is where the log ended."""

    loading: bool = False
    """Whether the store expects many records, and writes them beside."""
    began: float = 0.0
    """When it began, by the monotonic clock in seconds."""

    @property
    def complete(self) -> bool:
        """Whether the store is restored to the end."""
        return self.end is not None and self.position is not None and self.position >= self.end

    @property
    def at_limit(self) -> bool:
        """Whether nothing may be applied before more is committed."""
        return self.limit is not None and self.position is not None and self.position >= self.limit

    def begin(self, first: int, end: int) -> None:
        """Take where the changelog begins and ends. Raises TaskCorruptedError for a position that the log does not have."""
        where = f"{self.partition.topic}-{self.partition.partition}"
        if self.position is None:
            known = self.checkpoint is not None and self.checkpoint >= 0
            self.position = self.checkpoint + 1 if known and self.checkpoint is not None else first
            if self.position > end:
                self._refuse(f"ends at {end}")
            if self.position < first:
                self._refuse(f"begins at {first}")
        if self.start is None:
            self.start, self.began = self.position, monotonic()
        self.end = end if self.limit is None else min(end, self.limit)
        log.debug("restoring %s from %s to %s", where, self.position, self.end)

    def begin_load(self, beside: Executor) -> None:
        """Prepare the store for what is to be restored, where that is much; `beside` writes it while more is read."""
        if not self.loading and (self.end or 0) - (self.position or 0) >= LOAD_FROM:
            self.loading = True
            self.store.begin_load(beside)

    def end_load(self) -> None:
        """Have all written, durably, and the store as it is for processing. Raises what writing has raised."""
        if self.loading:
            self.loading = False
            self.store.end_load()
            self.store.commit()

    def _refuse(self, bound: str) -> None:
        where = f"{self.partition.topic}-{self.partition.partition}"
        text = f"the state of store {self.store.name} goes up to offset {self.checkpoint} of {where}, which {bound}"
        raise TaskCorruptedError(text, path=self.path)

    def wrote(self, total: int, *, lost: int, marks: bool) -> None:
        """Advance behind what a commit wrote.

        `total`: how many records this process has written to it by now, of which `lost` were refused since the last commit.
        Offsets follow from their number: only this task writes here, one commit after the other. What others
        have written before they were fenced makes the real offsets higher: then some records are read again. The control
        record of this commit may be on the log later than the answer to it, so that it counts with the next one.
        """
        written = total - self.produced - lost
        self.produced = total
        if written > 0 and self.position is not None:
            self.position += written + self.marked
            self.marked = marks

    def seconds(self) -> float:
        """Return how long ago it began."""
        return monotonic() - self.began if self.began else 0.0

    def apply(self, batch: RecordBatch, stop: int | None) -> int:
        """Apply the records of a batch before the offset `stop`, durably; return how many."""
        keys, values, timestamps, headers = batch.keys, batch.values, batch.timestamps, batch.headers
        count = len(batch.offsets)
        if stop is not None and batch.offsets[-1] >= stop:
            count = sum(offset < stop for offset in batch.offsets)
            keys, values, timestamps, headers = keys[:count], values[:count], timestamps[:count], headers[:count]
        if count:
            self.store.restore_batch(keys, values, timestamps, headers)
            self.store.note_position(self.partition.partition, batch.offsets[count - 1] + 1)
            self.store.commit()
            self.restored += count
        return count


def restore(changelogs: Iterable[Changelog], consumer: Consumer, stopped: Callable[[], bool]) -> bool:
    """Restore stores up to the present ends of their changelogs; False when `stopped` said so before the end.

    Raises TaskCorruptedError where a checkpoint lies beyond the log, TransportError.
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
                # The end may be a control record of a transaction, which poll never gives.
                changelog.position = min(consumer.position(partition), changelog.end or 0)
            pending = {partition: changelog for partition, changelog in pending.items() if not changelog.complete}
    finally:
        consumer.assign({})
        for changelog in by_partition.values():
            changelog.end_load()
    return True


def log_restored(changelog: Changelog) -> None:
    """Tell how much was restored of a changelog."""
    if changelog.restored:
        noun = "record" if changelog.restored == 1 else "records"
        partition = changelog.partition
        place = f"{partition.topic}-{partition.partition} from offset {changelog.start}"
        log.info("restored %d %s of %s in %.2f s", changelog.restored, noun, place, changelog.seconds())
