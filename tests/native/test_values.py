"""The check of values before they are encoded, by the extension and in Python: the same values have the same text and errors."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamkit.errors import SerdeError
from streamkit.serdes.formats import json_text
from streamkit.serdes.size import SMALL, unused, unused_in_python
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
