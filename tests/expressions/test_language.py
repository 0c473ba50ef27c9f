"""What expressions mean, what they say about mistakes, and what they tell the planner."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streamkit.code import ATOM, item, symbol
from streamkit.errors import Position, StreamkitError, TopologyError
from streamkit.expressions import Expression, Function, Library, called, constant, parse
from streamkit.expressions.calls import Argument
from streamkit.expressions.helpers import ALLOWED, BY_KIND, MUTATING
from streamkit.record import WindowedKey
from streamkit.testing.generated_records import SeededRandom

NAMES = ("key", "value", "aggregate", "timestamp", "headers", "left", "right")
HEADERS = [("a", b"1"), ("b", None), ("a", b"2")]
VALUE = {
    "user": {"name": "Ann", "items": [1, 2]},
    "n": 7,
    "price": 2.5,
    "text": "one, two",
    "get": "a field",
    "rows": [{"k": "b", "v": 2}, {"k": "a", "v": 1}],
}


def run(text: str, functions: Any = None, **changes: Any) -> Any:
    return run_expression(parse(text, NAMES, functions=functions), **changes)


def run_expression(expression: Expression, **changes: Any) -> Any:
    known = {"key": "k", "value": VALUE, "headers": HEADERS, "timestamp": 5, "aggregate": 1, "now": lambda: 99}
    known |= changes
    ordered = sorted(expression.names)
    return expression.function(ordered)(*[known[name] for name in ordered])


def problems(text: str, **options: Any) -> list[str]:
    with pytest.raises(TopologyError) as caught:
        parse(text, NAMES, Position("app.yaml", 3, 10), **options)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("value.user.name", "Ann"),
        ('value["user"]["name"]', "Ann"),
        ("value.get", "a field"),
        ('value.get("n")', 7),
        ('value.get("absent")', None),
        ('value.get("absent", 3)', 3),
        ("value.user.items", [1, 2]),
        ("value.user.items()", [("name", "Ann"), ("items", [1, 2])]),
        ("value.user.keys()", ["name", "items"]),
        ('value.user.keys() == {"name", "items"}', True),
        ('sorted(value.user.keys() & {"name", "x"})', ["name"]),
        ("value.text.upper().split(', ')", ["ONE", "TWO"]),
        ("[row.v for row in value.rows]", [2, 1]),
        ("[key for key in value.user.items]", [1, 2]),
        ("{row.k: row.v for row in value.rows if row.v > 1}", {"b": 2}),
        ("[a * b for a in value.user.items for b in value.user.items]", [1, 2, 2, 4]),
        ("[[a * b for a in value.user.items] for b in value.user.items]", [[1, 2], [2, 4]]),
        ("sum(row.v for row in value.rows)", 3),
        ("sum([[1], [2, 3]], [])", [1, 2, 3]),
        ("sorted(value.rows, key=lambda row: row.k)[0].v", 1),
        ("max(value.rows, key=lambda row: row.v).k", "b"),
        ("sorted(['bb', 'a'], key=len)", ["a", "bb"]),
        ('merge(value.user, {"name": "Bob"}, {"x": 1})', {"name": "Bob", "items": [1, 2], "x": 1}),
        ('{**value.user, "name": 1}', {"name": 1, "items": [1, 2]}),
        ("[*value.user.items, 3]", [1, 2, 3]),
        ("max(*value.user.items)", 2),
        ("f'{key}: {value.n} {value.user.name!r}'", "k: 7 'Ann'"),
        ("f'{key}\\n{{}}\"'", 'k\n{}"'),
        ("f'{value[\"n\"]}'", "7"),
        ("'%05.1f|%s' % (value.price, key)", "002.5|k"),
        ("header('a')", "2"),
        ("header('b')", None),
        ("header('c')", None),
        ("len(headers)", 3),
        ("now() - timestamp", 94),
        ("re_match('[a-z]+, t.o', value.text)", True),
        ("re_match('[a-z]+', value.text)", False),
        ("re_split(', *', value.text)", ["one", "two"]),
        ("timestamp % 2", 1),
        ("value.n % 2 == 1 and not value.n > 10", True),
        ("'big' if value.n > 5 else 'small'", "big"),
        ("-value.n ** 2", -49),
        ("(-value.n) ** 2", 49),
        ("2 ** -1", 0.5),
        ("value.n // 2 + value.n / 2 - 1", 5.5),
        ("1 < value.n <= 7", True),
        ("value.text[-3:]", "two"),
        ("value.text[::2]", "oe w"),
        ("key in ('k', 'l')", True),
        ("value.n is None", False),
        ("list(range(3))", [0, 1, 2]),
        ("range(3)", [0, 1, 2]),
        ("list(zip(value.user.items, 'ab'))", [(1, "a"), (2, "b")]),
        ("zip([1], [2])", [(1, 2)]),
        ("enumerate('ab', start=1)", [(1, "a"), (2, "b")]),
        ("any(x > 1 for x in value.user.items)", True),
        ("'-'.join(str(x) for x in value.user.items)", "1-2"),
        ("round(2.567, 1)", 2.6),
        ("int('ff', 16)", 255),
        ("str(b'abc', 'utf-8')", "abc"),
        ("'ä'.encode()", b"\xc3\xa4"),
        ("('ä' # a comment\n + key)", "äk"),
        ("value.n +\n  1", 8),
        ("\n  value.n\n", 7),
        ("key, value.n", ("k", 7)),
        ("key.key.user", "u"),
        ("1e999", float("inf")),
        ("len([x for x in range(1000000)])", 1_000_000),
        ("[0] * 1000000 == [0]", False),
        ("len('x' * 10000000)", 10_000_000),
        ("2 ** 4095 > 0", True),
        ("dict(a=1, b=[2])", {"a": 1, "b": [2]}),
        ("value.text.replace('o', '0', 1)", "0ne, two"),
        ("'a'.ljust(3, '.')", "a.."),
        ("[x for x in 'ab' if x != 'a' for y in x]", ["b"]),
        ("{x for x, y in [(1, 2), (1, 3)]}", {1}),
    ],
)
def test_meaning(text: str, expected: Any) -> None:
    key = WindowedKey({"user": "u"}, 0, 5) if text.startswith("key.key") else "k"
    assert run(text, key=key) == expected


def test_no_headers_are_an_empty_list() -> None:
    assert run("headers", headers=None) == []
    assert run("header('a')", headers=None) is None


def test_errors_of_a_record_stay_python_errors() -> None:
    with pytest.raises(KeyError):
        run("value.absent")
    with pytest.raises(ZeroDivisionError):
        run("1 / 0")
    with pytest.raises(TypeError):
        run("value.n + key")
    with pytest.raises(ValueError, match="negative"):
        run("(0 - value.n) ** 0.5")


def test_names_become_what_they_are_bound_to() -> None:
    bindings = {"value": symbol("v"), "key": symbol("k"), "headers": item(symbol("c"), 0), "now": symbol("rt_now")}

    def source(text: str) -> str:
        return parse(text, NAMES).code(bindings).source

    assert source("value.a + 1 > value.b") == "v['a'] + 1 > v['b']"
    assert source("[key for key in value]") == "[_y_1 for _y_1 in v]"
    assert source("header('a')") == "_x_header((c[0] or []), 'a')"
    assert source("now()") == "rt_now()"
    assert source("value % 2") == "v % 2 if v.__class__ is _x_Int else _x_mod(v, 2)"
    assert source("2 * 3 + value") == "6 + v"
    assert source("(value + 1) / 2") == "(v + 1) / 2"
    assert "\n" not in source("value +\n 'a\\nb'")


def test_names_and_kinds() -> None:
    assert parse("value.a + key", NAMES).names == {"value", "key"}
    assert parse("header('a')", NAMES).names == {"headers"}
    assert parse("now()", NAMES).names == {"now"}
    assert parse("[key for key in value]", NAMES).names == {"value"}
    assert parse("1 + 2", NAMES).is_constant
    assert not parse("now()", NAMES).is_constant
    kinds = {
        "1": "int",
        "1.5": "float",
        "'a'": "str",
        "True": "bool",
        "[]": "list",
        "{}": "dict",
        "b''": "bytes",
        "None": None,
        "value": None,
        "value + 1": None,
        "value > 1": "bool",
        "value / 2": "float",
        "len(value)": "int",
        "f'{value}'": "str",
        "key + 'a'": "str",
        "1 if value else 2": "int",
        "1 if value else None": None,
        "[x for x in value]": "list",
        "value.split()": "list",
        "not value": "bool",
    }
    assert {text: parse(text, NAMES).result_kind for text in kinds} == kinds


def test_an_expression_with_a_function_can_be_pickled() -> None:
    functions = {"twice": Function("twice", ("a",), "a * 2")}
    expression = pickle.loads(pickle.dumps(parse("twice(value.n) + 1", NAMES, functions=functions)))
    assert run_expression(expression) == 15


def test_a_constant_is_its_literal() -> None:
    assert constant(5).code({}).source == "5"
    assert constant(-5).code({}).at(ATOM) == "(-5)"
    assert constant(True).result_kind == "bool"
    assert constant(None).result_kind is None


# -- messages --


def test_all_problems_with_their_places() -> None:
    assert problems("valu.user + kee + value.append(1)") == [
        "app.yaml:3:10: unknown name 'valu'; did you mean 'value'?"
        " (there are: key, value, aggregate, timestamp, headers, left, right)",
        "app.yaml:3:22: unknown name 'kee'; did you mean 'key'?"
        " (there are: key, value, aggregate, timestamp, headers, left, right)",
        "app.yaml:3:34: method 'append' changes its object and is not allowed; build a new one",
    ]


def test_columns_count_characters() -> None:
    assert problems("'äöü' + valu")[0].startswith("app.yaml:3:18: ")


def test_lines_inside_a_text() -> None:
    assert problems("value +\n  valu")[0].startswith("app.yaml:4:3: ")
    located = problems("value +\n  valu", locate=lambda line, column: Position("f", 10 + line, 100 + column))
    assert located[0].startswith("f:11:102: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lenn(value)", "did you mean 'len'?"),
        ("value.uper()", "did you mean 'upper'?"),
        ("len", "is a function"),
        ("'{}'.format(1)", "use an f-string"),
        ("f'{value:>5}'", "format specification"),
        ("value._id", '["_id"]'),
        ("value[", "app.yaml:3:16: not an expression: '[' is never closed"),
        ("value +", "ends too early"),
        ("re_match('(', key)", "missing )"),
        ("x for x in value", "brackets"),
        ("sorted(value, key=value.get)", "lambda"),
        ("1 is 1", "use '=='"),
        ("merge(value, x=1)", "app.yaml:3:25: merge() takes objects: write {'x': …}, not x=…"),
        ("len.x", "is a function"),
        ("'abc'.x", "no fields"),
        ("", "empty"),
    ],
)
def test_messages(text: str, message: str) -> None:
    assert message in problems(text)[0]


def test_headers_where_there_are_none() -> None:
    with pytest.raises(TopologyError, match="no headers"):
        parse("header('a')", ("key", "value"))


# -- functions --


@dataclass(frozen=True)
class Ref:
    module: str
    attribute: str
    folder: str
    position: Position | None = None
    arguments: tuple[Argument, ...] = ()


def test_functions_of_the_file() -> None:
    functions = {
        "taxed": Function("taxed", ("price", "rate"), "price * (1 + rate)"),
        "both": Function("both", ("value",), "[taxed(value.price, 0.5), now()]"),
        "tag": Function("tag", (), "header('a')"),
    }
    library = Library(functions)
    assert library.problems == []
    assert run("taxed(value.price, 1)", library) == 5.0
    assert run("taxed(rate=1, price=value.price)", library) == 5.0
    assert run("both(value)", library) == [3.75, 99]
    assert parse("both(value)", NAMES, functions=library).names == {"value", "now"}
    assert run("tag() + '!'", library) == "2!"
    assert run("[taxed(row.v, 1) for row in value.rows]", library) == [4, 2]
    assert run("taxed(1, 1)", library) == 2


def test_mistakes_in_functions() -> None:
    place = Position("app.yaml", 2, 3)
    functions = {
        "a": Function("a", ("x",), "b(x)", position=place),
        "b": Function("b", ("x",), "a(x)", position=place),
        "c": Function("c", ("x", "x"), "x + y", position=place),
        "d": Function("d", ("x",), "x", position=place),
    }
    messages = [str(problem) for problem in Library(functions).problems]
    assert any("a -> b -> a" in message for message in messages), messages
    assert any("stands twice" in message for message in messages), messages
    assert any("unknown name 'y'" in message for message in messages), messages
    assert "takes 1 argument, 2 given" in problems("d(1, 2)", functions=functions)[0]
    assert "a -> b -> a" in problems("a(1)", functions=functions)[0]
    assert "a function" in problems("d", functions=functions)[0]


def test_callables_beside_the_file(tmp_path: Path) -> None:
    for name, factor in (("one", 2), ("two", 3)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").write_text(f"def scale(a, b=1):\n    return a * {factor} + b\nLIMIT = 3\n")
    first, second = (Ref("mine", "scale", str(tmp_path / name)) for name in ("one", "two"))
    functions = {"scale": Function("scale", call=first), "other": Function("other", call=second)}
    assert run("scale(value.n) + other(value.n, b=0)", functions) == 15 + 21
    assert run_expression(called(first, ("aggregate", "timestamp"))) == 7
    assert run("scale(1)", functions) == 3
    assert not parse("scale(1)", NAMES, functions=functions).is_constant
    with pytest.raises(StreamkitError, match="did you mean 'scale'"):
        called(Ref("mine", "scail", str(tmp_path / "one")), ("key",)).globals()
    with pytest.raises(StreamkitError, match="no module 'absent'"):
        called(Ref("absent", "x", str(tmp_path)), ("key",)).globals()
    with pytest.raises(TopologyError, match="f:1:2"):
        called(Ref("mine", "LIMIT", str(tmp_path / "one"), Position("f", 1, 2)), ("key",)).globals()


def test_a_function_may_take_a_lambda(tmp_path: Path) -> None:
    (tmp_path / "hof.py").write_text("def apply(f, x):\n    return f(x)\n")
    functions = {"apply": Function("apply", call=Ref("hof", "apply", str(tmp_path)))}
    assert run("apply(lambda x: x + value.n, 1)", functions) == 8


# -- structure --


def test_no_allowed_method_changes_anything() -> None:
    kinds = {"str": str, "bytes": bytes, "list": list, "tuple": tuple, "dict": dict, "set": set, "int": int}
    kinds |= {"float": float, "random": SeededRandom}
    for kind, names in BY_KIND.items():
        assert [name for name in names if not hasattr(kinds[kind], name)] == []
    # A name allowed for one type must not change a value of another.
    immutable = (str, bytes, tuple, int, float)
    harmless = {"copy", "count", "index", "fromkeys", "get", "items", "keys", "values"} | BY_KIND["set"]
    for kind in (list, dict, set):
        public = {name for name in dir(kind) if not name.startswith("_")}
        assert public & ALLOWED <= harmless
        assert public - ALLOWED <= MUTATING
    for plain in immutable:
        public = {name for name in dir(plain) if not name.startswith("_") and callable(getattr(plain, name))}
        assert public - ALLOWED <= {"format", "format_map", "real", "imag"}


def test_import_is_light() -> None:
    code = "import sys, streamkit.expressions; print([m for m in ('re2', 'difflib', 'yaml', 'inspect2') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
