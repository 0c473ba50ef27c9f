"""One event loop for each stream thread, in a thread of its own, for the coroutines of the user's functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from streamkit.errors import EventLoopError, StoppedError

T = TypeVar("T")

LOOK_SECONDS = 0.05
"""How often a waiting thread checks whether the loop still runs and whether it shall stop."""
RESPONSE_SECONDS = 30.0
"""The time after which a loop that runs nothing else is blocked by a function."""
END_SECONDS = 5.0
"""How long the end of a loop may take."""


class EventLoop:
    """An asyncio event loop that runs in a daemon thread until its last user has left it."""

    def __init__(self, name: str):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"{name}-loop", daemon=True)
        self._is_running = True
        self._reason = ""
        self.users = 0
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        except BaseException as error:
            # SystemExit and KeyboardInterrupt of a callback end a loop.
            self._reason = f" ({type(error).__name__}: {error})"
        self._is_running = False
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        with suppress(BaseException):
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        with suppress(RuntimeError):
            self._loop.close()

    def run(self, work: Coroutine[object, object, T], stopping: Callable[[], bool], grace: float) -> T:
        """Return the result of a coroutine, which the calling thread waits for.

        stopping: whether the application is stopping; `grace` seconds after that, StoppedError is raised. Raises EventLoopError
        where the loop has ended or is blocked.
        """
        if not self._is_running:
            work.close()
            raise self._dead()
        done = threading.Event()
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        future.add_done_callback(lambda each: done.set())
        waited_for_stop, silent, beat = 0.0, 0.0, self._beat()
        while not done.wait(LOOK_SECONDS):
            if not self._is_running:
                raise self._dead()
            silent = 0.0 if beat.is_set() else silent + LOOK_SECONDS
            if beat.is_set():
                beat = self._beat()
            if silent > RESPONSE_SECONDS:
                raise EventLoopError(
                    f"the event loop has not responded for {RESPONSE_SECONDS:.0f} s: the function blocks it; await, or "
                    "make it a function without async, which runs in a thread"
                )
            waited_for_stop = waited_for_stop + LOOK_SECONDS if stopping() else 0.0
            if waited_for_stop > grace:
                future.cancel()
                raise StoppedError("stopped while calls were unanswered; they are repeated after the next start")
        if future.cancelled():
            # Not an error of one record: no handler may drop those whose calls had no answer yet.
            raise EventLoopError("a function cancelled the calls of others") if self._is_running else self._dead()
        return future.result()

    def _beat(self) -> threading.Event:
        """Return an event that the loop sets as soon as it is free."""
        beat = threading.Event()
        try:
            self._loop.call_soon_threadsafe(beat.set)
        except RuntimeError:
            beat.set()
        return beat

    def _dead(self) -> EventLoopError:
        return EventLoopError(
            f"the event loop of the functions has ended{self._reason}: a function stopped or closed it"
        )

    def close(self) -> None:
        """Cancel what still runs and end the thread; one that is blocked is left behind."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(END_SECONDS)


_of_thread = threading.local()


def acquire() -> EventLoop:
    """Return the loop of the present thread; each call needs one of `release`."""
    loop: EventLoop | None = getattr(_of_thread, "loop", None)
    if loop is None or not loop.users:
        loop = _of_thread.loop = EventLoop(threading.current_thread().name)
    loop.users += 1
    return loop


def release(loop: EventLoop) -> None:
    """Give a loop back; the last user ends it."""
    loop.users -= 1
    if loop.users == 0:
        if getattr(_of_thread, "loop", None) is loop:
            _of_thread.loop = None
        loop.close()
