"""Opening maps by kind."""

from __future__ import annotations

from pathlib import Path

from streamkit.errors import StateError
from streamkit.state.base import BytesMap
from streamkit.state.leveldb import LevelMap
from streamkit.state.memory import MemoryMap


def open_map(kind: str, path: str | Path | None = None) -> BytesMap:
    """Return a map: kind "memory", or "leveldb" in the directory `path`. Raises StateError.

    >>> len(list(open_map("memory").range(None, None)))
    0
    """
    if kind == "memory":
        return MemoryMap()
    if kind == "leveldb" and path is not None:
        return LevelMap(path)
    raise StateError(f"There is no kind of map called {kind!r}")
