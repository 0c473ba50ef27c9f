"""Rows with a time to live: a model of a few lines, on every engine, with and without a cache, through restarts."""

from __future__ import annotations

import tempfile
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamkit.runtime import expiry
from streamkit.state.ages import _BEYOND, _INDEX, AgedMap, tick_of
from streamkit.state.cache import DATA, TIME, VALUE
from streamkit.state.keys import pack_long, unpack_long
from streamkit.state.maps import open_map
from streamkit.state.offsets import Owner, decode_offsets, layout_of
from streamkit.state.overlay import METADATA_KEY
from tests.requirements import EVERY_ENGINE
from tests.state.support import VARIANTS, Recorder, Variant, definition, make

TTL = 1_000
STORE = definition("timestamped_key_value", ttl=TTL)
AWKWARD = [METADATA_KEY, METADATA_KEY + b"\x00", METADATA_KEY + b"\x00a", METADATA_KEY + b"\x01", METADATA_KEY + b"a"]
KEYS = st.sampled_from([b"", b"a", b"ab", b"b", b"\xff", b"\xff" * 40, *AWKWARD])
TIMES = st.integers(-1_500, 1_500) | st.integers(0, 30)


class Model:
    """What a time to live means: rows by key, deleted at the first tick at or after their timestamp plus it."""

    def __init__(self) -> None:
        self.rows: dict[bytes, tuple[int, int]] = {}
        self.time = self.looked_at = -1
        self.deleted: list[tuple[bytes, int]] = []

    def write(self, key: bytes, value: int | None, timestamp: int) -> None:
        if value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = (value, timestamp)

    def pass_time(self, time: int) -> None:
        tick = tick_of(TTL)
        self.time = max(self.time, time)
        now = self.time // tick * tick
        if now > self.looked_at:
            due = {key: -((timestamp + TTL) // -tick) * tick for key, (_, timestamp) in self.rows.items()}
            for at, key in sorted((at, key) for key, at in due.items() if at <= now):
                del self.rows[key]
                self.deleted.append((key, at))
            self.looked_at = now


class Kept:
    """A store that is written, left and opened again, with what a task does about time."""

    def __init__(self, variant: Variant, directory: Path):
        self.variant, self.directory = variant, directory
        self.times: dict[str, int] = {}
        self.changelog = Recorder()
        self._open()

    def _open(self) -> None:
        self.store, context = make(self.variant, STORE, self.directory, max_bytes=400)
        self.store._log = self.changelog.log
        self.expiry = expiry.Expiry([self.store], self.times)
        assert self.store.topic is context.topic

    def pass_time(self, time: int, commit: bool) -> None:
        due = self.expiry.next_due()
        assert due is not None
        if time < due:
            return
        self.expiry.run(time, lambda: True)
        while self.expiry.unfinished:
            if commit:
                self.commit()
            self.expiry.run(time, lambda: True)

    def add(self, key: bytes, timestamp: int) -> None:
        """Count as generated code does: in the cache's entry where it holds a value."""
        entry = self.store.entries.get(key)
        if entry is not None and entry[VALUE] is not None:
            entry[VALUE], entry[DATA], entry[TIME] = entry[VALUE] + 1, None, max(entry[TIME], timestamp)
            self.store.cache.renew(key, entry, None)
            return
        count, latest = self.store.get(key) or (0, 0)
        self.store.put(key, count + 1, max(latest, timestamp))

    def commit(self) -> None:
        self.store.flush()
        self.store.commit()

    def restart(self, time: int) -> None:
        """Commit, and go on with what is on disk, or with what the changelog gives."""
        self.commit()
        self.store.close()
        self._open()
        if self.variant.engine is None:
            self.changelog.replay(self.store)
        self.expiry.start(time)
        assert not self.expiry.unfinished

    def restored(self) -> list[tuple]:
        """Return the rows of a store that has read the changelog in batches, as a standby does."""
        columns = [list(column) for column in zip(*self.changelog.logged, strict=True)] or [[], [], [], []]
        with tempfile.TemporaryDirectory() as directory:
            copy, _ = make(replace(self.variant, cached=False), STORE, Path(directory))
            half = len(columns[0]) // 2
            for part in (slice(None, half), slice(half, None)):
                copy.restore_batch(*(column[part] for column in columns))
                copy.commit()
            rows = list(copy.all())
            index = list(copy._map.due(2**62))
            copy.close()
        assert sorted(index) == sorted((copy._map.due_at(time), key) for key, _, time in rows)
        return rows


STEPS = st.tuples(
    st.sampled_from(["write", "write", "add", "add", "commit", "restart"]),
    KEYS,
    st.none() | st.integers(0, 9),
    TIMES,
    st.booleans(),
)


COMMIT_BETWEEN = [
    *[("write", b"", None, 0, False)] * 3,
    ("write", b"", 0, 0, False),
    ("write", b"a", 0, 0, False),
    ("add", b"a", None, 4, False),
    ("write", b"ab", None, 1006, True),
]
"""A row that has changed in place is written by a commit between two deletions."""


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=60, deadline=None)
@example(steps=COMMIT_BETWEEN)
@given(steps=st.lists(STEPS, max_size=25))
def test_rows_are_deleted_as_the_model_does(variant: Variant, steps: list[tuple]) -> None:
    before = expiry._AT_ONCE, expiry._LOOK_AFTER
    expiry._AT_ONCE, expiry._LOOK_AFTER = 2, 1
    model = Model()
    try:
        with tempfile.TemporaryDirectory() as directory:
            kept = Kept(variant, Path(directory))
            for step, key, value, offset, commit in steps:
                if step == "commit":
                    kept.commit()
                elif step == "restart":
                    kept.restart(model.time)
                else:
                    # A record may be late, and a table's row as old as its record.
                    timestamp = max(0, model.time + offset)
                    if step == "add":
                        count, latest = model.rows.get(key, (0, 0))
                        value = count + 1
                        kept.add(key, timestamp)
                        model.write(key, value, max(latest, timestamp))
                    else:
                        kept.store.put(key, value, timestamp)
                        model.write(key, value, timestamp)
                    model.pass_time(timestamp)
                    kept.pass_time(model.time, commit)
                expected = [(key, *row) for key, row in sorted(model.rows.items())]
                assert list(kept.store.all()) == expected
                assert [row[0] for row in kept.store.range(b"a", METADATA_KEY + b"\x01", reverse=True)] == [
                    key for key in sorted(model.rows, reverse=True) if b"a" <= key <= METADATA_KEY + b"\x01"
                ]
                assert kept.store.get(key) == model.rows.get(key)
            kept.commit()
            assert kept.restored() == list(kept.store.all())
            if not variant.cached:
                tombstones = [(key, time) for key, value, time, _ in kept.changelog.logged if value is None]
                deleted = iter(tombstones)
                # Those of the records that delete stand between them.
                assert all(each in deleted for each in model.deleted)
            kept.store.close()
    finally:
        expiry._AT_ONCE, expiry._LOOK_AFTER = before


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
    monkeypatch.setattr("streamkit.state.ages._CHUNK", 30)

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
    monkeypatch.setattr("streamkit.state.ages._CHUNK", chunk)
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
    assert list(again._map.due(2**62)) == sorted((again._map.due_at(time), key) for key, _, time in wanted)
    again.put(*wanted[0][:2], wanted[0][2] + 5_000)
    again.commit()
    assert len(list(again._map._inner.stored(_INDEX, _BEYOND))) == len(wanted)
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
    for _, key in list(rows.due(TTL + 2_000)):
        rows.put(key, None)
    rows.commit()
    assert list(rows._inner.range(None, None)) == []
    assert not rows._new
    assert not rows._gone
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
