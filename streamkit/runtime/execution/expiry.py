"""Deletes rows with a time to live: right after the record with which stream time reaches a tick."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from streamkit.runtime.execution.metadata import UNKNOWN
from streamkit.state.definitions import Store
from streamkit.state.stores.expiring import ExpiringStore

_AT_ONCE = 10_000
"""The most rows that are deleted before the owner of the task may send output, commit, and run queries."""
_LOOK_AFTER = 256
"""Rows after which the size of the output is checked."""


class Expiry:
    """The stores of a task whose rows have a time to live.

    The last tick of each store is committed with the offsets, under the store's name, so that after a restart, or on the
    task's next owner, rows are deleted at the same stream time, and none twice.
    """

    def __init__(self, stores: Iterable[Store], times: dict[str, int]):
        self._stores = [store for store in stores if isinstance(store, ExpiringStore)]
        self._times = times
        self._running: Iterator[None] | None = None
        self.unfinished = False
        """Whether rows are due that have not been deleted yet; no record may be processed before they are."""

    def reset(self) -> None:
        """Discard an unfinished run: the stores or the times have been reset to the last commit."""
        self._running, self.unfinished = None, False

    def start(self, time: int) -> None:
        """Begin at the committed stream time (ms)."""
        self.unfinished = any(self._is_due(store, time) for store in self._stores)

    def next_due(self, timer: int | None = None) -> int | None:
        """Return the next stream time (ms) at which rows of a store may be due, or `timer` if that is earlier."""
        for store in self._stores:
            due = self._tick(store, self._done(store)) + store.tick
            if timer is None or due < timer:
                timer = due
        return timer

    def run(self, time: int, is_full: Callable[[], bool]) -> int:
        """Delete the rows that are due at a stream time (ms); return how many. `unfinished` is set where some are left."""
        deleted = 0
        for store in self._stores:
            while self._is_due(store, time):
                if self._running is None:
                    self._running = store.expire(self._tick(store, time))
                for _ in self._running:
                    deleted += 1
                    if deleted >= _AT_ONCE or (not deleted % _LOOK_AFTER and is_full()):
                        self.unfinished = True
                        return deleted
                self._running = None
                self._times[store.name] = self._tick(store, time)
        self.unfinished = False
        return deleted

    def _is_due(self, store: ExpiringStore, time: int) -> bool:
        return time >= 0 and self._tick(store, time) > self._done(store)

    def _done(self, store: ExpiringStore) -> int:
        # Not cached: the committed times are set after the task is created.
        return self._times.get(store.name, UNKNOWN)

    @staticmethod
    def _tick(store: ExpiringStore, time: int) -> int:
        return time // store.tick * store.tick
