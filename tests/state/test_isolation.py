"""What the last commit has: maps and stores as queries of read_committed see them (KIP-892)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import QueryError
from streamkit.state.definitions import BytesMap, Query
from streamkit.state.engines.memory import MemoryMap, UndoMap
from streamkit.state.engines.open_maps import open_map
from streamkit.state.engines.overlay import METADATA_KEY
from streamkit.state.open_store import create
from streamkit.state.stores.cache import CacheBudget
from tests.requirements import EVERY_ENGINE
from tests.state.support import Recorder, definition

KEYS = (b"", b"a", b"b", b"c", METADATA_KEY, METADATA_KEY + b"\x00")
WRITES = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from((None, b"1", b"2", b""))), max_size=8)


def check(rows: BytesMap, expected: dict[bytes, bytes]) -> None:
    """Compare a map with the entries that its last commit had."""
    committed = rows.committed()
    assert committed is not None
    assert {key: committed.get(key) for key in KEYS} == {key: expected.get(key) for key in KEYS}
    for low, high, reverse, include in product((None, *KEYS), (None, *KEYS), (False, True), (False, True)):
        wanted = sorted(
            (key, value)
            for key, value in expected.items()
            if (low is None or key >= low) and (high is None or key < high or (include and key == high))
        )
        found = list(committed.range(low, high, reverse, include))
        assert found == (wanted[::-1] if reverse else wanted), (low, high, reverse, include)
        assert list(committed.range(low, high, reverse, include, 1)) == found[:1]


@pytest.mark.parametrize("engine", [None, *EVERY_ENGINE])
def test_a_map_shows_what_its_last_commit_had(engine: str | None, tmp_path: Path) -> None:
    rows = UndoMap() if engine is None else open_map(engine, tmp_path / "store")
    rows.metadata = b"who"
    for key in KEYS:
        rows.put(key, b"old")
    check(rows, {})
    rows.commit()
    rows.put(b"a", b"new")
    rows.put(b"b", None)
    rows.put(METADATA_KEY, None)
    rows.put_many([(b"c", b"1"), (b"c", None), (b"d", b"x")])
    check(rows, dict.fromkeys(KEYS, b"old"))
    rows.delete_range(None, b"b")
    check(rows, dict.fromkeys(KEYS, b"old"))
    rows.commit()
    check(rows, {b"d": b"x", METADATA_KEY + b"\x00": b"old"})


@given(WRITES, WRITES)
def test_a_map_in_memory_undoes_any_writes(before: list[tuple[bytes, Any]], after: list[tuple[bytes, Any]]) -> None:
    rows, model = UndoMap(), {}
    for key, value in before:
        rows.put(key, value)
        model[key] = value
    rows.commit()
    check(rows, {key: value for key, value in model.items() if value is not None})
    for key, value in after:
        rows.put(key, value)
    check(rows, {key: value for key, value in model.items() if value is not None})


@pytest.mark.parametrize("engine", [None, *EVERY_ENGINE])
def test_uncommitted_bytes_are_those_of_each_write_since_the_last_commit(engine: str | None, tmp_path: Path) -> None:
    rows = UndoMap() if engine is None else open_map(engine, tmp_path / "store")
    rows.put(b"key", b"value")
    assert rows.uncommitted_bytes() == 8
    # A row that grows, and one that is deleted.
    rows.put(b"key", b"a longer value")
    assert rows.uncommitted_bytes() == 8 + 17
    rows.put(b"key", None)
    rows.put_many([(b"more", b"1"), (b"more", b"22")])
    assert rows.uncommitted_bytes() == 25 + 3 + 5 + 6
    rows.commit()
    assert rows.uncommitted_bytes() == 0
    # Rows that are written again after their range was deleted.
    rows.put(b"more", b"333")
    rows.put(b"n", b"4")
    rows.delete_range(None, b"z")
    before = rows.uncommitted_bytes()
    assert before >= 7 + 2 + len(b"more")
    rows.put(b"n", b"55555")
    rows.put(b"o", b"6")
    assert rows.uncommitted_bytes() == before + 6 + 2
    rows.commit()
    rows.commit()
    assert rows.uncommitted_bytes() == 0
    rows.close()


def test_a_page_of_a_map_in_memory_reads_no_more_rows_than_writes_may_hide(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = UndoMap()
    rows.put_many([(b"%03d" % number, b"old") for number in range(100)])
    rows.commit()
    for number in range(3):
        rows.put(b"%03d" % number, b"new")
    limits = []

    def counted(read: Any, *args: Any) -> Any:
        limits.append(args[-1])
        return MemoryMap.range(read, *args)

    monkeypatch.setattr(UndoMap, "range", counted)
    assert list(rows.committed().range(None, None, limit=5)) == [(b"%03d" % number, b"old") for number in range(5)]
    assert limits == [5 + 3]


WRITTEN: dict[str, tuple[tuple[Any, ...], tuple[Any, ...], Query]] = {
    "timestamped_key_value": ((b"k", 1, 10), (b"k", 2, 20), Query("get", key=b"k")),
    "window": ((b"k", 0, 1, 10), (b"k", 10, 2, 20), Query("windows", key=b"k")),
    "session": ((b"k", 0, 5, 1, 10), (b"k", 50, 60, 2, 20), Query("sessions")),
    "versioned": ((b"k", 1, 10), (b"k", 2, 20), Query("get", key=b"k")),
}


@pytest.mark.parametrize("ttl", [None, 1000])
@pytest.mark.parametrize("type", WRITTEN)
def test_a_store_answers_with_its_last_commit(type: str, ttl: int | None, tmp_path: Path) -> None:
    if ttl is not None and type != "timestamped_key_value":
        pytest.skip("only rows by key have a time to live")
    first, second, query = WRITTEN[type]
    store: Any = create(replace(definition(type), ttl=ttl), tmp_path, Recorder(), CacheBudget(1_000_000))
    assert store.committed().page(query, 0) == []
    store.put(*first)
    assert store.page(query, 0)
    assert store.committed().page(query, 0) == []
    store.flush()
    store.commit()
    before = store.page(query, 0)
    store.put(*second)
    assert store.committed().page(query, 0) == before != store.page(query, 0)
    store.flush()
    assert store.committed().page(query, 0) == before
    store.commit()
    assert store.committed().page(query, 0) == store.page(query, 0) != before
    store.close()


def test_a_window_that_has_expired_since_is_not_shown(tmp_path: Path) -> None:
    store: Any = create(replace(definition("window"), retention=60_000), tmp_path, Recorder())
    store.put(b"k", 0, 1, 10)
    store.commit()
    store.put(b"k", 100_000, 2, 100_000)
    assert store.committed().page(Query("windows", key=b"k"), 0) == []
    store.close()


def test_a_store_in_memory_says_what_keeps_its_commits() -> None:
    kept = definition("timestamped_key_value", persistent=False)
    with pytest.raises(QueryError, match=r"set enable\.transactional\.statestores: true"):
        create(kept, None, Recorder(), rows=MemoryMap()).committed()
    assert create(kept, None, Recorder(), rows=UndoMap()).committed()
    with pytest.raises(QueryError, match="no state of its last commit"):
        create(definition("suppress"), None, Recorder()).committed()
