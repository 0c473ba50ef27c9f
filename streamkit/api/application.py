"""A topology that runs in this process (KafkaStreams)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from types import TracebackType
from typing import Any

from streamkit.errors import StateError
from streamkit.plan.model import Plan
from streamkit.runtime.local.client import Application as LocalApplication
from streamkit.runtime.local.queries import require_store
from streamkit.runtime.opening import open_log
from streamkit.state.keys import MAX_LONG
from streamkit.state.reading import Query, StoredRow

Listener = Callable[[str, str], None]
"""(new state, old state), such as ("RUNNING", "REBALANCING")."""
_PAGE = 1000


class Store:
    """The rows of a store that this process holds, for queries (ReadOnlyKeyValueStore and its like).

    Keys are Python objects. Reads see the cache. Every method raises StoreUnavailableError while the store is being
    restored or is elsewhere, and QueryError for what the type of store does not offer.
    """

    def __init__(self, application: LocalApplication, name: str):
        self._stores = application.stores
        self._name = name
        self._definition = application.plan.stores[name]

    def get(self, key: Any) -> Any:
        """Return the value of a key, or None."""
        rows = self._page(Query("get", key=self._encode(key)))
        return rows[0].value if rows else None

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Yield every (key, value); keys of windows and sessions are WindowedKey."""
        yield from self._pages(Query("all", limit=_PAGE))

    def range(self, low: Any = None, high: Any = None) -> Iterator[tuple[Any, Any]]:
        """Yield (key, value) from low to high, both included, in byte order within a partition."""
        bounds = [None if bound is None else self._encode(bound) for bound in (low, high)]
        yield from self._pages(Query("range", low=bounds[0], high=bounds[1], limit=_PAGE))

    def windows(self, key: Any, start: int = 0, end: int | None = None) -> Iterator[tuple[Any, Any]]:
        """Yield (windowed key, value) of a key's windows that start from `start` to `end` (ms)."""
        last = MAX_LONG if end is None else end
        yield from self._pages(Query("windows", key=self._encode(key), start=start, end=last, limit=_PAGE))

    def sessions(self, key: Any) -> Iterator[tuple[Any, Any]]:
        """Yield (windowed key, value) of a key's sessions."""
        yield from self._pages(Query("sessions", key=self._encode(key), limit=_PAGE))

    def _encode(self, key: Any) -> bytes:
        return self._definition.key_serde.encode(key)

    def _page(self, query: Query) -> list[StoredRow]:
        return [each.row for each in self._stores.read(self._name, query).rows]

    def _pages(self, query: Query) -> Iterator[tuple[Any, Any]]:
        while True:
            rows = self._stores.read(self._name, query).rows
            for each in rows:
                yield each.row.key, each.row.value
            if len(rows) < query.limit:
                return
            query = replace(query, after=(rows[-1].place, rows[-1].partition))


class Application:
    """Runs a topology on the log that bootstrap.servers names. A context manager: starts, and stops at the end.

    A process of its own is what `streamkit run` offers: signals, logs, HTTP.
    """

    def __init__(self, plan: Plan, listener: Listener | None = None):
        self._transport = open_log(plan)
        told = None if listener is None else lambda new, old: listener(new.value, old.value)
        try:
            self._application = LocalApplication(plan, self._transport, told)
        except BaseException:
            self._transport.close()
            raise

    @property
    def state(self) -> str:
        """CREATED, REBALANCING, RUNNING, PENDING_SHUTDOWN, NOT_RUNNING, PENDING_ERROR or ERROR (KafkaStreams.State)."""
        return self._application.state.value

    def start(self) -> None:
        """Create topics, restore state and start the threads. Raises TopicError, StateLockedError, TransportError."""
        self._application.start()

    def run(self, until_idle: bool = False) -> None:
        """Start, and return after SIGTERM or SIGINT, or with `until_idle` when all input is processed and committed.

        Raises what ended a thread.
        """
        try:
            self._application.run(until_idle=until_idle)
        finally:
            self._transport.close()

    def stop(self, timeout: float | None = None) -> bool:
        """Commit and end, waiting at most `timeout` seconds; return whether all ended in time. Raises what ended a thread."""
        ended = self._application.stop(timeout)
        self._transport.close()
        self._application.raise_error()
        return ended

    def store(self, name: str) -> Store:
        """Return a store for queries. Raises UnknownStoreError."""
        require_store(self._application.plan, name)
        return Store(self._application, name)

    def status(self) -> dict[str, Any]:
        """Return states, tasks, rates and lag as plain data, as `streamkit status --json` has them for one instance."""
        return asdict(self._application.status())

    def wait_until_idle(self) -> None:
        """Return when all input is processed and committed. Raises StateError before the start."""
        if self.state == "CREATED":
            raise StateError("the application has not started")
        self._application.wait_until_idle()

    def __enter__(self) -> Application:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
