"""What every ordered map of bytes does."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from sys import getswitchinterval, setswitchinterval
from threading import Event, Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.errors import ConfigError, StateError, StateLockedError
from streamkit.state.definitions import BytesMap
from streamkit.state.engines.open_maps import ENGINES, check_engine, open_map
from tests.requirements import EVERY_ENGINE

KINDS = ["memory", *EVERY_ENGINE]
KEYS = st.binary(max_size=3)


@pytest.fixture(params=KINDS)
def rows(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    opened = open_map(request.param, tmp_path / "map")
    yield opened
    opened.close()


def fill(rows: BytesMap) -> None:
    for key in (b"b", b"a", b"\xff", b"", b"ab", b"c"):
        rows.put(key, b"v" + key)
    rows.put(b"c", None)


def test_reads_see_writes_before_and_after_a_commit(rows: BytesMap) -> None:
    fill(rows)
    for _ in range(2):
        assert (rows.get(b"a"), rows.get(b"c"), rows.get(b"zz")) == (b"va", None, None)
        rows.commit()


@pytest.mark.parametrize("kind", EVERY_ENGINE)
def test_others_work_while_a_commit_waits_for_the_disk(kind: str) -> None:
    """Python's lock is free then: the stores of a thread are written at once, and the markers of its transaction looked for."""
    turns, ended = [0], Event()

    def work() -> None:
        with open("/dev/zero", "rb", buffering=0) as zeros:
            while not ended.is_set():
                zeros.read(1)
                turns[0] += 1

    def commits() -> bool:
        before = turns[0]
        opened.put(b"key", b"value %d" % before)
        opened.commit()
        return turns[0] > before

    # The folder of other tests may be in memory, where nothing has to wait.
    folder = tempfile.TemporaryDirectory(dir="/var/tmp")
    opened, worker = open_map(kind, Path(folder.name) / "map"), Thread(target=work)
    interval = getswitchinterval()
    # No thread gets the lock from another one that does not let it go.
    setswitchinterval(1000)
    try:
        worker.start()
        assert any(commits() for _ in range(100))
    finally:
        setswitchinterval(interval)
        ended.set()
        worker.join()
        opened.close()
        folder.cleanup()


def test_ranges_are_inclusive_and_in_byte_order(rows: BytesMap) -> None:
    fill(rows)
    rows.commit()
    rows.put(b"aa", b"new")
    rows.put(b"b", None)
    assert [key for key, _ in rows.range(None, None)] == [b"", b"a", b"aa", b"ab", b"\xff"]
    assert [key for key, _ in rows.range(b"a", b"ab")] == [b"a", b"aa", b"ab"]
    assert [key for key, _ in rows.range(b"a", b"ab", include_high=False)] == [b"a", b"aa"]
    assert [key for key, _ in rows.range(b"a", b"ab", reverse=True)] == [b"ab", b"aa", b"a"]
    assert [key for key, _ in rows.range(b"a", None, limit=2)] == [b"a", b"aa"]
    assert [key for key, _ in rows.range(None, b"ab", reverse=True, limit=1)] == [b"ab"]
    assert list(rows.range(b"b", b"a")) == []


def test_a_range_does_not_see_later_writes(rows: BytesMap) -> None:
    fill(rows)
    rows.commit()
    seen = rows.range(None, None)
    next(seen)
    rows.put(b"ab", None)
    rows.put(b"bb", b"later")
    rows.commit()
    assert [key for key, _ in seen] == [b"a", b"ab", b"b", b"\xff"]


@pytest.mark.parametrize("low", [None, b"b"])
@pytest.mark.parametrize("look_first", [False, True])
def test_ranges_are_deleted(rows: BytesMap, low: bytes | None, look_first: bool) -> None:
    for key in (b"a", b"b", b"c", b"d"):
        rows.put(key, b"old")
    rows.commit()
    for key, value in ((b"b", b"new"), (b"bb", b"new"), (b"d", b"new"), (b"c", None)):
        rows.put(key, value)
    left = [(b"a", b"old")] * (low is not None) + [(b"d", b"new")]
    if look_first:
        assert len(list(rows.range(None, None))) == 4
    rows.delete_range(low, b"d")
    rows.put(b"e", b"new")
    for _ in range(2):
        assert list(rows.range(None, None)) == [*left, (b"e", b"new")]
        assert [rows.get(key) for key in (b"b", b"bb", b"c")] == [None] * 3
        rows.commit()


