"""Code actions that apply the remedies named in messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from lsprotocol import types as lsp

from streamkit.editor.analysis import yaml_root
from streamkit.editor.cursor import value_column
from streamkit.editor.project import SOURCE
from streamkit.editor.texts import Text
from streamkit.operators.steps.aggregations.window import KINDS
from streamkit.spec.yaml_nodes import Node, quoted

_MEANT = re.compile(r"'([^']+)'.*; did you mean (?:the parameter )?'([^']+)'\?")
_MISSING = re.compile(r"There is no topic '([A-Za-z0-9._-]+)' in 'topics'")
_QUOTED = re.compile(r"put it in quotes: ('(?:[^']|'')*')$")
_AS_TEXT = re.compile(r'must be text, not .* \(write ("[^"]*") for the text\)$')
_UNQUOTED = re.compile(
    r"`: ` may not stand here|text that begins with .* must be quoted|takes what follows ' #' for a comment"
)
_GRACE = re.compile(r"(\w+) has no 'grace'")
_FLOW = re.compile(r"(?:[&!]\S*\s+)*\{")
"""The beginning of a mapping in brackets, with its anchor and its tag."""
_LENGTHS = (*KINDS, "within", "after", "before")
"""The options that have a duration, which is proposed as the grace."""

Fix = tuple[str, lsp.TextEdit, bool]
"""A title, its edit, and whether it is the preferred one."""
Roots = Callable[[], Node | None]


def quick_fixes(uri: str, text: Text, problems: list[lsp.Diagnostic]) -> list[lsp.CodeAction]:
    """Return the code actions for some problems of a file."""
    root = lru_cache(maxsize=1)(lambda: yaml_root(text))
    return [
        lsp.CodeAction(
            title,
            kind=lsp.CodeActionKind.QuickFix,
            diagnostics=[problem],
            is_preferred=is_preferred,
            edit=lsp.WorkspaceEdit(changes={uri: [edit]}),
        )
        for problem in problems
        if problem.source == SOURCE
        for title, edit, is_preferred in _fixes(text, problem, root)
    ]


def _fixes(text: Text, problem: lsp.Diagnostic, root: Roots) -> Iterator[Fix]:
    message = problem.message
    if (meant := _MEANT.search(message)) is not None:
        edit = _replacement(text, problem.range, meant[1], meant[2])
        if edit is not None:
            yield f"Change {meant[1]!r} to {meant[2]!r}", edit, True
    if (missing := _MISSING.match(message)) is not None:
        edit = _entry(text, missing[1], root())
        if edit is not None:
            yield f"Add the topic {missing[1]!r}", edit, False
    written = _QUOTED.search(message) or _AS_TEXT.search(message)
    if written is not None:
        node = _value_at(root(), text.offset(problem.range.start))
        if node is not None:
            yield "Put it in quotes", lsp.TextEdit(text.of(node), written[1]), True
    elif _UNQUOTED.search(message):
        edit = _quoted_row(text, problem.range.start.line)
        if edit is not None:
            yield "Put it in quotes", edit, True
    if (step := _GRACE.match(message)) is not None:
        yield from _graces(text, root(), step[1], text.offset(problem.range.start))


def _replacement(text: Text, at: lsp.Range, wrong: str, right: str) -> lsp.TextEdit | None:
    """Return the edit that replaces a wrong word; None if the word is not at the position of the problem."""
    start = text.offset(at.start)
    begin = text.text.find(wrong, start, start + len(wrong) + 2)
    return None if begin < 0 else lsp.TextEdit(text.span(begin, begin + len(wrong)), right)


# -- Entries and options -------------------------------------------------------------------------------------------


def _entry(text: Text, topic: str, root: Node | None) -> lsp.TextEdit | None:
    """Return the edit that adds a topic to `topics`; without that section, it adds the section before `pipelines`."""
    sections = (
        {key.value: (key, value) for key, value in root.value} if root is not None and root.kind == "mapping" else {}
    )
    if "topics" in sections:
        key, topics = sections["topics"]
        if topics.kind == "mapping":
            return _added(text, topics, f"{topic}: {{}}")
        return (
            _inserted(text, key.end + 1, f"\n  {topic}: {{}}") if topics.kind == "scalar" and not topics.value else None
        )
    if "pipelines" not in sections:
        return None
    return _inserted(text, sections["pipelines"][0].start, f"topics:\n  {topic}: {{}}\n")


def _added(text: Text, mapping: Node, entry: str) -> lsp.TextEdit:
    """Return the edit that adds an entry: at the end of a mapping in brackets, otherwise before the first entry."""
    start = mapping.value[0][0].start if mapping.value else mapping.end
    bracket = _FLOW.match(text.text, mapping.start, start)
    if bracket is not None:
        last = mapping.value[-1][1].end if mapping.value else bracket.end()
        return _inserted(text, last, f", {entry}" if mapping.value else entry)
    before = text.line(text.at(start).line)[: start - text.line_offsets[text.at(start).line]]
    return _inserted(text, start, f"{entry}\n{' ' * len(before)}")


def _inserted(text: Text, offset: int, written: str) -> lsp.TextEdit:
    return lsp.TextEdit(text.span(offset, offset), written)


def _graces(text: Text, root: Node | None, step: str, offset: int) -> Iterator[Fix]:
    """Yield two fixes for a step without `grace`: a grace as long as its windows, and a grace of 0."""
    options = next((value for key, value in _pairs(root) if key.start == offset and key.value == step), None)
    if options is None or options.kind != "mapping" or not options.value:
        return
    nodes = {key.value: value for key, value in options.value}
    length = next((nodes[name].value for name in _LENGTHS if name in nodes and nodes[name].kind == "scalar"), None)
    if length is not None:
        yield f"Wait {length} for late records", _added(text, options, f"grace: {length}"), False
    yield "Drop all late records", _added(text, options, "grace: 0"), False


def _pairs(root: Node | None) -> Iterator[tuple[Node, Node]]:
    """Yield the keys and values of all mappings."""
    waiting, seen = [root] if root is not None else [], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen or node.kind == "scalar":
            continue
        seen.add(id(node))
        if node.kind == "mapping":
            yield from node.value
        waiting += node.value if node.kind == "list" else [value for _, value in node.value]


# -- Quotes --------------------------------------------------------------------------------------------------------


def _value_at(root: Node | None, offset: int) -> Node | None:
    """Return the value that begins at an offset."""
    return next((value for _, value in _pairs(root) if value.start == offset), None)


def _quoted_row(text: Text, number: int) -> lsp.TextEdit | None:
    """Return the edit that puts the value of a row in quotes; None if the value is in brackets or spans several rows."""
    row = text.line(number)
    start = value_column(row)
    value = row[start:].rstrip()
    if not value or value[0] in "{[|>":
        return None
    return lsp.TextEdit(
        lsp.Range(text.position(number, start), text.position(number, start + len(value))), quoted(value)
    )
