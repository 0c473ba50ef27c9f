"""The SQLite file of the embedded log: tables, write transactions, and the translation of errors.

SQLite keeps no checksums in this file. Each row of `records` has two (log_tables). Each row of the other tables has one
(`crc`), which SQLite computes on every write, and each read through the view `checked_…` compares; `tables` counts the rows.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from time import CLOCK_BOOTTIME, clock_gettime, monotonic, sleep, time
from typing import Any, NamedTuple, Protocol

import google_crc32c

from streamkit.errors import DamagedLogError, RetriableTransportError, TransportError

FILE = "log.sqlite3"
BUSY_SECONDS = 30.0
_FIRST_WAIT, _LONGEST_WAIT = 0.001, 0.02
_VERSION = 2
_CORRUPT = sqlite3.SQLITE_CORRUPT
_CHECKED = {
    "topics": (
        "id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, partitions INTEGER NOT NULL, config TEXT NOT NULL",
        "",
    ),
    "partitions": (
        "id INTEGER PRIMARY KEY, topic INTEGER NOT NULL, number INTEGER NOT NULL, "
        "first INTEGER NOT NULL DEFAULT 0, next INTEGER NOT NULL DEFAULT 0",
        "UNIQUE (topic, number)",
    ),
    "offsets": (
        "grp TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, offset INTEGER NOT NULL, metadata TEXT NOT NULL",
        "PRIMARY KEY (grp, topic, partition)",
    ),
    "producers": ("id TEXT NOT NULL, epoch INTEGER NOT NULL", "PRIMARY KEY (id)"),
    "groups": (
        "name TEXT NOT NULL, generation INTEGER NOT NULL, state TEXT NOT NULL, leader TEXT NOT NULL, since INTEGER NOT NULL",
        "PRIMARY KEY (name)",
    ),
    # The column keeps the name `patience` for files of older releases.
    "members": (
        "grp TEXT NOT NULL, id TEXT NOT NULL, metadata BLOB NOT NULL, topics TEXT NOT NULL, owned TEXT NOT NULL, "
        "heartbeat INTEGER NOT NULL, timeout INTEGER NOT NULL, patience INTEGER NOT NULL, joined INTEGER NOT NULL, "
        "taken INTEGER NOT NULL, assigned TEXT NOT NULL, data BLOB NOT NULL",
        "PRIMARY KEY (grp, id)",
    ),
}
"""The columns and the key of each table whose rows have one checksum."""
_PARTLY_UPDATED = ("producers", "members")
"""The tables with updates that keep some columns without reading them: the new checksum must not hide damage in these."""
_BATCHES = """CREATE TABLE batches (
  partition INTEGER NOT NULL, last INTEGER NOT NULL, count INTEGER NOT NULL, latest INTEGER NOT NULL,
  data BLOB NOT NULL, PRIMARY KEY (partition, last))"""
"""The batches of version 1, which have no checksums."""
_RECORDS = (
    """CREATE TABLE records (
  partition INTEGER NOT NULL, last INTEGER NOT NULL, count INTEGER NOT NULL, latest INTEGER NOT NULL,
  head INTEGER NOT NULL, crc INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (partition, last))""",
    "CREATE TABLE tables (name TEXT NOT NULL, rows INTEGER NOT NULL, PRIMARY KEY (name)) WITHOUT ROWID",
)


Row = tuple[Any, ...]
"""Columns of a row, with the types of the table."""


class Damage(Exception):
    """What has changed in the file since it was written; `Database` adds the file name and raises DamagedLogError."""


_FOLDER = 0o700


def _make_private(path: Path) -> None:
    """Restrict the files of the log to their owner; SQLite gives new files the permissions of the first.

    The file is not opened here: closing it would release the locks of all connections of this process (POSIX).
    """
    for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
        with suppress(FileNotFoundError):
            status = file.stat()
            if status.st_mode & 0o077 and status.st_uid == os.geteuid():
                file.chmod(0o600)


class Execute(Protocol):
    """sqlite3.Connection.execute, inside a transaction of a Database."""

    def __call__(self, sql: str, parameters: tuple[str | bytes | int | None, ...] = ..., /) -> sqlite3.Cursor: ...


def checksum(*values: object) -> int:
    """Return the CRC32C of integers, texts and bytes."""
    crc: int = google_crc32c.value("\0".join(map(str, values)).encode())
    return crc


def _columns(table: str) -> str:
    return ", ".join(column.split()[0] for column in _CHECKED[table][0].split(", "))


def _statements(table: str) -> Iterator[str]:
    """Yield the statements that create a table with a checksum for each row, its view, and its number of rows."""
    columns, key = _CHECKED[table]
    names = _columns(table)
    old = ", ".join(f"old.{name}" for name in names.split(", "))
    parts = [columns, f"crc INTEGER NOT NULL AS (crc32c('{table}', {names})) STORED", *([key] if key else [])]
    yield f"CREATE TABLE {table} ({', '.join(parts)})" + (" WITHOUT ROWID" if "PRIMARY KEY (" in key else "")
    yield f"CREATE VIEW checked_{table} AS SELECT {names} FROM {table} WHERE intact('{table}', crc, {names})"
    if table in _PARTLY_UPDATED:
        yield (
            f"CREATE TRIGGER update_{table} BEFORE UPDATE ON {table} BEGIN "
            f"SELECT intact('{table}', old.crc, {old}); END"
        )
    for event, change in (("INSERT", "+ 1"), ("DELETE", "- 1")):
        yield (
            f"CREATE TRIGGER {event.lower()}_{table} AFTER {event} ON {table} BEGIN "
            f"UPDATE tables SET rows = rows {change} WHERE name = '{table}'; END"
        )


@cache
def _schema() -> frozenset[tuple[str, str, str]]:
    """Return the type, name and text of every part of a file's schema."""
    connection = sqlite3.connect(":memory:")
    for name in ("crc32c", "intact"):
        connection.create_function(name, -1, checksum, deterministic=True)
    for statement in (_BATCHES, *_RECORDS, *(statement for table in _CHECKED for statement in _statements(table))):
        connection.execute(statement)
    schema = _schema_of(connection.execute)
    connection.close()
    return schema


