"""Bytes in changelogs, as Kafka Streams writes them, and the rules of retention."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from streamkit.config import Config
from streamkit.errors import StateError
from streamkit.state.definitions import StoreDef, changelog_config
from streamkit.state.layouts import (
    BufferValue,
    ProcessorRecordContext,
    combined_key,
    decode_buffer_value,
    prefix_end,
    split_combined_key,
)
from streamkit.state.open_store import create
from streamkit.state.views import processor_view
from tests.state.support import LONG, TEXT, Recorder, definition

ONE = (1).to_bytes(8, "big")


def make(store: StoreDef) -> tuple[Any, Recorder]:
    context = Recorder()
    return create(store, None, context), context


def long(value: int) -> bytes:
    return value.to_bytes(8, "big")


def test_key_value_changelogs_have_plain_values_and_the_values_time() -> None:
    store, context = make(definition("timestamped_key_value"))
    store.put(b"k", 1, 7)
    store.put(b"k", None, 5)
    assert context.logged == [(b"k", ONE, 7, None), (b"k", None, 5, None)]


def test_a_window_changelog_has_key_start_and_sequence_number() -> None:
    store, context = make(definition("window"))
    store.put(b"k", 16, 1, 17)
    store.put(b"k", 16, None, 18)
    key = b"k" + long(16) + bytes(4)
    assert context.logged == [(key, ONE, 17, None), (key, None, 18, None)]


def test_session_changelog_has_the_end_first() -> None:
    store, context = make(definition("session"))
    store.put(b"k", 16, 32, 1, 33)
    store.remove(b"k", 16, 32, 34)
    key = b"k" + long(32) + long(16)
    assert context.logged == [(key, ONE, 33, None), (key, None, 34, None)]


@pytest.mark.parametrize("persistent", [True, False])
def test_removing_a_later_session_advances_the_time_of_stores_on_disk_only(persistent: bool) -> None:
    store, _ = make(definition("session", persistent=persistent))
    store.put(b"k", 16, 32, 1, 33)
    store.remove(b"k", 90, 900, 900)
    assert store.observed_time == (900 if persistent else 32)


def test_join_windows_count_from_one() -> None:
    store, context = make(definition("join_window"))
    for time in (5, 5, 6):
        store.put(b"k", 1, time)
    keys = [b"k" + long(time) + number.to_bytes(4, "big") for number, time in enumerate((5, 5, 6), 1)]
    assert [row[0] for row in context.logged] == keys
    assert store.fetch(b"k", 5, 6) == [(5, 1), (5, 1), (6, 1)]
    store.restore_batch([], [], [], [])
    assert store.fetch(b"k", 5, 6) == [(5, 1), (5, 1), (6, 1)]
    assert store.fetch(b"k", 6, 2**63 - 1) == [(6, 1)]


def test_join_windows_and_subscriptions_log_headers() -> None:
    headers = [("h", b"x")]
    window, windows = make(definition("join_window"))
    window.put(b"k", 1, 5, headers)
    window.put(b"k", None, 6, headers)
    key = b"k" + long(5) + (1).to_bytes(4, "big")
    assert windows.logged == [(key, ONE, 5, headers), (b"k" + long(6) + (2).to_bytes(4, "big"), None, 6, headers)]
    store, subscriptions = make(definition("subscription"))
    store.put(b"f", b"p", b"s", 5, headers)
    store.put(b"f", b"p", None, 6, headers)
    key = combined_key(b"f", b"p")
    assert subscriptions.logged == [(key, b"s", 5, headers), (key, None, 6, headers)]


def test_outer_join_changelog_is_the_whole_list() -> None:
    store, context = make(definition("outer_join", options={"right_serde": TEXT}))
    store.put(b"k", False, "r", 3, 9)
    store.put(b"k", False, "s", 3, 9)
    assert store.remove(b"k", False, 3, 10)
    assert not store.remove(b"k", True, 3, 10)
    key = long(3) + b"\x00k"
    item = b"\x00\x00\x00\x02\x00"
    assert context.logged == [
        (key, b"\x01\x00\x00\x00\x01" + item + b"r", 9, None),
        (key, b"\x01\x00\x00\x00\x02" + item + b"r" + item + b"s", 9, None),
        (key, None, 10, None),
    ]


def test_outer_join_order_is_time_then_right_before_left_then_key() -> None:
    store, _ = make(definition("outer_join", options={"right_serde": TEXT}))
    for time in range(40):
        for left in (True, False):
            for key in (b"b", b"a"):
                store.put(key, left, 1 if left else "r", time, time)
    assert store.min_time() == 0
    seen = []
    for entry in store.scan():
        seen.append((entry.timestamp, entry.left, entry.key))
        store.remove(entry.key, entry.left, entry.timestamp, 99)
    assert seen == [(t, left, key) for t in range(40) for left in (False, True) for key in (b"a", b"b")]
    assert store.min_time() == 2**63 - 1


def test_suppress_changelog_and_accounting() -> None:
    store, context = make(definition("suppress"))
    where = ProcessorRecordContext(5, 6, "tp", 7, [("h", b"x"), ("n", None)])
    store.put(9, b"k", 2, 1, where)
    store.flush()
    context_bytes = long(5) + long(6) + b"\x00\x00\x00\x02tp" + b"\x00\x00\x00\x07" + b"\x00\x00\x00\x02"
    context_bytes += b"\x00\x00\x00\x01h\x00\x00\x00\x01x" + b"\x00\x00\x00\x01n\xff\xff\xff\xff"
    value = (
        context_bytes + b"\x00\x00\x00\x08" + long(1) + b"\xff\xff\xff\xfe" + b"\x00\x00\x00\x08" + long(2) + long(9)
    )
    assert context.logged == [(b"k", value, None, [("v", b"\x03")])]
    assert store.size == 8 + 1 + 8 + 8 + 20 + 2 + 3
    store.put(99, b"k", 3, 2, where)
    assert (store.min_time, store.count, store.prior(b"k"), store.prior(b"x")) == (9, 1, (True, 1), (False, None))
    assert store.size == 8 + 1 + 8 + 8 + 8 + 20 + 2 + 3
    assert [(e.key, e.new, e.old, e.context) for e in store.evict_until(9)] == [(b"k", 3, 2, where)]
    store.flush()
    assert context.logged[1:] == [(b"k", None, None, None)]
    assert (store.size, store.count, store.first()) == (0, 0, None)


def test_suppress_logs_the_keys_of_a_commit_in_the_order_of_a_java_hash_set() -> None:
    store, context = make(definition("suppress"))
    where = ProcessorRecordContext(0, 0, "t", 0, None)

    def logged(keys: list[bytes]) -> list[bytes]:
        context.logged.clear()
        for key in keys:
            store.put(0, key, 1, None, where)
        store.flush()
        return [row[0] for row in context.logged]

    # Windows of one key: Kafka Streams logs the one that begins at 18 before the one at 12.
    assert logged([b"c" + long(12), b"c" + long(18)]) == [b"c" + long(18), b"c" + long(12)]
    assert logged([b"\xff", b"\x7f", b"a"]) == [b"a", b"\xff", b"\x7f"]
    # The set grows with the keys of a commit, and stays large.
    few = [bytes([17]), bytes([1])]
    assert logged(few) == few
    logged([bytes([each]) for each in range(13)])
    assert logged(few) == few[::-1]


def test_suppress_evicts_by_time_then_key() -> None:
    store, _ = make(definition("suppress"))
    where = ProcessorRecordContext(0, 0, "t", 0, None)
    for time, key in ((2, b"a"), (1, b"c"), (1, b"b"), (3, b"d")):
        store.put(time, key, 1, None, where)
    assert [row.key for row in store.evict_until(2)] == [b"b", b"c", b"a"]
    store.restore(b"d", None, 0, None)
    assert (store.count, store.size, store.min_time) == (0, 0, 2**63 - 1)
    with pytest.raises(StateError, match="unknown format"):
        store.restore(b"d", b"", 0, [("v", b"\x01")])


def test_a_standby_of_suppress_holds_no_more_than_what_waits() -> None:
    store, _ = make(definition("suppress"))
    value = BufferValue(None, None, ONE, ProcessorRecordContext(0, 0, "t", 0, None)).encode(5)
    for number in range(20_000):
        store.restore(b"%d" % number, value, 5, [("v", b"\x03")])
        if number >= 100:
            store.restore(b"%d" % (number - 100), None, 5, None)
    assert store.count == 100
    assert len(store._queue) <= 1_500
    assert [entry.key for entry in store.evict_until(5)] == sorted(b"%d" % number for number in range(19_900, 20_000))
    assert store.size == store.count == 0


@pytest.mark.parametrize("prior", [None, b"", b"p"])
@pytest.mark.parametrize("old", [None, b"", b"p"])
def test_buffer_values_come_back(prior: bytes | None, old: bytes | None) -> None:
    value = BufferValue(prior, old, None, ProcessorRecordContext(1, 2, "t", 3, None))
    assert decode_buffer_value(value.encode(4)) == (value, 4)


def test_grace_buffer_refuses_what_is_late_and_releases_in_order() -> None:
    store, context = make(definition("join_grace", grace=10))
    where = ProcessorRecordContext(0, 0, "t", 0, None)
    for key, time in ((b"b", 5), (b"a", 5), (b"c", 3), (b"d", 14)):
        assert store.put(key, 1, where._replace(timestamp=time))
    assert not store.put(b"late", 1, where._replace(timestamp=3))
    assert [(row.key, row.context.timestamp) for row in store.release()] == [(b"c", 3)]
    assert store.put(b"e", 1, where._replace(timestamp=15))
    assert [row.key for row in store.release()] == [b"a", b"b"]
    assert context.logged[0][0] == b"\x00" + long(5) + b"b" + b"\x00\x00\x00\x01"
    assert context.logged[0][2] is None


def test_subscriptions_by_foreign_key() -> None:
    store, context = make(definition("subscription"))
    for foreign, primary in ((b"f", b"2"), (b"f", b"1"), (b"ff", b"0"), (b"e", b"9")):
        store.put(foreign, primary, b"w" + primary, 7)
    assert store.prefix(b"f") == [(b"1", b"w1", 7), (b"2", b"w2", 7)]
    assert store.get(b"ff", b"0") == (b"w0", 7)
    store.put(b"f", b"1", None, 8)
    assert context.logged[0] == (b"\x00\x00\x00\x01f2", b"w2", 7, None)
    assert context.logged[-1] == (b"\x00\x00\x00\x01f1", None, 8, None)
    assert split_combined_key(combined_key(b"f", b"p")) == (b"f", b"p")


@pytest.mark.parametrize(
    "changes", [{"type": "timestamped_key_value"}, {"type": "timestamped_key_value", "ttl": 50}, {"type": "versioned"}]
)
def test_records_without_a_key_restore_nothing(changes: dict[str, Any]) -> None:
    """A table's topic may have some, and restores its store with `topology.optimization`."""
    store, _ = make(definition(**changes))
    store.restore_batch([None, b"k", None], [ONE, ONE, None], [1, 2, 3], [None] * 3)
    assert [key for key, _ in store.rows()] == ["k"]


