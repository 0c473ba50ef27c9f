"""Parses YAML text to a tree of nodes with positions; iterative, so that no file can exhaust the stack."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, cast

import yaml

from streamkit.errors import Position, Problem, TopologyError, Within
from streamkit.operators.core.parsed_values import CallRef

MAX_CHARACTERS = 10_000_000
MAX_NODES = 200_000
"""Nodes of a file with every alias expanded, so that a few lines can't expand to billions."""
MAX_DEPTH = 100
CORE_TAG = "tag:yaml.org,2002:"
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_UNPRINTABLE = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
LINE_END = re.compile("\r\n|\r|\n")
_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Event: TypeAlias = Any
"""An event of the YAML parser. Its typed stubs allow for events without marks, which the parser does not make."""
_CORE_TAGS = {"scalar": ("str", "int", "float", "bool", "null"), "list": ("seq",), "mapping": ("map",)}


class Source:
    """The text of a file; maps an offset (characters from 0) to a Position.

    Nodes that are copied for a use of a macro have a source of their own. scope: the arguments of `${NAME}` in it;
    macros: the macros around its nodes, the outermost first; within: of the positions.
    """

    __slots__ = ("file", "macros", "scope", "starts", "text", "within")

    def __init__(self, text: str, file: str):
        self.text = text
        self.file = file
        self.scope: Mapping[str, Argument] = MappingProxyType({})
        self.macros: tuple[str, ...] = ()
        self.within: Within | None = None
        self.starts = [0, *(match.end() for match in LINE_END.finditer(text))]

    def at(self, offset: int) -> Position:
        """Return the position of an offset; beyond the end it is that of the end.

        >>> str(Source("a\\nbc", "f").at(3))
        'f:2:2'
        """
        offset = min(max(offset, 0), len(self.text))
        line = bisect_right(self.starts, offset)
        return Position(self.file, line, offset - self.starts[line - 1] + 1, self.within)

    def inside(self, within: Within) -> Source:
        """Return the same text with other positions."""
        source = copy(self)
        source.within = within
        return source


class Node:
    """A scalar, a list or a mapping of the file.

    kind: "scalar" (`value`: its text), "list" (`value`: nodes) or "mapping" (`value`: pairs of key node and value node).
    start, end: offsets in characters; plain: a scalar without quotes; tag: its core type if the file names it (`!!int`);
    size: the number of nodes with aliases expanded; parameter: the type of the parameter of a macro whose argument it is;
    ref: what the text `module:object` refers to, if a topology in Python passes the object.
    """

    __slots__ = ("end", "kind", "parameter", "plain", "ref", "size", "source", "start", "style", "tag", "value")

    def __init__(self, kind: str, value: Any, start: int, end: int, source: Source):
        self.kind = kind
        self.value = value
        self.start = start
        self.end = end
        self.source = source
        self.plain = False
        self.style: str | None = None
        self.tag: str | None = None
        self.size = 1
        self.parameter: str | None = None
        self.ref: CallRef | None = None

    @property
    def position(self) -> Position:
        """The place where the node begins."""
        return self.source.at(self.start)


class Argument(NamedTuple):
    """An argument of a macro, and the type of its parameter."""

    node: Node
    type: str


def compose(source: Source, problems: list[Problem]) -> Node | None:
    """Return the root of a text's one document, or None when it is empty.

    Adds problems that do not stop the parser, such as unknown tags, to `problems`; raises TopologyError for malformed YAML.
    """
    _check_text(source)
    return _Composer(source, problems).run()


def _check_text(source: Source) -> None:
    if len(source.text) > MAX_CHARACTERS:
        raise TopologyError([Problem(source.at(0), f"The file is longer than {MAX_CHARACTERS:,} characters")])
    # Compiling the ranges of Unicode takes milliseconds, and most files are ASCII.
    pattern = _CONTROL if source.text.isascii() else re.compile(_UNPRINTABLE)
    bad = pattern.search(source.text)
    if bad:
        message = f"The character U+{ord(bad[0]):04X} may not stand in a YAML file"
        raise TopologyError([Problem(source.at(bad.start()), message)])


