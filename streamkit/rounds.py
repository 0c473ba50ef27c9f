"""Counts the bytes that the current thread has produced since it last sent its task's output, and ends a round at a limit.

The seconds that it has waited for calls since then are counted too, since it does not poll meanwhile. Only large values are added,
where they are made: a record, a value or a list of matches of ordinary size costs nothing here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sized
from typing import TypeVar

T = TypeVar("T", bound=Sized)

MOST = 32 << 20
"""The number of bytes after which a round ends with the current record."""
LARGE = 1 << 15
"""The minimum size in bytes of a value that is counted."""
MANY = 256
"""The minimum number of results of one record that are counted."""
ROW = 512
"""The bytes counted for each of many results: about the memory that it uses until it is sent."""


class _Round(threading.local):
    left = MOST
    waited = 0.0
    end: Callable[[], None] | None = None


_ROUND = _Round()


def begin(end: Callable[[], None] | None) -> None:
    """Begin a round; `end` is called when it is full."""
    _ROUND.left = MOST
    _ROUND.waited = 0.0
    _ROUND.end = end


def is_full() -> bool:
    """Return whether the round has reached its limit."""
    return _ROUND.left < 0


def count_bytes(size: int) -> None:
    """Count bytes that were produced, which may end the round."""
    _ROUND.left -= size
    if _ROUND.left < 0 and _ROUND.end is not None:
        _ROUND.end()


def count_wait(seconds: float, most: float) -> None:
    """Count seconds that the thread has waited for calls; with more than `most` of them the round ends."""
    _ROUND.waited += seconds
    if _ROUND.waited > most:
        count_bytes(MOST + 1)


def many(results: T) -> T:
    """Return the results of one record; if there are many, count them."""
    if len(results) > MANY:
        count_bytes(ROW * len(results))
    return results
