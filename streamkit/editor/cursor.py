"""Finds the cursor's place in a file's YAML, also in lines that are half typed: by indentation, without a parser."""

from __future__ import annotations

import re
from dataclasses import dataclass

from streamkit.editor.texts import Text

Path = tuple[str | None, ...]
"""The keys from the root to a place; None is an item of a list."""
_KEY = re.compile(r"""("[^"]*"|'[^']*'|[^\s#:{}\[\],&*!|>'"%@`-][^:#{}\[\]]*?|-[^\s:][^:]*?)\s*:(?=\s|$)""")
_MOST_ROWS = 50_000
"""Rows above the cursor that are read."""


@dataclass(frozen=True)
class Cursor:
    """The place of a cursor.

    path: of the mapping or list around a key, or of a value; written: the scalar up to the cursor, with its opening quote;
    start: the column at which it begins; in_flow: whether it is within brackets.
    """

    path: Path
    is_key: bool
    written: str
    line: int
    start: int
    in_flow: bool = False

    @property
    def plain(self) -> str:
        """The scalar without its opening quote."""
        return self.written[1:] if self.written[:1] in ("'", '"') else self.written


def cursor_at(text: Text, line: int, column: int) -> Cursor:
    """Return the place of a line and column, both from 0, in characters."""
    head = text.line(line)[:column]
    marks, start = marks_of(head)
    indent = len(head) - len(head.lstrip(" "))
    around, opened = _around(text, line, marks[0][0] if marks else indent, column)
    if opened is not None:
        written, is_flow = f"{opened}\n{head}", opened.lstrip()[:1] in ("{", "[")
        if not is_flow:
            return Cursor(around, False, head.strip(" "), line, indent)
        return _in_flow(around, written, line, column)
    path = (*around, *(name for _, name in marks))
    rest = head[start:]
    if rest[:1] in ("{", "["):
        return _in_flow(path, rest, line, column)
    is_value = bool(marks) and marks[-1][1] is not None
    if is_value:
        return Cursor(path, False, rest, line, start)
    return Cursor(path, True, rest, line, start)


def marks_of(row: str) -> tuple[list[tuple[int, str | None]], int]:
    """Return the dashes and the key that a row begins with, by their columns, and where the rest begins."""
    marks: list[tuple[int, str | None]] = []
    at = len(row) - len(row.lstrip(" "))
    while row[at : at + 2] == "- " or row[at:] == "-":
        marks.append((at, None))
        at += 1
        at += len(row[at:]) - len(row[at:].lstrip(" "))
    match = _KEY.match(row, at)
    if match is not None:
        marks.append((at, match[1].strip("'\"")))
        at = match.end()
        at += len(row[at:]) - len(row[at:].lstrip(" "))
    return marks, at


def _around(text: Text, line: int, indent: int, column: int) -> tuple[Path, str | None]:
    """Return the path around a row, and the text since the value that is still open there, if one is."""
    if not text.line(line)[:column].strip():
        indent = column
    names: list[str | None] = []
    is_first, opened = True, None
    dash: int | None = indent if text.line(line)[indent : indent + 1] == "-" else None
    for number in range(line - 1, max(-1, line - _MOST_ROWS), -1):
        if indent == 0 and dash is None:
            break
        row = text.line(number)
        is_within = row.startswith(" " * (indent + (dash is not None)))
        if is_within or not row.strip() or row.lstrip().startswith("#"):
            continue
        marks, start = marks_of(row)
        for at, name in reversed(marks):
            # The items of a list may be as far to the right as its key.
            if at < indent or (at == dash and name is not None):
                if is_first and name is not None:
                    opened = _opened(text, number, start, line)
                is_first = False
                names.append(name)
                indent, dash = at, at if name is None else None
    return tuple(reversed(names)), opened


def _opened(text: Text, number: int, start: int, line: int) -> str | None:
    """Return the rows of a value that continues in the row of the cursor; None if a mapping or a list begins there."""
    value = text.line(number)[start:]
    if not value or value.startswith(("#", "&", "!")):
        return None
    if value[0] in "{[" and not _flow("\n".join([value, *(text.line(row) for row in range(number + 1, line))]))[0]:
        return None
    return "\n".join([value, *(text.line(row) for row in range(number + 1, line))])


def _in_flow(around: Path, written: str, line: int, column: int) -> Cursor:
    stack, token = _flow(written)
    path = around + tuple(None if kind == "[" else key for kind, key in stack if kind == "[" or key is not None)
    is_key = bool(stack) and stack[-1][0] == "{" and stack[-1][1] is None
    if not stack:
        return Cursor(path, False, token, line, column - len(token), True)
    return Cursor(path, is_key, token, line, column - len(token.rpartition("\n")[2]), True)


def _flow(written: str) -> tuple[list[tuple[str, str | None]], str]:
    """Return the brackets that are open at the end of a text, each with its key, and the last scalar."""
    stack: list[tuple[str, str | None]] = []
    token, quote = "", ""
    for at, character in enumerate(written):
        if quote:
            token += character
            quote = "" if character == quote else quote
        elif character in "'\"" and not token.strip():
            token, quote = character, character
        elif character in "{[" and not token.strip():
            stack.append((character, None))
            token = ""
        elif character in "}]" and stack:
            stack.pop()
            token = character
        elif character == "," and stack:
            stack[-1] = (stack[-1][0], None)
            token = ""
        elif character == ":" and stack and stack[-1] == ("{", None) and written[at + 1 : at + 2] in ("", " ", "\n"):
            stack[-1] = ("{", token.strip(" '\""))
            token = ""
        elif character not in " \n" or token:
            token += character
    return stack, token


def value_column(row: str) -> int:
    """Return the column at which the value of a row begins, behind its dashes and its key."""
    return marks_of(row)[1]


def word_end(text: Text, line: int, column: int) -> int:
    """Return the column at which the word around a place ends."""
    row = text.line(line)
    while column < len(row) and (row[column].isalnum() or row[column] in "_-."):
        column += 1
    return column


def keys_beside(text: Text, cursor: Cursor) -> set[str]:
    """Return the keys that the mapping around a key in lines has already."""
    if cursor.in_flow:
        return set()
    keys: set[str] = set()
    for rows in (range(cursor.line - 1, -1, -1), range(cursor.line + 1, len(text.line_offsets))):
        for number in rows:
            row = text.line(number)
            if not row.strip() or row.lstrip().startswith("#"):
                continue
            marks, _ = marks_of(row)
            column = marks[-1][0] if marks else len(row) - len(row.lstrip(" "))
            if column < cursor.start or abs(number - cursor.line) > _MOST_ROWS:
                break
            if column == cursor.start and marks and marks[-1][1] is not None:
                keys.add(str(marks[-1][1]))
            if marks and marks[0][1] is None and marks[0][0] < cursor.start:
                break  # the item of a list begins here
    return keys