def test_versioned_changelog_has_late_puts_too() -> None:
    store, context = make(definition("versioned"))
    assert store.put(b"k", 1, 200) == -1
    assert store.put(b"k", 2, 150) == 200
    assert store.put(b"k", 3, 99) == -(2**63)
    assert [row[2] for row in context.logged] == [200, 150, 99]
    assert context.drops == 1
    assert store.delete(b"k", 300) == (1, 200)
    assert (store.get(b"k"), store.get(b"k", 250)) == (None, (1, 200))
    store.put(b"other", 1, 1000)
    assert len(list(store._map.range(None, None))) == 1


@pytest.mark.parametrize(("persistent", "kept"), [(True, True), (False, False)])
def test_expired_windows_are_refused_by_segment_or_by_time(persistent: bool, kept: bool) -> None:
    store, context = make(definition("window", persistent=persistent))
    store.put(b"a", 170_000, 1, 170_000)
    assert store.put(b"a", 69_000, 1, 0) is kept  # expired at 70,000; its segment begins at 60,000
    assert store.put(b"a", 59_000, 1, 0) is False
    assert store.fetch(b"a", 69_000) is None
    assert (context.drops, len(context.logged)) == (1 if kept else 2, 3)


def test_order_of_all_windows_follows_the_kind_of_store() -> None:
    starts = [(b"a", 0), (b"a", 70_000), (b"b", 0), (b"b", 10)]
    expected = {
        (True, False): [(b"a", 0), (b"b", 0), (b"b", 10), (b"a", 70_000)],
        (False, False): [(b"a", 0), (b"b", 0), (b"b", 10), (b"a", 70_000)],
    }
    for (persistent, ordered), order in expected.items():
        store, _ = make(definition("window", persistent=persistent, options={"time_ordered": ordered}))
        for key, start in starts:
            store.put(key, start, 1, start)
        assert [row[:2] for row in store.all()] == order
        assert [row[:2] for row in store.all(reverse=True)] == order[::-1]
    rocks, _ = make(definition("window"))
    for key, start in ((b"a", 5), (b"b", 1)):
        rocks.put(key, start, 1, start)
    assert [row.key for row in rocks.all()] == [b"a", b"b"]
    timed, _ = make(definition("window", options={"time_ordered": True}))
    for key, start in ((b"a", 5), (b"b", 1)):
        timed.put(key, start, 1, start)
    assert [row.key for row in timed.fetch_all(0, 5)] == [b"b", b"a"]


