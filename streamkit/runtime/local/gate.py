"""A lock with which other threads read the stores of a stream thread, between its batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition
from time import monotonic

from streamkit.errors import StateError

MAX_WAIT_SECONDS = 0.1
"""How long a reader may wait before the owner processes smaller batches."""


class Gate:
    """A lock that its owner holds while it works, and passes to waiting threads when it calls `admit_waiting`.

    A plain lock is not enough: a busy owner acquires it again before another thread wakes up. Only one thread holds the
    lock at a time, since reads of a cache change its order. Readers should be quick, because the owner waits.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._locked = False
        self._came = 0
        self._left = 0
        self._since = 0.0
        """The time at which the first waiting thread arrived."""

    @property
    def waiting(self) -> bool:
        """Whether a thread waits for the lock or holds it."""
        return self._came != self._left

    # -- The owner ------------------------------------------------------------------------------------------------

    def acquire(self) -> None:
        """Acquire the lock, for the owner's work."""
        with self._changed:
            self._changed.wait_for(lambda: not self._locked)
            self._locked = True

    def release(self) -> None:
        """Release the lock."""
        with self._changed:
            self._locked = False
            self._changed.notify_all()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Release the lock during a block that uses no state, such as waiting for records."""
        self.release()
        try:
            yield
        finally:
            self.acquire()

    def admit_waiting(self) -> bool:
        """Admit the waiting threads; return whether one had waited too long. Costs one comparison if none waits."""
        if not self.waiting:
            return False
        with self._changed:
            too_long = monotonic() - self._since > MAX_WAIT_SECONDS
            self._locked = False
            self._changed.notify_all()
            until = self._came
            self._changed.wait_for(lambda: self._left >= until and not self._locked)
            self._locked = True
            self._since = monotonic()
        return too_long

    # -- Others ---------------------------------------------------------------------------------------------------

    @contextmanager
    def entered(self, timeout: float) -> Iterator[None]:
        """Acquire the lock once the owner admits this thread. Raises StateError after `timeout` seconds."""
        with self._changed:
            if not self.waiting:
                self._since = monotonic()
            self._came += 1
            if not self._changed.wait_for(lambda: not self._locked, timeout):
                self._leave()
                raise StateError(f"the stream thread was busy for {timeout:g} s")
            self._locked = True
        try:
            yield
        finally:
            with self._changed:
                self._locked = False
                self._leave()

    def _leave(self) -> None:
        self._left += 1
        self._changed.notify_all()
