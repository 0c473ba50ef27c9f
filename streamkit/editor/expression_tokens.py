"""The words of expressions, finished or not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

KINDS = ("variable", "function", "method", "property", "keyword", "string", "number", "operator", "parameter")
"""The kinds of words, as the protocol calls them."""
_KEYWORDS = frozenset(("and", "or", "not", "in", "is", "if", "else", "for", "lambda", "None", "True", "False"))
_STRING = r"""(?P<string>[rRbBfFuU]{0,2}(?:\"\"\"(?:\\.|[^\\])*?(?:\"\"\"|\Z)|'''(?:\\.|[^\\])*?(?:'''|\Z)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))"""
_WORD = re.compile(
    r"(?P<parameter>\$\{[^}\n]*\}?)|"
    + _STRING
    + r"|(?P<number>(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<name>[^\W\d]\w*)"
    + r"|(?P<comment>#[^\n]*)|(?P<operator>\*\*|//|[-+*/%]|[<>=!]=|[<>])",
    re.DOTALL,
)
_FIELD = re.compile(r"\{\{|\}\}|\{")


class Word(NamedTuple):
    """A word of a text from `start` to `end`; kind: one of KINDS."""

    start: int
    end: int
    kind: str


@lru_cache(maxsize=20_000)
def words(text: str) -> tuple[Word, ...]:
    """Return the words of an expression, finished or not, in their order.

    >>> [(text[word.start : word.end], word.kind) for text in ["len(value.a) > 1"] for word in words(text)]
    [('len', 'function'), ('value', 'variable'), ('a', 'property'), ('>', 'operator'), ('1', 'number')]
    """
    return tuple(_words(text, 0, len(text)))


def _words(text: str, start: int, end: int) -> Iterator[Word]:
    before = ""
    for match in _WORD.finditer(text, start, end):
        kind, at = str(match.lastgroup), match.start()
        if kind == "string":
            yield from _string(text, at, match.end())
        elif kind == "name":
            yield Word(at, match.end(), _kind(text, at, match, before))
        elif kind != "comment":
            yield Word(at, match.end(), kind)
        before = match[0]


def _kind(text: str, at: int, match: re.Match[str], before: str) -> str:
    is_member = text[:at].rstrip().endswith(".") and not before.endswith(".")
    is_called = text[match.end() :].lstrip().startswith("(")
    if is_member:
        return "method" if is_called else "property"
    if match[0] in _KEYWORDS:
        return "keyword"
    return "function" if is_called else "variable"


def _string(text: str, start: int, end: int) -> Iterator[Word]:
    """Yield a string, and the words of the expressions in it, if it is formatted."""
    quote = start + re.match(r"\w*", text[start:end]).end()  # type: ignore[union-attr]  # matches any text
    if "f" not in text[start:quote].lower():
        yield Word(start, end, "string")
        return
    at, rest = start, quote
    while (field := _FIELD.search(text, rest, end)) is not None:
        rest = field.end()
        if field[0] != "{":
            continue
        close = _closing(text, rest, end)
        yield Word(at, rest, "string")
        yield from _words(text, rest, close)
        at = rest = close
    yield Word(at, end, "string")


def _closing(text: str, start: int, end: int) -> int:
    """Return the offset at which the expression of a formatted string ends: at its bracket, or at its format."""
    depth, at = 0, start
    while at < end:
        match = re.compile(_STRING, re.DOTALL).match(text, at, end)
        if match is not None:
            at = match.end()
            continue
        if depth == 0 and (text[at] in "}:" or (text[at] == "!" and text[at + 1 : at + 2] != "=")):
            return at
        depth += (text[at] in "([{") - (text[at] in ")]}")
        at += 1
    return end
