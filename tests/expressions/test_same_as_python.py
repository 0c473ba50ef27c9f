"""Random allowed expressions give what plain Python gives over the same data."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.errors import LimitError, TopologyError
from streamkit.expressions import Expression, parse

NUMBERS = st.integers(-50, 50) | st.floats(-100, 100, allow_nan=False).map(lambda number: round(number, 3))
TEXTS = st.text("ab c'\"\\{}%\né", max_size=5)
LEAVES = st.one_of(
    NUMBERS.map(lambda number: f"({number!r})"),
    TEXTS.map(repr),
    st.sampled_from(["key", 'value["n"]', 'value["s"]', 'value["l"]', 'value["d"]', "None", "True", "x", "[]", "{}"]),
)
BINARY = ["+", "-", "*", "/", "//", "%", "**", "<<", ">>", "&", "|", "^", "==", "!=", "<", ">=", "and", "or", "in"]
CALLS = ["len", "str", "abs", "bool", "sorted", "list", "sum", "max", "float", "int", "tuple", "set", "dict", "round"]
METHODS = ["upper()", "split()", "strip()", "get('a')", "count('a')", "items()", "replace('a', 'bb')", "ljust(4)"]


def combined(inner: Any) -> Any:
    return st.one_of(
        st.tuples(inner, st.sampled_from(BINARY), inner).map(lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"),
        st.tuples(inner, st.sampled_from(BINARY), inner).map(lambda parts: f"{parts[0]} {parts[1]} {parts[2]}"),
        st.tuples(inner, inner, inner).map(lambda parts: f"({parts[0]} if {parts[1]} else {parts[2]})"),
        st.tuples(st.sampled_from(CALLS), inner).map(lambda parts: f"{parts[0]}({parts[1]})"),
        st.tuples(inner, st.sampled_from(METHODS)).map(lambda parts: f"({parts[0]}).{parts[1]}"),
        st.tuples(inner, inner).map(lambda parts: f"({parts[0]})[{parts[1]}]"),
        st.tuples(inner, st.sampled_from(["1:", ":-1", "::2"])).map(lambda parts: f"({parts[0]})[{parts[1]}]"),
        st.tuples(inner, inner).map(lambda parts: f"[{parts[0]}, {parts[1]}]"),
        st.tuples(inner, inner).map(lambda parts: f"{{'a': {parts[0]}, 'b': {parts[1]}}}"),
        st.tuples(inner, inner).map(lambda parts: f"[{parts[0]} for x in [{parts[1]}, 1, 'q']]"),
        st.tuples(inner, inner).map(lambda parts: f"sum(1 for x in {parts[1]} if {parts[0]})"),
        inner.map(lambda part: f"(not {part})"),
        inner.map(lambda part: f"-{part}"),
        st.tuples(inner, inner)
        .map(lambda parts: f'f"""{{{parts[0]}}}-{{{parts[1]}!r}}"""')
        .filter(lambda text: "\\" not in text and '"""' not in text[4:-3] and "{{" not in text),
        inner.map(lambda part: f"sorted([{part}, 1], key=lambda x: str(x))"),
    )


EXPRESSIONS = st.recursive(LEAVES, combined, max_leaves=8)
RECORDS = st.fixed_dictionaries(
    {
        "n": NUMBERS,
        "s": TEXTS,
        "l": st.lists(NUMBERS | TEXTS, max_size=3),
        "d": st.dictionaries(st.sampled_from(["a", "b", "n"]), NUMBERS | TEXTS, max_size=2),
    }
)


def read(text: str) -> tuple[Expression | None, list[str]]:
    try:
        return parse(text, ("key", "value", "x")), []
    except TopologyError as error:
        return None, [problem.message for problem in error.problems]


def outcome(function: Any) -> Any:
    try:
        return plain(function())
    except LimitError:
        return "limit"
    except Exception as error:
        return type(error).__name__


def plain(value: Any) -> Any:
    if isinstance(value, (type({}.items()), type({}.keys()))):
        return plain(list(value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(plain, value))
    if isinstance(value, complex):
        raise ValueError("no complex numbers")
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return repr(value) if isinstance(value, float) else value


# Hundreds of expressions are drawn and compiled.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::hypothesis.errors.HypothesisWarning")
@settings(max_examples=600, deadline=None)
@given(EXPRESSIONS, RECORDS, TEXTS | NUMBERS, NUMBERS)
def test_same(text: str, value: dict[str, Any], key: Any, x: Any) -> None:
    expression, messages = read(text)
    if expression is None:
        # Only what can never work, or breaks a bound, is refused beforehand.
        allowed = ("bits", "bytes", "field", "unknown method", "not an expression")
        assert all(any(word in message for word in allowed) for message in messages), messages
        return
    ours = outcome(lambda: expression.function(["key", "value", "x"])(key, value, x))
    if ours == "limit":
        return
    names = {"key": key, "value": value, "x": x}
    theirs = outcome(lambda: eval(text, dict(names)))
    if ours == "ValueError" and "**" in text:
        return  # the language has no complex numbers, not even on the way
    if "items()" in text and ours != theirs:
        return  # a view is a list here
    assert ours == theirs, (text, expression.template)
    if expression.counted is not None:
        counted = expression.counted.function(["key", "value", "x"])
        assert outcome(lambda: counted(key, value, x)) == ours, (text, expression.counted.template)
