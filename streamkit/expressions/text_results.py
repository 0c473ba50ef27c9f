"""The texts that an expression may give, as far as its form shows them; for expressions that give names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatchcase
from glob import escape
from typing import NamedTuple

from streamkit.errors import Position
from streamkit.expressions.expression import Expression
from streamkit.expressions.syntax import Source

_ANY = "*"
_MOST = 64
"""Patterns of the two sides of `+` that are joined with each other."""


class TextResult(NamedTuple):
    """Texts that an expression may give. literal: one that it has as a whole, at `place`; else its known parts say which."""

    pattern: str
    place: Position
    literal: str | None = None

    def may_be(self, text: str) -> bool:
        """Return whether this may be a text."""
        return text == self.literal if self.literal is not None else fnmatchcase(text, self.pattern)


def text_results(expression: Expression) -> list[TextResult]:
    """Return the texts that an expression may give.

    >>> from streamkit.expressions import parse
    >>> found = text_results(parse("'late' if value.late else 'logs-' + value.level", ("value",)))
    >>> [(each.literal, each.pattern) for each in found]
    [('late', 'late'), (None, 'logs-*')]
    """
    source = Source(expression.text, expression.position, expression.locate)
    tree = None if expression.called is not None else source.parse([])
    if tree is None:  # Python code may give any text
        return [TextResult(_ANY, source.position)]
    results = []
    for node in _results(tree):
        literal = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
        results += [TextResult(pattern, source.place(node), literal) for pattern in _patterns(node)]
    return results


def _results(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the parts of an expression that may be its result."""
    of: list[ast.expr] | None = None
    if isinstance(node, ast.IfExp):
        of = [node.body, node.orelse]
    elif isinstance(node, ast.BoolOp):
        of = node.values
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Dict):
        of = node.value.values
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Dict):
        of = [*node.func.value.values, *node.args[1:]] if node.func.attr == "get" and not node.keywords else None
    if of is None:
        yield node
    for branch in of or ():
        yield from _results(branch)


def _patterns(node: ast.expr) -> list[str]:
    """Return patterns of the texts that a part may give; none for a number, which is no text."""
    if isinstance(node, ast.Constant):
        return [escape(node.value)] if isinstance(node.value, str) else []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = (
            [pattern for part in _results(side) for pattern in _patterns(part)] for side in (node.left, node.right)
        )
        return [one + other for one in left for other in right] if len(left) * len(right) <= _MOST else [_ANY]
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else None for part in node.values)
        return ["".join(escape(str(part)) if part is not None else _ANY for part in parts)]
    return [_ANY]
