"""The rows of stores as records of their changelogs: the opposite of a restore."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from streamkit.record import Headers
from streamkit.runtime.spark.rows import arrow_rows
from streamkit.runtime.spark.workers.kept_tasks import Kept, unpack_rows
from streamkit.runtime.spark.workers.spill import SpillingMap, SpillingStores
from streamkit.runtime.spark.workers.worker import by_partition, mark_errors
from streamkit.state.layouts import FIRST_SEQUENCE, MAX_LONG, unpack_long
from streamkit.state.stores.suppress_buffer import VERSION

if TYPE_CHECKING:
    import pyarrow as pa

    from streamkit.state.definitions import StoreDef

_SPILL_BYTES = 128 * 1024 * 1024
_BATCH = 20_000
_SEGMENT, _TIME, _SEQUENCE = 8, 8, 4
_INDEX = b"\xff"
"""The first byte of the rows that list windows and sessions by time; they are no rows of the changelog."""
_DELETED, _DELETED_BEFORE, _REPLACED = b"\x00", 2, 3
"""Flags of versions: the latest one is a deletion; a deletion has a later version; a value that replaced a deletion."""


class ChangelogRecord(NamedTuple):
    """A record of a changelog. order: records are written by it, as far as it matters; timestamp None: the producer's time."""

    order: int
    key: bytes
    value: bytes | None
    timestamp: int | None
    headers: Headers | None = None


Rows = Iterable[tuple[bytes, bytes]]


def records_of(definition: StoreDef, rows: Rows) -> Iterator[ChangelogRecord]:
    """Yield the changelog records whose restore gives these rows of a store, which are sorted by key."""
    return _BY_KIND[definition.type](rows)


def _timestamped(rows: Rows) -> Iterator[ChangelogRecord]:
    for key, data in rows:
        yield ChangelogRecord(0, key, data[_TIME:], unpack_long(data)[0])


def _windows(rows: Rows) -> Iterator[ChangelogRecord]:
    for key, data in _of_segments(rows):
        yield ChangelogRecord(0, key + FIRST_SEQUENCE, data[_TIME:], unpack_long(data)[0])


def _sessions(rows: Rows) -> Iterator[ChangelogRecord]:
    for key, data in _of_segments(rows):
        yield ChangelogRecord(0, key, data, unpack_long(key, len(key) - 2 * _TIME)[0])


def _joined(rows: Rows) -> Iterator[ChangelogRecord]:
    for key, data in _of_segments(rows):
        yield ChangelogRecord(0, key, data, unpack_long(key, len(key) - _TIME - _SEQUENCE)[0])


def _of_segments(rows: Rows) -> Iterator[tuple[bytes, bytes]]:
    return ((key[_SEGMENT:], data) for key, data in rows if not key.startswith(_INDEX))


def _unmatched(rows: Rows) -> Iterator[ChangelogRecord]:
    for key, data in rows:
        yield ChangelogRecord(0, key, data, unpack_long(key)[0])


def _suppressed(rows: Rows) -> Iterator[ChangelogRecord]:
    for key, data in rows:
        yield ChangelogRecord(0, key, data, None, VERSION)


def _waiting(rows: Rows) -> Iterator[ChangelogRecord]:
    for key, data in rows:
        yield ChangelogRecord(0, key, data, None)


def _versions(rows: Rows) -> Iterator[ChangelogRecord]:
    """Yield versions so that a restore in their order drops none: by time, and deletions of the past after what follows them.

    The versions of a key come newest first.
    """
    prefix, latest = b"", 0
    for row, data in rows:
        time = MAX_LONG - unpack_long(row, len(row) - _TIME)[0]
        if row[:-_TIME] != prefix:
            prefix, latest = row[:-_TIME], time
        key, flag = row[4:-_TIME], data[0]
        if flag != _DELETED_BEFORE:
            latest = time
        if flag == _REPLACED:
            yield ChangelogRecord(time, key, None, time)
        yield ChangelogRecord(latest, key, data[1:] if flag & 1 else None, time)


_BY_KIND: Mapping[str, Callable[[Rows], Iterator[ChangelogRecord]]] = {
    "key_value": _timestamped,
    "timestamped_key_value": _timestamped,
    "subscription": _timestamped,
    "window": _windows,
    "session": _sessions,
    "join_window": _joined,
    "outer_join": _unmatched,
    "suppress": _suppressed,
    "join_grace": _waiting,
    "versioned": _versions,
}


@dataclass(frozen=True)
class Export:
    """A store whose rows become records of its changelog; sent to the workers. plan: pickled."""

    plan: bytes
    store: str
    topic: str
    kept: Kept


@mark_errors
def export(work: Export, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield changelog records for the files of a checkpoint, sorted by partition and by the runs that wrote them. Raises StateError."""
    plan = pickle.loads(work.plan)
    stores = SpillingStores(plan, _SPILL_BYTES)
    definition = plan.stores[work.store]
    rows: SpillingMap | None = None
    current = -1
    try:
        for batch in batches:
            for partition, part in by_partition(batch):
                if rows is None or partition != current:
                    yield from _written(work, definition, current, rows)
                    current, rows = partition, _new_map(stores, partition)
                for path, packed in zip(part.column("key").to_pylist(), part.column("value"), strict=True):
                    rows.put_many(unpack_rows(work.kept, path.decode(), packed.as_buffer()))
                    rows.commit()
        yield from _written(work, definition, current, rows)
        rows = None
    finally:
        if rows is not None:
            rows.close()
        stores.close()


def _new_map(stores: SpillingStores, partition: int) -> SpillingMap:
    return SpillingMap(_SPILL_BYTES, lambda: stores.directory() / str(partition))


def _written(work: Export, definition: StoreDef, partition: int, rows: SpillingMap | None) -> Iterator[pa.RecordBatch]:
    if rows is None:
        return
    found = records_of(definition, rows.range(None, None))
    first = 0
    while chunk := list(islice(found, _BATCH)):
        orders, keys, values, times, headers = zip(*chunk, strict=True)
        size = len(chunk)
        places = range(first, first + size)
        yield arrow_rows.to_batch(
            ([work.topic] * size, [partition] * size, keys, values, times, headers, orders, [0] * size, places)
        )
        first += size
    rows.close()
