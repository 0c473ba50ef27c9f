"""The disk of a simulated machine: what a loss of power leaves of files, and stores that are kept in memory.

Files are real ones, below a folder in memory; `fsync` notes what is safe from then on. A store takes the place of RocksDB's: its
synchronous batch is written as a whole or not at all, however a crash interrupts it, because a batch that is torn fails its checksum.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random

from streamkit.state.engines import open_maps
from streamkit.state.engines.overlay import METADATA_KEY, OverlayMap, _unpacked
from streamkit.state.store_offsets import StoreOffsets, decode_offsets
from tests.simulation.scheduler import statement

_TIMESTAMP_BYTES = 8
_NAME = "CURRENT"
"""The file of a store that exists, as RocksDB has it: it names the rows."""


class Disk:
    """What is synced, by inode: contents of files, and entries of directories."""

    def __init__(self) -> None:
        self._contents: dict[int, bytes] = {}
        self._entries: dict[int, dict[str, int]] = {}

    def fsync(self, descriptor: int) -> None:
        """Take the place of `os.fsync`."""
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        inode = path.stat().st_ino
        if path.is_dir():
            self._entries[inode] = {each.name: each.inode() for each in os.scandir(path)}
        else:
            self._contents[inode] = path.read_bytes()

    def lose_power(self, folder: Path, draw: Random) -> None:
        """Leave what was synced, and of the rest what `draw` leaves: a part, the state before, or all of it."""
        synced = self._entries.get(folder.stat().st_ino, {})
        for name in sorted({*synced, *os.listdir(folder)}):
            path, old = folder / name, self._contents.get(synced.get(name, -1))
            if path.is_dir():
                if synced.get(name) == path.stat().st_ino or draw.random() < 0.7:
                    self.lose_power(path, draw)
                else:
                    shutil.rmtree(path)
            elif path.exists() and (synced.get(name) == path.stat().st_ino or draw.random() < 0.5):
                inode = path.stat().st_ino
                content = path.read_bytes()
                if content != self._contents.get(inode):
                    path.write_bytes(content[: draw.randrange(len(content) + 1)])
            elif old is not None:
                path.unlink(missing_ok=True)
                path.write_bytes(old)
                self.keep(path)
            else:
                path.unlink(missing_ok=True)

    def keep(self, path: Path) -> None:
        """Take a file for synced, with its entry."""
        inode = path.stat().st_ino
        self._contents[inode] = path.read_bytes()
        self._entries.setdefault(path.parent.stat().st_ino, {})[path.name] = inode


_disk = Disk()
_rows: dict[str, dict[bytes, bytes]] = {}
"""Of all stores, by the text of their file."""


def on_open(path: Path, rows: dict[bytes, bytes]) -> None:
    """Called with each store that is opened; a history may take its place."""


class MapInMemory(OverlayMap):
    """A store whose rows outlive the process that wrote them, as long as its directory is there."""

    def _open(self) -> Callable[[bytes], bytes | None]:
        path = self._path / _NAME
        if not path.exists():
            path.write_text(str(len(_rows)), encoding="utf-8")
            _disk.keep(path)
        self._rows = _rows.setdefault(path.read_text(encoding="utf-8"), {})
        on_open(path.parent, self._rows)
        return self._rows.get

    def _scan(self, low: bytes | None, stop: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        keys = sorted(self._rows, reverse=reverse)
        return iter(
            [(key, self._rows[key]) for key in keys if (low is None or key >= low) and (stop is None or key < stop)]
        )

    def _write(self, items: Iterable[tuple[bytes, bytes | None]]) -> None:
        batch = dict(items)
        statement()
        for key, value in batch.items():
            if value is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = value
        statement()

    def _estimate(self) -> int:
        return len(self._rows)

    def _release(self) -> None:
        pass


def all_stores() -> Iterable[dict[bytes, bytes]]:
    """Return the rows of each store: actives, standbys, and those of processes that are gone."""
    return _rows.values()


def committed_stores(stores: Iterable[dict[bytes, bytes]]) -> Iterator[tuple[StoreOffsets, dict[bytes, bytes]]]:
    """Yield the offsets and the values of each store that has offsets."""
    for rows in stores:
        metadata, _ = _unpacked(rows.get(METADATA_KEY))
        if metadata is not None:
            values = {key: row[_TIMESTAMP_BYTES:] for key, row in rows.items() if key != METADATA_KEY}
            yield decode_offsets(metadata), values


def install() -> Disk:
    """Let this process keep its stores in memory, and note what it syncs."""
    engines: dict[str, tuple[str, str, str]] = open_maps._ENGINES
    engines["rocksdb"] = (__name__, MapInMemory.__name__, "rocksdict")
    os.fsync = _disk.fsync  # type: ignore[assignment]
    return _disk
