"""Expressions from elsewhere can neither leave the language nor take the machine down."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest

from streamkit.errors import LimitError, TopologyError
from streamkit.expressions import Expression, parse
from streamkit.expressions.budget import MAX_STEPS, MAX_TOTAL, Budget

NAMES = ("key", "value", "aggregate", "timestamp", "headers", "topic", "partition", "offset")
HOSTILE = [
    line
    for line in Path(__file__).with_name("hostile.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
VALUE = {
    "huge": 10**9,
    "million": 10**6,
    "text": "x" * 1000,
    "wide": "%999999999d",
    "digits": "9" * 5000,
    "list": list(range(1000)),
}
LONGEST = [
    "[a for a in range(1000) for b in range(1000) for c in value.list if a]",
    f"[{', '.join(['*range(value.million)'] * 12)}]",
]
LONGEST_SECONDS = 30
"""Of the processor: other processes count for nothing."""


def evaluate(expression: Expression) -> object:
    ordered = sorted(expression.names)
    known = {"value": VALUE, "key": "k", "aggregate": [], "headers": [], "now": lambda: 0}
    return expression.function(ordered)(*[known.get(name, 0) for name in ordered])


def test_there_are_many() -> None:
    assert len(HOSTILE) >= 200
    assert len(set(HOSTILE)) == len(HOSTILE)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the bytes and a tenth of the steps that a record has by default: what takes all of them ends the sooner."""
    _, _, seconds = Budget.__init__.__defaults__ or ()
    monkeypatch.setattr(Budget.__init__, "__defaults__", (MAX_TOTAL // 4, MAX_STEPS // 10, seconds))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("text", HOSTILE)
def test_refused(text: str) -> None:
    refuse(text)


@pytest.mark.slow  # They take all steps, or all bytes, that a record has.
@pytest.mark.parametrize("text", LONGEST)
def test_refused_by_the_bounds_that_are_the_default(text: str) -> None:
    refuse(text)


def refuse(text: str) -> None:
    start = time.thread_time()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises((TopologyError, LimitError)) as caught:
        evaluate(parse(text, NAMES))
    assert str(caught.value)
    assert time.thread_time() - start < LONGEST_SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000


DEEP = [
    "(" * 10_000 + "1" + ")" * 10_000,
    "[" * 150 + "]" * 150,
    "-" * 5_000 + "1",
    "not " * 3_000 + "1",
    "value" + ".a" * 5_000,
    "value" + "[0]" * 4_000,
    "1" + "+1" * 8_000,
    "key" + "+key" * 3_000,
    "1 if 1 else " * 1_000 + "1",
    "lambda:" * 2_000 + "1",
    "len(" * 199 + "key" + ")" * 199,
    "{" * 190,
    'f"{' * 50,
    "a" * 100_000,
    "9" * 5_000,
    "0x" + "f" * 5_000,
    "'" + "x" * 100_000 + "'",
    "value * " * 180 + "1",
    "\0",
    "value\0",
    "",
    "   ",
    "\n",
    "# a comment only",
    "\ud800",
]


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
def test_deep_or_long(text: str) -> None:
    start = time.thread_time()
    with pytest.raises(TopologyError):
        parse(text, NAMES)
    assert time.thread_time() - start < LONGEST_SECONDS / 2


def test_doubling_through_functions() -> None:
    from streamkit.expressions import Function

    functions = {"f0": Function("f0", ("x",), "x + x")}
    for number in range(1, 40):
        functions[f"f{number}"] = Function(f"f{number}", ("x",), f"f{number - 1}(f{number - 1}(x))")
    with pytest.raises(TopologyError, match="calls"):
        parse("f39(key)", NAMES, functions=functions)
    with pytest.raises((LimitError, TopologyError)):
        evaluate(parse("f0(" * 40 + "key" + ")" * 40, NAMES, functions=functions))


def test_a_namespace_without_builtins() -> None:
    namespace = parse("[len(x) for x in value if re_match('a', x)]", NAMES).globals()
    assert [name for name in namespace if not name.startswith("_x_")] == []
