"""What engines say about a directory, in one clear line."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import StateError, StateLockedError, TaskCorruptedError
from streamkit.state.engines.leveldb import LevelMap
from streamkit.state.engines.open_maps import open_map
from streamkit.state.engines.overlay import state_error
from tests.requirements import EVERY_ENGINE


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space is left"),
        (RuntimeError("IO error: /x/000003.log: No space left on device"), "No space is left"),
        (OSError(errno.EROFS, "Read-only file system"), "can't be written"),
        (RuntimeError("IO error: /x/LOCK: Permission denied"), "can't be written"),
        (RuntimeError("Corruption: bad block"), "is damaged: Corruption"),
        (RuntimeError(b"Corruption: bad block"), "is damaged: Corruption"),
        (RuntimeError("Database is closed"), "can't be used"),
    ],
)
def test_errors_are_translated(error: Exception, words: str) -> None:
    translated = state_error(Path("place"), error)
    assert words in str(translated)
    assert not isinstance(translated, StateLockedError)
    assert "\n" not in str(translated)


def test_damage_is_for_the_task_to_mend() -> None:
    error = state_error(Path("place"), RuntimeError("Corruption: bad block"))
    assert isinstance(error, TaskCorruptedError)


@pytest.mark.parametrize(
    "words",
    [
        "IO error: lock x/LOCK: Resource temporarily unavailable",
        "IO error: lock hold by current process, acquire time 1 acquiring thread 2: x/LOCK: No locks available",
        "IO error: While lock file: x/LOCK: Resource temporarily unavailable",
    ],
)
def test_locks_have_an_error_of_their_own(words: str) -> None:
    error = state_error(Path("place"), OSError(words))
    assert isinstance(error, StateLockedError)


@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_a_damaged_store_is_reported(engine: str, tmp_path: Path) -> None:
    rows = open_map(engine, tmp_path)
    rows.put(b"a", b"1")
    rows.commit()
    rows.close()
    (tmp_path / "CURRENT").write_text("nonsense")
    with pytest.raises(StateError, match="damaged"):
        open_map(engine, tmp_path)


@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_a_range_over_both_layers_can_be_left_early(engine: str, tmp_path: Path) -> None:
    rows = open_map(engine, tmp_path)
    for number in range(1000):
        rows.put(b"%04d" % number, b"old")
    rows.commit()
    rows.put(b"0001", b"new")
    rows.put(b"0000", None)
    seen = rows.range(None, None)
    assert [next(seen), next(seen)] == [(b"0001", b"new"), (b"0002", b"old")]
    backwards = rows.range(b"0001", b"0002", reverse=True)
    assert list(backwards) == [(b"0002", b"old"), (b"0001", b"new")]
    rows.close()


_ROWS, _COMMIT = 16_000, 250
_COMMIT_MB = 0.25
"""A buffer takes the whole of the commit that fills it."""
_STORE_MB = {"leveldb": 2 * (2 + _COMMIT_MB) + 1, "rocksdb": 2 * (4 + _COMMIT_MB)}
"""What docs/guarantees.md says that a store takes at most: two write buffers, and on LevelDB a block cache."""
_SHARED_MB = 64
"""RocksDB's block cache."""


@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_what_a_store_holds_in_memory_is_bounded(engine: str, tmp_path: Path) -> None:
    """Three stores of 16 MB each, written and read."""
    stores = [open_map(engine, tmp_path / str(number)) for number in range(3)]
    most = 0.0
    for start in range(0, _ROWS, _COMMIT):
        for rows in stores:
            rows.put_many([(b"%08d" % number, b"%08d" % number * 128) for number in range(start, start + _COMMIT)])
            rows.commit()
        most = max(most, *map(_buffers_and_blocks_mb, stores))
    for rows in stores:
        assert sum(1 for number in range(_ROWS) if rows.get(b"%08d" % number)) == _ROWS
        assert sum(1 for _ in rows.range(None, None)) == _ROWS
    assert max(most, *map(_buffers_and_blocks_mb, stores)) <= _STORE_MB[engine]
    if engine == "rocksdb":
        assert int(stores[0]._db.property_int_value("rocksdb.block-cache-usage")) >> 20 <= _SHARED_MB
    for rows in stores:
        rows.close()


def _buffers_and_blocks_mb(rows: Any) -> float:
    """Return what an engine accounts for a store."""
    if isinstance(rows, LevelMap):
        return int(rows._db.get_property(b"leveldb.approximate-memory-usage")) / (1 << 20)
    return float(rows._db.property_int_value("rocksdb.cur-size-all-mem-tables")) / (1 << 20)


@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_a_full_disk_is_one_clear_line_and_what_was_not_written_is_kept(engine: str, tmp_path: Path) -> None:
    """A process whose files may not grow beyond a megabyte: what a full disk does to a commit."""
    program = f"""
import resource, signal
from streamkit.errors import StateError
from streamkit.state.engines.open_maps import open_map
rows = open_map({engine!r}, {str(tmp_path / "map")!r})
rows.put(b"a", b"1")
rows.commit()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
rows.put(b"b", bytes(range(256)) * 16384)
try:
    rows.commit()
except StateError as error:
    print(type(error).__name__, error)
print(rows.get(b"a"), len(rows.get(b"b")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert len(lines) == 2, done.stdout
    assert lines[0].startswith("StateError The store in ")
    assert lines[1] == f"b'1' {256 * 16384}"


_READ_ONLY = """
import os, sys
from streamkit.errors import StateError
from streamkit.state.engines.open_maps import open_map
# Packages are imported before the rights are given up: another user may not be able to read them.
open_map({engine!r}, "warm").close()
os.chmod("map", 0o555)
if os.geteuid() == 0:
    os.setuid(65534)
try:
    open_map({engine!r}, "map/store")
except StateError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("engine", EVERY_ENGINE)
@pytest.mark.parametrize("before", [False, True])
def test_a_directory_that_may_only_be_read_is_one_clear_line(engine: str, before: bool, tmp_path: Path) -> None:
    """With a store in it, and without."""
    (tmp_path / "map").mkdir()
    if before:
        open_map(engine, tmp_path / "map" / "store").close()
        os.chmod(tmp_path / "map" / "store", 0o555)
        for file in (tmp_path / "map" / "store").iterdir():
            file.chmod(0o444)
    done = subprocess.run(
        [sys.executable, "-c", _READ_ONLY.format(engine=engine)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("StateError The store in map/store can't be written: "), done.stdout
    assert done.stdout.count("\n") == 1
