"""Pieces keep their meaning: whatever stands in whatever place, Python reads it as if everything were in parentheses."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache

import pytest

from streamkit import code
from streamkit.code import Code, symbol

# One of each level, as expressions of a file have them.
FORMS = [
    "a if b else c",
    "lambda x: x",
    "a or b",
    "a and b",
    "not a",
    "a < b",
    "a in b",
    "a is None",
    "a < b < c",
    "a | b",
    "a ^ b",
    "a & b",
    "a >> b",
    "a + b",
    "a - b",
    "a % b",
    "-a",
    "a ** b",
    "-1",
    "1",
    "a[0]",
    "a(b)",
    "a.b",
    "[a, *b]",
    "(a, b)",
    "(a,)",
    "{**a, 'b': c}",
    "[x for x in a if b]",
    "'{a} or b'",
]
_LEVELS: dict[type, int] = {
    ast.IfExp: code.CONDITION,
    ast.Lambda: code.CONDITION,
    ast.Or: code.OR,
    ast.And: code.AND,
    ast.Not: code.NOT,
    ast.Compare: code.COMPARE,
    ast.BitOr: code.BIT_OR,
    ast.BitXor: code.BIT_XOR,
    ast.BitAnd: code.BIT_AND,
    ast.RShift: code.SHIFT,
    ast.Add: code.ADD,
    ast.Sub: code.ADD,
    ast.Mod: code.MULTIPLY,
    ast.USub: code.UNARY,
    ast.Pow: code.POWER,
}
X, Y, Z = symbol("x_1"), symbol("y_1"), symbol("z_1")
PLACES: dict[str, Callable[[Code, Code, Code], Code]] = {
    "attribute": lambda x, y, z: code.attribute(x, "b"),
    "item": lambda x, y, z: code.item(x, y),
    "sliced": lambda x, y, z: code.sliced(x, 1, -2),
    "call": lambda x, y, z: code.call(x, y, z),
    "method": lambda x, y, z: code.method(x, "b", y, z),
    "assigned": lambda x, y, z: code.compare(code.assigned("n", x), "<", y),
    "starred": lambda x, y, z: code.call("f", code.starred(x), y),
    "tuple": lambda x, y, z: code.tuple_of(x, code.starred(y), z),
    "one": lambda x, y, z: code.tuple_of(x),
    "list": lambda x, y, z: code.list_of(x, y),
    "mapping": lambda x, y, z: code.mapping_of({"a": x, "b": y}),
    "listing": lambda x, y, z: code.listing(x, (symbol("i"), symbol("j")), y),
    "sum": lambda x, y, z: code.binary(x, "+", y),
    "difference": lambda x, y, z: code.binary(x, "-", code.binary(y, "-", z)),
    "remainder": lambda x, y, z: code.binary(code.binary(x, "+", y), "%", z),
    "comparison": lambda x, y, z: code.compare(x, "<", y, "<=", z),
    "is none": lambda x, y, z: code.is_none(x),
    "is not none": lambda x, y, z: code.is_not_none(x),
    "not": lambda x, y, z: code.negated(x),
    "and": lambda x, y, z: code.all_of(x, y, z),
    "or": lambda x, y, z: code.any_of(x, y, z),
    "mixed": lambda x, y, z: code.all_of(code.any_of(x, y), code.negated(z)),
    "conditional": lambda x, y, z: code.either(x, y, z),
    "chained": lambda x, y, z: code.either(code.either(x, y, z), code.either(y, z, x), code.either(z, x, y)),
    "unless none": lambda x, y, z: code.unless_none(x, y),
}


@cache
def form(text: str) -> tuple[Code, ast.expr]:
    """Return a piece with the precedence that its text has, and what Python reads."""
    node = ast.parse(text, mode="eval").body
    return Code(text, precedence(node)), node


def precedence(node: ast.expr) -> int:
    kind = type(getattr(node, "op", node))
    number = isinstance(node, ast.Constant) and isinstance(node.value, int)
    return code.UNARY if number else _LEVELS.get(kind, code.ATOM)


class _Filled(ast.NodeTransformer):
    def __init__(self, operands: dict[str, str]):
        self.operands = operands

    def visit_Name(self, node: ast.Name) -> ast.AST:
        text = self.operands.get(node.id)
        return node if text is None else form(text)[1]


class _Flat(ast.NodeTransformer):
    """`a or (b or c)` is `a or b or c`, whatever they are."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        values: list[ast.expr] = []
        for each in node.values:
            same = isinstance(each, ast.BoolOp) and type(each.op) is type(node.op)
            values += each.values if same else [each]  # type: ignore[attr-defined]
        node.values = values
        return node


