"""The index of rows with a time to live: how it is made, loaded and swept, on every engine."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamkit.state.definitions import Owner
from streamkit.state.engines.ages import _BEYOND, _INDEX, AgedMap
from streamkit.state.engines.open_maps import open_map
from streamkit.state.layouts import pack_long, unpack_long
from streamkit.state.store_offsets import decode_offsets, layout_of
from tests.requirements import EVERY_ENGINE
from tests.state.expiring import AWKWARD, STORE, TTL, Kept, dues, end_all, leads
from tests.state.support import VARIANTS, Variant, make


def owner(ttl: int | None) -> Owner:
    return Owner("app", "store", 0, "log", layout=layout_of(replace(STORE, ttl=ttl)))


def opened(engine: str, folder: Path, ttl: int | None) -> Any:
    store, _ = make(Variant(True, engine, False), replace(STORE, ttl=ttl), folder)
    assert store.adopt(owner(ttl)) is None
    return store


@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_a_ttl_that_comes_changes_and_goes_leaves_rows_and_offset(engine: str, tmp_path: Path) -> None:
    rows = [(key, number, number * 10) for number, key in enumerate(sorted([b"a", b"b", *AWKWARD]))]
    store = opened(engine, tmp_path, None)
    for row in rows:
        store.put(*row)
    store.note_position(0, 7)
    store.commit()
    store.close()
    for ttl in (1_000, 50, None, None, 1_000):
        store = opened(engine, tmp_path, ttl)
        assert store.position(0) == 7
        assert list(store.all()) == rows
        if ttl is not None:
            times = sorted((store._map.due_at(time), key) for key, _, time in rows)
            assert list(store._map.due(2**62)) == times
        else:
            assert len(list(store._map.range(None, None))) == len(rows)
        store.put(*rows[0])
        store.commit()
        store.close()


@pytest.mark.parametrize("engine", EVERY_ENGINE)
@pytest.mark.parametrize("ttl", [None, 50, 1_000])
def test_a_process_that_ends_while_the_index_is_made_is_followed_by_one_that_makes_it(
    engine: str, ttl: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(b"%03d" % number, number, number) for number in range(100)] + [(key, 1, 1) for key in AWKWARD]
    store = opened(engine, tmp_path, None)
    for row in rows:
        store.put(*row)
    store.commit()
    store.close()
    monkeypatch.setattr("streamkit.state.engines.ages._CHUNK", 30)

    class Crash(Exception):
        pass

    def fails(*_: object) -> int:
        raise Crash

    store, _ = make(Variant(True, engine, False), STORE, tmp_path)
    monkeypatch.setattr(store._map, "due_at", iter_then(70, store._map.due_at, fails))
    with pytest.raises(Crash):
        store.adopt(owner(TTL))
    store.close()
    store = opened(engine, tmp_path, ttl)
    assert sorted(store.all()) == sorted(rows)
    if ttl is not None:
        assert len(list(store._map.due(2**62))) == len(rows)
    else:
        assert len(list(store._map.range(None, None))) == len(rows)
    store.close()


LOADED = [
    (b"%02d" % (number % 40), None if number % 7 == 3 else pack_long(number), number * 25) for number in range(100)
]
LOADED += [(key, pack_long(1), 500) for key in AWKWARD]
"""Keys, values and timestamps of a changelog: keys come again, and some are deleted."""


def load(store: Any, beside: Executor, records: list[tuple[bytes, bytes | None, int]] = LOADED) -> None:
    """Have a store expect many records, and give it some in batches."""
    store.begin_load(beside)
    for start in range(0, len(records), 30):
        keys, values, times = zip(*records[start : start + 30], strict=True)
        store.restore_batch(list(keys), list(values), list(times), [None] * len(keys))
        store.note_position(0, start + len(keys))
        store.commit()


@pytest.mark.parametrize("engine", EVERY_ENGINE)
@pytest.mark.parametrize("chunk", [10, 50_000])
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("ends", ["in order", "before the index", "while it is written", "before the last commit"])
def test_a_load_leaves_the_rows_and_their_index_however_it_ends(
    engine: str, chunk: int, before: bool, ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamkit.state.engines.ages._CHUNK", chunk)
    store = opened(engine, tmp_path, TTL)
    rows = {key: (value, time) for key, value, time in LOADED}
    if before:
        store.put(b"05", 9, 10)
        store.put(b"before", 9, 10)
        store.commit()
        rows = {b"before": (pack_long(9), 10), **rows}
    with ThreadPoolExecutor(1) as beside:
        load(store, beside)
        commits = iter_then(1, store._map._inner.commit, lambda: 1 // 0)
        if ends == "while it is written" and not before:
            with monkeypatch.context() as patched:
                patched.setattr(store._map._inner, "commit", commits)
                with pytest.raises(ZeroDivisionError):
                    store.end_load()
        elif ends in ("in order", "before the last commit"):
            store.end_load()
            if ends == "in order":
                store.commit()
                assert decode_offsets(store._map.metadata).owner == owner(TTL)
        store.close()
        again = opened(engine, tmp_path, TTL)
    assert again.position(0) == len(LOADED)
    wanted = sorted((key, unpack_long(value)[0], time) for key, (value, time) in rows.items() if value is not None)
    assert list(again.all()) == wanted
    # A load that finds rows leaves entries where they are.
    assert leads(again, wanted) if before else list(again._map.due(2**62)) == dues(again, wanted)
    again.put(*wanted[0][:2], wanted[0][2] + 5_000)
    again.commit()
    assert before or len(list(again._map._inner.stored(_INDEX, _BEYOND))) == len(wanted)
    end_all(again)
    again.close()


@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_a_load_of_an_empty_store_reads_no_row(engine: str, tmp_path: Path) -> None:
    store = opened(engine, tmp_path, TTL)
    with ThreadPoolExecutor(1) as beside:
        load(store, beside, [])
        store._map._inner.get = None
        load(store, beside)
        assert store.measure().rows
        del store._map._inner.get
        store.end_load()
        store.commit()
    assert decode_offsets(store._map.metadata).owner == owner(TTL)
    store.close()


def iter_then(count: int, first: Any, then: Any) -> Any:
    """Return a function that is `first` for so many calls, and `then` afterwards."""
    left = [count]

    def call(*arguments: Any) -> Any:
        left[0] -= 1
        return first(*arguments) if left[0] >= 0 else then(*arguments)

    return call


@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_state_with_a_ttl_is_not_that_of_a_release_that_knows_none(engine: str) -> None:
    """Such a release compares layouts, and restores the store."""
    assert owner(None).other_than(owner(TTL)) == f"is of the layout key_value, ttl {TTL} ms, not key_value"


@pytest.mark.parametrize("kind", ["memory", *EVERY_ENGINE])
def test_deleted_rows_leave_nothing(kind: str, tmp_path: Path) -> None:
    rows = AgedMap(open_map(kind, tmp_path / "map"), TTL)
    for number in range(1_000):
        rows.put(b"k%d" % number, pack_long(number) + b"v")
        rows.put(b"k%d" % number, pack_long(number + 500) + b"v")
        if number % 100 == 0:
            rows.commit()
    for time, key in list(rows.due(TTL + 2_000)):
        rows.take(time, key)
        rows.put(key, None)
    rows.commit()
    assert list(rows._inner.range(None, None)) == []
    assert not rows._new
    assert not rows._gone
    rows.close()


@pytest.mark.parametrize("kind", ["memory", *EVERY_ENGINE])
def test_a_row_whose_entry_was_taken_has_one_again_with_the_commit(kind: str, tmp_path: Path) -> None:
    """What became of it waits in a cache: without that it is the row of the map that counts."""
    rows = AgedMap(open_map(kind, tmp_path / "map"), TTL)
    for key in (b"a", b"b"):
        rows.put(key, pack_long(0) + b"v")
    rows.commit()
    for time, key in list(rows.due(TTL)):
        rows.take(time, key)
    rows.passed()
    rows.put(b"b", None)
    assert list(rows.due(TTL)) == []
    rows.commit()
    assert list(rows.due(TTL)) == [(TTL, b"a")]
    rows.close()


def test_a_sweep_reads_no_entry_of_an_earlier_one(tmp_path: Path) -> None:
    """Entries of rows that were deleted since the last commit are still on disk."""
    rows = AgedMap(open_map("rocksdb", tmp_path / "map"), TTL)
    for number in range(100):
        rows.put(b"k%d" % number, pack_long(number) + b"v")
    rows.commit()
    for _, key in list(rows.due(TTL + 90)):
        rows.put(key, None)
    rows.passed()
    assert sorted(key for _, key in rows.due(TTL + 200)) == [b"k%d" % number for number in range(91, 100)]
    rows.put(b"late", pack_long(5) + b"v")
    rows.commit()
    assert next(rows.due(TTL + 200)) == (1_010, b"late")
    rows.close()


@pytest.mark.parametrize("variant", [each for each in VARIANTS if each.values[0].cached])
@pytest.mark.parametrize("in_map", [False, True])
@pytest.mark.parametrize("looks", [(1_200, 1_499, 1_500), (1_500,), (3_000,)])
def test_a_row_that_changes_in_the_cache_is_due_by_its_last_change(
    variant: Variant, in_map: bool, looks: tuple[int, ...], tmp_path: Path
) -> None:
    kept = Kept(variant, tmp_path)
    kept.add(b"a", 0)
    kept.add(b"b", 20)
    if in_map:
        kept.commit()
    kept.add(b"a", 500)
    for time in looks:
        assert [key for key, _, _ in kept.store.all() if key == b"a"]
        kept.pass_time(time, commit=False)
    assert list(kept.store.all()) == []
    kept.commit()
    deleted = [(key, time) for key, value, time, _ in kept.changelog.logged if value is None]
    assert deleted == [(b"b", 1_020), (b"a", 1_500)]
    kept.store.close()