RETAINED = Config.windowstore_changelog_additional_retention_ms.default


def logged(kind: str) -> StoreDef:
    """A definition with the settings of a changelog that the DSL makes for it."""
    return definition(kind, topic_config={"cleanup.policy": "delete"} if kind == "join_window" else {})


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("timestamped_key_value", {"cleanup.policy": "compact"}),
        ("suppress", {"cleanup.policy": "compact"}),
        ("window", {"cleanup.policy": "compact,delete", "retention.ms": "86500000"}),
        ("session", {"cleanup.policy": "compact,delete", "retention.ms": "86500000"}),
        ("join_window", {"cleanup.policy": "delete", "retention.ms": "86500000"}),
        ("versioned", {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400100"}),
    ],
)
def test_changelog_topics(kind: str, expected: dict[str, str]) -> None:
    assert changelog_config(logged(kind), {}, RETAINED) == {"message.timestamp.type": "CreateTime", **expected}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("timestamped_key_value", {"cleanup.policy": "compact", "retention.ms": "77", "min.compaction.lag.ms": "5"}),
        ("window", {"cleanup.policy": "compact", "retention.ms": "100007", "min.compaction.lag.ms": "5"}),
        ("join_window", {"cleanup.policy": "delete", "retention.ms": "100007", "min.compaction.lag.ms": "5"}),
        ("versioned", {"cleanup.policy": "compact", "retention.ms": "77", "min.compaction.lag.ms": "86400100"}),
    ],
)
def test_defaults_of_topics_do_not_lower_what_a_store_needs(kind: str, expected: dict[str, str]) -> None:
    defaults = {"retention.ms": "77", "min.compaction.lag.ms": "5", "cleanup.policy": "compact"}
    found = changelog_config(logged(kind), defaults, additional_retention=7)
    assert found == {"message.timestamp.type": "CreateTime", **expected}


