"""When rows with a time to live are deleted: after the record with which stream time reaches a tick, before any other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from streamkit.runtime.metadata import UNKNOWN

_AT_ONCE = 10_000
"""Rows that are deleted at most before the owner of the task may send output, commit, and answer queries."""
_LOOK_AFTER = 256
"""Rows after which it is seen whether they have made much output."""


class Expiry:
    """The stores of a task whose rows have a time to live.

    Up to which tick each has been looked at is kept with the committed offsets under its name, so that a restart, or the
    task's next owner, deletes what this one would have: no earlier, and nothing twice.
    """

    def __init__(self, stores: Iterable[Any], times: dict[str, int]):
        self._stores = [store for store in stores if getattr(store, "tick", None) is not None]
        self._times = times
        self._running: Iterator[None] | None = None
        self.unfinished = False
        """Whether rows are due that have not been deleted yet; no record may be taken before they are."""

    def reset(self) -> None:
        """Forget what is half done: the stores, or the times, are those of the last commit."""
        self._running, self.unfinished = None, False

    def start(self, time: int) -> None:
        """Begin at the stream time (ms) that was committed."""
        self.unfinished = any(self._is_due(store, time) for store in self._stores)

    def next_due(self, timer: int | None = None) -> int | None:
        """Return the stream time (ms) at which a store is to be looked at next, or a timer is due if that comes first."""
        for store in self._stores:
            due = self._tick(store, self._done(store)) + store.tick
            if timer is None or due < timer:
                timer = due
        return timer

    def run(self, time: int, is_full: Callable[[], bool]) -> int:
        """Delete what is due at a stream time (ms); return how many rows. `unfinished` where they were too many at once."""
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

    def _is_due(self, store: Any, time: int) -> bool:
        return time >= 0 and self._tick(store, time) > self._done(store)

    def _done(self, store: Any) -> int:
        # Read each time: a task learns what was committed after it was made.
        return self._times.get(store.name, UNKNOWN)

    @staticmethod
    def _tick(store: Any, time: int) -> int:
        tick: int = time // store.tick * store.tick
        return tick