def test_put_many_takes_the_last_of_a_key(rows: BytesMap) -> None:
    list(rows.range(None, None))
    rows.put_many([(b"a", b"1"), (b"b", b"1"), (b"a", None), (b"b", b"2"), (b"c", None)])
    assert list(rows.range(None, None)) == [(b"b", b"2")]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from(["put", "delete", "commit", "range", "back"]), KEYS, KEYS), max_size=30)
)
def test_behaves_as_a_sorted_dict(kind: str, steps: list[tuple[str, bytes, bytes]]) -> None:
    model: dict[bytes, bytes] = {}
    with tempfile.TemporaryDirectory() as directory:
        rows = open_map(kind, directory)
        for step, key, other in steps:
            if step == "put":
                rows.put(key, other)
                model[key] = other
            elif step == "delete":
                rows.put(key, None)
                model.pop(key, None)
            elif step == "commit":
                rows.commit()
            else:
                expected = sorted(((k, v) for k, v in model.items() if key <= k <= other), reverse=step == "back")
                assert list(rows.range(key, other, reverse=step == "back")) == expected
            assert rows.get(key) == model.get(key)
        assert list(rows.range(None, None)) == sorted(model.items())
        rows.close()


@pytest.fixture(params=EVERY_ENGINE)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_engines_keep_what_was_committed_only(engine: str, tmp_path: Path) -> None:
    rows = open_map(engine, tmp_path / "map")
    rows.put(b"a", b"1")
    rows.commit()
    rows.put(b"b", b"2")
    rows.close()
    again = open_map(engine, tmp_path / "map")
    assert list(again.range(None, None)) == [(b"a", b"1")]
    again.close()


def test_a_commit_outlasts_a_process_that_dies(engine: str, tmp_path: Path) -> None:
    program = f"""
import os
from streamkit.state.engines.open_maps import open_map
rows = open_map({engine!r}, {str(tmp_path / "map")!r})
rows.put_many([(b"%04d" % number, b"v") for number in range(1000)])
rows.commit()
rows.put_many([(b"0000", None), (b"x", b"v")])
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    rows = open_map(engine, tmp_path / "map")
    assert [key for key, _ in rows.range(None, None)] == [b"%04d" % number for number in range(1000)]
    rows.close()


def test_a_locked_directory_is_one_clear_line(engine: str, tmp_path: Path) -> None:
    rows = open_map(engine, tmp_path / "map")
    with pytest.raises(StateLockedError, match="in use by another process"):
        open_map(engine, tmp_path / "map")
    rows.close()


def test_a_directory_that_another_process_holds_is_one_clear_line(engine: str, tmp_path: Path) -> None:
    program = f"""
import sys
from streamkit.state.engines.open_maps import open_map
rows = open_map({engine!r}, {str(tmp_path / "map")!r})
print("open", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(StateLockedError, match="in use by another process"):
            open_map(engine, tmp_path / "map")
        other.communicate()


def test_a_file_in_the_way_is_a_state_error(engine: str, tmp_path: Path) -> None:
    (tmp_path / "map").write_text("not a directory")
    with pytest.raises(StateError, match="map"):
        open_map(engine, tmp_path / "map")


def test_a_closed_map_is_a_state_error(engine: str, tmp_path: Path) -> None:
    rows = open_map(engine, tmp_path / "map")
    rows.close()
    with pytest.raises(StateError):
        rows.get(b"a")


@pytest.mark.parametrize("pending", [False, True])
def test_a_range_left_half_way_neither_holds_the_files_nor_passes_for_all(
    engine: str, pending: bool, tmp_path: Path
) -> None:
    rows = open_map(engine, tmp_path / "map")
    fill(rows)
    rows.commit()
    if pending:
        rows.put(b"aa", b"new")
    seen = rows.range(None, None)
    assert next(seen) == (b"", b"v")
    rows.close()
    open_map(engine, tmp_path / "map").close()
    with pytest.raises(StateError):
        list(seen)


def test_bounds_are_kept_while_rows_are_read(engine: str, tmp_path: Path) -> None:
    rows = open_map(engine, tmp_path / "map")
    rows.put_many([(b"%04d" % number, b"v") for number in range(1000)])
    rows.commit()
    ranges = [(low, low + 37, rows.range(b"%04d" % low, b"%04d" % (low + 37))) for low in range(0, 900, 3)]
    other = [b"%04d" % number for number in range(1000)]  # takes up memory that is free by now
    for low, high, found in ranges:
        assert [key for key, _ in found] == other[low : high + 1]
    rows.close()


@pytest.mark.parametrize("name", ENGINES)
def test_a_missing_package_is_one_line_with_the_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamkit.state.engines.open_maps.is_installed", lambda engine: False)
    with pytest.raises(ConfigError, match=rf"pip install .*\[{name}\]"):
        check_engine(name)


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(StateError, match="'paper'"):
        open_map("paper")
