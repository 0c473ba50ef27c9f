"""Lines of JSON that commands write."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit_cli.record_lines import json_line

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=10), inner, max_size=5),
    max_leaves=40,
)


# Drawing large nested values takes most of the time.
@pytest.mark.slow
@given(VALUES)
def test_a_line_is_the_compact_json_that_python_writes(value: Any) -> None:
    record = {"topic": "out", "value": value}
    assert json_line(record) == json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


@pytest.mark.parametrize(
    "value", ["x" * 1_000_000, [[1]] * 100_000, [1e-7, 1e16, -0.0, 0.1], "\ud800", 1 << 70, {"\x7f": "\x1f"}]
)
def test_lines_that_are_long_or_odd_are_the_same(value: Any) -> None:
    assert json_line(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"
