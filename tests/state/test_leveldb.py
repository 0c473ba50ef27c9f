"""What LevelDB says about a directory, in one clear line."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from streamkit.errors import StateError, StateLockedError, TaskCorruptedError
from streamkit.state.leveldb import LevelMap, _state_error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space is left"),
        (RuntimeError("IO error: /x/000003.log: No space left on device"), "No space is left"),
        (OSError(errno.EROFS, "Read-only file system"), "can't be written"),
        (RuntimeError("IO error: /x/LOCK: Permission denied"), "can't be written"),
        (RuntimeError("Corruption: bad block"), "is damaged"),
        (RuntimeError("Database is closed"), "can't be used"),
    ],
)
def test_errors_are_translated(error: Exception, words: str) -> None:
    translated = _state_error(Path("place"), error)
    assert words in str(translated)
    assert not isinstance(translated, StateLockedError)
    assert "\n" not in str(translated)


def test_damage_is_for_the_task_to_mend() -> None:
    error = _state_error(Path("place"), RuntimeError("Corruption: bad block"))
    assert isinstance(error, TaskCorruptedError)


def test_locks_have_an_error_of_their_own() -> None:
    error = _state_error(Path("place"), OSError("IO error: lock x/LOCK: Resource temporarily unavailable"))
    assert isinstance(error, StateLockedError)


def test_a_damaged_store_says_so(tmp_path: Path) -> None:
    rows = LevelMap(tmp_path)
    rows.put(b"a", b"1")
    rows.commit()
    rows.close()
    (tmp_path / "CURRENT").write_text("nonsense")
    with pytest.raises(StateError, match="damaged"):
        LevelMap(tmp_path)


def test_a_range_over_both_layers_can_be_left_early(tmp_path: Path) -> None:
    rows = LevelMap(tmp_path)
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
