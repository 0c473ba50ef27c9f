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
from streamkit.extension import native
from streamkit.state.definitions import BytesMap
from streamkit.state.engines.memory import CommittedMap, KeyOrder, bytes_of
from streamkit.state.layouts import pack_int, unpack_int

METADATA_KEY = b"\xff" * 16 + b"streamkit"
"""The row of an engine that holds a map's metadata; no read of the map shows it."""
_NO_ROW = (METADATA_KEY, None)
_DATA_FILES = (".log", ".ldb", ".sst")
_DAMAGES = ("corruption", "no such file", "invalid argument")
"""Parts of the messages that engines give for files that are damaged, missing, or shorter than expected."""


def in_order_in_python(rows: dict[bytes, bytes | None]) -> tuple[list[bytes], list[bytes | None]]:
    """Return the keys and values of a commit, in byte order of the keys.

    Engines keep new rows in a skip list. It takes rows in order in half of the time: the search for the next row visits
    mostly the memory that the previous one has visited.

    >>> in_order_in_python({b"b": None, b"a": b"1"})
    ([b'a', b'b'], [b'1', None])
    """
    keys = sorted(rows)
    return keys, [rows[key] for key in keys]


in_order = native("in_order", in_order_in_python)
"""The same by the extension `streamkit._native`, in half of the time, if it is in use."""


