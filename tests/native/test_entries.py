"""Counting in the entries of a cache by the extension: what generated code does without it, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.requirements import extension

_native = extension()

CONTEXTS: list[Any] = [None, [("a", b"1")], [("a", b"1")]]
NUMBERS = st.integers(0, 3) | st.integers(-(2**64), 2**64) | st.sampled_from([2**63 - 2, 2**63 - 1, -(2**63)])
ENTRIES = st.tuples(NUMBERS | st.none(), NUMBERS, st.sampled_from(CONTEXTS), st.sampled_from([0, 7]), st.just(8))


def counted(entry: list[Any] | None, time: int, context: Any, tick: int) -> list[Any] | None:
    """The entry after one more record; None where the extension leaves it to Python."""
    if entry is None or entry[0] is None or not entry[3] or entry[2] is not context:
        return None
    if not all(-(2**63) <= each < 2**63 for each in (entry[0] + 1, entry[0], entry[1], time)):
        return None
    return [entry[0] + 1, max(entry[1], time), context, tick, tick, None, *entry[6:]]


@given(
    row=ENTRIES,
    data=st.sampled_from([None, b"8"]),
    time=NUMBERS,
    context=st.sampled_from(CONTEXTS),
    known=st.booleans(),
)
@example(row=(1, 5, None, 7, 8), data=b"8", time=4, context=None, known=True)
@example(row=(1, 5, None, 7, 8), data=None, time=6, context=None, known=True)
def test_an_entry_counts_as_in_python_or_stays(row: Any, data: Any, time: int, context: Any, known: bool) -> None:
    entry = [*row, data, 70, 5]
    before, entries = list(entry), {b"k" if known else b"l": entry}
    expected = counted(before if known else None, time, context, 100)
    found = _native.count_in_entry(entries, b"".join([b"k"]), time, context, count(100))
    assert found is (expected is not None)
    assert entry == (expected or before)
    assert entry[2] is before[2]


def test_other_keys_and_entries_are_left_to_python() -> None:
    entry: list[Any] = [1, 5, None, 7, 8, b"8", 70, 5]
    for entries, key in (
        ({b"k": entry[:7]}, b"k"),
        ({"k": entry}, "k"),
        ({b"k": tuple(entry)}, b"k"),
        ({b"k": None}, b"k"),
    ):
        assert _native.count_in_entry(entries, key, 6, None, count()) is False  # type: ignore[arg-type]


def test_an_iterator_may_change_the_entry_or_end() -> None:
    entry: list[Any] = [1, 5, None, 7, 8, b"8", 70, 5]
    entries = {b"k": entry}

    def clearing() -> Iterator[int]:
        entry.clear()
        yield 1

    assert _native.count_in_entry(entries, b"k", 6, None, iter(())) is False
    assert _native.count_in_entry(entries, b"k", 6, None, clearing()) is False


def test_no_reference_is_kept() -> None:
    time, context = 2**40, [("a", b"1")]
    entry: list[Any] = [2**41, 2**39, context, 7, 8, None, 70, 5]
    before = sys.getrefcount(context), sys.getrefcount(time), sys.getrefcount(entry), sys.getrefcount(None)
    ticks = count(2**42)
    for _ in range(1000):
        assert _native.count_in_entry({b"k": entry}, b"k", time, context, ticks)
    entry[1] = 0
    of_parts = sys.getrefcount(entry[0]), sys.getrefcount(entry[3])
    assert of_parts == (2, 3)
    assert abs(sys.getrefcount(None) - before[3]) < 100
    assert (sys.getrefcount(context), sys.getrefcount(time), sys.getrefcount(entry)) == before[:3]
