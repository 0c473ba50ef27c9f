"""How much the present thread has made since its task's output was last sent, so that a round ends before it is too much.

Only what is large is noted, where it is made: a record, a value or a list of matches of ordinary size costs nothing here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

MOST = 32 << 20
"""Bytes that one round may note; then it ends with the present record."""
LARGE = 1 << 15
"""Bytes from which a value is noted."""
MANY = 256
"""From how many results of one record they are noted."""
ROW = 512
"""Bytes that each of many results counts, about what it takes while it waits to be sent."""


class _Round(threading.local):
    left = MOST
    end: Callable[[], None] | None = None


_ROUND = _Round()


def begin(end: Callable[[], None] | None) -> None:
    """Begin a round; `end` is called when it has made enough."""
    _ROUND.left = MOST
    _ROUND.end = end


def is_full() -> bool:
    """Return whether the round has made enough."""
    return _ROUND.left < 0


def made(size: int) -> None:
    """Note that so many bytes were made, which may end the round."""
    _ROUND.left -= size
    if _ROUND.left < 0 and _ROUND.end is not None:
        _ROUND.end()


def many(results: list) -> list:
    """Return the results of one record; where there are many, note them."""
    if len(results) > MANY:
        made(ROW * len(results))
    return results