class OverlayMap(BytesMap):
    """A persistent map; subclasses read and write the files of one engine.

    `metadata` (None: none) is written with the entries of a commit, in the same batch. Its key is METADATA_KEY. A record
    may have this key too: its value is stored behind the metadata and, while the map is open, in the overlay, which
    hides the engine's row from every `get` without a test.
    Raises StateLockedError, or StateError for full, read-only or damaged directories.
    """

    durable = True

    def __init__(self, path: str | Path):
        self._path = Path(path)
        self._pending: dict[bytes, bytes | None] = {}
        self._order = KeyOrder(self._pending)
        self._written: int | None = None
        """The bytes of writes since the last commit; None until someone asks, since most applications never do."""
        self._closed = False
        self._executor: Executor | None = None
        """Writes commits while the map is loaded."""
        self._writing: Future[None] | None = None
        """The commit that is being written, or that has failed."""
        with self._translated():
            self._path.mkdir(parents=True, exist_ok=True)
            self._check_complete()
            self._stored_get = self._open()
            self._row = (METADATA_KEY, self._stored_get(METADATA_KEY))
            self.metadata, self._pending[METADATA_KEY] = _unpacked(self._row[1])

    # -- The methods of an engine, which may raise errors of its package -----------------------------------------------

    @abstractmethod
    def _open(self) -> Callable[[bytes], bytes | None]:
        """Open the files, or create them; return the function that reads one key."""

    @abstractmethod
    def _scan(self, low: bytes | None, stop: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Return stored entries from low (inclusive) to stop (exclusive), as they are now.

        In reverse an engine may ignore the bound `low`: the caller checks it.
        """

    @abstractmethod
    def _write(self, items: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Write entries in one synchronous batch; None deletes."""

    @abstractmethod
    def _estimate(self) -> int:
        """Return an estimate of the number of stored rows; every thread may call it."""

    @abstractmethod
    def _release(self) -> None:
        """Close the files, and iterators on them."""

    def _reopen(self, *, load: bool) -> Callable[[bytes], bytes | None]:
        """Open the files again with options for many writes (`load`), or as usual; return the function that reads one key."""
        return self._stored_get

    # -- The map ------------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        """Return a value or None, uncommitted writes included."""
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
        if self._written is not None:
            self._written += len(key) + len(value or b"")

    def put_many(self, items: list[tuple[bytes, bytes | None]]) -> None:
        """Apply many writes at once, the last one of a key winning."""
        self._pending.update(items)
        if self._written is not None:
            self._written += bytes_of(items)
        self._order.reset()

    def delete_range(self, low: bytes | None, high: bytes) -> None:
        """Delete entries from low up to high, without sorting uncommitted writes: mostly the range is a complete segment."""
        pending, start = self._pending, low or b""
        with self._translated():
            stored = {key for key, _ in self._stored(low, high, False)}
        for key in [key for key in pending if start <= key < high and key not in stored]:
            del pending[key]
        pending.update(dict.fromkeys(stored))
        if self._written is not None:
            self._written += sum(map(len, stored))
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
        return self._range(fresh, low, high, reverse, include_high, limit)

    def committed(self) -> BytesMap:
        """Return the entries of the files."""
        return CommittedMap(self._committed_get, self._committed_range)

    def uncommitted_bytes(self) -> int:
        """Return how many bytes of keys and values were written since the last commit."""
        if self._written is None:
            self._written = bytes_of(self._pending.items()) - len(METADATA_KEY)
        return self._written

    def _committed_get(self, key: bytes) -> bytes | None:
        if key == METADATA_KEY:
            return _unpacked(self._row[1])[1]
        with self._translated():
            return self._stored_get(key)

    def _committed_range(
        self, low: bytes | None, high: bytes | None, reverse: bool, include_high: bool, limit: int | None
    ) -> Iterator[tuple[bytes, bytes]]:
        above = low is None or low <= METADATA_KEY
        below = high is None or high > METADATA_KEY or (include_high and high == METADATA_KEY)
        fresh = [(METADATA_KEY, _unpacked(self._row[1])[1])] if above and below else []
        return self._range(fresh, low, high, reverse, include_high, limit)

    def _range(
        self,
        fresh: list[tuple[bytes, bytes | None]],
        low: bytes | None,
        high: bytes | None,
        reverse: bool,
        include_high: bool,
        limit: int | None,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return the entries of the files, changed by `fresh`, which are in the range and in its order."""
        if low is not None and high is not None and low > high:
            return iter(())
        stop = high + b"\x00" if high is not None and include_high else high
        with self._translated():
            stored = self._stored(low, stop, reverse)
        if reverse and low is not None:
            stored = takewhile(lambda entry: entry[0] >= low, stored)
        return islice(self._merged(fresh, stored, reverse), limit)

    def stored(self, low: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return the entries from low up to stop that were committed, without sorting later writes."""
        with self._translated():
            yield from self._stored(low, stop, False)
            self._check_open()

    def _stored(self, low: bytes | None, stop: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Scan the engine, without the row of the metadata."""
        self._wait_for_commit()
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

    def _check_complete(self) -> None:
        # Without the file CURRENT LevelDB would create an empty database, and still read the rows of an existing log.
        if not (self._path / "CURRENT").exists() and any(file.suffix in _DATA_FILES for file in self._path.iterdir()):
            raise ValueError("corruption: the file CURRENT is missing")

    def _check_open(self) -> None:
        # Closing ends iterators: the rows that were read so far must not be taken for all.
        if self._closed:
            raise StateError(f"The store in {self._path} was closed while it was read")

    def bytes_on_disk(self) -> int | None:
        """Return the size of its files."""
        with self._translated(), os.scandir(self._path) as entries:
            return sum(_size_of(entry) for entry in entries)

    def rows_estimate(self) -> int | None:
        """Return about how many entries the files have. Raises StateError, for example if they are closed."""
        with self._translated():
            return max(0, self._estimate() - (self._row[1] is not None))

    def commit(self) -> None:
        """Write the overlay and the metadata in one synchronous write batch."""
        self._commit()
        if self._written:
            self._written = 0

    def _commit(self) -> None:
        pending = self._pending
        value = pending[METADATA_KEY]
        packed = _packed(self.metadata, value)
        if len(pending) == 1 and packed == self._row[1]:
            return
        if self._executor is not None:
            self._wait_for_commit()
            self._pending = {METADATA_KEY: value}
            self._order = KeyOrder(self._pending)
            self._row = (METADATA_KEY, packed)
            pending[METADATA_KEY] = packed
            self._writing = self._executor.submit(self._write, pending.items())
            return
        pending[METADATA_KEY] = packed
        try:
            with self._translated():
                self._write(zip(*in_order(pending), strict=True))
        finally:
            pending[METADATA_KEY] = value
        self._row = (METADATA_KEY, packed)
        pending.clear()
        pending[METADATA_KEY] = value
        self._order.reset()

    def begin_load(self, executor: Executor) -> None:
        """Prepare for many writes and few reads (see BytesMap.begin_load)."""
        if self._executor is None:
            self.commit()
            with self._translated():
                self._stored_get = self._reader_after_commit(self._reopen(load=True))
            self._executor = executor

    def end_load(self) -> None:
        """End the load: return when all commits are written."""
        if self._executor is not None:
            self._wait_for_commit()
            with self._translated():
                self._stored_get = self._reopen(load=False)
            self._executor = None

    def _wait_for_commit(self) -> None:
        """Wait until the commit in flight is written. Where it has failed, each call raises."""
        if self._writing is not None:
            with self._translated():
                self._writing.result()
            self._writing = None

    def _reader_after_commit(self, get: Callable[[bytes], bytes | None]) -> Callable[[bytes], bytes | None]:
        """Return a function that reads one key of the files after the commit in flight is written."""

        def get_after_commit(key: bytes) -> bytes | None:
            self._wait_for_commit()
            return get(key)

        return get_after_commit

    def close(self) -> None:
        """Close the files; uncommitted writes are lost."""
        if self._writing is not None:
            wait([self._writing])  # an earlier call has raised its error, or no caller needs it
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


def _packed(metadata: bytes | None, value: bytes | None) -> bytes | None:
    """Return the row of the metadata: length4 and metadata, then 1 and the value of a record that has the same key."""
    if metadata is None and value is None:
        return None
    row = pack_int(len(metadata or b"")) + (metadata or b"")
    return row if value is None else row + b"\x01" + value


def _unpacked(row: bytes | None) -> tuple[bytes | None, bytes | None]:
    if row is None:
        return None, None
    end = 4 + unpack_int(row)[0] if len(row) > 4 else -1
    if not 4 <= end <= len(row):
        raise ValueError("corruption: its metadata can't be read")
    return row[4:end] or None, row[end + 1 :] if len(row) > end else None


def text_of(error: BaseException) -> str:
    """Return the message of an engine's error; plyvel gives LevelDB's bytes."""
    message = error.args[0] if error.args else ""
    return message.decode(errors="replace") if isinstance(message, bytes) else str(error)


def state_error(path: Path, error: Exception) -> StateError:
    """Return the error of a state directory in one line; engines give the reason only in their message."""
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
