"""Opens maps by kind, and lists the engines of persistent maps."""

from __future__ import annotations

import sys
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


def default_engine() -> str:
    """Return the engine that is installed with streamkit: plyvel has no wheels beyond Python 3.12."""
    return "leveldb" if sys.version_info < (3, 13) else "rocksdb"


def is_installed(engine: str) -> bool:
    """Return whether the package of an engine is there, without importing it."""
    return find_spec(_ENGINES[engine][2]) is not None


def check_engine(engine: str) -> None:
    """Raise ConfigError, with the command that installs it, where the package of an engine is missing."""
    if not is_installed(engine):
        package = _ENGINES[engine][2]
        raise ConfigError(f"state.engine {engine} needs the package {package}: {install_command(engine)}")


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
