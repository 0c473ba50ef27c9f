"""The offsets that a store on disk holds, and the row of its engine that no read returns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.errors import StateError
from streamkit.state.definitions import Owner, StoreDef
from streamkit.state.engines.memory import MemoryMap
from streamkit.state.engines.open_maps import open_map
from streamkit.state.engines.overlay import METADATA_KEY, OverlayMap
from streamkit.state.store_offsets import StoreOffsets, decode_offsets, layout_of
from tests.requirements import EVERY_ENGINE
from tests.state.support import Text

OWNER = Owner("app", "counts", 1, "app-counts-changelog", "abc", "key_value")


@pytest.fixture(params=EVERY_ENGINE)
def rows(request: pytest.FixtureRequest, tmp_path: Path) -> OverlayMap:
    opened = open_map(request.param, tmp_path / "store")
    assert isinstance(opened, OverlayMap)
    return opened


def again(rows: OverlayMap) -> OverlayMap:
    rows.close()
    return type(rows)(rows._path)


def test_no_read_shows_the_metadata(rows: OverlayMap) -> None:
    rows.metadata = b"first"
    rows.commit()
    rows.put(b"a", b"1")
    rows.put(METADATA_KEY + b"\xff", b"2")
    rows.commit()
    rows = again(rows)
    assert rows.metadata == b"first"
    kept = [(b"a", b"1"), (METADATA_KEY + b"\xff", b"2")]
    assert list(rows.range(None, None)) == kept
    assert list(rows.range(None, None, reverse=True)) == kept[::-1]
    assert list(rows.range(METADATA_KEY, METADATA_KEY)) == []
    assert list(rows.range(None, None, reverse=True, limit=1)) == kept[1:]
    assert rows.get(METADATA_KEY) is None
    rows.delete_range(None, METADATA_KEY + b"\x00")
    rows.commit()
    assert list(again(rows).range(None, None)) == kept[1:]


def test_metadata_alone_is_a_commit_and_nothing_new_is_none(rows: OverlayMap, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[list] = []
    monkeypatch.setattr(rows, "_write", lambda items: written.append(list(items)))
    rows.commit()
    rows.metadata = b"m"
    rows.commit()
    rows.commit()
    rows.put(b"k", b"v")
    rows.put(b"a", b"v")
    rows.commit()
    assert [[key for key, _ in batch] for batch in written] == [[METADATA_KEY], [b"a", b"k", METADATA_KEY]]


def test_a_batch_that_fails_is_still_there(rows: OverlayMap, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(items: object) -> None:
        raise OSError(28, "No space left on device")

    rows.metadata = b"m"
    rows.put(b"k", b"v")
    rows.put(METADATA_KEY, b"w")
    with monkeypatch.context() as patched:
        patched.setattr(rows, "_write", full)
        with pytest.raises(StateError, match="No space is left"):
            rows.commit()
    assert list(rows.range(None, None)) == [(b"k", b"v"), (METADATA_KEY, b"w")]
    rows.commit()
    rows = again(rows)
    assert (rows.metadata, list(rows.range(None, None))) == (b"m", [(b"k", b"v"), (METADATA_KEY, b"w")])


KEYS = st.sampled_from([b"a", METADATA_KEY[:-1], METADATA_KEY, METADATA_KEY + b"\x00", b"\xff" * 40])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.sampled_from([b"", b"v", None])),
        st.tuples(st.just("commit"), st.binary(min_size=1, max_size=3), st.none()),
        st.tuples(st.just("delete"), st.none() | KEYS, KEYS),
        st.tuples(st.just("reopen"), st.none(), st.none()),
    ),
    max_size=12,
)


@pytest.mark.parametrize("engine", EVERY_ENGINE)
@settings(max_examples=30, deadline=None)
@given(steps=STEPS, low=st.none() | KEYS, high=st.none() | KEYS)
def test_a_record_may_have_the_key_of_the_metadata(
    engine: str, tmp_path_factory: pytest.TempPathFactory, steps: list, low: bytes | None, high: bytes | None
) -> None:
    rows = open_map(engine, tmp_path_factory.mktemp("rows") / "store")
    assert isinstance(rows, OverlayMap)
    plain, metadata = MemoryMap(), None
    for what, one, other in steps:
        if what == "put":
            rows.put(one, other)
            plain.put(one, other)
        elif what == "commit":
            rows.metadata = metadata = one
            rows.commit()
        elif what == "delete":
            rows.delete_range(one, other)
            plain.delete_range(one, other)
        else:
            rows.commit()
            rows = again(rows)
        assert rows.get(METADATA_KEY) == plain.get(METADATA_KEY)
        for reverse in (False, True):
            assert list(rows.range(low, high, reverse)) == list(plain.range(low, high, reverse))
    assert rows.metadata == metadata
    rows.close()


def test_offsets_are_json_that_comes_back() -> None:
    offsets = StoreOffsets(OWNER, {1: 7})
    assert offsets.encode().startswith(b'{"application":"app","store":"counts","partition":1,')
    assert decode_offsets(offsets.encode()) == offsets
    for damaged in (b"", b"{}", b"[]", b'{"positions": {"x": 1}}', offsets.encode()[:-1]):
        with pytest.raises(ValueError, match="can't be read"):
            decode_offsets(damaged)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"topic_id": ""}, None),
        ({"topic_id": "xyz"}, "follows a topic app-counts-changelog that was deleted since"),
        ({"application": "other"}, "is of the application other, not app"),
        ({"partition": 2}, "is of the partition 2, not 1"),
        ({"topic": "words", "topic_id": "xyz"}, "is of the changelog words, not app-counts-changelog"),
        ({"layout": "window"}, "is of the layout window, not key_value"),
    ],
)
def test_an_owner_knows_what_is_not_its_own(change: dict, words: str | None) -> None:
    assert OWNER.other_than(replace(OWNER, **change)) == words


def test_the_layout_of_windows_has_the_length_of_their_segments() -> None:
    serde = Text()
    hour, day = 3_600_000, 86_400_000
    assert layout_of(StoreDef("s", "timestamped_key_value", serde, serde)) == "key_value"
    windows = StoreDef("s", "window", serde, serde, retention=day, window_size=hour)
    assert layout_of(windows) == f"window in segments of {day // 2} ms"
    by_time = replace(windows, segment_interval=hour, options={"time_ordered": True})
    assert layout_of(by_time) == f"window in segments of {hour} ms, also by time"
