"""Regular expressions (RE2): search, groups, substitution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamkit.expressions.analysis.types import TEXT, ListOf
from streamkit.expressions.evaluation import regex
from streamkit.expressions.evaluation.budget import Budget
from streamkit.expressions.expression_limits import MAX_BYTES, size_error
from streamkit.expressions.library.function_entry import CALL, LibraryFunction, need_text
from streamkit.record import Value

_MATCH = 400
"""Steps of one match and its replacement, in addition to those by length: several microseconds."""
_PART = 40
"""Steps of one part of a replacement, text or a group, at each match."""
_TEMPLATE = 3
"""Steps of one character of a replacement, which is cut into its parts at each call."""
_UNBOUNDED = float("inf")


def re_search(pattern: Value, text: Value) -> str | None:
    """Return the first match in a text, or None."""
    found = regex.compiled(pattern).search(need_text(text, "re_search"))
    return None if found is None else found[0]


def re_groups(pattern: Value, text: Value) -> list[str | None] | None:
    """Return the groups of the first match in a text, or None."""
    found = regex.compiled(pattern).search(need_text(text, "re_groups"))
    return None if found is None else list(found.groups())


def re_sub(pattern: Value, replacement: Value, text: Value) -> str:
    """Return a text with all matches replaced. Raises LimitError."""
    return _substituted(pattern, replacement, text, lambda steps: None)


def _charged_sub(budget: Budget, pattern: Value, replacement: Value, text: Value) -> str:
    budget.spend(CALL + (1 + budget.size(text)) * regex.weight(pattern) // 4 + _TEMPLATE * budget.size(replacement))
    return budget.item(_substituted(pattern, replacement, text, budget.spend))


def _charged_search(run: Callable[[Value, Value], Value]) -> Callable[[Budget, Value, Value], Value]:
    def charged(budget: Budget, pattern: Value, text: Value) -> Value:
        budget.spend(CALL + (1 + budget.size(text)) * regex.weight(pattern) // 4)
        return budget.item(run(pattern, text))

    return charged


def _substituted(pattern: Value, replacement: Value, text: Value, spend: Callable[[int], None]) -> str:
    expression = regex.compiled(pattern)
    template = _template(need_text(replacement, "re_sub"), expression.groups)
    made: list[str] = []
    size = end = 0
    for found in expression.finditer(need_text(text, "re_sub")):
        # Each part of the replacement is looked up and counted at each match.
        spend(_MATCH + _PART * len(template))
        made.append(text[end : found.start()])
        made += [part if isinstance(part, str) else found[part] or "" for part in template]
        size += sum(map(len, made[-len(template) - 1 :]))
        if size > MAX_BYTES:
            raise size_error("text made by re_sub()", size)
        end = found.end()
    made.append(text[end:])
    return "".join(made)


def _template(replacement: str, groups: int) -> list[str | int]:
    r"""Return the parts of a replacement: text, and numbers of groups for `\0` to `\9`."""
    parts: list[str | int] = []
    pieces = replacement.split("\\")
    parts.append(pieces[0])
    escaped = iter(pieces[1:])
    for piece in escaped:
        if not piece:
            # Two backslashes stand for one, and what follows them is plain.
            parts.append("\\" + next(escaped, ""))
        elif piece[0] in "0123456789":
            if int(piece[0]) > groups:
                raise ValueError(f"re_sub(): the replacement names group {piece[0]}, and the pattern has {groups}")
            parts += [int(piece[0]), piece[1:]]
        else:
            raise ValueError(
                f"re_sub(): '\\{piece[0]}' in a replacement; write \\0 to \\9 for a group, \\\\ for a backslash"
            )
    return [part for part in parts if part != ""]


def _pattern(value: Value) -> Any:
    return regex.compiled(value)


ENTRIES = (
    LibraryFunction(
        "re_search",
        ("pattern", "text"),
        re_search,
        "The first part of the text that the pattern matches, or None.",
        (("re_search('[0-9]+', 'order 17 of 20')", "'17'"), ("re_search('[0-9]+', 'none')", "None")),
        type=TEXT,
        factor=1.0,
        work=1.0,
        checks={0: _pattern},
        charge=_charged_search(re_search),
    ),
    LibraryFunction(
        "re_groups",
        ("pattern", "text"),
        re_groups,
        "The groups of the first match as a list, None for one that takes no part; None without a match.",
        (("re_groups('([a-z]+)=([0-9]+)?', 'x=, b=2')", "['x', None]"),),
        type=ListOf(TEXT),
        # Groups may stand in each other.
        factor=_UNBOUNDED,
        work=1.0,
        checks={0: _pattern},
        charge=_charged_search(re_groups),
    ),
    LibraryFunction(
        "re_sub",
        ("pattern", "replacement", "text"),
        re_sub,
        "The text with all matches replaced; in the replacement `\\1` to `\\9` are groups, `\\0` is the match, `\\\\` a backslash.",
        ((r"re_sub('([a-z])([0-9])', '\\2\\1', 'a1 b2')", "'1a 2b'"),),
        kind="str",
        type=TEXT,
        factor=_UNBOUNDED,
        work=_UNBOUNDED,
        checks={0: _pattern},
        charge=_charged_sub,
    ),
)
