"""Code actions: the remedies that messages name."""

from __future__ import annotations

import re

from lsprotocol import types as lsp

from streamkit.editor.project import SOURCE
from streamkit.editor.texts import Text

_MEANT = re.compile(r"'([^']+)'.*; did you mean (?:the parameter )?'([^']+)'\?")
_MISSING = re.compile(r"There is no topic '([A-Za-z0-9._-]+)' in 'topics'")


def quick_fixes(uri: str, text: Text, problems: list[lsp.Diagnostic]) -> list[lsp.CodeAction]:
    """Return the remedies of the given problems of a file."""
    found = []
    for problem in problems:
        if problem.source != SOURCE:
            continue
        meant, missing = _MEANT.search(problem.message), _MISSING.match(problem.message)
        if meant is not None:
            edit = _replacement(text, problem.range, meant[1], meant[2])
            if edit is not None:
                found.append(_action(uri, f"Change {meant[1]!r} to {meant[2]!r}", problem, edit, is_preferred=True))
        if missing is not None:
            edit = _entry(text, missing[1])
            if edit is not None:
                found.append(_action(uri, f"Add the topic {missing[1]!r}", problem, edit, is_preferred=False))
    return found


def _replacement(text: Text, at: lsp.Range, wrong: str, right: str) -> lsp.TextEdit | None:
    """Return the edit of a wrong word, if it is the one at the place of the problem."""
    start = text.offset(at.start)
    begin = text.text.find(wrong, start, start + len(wrong) + 2)
    return None if begin < 0 else lsp.TextEdit(text.span(begin, begin + len(wrong)), right)


def _entry(text: Text, topic: str) -> lsp.TextEdit | None:
    """Return the edit that adds a topic below `topics:`; None for a section in brackets, which it could break."""
    for number, row in enumerate(text.all_lines):
        if re.fullmatch(r"topics:\s*(#.*)?", row):
            below = next((each for each in text.all_lines[number + 1 :] if each.strip()), "")
            indent = len(below) - len(below.lstrip(" ")) or 2
            at = text.position(number, len(row))
            return lsp.TextEdit(lsp.Range(at, at), f"\n{' ' * indent}{topic}: {{}}")
    return None


def _action(uri: str, title: str, problem: lsp.Diagnostic, edit: lsp.TextEdit, is_preferred: bool) -> lsp.CodeAction:
    return lsp.CodeAction(
        title,
        kind=lsp.CodeActionKind.QuickFix,
        diagnostics=[problem],
        is_preferred=is_preferred,
        edit=lsp.WorkspaceEdit(changes={uri: [edit]}),
    )
