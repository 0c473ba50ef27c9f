"""A topology that runs in this process (KafkaStreams)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from types import TracebackType
from typing import Literal, get_args

from streamkit.errors import StateError, UsageError
from streamkit.plan.model import Plan
from streamkit.record import Operand as Key
from streamkit.record import Operand as Value
from streamkit.runtime.local.client import Application as LocalApplication
from streamkit.runtime.local.queries import require_store
from streamkit.runtime.operations.opening import open_log
from streamkit.serdes.plain import Json
from streamkit.state.definitions import Query, StoredRow
from streamkit.state.layouts import MAX_LONG

Isolation = Literal["read_committed", "read_uncommitted"]
Listener = Callable[[str, str], None]
"""(new state, old state), such as ("RUNNING", "REBALANCING")."""
_PAGE = 1000


class Store:
    """The rows of a store in this process, for queries (ReadOnlyKeyValueStore, ReadOnlyWindowStore, ReadOnlySessionStore).

    Keys are Python objects. Reads include the cache, unless they are of the last commit. Every method raises StoreUnavailableError while the store is being
    restored or its tasks run elsewhere, and QueryError for a query that the type of store does not offer.
    """

    def __init__(self, application: LocalApplication, name: str, committed: bool | None = None):
        self._stores = application.stores
        self._committed = committed
        self._name = name
        self._definition = application.plan.stores[name]

    def get(self, key: Key) -> Value:
        """Return the value of a key, or None."""
        rows = self._page(Query("get", key=self._encode(key)))
        return rows[0].value if rows else None

    def headers(self, key: object) -> list[tuple[str, bytes | None]]:
        """Return the headers of a key's row; none without a row (TimestampedKeyWithHeadersQuery). Raises QueryError without dsl.store.format: HEADERS."""
        rows = self._page(Query("get", key=self._encode(key), headers=True))
        return list(rows[0].headers or ()) if rows else []

    def all(self) -> Iterator[tuple[Key, Value]]:
        """Yield every (key, value); keys of windows and sessions are WindowedKey."""
        yield from self._pages(Query("all", limit=_PAGE))

    def range(self, low: Key = None, high: Key = None) -> Iterator[tuple[Key, Value]]:
        """Yield (key, value) from low to high, both included, in byte order within a partition."""
        bounds = [None if bound is None else self._encode(bound) for bound in (low, high)]
        yield from self._pages(Query("range", low=bounds[0], high=bounds[1], limit=_PAGE))

    def windows(self, key: Key, start: int = 0, end: int | None = None) -> Iterator[tuple[Key, Value]]:
        """Yield (windowed key, value) of a key's windows that start from `start` to `end` (ms)."""
        last = MAX_LONG if end is None else end
        yield from self._pages(Query("windows", key=self._encode(key), start=start, end=last, limit=_PAGE))

    def sessions(self, key: Key) -> Iterator[tuple[Key, Value]]:
        """Yield (windowed key, value) of a key's sessions."""
        yield from self._pages(Query("sessions", key=self._encode(key), limit=_PAGE))

    def _encode(self, key: Key) -> bytes:
        return self._definition.key_serde.encode(key)

    def _page(self, query: Query) -> list[StoredRow]:
        query = replace(query, committed=self._committed)
        return [stored.row for stored in self._stores.read(self._name, query).rows]

    def _pages(self, query: Query) -> Iterator[tuple[Key, Value]]:
        query = replace(query, committed=self._committed)
        while True:
            rows = self._stores.read(self._name, query).rows
            for stored in rows:
                yield stored.row.key, stored.row.value
            if len(rows) < query.limit:
                return
            query = replace(query, after=(rows[-1].place, rows[-1].partition))


class Application:
    """Runs a topology on the log that bootstrap.servers names. A context manager: starts, and stops at the end.

    `streamkit run` adds a separate process, with signals, logs and HTTP.
    """

    def __init__(self, plan: Plan, listener: Listener | None = None):
        self._transport = open_log(plan)
        state_listener = None if listener is None else lambda new, old: listener(new.value, old.value)
        try:
            self._application = LocalApplication(plan, self._transport, state_listener)
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

        Raises the error that ended a thread.
        """
        try:
            self._application.run(until_idle=until_idle)
        finally:
            self._transport.close()

    def stop(self, timeout: float | None = None) -> bool:
        """Commit and end, waiting at most `timeout` seconds; return whether all ended in time. Raises the error that ended a thread."""
        ended = self._application.stop(timeout)
        self._transport.close()
        self._application.raise_error()
        return ended

    def store(self, name: str, isolation: Isolation | None = None) -> Store:
        """Return a store for queries: of what the last commit has, or of all writes. Raises UnknownStoreError.

        isolation: by default that of default.interactive.query.isolation.level (KIP-892). Raises UsageError for another one.
        """
        if isolation not in (None, *get_args(Isolation)):
            raise UsageError(f"isolation is {isolation!r}; it must be {' or '.join(get_args(Isolation))}")
        require_store(self._application.plan, name)
        return Store(self._application, name, None if isolation is None else isolation == "read_committed")

    def status(self) -> dict[str, Json]:
        """Return states, tasks, rates and lag as plain data, as `streamkit status --format json` has them for one instance."""
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
