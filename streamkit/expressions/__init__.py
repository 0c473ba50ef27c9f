"""The expression language: the text of a YAML file is checked and translated to a piece of Python.

>>> from streamkit.code import symbol
>>> expression = parse("value.price * 1.2 if value.taxed else value.price", ("key", "value"))
>>> expression.code({"value": symbol("v")}).source
"v['price'] * 1.2 if v['taxed'] else v['price']"
>>> sorted(expression.names)
['value']
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import replace

from streamkit.code import ATOM
from streamkit.errors import Position, Problem, TopologyError
from streamkit.expressions.calls import CallableRef, load_callable, load_object
from streamkit.expressions.expression import Expression, Function, Link
from streamkit.expressions.growth import growth_of
from streamkit.expressions.syntax import Locate, Source
from streamkit.expressions.translate import (
    BUDGET,
    CountedTranslator,
    Library,
    Translator,
    _mark,
    literal,
    reference_key,
)

__all__ = [
    "Expression",
    "Function",
    "Library",
    "called",
    "constant",
    "load_callable",
    "load_object",
    "parse",
]

_MAX_BRACKETS = 150
_KINDS = frozenset(("int", "float", "str", "bool", "list", "dict", "bytes"))


def parse(
    text: str,
    names: Iterable[str],
    position: Position | None = None,
    functions: Mapping[str, Function] | Library | None = None,
    locate: Locate | None = None,
) -> Expression:
    """Check an expression over record names and translate it.

    `position` is that of the first character of `text` in the file; `locate(line, column)`, both from 0, maps places
    in a text of several lines to the file. Raises TopologyError with every problem and its place.

    >>> parse("valu.user", ("key", "value"), Position("app.yaml", 3, 10))
    Traceback (most recent call last):
    streamkit.errors.TopologyError: app.yaml:3:10: unknown name 'valu'; did you mean 'value'? (there are: key, value)
    """
    library = functions if isinstance(functions, Library) else Library(functions)
    names = tuple(names)
    # Not the functions of installed packages: these are only searched for if a name is unknown, and are links.
    key = text, names, frozenset(library.functions.own)
    expression = _CHECKED.get(key)
    if expression is None:
        expression = _checked(Source(text, position, locate), names, library)
        if not expression.links:  # the functions that it calls may differ next time
            if len(_CHECKED) >= _MOST_CHECKED:
                _CHECKED.clear()
            _CHECKED[key] = _placed(expression, None, None)
        return expression
    return _placed(expression, position, locate)


_CHECKED: dict[tuple[str, tuple[str, ...], frozenset[str]], Expression] = {}
"""Expressions without places by text, names, and names of functions: an editor reads a file again after each keystroke."""
_MOST_CHECKED = 20_000


def _placed(expression: Expression, position: Position | None, locate: Locate | None) -> Expression:
    # `replace` passes all fields through the frozen class's __init__, which takes many times as long; an editor places thousands.
    placed = object.__new__(Expression)
    counted = expression.counted
    placed.__dict__.update(
        expression.__dict__,
        position=position,
        locate=locate,
        counted=None if counted is None else _placed(counted, position, locate),
    )
    return placed


def _checked(source: Source, names: tuple[str, ...], library: Library) -> Expression:
    problems: list[Problem] = []
    tree = source.parse(problems)
    if tree is None:
        raise TopologyError(problems)
    # The translation with charges first: it evaluates every constant part within bounds.
    counted = _translated(CountedTranslator(names, library.counted, source.place), tree, source)
    growth = growth_of(tree, names, library.functions)
    if not growth.is_bounded:
        return replace(counted, growth=growth)
    plain = _translated(Translator(names, library, source.place), tree, source)
    return replace(plain, growth=growth, counted=None if growth.is_none else counted)


def _translated(translator: Translator, tree: ast.expr, source: Source) -> Expression:
    try:
        piece = translator.translate(tree)
    except RecursionError:
        raise TopologyError([Problem(source.at(0, 0), "the expression is nested too deeply")]) from None
    problems = list(dict.fromkeys(translator.problems))
    if not problems and _brackets(piece.source) > _MAX_BRACKETS:
        problems = [Problem(source.at(0, 0), "the expression is nested too deeply")]
    if problems:
        raise TopologyError(problems)
    return Expression(
        source.text,
        source.given,
        frozenset(piece.refs),
        piece.source,
        piece.precedence,
        frozenset(translator.helpers),
        tuple(translator.links.values()),
        not piece.refs and not any(link.call is not None for link in translator.links.values()),
        piece.kind if piece.kind in _KINDS else None,
        source.locate,
        draws=BUDGET in piece.source,
    )


def constant(value: object, position: Position | None = None) -> Expression:
    """Return the expression of a number, a boolean or None: the constant itself.

    >>> constant(5).code({})
    <code: 5>
    """
    piece = literal(value)
    kind = piece.kind if piece.kind in _KINDS else None
    return Expression(
        str(value),
        position,
        frozenset(),
        piece.source,
        piece.precedence,
        is_constant=True,
        result_kind=kind,
    )


def called(ref: CallableRef, arguments: Iterable[str], position: Position | None = None) -> Expression:
    """Return the expression of `{call: module:callable}`: the callable, with these record names as its arguments."""
    arguments = tuple(arguments)
    name = f"_x_c_{_mark('call', reference_key(ref))}"
    sources = ["(\0headers\0 or [])" if argument == "headers" else f"\0{argument}\0" for argument in arguments]
    template = f"{name}({', '.join(sources)})"
    links = (Link(name, call=ref),)
    return Expression(f"{ref.module}:{ref.attribute}", position, frozenset(arguments), template, ATOM, links=links)


def _brackets(text: str) -> int:
    # Brackets in literals count too: ordinary expressions stay far below the bound.
    depth = deepest = 0
    for character in text:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth -= 1
    return deepest
