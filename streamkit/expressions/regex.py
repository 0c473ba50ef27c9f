"""RE2 patterns, which take linear time; `re2` is imported when the first one is used."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

_SPECIAL = frozenset(r"\.^$*+?{}[]|()")
"""Characters with a special meaning in a pattern."""

_PROGRAM = 100
"""Instructions of a program that count like one character of the pattern: RE2 remembers what it has computed of them."""


class PatternError(ValueError):
    """A pattern that RE2 refuses."""


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:  # re2 has no types
    """Return the compiled pattern. Raises PatternError with RE2's message.

    >>> compiled("a+").fullmatch("aaa") is not None
    True
    """
    import re2

    if not isinstance(pattern, str):
        raise PatternError(f"a pattern is text, not {type(pattern).__name__}")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise PatternError(f"not an RE2 pattern: {text}") from None


def weight(pattern: str) -> int:
    """Return how long a search takes for a character, in proportion: by the length of the pattern and of its program.

    A repetition of classes makes a program that is thousands of times longer than the pattern.

    >>> weight("a+"), weight(r"\\pL+"), weight(r"\\pL{1,50}")
    (3, 12, 598)
    """
    instructions: int = compiled(pattern).programsize
    return max(1 + len(pattern), instructions // _PROGRAM)


def is_literal(pattern: str) -> bool:
    """Return whether a pattern matches its own text and nothing else.

    >>> is_literal(", "), is_literal(", *"), is_literal("")
    (True, False, False)
    """
    return bool(pattern) and _SPECIAL.isdisjoint(pattern)


def match(pattern: str, text: str) -> bool:
    """Return whether the pattern matches the whole text.

    >>> match("[a-z]+", "abc"), match("[a-z]+", "abc1")
    (True, False)
    """
    return compiled(pattern).fullmatch(text) is not None


def split(pattern: str, text: str) -> list[str]:
    """Return the pieces of a text between matches; groups of the pattern are pieces too, as in Python's re.split.

    >>> split(", *", "a, b,c")
    ['a', 'b', 'c']
    """
    return list(pieces(pattern, text))


def pieces(pattern: str, text: str) -> Iterator[str]:
    """Yield the pieces that `split` returns, so that the caller may stop.

    >>> next(pieces(",", "a,b,c"))
    'a'
    """
    expression = compiled(pattern)
    if is_literal(pattern) and isinstance(text, str):
        # A match of RE2 costs as much as some hundred characters here.
        yield from text.split(pattern)
        return
    groups = range(1, expression.groups + 1)
    end = 0
    for found in expression.finditer(text):
        yield text[end : found.start()]
        for group in groups:
            yield found[group]
        end = found.end()
    yield text[end:]
