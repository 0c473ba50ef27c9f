"""The stores of a task whose rows a job keeps between runs: filled from a checkpoint, and with the changes of this run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

from streamkit.plan.model import Plan
from streamkit.record import Headers
from streamkit.runtime.execution.task_environment import StoreServices, TaskSpec
from streamkit.runtime.spark.workers.spill import SpillingMap, SpillingStores
from streamkit.state.definitions import BytesMap, Store, StoreDef
from streamkit.state.engines.ages import row_key
from streamkit.state.engines.open_maps import DEFAULT_ENGINE, open_map
from streamkit.state.layouts import unpack_long
from streamkit.state.open_store import create
from streamkit.state.stores.suppress_buffer import VERSION
from streamkit.state.stores.versioned import VersionedStore

Rows = list[tuple[bytes, bytes | None]]


_MAX_CHANGED = 300_000
"""Keys that were written and stay in memory, where the rows themselves are too large for it."""


class RecordingMap(SpillingMap):
    """A map that records the keys which are written, on disk where its rows are."""

    def __init__(self, limit: int, path: Callable[[], Path]):
        self._changed: set[bytes] = set()
        self._changed_before: BytesMap | None = None
        super().__init__(limit, path)

    def _use(self, inner: BytesMap) -> None:
        self._inner = inner
        self.get = inner.get  # type: ignore[method-assign]

    def put(self, key: bytes, value: bytes | None) -> None:
        self._changed.add(key)
        self._inner.put(key, value)

    def put_many(self, items: Rows) -> None:
        self._changed.update(key for key, _ in items)
        self._inner.put_many(items)

    def delete_range(self, low: bytes | None, high: bytes) -> None:
        self._changed.update(key for key, _ in self._inner.range(low, high, include_high=False))
        self._inner.delete_range(low, high)

    def commit(self) -> None:
        super().commit()
        if self._memory is None and len(self._changed) > _MAX_CHANGED:
            self._move_changed()

    def _move_changed(self) -> BytesMap:
        if self._changed_before is None:
            path = self._path()
            self._changed_before = open_map(DEFAULT_ENGINE, path.with_name(f"{path.name}-changed"))
        self._changed_before.put_many([(key, b"") for key in self._changed])
        self._changed_before.commit()
        self._changed.clear()
        return self._changed_before

    def fill(self, items: Rows) -> None:
        """Add rows that count as unchanged."""
        self._inner.put_many(items)
        super().commit()

    def forget_changes(self) -> None:
        """Let all rows that were written since the map was opened count as unchanged."""
        self._changed.clear()

    def changes(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the rows that were written, as they are now; None: deleted."""
        if self._changed_before is None:
            keys: Iterable[bytes] = sorted(self._changed)
        else:
            keys = (key for key, _ in self._move_changed().range(None, None))
        for key in keys:
            yield key, self._inner.get(key)

    def close(self) -> None:
        super().close()
        if self._changed_before is not None:
            self._changed_before.close()


class _BufferLog:
    """The services of a suppression buffer, which is in memory: its changelog becomes rows."""

    def __init__(self, services: StoreServices, rows: RecordingMap):
        self.topic = services.topic
        self.dropped = services.dropped
        self._rows = rows

    def log(self, key: bytes, value: bytes | None, timestamp: int | None, headers: Headers | None) -> None:
        """Set a row."""
        self._rows.put(key, value)


class KeptStores(SpillingStores):
    """Opens stores on the rows of a checkpoint, as a live task opens those of its state directory."""

    def __init__(self, plan: Plan, limit: int):
        super().__init__(plan, limit)
        self._rows: dict[tuple[str, int], RecordingMap] = {}
        self._maps = count()
        self._filled: dict[tuple[str, int], int] = {}

    def fill(self, name: str, partition: int, rows: Rows) -> None:
        """Add rows to a store that is not open yet; later ones replace earlier ones, None deletes."""
        self._map(name, partition).fill(rows)
        self._filled[name, partition] = self.filled(name, partition) + len(rows)

    def filled(self, name: str, partition: int) -> int:
        """Return the number of rows that were added to a store by `fill`."""
        return self._filled.get((name, partition), 0)

    def open(self, spec: TaskSpec, name: str, services: StoreServices) -> Store:
        """Return a store of a task, with the rows that it was filled with."""
        definition = self._plan.stores[name]
        rows = self._map(name, spec.partition)
        if definition.kind.in_memory_only:
            buffer = create(replace(definition, logging=True), None, _BufferLog(services, rows))
            for key, value in rows.range(None, None):
                buffer.restore(key, value, -1, VERSION)
            return buffer
        if definition.ttl is None:
            store = create(definition, None, services, rows=rows)
            if isinstance(store, VersionedStore):
                store.find_deletions()
            return store
        return self._open_expiring(definition, spec.partition, services, rows)

    def _open_expiring(self, definition: StoreDef, partition: int, services: StoreServices, rows: BytesMap) -> Store:
        """Return a store that makes its index of due times while it is filled."""
        del self._rows[definition.name, partition]
        indexed = self._map(definition.name, partition)
        store = create(definition, None, services, rows=indexed)
        items = list(rows.range(None, None))
        times = [unpack_long(data)[0] for _, data in items]
        store.restore_batch([key for key, _ in items], [data[8:] for _, data in items], times, [None] * len(items))
        indexed.forget_changes()
        rows.close()
        return store

    def state(self, name: str, partition: int, complete: bool) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the rows of a store that this run changed, None: deleted; or all rows if `complete`."""
        rows = self._map(name, partition)
        found: Iterator[tuple[bytes, bytes | None]] = rows.range(None, None) if complete else rows.changes()
        if self._plan.stores[name].ttl is None:
            yield from found
            return
        for inner, value in found:
            key = row_key(inner)
            if key is not None:
                yield key, value

    def _map(self, name: str, partition: int) -> RecordingMap:
        rows = self._rows.get((name, partition))
        if rows is None:
            path = f"{next(self._maps)}-{name}"
            rows = self._rows[name, partition] = RecordingMap(self._limit, lambda: self.directory() / path)
        return rows
