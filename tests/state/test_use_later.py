"""Searches of cached stores of windows and sessions count as uses in the order of Java, though entries get their stamps only when needed."""

from __future__ import annotations

import random
from typing import Any

import pytest

from streamkit.state.open_store import create
from streamkit.state.stores import cache
from streamkit.state.stores.cache import CacheBudget
from tests.state.support import Recorder, definition

KEYS = (b"a", b"ab", b"b")


def stamped_at_once(store: Any) -> None:
    """Make a store's cache give each entry its stamp when it is used."""

    def use(key: bytes, first: bytes, last: bytes, falling: bool = False) -> None:
        rows = sorted(row for row in store.cache.rows_of(key) if first <= row[-len(first) :] <= last)
        store.cache.use(reversed(rows) if falling else rows)

    store.cache.use_range = use


class Searched:
    """A small cached window store, and what came of it."""

    def __init__(self, entries: int) -> None:
        self.context = Recorder()
        self.store: Any = create(definition("window", persistent=True), None, self.context, CacheBudget(80 * entries))
        self.forwarded: list[tuple] = []
        self.store.set_listener(lambda *update: self.forwarded.append(update), False)

    def do(self, seed: str) -> Any:
        """Put, delete, search or flush, as drawn from a seed."""
        rng = random.Random(seed)
        key, start, what = rng.choice(KEYS), rng.randrange(60) * 4_000, rng.random()
        if what < 0.5:
            return self.store.put(key, start, rng.randrange(9), start)
        if what < 0.55:
            return self.store.put(key, start, None, start)
        if what < 0.57:
            return self.store.flush()
        low = start - rng.choice((0, 1, 20_000, 100_000))
        rows = self.store.walk(key, low, start + rng.choice((-1, 0, 9_000)), reverse=rng.random() < 0.8)
        # A search that is broken off looks at nothing further.
        return [row for row, _ in zip(rows, range(rng.choice((1, 3, 1_000))), strict=False)]

    def state(self) -> tuple:
        """Return all that can be seen of the store."""
        return self.forwarded, self.context.logged, set(self.store.entries), self.store.cache.budget.used


@pytest.mark.parametrize("entries", [3, 12, 40])
def test_entries_leave_as_if_each_search_had_stamped_them(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_MAX_SEARCHES", 20)
    one, other = Searched(entries), Searched(entries)
    stamped_at_once(other.store)
    noted = 0
    for turn in range(1_500):
        seed = f"{entries} {turn}"
        assert one.do(seed) == other.do(seed)
        assert one.state() == other.state()
        noted += bool(one.store.cache._searches)
    assert noted > 20
    assert len(one.forwarded) > 100


class Sessions:
    """A small cached session store, and what came of it."""

    def __init__(self, entries: int) -> None:
        self.context = Recorder()
        self.store: Any = create(definition("session", persistent=True), None, self.context, CacheBudget(80 * entries))
        self.forwarded: list[tuple] = []
        self.store.set_listener(lambda *update: self.forwarded.append(update), False)

    def do(self, seed: str) -> Any:
        """Search and replace what was found by a longer session, as an aggregation does, or search, or flush."""
        rng = random.Random(seed)
        key, time, what = rng.choice(KEYS), rng.randrange(400), rng.random()
        if what < 0.02:
            return self.store.flush()
        found = self.store.find(key, time - 20, time + 20, use=what < 0.9, reverse=what < 0.1)
        expected = [
            row for row in self.store.all() if row.key == key and row.end >= time - 20 and row.start <= time + 20
        ]
        assert sorted(found) == sorted(expected)
        if what < 0.6:
            for row in found:
                self.store.remove(key, row.start, row.end, time)
            start, end = min([time, *(row.start for row in found)]), max([time, *(row.end for row in found)])
            self.store.put(key, start, end, rng.randrange(9), time)
        return found

    def state(self) -> tuple:
        """Return all that can be seen of the store."""
        return self.forwarded, self.context.logged, set(self.store.entries), self.store.cache.budget.used


@pytest.mark.parametrize("entries", [3, 12, 40])
def test_sessions_leave_as_if_each_search_had_stamped_them(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_MAX_SEARCHES", 20)
    one, other = Sessions(entries), Sessions(entries)
    stamped_at_once(other.store)
    for turn in range(2_000):
        seed = f"{entries} {turn}"
        assert one.do(seed) == other.do(seed)
        assert one.state() == other.state()
        live = {row for rows in one.store._live.values() for row in rows}
        assert live == {row for row, entry in one.store.entries.items() if one.store._entry_value(entry) is not None}
    assert len(one.forwarded) > 100


def test_forgetting_a_cache_forgets_its_searches() -> None:
    it = Searched(40)
    for start in (0, 10, 20):
        it.store.put(b"a", start, 1, start)
    assert [row[1] for row in it.store.walk(b"a", 20, 20, reverse=True)] == [20]
    assert it.store.cache._searches
    it.store.forget()
    assert not it.store.cache._searches
