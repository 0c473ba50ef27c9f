"""Formatting: two blanks for each level, none at the ends of lines, one line between parts; all else stays as it is written.

No library keeps a file as it is: those that keep comments still write scalars and brackets in their own way.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping

from lsprotocol import types as lsp

from streamkit.editor.analysis import OTHER, kind_of
from streamkit.editor.cursor import marks_of
from streamkit.editor.texts import Text
from streamkit.errors import TopologyError
from streamkit.spec.yaml_nodes import LINE_END, Node, Source, compose

INDENT = 2
_SAYS_INDENT = re.compile(r"[|>][-+]?[1-9]")
Edit = tuple[int, int, str]
"""What replaces the text between two offsets."""


def formatting(text: Text) -> list[lsp.TextEdit]:
    """Return the edits that format a file of streamkit; none for other files, and for malformed YAML."""
    if kind_of(text.file, text.text) == OTHER:
        return []
    return [lsp.TextEdit(text.span(start, end), new) for start, end, new in edits_of(text)]


def edits_of(text: Text) -> list[Edit]:
    """Return the edits that format a text; fewer if these would change what it says, which the parser decides."""
    try:
        root = compose(Source(text.text, text.file), [])
    except TopologyError:
        return []
    if root is None:
        return []
    kept = _kept_rows(text, root)
    spaces = [*_line_ends(text, kept), *_blank_rows(text, kept)]
    # A last block (`|`) without a line end would get one in its text.
    indents, end = list(_indents(text, kept)), list(_last_end(text))
    for edits in ([*indents, *spaces, *end], [*indents, *spaces], [*spaces, *end], spaces):
        # A row of spaces after an empty row is found twice.
        edits = sorted({edit for edit in edits if text.text[edit[0] : edit[1]] != edit[2]})
        if _same(root, text.text, applied(text.text, edits)):
            return edits
    return []


def applied(text: str, edits: list[Edit]) -> str:
    """Return a text after edits, which are sorted."""
    for start, end, new in reversed(edits):
        text = text[:start] + new + text[end:]
    return text


def _same(root: Node, text: str, changed: str) -> bool:
    """Return whether a changed text has the same characters but white space, and the same document."""
    if text.split() != changed.split():
        return False
    try:
        other = compose(Source(changed, root.source.file), [])
    except TopologyError:
        return False
    waiting: list[tuple[Node, Node | None]] = [(root, other)]
    while waiting:
        one, two = waiting.pop()
        if two is None or (one.kind, one.style, one.tag, one.plain) != (two.kind, two.style, two.tag, two.plain):
            return False
        if one.kind == "scalar":
            if one.value != two.value:
                return False
            continue
        if len(one.value) != len(two.value):
            return False
        for own, its in zip(one.value, two.value, strict=True):
            waiting += [(own, its)] if one.kind == "list" else zip(own, its, strict=True)
    return True


def _kept_rows(text: Text, root: Node) -> dict[int, int | None]:
    """Return the rows that begin within a scalar or within brackets.

    Those of a block (`|`, `>`) have the column at which the block begins, unless its first row says it.
    """
    kept: dict[int, int | None] = {}
    waiting, seen = [root], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.kind == "scalar" or text.text[node.start] in "{[":
            first, last = text.at(node.start).line, text.at(max(node.start, node.end - 1)).line
            rows = range(first + 1, last + 1)
            is_block = node.style in ("|", ">") and not _SAYS_INDENT.match(text.text, node.start)
            columns = [len(row) - len(row.lstrip(" ")) for row in map(text.line, rows) if row.strip()]
            kept.update(dict.fromkeys(rows, min(columns) if is_block and columns else None))
        elif node.kind == "list":
            waiting += node.value
        else:
            waiting += [part for pair in node.value for part in pair]
    return kept


def _line_ends(text: Text, kept: Container[int]) -> Iterator[Edit]:
    """Yield the edits that remove blanks at the ends of rows."""
    for number, row in enumerate(text.all_lines):
        if number not in kept and number + 1 not in kept and row != row.rstrip(" \t"):
            start = text.line_offsets[number]
            yield start + len(row.rstrip(" \t")), start + len(row), ""


def _last_end(text: Text) -> Iterator[Edit]:
    """Yield the edit that gives the last row the end that the first one has."""
    if text.all_lines[-1].strip():
        first = LINE_END.search(text.text)
        yield len(text.text), len(text.text), first[0] if first is not None else "\n"


def _blank_rows(text: Text, kept: Container[int]) -> Iterator[Edit]:
    """Yield the edits that leave one blank row of several, and none at the ends of the file."""
    rows = text.all_lines
    last = max((number for number, row in enumerate(rows) if row.strip()), default=-1)
    for number, row in enumerate(rows[:-1]):
        is_more = number == 0 or not rows[number - 1].strip() or number > last
        if not row.strip() and is_more and not any(beside in kept for beside in (number - 1, number, number + 1)):
            start = text.line_offsets[number]
            yield start, start + len(row) - len(row.lstrip(" \t")), ""
            yield start + len(row), text.line_offsets[number + 1], ""


def _indents(text: Text, kept: Mapping[int, int | None]) -> Iterator[Edit]:
    """Yield the edits of the blanks before rows, and of those behind the dashes of lists."""
    stack: list[tuple[int, bool, int]] = []
    """The lists and mappings around a row: the column, whether it is a list, and the new column."""
    shift = 0
    waiting: list[int] = []
    for number, row in enumerate(text.all_lines):
        column = len(row) - len(row.lstrip(" "))
        if number not in kept and (not row.strip() or row.lstrip().startswith("#")):
            waiting += [number] if row.strip() else []
            continue
        start = text.line_offsets[number]
        if number in kept:
            block = kept[number]
            move = shift if block is None else (stack[-1][2] + INDENT if stack else 0) - block
            if row.strip():
                yield start, start + min(column, max(-move, 0)), " " * max(move, 0)
            continue
        before = shift
        places, at = marks_of(row)
        new = (stack[-1][2] + INDENT) if stack else 0
        for place, (old, name) in enumerate(places):
            column_now = _column(stack, old, name is None)
            new = column_now if place == 0 else new
            if place and places[place - 1][1] is None:
                yield start + places[place - 1][0] + 1, start + old, " "
        if places and places[-1][1] is None and row[at:].strip():
            yield start + places[-1][0] + 1, start + at, " "
        shift = new - column
        yield start, start + column, " " * new
        for comment in waiting:
            yield _comment(text, comment, column, new, before)
        waiting = []
    for comment in waiting:
        yield _comment(text, comment, -1, 0, shift)


def _column(stack: list[tuple[int, bool, int]], old: int, is_list: bool) -> int:
    """Return the new column of a dash or a key, and enter the list or the mapping that begins with it."""
    while stack and (stack[-1][0] > old or (stack[-1][0] == old and stack[-1][1] and not is_list)):
        stack.pop()
    if not stack or stack[-1][:2] != (old, is_list):
        stack.append((old, is_list, stack[-1][2] + INDENT if stack else 0))
    return stack[-1][2]


def _comment(text: Text, number: int, below: int, new: int, shift: int) -> Edit:
    """Return the edit of a comment: it moves with the row below it, or else with the one above."""
    row, start = text.line(number), text.line_offsets[number]
    column = len(row) - len(row.lstrip(" "))
    return start, start + column, " " * (new if column == below else max(0, column + shift))
