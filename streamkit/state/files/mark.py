"""The mark of a task's directory: which engine wrote it, in which format, and whether it is in use."""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamkit.errors import StateError

MARK_FILE = ".streamkit-state"
FORMAT = 2
"""The format of a task's directory; a newer release may increase it. From 2 on stores have the offsets of their changelogs."""
JAVA = "Kafka Streams"


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Translate the operating system's errors about a file into StateError, with one line."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StateError(f"No space is left for {path}") from error
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise StateError(f"{path} can't be written: {error.strerror}; choose another state.dir") from error
        raise StateError(f"{path} can't be used: {error.strerror or error}") from error


def private(path: str, flags: int) -> int:
    """Open a file that is new for the owner alone, or for the group too where that has access to the folder: an opener of `open`."""
    group = os.stat(os.path.dirname(path) or ".").st_mode & 0o020
    return os.open(path, flags, 0o660 if group else 0o600)


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a crash or a loss of power leaves the old file or the new one. Raises OSError."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w", encoding="utf-8", opener=private) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sealed(fields: Mapping[str, object]) -> str:
    """Return fields as JSON with a checksum."""
    return json.dumps({**fields, "crc": _crc(fields)}, indent=1)


def unsealed(text: str) -> Any:
    """Return what `sealed` wrote. Raises ValueError for a changed text; older releases wrote no checksum."""
    fields = json.loads(text)
    crc = fields.pop("crc", None) if isinstance(fields, dict) else None
    if crc is not None and crc != _crc(fields):
        raise ValueError("it was changed since it was written: its checksum is another")
    return fields


def _crc(fields: Mapping[str, object]) -> int:
    return zlib.crc32(json.dumps(fields, sort_keys=True).encode())


@dataclass(frozen=True)
class Mark:
    """The content of a task's directory. `inode`: the inode of the directory while a process uses it; None: it was closed.

    Files that are copied while a process writes them may be inconsistent, and no engine detects all of that. A copy has
    another inode, which shows that the directory was in use; a closed directory may be copied, and moved to another host.
    """

    engine: str
    format: int
    inode: int | None = None

    def is_torn_copy(self, path: Path) -> bool:
        """Return whether the directory was copied while a process used it, or after a crash. Raises OSError."""
        return self.inode is not None and self.inode != path.stat().st_ino


def read_mark(path: Path) -> Mark | None:
    """Return the mark of a task's directory; None where it has no state. Raises StateError."""
    file = path / MARK_FILE
    try:
        with translated(file):
            mark = unsealed(file.read_text(encoding="utf-8"))
        inode = mark.get("inode")
        return Mark(str(mark["engine"]), int(mark["format"]), None if inode is None else int(inode))
    except StateError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError(f"{file} can't be read: {error}; delete {path} to restore it from its changelogs") from error
    # A directory without a mark is of a release that had one engine, or of Kafka Streams, which has its files there.
    if (path / "leveldb").exists():
        return Mark("leveldb", 1)
    return Mark(JAVA, 1) if (path / "rocksdb").exists() else None


def write_mark(path: Path, mark: Mark) -> None:
    """Mark a task's directory. Raises StateError."""
    fields = {name: value for name, value in vars(mark).items() if value is not None}
    with translated(path / MARK_FILE):
        write_atomically(path / MARK_FILE, sealed(fields))
