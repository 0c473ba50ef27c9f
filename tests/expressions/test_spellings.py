"""What other languages write is named in the message, with what an expression writes for it, at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamkit.errors import Position, TopologyError
from streamkit.expressions import parse
from streamkit.plan import load

FILE = """\
streamkit: 1
application: app
topics:
  in: {value: json}
  out: {value: json}
pipelines:
  p:
    stream: in
    steps:
      - map_values: %s
    to: out
"""


def problems(text: str) -> list[str]:
    with pytest.raises(TopologyError) as raised:
        parse(text, ("key", "value"), Position("f", 1, 1))
    return [str(problem) for problem in raised.value.problems]


@pytest.mark.parametrize(
    ("text", "place", "advice"),
    [
        ("value && key", "1:7", "write 'and' for '&&'"),
        ("value == 'a && b' || key", "1:19", "write 'or' for '||'"),
        ("!value", "1:1", "write 'not' for '!'"),
        ("value === 1", "1:7", "write '==' for '==='"),
        ("value !== 1", "1:7", "write '!=' for '!=='"),
        ("value = 1", "1:7", "write '==' for '='"),
        ("value ? 1 : 2", "1:7", "write 'A if CONDITION else B' for '?'"),
        ("value?.name", "1:6", "write \"value.get('name')\" for '?.'"),
        ("value > 1 AND key", "1:11", "write 'and' for 'AND'"),
        ("value == “a”", "1:10", "write '\"' for '“'"),
        ("$.cents > 0", "1:1", "write 'value' for '$'"),
        ("value > 1;", "1:10", "an expression is one value, without ';'"),
        ("value.map(x => x)", "1:13", "write 'lambda x: …' for '=>'"),
        ("(k, v) -> v.cents", "1:8", "write what is after '->' alone: an expression has no parameters"),
        ("(value\n  && key)", "2:3", "write 'and' for '&&'"),
        (
            "x = value\nx",
            "1:3",
            "an expression is one value, without assignments; write a function of Python and 'call' it",
        ),
    ],
)
def test_operators(text: str, place: str, advice: str) -> None:
    assert problems(text) == [f"f:{place}: not an expression: {advice}"]


@pytest.mark.parametrize(
    ("name", "written"),
    [("true", "True"), ("false", "False"), ("null", "None"), ("nil", "None"), ("undefined", "None")],
)
def test_constants(name: str, written: str) -> None:
    assert problems(f"value == {name}") == [
        f"f:1:10: unknown name '{name}'; write '{written}', or put it in quotes where it is text"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("value.toString()", "1:7: unknown method 'toString'; write 'str(value)'"),
        ("value.length() > 3", "1:7: unknown method 'length'; write 'len(value)'"),
        (
            "math.pi",
            "1:1: unknown name 'math'; expressions can't import modules: write a Python function, and 'call' it",
        ),
        ("value is not null", "1:14: unknown name 'null'; write 'None', or put it in quotes where it is text"),
        (
            "{{ value }}",
            "1:1: a set can't have sets, lists or objects as members; names need no braces, so write 'value' for '{{ value }}'",
        ),
        ("len()", "1:1: len() takes 1 argument, 0 given"),
        ("range(1, 2, 3, 4)", "1:1: range() takes 1 to 3 arguments, 4 given"),
    ],
)
def test_names_and_calls(text: str, message: str) -> None:
    assert problems(text) == [f"f:{message}"]


@pytest.mark.parametrize(
    "text",
    ["value != 1", "value <= 1 and value >= 0", "'!' + '&&'", "'a AND b; $' + value", "sorted(value, reverse=True)"],
)
def test_what_the_language_has_is_no_mistake(text: str) -> None:
    parse(text, ("key", "value"))


def complaint(tmp_path: Path, text: str) -> str:
    file = tmp_path / "app.yaml"
    file.write_text(FILE % text)
    with pytest.raises(TopologyError) as raised:
        load(file)
    return str(raised.value)


def test_an_expression_that_yaml_cuts_off_as_a_comment(tmp_path: Path) -> None:
    hint = "YAML takes what follows ' #' for a comment: put the expression in quotes if it belongs to it"
    assert complaint(tmp_path, "key + ' #' + value").endswith(
        f"unterminated string literal (detected at line 1); {hint}"
    )
    # A comment that is meant as one is no reason for the hint.
    assert hint not in complaint(tmp_path, "valu + key # right")
    assert hint not in complaint(tmp_path, "'key + # value' # right")
