"""Lets other threads read what a stream thread owns, between its batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition
from time import monotonic

from streamkit.errors import StateError

PATIENCE_SECONDS = 0.1
"""How long a reader may wait before the owner works in smaller pieces."""


class Gate:
    """A lock that its owner holds while it works, and gives to the threads that wait when `let_in` is called.

    A plain lock would not do: a busy owner takes it back before another thread wakes up. Threads that come in are alone,
    since reading a cache moves its entries, and they should be quick: the owner waits.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._held = False
        self._came = 0
        self._left = 0
        self._since = 0.0
        """When the first of those who wait came."""

    @property
    def waiting(self) -> bool:
        """Whether a thread waits, or is in."""
        return self._came != self._left

    # -- The owner ------------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Take the gate, for work."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held)
            self._held = True

    def release(self) -> None:
        """Give the gate up."""
        with self._changed:
            self._held = False
            self._changed.notify_all()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Let others in during something that touches no state, such as waiting for records."""
        self.release()
        try:
            yield
        finally:
            self.hold()

    def let_in(self) -> bool:
        """Let in the threads that wait by now; return whether one had waited too long. Costs a comparison when none waits."""
        if not self.waiting:
            return False
        with self._changed:
            too_long = monotonic() - self._since > PATIENCE_SECONDS
            self._held = False
            self._changed.notify_all()
            until = self._came
            self._changed.wait_for(lambda: self._left >= until and not self._held)
            self._held = True
            self._since = monotonic()
        return too_long

    # -- Others ---------------------------------------------------------------------------------------------------

    @contextmanager
    def entered(self, timeout: float) -> Iterator[None]:
        """Come in, alone, at the owner's next opportunity. Raises StateError when none came in `timeout` seconds."""
        with self._changed:
            if not self.waiting:
                self._since = monotonic()
            self._came += 1
            if not self._changed.wait_for(lambda: not self._held, timeout):
                self._leave()
                raise StateError(f"the stream thread was busy for {timeout:g} s")
            self._held = True
        try:
            yield
        finally:
            with self._changed:
                self._held = False
                self._leave()

    def _leave(self) -> None:
        self._left += 1
        self._changed.notify_all()