class _Composer:
    """Builds the tree from the parser's events with an explicit stack."""

    def __init__(self, source: Source, problems: list[Problem]):
        self.source = source
        self.problems = problems
        self.anchors: dict[str, Node] = {}
        self.open: list[Node] = []
        self.open_anchors: list[str | None] = []
        self.keys: list[Node | None] = []
        """The key that waits for its value, for each open mapping."""
        self.root: Node | None = None
        self.documents = 0

    def run(self) -> Node | None:
        for event in self._events():
            kind = type(event).__name__
            if kind == "ScalarEvent":
                self._scalar(event)
            elif kind in ("MappingStartEvent", "SequenceStartEvent"):
                self._begin("mapping" if kind == "MappingStartEvent" else "list", event)
            elif kind in ("MappingEndEvent", "SequenceEndEvent"):
                self._finish(event)
            elif kind == "AliasEvent":
                self._alias(event)
            elif kind == "DocumentStartEvent":
                self.documents += 1
                if self.documents > 1:
                    self._stop(event.start_mark.index, "A second document begins here; a file holds one topology")
        return self.root

    def _events(self) -> Iterator[Event]:
        """Yield the parser's events; its errors become TopologyError."""
        try:
            loader = _LOADER(self.source.text)
            while (event := loader.get_event()) is not None:  # type: ignore[no-untyped-call]
                yield event
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            offset = mark.index if mark else 0
            raise TopologyError(
                [*self.problems, Problem(self.source.at(offset), _syntax(error, self.source.text, offset))]
            ) from error
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            message = f"Not readable as YAML: {str(error).splitlines()[0]}"
            raise TopologyError([*self.problems, Problem(self.source.at(0), message)]) from error

    def _scalar(self, event: Event) -> None:
        node = Node("scalar", event.value, event.start_mark.index, event.end_mark.index, self.source)
        node.style = event.style
        node.plain = bool(event.implicit[0])
        node.tag = self._tag(node, event)
        self._remember(event.anchor, node)
        self._add(node)

    def _begin(self, kind: str, event: Event) -> None:
        node = Node(kind, [], event.start_mark.index, event.end_mark.index, self.source)
        node.tag = self._tag(node, event)
        if len(self.open) >= MAX_DEPTH:
            self._stop(node.start, f"Lists and mappings are nested deeper than {MAX_DEPTH} levels")
        self.open.append(node)
        self.open_anchors.append(event.anchor)
        self.keys.append(None)

    def _finish(self, event: Event) -> None:
        node = self.open.pop()
        self.keys.pop()
        node.end = event.end_mark.index
        if node.kind == "mapping" and self.source.text[node.end - 1] == "}":
            self._join_calls(node)
        self._remember(self.open_anchors.pop(), node)
        self._add(node)

    def _join_calls(self, node: Node) -> None:
        """Report calls without quotes, such as `{value: get(value, "ts", -1)}`, and make each one value again.

        YAML ends a value without quotes at a comma, so that the other arguments become keys without values.
        """
        joined: list[tuple[Node, Node]] = []
        for key, value in node.value:
            call = joined[-1][1] if joined else None
            if call is not None and _is_open_call(call) and key.kind == value.kind == "scalar" and not value.value:
                call.end = key.end
                call.value = self.source.text[call.start : call.end]
                if not _is_open_call(call):
                    advice = quoted(" ".join(call.value.split()))
                    self.problems.append(
                        Problem(call.position, f"YAML ends this value at its comma: put it in quotes: {advice}")
                    )
            else:
                joined.append((key, value))
        node.value = joined

    def _remember(self, anchor: str | None, node: Node) -> None:
        if anchor is not None:
            self.anchors[anchor] = node

    def _alias(self, event: Event) -> None:
        target = self.anchors.get(event.anchor)
        if event.anchor in self.open_anchors:
            self._stop(event.start_mark.index, f"The alias *{event.anchor} is inside the value that it refers to")
        if target is None:
            self._stop(event.start_mark.index, f"The alias *{event.anchor} has no anchor &{event.anchor} before it")
        self._add(cast(Node, target))

    def _add(self, node: Node) -> None:
        if not self.open:
            self.root = node
            return
        parent = self.open[-1]
        parent.size += node.size
        if parent.size > MAX_NODES:
            self._stop(
                node.start, f"The file stands for more than {MAX_NODES:,} values once its aliases are written out"
            )
        if parent.kind == "list":
            parent.value.append(node)
        elif self.keys[-1] is None:
            self.keys[-1] = node
        else:
            parent.value.append((self.keys[-1], node))
            self.keys[-1] = None

    def _tag(self, node: Node, event: Event) -> str | None:
        """Return the core type of a tag, if there is one; other tags are a problem."""
        if event.tag is None:
            return None
        if event.tag == "!":  # the non-specific tag: a scalar is text
            return "str" if node.kind == "scalar" else None
        name: str = event.tag.removeprefix(CORE_TAG)
        if name in _CORE_TAGS[node.kind]:
            return name
        self.problems.append(
            Problem(node.position, f"The tag {event.tag!r} is not part of the language; remove it, or quote the text")
        )
        return None

    def _stop(self, offset: int, message: str) -> None:
        raise TopologyError([*self.problems, Problem(self.source.at(offset), message)])


_QUOTED = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*\"""")


def _is_open_call(node: Node) -> bool:
    """Return whether a scalar without quotes has an opening bracket that nothing closes."""
    if node.kind != "scalar" or node.style or "(" not in node.value:
        return False
    text = _QUOTED.sub("", node.value)
    return text.count("(") > text.count(")")


def quoted(text: str) -> str:
    """Return a text in quotes, as YAML takes it.

    >>> quoted("get(value, 'ts')")
    "'get(value, ''ts'')'"
    """
    return "'" + text.replace("'", "''") + "'"


def check_keys(root: Node, problems: list[Problem]) -> None:
    """Add a problem for every key that is not a scalar, occurs twice in its mapping, or is a merge key."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) in seen:  # an alias has the same node again
            continue
        seen.add(id(node))
        if node.kind == "list":
            stack.extend(node.value)
        elif node.kind == "mapping":
            _check_mapping(node, problems)
            stack.extend(value for _, value in node.value)


