"""A value that is expensive to read, and that many threads request."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")

SECONDS = 1.0


class Recent(Generic[T]):
    """A value that is read at most once a second; used by any number of threads."""

    def __init__(self, read: Callable[[], T]):
        self._read = read
        self._lock = Lock()
        self._value: T | None = None
        self._read_at = float("-inf")
        self._frozen = False

    def get(self) -> T | None:
        """Return the value; None only after a `freeze` before the first read."""
        with self._lock:
            if not self._frozen and time.monotonic() - self._read_at > SECONDS:
                self._value = self._read()
                self._read_at = time.monotonic()
            return self._value

    def freeze(self) -> None:
        """Read no more, and return the last value from now on; waits for a read that is under way."""
        with self._lock:
            self._frozen = True