def _schema_of(execute: Execute) -> frozenset[tuple[str, str, str]]:
    rows = execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    return frozenset((kind, name, " ".join((sql or "").split())) for kind, name, sql in rows)


def one(execute: Execute, table: str, columns: str, where: str, parameters: tuple[str | int, ...]) -> Row | None:
    """Return the columns of the matching row of a table, None if there is none. Raises Damage."""
    row: Row | None = execute(f"SELECT {columns} FROM checked_{table} WHERE {where}", parameters).fetchone()
    if row is None:
        verify(execute, table)
    return row


def every(execute: Execute, table: str, columns: str) -> list[Row]:
    """Return the columns of all rows of a table. Raises Damage."""
    rows = execute(f"SELECT {columns} FROM checked_{table}").fetchall()
    _check_number(execute, table, len(rows))
    return rows


def verify(execute: Execute, table: str) -> None:
    """Raise Damage unless a table has all its rows unchanged and its index finds them."""
    _check_number(execute, table, execute(f"SELECT count(*) FROM checked_{table}").fetchone()[0])
    problem = execute(f"PRAGMA integrity_check('{table}')").fetchone()[0]
    if problem != "ok":
        raise Damage(f"table {table}: {' '.join(problem.split())}")


def _check_number(execute: Execute, table: str, count: int) -> None:
    row = execute("SELECT rows FROM tables WHERE name = ?", (table,)).fetchone()
    if row is None or row[0] != count:
        raise Damage(f"table {table} has {count} rows, of {'an unknown number' if row is None else row[0]}")


