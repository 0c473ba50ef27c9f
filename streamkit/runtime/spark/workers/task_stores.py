"""The stores of a Spark task: in memory or, if they are large, in one of Spark's temporary directories."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING

from streamkit.errors import StateError
from streamkit.plan.model import Plan
from streamkit.record import Headers, RecordContext, Value
from streamkit.runtime.execution.task_environment import StoreServices, TaskSpec
from streamkit.state.definitions import BytesMap, MapOnMap, Store, StoreContext, StoreDef
from streamkit.state.engines.ages import row_key
from streamkit.state.engines.memory import MemoryMap
from streamkit.state.engines.open_maps import DEFAULT_ENGINE, open_map
from streamkit.state.layouts import pack_long, unpack_long
from streamkit.state.open_store import create
from streamkit.state.stores.cache import CONTEXT, DATA, PUT, TIME, VALUE, CacheBudget, CacheEntry
from streamkit.state.stores.changelogged import CachedMapStore
from streamkit.state.stores.key_value import KeyValueStore
from streamkit.state.stores.suppress_buffer import VERSION
from streamkit.state.stores.versioned import VersionedStore
from streamkit.state.stores.window_store import WindowStore

if TYPE_CHECKING:
    from streamkit.runtime.execution.task import Task

_ENTRY_BYTES = 350
"""The memory that an entry takes: a list, its slot in a dict, key, value and timestamp."""
_LONGS = range(-(2**63), 2**63)


class _FinalStore(CachedMapStore):
    """A store whose cache contains all entries. Beyond `limit` bytes, all entries are forwarded and move to the map below.

    Unlike a cache, it also forwards the deletion of a key that it has never forwarded, because each key has a final change.
    """

    def __init__(self, definition: StoreDef, entries: BytesMap, context: StoreContext, limit: int):
        super().__init__(definition, entries, context, CacheBudget(sys.maxsize))
        self._max_entries = limit // _ENTRY_BYTES
        self._is_long = definition.value_serde.spec == "long"
        self._has_moved = False

    @abstractmethod
    def _forward(self, row: bytes, value: Value, entry: CacheEntry) -> None:
        """Forward an entry to the listener."""

    @abstractmethod
    def _move(self, row: bytes, data: bytes | None, timestamp: int) -> None:
        """Write an entry to the map below."""

    def flush(self) -> None:
        """Forward the final changes; they stay in memory, since no record follows."""
        encode, decode, forward = self._encode, self._decode, self._forward
        for row, entry in self.entries.items():
            if entry[PUT]:
                value, data = entry[VALUE], entry[DATA]
                if value is None and data is not None:
                    value = decode(data)
                elif data is None and value is not None and not self._is_long:
                    # Generated code has changed the value in place, so it may not encode; then this raises.
                    encode(value)
                if self._listener is not None:
                    forward(row, value, entry)

    def commit(self) -> None:
        """Move the entries to the map below if they exceed the limit."""
        if len(self.entries) > self._max_entries:
            self._move_all()
        super().commit()

    def _move_all(self) -> None:
        assert self.cache is not None
        self.flush()
        for row, entry in self.entries.items():
            if entry[PUT]:
                value, data = entry[VALUE], entry[DATA]
                if value is not None and data is None:
                    data = self._encode(value)
                self._move(row, data, entry[TIME])
        self.cache.clear()
        self._has_moved = True

    def _set_entry(self, row: bytes, value: Value, timestamp: int, context: RecordContext) -> None:
        if value is None or (self._is_long and value.__class__ is int and value in _LONGS):
            data = None
        else:
            data = self._encode(value)
            value = self.value_serde.as_decoded(value) if self.holds_decoded else None
        self.entries[row] = [value, timestamp, context, 1, 1, data, 0, 0]

    def _value_and_time(self, entry: CacheEntry) -> tuple[Value, int] | None:
        value = self._entry_value(entry)
        return None if value is None else (value, entry[TIME])


class FinalKeyValueStore(_FinalStore, KeyValueStore):
    """Values by key."""

    def get(self, key: bytes) -> tuple[Value, int] | None:
        """Return (value, timestamp), or None."""
        entry = self.entries.get(key)
        if entry is not None:
            return self._value_and_time(entry)
        return self.load(key) if self._has_moved else None

    def put(self, key: bytes, value: Value, timestamp: int, context: RecordContext = None) -> None:
        """Set a value, or delete with None. Raises SerdeError."""
        if value is None:
            timestamp = _time_of_update(self.get(key), timestamp)
        self._set_entry(key, value, timestamp, context)

    def _forward(self, row: bytes, value: Value, entry: CacheEntry) -> None:
        assert self._listener is not None
        self._listener(row, value, None, entry[TIME], entry[CONTEXT])

    def _move(self, row: bytes, data: bytes | None, timestamp: int) -> None:
        self._map.put(row, None if data is None else pack_long(timestamp) + data)


class FinalWindowStore(_FinalStore, WindowStore):
    """Values by key and start of a window."""

    def fetch(self, key: bytes, start: int) -> tuple[Value, int] | None:
        """Return (value, timestamp) of one window, or None."""
        entry = self.entries.get(key + pack_long(start))
        if entry is not None:
            return self._value_and_time(entry)
        return super().fetch(key, start) if self._has_moved else None

    def put(self, key: bytes, start: int, value: Value, timestamp: int, context: RecordContext = None) -> bool:
        """Set a window, or delete it with None. Raises SerdeError."""
        if value is None:
            timestamp = _time_of_update(self.fetch(key, start), timestamp)
        self._set_entry(key + pack_long(start), value, timestamp, context)
        return True

    def _forward(self, row: bytes, value: Value, entry: CacheEntry) -> None:
        assert self._listener is not None
        start = unpack_long(row, len(row) - 8)[0]
        self._listener(row[:-8], start, start + self.window_size, value, None, entry[TIME], entry[CONTEXT])

    def _move(self, row: bytes, data: bytes | None, timestamp: int) -> None:
        # The segments drop a window that has expired meanwhile. No step reads it, because its records would be late.
        stored = None if data is None else pack_long(timestamp) + data
        self._segments.put(unpack_long(row, len(row) - 8)[0], row[:-8], row[-8:], stored)


def _time_of_update(stored: tuple[Value, int] | None, timestamp: int) -> int:
    """Return the timestamp with which a deletion is forwarded; the store keeps the record's own timestamp."""
    return timestamp if stored is None else max(timestamp, stored[1])


