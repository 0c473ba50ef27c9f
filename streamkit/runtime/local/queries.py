"""Interactive queries over the stores of one instance (StreamThreadStateStoreProvider, QueryableStoreProvider).

Reads run between the batches of the thread that owns the task: they see every write before, cached ones included, and
none half done.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from streamkit.errors import StateError, StoreUnavailableError, UnknownStoreError
from streamkit.plan.model import Plan
from streamkit.runtime.local.gate import Gate
from streamkit.runtime.local.states import ClientState, ThreadState
from streamkit.state.reading import Query, StoredRow, read

if TYPE_CHECKING:
    from streamkit.runtime.local.client import Application

WAIT_SECONDS = 10.0
"""How long a query waits for a thread that is busy with one batch."""


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
    """Those of the partitions that were read from a standby or a task that is being restored."""


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
        for gate, found in self._places(name, stale):
            try:
                with gate.entered(WAIT_SECONDS):
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

    def _places(self, name: str, stale: bool) -> Iterable[tuple[Gate, Callable[[], list[tuple[int, Any, bool]]]]]:
        """Yield gates, and behind each the (partition, store, whether active) of a store, active tasks first."""
        application = self._application
        if is_global(self._plan, name):
            yield application.global_stores(name)
            return
        threads = list(application.threads)
        for thread in threads:
            if thread.state is ThreadState.RUNNING:
                yield thread.gate, lambda thread=thread: thread.stores(name)  # type: ignore[misc]


def require_store(plan: Plan, name: str) -> None:
    """Raise UnknownStoreError with the nearest name unless the topology has the store."""
    if name in plan.stores:
        return
    from difflib import get_close_matches

    near = get_close_matches(name, plan.stores, 1)
    hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(plan.stores) or 'none'}"
    raise UnknownStoreError(f"{plan.application} has no store {name}; {hint}")


def is_global(plan: Plan, name: str) -> bool:
    """Return whether a store is that of a global table, which every instance holds whole."""
    return any(sub.is_global and name in sub.stores for sub in plan.sub_topologies)


def merged(pages: dict[int, list[StoredRow]], query: Query) -> list[Row]:
    """Return one page of pages by partition, each in order."""
    columns = [[Row(row.place, partition, row) for row in rows] for partition, rows in pages.items()]
    rows = heapq.merge(*columns, key=lambda row: row[:2], reverse=query.reverse)
    return [row for row, _ in zip(rows, range(query.limit), strict=False)]