class Database:
    """One connection of one thread to the log in a directory, which is created if it is missing.

    synced: whether each of its commits, and all before it, is on disk when it returns. Stores are committed after the log: without
    this, a loss of power could leave them ahead of it.
    """

    def __init__(self, directory: Path, *, synced: bool = False):
        self.directory = directory
        self._synced = synced
        self._changed_row: str | None = None
        """The row whose checksum is wrong: SQLite does not pass on the exceptions of functions."""
        with self._translated():
            directory.parent.mkdir(parents=True, exist_ok=True, mode=_FOLDER)
            directory.mkdir(exist_ok=True, mode=_FOLDER)
            self._lock = os.open(directory, os.O_RDONLY)
        try:
            with self._translated():
                self._open()
        except BaseException:
            os.close(self._lock)
            raise

    def _open(self) -> None:
        file = self.directory / FILE
        is_first = self._is_first()
        if is_first:
            check_write_ahead_log(file)
        # No implicit transactions. Another thread than the one that used a client may close it.
        self._connection = sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            self._connection.create_function("crc32c", -1, checksum, deterministic=True)
            self._connection.create_function("intact", -1, self._intact, deterministic=True)
            _make_private(file)
            self._use_wal()
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if self._synced else 'NORMAL'}")
            self._connection.execute("PRAGMA wal_autocheckpoint = 4000")
            self._connection.execute("PRAGMA trusted_schema = ON")
            if self._connection.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                with self.write() as write:
                    _create(write)
            with self.read() as execute:
                if _schema_of(execute) != _schema():
                    raise Damage("its tables are not those of an embedded log")
                for table in _CHECKED if is_first else ():
                    verify(execute, table)
        except BaseException:
            self._connection.close()
            raise
        _open_mark(file).touch(mode=0o600)
        if is_first:
            fcntl.flock(self._lock, fcntl.LOCK_SH)

    def _is_first(self) -> bool:
        """Return whether no other connection has the log open; later connections wait until this one has checked it."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            fcntl.flock(self._lock, fcntl.LOCK_SH)
            return False

    def _intact(self, table: str, crc: int, *values: object) -> int:
        if crc != checksum(table, *values):
            self._changed_row = f"a row of table {table} was changed: {', '.join(map(str, values))[:200]}"
            raise ValueError
        return 1

    @contextmanager
    def write(self) -> Iterator[Execute]:
        """Run a write transaction, which excludes all other processes; yield `execute`. An exception rolls it back."""
        with self._transaction("BEGIN IMMEDIATE") as execute:
            yield execute

    @contextmanager
    def read(self) -> Iterator[Execute]:
        """Run statements that only read, all as of one commit; yield `execute`."""
        with self._transaction("BEGIN") as execute:
            yield execute

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Execute]:
        with self._translated():
            execute = self._connection.execute
            execute(begin)
            try:
                yield execute
                execute("COMMIT")
            except BaseException:
                # SQLite has already rolled back after some errors, such as a full disk.
                if self._connection.in_transaction:
                    with suppress(sqlite3.Error):
                        execute("ROLLBACK")
                raise

    def _use_wal(self) -> None:
        """Switch a new file to the write-ahead log. SQLite's time-out does not cover processes that switch at the same time."""
        deadline = monotonic() + BUSY_SECONDS
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or monotonic() > deadline:
                    raise
                sleep(_LONGEST_WAIT)

    def sync(self) -> None:
        """Put everything on disk that this process or another one has committed."""
        with self._translated(), suppress(FileNotFoundError):
            # Without this file all is in the log itself, which SQLite has synced.
            descriptor = os.open(self.directory / f"{FILE}-wal", os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def version(self) -> int:
        """Return a number that changes when another connection has written."""
        with self._translated():
            number: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
            return number

    def wait_for_change(self, since: int, seconds: float, wake: threading.Event) -> bool:
        """Return True when version() is no longer `since`, False after `seconds` or when `wake` is set."""
        pause = _FIRST_WAIT
        while True:
            if self.version() != since:
                return True
            if seconds <= 0 or wake.wait(min(pause, seconds)):
                return False
            seconds -= pause
            pause = min(pause * 2, _LONGEST_WAIT)

    def close(self) -> None:
        """Close the connection."""
        if self._lock >= 0:
            self._note_closed()
        self._connection.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _note_closed(self) -> None:
        """Delete the mark of an open log if no other connection has it open: SQLite next deletes the write-ahead log."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _open_mark(self.directory / FILE).unlink(missing_ok=True)
        except BlockingIOError:
            fcntl.flock(self._lock, fcntl.LOCK_SH)  # the attempt has released it
        except OSError as error:
            log.warning("%s can't be deleted: %s", _open_mark(self.directory / FILE), error.strerror)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Damage as error:
            raise self._damaged(str(error)) from error
        except UnicodeDecodeError as error:
            # SQLite's message contains a name that was changed.
            raise self._damaged(f"a text of its schema is not UTF-8: {error.object!r}"[:300]) from error
        except sqlite3.Error as error:
            text, code = str(error), getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
            row, self._changed_row = self._changed_row, None
            if row is not None or code == _CORRUPT:
                raise self._damaged(row or text) from error
            if "locked" in text or "busy" in text:
                raise RetriableTransportError(f"the embedded log in {self.directory} is busy: {text}") from error
            raise TransportError(f"the embedded log in {self.directory} cannot be used: {FILE}: {text}") from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise TransportError(f"the embedded log in {self.directory} cannot be used: {reason}") from error

    def _damaged(self, what: str) -> DamagedLogError:
        return DamagedLogError(
            f"the embedded log {self.directory / FILE} is damaged: {what}; restore {self.directory} from a copy"
        )


def _create(execute: Execute) -> None:
    """Create the tables of a new file, or give those of version 1 checksums."""
    version = execute("PRAGMA user_version").fetchone()[0]
    known = {name for kind, name, _ in _schema_of(execute) if kind == "table"}
    if version == _VERSION:
        return  # another process was first
    if version > 1 or (version == 0) != (not known):
        raise Damage(f"its version is {version}, and not {_VERSION}, or a newer release wrote it")
    for statement in (*(() if known else (_BATCHES,)), *_RECORDS):
        execute(statement)
    for table in _CHECKED:
        if known:
            execute(f"ALTER TABLE {table} RENAME TO old_{table}")
        execute("INSERT INTO tables VALUES (?, 0)", (table,))
        for statement in _statements(table):
            execute(statement)
        if known:
            execute(f"INSERT INTO {table} ({_columns(table)}) SELECT {_columns(table)} FROM old_{table}")
            execute(f"DROP TABLE old_{table}")
    execute(f"PRAGMA user_version = {_VERSION}")


# Checks SQLite's write-ahead log after the end of a process: SQLite stops at a damaged page and silently drops the rest.
#
# The file has a header of 32 bytes and frames of 24 bytes and a page, each with the checksum of all before it; a frame that ends a
# transaction has the size of the database (https://www.sqlite.org/fileformat2.html#walformat). Its index, in a file beside it, has the
# number of frames that were written; a process that is killed leaves it as it was.

log = logging.getLogger(__name__)

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_INDEX = struct.Struct("=3I2BH8I")
_BACKFILLED = 96
"""The position in the index of the number of frames that the database also contains."""
_MASK = 0xFFFFFFFF


def _open_mark(file: Path) -> Path:
    """Return the path of an empty file that exists as long as a connection is open, or if the last one was not closed."""
    return file.with_name(f"{file.name}-open")


class _Index(NamedTuple):
    frames: int
    backfilled: int
    salts: tuple[int, int]


def check_write_ahead_log(file: Path) -> None:
    """Raise DamagedLogError if a transaction in the write-ahead log of a database cannot be read; no process may have it open.

    After a reboot the last transactions may be incomplete, which is logged as a warning.
    """
    path, beside = file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")
    index = _read_index(beside)
    data = path.read_bytes() if path.exists() else b""
    opened = _open_mark(file)
    if (data or opened.exists()) and not (file.exists() and file.stat().st_size):
        # SQLite would delete the write-ahead log, and begin a new log.
        raise DamagedLogError(f"the embedded log {file} is missing or empty; restore {file.parent} from a copy")
    if len(data) <= _HEADER.size:
        if index is None and opened.exists():
            log.warning(
                "%s and %s are missing or damaged, and the log was not closed: unless a program other than streamkit has opened it, "
                "its last transactions are missing, such as input that was written to it",
                path,
                beside,
            )
        # SQLite deletes the file once the database has all of it.
        if index is None or index.frames <= index.backfilled:
            return
        data = bytes(_HEADER.size)
    written = (path if path.exists() else beside).stat().st_mtime
    size, complete = _complete_frames(data)
    expected = _expected_frames(data, size, complete, index)
    restarted = written < time() - clock_gettime(CLOCK_BOOTTIME)
    if complete >= expected:
        if index is None and not restarted:
            log.warning(
                "%s is missing or damaged: transactions may be missing at the end of %s, which it counts", beside, path
            )
        return
    place = _HEADER.size + complete * size if size else 0
    state = f"damaged after byte {place}" if place else "missing or damaged"
    text = f"the write-ahead log {path} is {state}: the transactions from there on cannot be read"
    backfilled = 0 if index is None else index.backfilled
    if (size or not any(data)) and complete >= backfilled and restarted:
        log.warning("%s; the machine was restarted since they were written, and the log continues without them", text)
        return
    # Without the index, which counts them.
    command = f"truncate -s {place} {path} && rm -f {beside}"
    way_out = f", or go on without them: {command}" if index and complete >= backfilled else ""
    raise DamagedLogError(f"{text}; restore {file.parent} from a copy{way_out}")


def _complete_frames(data: bytes) -> tuple[int, int]:
    """Return the size of a frame, and the number of frames up to the end of the last transaction that SQLite reads."""
    magic, version, page, _, *salts, first, second = _HEADER.unpack_from(data)
    order = ">" if magic & 1 else "<"
    if magic | 1 != 0x377F0683 or version != 3_007_000 or _sums(data[:24], order, 0, 0) != (first, second):
        return 0, 0
    size = _FRAME.size + (65_536 if page == 1 else page)
    complete, sums = 0, (first, second)
    for number, start in enumerate(range(_HEADER.size, len(data) - size + 1, size), 1):
        page_number, commit, salt1, salt2, one, two = _FRAME.unpack_from(data, start)
        if [salt1, salt2] != salts or not page_number:
            break
        sums = _sums(data[start : start + 8] + data[start + _FRAME.size : start + size], order, *sums)
        if sums != (one, two):
            break
        if commit:
            complete = number
    return size, complete


def _sums(data: bytes, order: str, first: int, second: int) -> tuple[int, int]:
    for one, two in struct.iter_unpack(f"{order}II", data):
        first = (first + one + second) & _MASK
        second = (second + two + first) & _MASK
    return first, second


def _expected_frames(data: bytes, size: int, complete: int, index: _Index | None) -> int:
    """Return how many frames were committed, according to the index or to the frames themselves."""
    if not size:
        return 1 if index is None else index.frames
    salts = _HEADER.unpack_from(data)[4:6]
    if index is not None and (index.salts == salts or not index.frames):
        return index.frames
    last = complete
    for number, start in enumerate(range(_HEADER.size, len(data) - size + 1, size), 1):
        _, commit, *stored, _, _ = _FRAME.unpack_from(data, start)
        # Frames from an earlier use of the file have another random number as their second salt.
        changed = sum((one ^ two).bit_count() for one, two in zip(stored, salts, strict=True))
        if commit and changed <= 2:
            last = number
    return last


def _read_index(path: Path) -> _Index | None:
    """Return the contents of the write-ahead log's index; None if it is missing or incomplete."""
    try:
        data = path.read_bytes()[: _BACKFILLED + 4]
    except FileNotFoundError:
        return None
    if len(data) < _BACKFILLED + 4 or data[:48] != data[48:96]:
        return None
    order = "<" if sys.byteorder == "little" else ">"
    _, _, _, _, _, _, frames, _, _, _, _, _, first, second = _INDEX.unpack_from(data)
    if _sums(data[:40], order, 0, 0) != (first, second):
        return None
    # The salts have the byte order of the file.
    salts = struct.unpack_from(">2I", data, 32)
    return _Index(frames, struct.unpack_from("=I", data, _BACKFILLED)[0], salts)
