"""RE2 patterns, which take linear time; `re2` is imported when the first one is used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

_SPECIAL = frozenset(r"\.^$*+?{}[]|()")
"""Characters with a special meaning in a pattern."""

KEPT = 128
"""The number of patterns that stay compiled; each may use MEMORY, since RE2 caches its states."""
MEMORY = 3 << 19
"""Bytes of a compiled pattern, about: `\\pL{1,50}` takes most of them."""
_COUNT = re.compile(r"\{([0-9]{1,4})(?:,([0-9]{0,4}))?\}")
_MOST_COUNTS = 1000
"""RE2 refuses a pattern that repeats a part more often."""


class PatternError(ValueError):
    """A pattern that RE2 refuses."""


class Pattern:
    """A compiled pattern.

    A match object of `re2` asks RE2 for the number of groups at each group, and converts all positions; `first` and `fits` ask
    RE2 itself, which takes a third of the time.
    """

    def __init__(self, expression: Any):  # re2 has no types
        self._find = expression._regexp.Match
        anchor = expression._regexp.Anchor
        self._anywhere, self._whole = anchor.UNANCHORED, anchor.ANCHOR_BOTH
        self.finditer = expression.finditer
        self.groups: int = expression.groups
        self.size: int = expression.programsize
        """The number of instructions."""

    def first(self, text: str) -> list[str | None] | None:
        """Return the first match, followed by its groups, None for each that did not match; None if there is no match.

        >>> compiled("(é+)|(b)").first("caéé")
        ['éé', 'éé', None]
        """
        data = text.encode()
        spans = self._find(self._anywhere, data, 0, len(data))
        if spans[0][0] < 0:
            return None
        return [None if start < 0 else data[start:end].decode() for start, end in spans]

    def fits(self, text: str) -> bool:
        """Return whether the pattern matches the whole text.

        >>> compiled("a+").fits("aaa"), compiled("a+").fits("aaab")
        (True, False)
        """
        data = text.encode() if isinstance(text, str) else text
        found: bool = self._find(self._whole, data, 0, len(data))[0][0] >= 0
        return found


@lru_cache(maxsize=KEPT)
def compiled(pattern: str) -> Pattern:
    """Return the compiled pattern. Raises PatternError with RE2's message."""
    import re2

    if not isinstance(pattern, str):
        raise PatternError(f"a pattern is text, not {type(pattern).__name__}")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY
    # The package has a cache of patterns too, which would keep them in memory longer.
    re2.purge()
    try:
        return Pattern(re2.compile(pattern, options))
    except re2.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise PatternError(f"not an RE2 pattern: {text}") from None


@lru_cache(maxsize=KEPT)
def weight(pattern: str) -> int:
    """Return the relative maximum cost of a search per character: the number of positions in the pattern where it may be.

    RE2 is at many positions at once if a pattern repeats a part many times. The program has an instruction or
    more for each of them, and hundreds for a class of Unicode.

    >>> weight("a+"), weight(r"\\pL+"), weight("a[ab]{900}c")
    (2, 4, 906)
    """
    counts = 1
    for least, most in _COUNT.findall(pattern):
        counts = min(counts * max(int(least), int(most or 0), 1), _MOST_COUNTS)
    return max(min(compiled(pattern).size, len(pattern) * counts), 1)


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
    return compiled(pattern).fits(text)


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
    for match in expression.finditer(text):
        yield text[end : match.start()]
        for group in groups:
            yield match[group]
        end = match.end()
    yield text[end:]
