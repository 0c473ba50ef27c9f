"""The rows of stores as records of their changelogs: the opposite of a restore."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from streamkit.runtime.spark.rows import arrow_rows
from streamkit.runtime.spark.workers.kept_tasks import Kept, unpack_rows
from streamkit.runtime.spark.workers.spill import SpillingMap, SpillingStores
from streamkit.runtime.spark.workers.worker import by_partition, mark_errors
from streamkit.state.definitions import ChangelogRecord, Rows

if TYPE_CHECKING:
    import pyarrow as pa

    from streamkit.state.definitions import StoreDef

_SPILL_BYTES = 128 * 1024 * 1024
_BATCH = 20_000


def records_of(definition: StoreDef, rows: Rows) -> Iterator[ChangelogRecord]:
    """Yield the changelog records whose restore gives these rows of a store, which are sorted by key."""
    return definition.kind.implementation_class().changelog_records(rows)


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
