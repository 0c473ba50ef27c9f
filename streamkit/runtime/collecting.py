"""How a process that runs tasks deals with memory: when Python looks for cycles, and what goes back to the system."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8
"""The options of mallopt(3)."""
_KEPT, _STEP, _MAPPED = 128 << 20, 4 << 20, 32 << 20
_ARENAS = 2
_NEW_OBJECTS, _YOUNG, _OLD = 100_000, 50, 100
_SETTLED_MS = 1_000
"""The thread that closes a task has it in a variable for a moment, and it often closes several."""


def collect_rarely() -> None:
    """Make passes of the cycle collector rare, in this process; memory is given back by reference counts as before.

    A cached entry is a list that lives long, so with Python's default of 700 new objects a pass comes every few hundred
    keys, and finds nothing: tasks make next to no cycles.

    >>> collect_rarely()
    """
    gc.set_threshold(_NEW_OBJECTS, _YOUNG, _OLD)


def few_arenas() -> None:
    """Limit the C library's allocator to two arenas (mallopt, glibc only); MALLOC_ARENA_MAX has precedence.

    The default is eight for each core. The client library's threads allocate what other threads free, so that every arena
    keeps free memory that the others cannot use.

    >>> few_arenas()
    """
    if "MALLOC_ARENA_MAX" not in os.environ:
        _mallopt({_ARENA_MAX: _ARENAS})


def keep_memory() -> None:
    """Have the C library keep what is freed, up to 128 MB, instead of giving it back batch after batch (mallopt, glibc only).

    A batch's bytes are freed together with it, and the next batch's would fault in page after page again.

    >>> keep_memory()
    """
    _mallopt({_TRIM_THRESHOLD: _KEPT, _TOP_PAD: _STEP, _MMAP_THRESHOLD: _MAPPED})


def _mallopt(options: dict[int, int]) -> None:
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    for option, value in options.items():
        set_option(option, value)


class CycleCollector:
    """Frees closed tasks and producers, which are cycles: a task and its functions, a producer and its callbacks.

    Rare passes of Python's collector never come to them. Threads note what they close; the upkeep calls `collect_if_due`.
    """

    def __init__(self, clock: Callable[[], int]):
        """`clock`: in milliseconds, only ever forward."""
        self._clock = clock
        self._noted: int | None = None

    def note_closed(self) -> None:
        """Note that a task or a producer was closed; any thread may call it."""
        self._noted = self._clock()

    def collect_if_due(self) -> bool:
        """Run a full pass of Python's collector a second after the last close; return whether it ran."""
        noted = self._noted
        if noted is None or self._clock() - noted < _SETTLED_MS:
            return False
        self._noted = None
        gc.collect()
        return True
