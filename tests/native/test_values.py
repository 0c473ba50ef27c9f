"""Work on values by the extension and in Python: the same texts, errors, sizes and hashes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamkit.errors import SerdeError
from streamkit.expressions import budget
from streamkit.expressions.helpers import merge_in_python
from streamkit.serdes.formats import json_text
from streamkit.serdes.partitioner import murmur3_128_in_python
from streamkit.serdes.size import SMALL, unused, unused_in_python
from streamkit.state.engines.overlay import in_order_in_python
from tests.requirements import extension

_native = extension()


class Text(str):
    """Text of another class, which orjson writes as text."""


class Fields(dict[str, Any]):
    """An object of another class."""


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from([0.001, 0.0009999, 9_999_999.999, 10_000_000.0, -0.001, -10_000_000.0, -0.0])
    | st.text(max_size=20)
    | st.text(max_size=20).map(Text)
    | st.binary(max_size=4)
)
NAMES = st.text(max_size=10) | st.text(max_size=10).map(Text) | st.binary(max_size=2) | st.integers(0, 3)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=20)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=10), inner, max_size=20)
        | st.dictionaries(NAMES, inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=2).map(Fields)
    ),
    max_leaves=60,
)


def circle() -> list[Any]:
    value: list[Any] = []
    value.append({"a": (value,)})
    return value


def text_of(value: Any, check: Any) -> bytes | str:
    """Return the text of a value, or its error."""
    with patch.object(json_text, "unused", check):
        try:
            return json_text.to_text(value)
        except SerdeError as error:
            return str(error)


def test_the_extension_is_used_where_it_is_built() -> None:
    assert unused is _native.unused


@given(VALUES)
@example("x" * SMALL)
@example(["x" * 1000] * 300)
@example([[1]] * 300)
@example({"x" * SMALL: 1})
@example({str(number): number for number in range(10_000)})
@example(circle())
def test_values_have_the_same_text_with_and_without_the_extension(value: Any) -> None:
    assert text_of(value, _native.unused) == text_of(value, unused_in_python)


@pytest.mark.parametrize(
    ("value", "room"),
    [
        ("abc", SMALL - 3),
        ([], SMALL - 1024),
        ({"ab": "c", "d": [1, None, True, 1.5]}, SMALL - 1024 - 2 * 32 - 2 - 1 - 1 - 1024 - 4 * 32),
        ([1e10], -1),
        ([float("nan")], -1),
        ({1: 2}, -1),
        (b"a", -1),
        ("x" * (SMALL + 1), -1),
    ],
)
def test_what_a_value_leaves(value: Any, room: int) -> None:
    assert _native.unused(value) == room


MEASURED = st.recursive(
    SCALARS | st.text("xé", min_size=100, max_size=400),
    lambda inner: (
        st.lists(inner, max_size=20)
        | st.lists(inner, max_size=4).map(tuple)
        | st.frozensets(st.integers(0, 9), max_size=3)
        | st.dictionaries(NAMES | st.tuples(st.text(max_size=3)), inner, max_size=20)
        | st.dictionaries(st.text(max_size=3), inner, max_size=2).map(Fields)
    ),
    max_leaves=40,
)


def charged(values: list[Any], measured: Any) -> tuple[list[int], int, int]:
    """Return the sizes of values that one record makes, and what is left of its budget."""
    with patch.object(budget, "_measured", measured):
        record = budget.Budget(max_bytes=1 << 90, max_steps=1 << 90)
        sizes = [record.size(record.item(value)) for value in values]
        return sizes, record.bytes, record.steps


def doubled(times: int) -> list[Any]:
    value: list[Any] = ["x" * 300]
    for _ in range(times):
        value = [value, value]
    return value


@given(st.lists(MEASURED, max_size=4))
@example([["a", "é"], ["a", 1, "é"], {"a": "é"}, {"é": 1, "b": "c"}])
@example([[2**63 - 1, -(2**63)], [2**200, True], [1.5, None, b"abc"]])
@example([[["x" * 300] * 2, {1}], [["x" * 300], ("y" * 300,), frozenset((1,))]])
def test_values_are_charged_alike_with_and_without_the_extension(values: list[Any]) -> None:
    shared = [*values, [values, (values, {"a": values})]]
    assert charged(shared, _native.measured) == charged(shared, None)


def test_shared_parts_are_visited_once() -> None:
    values = [doubled(40), [doubled(70), 1]]
    assert charged(values, _native.measured) == charged(values, None)


def test_a_value_that_holds_itself_is_too_deep_to_be_measured() -> None:
    with pytest.raises(RecursionError):
        charged([circle()], _native.measured)


DIGITS = st.text("0123456789", min_size=17, max_size=21) | st.text("0129/:-. e\x00\xff", max_size=40)


@given(st.lists(DIGITS, max_size=8))
@example(["1" * 18])
@example(["1" * 19])
@example(["a" * 18 + "1" * 19])
@example(["1" * 18 + "a" + "1" * 18])
@example(["1" * 10, "1" * 10])
def test_big_numbers_are_found_alike(parts: list[str]) -> None:
    texts: list[bytes | None] = [part.encode("latin-1") for part in parts]
    whole = b"".join(text for text in texts if text)
    for found in (whole, [*texts, None], tuple(texts)):
        assert _native.big_number(found) == json_text.has_big_number_in_python(found)


@given(st.binary(max_size=80), st.integers(0, 2**31))
def test_hashes_are_alike(data: bytes, seed: int) -> None:
    assert _native.murmur3_128(data, seed) == murmur3_128_in_python(data, seed)


@given(parts=st.lists(VALUES | st.dictionaries(NAMES, SCALARS, max_size=9), max_size=4))
@example(parts=[Decimal(1)])
@example(parts=[{"a": 1, "b": 2}, {"b": 3}, Fields(c=4)])
def test_objects_merge_alike(parts: list[Any]) -> None:
    def merged(merge: Any) -> object:
        try:
            return repr(merge(*parts))
        except TypeError as error:
            return str(error)

    assert merged(_native.merge) == merged(merge_in_python)


def test_what_merges_stays_as_it_is() -> None:
    first: dict[Any, Any] = {"a": 1}
    found = _native.merge(first)
    found["b"] = 2
    assert first == {"a": 1}
    assert _native.merge() == {}


KEYS = st.binary(max_size=12) | st.binary(max_size=9).map(b"a prefix-".__add__)


@given(st.dictionaries(KEYS, st.none() | st.binary(max_size=2), max_size=60))
@example({b"\0\0": b"", b"\0": None, b"": b"1"})
@example({b"\xff" * 16: b"1", b"key-10": b"2", b"key-9": b"3", b"key-": b"4"})
@example(
    {b"shared-" + bytes([number]) + b"and equal" * 2 + bytes([9 - number % 5]): None for number in range(9, -1, -1)}
)
def test_rows_are_in_the_order_of_their_keys(rows: dict[bytes, bytes | None]) -> None:
    assert _native.in_order(rows) == in_order_in_python(rows)