def test_retention_ends_at_the_largest_long() -> None:
    found = changelog_config(definition("window"), {}, additional_retention=2**63 - 1)
    assert found["retention.ms"] == str(2**63 - 1)


def test_definitions_travel_between_processes() -> None:
    store = definition("window", options={"time_ordered": True})
    assert pickle.loads(pickle.dumps(store)) == store


def test_bytes_after_a_prefix() -> None:
    assert (prefix_end(b"ab"), prefix_end(b"a\xff"), prefix_end(b"\xff"), prefix_end(b"")) == (b"ac", b"b", None, None)


def test_processors_see_objects() -> None:
    store, context = make(definition("key_value", key_serde=TEXT, value_serde=LONG))
    view = processor_view(store, lambda: (77, None))
    assert view.put_if_absent("a", 1) is None
    assert view.put_if_absent("a", 2) == 1
    view.put("ab", 3)
    view.put("b", 4)
    assert list(view.range("a", "ab")) == [("a", 1), ("ab", 3)]
    assert list(view.prefix("a", reverse=True)) == [("ab", 3), ("a", 1)]
    assert (view.delete("b"), view.count(), list(view.all(reverse=True))) == (4, 2, [("ab", 3), ("a", 1)])
    assert {row[2] for row in context.logged} == {77}
    windows = processor_view(make(definition("window"))[0], lambda: (7, None))
    windows.put("k", 1, 20)
    assert (windows.fetch("k", 20), windows.fetch("k", 0, 50)) == (1, [(20, 1)])
    assert [(key.key, key.start, key.end) for key, _ in windows.all()] == [("k", 20, 30)]
    sessions = processor_view(make(definition("session"))[0], lambda: (7, None))
    sessions.put("k", 1, 5, 9)
    assert [(key.start, key.end, value) for key, value in sessions.fetch("k")] == [(1, 5, 9)]
    sessions.remove("k", 1, 5)
    assert sessions.find("k", 0, 9) == []
    versions = processor_view(make(definition("versioned"))[0], lambda: (7, None))
    versions.put("k", 1, 5)
    assert versions.get("k", 5) == (1, 5)
    with pytest.raises(StateError, match="internal"):
        processor_view(make(definition("suppress"))[0], lambda: (7, None))
