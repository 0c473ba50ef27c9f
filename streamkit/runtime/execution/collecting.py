"""Memory of a process that runs tasks: garbage collection of cycles, and the return of memory to the system."""

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
"""Wait this long after a close: the thread still has the task in a variable, and often closes several."""


def collect_rarely() -> None:
    """Make passes of the cycle collector rare in this process; reference counts free memory as before.

    Cached entries are long-lived lists: with Python's default of 700 new objects, a pass runs every few hundred keys and finds
    nothing, since tasks create hardly any cycles.

    >>> collect_rarely()
    """
    gc.set_threshold(_NEW_OBJECTS, _YOUNG, _OLD)


def few_arenas() -> None:
    """Limit the C library's allocator to two arenas (mallopt, glibc only); MALLOC_ARENA_MAX takes precedence.

    The default is eight per core. The client library's threads allocate memory that other threads free, so every arena keeps
    free memory that the others can't use.

    >>> few_arenas()
    """
    if "MALLOC_ARENA_MAX" not in os.environ:
        _mallopt({_ARENA_MAX: _ARENAS})


def keep_memory() -> None:
    """Make the C library keep freed memory, up to 128 MB, instead of returning it after each batch (mallopt, glibc only).

    Each batch frees its memory at its end. Without this call, the next batch would cause a page fault for each page.

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

    The rare passes of Python's collector reach them too late. Threads call `note_closed`; the upkeep calls
    `collect_if_due`.
    """

    def __init__(self, clock: Callable[[], int]):
        """`clock`: a monotonic clock, in milliseconds."""
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
