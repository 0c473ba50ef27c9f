"""The SQLite file of the embedded log: tables, write transactions, and the translation of errors."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Protocol

from streamkit.errors import RetriableTransportError, TransportError

FILE = "log.sqlite3"
BUSY_SECONDS = 30.0
_FIRST_WAIT, _LONGEST_WAIT = 0.001, 0.02
_TABLES = """
CREATE TABLE IF NOT EXISTS topics (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, partitions INTEGER NOT NULL, config TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS partitions (
  id INTEGER PRIMARY KEY, topic INTEGER NOT NULL, number INTEGER NOT NULL,
  first INTEGER NOT NULL DEFAULT 0, next INTEGER NOT NULL DEFAULT 0, UNIQUE (topic, number));
CREATE TABLE IF NOT EXISTS batches (
  partition INTEGER NOT NULL, last INTEGER NOT NULL, count INTEGER NOT NULL, latest INTEGER NOT NULL,
  data BLOB NOT NULL, PRIMARY KEY (partition, last));
CREATE TABLE IF NOT EXISTS offsets (
  grp TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, offset INTEGER NOT NULL, metadata TEXT NOT NULL,
  PRIMARY KEY (grp, topic, partition)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS producers (id TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS groups (
  name TEXT PRIMARY KEY, generation INTEGER NOT NULL, state TEXT NOT NULL, leader TEXT NOT NULL, since INTEGER NOT NULL
  ) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS members (
  grp TEXT NOT NULL, id TEXT NOT NULL, metadata BLOB NOT NULL, topics TEXT NOT NULL, owned TEXT NOT NULL,
  heartbeat INTEGER NOT NULL, timeout INTEGER NOT NULL, patience INTEGER NOT NULL, joined INTEGER NOT NULL,
  taken INTEGER NOT NULL, assigned TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (grp, id)) WITHOUT ROWID;
"""


class Execute(Protocol):
    """sqlite3.Connection.execute, inside a transaction of a Database."""

    def __call__(self, sql: str, parameters: tuple[str | bytes | int | None, ...] = ..., /) -> sqlite3.Cursor: ...


class Database:
    """One connection of one thread to the log in a directory, which is created when it is missing."""

    def __init__(self, directory: Path):
        self.directory = directory
        with self._translated():
            directory.mkdir(parents=True, exist_ok=True)
            # No implicit transactions; a client may be closed by another thread than the one that used it.
            self._connection = sqlite3.connect(
                directory / FILE, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._use_wal()
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute("PRAGMA wal_autocheckpoint = 4000")
            if self._connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                with self.write() as write:
                    for statement in _TABLES.split(";\n"):
                        write(statement)
                    write("PRAGMA user_version = 1")

    @contextmanager
    def write(self) -> Iterator[Execute]:
        """Run a write transaction, which excludes all other processes; gives `execute`. An exception rolls it back."""
        with self._translated():
            execute = self._connection.execute
            execute("BEGIN IMMEDIATE")
            try:
                yield execute
                execute("COMMIT")
            except BaseException:
                # SQLite has rolled back by itself after some errors, a full disk among them.
                if self._connection.in_transaction:
                    execute("ROLLBACK")
                raise

    @contextmanager
    def read(self) -> Iterator[Execute]:
        """Run statements that only read; gives `execute`."""
        with self._translated():
            yield self._connection.execute

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
        self._connection.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            text = str(error)
            if "locked" in text or "busy" in text:
                raise RetriableTransportError(f"the embedded log in {self.directory} is busy: {text}") from error
            raise TransportError(f"the embedded log in {self.directory} cannot be used: {text}") from error
        except (sqlite3.Error, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise TransportError(f"the embedded log in {self.directory} cannot be used: {reason}") from error
