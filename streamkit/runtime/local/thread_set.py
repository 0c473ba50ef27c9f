"""The stream threads of an instance, which may be added and removed while it runs (KafkaStreams.addStreamThread, removeStreamThread)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Literal, get_args

from streamkit.errors import StateError, UsageError
from streamkit.runtime.local.setup import Shared
from streamkit.runtime.local.states import ThreadState
from streamkit.runtime.local.stream_thread import StreamThread

log = logging.getLogger(__name__)

FailureResponse = Literal["replace_thread", "shutdown_client", "shutdown_application"]
FailureHandler = Callable[[BaseException], str]
"""Returns the response to the failure of a stream thread (StreamsUncaughtExceptionHandler): a FailureResponse, with dashes
or underscores. Called by that thread."""


def failure_response(name: str) -> FailureResponse:
    """Return the response of a name, with dashes or underscores. Raises UsageError."""
    known: tuple[FailureResponse, ...] = get_args(FailureResponse)
    for response in known:
        if name.lower().replace("-", "_") == response:
            return response
    raise UsageError(f"{name!r} is no answer to a failing thread; expected {', '.join(known)}")


class Threads:
    """Creates threads with the lowest free number, and divides the cache among running ones."""

    def __init__(self, shared: Shared, process: str, cache_bytes: int, others: int):
        """`cache_bytes`: of all threads; `others`: the number of shares for threads that are not in this set (the global thread)."""
        self.all: list[StreamThread] = []
        self.on_change: Callable[[StreamThread], None] = lambda thread: None
        """Called by each thread after its state changed."""
        self._shared = shared
        self._process = process
        self._client = shared.plan.config["client.id"] or f"{shared.plan.application}-{process}"
        self._cache_bytes = cache_bytes
        self._others = others
        self._lock = threading.RLock()

    def add(self, count: int = 1) -> list[StreamThread]:
        """Create threads, without tasks and not started."""
        with self._lock:
            self._drop_dead()
            made = [self._make() for _ in range(count)]
            self.split_cache()
        return made

    def start_another(self) -> StreamThread:
        """Create a thread without tasks, and start it."""
        (thread,) = self.add()
        thread.assign([])
        thread.start()
        log.info("added %s; there are %d threads now", thread.name, len(self.alive()))
        return thread

    def end_one(self, timeout: float | None) -> StreamThread | None:
        """End a thread, the last one that was created, and return it; None if there is none.

        Raises StateError when it takes longer than `timeout` seconds: it is ending still, and its number stays taken.
        """
        with self._lock:
            staying = [thread for thread in self.alive() if not thread.stopping]
            if not staying:
                return None
            thread = staying[-1]
            thread.stop()
        if not thread.join(timeout):
            raise StateError(f"{thread.name} did not end within {timeout:g} s; it is ending still")
        with self._lock:
            self.all = [each for each in self.all if each is not thread]
            self.split_cache()
        log.info("removed %s; there are %d threads now", thread.name, len(self.alive()))
        return thread

    def replace(self, dead: StreamThread) -> StreamThread:
        """Create a thread with the name, transactional id and tasks of one that has ended."""
        with self._lock:
            self.all = [each for each in self.all if each is not dead]
            fresh = self._make()
            fresh.assign(*dead.assignment)
        return fresh

    def alive(self) -> list[StreamThread]:
        """Return the threads that have not ended."""
        return [thread for thread in self.all if thread.state is not ThreadState.DEAD]

    def split_cache(self) -> None:
        """Set each running thread's share of the cache, which takes effect at its next write."""
        alive = self.alive()
        share = self.share(len(alive))
        for thread in alive:
            thread.resize_cache(share)

    def share(self, count: int) -> int:
        """Return the cache of each of `count` threads, in bytes."""
        return max(0, self._cache_bytes) // max(1, count + self._others)

    def names(self) -> Sequence[str]:
        """Return the names of the threads that have not ended."""
        return [thread.name for thread in self.alive()]

    def _drop_dead(self) -> None:
        self.all = self.alive()

    def _make(self) -> StreamThread:
        application = self._shared.plan.application
        used = {thread.number for thread in self.all}
        number = next(number for number in range(1, len(used) + 2) if number not in used)
        exactly_once = self._shared.settings.exactly_once
        thread = StreamThread(
            f"{self._client}-StreamThread-{number}",
            self._shared,
            f"{application}-{self._process}-{number}" if exactly_once else None,
            number,
        )
        thread.on_change = self.on_change
        self.all = [*self.all, thread]
        return thread
