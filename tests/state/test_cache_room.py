"""The room that a cache takes: what entries cost, and which of them are evicted (ThreadCache, NamedCache)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamkit.state.definitions import CurrentTopic, StoreDef
from streamkit.state.layouts import pack_long
from streamkit.state.open_store import create
from streamkit.state.stores.cache import DATA, VALUE, CacheBudget
from tests.state.listening import Listening, entry_size, kv
from tests.state.support import TEXT, definition


def looking_up(budget: CacheBudget) -> tuple[Any, int]:
    """A store of which each forwarded update looks up the row z, and the bytes of an entry."""
    it = kv(budget=budget)
    it.store.put(b"z", 1, 1)
    it.store.flush()
    entry = it.store.cache.size
    it.store.cache.clear()
    it.store.set_listener(lambda *_update: it.store.get(b"z"), True)
    return it.store, entry


def test_what_a_flush_adds_to_its_own_store_counts_twice_as_in_thread_cache() -> None:
    budget = CacheBudget(1 << 20)
    store, entry = looking_up(budget)
    store.put(b"a", 1, 2)
    store.flush()
    assert set(store.entries) == {b"a", b"z"}
    assert (store.cache.size, budget.used) == (2 * entry, 3 * entry)
    store.put(b"a", 2, 3)
    store.flush()
    assert budget.used == 3 * entry
    store.cache.clear()
    assert (store.cache.size, budget.used) == (0, entry)


def test_what_an_eviction_adds_to_its_own_store_counts_twice_as_in_thread_cache() -> None:
    entry = looking_up(CacheBudget(1 << 20))[1]
    budget = CacheBudget(entry)
    store, _ = looking_up(budget)
    store.put(b"a", 1, 2)
    # The eviction of a flushes a and b. For z, which a's update looks up, b and then z itself have to go: one entry less.
    # It is counted when they go, and again when the eviction of a ends. What b's update looks up comes and goes.
    store.put(b"b", 1, 3)
    assert (store.cache.size, budget.used) == (0, -entry)


def test_a_wrong_total_is_put_right_before_memory_is_unbounded() -> None:
    budget = CacheBudget(1 << 20)
    budget.count_twice(-(1 << 20))
    assert budget.used == -(1 << 20)
    budget.count_twice(-1)
    assert budget.used == 0


def test_evicting_a_dirty_entry_flushes_all_dirty_ones_it_first() -> None:
    it = kv(budget=CacheBudget(3 * entry_size(b"a")))
    for key in (b"a", b"b", b"c"):
        it.store.put(key, 1, 1)
    it.store.put(b"a", 2, 2)  # b is the eldest now, and a the last put
    it.store.get(b"b")  # now c is
    it.store.put(b"d", 1, 3)
    assert [update[0] for update in it.forwarded] == [b"c", b"b", b"a", b"d"]
    assert set(it.store.entries) == {b"a", b"b", b"d"}
    assert it.budget.used == 3 * entry_size(b"a")


def test_a_clean_entry_is_evicted_silently_and_read_again() -> None:
    it = kv(budget=CacheBudget(2 * entry_size(b"a")))
    for key in (b"a", b"b"):
        it.store.put(key, 1, 1)
    it.store.flush()
    it.forwarded.clear()
    it.store.put(b"c", 1, 1)
    assert (set(it.store.entries), it.forwarded) == ({b"b", b"c"}, [])
    assert it.store.get(b"a") == (1, 1)
    assert [update[0] for update in it.forwarded] == []
    assert set(it.store.entries) == {b"c", b"a"}


def test_no_budget_at_all_forwards_each_put_at_once() -> None:
    it = kv(budget=CacheBudget(0))
    it.store.put(b"a", 1, 1)
    it.store.put(b"a", 2, 2)
    assert it.forwarded == [(b"a", 1, None, 1, None), (b"a", 2, 1, 2, None)]
    assert it.budget.used == 0


def test_caches_of_a_thread_share_their_budget() -> None:
    budget = CacheBudget(2 * entry_size(b"a"))
    one, other = kv(budget=budget), kv(budget=budget)
    one.store.put(b"a", 1, 1)
    one.store.put(b"b", 1, 1)
    other.store.put(b"c", 1, 1)  # evicts its own: other caches are not touched
    assert (set(one.store.entries), set(other.store.entries)) == ({b"a", b"b"}, set())
    one.store.close()
    assert budget.used == 0


@pytest.mark.parametrize(
    ("store", "put", "bytes_more"),
    [
        (definition("timestamped_key_value"), ("value", 1), 8),
        (definition("key_value"), ("value", 1), 0),
        (definition("window"), (20, "value", 1), 8 + 8 + 12),
        (definition("window", options={"plain": True}), (20, "value", 1), 8 + 12),
        (definition("window", options={"time_ordered": True}), (20, "value", 1), 8 + 8 + 13),
        (definition("window", options={"time_ordered": True}, persistent=False), (20, "value", 1), 8 + 8 + 12),
        (definition("session"), (20, 25, "value", 1), 16 + 8),
    ],
)
def test_entries_cost_what_they_cost_in_java(store: StoreDef, put: tuple, bytes_more: int) -> None:
    it = Listening(replace(store, value_serde=TEXT))
    it.context.topic.size = len("topic")
    headers = [("näme", b"12"), ("none", None)]
    it.store.put(b"key", *put, (headers, "topic", 0, 0))
    assert it.budget.used == 45 + len("key") + len("value") + bytes_more + len("topic") + 4 + 2 + 4
    it.store.put(b"key", *(None if part == "value" else part for part in put), None)
    deleted = it.budget.used
    it.store.flush()
    assert (it.budget.used, deleted < 45 + len("key") + 8 + 8 + 13 + 8 + len("topic")) == (0, True)


def test_what_a_flush_causes_further_down_costs_the_topic_of_its_record() -> None:
    budget = CacheBudget(1 << 20)
    upper, lower = kv(budget=budget), kv(budget=budget)
    upper.context.topic = lower.context.topic = CurrentTopic()
    upper.store = create(definition("timestamped_key_value"), None, upper.context, budget)
    lower.store = create(definition("timestamped_key_value"), None, upper.context, budget)
    upper.store.set_listener(lambda key, new, old, time, context: lower.store.put(key, new, time), False)
    upper.context.topic.size = 5
    upper.store.put(b"a", 1, 1)
    upper.context.topic.size = 9
    upper.store.flush()
    assert budget.used == 2 * (entry_size(b"a") + 5)
    assert upper.context.topic.size == 9


def test_a_change_in_place_may_cost_more_and_make_room() -> None:
    it = kv(budget=CacheBudget(2 * entry_size(b"a") + 8))
    for key in (b"a", b"b"):
        it.store.put(key, 1, 1)
    it.store.flush()
    it.forwarded.clear()
    it.context.topic.size = 4
    for key in (b"b", b"a"):
        entry = it.store.entries[key]
        entry[VALUE], entry[DATA] = 2, None
        it.store.cache.renew(key, entry, None)
    assert it.budget.used == 2 * (entry_size(b"a") + 4)
    it.store.cache.renew(b"a", it.store.entries[b"a"], ([("h", b"")], "topic", 0, 0))
    assert [update[:2] for update in it.forwarded] == [(b"b", 2), (b"a", 2)]
    assert it.budget.used == entry_size(b"a") + 4 + 1


def test_what_a_table_replaces_takes_room_first() -> None:
    it = kv(budget=CacheBudget(2 * entry_size(b"a")))
    it.store.put(b"a", 1, 1)
    it.store.flush()
    for key in (b"b", b"c"):
        it.store.put(key, 1, 1)
    it.forwarded.clear()
    it.store.replace(b"a", 2, 2)
    # The look at a lets go of b, and so writes c too, before the new value of a is there.
    assert [update[0] for update in it.forwarded] == [b"b", b"c"]
    assert set(it.store.entries) == {b"c", b"a"}
    big = kv()
    big.store.put(b"a", 1, 1)
    big.store.flush()
    big.store.forget()
    big.store.cache.load = None  # nothing is read where there is room for anything
    big.budget.resize(1 << 22)
    big.store.replace(b"a", 2, 2)
    assert big.store.get(b"a") == (2, 2)


def test_what_is_looked_at_by_its_task_leaves_last() -> None:
    it = kv(budget=CacheBudget(3 * entry_size(b"a")))
    for key in (b"a", b"b", b"c"):
        it.store.put(key, 1, 1)
    it.store.flush()
    assert [row[0] for row in it.store.range(None, b"b", use=True)] == [b"a", b"b"]
    assert [row[0] for row in it.store.range(b"c", None)] == [b"c"]
    it.store.put(b"d", 1, 1)
    assert set(it.store.entries) == {b"a", b"b", b"d"}


def test_replacing_by_bytes_is_replacing_by_their_value() -> None:
    by_value, by_bytes = (kv(budget=CacheBudget(2 * entry_size(b"a"))) for _ in range(2))
    for number, key in enumerate((b"a", b"b", b"a", b"c", b"a", b"b")):
        value = None if number == 4 else number
        by_value.store.replace(key, value, number)
        by_bytes.store.replace_bytes(key, None if value is None else pack_long(value), number)
        assert by_bytes.store.get(key) == by_value.store.get(key) == (None if value is None else (value, number))
        assert by_bytes.forwarded == by_value.forwarded
        assert set(by_bytes.store.entries) == set(by_value.store.entries)
    assert by_bytes.budget.used == by_value.budget.used
