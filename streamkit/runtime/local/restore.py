"""Brings stores up to date from their changelogs, in batches (StoreChangelogReader)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streamkit.errors import TaskCorruptedError
from streamkit.record import TopicPartition
from streamkit.transport.base import EARLIEST, Consumer

log = logging.getLogger(__name__)

BATCH = 10_000
_POLL_MS = 100


@dataclass
class Changelog:
    """A store to restore: where from, and how far."""

    store: Any
    partition: TopicPartition
    checkpoint: int | None = None
    """The last offset that the store has applied."""
    limit: int | None = None
    """Stop before this offset: what is committed of a source topic that serves as the changelog."""
    restored: int = 0
    end: int | None = None
    """The offset up to which the store was restored."""


Progress = Callable[[TopicPartition, int, int], None]
"""(changelog partition, next offset, end offset): at the start, after each batch, and at the end."""


def restore(
    changelogs: Iterable[Changelog],
    consumer: Consumer,
    stopped: Callable[[], bool],
    progress: Progress = lambda partition, position, end: None,
) -> bool:
    """Restore stores up to the present ends of their changelogs; False when `stopped` said so before the end.

    Raises TaskCorruptedError where a checkpoint lies beyond the log, TransportError.
    """
    by_partition = {changelog.partition: changelog for changelog in changelogs}
    if not by_partition:
        return True
    ends, starts = _bounds(by_partition, consumer)
    pending = {partition for partition in by_partition if max(starts[partition], 0) < ends[partition]}
    if not pending:
        return True
    consumer.assign({partition: starts[partition] for partition in pending})
    for partition in pending:
        progress(partition, max(starts[partition], 0), ends[partition])
    try:
        while pending:
            if stopped():
                return False
            for batch in consumer.poll(BATCH, _POLL_MS):
                partition = TopicPartition(batch.topic, batch.partition)
                if partition in pending:
                    _apply(by_partition[partition], batch, ends[partition])
                    progress(partition, batch.offsets[-1] + 1, ends[partition])
            # The end may be a control record of a transaction, which poll never gives.
            pending = {partition for partition in pending if consumer.position(partition) < ends[partition]}
    finally:
        for partition in starts:
            # Also where the rest of it will not be read now.
            progress(partition, ends[partition], ends[partition])
        consumer.assign({})
    for partition in sorted(starts):
        changelog = by_partition[partition]
        if changelog.restored:
            noun = "record" if changelog.restored == 1 else "records"
            place = f"{partition.topic}-{partition.partition} from offset {max(starts[partition], 0)}"
            log.info("restored %d %s of %s", changelog.restored, noun, place)
    return True


def _bounds(
    changelogs: Mapping[TopicPartition, Changelog], consumer: Consumer
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    partitions = list(changelogs)
    ends = consumer.end_offsets(partitions)
    beginnings = consumer.beginning_offsets(partitions)
    starts = {}
    for partition, changelog in changelogs.items():
        start = beginnings[partition]
        if changelog.checkpoint is not None and changelog.checkpoint >= 0:
            if changelog.checkpoint >= ends[partition]:
                raise TaskCorruptedError(
                    f"the checkpoint of {partition.topic}-{partition.partition} is {changelog.checkpoint}, "
                    f"but the changelog ends at {ends[partition]}"
                )
            start = max(start, changelog.checkpoint + 1)
        starts[partition] = start if start else EARLIEST
        if changelog.limit is not None:
            ends[partition] = min(ends[partition], changelog.limit)
        changelog.end = ends[partition]
        log.debug("restoring %s from %s to %s", partition, start, ends[partition])
    return ends, starts


def _apply(changelog: Changelog, batch: Any, end: int) -> None:
    keys, values, timestamps, headers = batch.keys, batch.values, batch.timestamps, batch.headers
    count = len(batch.offsets)
    if batch.offsets[-1] >= end:
        count = sum(offset < end for offset in batch.offsets)
        keys, values, timestamps, headers = keys[:count], values[:count], timestamps[:count], headers[:count]
    changelog.store.restore_batch(keys, values, timestamps, headers)
    changelog.store.commit()
    changelog.restored += count
