"""`re_split`: Python's re.split where both languages of patterns agree, and bounded."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.expressions import counting, function_table, regex
from streamkit.expressions.budget import Budget, LimitError

PATTERNS = st.one_of(
    st.text("ab,;: -#é\n", min_size=1, max_size=3).filter(lambda each: "-" not in each or len(each) == 1),
    st.sampled_from(["a*", "", "(a)|(b)", "[ab]+", "a|", "^a", "(?i)A", ".", "()", "a{2}"]),
)


@given(PATTERNS, st.text("abAé,; :-#\n", max_size=12))
def test_it_splits_as_python_does(pattern: str, text: str) -> None:
    expected = re.split(pattern, text)
    assert regex.split(pattern, text) == expected
    assert counting.re_split(Budget(), pattern, text) == expected


def test_a_split_ends_with_the_budget() -> None:
    with pytest.raises(LimitError, match=r"expression\.max\.steps"):
        counting.re_split(Budget(max_steps=100_000), "a+", "ab" * 5_000)
    with pytest.raises(LimitError, match=r"expression\.max\.steps"):
        counting.re_match(Budget(max_steps=10), "a", "b")


def test_groups_and_large_programs_are_charged() -> None:
    for pattern, text in (("(a)(b)?", "ab" * 200), (r"\pL{1,50}x", "a" * 1_000)):
        with pytest.raises(LimitError, match=r"expression\.max\.steps"):
            counting.re_split(Budget(max_steps=100_000), pattern, text)
    assert counting.re_split(Budget(max_steps=100_000), "ab", "ab" * 2_000) == [""] * 2_001


def test_a_template_is_charged_at_each_call() -> None:
    with pytest.raises(LimitError, match=r"expression\.max\.steps"):
        function_table._charged_sub(Budget(max_steps=100_000), "a", "\\\\" * 20_000, "b")


def test_a_replacement_of_many_groups_is_charged_at_each_match() -> None:
    with pytest.raises(LimitError, match=r"expression\.max\.steps"):
        function_table._charged_sub(Budget(max_steps=100_000), "a()", "\\1" * 2_000, "a" * 10)
    assert function_table._charged_sub(Budget(max_steps=100_000), "a()", "\\1" * 2_000, "a") == ""
