"""Opens maps by kind, and lists the engines of persistent maps."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from streamkit.distribution import install_command
from streamkit.errors import ConfigError, StateError
from streamkit.state.definitions import BytesMap
from streamkit.state.engines.memory import MemoryMap

_ENGINES = {
    "leveldb": ("streamkit.state.engines.leveldb", "LevelMap", "plyvel"),
    "rocksdb": ("streamkit.state.engines.rocksdb", "RocksMap", "rocksdict"),
}
"""By name (state.engine): the module and class of the map, and the package that it needs, which is also its extra's name."""
ENGINES = tuple(_ENGINES)
DEFAULT_ENGINE = "rocksdb"
"""The engine of new state: its package has wheels for each version of Python, plyvel has none beyond Python 3.12."""


@cache
def is_installed(engine: str) -> bool:
    """Return whether the package of an engine is there, without importing it."""
    return find_spec(_ENGINES[engine][2]) is not None


def check_engine(engine: str, what: str = "") -> None:
    """Raise ConfigError, with the command that installs it, if the package of an engine is missing; `what` needs it."""
    if not is_installed(engine):
        package = _ENGINES[engine][2]
        instead = f"; or set state.engine to {DEFAULT_ENGINE}, which restores it from its changelogs" if what else ""
        raise ConfigError(
            f"{what or f'state.engine {engine}'} needs the package {package}: {install_command(engine)}{instead}"
        )


def open_map(kind: str, path: str | Path | None = None) -> BytesMap:
    """Return a map: kind "memory", or one of ENGINES in the directory `path`. Raises StateError, ConfigError.

    >>> len(list(open_map("memory").range(None, None)))
    0
    """
    if kind == "memory":
        return MemoryMap()
    if kind not in _ENGINES or path is None:
        raise StateError(f"There is no kind of map called {kind!r}")
    check_engine(kind)
    module, name, _ = _ENGINES[kind]
    opened: BytesMap = getattr(import_module(module), name)(path)
    return opened
