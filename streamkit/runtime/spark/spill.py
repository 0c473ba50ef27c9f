"""Stores of a Spark task: in memory, and in a directory of Spark's own once they have grown."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from streamkit.errors import StateError
from streamkit.plan.model import Plan
from streamkit.runtime.environment import StoreServices, TaskSpec
from streamkit.runtime.spark.last_changes import HeldStore, HeldWindowStore
from streamkit.state.base import BytesMap
from streamkit.state.definitions import create
from streamkit.state.maps import default_engine, open_map

_SAMPLE = 100
_ROW_BYTES = 170
"""What a row in memory costs beside its bytes: two bytes objects and their place in a dict."""
_CHUNK = 20_000


class SpillingMap(BytesMap):
    """A map in memory that moves to disk when it has grown beyond `limit` bytes; looked at once a commit."""

    def __init__(self, limit: int, path: Callable[[], Path]):
        self._limit = limit
        self._path = path
        self._spilled = False
        self._use(open_map("memory"))

    def _use(self, inner: BytesMap) -> None:
        self._inner = inner
        # No step in between: these are the hottest calls of a store.
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
        if not self._spilled and self._bytes() > self._limit:
            self._spill()
        self._inner.commit()

    def close(self) -> None:
        self._inner.close()

    def _bytes(self) -> int:
        rows = len(self._inner)  # type: ignore[arg-type]
        if rows * _ROW_BYTES * 4 < self._limit:
            return 0
        sample = list(islice(self._inner.items(), _SAMPLE))  # type: ignore[attr-defined]
        return rows * (_ROW_BYTES + sum(len(key) + len(value) for key, value in sample) // len(sample))

    def _spill(self) -> None:
        old, new = self._inner, open_map(default_engine(), self._path())
        rows = old.items()  # type: ignore[attr-defined]
        while chunk := list(islice(rows, _CHUNK)):
            new.put_many(chunk)
            new.commit()
        self._spilled = True
        self.durable = True
        self._use(new)
        old.close()


class SpillingStores:
    """Opens the stores of one task; what they put on disk is gone after `close`."""

    def __init__(self, plan: Plan, limit: int):
        self._plan = plan
        self._limit = limit
        self._folder: Path | None = None

    def open(self, spec: TaskSpec, name: str, services: StoreServices) -> Any:
        """Return a new store of a task."""
        rows = SpillingMap(self._limit, lambda: self.directory() / f"{spec.task_id}-{name}")
        definition = self._plan.stores[name]
        if definition.caching and not spec.sub_topology.is_global:
            held = HeldWindowStore if definition.type == "window" else HeldStore
            return held(definition, rows, services, self._limit)
        return create(definition, None, services, rows=rows)

    def settle(self, task: Any) -> None:
        """Let stores write out what they hold, or move to disk."""
        for store in task.stores.values():
            store.commit()

    def close(self) -> None:
        """Delete what is on disk."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def directory(self) -> Path:
        """Return where things may be put on disk until `close`. Raises StateError."""
        if self._folder is None:
            # Where Spark puts its own temporary files (spark.local.dir).
            parent = (os.environ.get("SPARK_LOCAL_DIRS") or "").split(",")[0] or None
            try:
                self._folder = Path(tempfile.mkdtemp(prefix="streamkit-", dir=parent))
            except OSError as error:
                raise StateError(f"no place for stores in {parent}: {error.strerror or error}") from error
        return self._folder
