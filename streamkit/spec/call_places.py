"""The places of calls in a user's Python: which line makes a step, and where each of its arguments is written."""

from __future__ import annotations

import ast
import keyword
import linecache
import os
import sys
from functools import lru_cache
from itertools import islice
from types import FrameType
from typing import NamedTuple

from streamkit.spec.yaml_nodes import Source

_OWN = ("streamkit.spec", "streamkit.api", "streamkit.operators")
"""The packages whose frames are between the user's call and its recording."""


class Place(NamedTuple):
    """A part of a Python file by its offsets in characters.

    tree: its syntax, None if the text does not show it; piece: where the syntax begins in which `tree` has its positions.
    """

    source: Source
    start: int
    end: int
    tree: ast.expr | None = None
    piece: int = 0

    @property
    def beginning(self) -> Place:
        """The place without its text, for a value that is not written here."""
        return Place(self.source, self.start, self.start)

    @property
    def quote(self) -> str | None:
        """The quotation mark of a text that is written here, None if something else is."""
        if not (isinstance(self.tree, ast.Constant) and isinstance(self.tree.value, str)):
            return None
        marks = [mark for mark in "'\"" if mark in self.source.text[self.start : self.start + 3]]
        return marks[0] if len(marks) == 1 else None


class CallPlace:
    """The place of one call, and of its arguments.

    line, end_line: from 1; column, end_column: in bytes of UTF-8, as Python has them.
    """

    def __init__(self, file: str, lines: tuple[int, int], columns: tuple[int, int]):
        self.file = file
        self.lines = lines
        self.columns = columns
        self._found: tuple[Place, dict[str, Place]] | None = None

    @property
    def start(self) -> Place:
        """The place of the call: the name of the method that is called."""
        return self._places()[0]

    def argument(self, name: str) -> Place:
        """Return the place of an argument: its name with a keyword, its number from 0 without; that of the call if it is not found."""
        whole, arguments = self._places()
        return arguments.get(name, whole)

    def _places(self) -> tuple[Place, dict[str, Place]]:
        if self._found is None:
            self._found = self._search()
        return self._found

    def _search(self) -> tuple[Place, dict[str, Place]]:
        source = _source(self.file, "".join(linecache.getlines(self.file)))
        if source is None or len(source.starts) < self.lines[1]:
            # The text is not known, as in an interactive session: a text of blanks has the same lines and columns.
            source = Source("\n" * (self.lines[0] - 1) + " " * self.columns[0], self.file)
            at = len(source.text)
            return Place(source, at, at), {}
        start, end = (_offset(source, *place) for place in zip(self.lines, self.columns, strict=True))
        tree = _parsed(source.text[start:end])
        whole = Place(source, start, start)
        if not isinstance(tree, ast.Call):
            return whole, {}
        if isinstance(tree.func, ast.Attribute):
            at = _located(source, start, tree.func).end - len(tree.func.attr)
            whole = Place(source, at, at)
        arguments = {
            str(number): argument for number, argument in enumerate(tree.args) if not isinstance(argument, ast.Starred)
        }
        arguments |= {keyword.arg: keyword.value for keyword in tree.keywords if keyword.arg is not None}
        return whole, {name: _located(source, start, argument) for name, argument in arguments.items()}


def calling_place() -> CallPlace:
    """Return the place of the call in the user's code from which this function is called through streamkit's own functions."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_back is not None and is_own(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    assert frame is not None
    code = frame.f_code
    line, end_line, column, end_column = next(islice(code.co_positions(), frame.f_lasti // 2, None))
    line = line or frame.f_lineno
    return CallPlace(code.co_filename, (line, end_line or line), (column or 0, end_column or 0))


def is_own(module: str) -> bool:
    """Return whether a module is between the user's call and its recording."""
    return any(module == package or module.startswith(package + ".") for package in _OWN)


def folder_of(file: str) -> str:
    """Return the folder of a Python file; that of the process for code without a file.

    >>> folder_of("<stdin>"), folder_of("jobs/orders.py")
    ('', 'jobs')
    """
    return "" if file.startswith("<") else os.path.dirname(file)


def inner(place: Place, key: str | int) -> Place:
    """Return the place of an entry of a list, a tuple or a mapping that is written at a place."""
    tree, entry = place.tree, None
    if isinstance(tree, ast.List | ast.Tuple) and isinstance(key, int):
        entry = tree.elts[key] if key < len(tree.elts) else None
    elif isinstance(tree, ast.Dict):
        pairs = zip(tree.keys, tree.values, strict=True)
        entry = next((value for name, value in pairs if isinstance(name, ast.Constant) and name.value == key), None)
    elif isinstance(tree, ast.Call) and isinstance(key, int):
        entry = tree.args[key] if key < len(tree.args) else None
    elif isinstance(tree, ast.Call):
        entry = next((keyword.value for keyword in tree.keywords if keyword.arg == key), None)
    if isinstance(entry, ast.Starred):
        entry = None
    return place.beginning if entry is None else _located(place.source, place.piece, entry)


def _located(source: Source, piece: int, tree: ast.expr) -> Place:
    """Return the place of a part of the syntax of a piece, which was parsed within a bracket."""
    ends = (tree.lineno, tree.col_offset), (tree.end_lineno or tree.lineno, tree.end_col_offset or tree.col_offset)
    first = source.at(piece).line
    start, end = (
        piece + _length(source.text[piece : piece + column], column - 1)
        if line == 1
        else _offset(source, first + line - 1, column)
        for line, column in ends
    )
    return Place(source, start, end, tree, piece)


def _length(text: str, size: int) -> int:
    """Return the number of characters of the first bytes of a text."""
    return len(text.encode()[:size].decode("utf-8", "ignore"))


def _offset(source: Source, line: int, column: int) -> int:
    """Return the offset of a line (from 1) and a column in bytes."""
    start = source.starts[line - 1]
    return start + _length(source.text[start : start + column], column)


@lru_cache(maxsize=32)
def _source(file: str, text: str) -> Source | None:
    return Source(text, file) if text else None


@lru_cache(maxsize=1024)
def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(f"({text})", mode="eval").body
    except (SyntaxError, ValueError):
        return None


def plain_name(name: str) -> str:
    """Return the name of an option or a step from its name in Python, where a keyword ends with an underscore.

    >>> plain_name("if_"), plain_name("store"), plain_name("iff_")
    ('if', 'store', 'iff_')
    """
    return name[:-1] if keyword.iskeyword(name[:-1]) else name


def python_name(name: str) -> str:
    """Return the name in Python of an option or a step.

    >>> python_name("with"), python_name("name")
    ('with_', 'name')
    """
    return f"{name}_" if keyword.iskeyword(name) else name
