"""Stores of a Spark task: in memory, and in a temporary directory of Spark where they are large."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from streamkit.errors import StateError
from streamkit.plan.model import Plan
from streamkit.runtime.execution.task_environment import StoreServices, TaskSpec
from streamkit.runtime.spark.workers.final_changes import FinalKeyValueStore, FinalWindowStore
from streamkit.state.definitions import BytesMap, Store
from streamkit.state.engines.memory import MemoryMap
from streamkit.state.engines.open_maps import DEFAULT_ENGINE, open_map
from streamkit.state.open_store import create

if TYPE_CHECKING:
    from streamkit.runtime.execution.task import Task

_SAMPLE = 100
_ROW_BYTES = 170
"""The memory that a row takes beside its bytes: two bytes objects and their place in a dict."""
_CHUNK = 20_000


class SpillingMap(BytesMap):
    """A map in memory that a commit moves to disk where it has more than `limit` bytes."""

    def __init__(self, limit: int, path: Callable[[], Path]):
        self._limit = limit
        self._path = path
        memory = MemoryMap()
        # None after the move to disk.
        self._memory: MemoryMap | None = memory
        self._use(memory)

    def _use(self, inner: BytesMap) -> None:
        self._inner = inner
        # As attributes, which mypy does not allow, so that the most frequent calls of a store take no step in between.
        self.get = inner.get  # type: ignore[method-assign]
        self.put = inner.put  # type: ignore[method-assign]

    def get(self, key: bytes) -> bytes | None:
        return self._inner.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        self._inner.put(key, value)

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

    def put_many(self, items: list[tuple[bytes, bytes | None]]) -> None:
        self._inner.put_many(items)

    def commit(self) -> None:
        if self._memory is not None and _size(self._memory, self._limit) > self._limit:
            self._spill(self._memory)
        self._inner.commit()

    def close(self) -> None:
        self._inner.close()

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
    """Return about how many bytes of memory a map takes; 0 where it has few rows for the limit."""
    rows = len(memory)
    if rows * _ROW_BYTES * 4 < limit:
        return 0
    sample = list(islice(memory.items(), _SAMPLE))
    return rows * (_ROW_BYTES + sum(len(key) + len(value) for key, value in sample) // len(sample))


class SpillingStores:
    """Opens the stores of one task; `close` deletes what they have on disk."""

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
        """Commit the stores of a task, which moves to disk what is too large for memory."""
        for store in task.stores.values():
            store.commit()

    def close(self) -> None:
        """Delete what is on disk."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def directory(self) -> Path:
        """Return a directory that exists until `close`. Raises StateError."""
        if self._folder is None:
            # Where Spark puts its own temporary files (spark.local.dir).
            parent = (os.environ.get("SPARK_LOCAL_DIRS") or "").split(",")[0] or None
            try:
                self._folder = Path(tempfile.mkdtemp(prefix="streamkit-", dir=parent))
            except OSError as error:
                raise StateError(f"no place for stores in {parent}: {error.strerror or error}") from error
        return self._folder
