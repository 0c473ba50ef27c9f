"""Interactive queries over the stores of one instance (StreamThreadStateStoreProvider, QueryableStoreProvider).

Reads run between the batches of the thread that owns the task: they see all earlier writes, cached ones included, and no
partial ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from streamkit.errors import StateError, StoreUnavailableError, UnknownStoreError
from streamkit.plan.model import Plan
from streamkit.runtime.local.threads.states import ClientState, ThreadState
from streamkit.state.reading import Query, StoredRow, read
from streamkit.suggestions import did_you_mean, listed

if TYPE_CHECKING:
    from streamkit.runtime.local.instance.client import Application
    from streamkit.runtime.local.threads.stream_thread import StreamThread
    from streamkit.state.definitions import Store

WAIT_SECONDS = 10.0
"""How long a query waits for a thread that is busy with one batch."""


_ALIVE = (ThreadState.RUNNING, ThreadState.PARTITIONS_ASSIGNED, ThreadState.PARTITIONS_REVOKED)
Enter = Callable[[float], AbstractContextManager[None]]
"""Waits at most this many seconds until stores may be read."""
Find = Callable[[], "list[tuple[int, Store, bool]]"]
"""Returns (partition, store, whether of a running task); called inside the context of Enter."""


class Row(NamedTuple):
    """A row and its partition."""

    place: bytes
    partition: int
    row: StoredRow


@dataclass(frozen=True)
class Answer:
    """A page of rows of several tasks, in order, and the partitions that were read."""

    rows: list[Row]
    partitions: frozenset[int]
    standbys: frozenset[int]
    """Those of the partitions that were read from a standby, or from a task that is being restored."""


class LocalStores:
    """The stores of this instance, for reads by any thread."""

    def __init__(self, application: Application):
        self._application = application
        self._plan = application.plan

    def read(
        self, name: str, query: Query, partitions: Collection[int] | None = None, *, stale: bool = False
    ) -> Answer:
        """Return a page of a store, of these partitions or of all of this instance.

        `stale`: also read standbys and tasks that are being restored, where there is no active task.
        Raises UnknownStoreError, StoreUnavailableError before the tasks run or without one of `partitions`, QueryError.
        """
        require_store(self._plan, name)
        state = self._application.state
        if state not in (ClientState.RUNNING, ClientState.REBALANCING):
            raise StoreUnavailableError(f"the application is {state.value}: its stores can't be read")
        pages: dict[int, list[StoredRow]] = {}
        standbys = set()
        for enter, found in self._places(name, stale):
            try:
                with enter(WAIT_SECONDS):
                    for partition, store, active in found():
                        if partition in pages or (partitions is not None and partition not in partitions):
                            continue
                        pages[partition] = read(store, query, partition)
                        if not active:
                            standbys.add(partition)
            except StateError as error:
                raise StoreUnavailableError(f"store {name} can't be read now: {error}") from error
        if partitions is None and query.kind == "get" and not pages:
            raise StoreUnavailableError(f"store {name} has no running task here")
        missing = set(partitions or ()) - set(pages)
        if missing:
            wanted = ", ".join(map(str, sorted(missing)))
            raise StoreUnavailableError(f"store {name} has no running task for partition {wanted} here")
        return Answer(merged(pages, query), frozenset(pages), frozenset(standbys))

    def partitions(self, name: str) -> list[int]:
        """Return the partitions that a store has in the whole application. Raises StoreUnavailableError before the start."""
        require_store(self._plan, name)
        tasks = self._application.tasks()
        owners = {sub.id for sub in self._plan.sub_topologies if name in sub.stores}
        return [partition for sub, partition in tasks if sub in owners]

    def _places(self, name: str, stale: bool) -> Iterator[tuple[Enter, Find]]:
        """Yield each lock with the function that finds the store under it: running tasks first, then those of the updaters."""
        application = self._application
        if is_global(self._plan, name):
            gate, find = application.global_stores(name)
            yield gate.entered, find
            return
        threads = list(application.threads)
        for thread in threads:
            # A thread that applies an assignment may have tasks that it is about to close.
            if thread.state is ThreadState.RUNNING or (stale and thread.state in _ALIVE):
                yield thread.gate.entered, partial(_running_stores, thread, name, stale)
        for thread in threads if stale else ():
            yield thread.updater.entered, partial(thread.updater.stores, name)


def _running_stores(thread: StreamThread, name: str, stale: bool) -> list[tuple[int, Store, bool]]:
    # The state of the thread may have changed while the reader waited.
    return thread.stores(name) if stale or thread.state is ThreadState.RUNNING else []


def require_store(plan: Plan, name: str) -> None:
    """Raise UnknownStoreError with the nearest name unless the topology has the store."""
    if name in plan.stores:
        return
    hint = did_you_mean(name, plan.stores, f"it has {listed(plan.stores)}")
    raise UnknownStoreError(f"{plan.application} has no store {name}{hint}")


def is_global(plan: Plan, name: str) -> bool:
    """Return whether a store is that of a global table, of which every instance has all rows."""
    return any(sub.is_global and name in sub.stores for sub in plan.sub_topologies)


def merged(pages: dict[int, list[StoredRow]], query: Query) -> list[Row]:
    """Return one page of pages by partition, each in order."""
    columns = [[Row(row.place, partition, row) for row in rows] for partition, rows in pages.items()]
    rows = heapq.merge(*columns, key=lambda row: row[:2], reverse=query.reverse)
    return list(islice(rows, query.limit))
