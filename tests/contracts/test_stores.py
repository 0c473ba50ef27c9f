"""What every variant of a store does: model tests, restoring, and reopening."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamkit.state.layouts import ProcessorRecordContext
from tests.requirements import EVERY_ENGINE
from tests.state.support import TEXT, VARIANTS, Recorder, Variant, definition, make

variants = pytest.mark.parametrize("variant", VARIANTS)
uncached = pytest.mark.parametrize("variant", [each for each in VARIANTS if not each.values[0].cached])
KEYS = st.sampled_from(["", "a", "ab", "b", "b\x00"])
VALUES = st.none() | st.integers(0, 9)
EXAMPLES = settings(max_examples=30, deadline=None)


def restored(variant: Variant, store: Any, context: Recorder) -> Any:
    with tempfile.TemporaryDirectory() as directory:
        copy, _ = make(variant, store.definition, Path(directory))
        context.replay(copy)
        rows = list(copy.rows())
        copy.close()
    return rows


@variants
@EXAMPLES
@given(steps=st.lists(st.tuples(st.sampled_from(["put", "flush", "commit", "read"]), KEYS, VALUES), max_size=30))
def test_key_value_behaves_as_a_dict(variant: Variant, steps: list[tuple[str, str, int | None]]) -> None:
    model: dict[bytes, tuple[int, int]] = {}
    with tempfile.TemporaryDirectory() as directory:
        store, context = make(variant, definition("timestamped_key_value"), Path(directory), max_bytes=300)
        for time, (step, text, value) in enumerate(steps):
            key = text.encode()
            if step == "put":
                store.put(key, value, time)
                if value is None:
                    model.pop(key, None)
                else:
                    model[key] = (value, time)
            elif step == "flush":
                store.flush()
            elif step == "commit":
                store.flush()
                store.commit()
            assert store.get(key) == model.get(key)
            assert list(store.all()) == [(k, *row) for k, row in sorted(model.items())]
            assert [row[0] for row in store.range(b"a", b"b", reverse=True)] == [
                k for k in sorted(model, reverse=True) if b"a" <= k <= b"b"
            ]
            assert [row[0] for row in store.prefix(b"b")] == [k for k in sorted(model) if k.startswith(b"b")]
            assert store.count() == len(model)
        store.flush()
        assert list(store.rows()) == [(k.decode(), row[0]) for k, row in sorted(model.items())]
        assert restored(variant, store, context) == list(store.rows())
        store.close()


STARTS = st.integers(0, 8).map(lambda n: n * 25_000)


@variants
@pytest.mark.parametrize("time_ordered", [False, True])
@settings(max_examples=15, deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(["put", "put", "flush"]), KEYS, STARTS, VALUES), max_size=25))
def test_windows_behave_as_a_dict_with_retention(variant: Variant, time_ordered: bool, steps: list) -> None:
    model: dict[tuple[bytes, int], int] = {}
    observed, lowest = -1, -1
    with tempfile.TemporaryDirectory() as directory:
        options = {"time_ordered": time_ordered}
        store, context = make(variant, definition("window", options=options), Path(directory))
        for step, text, start, value in steps:
            key = text.encode()
            if step == "put":
                store.put(key, start, value, start)
                store.flush()  # what is cached never expires, which the model does not know
                observed = max(observed, start)
                if value is None:
                    model.pop((key, start), None)
                elif start > observed - 100_000:
                    model[key, start] = value
            lowest = observed - 100_000
            alive = {row: v for row, v in model.items() if row[1] > lowest}
            if variant.cached:
                alive = {row: store.fetch(*row)[0] for row in model}  # clean entries stay readable
            got = {(row.key, row.start): row.value for row in store.all()}
            assert {row: v for row, v in got.items() if row[1] > lowest} == {
                row: v for row, v in alive.items() if row[1] > lowest
            }
            mine = sorted(s for k, s in alive if k == key and 25_000 <= s <= 150_000)
            assert [row.start for row in store.fetch_range(key, 25_000, 150_000) if row.start > lowest] == [
                s for s in mine if s > lowest
            ]
            back = store.fetch_range(key, 25_000, 150_000, reverse=True)
            assert [row.start for row in back] == sorted((row.start for row in back), reverse=True)
        if not variant.cached:
            assert restored(variant, store, context) == list(store.rows())
        store.close()


@variants
@pytest.mark.parametrize("time_ordered", [False, True])
@settings(max_examples=15, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["put", "remove", "flush"]), KEYS, st.integers(0, 20), st.integers(0, 20)),
        max_size=25,
    )
)
def test_sessions_behave_as_a_dict(variant: Variant, time_ordered: bool, steps: list) -> None:
    model: dict[tuple[bytes, int, int], int] = {}
    with tempfile.TemporaryDirectory() as directory:
        options = {"time_ordered": time_ordered}
        store, context = make(variant, definition("session", options=options), Path(directory))
        sign = 1 if variant.persistent else -1
        for number, (step, text, start, length) in enumerate(steps):
            key, end = text.encode(), start + length
            if step == "put":
                store.put(key, start, end, number, number)
                model[key, start, end] = number
            elif step == "remove":
                store.remove(key, start, end, number)
                model.pop((key, start, end), None)
            else:
                store.flush()
            assert store.fetch_session(key, start, end) == model.get((key, start, end))
            mine = [(s, e) for k, s, e in model if k == key and e >= 8 and s <= 12]
            mine.sort(key=lambda row: (row[1], sign * row[0]))
            assert [(row.start, row.end) for row in store.find(key, 8, 12)] == mine
            assert [(row.start, row.end) for row in store.find(key, 8, 12, reverse=True)] == mine[::-1]
            assert {row[:3]: row.value for row in store.all()} == model
        store.flush()
        found = [(row.end, row.start, row.key) for row in store.find_sessions(5, 25)]
        ends = [(e, s, k) for k, s, e in model if 5 <= e <= 25]
        # Java's in-memory store keeps keys apart before it looks at starts.
        assert found == sorted(ends, key=None if variant.persistent else lambda row: (row[0], row[2], row[1]))
        assert restored(variant, store, context) == list(store.rows())
        store.close()


def kind(value: int | None, was: str | None, is_latest: bool) -> str:
    """What a version is to later ones: a value in the place of a deletion, and a deletion before a version, stay known."""
    if value is None:
        return "deletion" if is_latest else "nothing"
    return "value in its place" if is_latest and was not in (None, "value") else "value"


@uncached
@EXAMPLES
@given(steps=st.lists(st.tuples(KEYS, st.integers(0, 300), VALUES), max_size=30))
@example(steps=[("", 1, 0), ("", 1, None), ("", 0, None)])
@example(steps=[("", 1, 0), ("", 2, None), ("", 3, 0), ("", 3, None), ("", 2, 0)])
def test_versions_behave_as_a_list(variant: Variant, steps: list[tuple[str, int, int | None]]) -> None:
    model: dict[bytes, dict[int, int | None]] = {}
    kinds: dict[tuple[bytes, int], str] = {}
    observed = -1
    with tempfile.TemporaryDirectory() as directory:
        store, context = make(variant, definition("versioned"), Path(directory))
        for text, time, value in steps:
            key = text.encode()
            result = store.put(key, value, time)
            if time < observed - 100:
                assert result == -(2**63)
            else:
                observed = max(observed, time)
                versions = model.setdefault(key, {})
                assert result == min((t for t in versions if t > time), default=-1)
                before = kinds.get((key, max((t for t in versions if t < time), default=-1)), "deletion")
                was = kinds.get((key, time))
                if value is None and result == -1 and was == "value" and before == "deletion":
                    # The latest value, deleted at its own time, is taken back: no version before it ends there.
                    del versions[time], kinds[key, time]
                else:
                    versions[time] = value
                    kinds[key, time] = kind(value, was, is_latest=result == -1)
            versions = model.get(key, {})
            for as_of in (None, observed, observed - 50, observed - 100, observed - 101):
                times = [t for t in versions if as_of is None or t <= as_of]
                found = None if not times or versions[max(times)] is None else (versions[max(times)], max(times))
                if as_of is not None and as_of < observed - 100 and times and max(times) != max(versions):
                    found = None
                assert store.get(key, as_of) == found, as_of
        latest = [(k.decode(), v[max(v)]) for k, v in sorted(model.items()) if v and v[max(v)] is not None]
        assert list(store.rows()) == latest
        assert restored(variant, store, context) == latest
        store.close()


@uncached
def test_internal_stores_restore_from_their_changelogs(variant: Variant, tmp_path: Path) -> None:
    where = ProcessorRecordContext(5, 7, "topic", 0, [("h", b"x"), ("n", None)])
    for kind in ("join_window", "outer_join", "suppress", "join_grace", "subscription"):
        store, context = make(variant, definition(kind, grace=5, options={"right_serde": TEXT}), tmp_path / kind)
        if kind == "join_window":
            for value in (1, 2):
                store.put(b"k", value, 5)
        elif kind == "outer_join":
            store.put(b"k", True, 1, 5, 6)
            store.put(b"k", True, 2, 5, 6)
            store.put(b"k", False, "right", 5, 6)
            store.put(b"gone", False, "right", 5, 6)
            assert store.remove(b"gone", False, 5, 7)
        elif kind == "suppress":
            store.put(5, b"a", 1, None, where)
            store.put(6, b"b", 2, 1, where)
            store.flush()
            store.remove_first()
            store.put(7, b"b", 3, 2, where)
            store.flush()
        elif kind == "join_grace":
            for key in (b"b", b"a"):
                assert store.put(key, 1, where)
            assert store.put(b"late", 2, where._replace(timestamp=10))
            assert [row.key for row in store.release()] == [b"a", b"b"]
        else:
            store.put(b"fk", b"pk", b"wrapper", 9)
        rows = list(store.rows())
        assert rows
        assert restored(variant, store, context) == rows
        store.close()


@pytest.mark.parametrize("engine", EVERY_ENGINE)
@pytest.mark.parametrize("kind", ["timestamped_key_value", "window", "session", "versioned"])
def test_reopened_stores_have_what_was_committed(kind: str, engine: str, tmp_path: Path) -> None:
    variant = Variant(persistent=True, engine=engine, cached=False)
    writes: dict[str, tuple] = {
        "timestamped_key_value": (b"k", 1, 5),
        "window": (b"k", 1_700_000_000_000, 1, 5),
        "session": (b"k", 1_700_000_000_000, 1_700_000_000_005, 1, 5),
        "versioned": (b"k", 1, 5),
    }
    store, _ = make(variant, definition(kind), tmp_path)
    store.put(*writes[kind])
    rows = list(store.rows())
    store.flush()
    store.commit()
    store.close()
    again, _ = make(variant, definition(kind), tmp_path)
    assert list(again.rows()) == rows
    assert len(rows) == 1
    if kind == "window":
        assert again.fetch_range(b"k", 0, 2**62)[0].value == 1
    again.close()


@variants
@pytest.mark.parametrize("change", [{"logging": False}, {"source_topic": "table"}], ids=["no-log", "source-topic"])
def test_stores_without_a_changelog_of_their_own_log_nothing(variant: Variant, change: dict, tmp_path: Path) -> None:
    store, context = make(variant, definition("timestamped_key_value", **change), tmp_path)
    store.put(b"k", 1, 5)
    store.flush()
    store.restore(b"j", b"\x00" * 8, 6, None)
    assert context.logged == []
    assert [key for key, _ in store.rows()] == ["j", "k"]
    store.close()
