"""Threads for functions without `async`: a function that never returns blocks neither others nor the end of the process."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_Work: TypeAlias = Callable[[], bool]
"""Runs a call; returns whether its thread goes on."""


class DaemonThreads(Executor):
    """Up to `size` daemon threads; ThreadPoolExecutor waits at the end of the process for threads that are busy."""

    def __init__(self, size: int, name: str):
        self._size = size
        self._name = name
        self._numbers = itertools.count(1)
        self._threads = 0
        """Those that take calls: a thread whose call was abandoned does not count."""
        self._spare = 0
        """Idle threads that no call has reserved; below 0: calls that wait for a thread."""
        self._running: set[object] = set()
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function in one of the threads."""
        future: Future[T] = Future()

        def work() -> bool:
            with self._lock:
                if not future.set_running_or_notify_cancel():
                    return True
                self._running.add(future)
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            with self._lock:
                goes_on = future in self._running
                self._running.discard(future)
            return goes_on

        with self._lock:
            self._queue.put(work)
            # An idle thread is reserved here, not when it wakes: calls of one burst would all count on the same one.
            if self._spare <= 0 and self._threads < self._size:
                self._start()
            else:
                self._spare -= 1
        return future

    def abandon(self, future: Future[T]) -> None:
        """Give a call up: it is never made, or its thread ends when its function returns, and another takes its place."""
        if future.cancel():
            return
        with self._lock:
            if future not in self._running:
                return
            self._running.discard(future)
            self._threads -= 1
            if self._spare < 0:
                self._spare += 1
                self._start()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads that are not busy, and the others when their functions return."""
        with self._lock:
            for _ in range(self._threads):
                self._queue.put(None)

    def _start(self) -> None:
        self._threads += 1
        threading.Thread(target=self._run, name=f"{self._name}-{next(self._numbers)}", daemon=True).start()

    def _run(self) -> None:
        while True:
            work = self._queue.get()
            if work is None or not work():
                return
            with self._lock:
                self._spare += 1
