"""The index of the names in the files of a topology: definitions, references and renames are read from it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from streamkit.editor.expression_tokens import Word, words
from streamkit.errors import Position
from streamkit.expressions.calls import place_in_source
from streamkit.spec.yaml_nodes import Node, written_at
from streamkit.spec.yaml_reader import Name


class Part(NamedTuple):
    """A part of a topology that has a name. kind, name: as in spec.yaml_reader.Name; a callable's name begins with its folder."""

    kind: str
    name: str


class Mention(NamedTuple):
    """A place that names a part, from `start` to `end` in the text of a file.

    written: whether this is the name itself, letter by letter, and may be replaced.
    """

    part: Part
    file: str
    start: int
    end: int
    defines: bool
    written: bool


class Names:
    """All mentions of the parts of a topology."""

    def __init__(self, names: Iterable[Name], expressions: Iterable[Node]):
        names = list(names)
        functions = {each.name for each in names if each.kind == "function"}
        found = [mention for each in names for mention in _mentions(each)]
        if functions:
            found += _calls(functions, expressions)
        # A step of a macro is read once for each use.
        self.mentions = list(dict.fromkeys(found))

    def at(self, file: str, offset: int) -> Mention | None:
        """Return the shortest mention at an offset of a file, by its real path; also just behind its end."""
        found = [
            each
            for each in self.mentions
            if each.start <= offset <= each.end and os.path.realpath(each.file) == file
        ]  # fmt: skip
        return min(found, key=lambda each: each.end - each.start, default=None)

    def of(self, part: Part) -> list[Mention]:
        """Return all mentions of a part."""
        return [each for each in self.mentions if each.part == part]


def _mentions(name: Name) -> Iterator[Mention]:
    kind, text, node = name.kind, name.name, name.node
    if kind == "pipeline" and not name.defines and "." in text:
        pipeline = text.partition(".")[0]
        yield _mention(Part("pipeline", pipeline), pipeline, node, written_at(node, 0), False)
        yield _branch(text, node, written_at(node, len(pipeline) + 1), False)
        return
    start = written_at(node, 0) if name.at is None else name.at
    if kind == "branch":
        yield _branch(text, node, start, name.defines)
    elif kind == "parameter":
        yield _mention(Part(kind, text), text.partition(".")[2], node, start, name.defines)
    elif kind == "callable":
        folder = os.path.dirname(os.path.abspath(node.source.file))
        yield _mention(Part(kind, f"{folder}{os.sep}{text}"), text, node, start, False)
    else:
        yield _mention(Part(kind, text), text, node, start, name.defines)


def _branch(name: str, node: Node, start: int, defines: bool) -> Mention:
    return _mention(Part("branch", name), name.partition(".")[2], node, start, defines)


def _mention(part: Part, text: str, node: Node, start: int, defines: bool) -> Mention:
    # A step of a plugin may name a part in its Python.
    is_own = part.kind not in ("file", "callable") and not node.source.file.endswith(".py")
    written = is_own and node.source.text[start : start + len(text)] == text
    end = start + len(text) if written else node.start + len(node.source.text[node.start : node.end].rstrip())
    return Mention(part, node.source.file, start, max(start, end), defines, written)


def _calls(functions: set[str], expressions: Iterable[Node]) -> Iterator[Mention]:
    """Yield the calls of the file's functions in expressions."""
    for node in expressions:
        for word in placed_words(node):
            name = node.source.text[word.start : word.end]
            if word.kind == "function" and name in functions:
                yield Mention(Part("function", name), node.source.file, word.start, word.end, False, True)


def placed_words(node: Node) -> Iterator[Word]:
    """Yield the words of an expression with their offsets in its file, one for each line of a word; those without a certain place are left out."""
    file, value = node.source.text, node.value
    for word in words(value):
        begin = word.start
        for part in value[word.start : word.end].split("\n"):
            start, end = written_at(node, begin), written_at(node, begin + max(len(part) - 1, 0)) + 1
            # YAML doubles the quotes within its own.
            if part and file[start:end].replace("''", "'") == part.replace("''", "'"):
                yield Word(start, end, word.kind)
            begin += len(part) + 1


def python_place(name: str) -> Position | None:
    """Return the place that defines a callable by its name in the index, if its source is beside the file."""
    folder, _, text = name.rpartition(os.sep)
    module, _, attribute = text.partition(":")
    return place_in_source(folder, module, attribute)
