"""Texts of open files, with places in the three encodings of the protocol."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from lsprotocol import types as lsp

from streamkit.errors import Position
from streamkit.spec.topology_file import read_text
from streamkit.spec.yaml_nodes import LINE_END, Node


@dataclass(frozen=True)
class Text:
    """A version of a file. encoding: how the protocol counts columns (general.positionEncodings)."""

    file: str
    text: str = field(repr=False)
    version: int | None = None
    encoding: str = lsp.PositionEncodingKind.Utf16

    @cached_property
    def line_offsets(self) -> list[int]:
        """The offsets at which lines begin."""
        return [0, *(match.end() for match in LINE_END.finditer(self.text))]

    @cached_property
    def all_lines(self) -> list[str]:
        """The lines without their ends."""
        return [self.line(number) for number in range(len(self.line_offsets))]

    def line(self, number: int) -> str:
        """Return a line, counted from 0, without its end; empty beyond the end of the file."""
        if not 0 <= number < len(self.line_offsets):
            return ""
        end = self.line_offsets[number + 1] if number + 1 < len(self.line_offsets) else len(self.text)
        return self.text[self.line_offsets[number] : end].rstrip("\r\n")

    def place(self, position: lsp.Position) -> tuple[int, int]:
        """Return line and column, both from 0 in characters; places beyond an end are at this end."""
        number = min(position.line, len(self.line_offsets) - 1)
        line = self.line(number)
        if self.encoding == lsp.PositionEncodingKind.Utf32 or line.isascii():
            return number, min(position.character, len(line))
        column = units = 0
        for character in line:
            if units >= position.character:
                break
            units += _units(character, self.encoding)
            column += 1
        return number, column

    def offset(self, position: lsp.Position) -> int:
        """Return the offset of a place, in characters."""
        line, column = self.place(position)
        return self.line_offsets[line] + column

    def position(self, line: int, column: int) -> lsp.Position:
        """Return the protocol's place of line and column, both from 0 in characters."""
        line = min(max(line, 0), len(self.line_offsets) - 1)
        before = self.line(line)[: max(column, 0)]
        if self.encoding == lsp.PositionEncodingKind.Utf32 or before.isascii():
            return lsp.Position(line, len(before))
        return lsp.Position(line, sum(_units(character, self.encoding) for character in before))

    def at(self, offset: int) -> lsp.Position:
        """Return the protocol's place of an offset."""
        offset = min(max(offset, 0), len(self.text))
        line = bisect_right(self.line_offsets, offset) - 1
        return self.position(line, offset - self.line_offsets[line])

    def span(self, start: int, end: int) -> lsp.Range:
        """Return the range between two offsets."""
        return lsp.Range(self.at(start), self.at(max(start, end)))

    def of(self, node: Node) -> lsp.Range:
        """Return the range of a node, without the white space after it."""
        return self.span(node.start, node.start + len(self.text[node.start : node.end].rstrip()))

    def word(self, place: Position) -> lsp.Range:
        """Return the range of the word that begins at a place: what a mistake there underlines."""
        line = self.line(place.line - 1)
        start = min(place.column - 1, len(line))
        end = start
        if line[start : start + 1] in ("'", '"'):
            closing = line.find(line[start], start + 1)
            end = closing + 1 if closing > 0 else len(line)
        else:
            while end < len(line) and (line[end].isalnum() or line[end] in "_-.${}"):
                end += 1
        end = end if end > start else min(start + 1, len(line))
        return lsp.Range(self.position(place.line - 1, start), self.position(place.line - 1, end))


def _units(character: str, encoding: str) -> int:
    if encoding == lsp.PositionEncodingKind.Utf16:
        return 2 if ord(character) > 0xFFFF else 1
    return len(character.encode("utf-8", "surrogatepass")) if encoding == lsp.PositionEncodingKind.Utf8 else 1


class Texts:
    """Open files by their paths; other files are read from the disk."""

    def __init__(self, opened: Mapping[str, Text]):
        self._opened = opened

    def read(self, path: str) -> str:
        """Return the text of a file. Raises UsageError when it can't be read, TopologyError if it is not UTF-8."""
        text = self._opened.get(os.path.realpath(path))
        return read_text(path) if text is None else text.text

    def get(self, path: str, encoding: str) -> Text:
        """Return the text of a file; raises as `read`."""
        text = self._opened.get(os.path.realpath(path))
        return Text(path, read_text(path), None, encoding) if text is None else text
