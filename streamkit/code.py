"""Pieces of Python source that keep their meaning wherever they are joined.

Generated code is joined from `Code`, never from text. A piece has the precedence of its outermost operator, and the functions
of this module add brackets if a place needs a higher one:

>>> either_one = any_of(symbol("a"), symbol("b"))
>>> negated(either_one).source
'not (a or b)'
>>> call("list", either_one).source
'list(a or b)'

A piece can't be formatted into text, so that no code is joined without these checks:

>>> f"not {either_one}"
Traceback (most recent call last):
TypeError: the piece 'a or b' can't be spliced into text, where it may lose its meaning; join pieces by streamkit.code
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

# The precedence of Python's operators; a piece is put in parentheses if its precedence is below that of its place.
TUPLE, CONDITION, OR, AND, NOT, COMPARE, BIT_OR, BIT_XOR, BIT_AND, SHIFT, ADD, MULTIPLY, UNARY, POWER, ATOM = range(15)

_SIGNS = {"&": BIT_AND, "+": ADD, "-": ADD, "*": MULTIPLY, "//": MULTIPLY, "%": MULTIPLY}
_COMPARISONS = frozenset(("==", "!=", "<", "<=", ">", ">=", "is", "is not", "in", "not in"))


class Code:
    """A piece of Python source with its precedence.

    `source` is for the writer of a program and for tests; the functions that join pieces call `at(precedence)`.
    """

    __slots__ = ("precedence", "source")

    def __init__(self, source: str, precedence: int = ATOM):
        self.source = source
        self.precedence = precedence

    def at(self, precedence: int) -> str:
        """Return the source for a place that requires this precedence or a higher one."""
        return self.source if self.precedence >= precedence else f"({self.source})"

    def __str__(self) -> NoReturn:
        raise TypeError(
            f"the piece {self.source!r} can't be spliced into text, where it may lose its meaning; "
            "join pieces by streamkit.code"
        )

    def __format__(self, spec: str) -> NoReturn:
        self.__str__()

    def __repr__(self) -> str:
        return f"<code: {self.source}>"


class Starred(Code):
    """`*items`, which is allowed in calls and containers only."""

    __slots__ = ()

    def at(self, precedence: int) -> str:
        raise TypeError(f"the piece {self.source!r} can be used in calls and containers only")


# -- Leaves --------------------------------------------------------------------------------------------------------


def symbol(text: str) -> Code:
    """Return the piece of a name, or of names with dots between them. Raises ValueError for other text."""
    if not all(part.isidentifier() for part in text.split(".")):
        raise ValueError(f"{text!r} is not a Python name")
    return Code(text)


def literal(value: object) -> Code:
    """Return the piece of a constant: None, a boolean, a number, text, bytes, or a tuple of them.

    >>> literal(-1).at(ATOM), literal("it's").source
    ('(-1)', '"it\\'s"')
    """
    # A number before a dot, and a sign before a power, need parentheses.
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    source = repr(value)
    return Code("1e999" if source == "inf" else source, UNARY if number else ATOM)


NONE, TRUE = literal(None), literal(True)


# -- Access --------------------------------------------------------------------------------------------------------


def attribute(owner: Code, *names: str) -> Code:
    """Return `owner.name.name …`."""
    return Code(".".join((owner.at(ATOM), *(symbol(name).source for name in names))))


def item(owner: Code, index: Code | int | str) -> Code:
    """Return `owner[index]`."""
    inside = index if isinstance(index, Code) else literal(index)
    return Code(f"{owner.at(ATOM)}[{inside.at(CONDITION)}]")


def sliced(owner: Code, start: int | None = None, stop: int | None = None) -> Code:
    """Return `owner[start:stop]`."""
    bounds = ("" if bound is None else str(bound) for bound in (start, stop))
    return Code(f"{owner.at(ATOM)}[{':'.join(bounds)}]")


def call(function: Code | str, *arguments: Code) -> Code:
    """Return the call of a function, given as a piece or by its name."""
    called = function if isinstance(function, Code) else symbol(function)
    return Code(f"{called.at(ATOM)}({_listed(arguments)})")


def assigned(name: str, value: Code) -> Code:
    """Return `(name := value)`, whose name later operands can use."""
    return Code(f"({symbol(name).source} := {value.at(CONDITION)})")


def method(owner: Code, called: str, *arguments: Code) -> Code:
    """Return the call of a method."""
    return call(attribute(owner, called), *arguments)


# -- Containers ----------------------------------------------------------------------------------------------------


def starred(items: Code) -> Starred:
    """Return `*items` for a call, a tuple or a list."""
    return Starred(f"*{items.at(BIT_OR)}", TUPLE)


def tuple_of(*items: Code) -> Code:
    """Return a tuple, always in parentheses.

    >>> tuple_of(symbol("a")).source
    '(a,)'
    """
    return Code(f"({_listed(items)}{',' if len(items) == 1 else ''})")


def list_of(*items: Code) -> Code:
    """Return a list."""
    return Code(f"[{_listed(items)}]")


def mapping_of(items: Mapping[str, Code]) -> Code:
    """Return a dict whose keys are text."""
    return Code("{" + ", ".join(f"{key!r}: {value.at(CONDITION)}" for key, value in items.items()) + "}")


def listing(element: Code, targets: tuple[Code, ...], items: Code) -> Code:
    """Return a list comprehension: `[element for targets in items]`."""
    return Code(f"[{element.at(CONDITION)} for {names_of(targets)} in {items.at(OR)}]")


def names_of(targets: tuple[Code, ...]) -> str:
    """Return the targets of an assignment or a loop, with commas between them."""
    return ", ".join(target.at(ATOM) for target in targets)


def _listed(items: tuple[Code, ...]) -> str:
    return ", ".join(item.source if isinstance(item, Starred) else item.at(CONDITION) for item in items)


# -- Operators -----------------------------------------------------------------------------------------------------


def binary(left: Code, sign: str, right: Code) -> Code:
    """Return an arithmetic or bitwise operation: `&`, `+`, `-`, `*`, `//` or `%`."""
    precedence = _SIGNS[sign]
    return Code(f"{left.at(precedence)} {sign} {right.at(precedence + 1)}", precedence)


def compare(left: Code, *rest: Code | str) -> Code:
    """Return a chained comparison: an operand, then alternately an operator and an operand.

    >>> compare(literal(0), "<=", symbol("x"), "<", any_of(symbol("a"), symbol("b"))).source
    '0 <= x < (a or b)'
    """
    parts = [left.at(BIT_OR)]
    for at, part in enumerate(rest):
        if at % 2:
            assert isinstance(part, Code)
            parts.append(part.at(BIT_OR))
        elif part in _COMPARISONS:
            parts.append(str(part))
        else:
            raise ValueError(f"{part!r} is not a comparison operator")
    return Code(" ".join(parts), COMPARE)


def is_none(piece: Code) -> Code:
    """Return `piece is None`."""
    return compare(piece, "is", NONE)


def is_not_none(piece: Code) -> Code:
    """Return `piece is not None`."""
    return compare(piece, "is not", NONE)


def negated(piece: Code) -> Code:
    """Return `not piece`."""
    return Code(f"not {piece.at(NOT)}", NOT)


def all_of(*pieces: Code) -> Code:
    """Return the pieces joined by `and`; a single piece unchanged."""
    return _joined("and", AND, pieces)


def any_of(*pieces: Code) -> Code:
    """Return the pieces joined by `or`; a single piece unchanged."""
    return _joined("or", OR, pieces)


def _joined(word: str, precedence: int, pieces: tuple[Code, ...]) -> Code:
    if len(pieces) == 1:
        return pieces[0]
    # `and` and `or` are associative: a part with the same operator needs no parentheses.
    return Code(f" {word} ".join(piece.at(precedence) for piece in pieces), precedence)


def either(test: Code, yes: Code, no: Code) -> Code:
    """Return `yes if test else no`."""
    return Code(f"{yes.at(OR)} if {test.at(OR)} else {no.at(CONDITION)}", CONDITION)


def unless_none(piece: Code, then: Code) -> Code:
    """Return a piece that is None if `piece` is None, else `then`."""
    return either(is_none(piece), NONE, then)
