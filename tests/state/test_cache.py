"""The cache: what it forwards, in which order, and when (NamedCache, ThreadCache, CachingKeyValueStore)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamkit.errors import SerdeError
from streamkit.serdes.formats.primitives import PRIMITIVES
from streamkit.state.open_store import create
from streamkit.state.stores.cache import CONTEXT, DATA, PUT, TIME, USED, VALUE, CacheBudget
from tests.state.listening import CONTEXT_IN_HAND, Listening, kv
from tests.state.support import JSON, TEXT, Recorder, definition


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


def test_without_a_listener_every_dirty_entry_is_written() -> None:
    context = Recorder()
    store: Any = create(definition("key_value"), None, context, CacheBudget(1000))
    store.put(b"a", None, 4)
    store.flush()
    assert context.logged == [(b"a", None, 4, None)]


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


def test_a_row_that_was_put_and_deleted_without_a_listener_is_not_logged() -> None:
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
