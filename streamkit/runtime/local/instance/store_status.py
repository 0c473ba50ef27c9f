"""The stores of an instance: rows, bytes on disk, and positions in their changelogs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamkit.record import TopicPartition
from streamkit.runtime.local.tasks.local_task import LocalTask
from streamkit.state.definitions import Store, StoreSize

_SIZE_SECONDS = 5.0
"""How long a size is used: an estimate of rows reads some of them."""


@dataclass(frozen=True)
class StorePart:
    """A store of one task, active or standby; None where a value is not known, or the store is in memory."""

    task: str
    bytes: int | None
    """Of its files."""
    rows: int | None
    """An estimate, except in memory."""
    changelog: str | None
    offset: int | None
    """The offset up to which the store on disk has its changelog, exclusive; of a global store the sum over its partitions."""
    end: int | None
    """The end offset of the changelog."""
    committed_ms: int | None
    """When the offset last moved, since the epoch."""


class StoreParts:
    """Reads the parts of stores; used by one thread at a time."""

    def __init__(self) -> None:
        self._sizes: dict[int, tuple[float, Store, StoreSize]] = {}

    def of_task(self, task: LocalTask, ends: Mapping[TopicPartition, int]) -> dict[str, StorePart]:
        """Return the parts of a task's stores by name."""
        places = {changelog.store.name: changelog.partition for changelog in task.changelogs}
        stores = list(task.task.stores.values())
        return {
            store.name: self._part(task.name, store, [places[store.name]] if store.name in places else [], ends)
            for store in stores
        }

    def of_global(
        self, store: Store, places: Iterable[TopicPartition], ends: Mapping[TopicPartition, int]
    ) -> StorePart:
        """Return the part of a global store that reads these partitions."""
        return self._part("global", store, list(places), ends)

    def _part(
        self, task: str, store: Store, places: list[TopicPartition], ends: Mapping[TopicPartition, int]
    ) -> StorePart:
        size = self._size(store)
        offsets = [store.position(place.partition) for place in places]
        known = [ends.get(place) for place in places]
        return StorePart(
            task,
            size.bytes,
            size.rows,
            places[0].topic if places else None,
            _sum(offsets),
            _sum(known),
            store.committed_ms,
        )

    def _size(self, store: Store) -> StoreSize:
        now = time.monotonic()
        found = self._sizes.get(id(store))
        if found is None or found[1] is not store or now - found[0] > _SIZE_SECONDS:
            self._sizes = {key: entry for key, entry in self._sizes.items() if now - entry[0] <= _SIZE_SECONDS}
            found = self._sizes[id(store)] = now, store, store.measure()
        return found[2]


def _sum(numbers: list[int | None]) -> int | None:
    found = [number for number in numbers if number is not None]
    return sum(found) if found and len(found) == len(numbers) else None
