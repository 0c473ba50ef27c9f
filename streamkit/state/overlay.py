"""An ordered map on an engine's files whose uncommitted writes live in an overlay, so that a commit is one write batch."""

from __future__ import annotations

import errno
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, wait
from contextlib import contextmanager
from heapq import merge
from itertools import filterfalse, islice, takewhile
from pathlib import Path

from streamkit.errors import StateError, StateLockedError, StreamkitError, TaskCorruptedError
from streamkit.state.base import BytesMap
from streamkit.state.keys import pack_int, unpack_int
from streamkit.state.memory import KeyOrder

METADATA_KEY = b"\xff" * 16 + b"streamkit"
"""The row of an engine that holds a map's metadata; no read of the map shows it."""
_NO_ROW = (METADATA_KEY, None)
_DATA_FILES = (".log", ".ldb", ".sst")
_DAMAGES = ("corruption", "no such file", "invalid argument")
"""What engines say of files that are damaged, that are missing, or that end before a place where there should be rows."""


class OverlayMap(BytesMap):
    """A persistent map; subclasses read and write the files of one engine.

    `metadata` (None: none) is written with the entries of a commit, in the same batch. It lies under METADATA_KEY. A record
    may have this key too: its value is kept behind the metadata and, as long as the map is open, in the overlay, which
    hides the engine's row from every `get` without a test.
    Raises StateLockedError, or StateError in words for full, read-only or damaged directories.
    """

    durable = True

    def __init__(self, path: str | Path):
        self._path = Path(path)
        self._pending: dict[bytes, bytes | None] = {}
        self._order = KeyOrder(self._pending)
        self._closed = False
        self._beside: Executor | None = None
        """What writes commits while the map is loaded."""
        self._writing: Future[None] | None = None
        """The commit that is being written, or that could not be."""
        with self._translated():
            self._path.mkdir(parents=True, exist_ok=True)
            self._check_whole()
            self._stored_get = self._open()
            self._row = (METADATA_KEY, self._stored_get(METADATA_KEY))
            self.metadata, self._pending[METADATA_KEY] = _unpacked(self._row[1])

    # -- What an engine does; foreign errors may leave these ----------------------------------------------------------

    @abstractmethod
    def _open(self) -> Callable[[bytes], bytes | None]:
        """Open the files, made if they are not there; return the function that reads one key."""

    @abstractmethod
    def _scan(self, low: bytes | None, stop: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Return stored entries from low (inclusive) to stop (exclusive), as they are now.

        Backwards the bound `low` may be passed over: the caller checks it.
        """

    @abstractmethod
    def _write(self, items: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Write entries in one synchronous batch; None deletes."""

    @abstractmethod
    def _estimate(self) -> int:
        """Return about how many rows are stored, without reading all; any thread may ask."""

    @abstractmethod
    def _release(self) -> None:
        """Close the files, and what still reads them."""

    def _reopen(self, *, load: bool) -> Callable[[bytes], bytes | None]:
        """Have the files ready for many writes and hardly a read, or as usual again; return what reads one key."""
        return self._stored_get

    # -- The map ------------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        """Return a value or None; what was put since the last commit counts."""
        pending = self._pending
        if key in pending:
            return pending[key]
        try:
            return self._stored_get(key)
        except Exception as error:
            raise state_error(self._path, error) from error

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set a value; None deletes."""
        if self._order.active and key not in self._pending:
            self._order.touch(key)
        self._pending[key] = value

    def put_many(self, items: list[tuple[bytes, bytes | None]]) -> None:
        """Apply many writes at once, the last one of a key winning."""
        self._pending.update(items)
        self._order.reset()

    def delete_range(self, low: bytes | None, high: bytes) -> None:
        """Delete entries from low up to high, without sorting what is not committed: mostly it is a whole segment."""
        pending, start = self._pending, low or b""
        with self._translated():
            stored = {key for key, _ in self._stored(low, high, False)}
        for key in [key for key in pending if start <= key < high and key not in stored]:
            del pending[key]
        pending.update(dict.fromkeys(stored))
        if start <= METADATA_KEY < high:
            pending[METADATA_KEY] = None
        self._order.reset()

    def range(
        self,
        low: bytes | None,
        high: bytes | None,
        reverse: bool = False,
        include_high: bool = True,
        limit: int | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return entries from low to high in byte order, at most `limit`, as they are now."""
        pending = self._pending
        fresh = [(key, pending[key]) for key in self._order.keys(low, high, reverse, include_high)]
        if low is not None and high is not None and low > high:
            return iter(())
        stop = high + b"\x00" if high is not None and include_high else high
        with self._translated():
            stored = self._stored(low, stop, reverse)
        if reverse and low is not None:
            stored = takewhile(lambda entry: entry[0] >= low, stored)
        return islice(self._merged(fresh, stored, reverse), limit)

    def stored(self, low: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return the entries from low up to stop that were committed, without sorting what was written since."""
        with self._translated():
            yield from self._stored(low, stop, False)
            self._check_open()

    def _stored(self, low: bytes | None, stop: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Scan the engine past the row of the metadata."""
        self._settle()
        scan = self._scan(low, stop, reverse)
        if (low is not None and low > METADATA_KEY) or (stop is not None and stop <= METADATA_KEY):
            return scan
        return filterfalse(self._row.__eq__, scan)  # all of it in C

    def _merged(
        self, fresh: list[tuple[bytes, bytes | None]], stored: Iterator[tuple[bytes, bytes]], reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        if not fresh or fresh == [_NO_ROW]:
            with self._translated():
                yield from stored
                self._check_open()
            return
        hidden = {key for key, _ in fresh}
        old = (entry for entry in stored if entry[0] not in hidden)
        with self._translated():
            for key, value in merge(fresh, old, key=lambda entry: entry[0], reverse=reverse):
                if value is not None:
                    yield key, value
            self._check_open()

    def _check_whole(self) -> None:
        # LevelDB would begin an empty database without its CURRENT, and still take the rows of the log that lies there.
        if not (self._path / "CURRENT").exists() and any(each.suffix in _DATA_FILES for each in self._path.iterdir()):
            raise ValueError("corruption: the file CURRENT is missing")

    def _check_open(self) -> None:
        # Closing ends what reads the files: what was read so far must not pass for all.
        if self._closed:
            raise StateError(f"The store in {self._path} was closed while it was read")

    def bytes_on_disk(self) -> int | None:
        """Return the size of its files."""
        with self._translated(), os.scandir(self._path) as entries:
            return sum(_size_of(entry) for entry in entries)

    def rows_estimate(self) -> int | None:
        """Return about how many entries the files have. Raises StateError, as where they are closed."""
        with self._translated():
            return max(0, self._estimate() - (self._row[1] is not None))

    def commit(self) -> None:
        """Write the overlay and the metadata in one synchronous write batch."""
        pending = self._pending
        beside = pending[METADATA_KEY]
        packed = _packed(self.metadata, beside)
        if len(pending) == 1 and packed == self._row[1]:
            return
        if self._beside is not None:
            self._settle()
            self._pending = {METADATA_KEY: beside}
            self._order = KeyOrder(self._pending)
            self._row = (METADATA_KEY, packed)
            pending[METADATA_KEY] = packed
            self._writing = self._beside.submit(self._write, pending.items())
            return
        pending[METADATA_KEY] = packed
        try:
            with self._translated():
                self._write(pending.items())
        finally:
            pending[METADATA_KEY] = beside
        self._row = (METADATA_KEY, packed)
        pending.clear()
        pending[METADATA_KEY] = beside
        self._order.reset()

    def begin_load(self, beside: Executor) -> None:
        """Expect many writes and hardly a read (see BytesMap.begin_load)."""
        if self._beside is None:
            self.commit()
            with self._translated():
                self._stored_get = self._after_writing(self._reopen(load=True))
            self._beside = beside

    def end_load(self) -> None:
        """Be as before `begin_load`: all that was committed is written."""
        if self._beside is not None:
            self._settle()
            with self._translated():
                self._stored_get = self._reopen(load=False)
            self._beside = None

    def _settle(self) -> None:
        """Return when the commit in flight is written. Raises as often as it is called where that has failed."""
        if self._writing is not None:
            with self._translated():
                self._writing.result()
            self._writing = None

    def _after_writing(self, get: Callable[[bytes], bytes | None]) -> Callable[[bytes], bytes | None]:
        """Return what reads one key of the files once the commit in flight is among them."""

        def settled(key: bytes) -> bytes | None:
            self._settle()
            return get(key)

        return settled

    def close(self) -> None:
        """Close the files; what was not committed is gone."""
        if self._writing is not None:
            wait([self._writing])  # what it raised is known, or was given up
        self._pending.clear()
        self._order.reset()
        self._closed = True
        with self._translated():
            self._release()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except StreamkitError:
            raise
        except Exception as error:  # engines raise errors of many classes, RocksDB's plain ones
            raise state_error(self._path, error) from error


def _size_of(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return 0  # the engine has just deleted it


def _packed(metadata: bytes | None, beside: bytes | None) -> bytes | None:
    """Return the row of the metadata: length4 and metadata, then 1 and the value of a record that has the same key."""
    if metadata is None and beside is None:
        return None
    row = pack_int(len(metadata or b"")) + (metadata or b"")
    return row if beside is None else row + b"\x01" + beside


def _unpacked(row: bytes | None) -> tuple[bytes | None, bytes | None]:
    if row is None:
        return None, None
    end = 4 + unpack_int(row)[0] if len(row) > 4 else -1
    if not 4 <= end <= len(row):
        raise ValueError("corruption: its metadata can't be read")
    return row[4:end] or None, row[end + 1 :] if len(row) > end else None


def text_of(error: BaseException) -> str:
    """Return what an engine says; plyvel passes on LevelDB's bytes."""
    said = error.args[0] if error.args else ""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(error)


def state_error(path: Path, error: Exception) -> StateError:
    """Return what went wrong in a state directory as one line; engines explain themselves only by their text."""
    text = text_of(error)
    number = getattr(error, "errno", None)
    lowered = text.lower()
    if "lock" in lowered and any(
        words in lowered for words in ("unavailable", "already held", "hold by current process")
    ):
        return StateLockedError(f"The store in {path} is in use by another process")
    if number == errno.ENOSPC or "no space left" in lowered:
        return StateError(f"No space is left for the store in {path}")
    if number in (errno.EROFS, errno.EACCES, errno.EPERM) or "read-only" in lowered or "permission denied" in lowered:
        return StateError(f"The store in {path} can't be written: {text}")
    if any(words in lowered for words in _DAMAGES):
        return TaskCorruptedError(f"The store in {path} is damaged: {text}", path=path)
    return StateError(f"The store in {path} can't be used: {text}")
