"""The rows held by key say what the map says, whatever is held, expired or read anew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.state.engines.memory import MemoryMap
from streamkit.state.engines.segments import Segments
from streamkit.state.layouts import pack_long
from streamkit.state.stores import key_rows
from streamkit.state.stores.key_rows import SUFFIX, JoinRows, KeyedOrder

KEYS = st.sampled_from([b"", b"a", b"a\x00", b"a" + bytes(8), b"b"])
TIMES = st.integers(0, 400_000)
WRITES = st.lists(st.tuples(KEYS, TIMES, st.booleans(), st.booleans()), max_size=60)


@pytest.mark.parametrize("held", [700, 3_000, 1 << 26])
@pytest.mark.parametrize("restarts", [False, True])
@given(writes=WRITES, asked=st.lists(st.tuples(KEYS, TIMES, TIMES), max_size=10))
def test_as_the_map(writes: list, asked: list, held: int, restarts: bool) -> None:
    rows = MemoryMap()
    segments = Segments(rows, 120_000, True, suffix=8)
    expected: dict[tuple[bytes, int], bytes] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_rows, "MAX_BYTES", held)
        for number, (key, time, deletes, reads) in enumerate(writes):
            data = None if deletes else b"%d" % number
            if segments.put(time, key, pack_long(time), data):
                expected[key, time] = data
            if reads:
                assert found(segments, key, 0, 400_000) == wanted(expected, segments, key, 0, 400_000)
                assert found(segments, key, time, 400_000) == wanted(expected, segments, key, time, 400_000)
            assert_counted(segments, held)
        if restarts:
            before, segments = segments, Segments(rows, 120_000, True, suffix=8)
            segments.observed = before.observed
        for key, low, high in asked:
            assert found(segments, key, low, high) == wanted(expected, segments, key, low, high)


def assert_counted(segments: Segments, held: int) -> None:
    rows = segments._key_rows
    assert rows.size <= held
    assert rows.size == sum(rows._cost(key, mine) for key, mine in rows._keys.items())


@pytest.mark.parametrize("held", [900, 1 << 26])
@given(writes=st.lists(st.tuples(KEYS, TIMES, st.integers(0, 2), st.booleans()), max_size=60))
def test_rows_of_joins_as_the_map(writes: list, held: int) -> None:
    rows = MemoryMap()
    segments = Segments(rows, 120_000, True, suffix=12, by_key=JoinRows)
    expected: dict[tuple[bytes, int, int], bytes] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_rows, "MAX_BYTES", held)
        patch.setattr(key_rows, "MAX_BYTES", held)
        for number, (key, time, sequence, removes) in enumerate(writes):
            data = b"%d" % number
            if segments.put(time, key, SUFFIX.pack(time, sequence), data):
                expected[key, time, sequence] = data
            if removes:
                segments.remove(time, key + SUFFIX.pack(time, sequence))
                expected.pop((key, time, sequence), None)
            alive = segments.first_alive(0)
            for low, high in ((alive, 400_000), (max(alive, time - 50_000), time)):
                mine = sorted(
                    (*at, data) for (owner, *at), data in expected.items() if owner == key and low <= at[0] <= high
                )
                assert list(segments.join_rows.fetch(key, low, high)) == mine
            assert_counted(segments, held)


def test_keys_that_do_not_recur_leave_with_their_windows() -> None:
    segments = Segments(MemoryMap(), 120_000, True, suffix=8)
    most = []
    for minute in range(1, 31):
        for number in range(100):
            time = minute * 60_000 + number
            segments.put(time, b"%d-%d" % (minute, number), pack_long(time), b"")
        most.append(len(segments._key_rows))
    # Retention is two minutes.
    assert max(most) == 300


def test_a_burst_leaves_nothing_behind() -> None:
    segments = Segments(MemoryMap(), 120_000, True, suffix=8)
    for number in range(10_000):
        segments.put(number, b"%d" % number, pack_long(number), b"")
    assert len(segments._key_rows) == 10_000
    segments.put(300_000, b"later", pack_long(300_000), b"")
    assert len(segments._key_rows) == 1


def test_stream_time_that_leaps_looks_at_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    segments = Segments(MemoryMap(), 3_600_000, True, suffix=8, interval=1)
    passes: list[int] = []
    expire = key_rows.KeyRows.expire
    monkeypatch.setattr(key_rows.KeyRows, "expire", lambda rows: passes.append(len(rows)) or expire(rows))
    for number in range(10_000):
        segments.put(number * 1_000, b"%d" % number, pack_long(number * 1_000), b"")
    # 10,000 rows in as many segments: each is looked at three times at most.
    assert 1 <= sum(passes) <= 30_000


def test_values_count_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_rows, "MAX_BYTES", 100_000)
    segments = Segments(MemoryMap(), 120_000, True, suffix=8)
    for number in range(100):
        segments.put(number, b"key", pack_long(number), bytes(10_000))
        assert segments._key_rows.size <= 100_000
    assert len(found(segments, b"key", 0, 400_000)) == 100


def test_a_key_with_too_much_is_read_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_rows, "MAX_BYTES", 100_000)
    rows = MemoryMap()
    segments = Segments(rows, 120_000, True, suffix=8)
    for number in range(1_000):
        segments.put(number, b"key", pack_long(number), b"x")
    read: list[int] = []
    between = rows.range

    def counted(*arguments: object, **options: object) -> object:
        found = list(between(*arguments, **options))  # type: ignore[arg-type]
        read.append(len(found))
        return iter(found)

    monkeypatch.setattr(rows, "range", counted)
    assert len(found(segments, b"key", 990, 995)) == 6
    assert sum(read) <= 10


def found(segments: Segments, key: bytes, low: int, high: int) -> list[tuple[bytes, bytes]]:
    found = segments.of_key(key, pack_long(segments.first_alive(low)), pack_long(high))
    return list(zip(*found, strict=True))


def wanted(
    rows: dict[tuple[bytes, int], bytes], segments: Segments, key: bytes, low: int, high: int
) -> list[tuple[bytes, bytes]]:
    mine = sorted((time, data) for (owner, time), data in rows.items() if owner == key and data is not None)
    return [(pack_long(time), data) for time, data in mine if segments.first_alive(low) <= time <= high]


@given(changes=st.lists(st.tuples(KEYS, TIMES, st.booleans(), st.booleans()), max_size=80))
def test_order_of_a_cache(changes: list) -> None:
    data: dict[bytes, object] = {}
    order = KeyedOrder(data, 8)
    for key, time, deletes, reads in changes:
        row = key + pack_long(time)
        if (row in data) is deletes:
            order.touch(row)
        if deletes:
            data.pop(row, None)
        else:
            data[row] = None
        if reads:
            mine = sorted(each for each in data if each[:-8] == key)
            assert order.of_key(key, pack_long(0), pack_long(400_000)) == mine
