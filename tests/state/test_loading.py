"""Loading: a changelog that is long is written beside reading it, and what is left is the same, also after a crash."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.errors import StateError
from streamkit.state.engines.memory import MemoryMap
from streamkit.state.engines.open_maps import open_map
from streamkit.state.engines.overlay import METADATA_KEY
from streamkit.state.engines.segments import Segments
from streamkit.state.layouts import pack_long
from tests.requirements import EVERY_ENGINE

engines = pytest.mark.parametrize("engine", EVERY_ENGINE)


@pytest.fixture
def beside() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as writer:
        yield writer


@engines
def test_reads_see_every_write_while_a_map_is_loaded_and_afterwards(
    engine: str, tmp_path: Path, beside: Executor
) -> None:
    rows = open_map(engine, tmp_path / "map")
    rows.put(b"before", b"0")
    model = {b"before": b"0"}
    rows.begin_load(beside)
    for number in range(20):
        batch = [(b"%03d" % (place * 7 % 50), b"%d" % number) for place in range(number, number + 30)]
        rows.put_many([*batch, (METADATA_KEY, b"a record's"), (b"%03d" % number, None)])
        model.update(batch)
        model.update({METADATA_KEY: b"a record's"})
        model.pop(b"%03d" % number, None)
        if number % 3:
            rows.commit()
        assert rows.get(b"%03d" % (number + 1)) == model.get(b"%03d" % (number + 1))
        assert dict(rows.range(b"010", b"020")) == {key: model[key] for key in model if b"010" <= key <= b"020"}
        assert rows.get(METADATA_KEY) == b"a record's"
    rows.end_load()
    assert list(rows.range(None, None)) == sorted(model.items())
    rows.metadata = b"all"
    rows.commit()
    rows.close()
    again = open_map(engine, tmp_path / "map")
    assert list(again.range(None, None)) == sorted(model.items())
    assert again.metadata == b"all"
    again.close()


@engines
def test_a_process_that_dies_while_it_loads_leaves_rows_up_to_its_offset(engine: str, tmp_path: Path) -> None:
    # Killed while commits are written one after the other: the offset in the files tells what has to be there, in full.
    program = f"""
import os, signal, threading
from concurrent.futures import ThreadPoolExecutor
from streamkit.state.engines.open_maps import open_map
rows = open_map({engine!r}, {str(tmp_path / "map")!r})
rows.begin_load(ThreadPoolExecutor(1))
for number in range(10**9):
    rows.put_many([(b"%06d" % (number * 1000 + place), b"v" * 100) for place in range(1000)])
    rows.metadata = b"%d" % (number + 1)
    rows.commit()
    if number == 300:
        print("many", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"many\n"
        process.kill()
    rows = open_map(engine, tmp_path / "map")
    committed = int(rows.metadata or b"")
    assert committed >= 300
    assert [key for key, _ in rows.range(None, None)] == [b"%06d" % number for number in range(committed * 1000)]
    rows.close()


@engines
def test_a_commit_that_is_not_written_is_reported_by_all_that_follow(
    engine: str, tmp_path: Path, beside: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = open_map(engine, tmp_path / "map")
    rows.put(b"a", b"1")
    rows.metadata = b"1"
    rows.begin_load(beside)

    def full(self: object, items: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(type(rows), "_write", full)
        rows.put(b"b", b"2")
        rows.metadata = b"2"
        rows.commit()
        for attempt in (rows.commit, rows.end_load):
            rows.put(b"c", b"3")
            rows.metadata = b"3"
            with pytest.raises(StateError, match="No space is left"):
                attempt()
    # With space again, too: what follows would be written without what was lost.
    with pytest.raises(StateError, match="No space is left"):
        rows.commit()
    rows.close()
    again = open_map(engine, tmp_path / "map")
    assert list(again.range(None, None)) == [(b"a", b"1")]
    assert again.metadata == b"1"
    again.close()


PUTS = st.lists(st.tuples(st.integers(0, 60), st.sampled_from([b"a", b"ab", b"b"]), st.booleans()), max_size=40)


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("indexed", [True, False])
@settings(max_examples=150, deadline=None)
@given(steps=PUTS, sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5), loading=st.booleans())
def test_rows_that_are_loaded_are_those_that_puts_leave(
    persistent: bool, indexed: bool, steps: list[tuple[int, bytes, bool]], sizes: list[int], loading: bool
) -> None:
    one, all_at_once = MemoryMap(), MemoryMap()
    slowly = Segments(one, 20, persistent, suffix=8, indexed=indexed, interval=5)
    fast = Segments(all_at_once, 20, persistent, suffix=8, indexed=indexed, interval=5)
    if loading:
        fast.begin_load()
    rows = []
    for number, (time, key, deletes) in enumerate(steps):
        data = None if deletes else b"%d" % number
        slowly.put(time, key, pack_long(time), data)
        rows.append((time, key + pack_long(time), data))
    place = 0
    while place < len(rows):
        size = sizes[place % len(sizes)]
        fast.load(rows[place : place + size])
        place += size
    if loading:
        fast.end_load()
    assert dict(all_at_once.items()) == dict(one.items())
    assert fast.observed == slowly.observed
    assert list(fast.between(0, 100)) == list(slowly.between(0, 100))
    for key in (b"a", b"ab", b"b"):
        low = pack_long(slowly.first_alive(0))
        assert fast.of_key(key, low, pack_long(100)) == slowly.of_key(key, low, pack_long(100))