_SAMPLE = 100
_ROW_BYTES = 170
"""The memory overhead of a row: two bytes objects and their slot in a dict."""
_CHUNK = 20_000


class SpillingMap(MapOnMap):
    """A map in memory, which a commit moves to disk if it has more than `limit` bytes."""

    def __init__(self, limit: int, path: Callable[[], Path]):
        self._limit = limit
        self._path = path
        # None after the move to disk.
        self._memory: MemoryMap | None = MemoryMap()
        super().__init__(self._memory)
        self._use(self._memory)

    def _use(self, inner: BytesMap) -> None:
        self._inner = inner
        # As attributes, although mypy does not allow it: this saves a step in the most frequent calls of a store.
        self.get = inner.get  # type: ignore[method-assign]
        self.put = inner.put  # type: ignore[method-assign]

    def get(self, key: bytes) -> bytes | None:
        return self._inner.get(key)

    def delete_range(self, low: bytes | None, high: bytes) -> None:
        self._inner.delete_range(low, high)

    def range(
        self,
        low: bytes | None,
        high: bytes | None,
        reverse: bool = False,
        include_high: bool = True,
        limit: int | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        return self._inner.range(low, high, reverse, include_high, limit)

    def stored(self, low: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._inner.stored(low, stop)

    def commit(self) -> None:
        if self._memory is not None and _size(self._memory, self._limit) > self._limit:
            self._spill(self._memory)
        super().commit()

    def _spill(self, memory: MemoryMap) -> None:
        new = open_map(DEFAULT_ENGINE, self._path())
        rows: Iterator[tuple[bytes, bytes | None]] = iter(memory.items())
        while chunk := list(islice(rows, _CHUNK)):
            new.put_many(chunk)
            new.commit()
        self._memory = None
        self.durable = True
        self._use(new)
        memory.close()


def _size(memory: MemoryMap, limit: int) -> int:
    """Estimate a map's memory in bytes; return 0 if it has few rows compared with the limit."""
    rows = len(memory)
    if rows * _ROW_BYTES * 4 < limit:
        return 0
    sample = list(islice(memory.items(), _SAMPLE))
    return rows * (_ROW_BYTES + sum(len(key) + len(value) for key, value in sample) // len(sample))


class SpillingStores:
    """Opens the stores of one task; `close` deletes their files."""

    def __init__(self, plan: Plan, limit: int):
        self._plan = plan
        self._limit = limit
        self._folder: Path | None = None

    def open(self, spec: TaskSpec, name: str, services: StoreServices) -> Store:
        """Return a new store of a task."""
        rows = SpillingMap(self._limit, lambda: self.directory() / f"{spec.task_id}-{name}")
        definition = self._plan.stores[name]
        if definition.caching and not spec.sub_topology.is_global:
            final_store = FinalWindowStore if definition.type == "window" else FinalKeyValueStore
            return final_store(definition, rows, services, self._limit)
        return create(definition, None, services, rows=rows)

    def commit(self, task: Task) -> None:
        """Commit the stores of a task, which moves large stores to disk."""
        for store in task.stores.values():
            store.commit()

    def close(self) -> None:
        """Delete the files of the stores."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def directory(self) -> Path:
        """Return a directory that exists until `close`. Raises StateError."""
        if self._folder is None:
            # Spark's own directory for temporary files (spark.local.dir).
            parent = (os.environ.get("SPARK_LOCAL_DIRS") or "").split(",")[0] or None
            try:
                self._folder = Path(tempfile.mkdtemp(prefix="streamkit-", dir=parent))
            except OSError as error:
                raise StateError(f"no place for stores in {parent}: {error.strerror or error}") from error
        return self._folder


Rows = list[tuple[bytes, bytes | None]]


_MAX_CHANGED = 300_000
"""The maximum number of written keys that stay in memory when the rows are on disk."""


class RecordingMap(SpillingMap):
    """A map that records the keys that are written, on disk if its rows are on disk."""

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
        """Treat all rows written since the map was opened as unchanged."""
        self._changed.clear()

    def changes(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the current rows of all written keys; None: deleted."""
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
    """The services of a suppression buffer in memory, whose changelog becomes rows."""

    def __init__(self, services: StoreServices, rows: RecordingMap):
        self.topic = services.topic
        self.dropped = services.dropped
        self._rows = rows

    def log(self, key: bytes, value: bytes | None, timestamp: int | None, headers: Headers | None) -> None:
        """Set a row."""
        self._rows.put(key, value)


class KeptStores(SpillingStores):
    """Opens stores with the rows of a checkpoint, as a live task opens stores in its state directory."""

    def __init__(self, plan: Plan, limit: int):
        super().__init__(plan, limit)
        self._rows: dict[tuple[str, int], RecordingMap] = {}
        self._maps = count()
        self._filled: dict[tuple[str, int], int] = {}

    def fill(self, name: str, partition: int, rows: Rows) -> None:
        """Add rows to a store that is not open yet. Later rows replace earlier ones; None deletes a row."""
        self._map(name, partition).fill(rows)
        self._filled[name, partition] = self.filled(name, partition) + len(rows)

    def filled(self, name: str, partition: int) -> int:
        """Return the number of rows that were added to a store by `fill`."""
        return self._filled.get((name, partition), 0)

    def open(self, spec: TaskSpec, name: str, services: StoreServices) -> Store:
        """Return a store of a task, with the rows that `fill` has added."""
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
        """Return a store that builds its index of due times while it is filled."""
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
        """Yield the rows that this run changed in a store (None: deleted), or all rows if `complete`."""
        rows = self._map(name, partition)
        entries: Iterator[tuple[bytes, bytes | None]] = rows.range(None, None) if complete else rows.changes()
        if self._plan.stores[name].ttl is None:
            yield from entries
            return
        for inner, value in entries:
            key = row_key(inner)
            if key is not None:
                yield key, value

    def _map(self, name: str, partition: int) -> RecordingMap:
        rows = self._rows.get((name, partition))
        if rows is None:
            path = f"{next(self._maps)}-{name}"
            rows = self._rows[name, partition] = RecordingMap(self._limit, lambda: self.directory() / path)
        return rows
