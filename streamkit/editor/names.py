"""The words of expressions, and the index of the names in the files of a topology, which definitions, references and renames use."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from glob import escape
from typing import NamedTuple

from streamkit.errors import Position
from streamkit.expressions import Expression
from streamkit.expressions.calls import place_in_source
from streamkit.expressions.syntax import Source
from streamkit.spec.yaml_nodes import Node, written_at
from streamkit.spec.yaml_reader import Name, Route

_KEYWORDS = frozenset(("and", "or", "not", "in", "is", "if", "else", "for", "lambda", "None", "True", "False"))
_STRING = r"""(?P<string>[rRbBfFuU]{0,2}(?:\"\"\"(?:\\.|[^\\])*?(?:\"\"\"|\Z)|'''(?:\\.|[^\\])*?(?:'''|\Z)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))"""
_WORD = re.compile(
    r"(?P<parameter>\$\{[^}\n]*\}?)|"
    + _STRING
    + r"|(?P<number>(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<name>[^\W\d]\w*)"
    + r"|(?P<comment>#[^\n]*)|(?P<operator>\*\*|//|[-+*/%]|[<>=!]=|[<>])",
    re.DOTALL,
)
_FIELD = re.compile(r"\{\{|\}\}|\{")


class Word(NamedTuple):
    """A word of a text from `start` to `end`; kind: one of editor.KINDS."""

    start: int
    end: int
    kind: str


@lru_cache(maxsize=20_000)
def words(text: str) -> tuple[Word, ...]:
    """Return the words of an expression, finished or not, in their order.

    >>> [(text[word.start : word.end], word.kind) for text in ["len(value.a) > 1"] for word in words(text)]
    [('len', 'function'), ('value', 'variable'), ('a', 'property'), ('>', 'operator'), ('1', 'number')]
    """
    return tuple(_words(text, 0, len(text)))


def _words(text: str, start: int, end: int) -> Iterator[Word]:
    before = ""
    for match in _WORD.finditer(text, start, end):
        kind, at = str(match.lastgroup), match.start()
        if kind == "string":
            yield from _string(text, at, match.end())
        elif kind == "name":
            yield Word(at, match.end(), _kind(text, at, match, before))
        elif kind != "comment":
            yield Word(at, match.end(), kind)
        before = match[0]


def _kind(text: str, at: int, match: re.Match[str], before: str) -> str:
    is_member = text[:at].rstrip().endswith(".") and not before.endswith(".")
    is_called = text[match.end() :].lstrip().startswith("(")
    if is_member:
        return "method" if is_called else "property"
    if match[0] in _KEYWORDS:
        return "keyword"
    return "function" if is_called else "variable"


def _string(text: str, start: int, end: int) -> Iterator[Word]:
    """Yield a string, and the words of the expressions in it, if it is formatted."""
    quote = start + re.match(r"\w*", text[start:end]).end()  # type: ignore[union-attr]  # matches any text
    if "f" not in text[start:quote].lower():
        yield Word(start, end, "string")
        return
    at, rest = start, quote
    while (field := _FIELD.search(text, rest, end)) is not None:
        rest = field.end()
        if field[0] != "{":
            continue
        close = _closing(text, rest, end)
        yield Word(at, rest, "string")
        yield from _words(text, rest, close)
        at = rest = close
    yield Word(at, end, "string")


def _closing(text: str, start: int, end: int) -> int:
    """Return the offset at which the expression of a formatted string ends: at its bracket, or at its format."""
    depth, at = 0, start
    while at < end:
        match = re.compile(_STRING, re.DOTALL).match(text, at, end)
        if match is not None:
            at = match.end()
            continue
        if depth == 0 and (text[at] in "}:" or (text[at] == "!" and text[at + 1 : at + 2] != "=")):
            return at
        depth += (text[at] in "([{") - (text[at] in ")]}")
        at += 1
    return end


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

    def __init__(
        self,
        names: Iterable[Name],
        expressions: Sequence[Node] = (),
        routes: Iterable[Route] = (),
        routed: Collection[str] = (),
    ):
        names, routes = list(names), list(routes)
        functions = {name.name for name in names if name.kind == "function"}
        mentions = [mention for name in names for mention in _mentions(name)]
        if functions:
            mentions += _calls(functions, expressions)
        mentions += [mention for route in routes for mention in _routed(route, routed)]
        # A step of a macro is read once for each use.
        self.mentions = list(dict.fromkeys(mentions))
        self._expressions = expressions
        self._routes = routes
        self._routed = routed

    def at(self, file: str, offset: int) -> Mention | None:
        """Return the shortest mention at an offset of a file, by its real path; also just behind its end."""
        mentions = [
            mention
            for mention in self.mentions
            if mention.start <= offset <= mention.end and os.path.realpath(mention.file) == file
        ]  # fmt: skip
        return min(mentions, key=lambda mention: mention.end - mention.start, default=None)

    def of(self, part: Part) -> list[Mention]:
        """Return all mentions of a part."""
        return [mention for mention in self.mentions if mention.part == part]

    def is_routed(self, part: Part) -> bool:
        """Return whether a part is a topic whose name on the log changes with the name of its entry."""
        return part.kind == "topic" and part.name in self._routed

    def hidden(self, part: Part) -> Position | None:
        """Return the place of an expression that may use the name of a topic without a mention; None if there is none."""
        if not self.is_routed(part):
            return None
        for route in self._routes:
            for result in text_results(route.topic) if isinstance(route.topic, Expression) else ():
                if result.literal is None and result.may_be(part.name):
                    return result.place
        return next((node.position for node in self._expressions if _compares(node, part.name)), None)


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


def _routed(route: Route, topics: Collection[str]) -> Iterator[Mention]:
    """Yield the names of topics that an expression has as a whole."""
    if isinstance(route.topic, str):
        literals = [(route.topic, written_at(route.node, 0))]
    else:
        results = text_results(route.topic)
        literals = [
            (result.literal, _literal_at(route.node, result)) for result in results if result.literal is not None
        ]
    for name, start in literals:
        if name in topics:
            yield _mention(Part("topic", name), name, route.node, start, False)


_QUOTES = re.compile(r"[rRuU]?['\"]{1,6}")


def _literal_at(node: Node, result: TextResult) -> int:
    """Return the offset of the text within the quotes of a literal; YAML doubles the quotes within its own."""
    place, source = result.place, node.source
    start = source.starts[place.line - 1] + place.column - 1 if place.file == source.file else node.start
    quotes = _QUOTES.match(source.text, start)
    return quotes.end() if quotes is not None else start


def _compares(node: Node, topic: str) -> bool:
    """Return whether an expression uses the name of the record's topic, and has a topic's name as text."""
    names = [(word.kind, node.value[word.start : word.end]) for word in words(node.value)]
    return ("variable", "topic") in names and any(
        kind == "string" and text.lstrip("rRuU").strip("'\"") == topic for kind, text in names
    )


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


# The texts that an expression may give, as far as its form shows them: the names of topics that a route may write to.

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
