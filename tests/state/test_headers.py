"""Stores of dsl.store.format HEADERS: what they keep, log, restore and return (KIP-1271, KIP-1356)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import QueryError
from streamkit.record import Headers
from streamkit.state.definitions import Owner, Query, StoreDef
from streamkit.state.engines.headed import HeadedMap, headed_row
from streamkit.state.engines.memory import MemoryMap
from streamkit.state.layouts import decode_headers, encode_headers, headed_value, split_headed_value
from streamkit.state.open_store import create
from streamkit.state.store_offsets import layout_of
from streamkit.state.stores.cache import CacheBudget
from tests.state.support import Recorder, definition

HEADERS: Headers = [("h", b"1"), ("none", None), ("h", b"")]
HEADED = {"headers": True}
SOME_HEADERS = st.lists(st.tuples(st.text(max_size=70), st.none() | st.binary(max_size=200)), max_size=5)


def table(**changes: Any) -> StoreDef:
    """Return the store of a table that is restored from its source topic."""
    return definition("timestamped_key_value", options=HEADED, changelog_topic=None, source_topic="in", **changes)


@given(SOME_HEADERS, st.binary(), st.integers(-1, 2**61 - 1))
def test_headers_are_read_as_they_were_written(headers: Headers, value: bytes, time: int) -> None:
    assert decode_headers(encode_headers(headers)) == headers
    prefix, found = split_headed_value(headed_value(value, time, headers))
    assert (found, prefix[-8:]) == (value, time.to_bytes(8, "big", signed=True))
    rows = HeadedMap(MemoryMap())
    rows.put_many([(b"k", headed_row(time, value, headers))])
    plain = time.to_bytes(8, "big", signed=True) + value
    assert rows.get(b"k") == plain
    assert list(rows.range(None, None)) == [(b"k", plain)]
    assert decode_headers(rows.headers(b"k")) == headers


@pytest.mark.parametrize("budget", [None, CacheBudget(1_000_000)])
def test_rows_have_the_headers_of_the_records_they_were_restored_from(
    budget: CacheBudget | None, tmp_path: Path
) -> None:
    store: Any = create(table(), tmp_path, Recorder(), budget)
    store.restore_batch([b"k", b"l", b"m"], [b"\0" * 8] * 3, [1, 2, 3], [HEADERS, None, HEADERS])
    store.commit()
    asked = Query("all", headers=True)
    assert [(row.timestamp, row.headers) for row in store.page(asked, 0)] == [(1, HEADERS), (2, None), (3, HEADERS)]
    assert [row.headers for row in store.page(Query("all"), 0)] == [None, None, None]
    # Steps write no headers (KTableSource).
    store.get(b"k")
    assert store.row_headers(b"k") == HEADERS
    store.put(b"k", 7, 9, HEADERS)
    assert [row.headers for row in store.page(asked, 0)] == [None, None, HEADERS]
    assert [row.headers for row in store.committed().page(asked, 0)] == [HEADERS, None, HEADERS]
    store.flush()
    assert store.row_headers(b"k") is None
    store.close()


def test_a_restored_row_takes_the_room_of_its_headers_in_a_cache() -> None:
    sizes = []
    for headers in (None, HEADERS):
        budget = CacheBudget(1_000_000)
        store: Any = create(table(), None, Recorder(), budget)
        store.restore(b"k", b"\0" * 8, 1, headers)
        store.get(b"k")
        sizes.append(budget.used)
    # Java's value is the headers after their length, timestamp, value; without headers the length alone.
    assert sizes[0] == 45 + 1 + (1 + 8 + 8)
    assert sizes[1] - sizes[0] == len(encode_headers(HEADERS))


@pytest.mark.parametrize("context", [HEADERS, (HEADERS, "in", 0, 5)])
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("type", ["timestamped_key_value", "window", "session"])
def test_deletions_are_logged_with_the_headers_of_their_record(type: str, cached: bool, context: Any) -> None:
    logs = []
    for options in ({}, HEADED):
        recorder = Recorder()
        budget = CacheBudget(1_000_000) if cached else None
        store: Any = create(definition(type, options=options), None, recorder, budget)
        place = {"timestamped_key_value": (b"k",), "window": (b"k", 0), "session": (b"k", 0, 5)}[type]
        store.put(*place, 1, 10, context)
        store.flush()
        store.put(*place, None, 20, context)
        store.flush()
        logs.append([headers for _, _, _, headers in recorder.logged])
    assert logs == [[None, None], [None, HEADERS]]


def test_sessions_leave_a_cache_without_headers() -> None:
    store: Any = create(definition("session", options=HEADED), None, Recorder(), CacheBudget(1_000_000))
    seen = []
    store.set_listener(lambda *change: seen.append(change[-1]), False)
    store.put(b"k", 0, 5, 1, 10, HEADERS)
    store.put(b"l", 0, 5, 1, 10, (HEADERS, "in", 0, 5))
    store.flush()
    assert seen == [None, (None, "in", 0, 5)]


def test_a_plain_store_on_disk_is_taken_over_and_one_with_headers_is_not(tmp_path: Path) -> None:
    with_headers, plain = table(), replace(table(), options={})

    def opened(kept: StoreDef) -> tuple[Any, str | None]:
        store: Any = create(kept, tmp_path, Recorder())
        return store, store.adopt(Owner("app", kept.name, 0, "in", "id", layout_of(kept)))

    store, problem = opened(plain)
    assert problem is None
    store.restore(b"k", b"\0" * 8, 1, HEADERS)
    store.note_position(0, 1)
    store.commit()
    store.close()
    store, problem = opened(with_headers)
    assert (problem, store.position(0), store.row_headers(b"k")) == (None, 1, None)
    store.restore(b"k", b"\0" * 8, 2, HEADERS)
    store.commit()
    store.close()
    store, problem = opened(with_headers)
    assert (problem, store.row_headers(b"k")) == (None, HEADERS)
    store.close()
    store, problem = opened(plain)
    assert problem == "is of the layout key_value, headers, not key_value"
    store.close()


@pytest.mark.parametrize(
    ("kept", "why"),
    [
        (definition("timestamped_key_value"), "keeps no headers: dsl.store.format: HEADERS is for tables"),
        (definition("window", options=HEADED), "no window or session of a step has any"),
    ],
)
def test_queries_for_headers_say_why_a_store_has_none(kept: StoreDef, why: str) -> None:
    from streamkit.state.definitions import require_headers

    with pytest.raises(QueryError, match=why):
        require_headers(kept)


def test_a_buffer_logs_what_stands_before_its_values_as_headers() -> None:
    from streamkit.state.layouts import ProcessorRecordContext

    buffer = definition("suppress", options=HEADED, persistent=False)
    recorder = Recorder()
    store: Any = create(buffer, None, recorder)
    for time, new, old in ((1, 5, 4), (2, 6, 5)):
        store.put(time, b"k", new, old, ProcessorRecordContext(time, 0, "in", 0, HEADERS))
        store.flush()
    first, second = (headers for _, _, _, headers in recorder.logged)
    unknown = headed_value(b"", -1, None)
    assert first == [("v", b"\x03"), ("vh.old", unknown)]
    assert second == [("v", b"\x03"), ("vh.prior", unknown), ("vh.old", headed_value(b"", 1, HEADERS))]
    again: Any = create(buffer, None, Recorder())
    recorder.replay(again)
    assert (again.size, again.prior(b"k"), again.prior_time(b"k"), again.first()) == (
        store.size,
        (True, 4),
        -1,
        store.first(),
    )
