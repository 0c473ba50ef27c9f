"""The rows held by key say what the map says, whatever is held, expired or read anew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.state import key_rows
from streamkit.state.key_rows import KeyedOrder
from streamkit.state.keys import pack_long
from streamkit.state.memory import MemoryMap
from streamkit.state.segments import Segments

KEYS = st.sampled_from([b"", b"a", b"a\x00", b"a" + bytes(8), b"b"])
TIMES = st.integers(0, 400_000)
WRITES = st.lists(st.tuples(KEYS, TIMES, st.booleans(), st.booleans()), max_size=60)


@pytest.mark.parametrize("held", [2, 10, 1 << 18])
@pytest.mark.parametrize("restarts", [False, True])
@given(writes=WRITES, asked=st.lists(st.tuples(KEYS, TIMES, TIMES), max_size=10))
def test_as_the_map(writes: list, asked: list, held: int, restarts: bool) -> None:
    rows = MemoryMap()
    segments = Segments(rows, 120_000, True, suffix=8)
    expected: dict[tuple[bytes, int], bytes] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_rows, "MAX_ROWS", held)
        for number, (key, time, deletes, reads) in enumerate(writes):
            data = None if deletes else b"%d" % number
            if segments.put(time, key, pack_long(time), data):
                expected[key, time] = data
            if reads:
                assert found(segments, key, 0, 400_000) == wanted(expected, segments, key, 0, 400_000)
        if restarts:
            before, segments = segments, Segments(rows, 120_000, True, suffix=8)
            segments.observed = before.observed
        for key, low, high in asked:
            assert found(segments, key, low, high) == wanted(expected, segments, key, low, high)


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