def _check_mapping(node: Node, problems: list[Problem]) -> None:
    first: dict[str, Node] = {}
    for key, _ in node.value:
        if key.kind != "scalar":
            hint = "; '{{ value }}' is written 'value'" if key.kind == "mapping" else ""
            problems.append(Problem(key.position, f"A key must be text, not a {key.kind}{hint}"))
        elif key.value == "<<" and key.plain:
            problems.append(
                Problem(key.position, "Merge keys (<<) are not part of the language; write the entries out")
            )
        elif key.value in first:
            line = first[key.value].position.line
            problems.append(Problem(key.position, f"The key {key.value!r} stands twice; the first is in line {line}"))
        else:
            first[key.value] = key


_HINTS = {
    "did not find expected ',' or '}'": "expected ',' or '}'; quote text that has a comma, a bracket or a quote",
    "did not find expected ',' or ']'": "expected ',' or ']'; quote text that has a comma, a bracket or a quote",
    "found character that cannot start any token": "YAML indents with spaces; a tab stands here",
    "found character '\\t' that cannot start any token": "YAML indents with spaces; a tab stands here",
    "found a tab character that violates indentation": "YAML indents with spaces; a tab stands here",
    "mapping values are not allowed in this context": "`: ` may not stand here; quote text that contains it",
    "mapping values are not allowed here": "`: ` may not stand here; quote text that contains it",
    "could not find expected ':'": "a key ends with ': ', a colon and a space",
    "found unexpected end of stream": "the file ends within a quoted text",
}


_LONE_KEY = re.compile(r" *(?:- +)?([\w.-]+)")
"""A line that is a key up to its colon."""
_INDENTED = {"did not find expected '-' indicator": "list", "did not find expected key": "mapping"}
"""The parser's problems with a line whose indentation fits no line before it, and what it was reading."""


def _syntax(error: yaml.MarkedYAMLError, text: str, offset: int) -> str:
    """Return the parser's error at an offset as one line: the problem and its context, if there is one."""
    problem = str(error.problem or error.context or "malformed")
    if (hint := _layout_hint(problem, text[:offset].split("\n"), error.context_mark)) is not None:
        return f"Malformed YAML: {hint}"
    context = f" {error.context}" if error.context and error.problem else ""
    mark, begin = error.problem_mark, error.context_mark
    if context and mark and begin and begin.line < mark.line:
        context += f" that begins in line {begin.line + 1}"
    hint = _HINTS.get(problem)
    character = text[offset : offset + 1]
    if problem == "found character that cannot start any token" and character != "\t":
        hint = f"text that begins with {character!r} must be quoted"
    return f"Malformed YAML{context}: {hint or problem}".replace("\n", " ")


def _layout_hint(problem: str, lines: list[str], begin: yaml.Mark | None) -> str | None:
    """Return what is wrong with a line's indentation or its quotes, if that is the problem.

    lines: the text before the problem. begin: where the list or mapping begins that the parser reads.
    """
    line = lines.pop()
    if problem.startswith("mapping values are not allowed") and (key := _LONE_KEY.fullmatch(line)) is not None:
        return f"{key[1]!r} continues the text of the line above, because it is indented more; indent both lines alike"
    kind = _INDENTED.get(problem)
    if kind is None or begin is None:
        return None
    if line.rstrip().endswith(("'", '"')):
        return "nothing may follow a closing quote; put the whole text in quotes"
    if line.strip():
        return None
    number, columns = begin.line + 1, begin.column
    if len(line) == columns:
        rows = ("list", "does not begin") if kind == "list" else ("keys", "begins")
        return f"this line is indented like the {rows[0]} of line {number}, and {rows[1]} with '- '"
    above = next(row for row in reversed(lines) if row.strip() and row.lstrip()[0] != "#")
    return (
        f"this line is indented by {len(line)}, the one above by {len(above) - len(above.lstrip())}, and the {kind} "
        f"that begins in line {number} by {columns}"
    )


# Maps a character of a scalar's value to its place in the file, through quotes, folding and escapes.


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
    # Offsets count in the text after its variables are replaced.
    return node.start if "${" in node.value else written_at(node, offset)


def written_at(node: Node, offset: int) -> int:
    """Return the offset in the file of a character of a scalar's text; its beginning if the place is not certain."""
    raw, value = node.source.text[node.start : node.end], node.value
    begin = _begin(node, raw)
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
        at = raw.find(character, cursor)
        if at < 0:
            return place
        place = at
        cursor = at + 1
    return place
