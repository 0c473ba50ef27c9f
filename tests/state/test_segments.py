"""Segments of any length: the same rows are found, whether a store was filled or is opened over what it held."""

from __future__ import annotations

import pytest

from streamkit.state.engines.memory import MemoryMap
from streamkit.state.engines.segments import Segments
from streamkit.state.layouts import pack_long

TIMES = (0, 3, 3_000, 59_999, 60_000, 61_000, 100_000)
RETENTION = 50_000


@pytest.mark.parametrize("interval", [1, 7, 1_000, 70_000, None])
def test_rows_of_a_key_in_many_or_few_segments(interval: int | None) -> None:
    rows = MemoryMap()
    filled = Segments(rows, RETENTION, True, suffix=8, interval=interval)
    for time in TIMES:
        for key in (b"a", b"ab"):
            assert filled.put(time, key, pack_long(time), key + b"%d" % time)
    opened = Segments(rows, RETENTION, True, suffix=8, interval=interval)
    opened.observed = TIMES[-1]
    alive = [time for time in TIMES if time > TIMES[-1] - RETENTION]
    for segments in (filled, opened):
        for key in (b"a", b"ab"):
            suffixes, values = segments.of_key(key, pack_long(alive[0]), pack_long(TIMES[-1]))
            assert list(suffixes) == [pack_long(time) for time in alive]
            assert list(values) == [key + b"%d" % time for time in alive]


@pytest.mark.parametrize(("interval", "taken"), [(1, False), (20_000, False), (60_000, True), (None, True)])
def test_a_late_row_is_stored_while_its_segment_exists(interval: int | None, taken: bool) -> None:
    segments = Segments(MemoryMap(), RETENTION, True, suffix=8, interval=interval)
    segments.put(100_000, b"a", pack_long(100_000), b"")
    assert segments.put(10_000, b"a", pack_long(10_000), b"") is taken
