"""The bytes that the present thread has made since it last sent its task's output; a round ends before they are too many.

The seconds that it has waited for calls since then are counted too, since it does not poll meanwhile. Only large values are added,
where they are made: a record, a value or a list of matches of ordinary size costs nothing here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sized
from typing import TypeVar

T = TypeVar("T", bound=Sized)

MOST = 32 << 20
"""Bytes that one round may make; then it ends with the present record."""
LARGE = 1 << 15
"""Bytes from which a value is counted."""
MANY = 256
"""Results of one record from which they are counted."""
ROW = 512
"""Bytes that each of many results counts: about the memory that it takes until it is sent."""


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
    """Return whether the round has made its bytes."""
    return _ROUND.left < 0


def made(size: int) -> None:
    """Count bytes that were made, which may end the round."""
    _ROUND.left -= size
    if _ROUND.left < 0 and _ROUND.end is not None:
        _ROUND.end()


def waited(seconds: float, most: float) -> None:
    """Count seconds that the thread has waited for calls; with more than `most` of them the round ends."""
    _ROUND.waited += seconds
    if _ROUND.waited > most:
        made(MOST + 1)


def many(results: T) -> T:
    """Return the results of one record; if there are many, count them."""
    if len(results) > MANY:
        made(ROW * len(results))
    return results