def shape(tree: ast.AST) -> str:
    return ast.dump(_Flat().visit(tree))


@pytest.mark.parametrize("place", PLACES)
def test_every_form_means_the_same_in_every_place(place: str) -> None:
    make = PLACES[place]
    template = make(X, Y, Z).source
    for at, first in enumerate(FORMS):
        others = FORMS[at:] + FORMS[:at]
        for second, third in zip(others, others[5:] + others[:5], strict=True):
            operands = {"x_1": first, "y_1": second, "z_1": third}
            expected = _Filled(operands).visit(ast.parse(template, mode="eval"))
            made = make(*(form(each)[0] for each in (first, second, third)))
            read = ast.parse(made.source, mode="eval")
            # And so does what was made, as a part of something else.
            assert made.precedence == precedence(read.body)
            assert shape(read) == shape(expected), made


def test_nothing_is_in_needless_parentheses() -> None:
    a, b, c = map(symbol, "abc")
    both, one = code.all_of(a, b), code.any_of(a, b)
    assert code.either(one, both, code.either(a, b, c)).source == "a and b if a or b else b if a else c"
    assert code.all_of(code.is_none(a), both, code.negated(code.is_none(c))).source == (
        "a is None and a and b and not c is None"
    )
    assert code.call("f", code.either(a, b, c), code.literal(-1)).source == "f(b if a else c, -1)"
    assert code.binary(code.binary(a, "-", b), "-", code.literal(1)).source == "a - b - 1"
    assert code.all_of(one).source == one.source


def test_a_piece_never_becomes_text_by_itself() -> None:
    loose = code.any_of(symbol("a"), symbol("b"))
    for splice in (
        lambda: f"not {loose}",
        lambda: f"not {loose:>5}",
        lambda: str(loose),
        lambda: "not %s" % loose,  # noqa: UP031 - it is what must fail
        lambda: "not {}".format(loose),  # noqa: UP032 - it is what must fail
        lambda: "not " + loose,  # type: ignore[operator]
        lambda: loose + " or c",  # type: ignore[operator]
        lambda: ", ".join([loose]),  # type: ignore[list-item]
    ):
        with pytest.raises(TypeError):
            splice()
    with pytest.raises(SyntaxError):
        ast.parse(f"not {loose!r}")


def test_stars_stand_in_calls_and_containers_only() -> None:
    star = code.starred(code.any_of(symbol("a"), symbol("b")))
    assert code.list_of(star).source == "[*(a or b)]"
    for misplaced in (code.negated, code.is_none, lambda each: code.item(symbol("a"), each)):
        with pytest.raises(TypeError):
            misplaced(star)


@pytest.mark.parametrize("text", ["", "a b", "a or b", "1", "a.", "a[0]"])
def test_names_are_names(text: str) -> None:
    with pytest.raises(ValueError, match="is not a Python name"):
        symbol(text)


def test_comparisons_know_their_signs() -> None:
    with pytest.raises(ValueError, match="is not a comparison operator"):
        code.compare(X, "=", Y)


@pytest.mark.parametrize("value", [None, True, 0, -5, 1.5, -0.0, float("inf"), "a'b\"\n", b"\0", (1, "a", None), ()])
def test_literals(value: object) -> None:
    found = eval(code.item(code.list_of(code.literal(value)), 0).source)
    assert repr(found) == repr(value)
