"""Pages of stores as others read them: whole, in order, through the cache, and without moving it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streamkit.errors import QueryError
from streamkit.record import WindowedKey
from streamkit.serdes import parse
from streamkit.state.definitions import CurrentTopic, Query, StoreDef, StoredRow
from streamkit.state.open_store import create
from streamkit.state.stores.cache import USED, CacheBudget

KEYS = [b"a", b"aa", b"ab", b"b", b"\xff"]


class Context:
    topic = CurrentTopic()

    def log(self, key, value, timestamp, headers):
        pass

    def dropped(self, reason):
        pass


def store_of(kind: str, path: Path | None, cache: bool, **options):
    definition = StoreDef("s", kind, parse("bytes"), parse("long"), persistent=path is not None, **options)
    return create(definition, path, Context(), CacheBudget(1 << 20) if cache else None)


def variants(kind: str, tmp_path: Path, **options):
    for number, (on_disk, cache) in enumerate([(False, False), (False, True), (True, False), (True, True)]):
        yield store_of(kind, tmp_path / str(number) if on_disk else None, cache, **options)


def pages(store, query: Query, partition: int = 0) -> list:
    """Return all rows, read page by page."""
    rows: list = []
    while page := store.page(query, partition):
        assert len(page) <= query.limit
        rows += page
        query = replace(query, after=(page[-1].place, partition))
    return rows


def keys(rows) -> list:
    return [row.key for row in rows]


def test_key_value_pages(tmp_path):
    for store in variants("timestamped_key_value", tmp_path):
        for number, key in enumerate(KEYS):
            store.put(key, number, number + 10)
        store.flush()
        store.put(b"ab", None, 20)
        store.put(b"c", 7, 21)
        alive = [b"a", b"aa", b"b", b"c", b"\xff"]
        assert keys(pages(store, Query("all", limit=2))) == alive
        assert keys(pages(store, Query("all", limit=2, reverse=True))) == alive[::-1]
        assert keys(pages(store, Query("range", low=b"aa", high=b"c", limit=1))) == [b"aa", b"b", b"c"]
        assert keys(pages(store, Query("range", low=b"aa", high=b"c", limit=1, reverse=True))) == [b"c", b"b", b"aa"]
        assert keys(pages(store, Query("prefix", key=b"a", limit=1))) == [b"a", b"aa"]
        assert keys(pages(store, Query("prefix", key=b"\xff", limit=1))) == [b"\xff"]
        assert store.page(Query("get", key=b"c"), 0) == [StoredRow(b"c", b"c", 7, 21)]
        assert store.page(Query("get", key=b"ab"), 0) == store.page(Query("get", key=b"nothing"), 0) == []
        store.close()


def test_a_page_continues_in_the_next_partition_after_an_equal_key():
    store = store_of("key_value", None, False)
    store.put(b"a", 1, 0)
    store.put(b"b", 2, 0)
    after = Query("all", after=(b"a", 1))
    assert [keys(store.page(after, partition)) for partition in (0, 1, 2)] == [[b"b"], [b"b"], [b"a", b"b"]]
    backwards = Query("all", after=(b"b", 1), reverse=True)
    assert [keys(store.page(backwards, partition)) for partition in (0, 1, 2)] == [[b"b", b"a"], [b"a"], [b"a"]]


def test_reading_leaves_the_cache_as_it_is(tmp_path):
    store = store_of("timestamped_key_value", tmp_path, True)
    store.put(b"a", 1, 0)
    store.flush()
    store.cache.clear()
    store.put(b"b", 2, 0)
    before = {key: entry[USED] for key, entry in store.entries.items()}
    for query in (Query("get", key=b"b"), Query("get", key=b"a"), Query("all")):
        store.page(query, 0)
    assert {key: entry[USED] for key, entry in store.entries.items()} == before


def test_pages_of_windows_have_every_row_once(tmp_path):
    for store in variants("window", tmp_path, retention=1000, window_size=10):
        for start in (0, 10, 20, 30):
            for key in KEYS[:3]:
                store.put(key, start, start, start)
        store.flush()
        store.put(b"aa", 10, None, 40)
        store.put(b"a", 40, 4, 40)
        everything = [(start, key) for start in (0, 10, 20, 30) for key in KEYS[:3] if (start, key) != (10, b"aa")]
        everything.append((40, b"a"))
        for reverse in (False, True):
            rows = pages(store, Query("windows", limit=2, reverse=reverse))
            assert [(row.key.start, row.key.key) for row in rows] == sorted(everything, reverse=reverse)
        rows = pages(store, Query("windows", key=b"a", start=10, end=30, limit=1))
        assert keys(rows) == [WindowedKey(b"a", start, start + 10) for start in (10, 20, 30)]
        store.close()


def test_pages_of_sessions_have_every_row_once(tmp_path):
    for store in variants("session", tmp_path, retention=1000):
        for start, end in ((0, 5), (3, 5), (20, 30)):
            for key in KEYS[:3]:
                store.put(key, start, end, end, end)
        store.flush()
        store.put(b"b", 40, 41, 1, 41)
        everything = [(end, start, key) for start, end in ((0, 5), (3, 5), (20, 30)) for key in KEYS[:3]]
        everything.append((41, 40, b"b"))
        for reverse in (False, True):
            rows = pages(store, Query("sessions", limit=2, reverse=reverse))
            found = [(row.key.end, row.key.start, row.key.key) for row in rows]
            assert found == sorted(everything, reverse=reverse)
        rows = pages(store, Query("sessions", key=b"a", start=5, end=3, limit=1))
        assert [(row.key.start, row.key.end) for row in rows] == [(0, 5), (3, 5)]
        store.close()


def test_a_versioned_store_is_read_as_of_a_time(tmp_path):
    for path in (None, tmp_path):
        store = store_of("versioned", path, False, history=1000)
        for time in (10, 20, 30):
            store.put(b"a", time, time)
        store.put(b"a", None, 25)
        store.put(b"b", 1, 15)
        assert store.page(Query("get", key=b"a", as_of=22), 0) == [StoredRow(b"a", b"a", 20, 20)]
        assert store.page(Query("get", key=b"a", as_of=27), 0) == []
        assert [row.value for row in pages(store, Query("versions", key=b"a", limit=1))] == [30, 20, 10]
        rows = pages(store, Query("versions", key=b"a", start=22, end=29, limit=1))
        assert [row.value for row in rows] == [20]
        rows = pages(store, Query("versions", key=b"a", limit=1, reverse=True))
        assert [row.value for row in rows] == [10, 20, 30]
        assert keys(pages(store, Query("all", limit=1))) == [b"a", b"b"]
        store.close()


def test_what_a_type_does_not_offer_is_refused():
    store = store_of("window", None, False, retention=10, window_size=1)
    with pytest.raises(QueryError, match="store s is a window store: it answers windows, all, not get"):
        store.page(Query("get", key=b"a"), 0)
