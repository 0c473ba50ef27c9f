"""Parses the text of an expression, maps positions in it to the YAML file, and recognizes the syntax of other languages."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable

from streamkit.errors import Position, Problem
from streamkit.expressions.budget import MAX_DEPTH, MAX_TEXT

Locate = Callable[[int, int], Position]
"""Maps line and column inside the text, both from 0 and in characters, to the file."""
_STATEMENTS = (
    "import",
    "from",
    "def",
    "return",
    "for",
    "while",
    "with",
    "try:",
    "raise",
    "del",
    "assert",
    "class",
    "pass",
)


class Source:
    """The text of one expression and its place in the file."""

    def __init__(self, text: str, position: Position | None, locate: Locate | None = None):
        self.text = text
        self.given = position
        self.position = position or Position("<expression>", 1, 1)
        self.locate = locate
        self._text_lines = text.split("\n")

    def at(self, line: int, column: int) -> Position:
        """Return the position in the file of a line and a column of the text (both from 0)."""
        if self.locate is not None:
            return self.locate(line, column)
        start = self.position
        if line == 0:
            return Position(start.file, start.line, start.column + column)
        return Position(start.file, start.line + line, column + 1)

    def place(self, node: ast.AST) -> Position:
        """Return the place where a node begins."""
        if isinstance(node, ast.Attribute):
            # Messages about an attribute point to the name after the dot.
            line, offset = getattr(node, "end_lineno", 1) - 1, getattr(node, "end_col_offset", 0)
            offset -= len(node.attr.encode())
        else:
            line, offset = getattr(node, "lineno", 1) - 1, getattr(node, "col_offset", 0)
        return self._from_wrapped(line, offset)

    def _from_wrapped(self, line: int, offset: int) -> Position:
        # The text is parsed in brackets, which shift its first line by one; offsets count bytes of UTF-8.
        offset -= 1 if line == 0 else 0
        line = min(line, len(self._text_lines) - 1)
        encoded = self._text_lines[line].encode("utf-8", "replace")
        return self.at(line, len(encoded[: max(offset, 0)].decode("utf-8", "ignore")))

    def parse(self, problems: list[Problem]) -> ast.expr | None:
        """Return the tree, or None after adding a problem."""
        message = None
        if not self.text.strip():
            message = "expected an expression, but the text is empty"
        elif len(self.text) > MAX_TEXT:
            message = f"the expression has {len(self.text)} characters; at most {MAX_TEXT} are allowed"
        elif "\0" in self.text:
            message = "an expression can't hold a NUL character"
        if message is None:
            try:
                tree = self._tree()
                if _too_deep(tree):
                    message = f"the expression is nested more than {MAX_DEPTH} levels deep"
                else:
                    return tree
            except SyntaxError as error:
                problems.append(self._syntax_problem(error))
                return None
            except (RecursionError, MemoryError):
                message = "the expression is nested too deeply"
            except ValueError as error:
                message = f"not an expression: {error}"
        problems.append(Problem(self.at(0, 0), message))
        return None

    def _tree(self) -> ast.expr:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # In brackets, lines may break anywhere. The text is parsed in two kinds of brackets, so that it can't close the
            # added one itself; the line break ends a comment.
            tree = ast.parse(f"({self.text}\n)", mode="eval").body
            other = ast.parse(f"[{self.text}\n]", mode="eval").body
        if isinstance(other, ast.ListComp):
            raise SyntaxError("a comprehension needs brackets around it", ("", 1, 2, self.text))
        if isinstance(other, ast.List) and not other.elts:
            raise SyntaxError("there is only a comment", ("", 1, 2, self.text))
        if self.text.rstrip(" \t").endswith("\\"):
            raise SyntaxError(
                "a backslash at the end", ("", len(self._text_lines), len(self._text_lines[-1]) + 1, self.text)
            )
        return tree

    def _syntax_problem(self, error: SyntaxError) -> Problem:
        foreign = foreign_operator(self.text)
        if foreign is not None:
            offset, advice = foreign
            before = self.text[:offset]
            place = self.at(before.count("\n"), offset - (before.rfind("\n") + 1))
            return Problem(place, f"not an expression: {advice}")
        line, column = (error.lineno or 1) - 1, (error.offset or 1) - 1
        message = (error.msg or "invalid syntax").partition(" Perhaps you forgot a comma")[0].rstrip(".")
        first = self.text.split(maxsplit=1)[0]
        if message == "invalid syntax" and first in _STATEMENTS:
            message = (
                f"'{first}' begins a statement; an expression has a value, and statements belong in a Python module"
            )
        if line >= len(self._text_lines):
            line, column = len(self._text_lines) - 1, len(self._text_lines[-1])
            _, _, opened = message.partition("does not match opening parenthesis ")
            # The closing bracket is the added one, which the user did not write.
            message = f"{opened[:3]} is never closed" if opened else "it ends too early"
        elif line == 0:
            column -= 1
        column = min(max(column, 0), len(self._text_lines[line]))
        return Problem(self.at(line, column), f"not an expression: {message}")


def _too_deep(tree: ast.AST) -> bool:
    level = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return False
    return True


# Names and operators of other languages, and their spelling in expressions, for messages about mistakes.

NAMES = {
    "true": "True",
    "TRUE": "True",
    "false": "False",
    "FALSE": "False",
    "null": "None",
    "NULL": "None",
    "nil": "None",
    "none": "None",
    "undefined": "None",
}
"""Names of constants in other languages, and their equivalents in expressions."""

METHODS = {
    "charAt": "text[i]",
    "contains": "part in value",
    "containsKey": "key in object",
    "equals": "a == b",
    "equalsIgnoreCase": "a.lower() == b.lower()",
    "filter": "[item for item in list if CONDITION]",
    "getOrDefault": "object.get(key, default)",
    "has": "key in object",
    "hasOwnProperty": "key in object",
    "includes": "part in value",
    "indexOf": "text.find(part)",
    "isEmpty": "len(value) == 0",
    "length": "len(value)",
    "map": "[EXPR for item in list]",
    "matches": "re_match(pattern, text)",
    "parseInt": "int(text)",
    "size": "len(value)",
    "slice": "value[start:end]",
    "stringify": "str(value)",
    "substr": "text[start:end]",
    "substring": "text[start:end]",
    "toFixed": "round(number, digits)",
    "toLowerCase": "text.lower()",
    "toString": "str(value)",
    "toUpperCase": "text.upper()",
    "trim": "text.strip()",
}
"""Methods of other languages, and what expressions have in their place."""

MODULES = frozenset(
    [
        "base64",
        "collections",
        "datetime",
        "functools",
        "hashlib",
        "itertools",
        "json",
        "logging",
        "math",
        "np",
        "os",
        "pd",
        "re",
        "sys",
        "uuid",
    ]
)
"""Modules of Python that expressions of other tools import."""

_OPERATORS = {
    "&&": "and",
    "||": "or",
    "===": "==",
    "!==": "!=",
    "<>": "!=",
    "??": "A if A is not None else B",
    "?.": "value.get('name')",
    "?": "A if CONDITION else B",
    "!": "not",
    "=": "==",
    "++": "+ 1",
    "=>": "lambda x: …",
    "->": "lambda x: …",
    "AND": "and",
    "OR": "or",
    "NOT": "not",
    "LIKE": "re_match(pattern, text)",
    "$": "value",
    "“": '"',
    "”": '"',
    "‘": "'",
    "’": "'",
}
_TEXT = r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'"
# Longer operators first, so that no part of one matches as another.
_TOKENS = re.compile(
    rf"{_TEXT}|===|!==|=>|->|==|!=|<=|>=|:=|\*\*|//|<>|&&|\|\||\?\?|\?\.|\+\+|[?!=;$“”‘’]|(?<![.\w])(?:AND|OR|NOT|LIKE)(?!\w)"
)


def foreign_operator(text: str) -> tuple[int, str] | None:
    """Return the offset of the first operator of another language in a text, and a sentence about it; None if there is none.

    `=` is valid before the value of a keyword argument, so it is reported outside brackets only.

    >>> foreign_operator("value.a && value.b")
    (8, "write 'and' for '&&'")
    >>> foreign_operator("'a && b' + value") is None
    True
    """
    for match in _TOKENS.finditer(text):
        token = match[0]
        if token == ";":
            return match.start(), "an expression is one value, without ';'"
        written = _OPERATORS.get(token)
        if written is None or (token == "=" and _is_inside_brackets(text[: match.start()])):
            continue
        if token in ("=>", "->") and not _is_inside_brackets(text[: match.start()]):
            return match.start(), f"write what is after {token!r} alone: an expression has no parameters"
        if token == "=" and "\n" in text:
            return (
                match.start(),
                "an expression is one value, without assignments; write a function of Python and 'call' it",
            )
        return match.start(), f"write {written!r} for {token!r}"
    return None


def _is_inside_brackets(before: str) -> bool:
    bare = re.sub(_TEXT, "", before)
    return sum(bare.count(bracket) for bracket in "([{") > sum(bare.count(bracket) for bracket in ")]}")
