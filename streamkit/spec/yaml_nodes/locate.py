"""Maps a character of a scalar's value to its place in the file, through quotes, folding and escapes."""

from __future__ import annotations

from collections.abc import Callable

from streamkit.errors import Position
from streamkit.spec.yaml_nodes.nodes import Node


def locator(node: Node) -> Callable[[int, int], Position]:
    """Return the function from line and column in a scalar's text (both from 0) to its place.

    Where the place is not certain (escapes, variables) it is the beginning of the scalar.
    """

    def locate(line: int, column: int) -> Position:
        lines = node.value.split("\n")
        offset = sum(len(row) + 1 for row in lines[:line]) + column
        return node.source.at(_offset(node, min(offset, len(node.value))))

    return locate


def _offset(node: Node, offset: int) -> int:
    raw, value = node.source.text[node.start : node.end], node.value
    begin = _begin(node, raw)
    if "${" in value:  # offsets count in the text after its variables are replaced
        return node.start
    if raw[begin : begin + len(value)] == value:  # the file has the value itself
        return node.start + begin + offset
    if node.style == '"' and "\\" in raw.replace('\\"', "").replace("\\\\", ""):
        return node.start
    return node.start + _follow(raw, begin, value, offset)


def _begin(node: Node, raw: str) -> int:
    """Return the offset of the text in the raw scalar: after an anchor, a quote or a block header."""
    begin = 0
    if node.style in ("'", '"'):
        begin = raw.find(node.style) + 1
    elif node.style in ("|", ">"):
        line_end = raw.find("\n", raw.find(node.style))
        begin = line_end + 1 if line_end >= 0 else len(raw)
    elif raw[:1] in ("&", "!"):
        begin = max(raw.rfind(node.value.split("\n")[0].split(" ")[0]), 0)
    return begin


def _follow(raw: str, cursor: int, value: str, offset: int) -> int:
    """Return the offset in the raw text of a character of the value; both skip white space, which folding changes."""
    place = cursor
    for character in value[: offset + 1]:
        if character.isspace():
            continue
        found = raw.find(character, cursor)
        if found < 0:
            return place
        place = found
        cursor = found + 1
    return place
