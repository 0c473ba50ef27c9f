"""Interactive queries over the stores of one instance (StreamThreadStateStoreProvider, QueryableStoreProvider).

Reads run between the batches of the thread that owns the task: they see every write before, cached ones included, and
none half done.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from streamkit.errors import StateError, StoreUnavailableError, UnknownStoreError
from streamkit.plan.model import Plan
from streamkit.runtime.local.states import ClientState, ThreadState
from streamkit.state.reading import Query, StoredRow, read
from streamkit.suggestions import did_you_mean, listed

if TYPE_CHECKING:
    from streamkit.runtime.local.client import Application
    from streamkit.runtime.local.thread import StreamThread

WAIT_SECONDS = 10.0
"""How long a query waits for a thread that is busy with one batch."""


_ALIVE = (ThreadState.RUNNING, ThreadState.PARTITIONS_ASSIGNED, ThreadState.PARTITIONS_REVOKED)
Enter = Callable[[float], AbstractContextManager[None]]
"""Waits so many seconds at most for the moment at which stores may be read."""
Find = Callable[[], list[tuple[int, Any, bool]]]
"""Gives (partition, store, whether of a running task); to be called between Enter and its end."""


class Row(NamedTuple):
    """A row and the partition that it lies in."""

    place: bytes
    partition: int
    row: StoredRow


@dataclass(frozen=True)
class Answer:
    """A page of rows over several tasks, in order, and the partitions that were looked at."""

    rows: list[Row]
    partitions: frozenset[int]
    standbys: frozenset[int]
    """Those of the partitions that were read from a standby, or from a task that is being restored."""


class LocalStores:
    """The stores of this instance, to be read by any thread."""

    def __init__(self, application: Application):
        self._application = application
        self._plan = application.plan

    def read(
        self, name: str, query: Query, partitions: Collection[int] | None = None, *, stale: bool = False
    ) -> Answer:
        """Return a page of a store, of these partitions or of all that are here.

        `stale`: standbys and tasks that are being restored count too, where no active task is.
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
        """Yield ways in, and what finds the store behind each: running tasks first, then those of the updaters."""
        application = self._application
        if is_global(self._plan, name):
            gate, find = application.global_stores(name)
            yield gate.entered, find
            return
        threads = list(application.threads)
        for thread in threads:
            # A thread that takes up tasks may have some that it is about to give away.
            if thread.state is ThreadState.RUNNING or (stale and thread.state in _ALIVE):
                yield thread.gate.entered, partial(_running_stores, thread, name, stale)
        for thread in threads if stale else ():
            yield thread.updater.entered, partial(thread.updater.stores, name)


def _running_stores(thread: StreamThread, name: str, stale: bool) -> list[tuple[int, Any, bool]]:
    # Its state may have changed while the reader waited.
    return thread.stores(name) if stale or thread.state is ThreadState.RUNNING else []


def require_store(plan: Plan, name: str) -> None:
    """Raise UnknownStoreError with the nearest name unless the topology has the store."""
    if name in plan.stores:
        return
    hint = did_you_mean(name, plan.stores, f"it has {listed(plan.stores)}")
    raise UnknownStoreError(f"{plan.application} has no store {name}{hint}")


def is_global(plan: Plan, name: str) -> bool:
    """Return whether a store is that of a global table, which every instance holds whole."""
    return any(sub.is_global and name in sub.stores for sub in plan.sub_topologies)


def merged(pages: dict[int, list[StoredRow]], query: Query) -> list[Row]:
    """Return one page of pages by partition, each in order."""
    columns = [[Row(row.place, partition, row) for row in rows] for partition, rows in pages.items()]
    rows = heapq.merge(*columns, key=lambda row: row[:2], reverse=query.reverse)
    return list(islice(rows, query.limit))
