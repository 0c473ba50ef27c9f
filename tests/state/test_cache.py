"""The cache: what it forwards, in which order, and when (NamedCache, ThreadCache, CachingKeyValueStore)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamkit.errors import SerdeError
from streamkit.serdes.primitives import PRIMITIVES
from streamkit.state.base import CurrentTopic
from streamkit.state.cache import CONTEXT, DATA, ENTRY_BYTES, PUT, TIME, USED, VALUE, CacheBudget
from streamkit.state.definitions import StoreDef, create
from streamkit.state.keys import pack_long
from tests.state.support import JSON, TEXT, Recorder, definition

CONTEXT_IN_HAND = (None, "topic", 0, 7)


class Listening:
    """A cached store in memory with everything that it forwards."""

    def __init__(self, store: StoreDef, budget: CacheBudget | None = None, send_old: bool = True):
        self.context = Recorder()
        self.budget = budget or CacheBudget(1 << 20)
        self.store: Any = create(store, None, self.context, self.budget)
        self.forwarded: list[tuple] = []
        self.store.set_listener(lambda *update: self.forwarded.append(update), send_old)


def kv(**options: Any) -> Listening:
    return Listening(definition("timestamped_key_value"), **options)


def test_flush_forwards_the_last_update_of_each_key_in_the_order_of_last_puts() -> None:
    it = kv()
    for number, key in enumerate((b"a", b"b", b"c", b"a")):
        it.store.put(key, number, 10 + number, (None, number))
    assert it.forwarded == []
    it.store.flush()
    assert it.forwarded == [
        (b"b", 1, None, 11, (None, 1)),
        (b"c", 2, None, 12, (None, 2)),
        (b"a", 3, None, 13, (None, 3)),
    ]
    assert [(key, timestamp) for key, _, timestamp, _ in it.context.logged] == [(b"b", 11), (b"c", 12), (b"a", 13)]
    it.store.flush()
    assert len(it.forwarded) == 3


@pytest.mark.parametrize(("send_old", "old"), [(True, 1), (False, None)])
def test_old_values_come_from_the_store_below(send_old: bool, old: int | None) -> None:
    it = kv(send_old=send_old)
    it.store.put(b"a", 1, 1)
    it.store.flush()
    it.store.put(b"a", 2, 2)
    it.store.put(b"a", 3, 3)
    it.store.flush()
    assert it.forwarded[1] == (b"a", 3, old, 3, None)


def test_a_key_that_came_and_went_is_neither_forwarded_nor_logged() -> None:
    it = kv()
    it.store.put(b"a", 1, 1)
    it.store.put(b"a", None, 2)
    it.store.flush()
    assert (it.forwarded, it.context.logged) == ([], [])
    it.store.put(b"a", 1, 3)
    it.store.flush()
    it.store.put(b"a", None, 4)
    it.store.flush()
    assert it.forwarded[1:] == [(b"a", None, 1, 4, None)]
    assert it.context.logged[1:] == [(b"a", None, 4, None)]
    assert it.store.entries == {}


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


def test_without_a_listener_every_dirty_entry_is_written() -> None:
    context = Recorder()
    store: Any = create(definition("key_value"), None, context, CacheBudget(1000))
    store.put(b"a", None, 4)
    store.flush()
    assert context.logged == [(b"a", None, 4, None)]


def entry_size(key: bytes) -> int:
    return ENTRY_BYTES + len(key) + 16


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


def test_a_listener_may_put_into_the_same_store() -> None:
    it = kv()
    seen = []

    def listener(key: bytes, new: Any, old: Any, timestamp: int, context: Any) -> None:
        seen.append((key, new))
        if key == b"a" and new < 3:
            it.store.put(b"a", new + 1, timestamp)

    it.store.set_listener(listener, False)
    it.store.put(b"a", 1, 1)
    it.store.put(b"b", 1, 1)
    it.store.flush()
    assert seen == [(b"a", 1), (b"b", 1)]
    it.store.flush()
    assert seen[2:] == [(b"a", 2)]
    assert it.store.get(b"a") == (3, 1)


def test_entries_may_be_changed_in_place() -> None:
    it = kv()
    it.store.put(b"a", 1, 1)
    it.store.flush()
    cache = it.store.cache
    for value in (5, 6):
        entry = it.store.entries[b"a"]
        entry[VALUE], entry[TIME], entry[DATA] = value, 9, None
        if entry[PUT] and entry[CONTEXT] is CONTEXT_IN_HAND:
            entry[PUT] = entry[USED] = cache.tick()
        else:
            cache.renew(b"a", entry, CONTEXT_IN_HAND)
    assert it.store.get(b"a") == (6, 9)
    it.store.flush()
    assert it.forwarded[1:] == [(b"a", 6, 1, 9, CONTEXT_IN_HAND)]
    assert it.context.logged[1:] == [(b"a", (6).to_bytes(8, "big"), 9, None)]


def test_values_that_can_be_changed_in_place_are_kept_encoded() -> None:
    it = Listening(definition("timestamped_key_value", value_serde=JSON))
    value = {"n": 1}
    it.store.put(b"a", value, 1)
    value["n"] = 2
    it.store.get(b"a")[0]["n"] = 3
    assert it.store.get(b"a") == ({"n": 1}, 1)
    it.store.flush()
    assert it.forwarded == [(b"a", {"n": 1}, None, 1, None)]


def test_a_long_value_is_held_once_and_read_as_it_was_put() -> None:
    store = replace(definition("timestamped_key_value"), value_serde=TEXT)
    it = Listening(store)
    for text in ("s" * 64, "l" * 65):
        it.store.put(b"a", text, 1)
        entry = it.store.entries[b"a"]
        assert (entry[VALUE], entry[DATA]) == (text if len(text) <= 64 else None, text.encode())
        assert it.store.get(b"a") == (text, 1)
    it.store.flush()
    it.store.forget()
    assert it.store.get(b"a") == ("l" * 65, 1)
    assert it.store.entries[b"a"][VALUE] is None
    assert [update[1] for update in it.forwarded] == ["l" * 65]


def test_a_value_of_the_wrong_type_fails_at_the_put() -> None:
    it = kv()
    with pytest.raises(SerdeError):
        it.store.put(b"a", "text", 1)
    assert it.store.entries == {}


def test_windows_and_sessions_forward_key_start_and_end() -> None:
    window = Listening(definition("window"))
    window.store.put(b"a", 20, 1, 21, CONTEXT_IN_HAND)
    window.store.flush()
    assert window.forwarded == [(b"a", 20, 30, 1, None, 21, CONTEXT_IN_HAND)]
    session = Listening(definition("session"))
    session.store.put(b"a", 20, 25, 1, 25)
    session.store.flush()
    session.store.remove(b"a", 20, 25, 26)
    session.store.put(b"b", 1, 2, 1, 2)
    session.store.remove(b"b", 1, 2, 26)
    session.store.flush()
    assert session.forwarded == [(b"a", 20, 25, 1, None, 25, None), (b"a", 20, 25, None, 1, 26, None)]


def test_a_cached_window_stays_readable_and_forwards_although_it_has_expired() -> None:
    it = Listening(definition("window"))
    it.store.put(b"a", 0, 1, 0)
    it.store.flush()
    it.store.put(b"b", 500_000, 1, 500_000)
    it.store.put(b"a", 0, 2, 1)
    it.store.flush()
    assert [update[:2] for update in it.forwarded] == [(b"a", 0), (b"b", 500_000), (b"a", 0)]
    assert it.context.drops == 1
    assert len(it.context.logged) == 3
    assert [(key.key, key.start, value) for key, value in it.store.rows()] == [("a", 0, 2), ("b", 500_000, 1)]


@pytest.mark.parametrize(
    ("serde", "given", "found"),
    [
        ("float", 0.7, 0.699999988079071),
        ("double", 3, 3.0),
        ("double", 0.7, 0.7),
        ("uuid", "1-2-3-4-5", "00000001-0002-0003-0004-000000000005"),
    ],
)
def test_cached_values_are_those_that_their_bytes_decode_to(serde: str, given: Any, found: Any) -> None:
    store = replace(definition("timestamped_key_value"), value_serde=PRIMITIVES[serde])
    it = Listening(store)
    it.store.put(b"a", given, 1)
    values = [it.store.get(b"a")[0]]
    it.store.flush()
    values += [it.store.get(b"a")[0], it.forwarded[0][1]]
    assert [repr(value) for value in values] == [repr(found)] * 3


def test_what_nothing_is_told_of_is_kept_as_what_is_forwarded() -> None:
    it = kv()
    it.store.set_listener(None, True)
    it.store.put(b"a", 1, 1)
    it.store.put(b"a", None, 2)
    it.store.put(b"b", 1, 3)
    it.store.flush()
    assert [row[0] for row in it.context.logged] == [b"b"]
    it.store.put(b"b", None, 4)
    it.store.flush()
    assert it.context.logged[1:] == [(b"b", None, 4, None)]


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
