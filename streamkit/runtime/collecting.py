"""How often Python looks for cycles of objects in a process that runs tasks."""

from __future__ import annotations

import gc

_NEW_OBJECTS, _YOUNG, _OLD = 100_000, 50, 100


def collect_rarely() -> None:
    """Make passes of the cycle collector rare, in this process; memory is given back by reference counts as before.

    A cached entry is a list that lives long, so with Python's default of 700 new objects a pass comes every few hundred
    keys, and finds nothing: tasks make next to no cycles.

    >>> collect_rarely()
    """
    gc.set_threshold(_NEW_OBJECTS, _YOUNG, _OLD)
