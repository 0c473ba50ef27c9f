"""Problems as text: `FILE:LINE:COL: message`, with the line of the file and a caret below it where requested."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from streamkit.config.values import is_secret
from streamkit.errors import Problem

MAX_WIDTH = 160
_NAME = re.compile(r"[\w.-]+(?=[\"']?\s*:)")
"""Finds names of settings: a line with the name of a secret is not shown."""


def render(problems: Iterable[Problem], texts: Mapping[str, str] | None = None, excerpt: bool = False) -> str:
    """Return the problems in their order, one in each line.

    With `excerpt` the source line and a caret follow each; `texts` has the contents of files by name.
    """
    lines = []
    for problem in problems:
        lines.append(str(problem))
        text = (texts or {}).get(problem.position.file)
        if excerpt and text is not None:
            lines.extend(_excerpt(problem, text))
    return "\n".join(lines)


def _excerpt(problem: Problem, text: str) -> list[str]:
    rows = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    line, column = problem.position.line, problem.position.column
    if not 1 <= line <= len(rows):
        return []
    row = rows[line - 1]
    if any(is_secret(name) for name in _NAME.findall(row)):
        return []
    first = max(0, column - MAX_WIDTH // 2)
    shown = row[first : first + MAX_WIDTH]
    # Tabs stay tabs in the second line, so that the caret is under its character in any terminal.
    pad = "".join("\t" if character == "\t" else " " for character in row[first : column - 1])
    margin = f"{line:>5} | "
    return [margin + shown, " " * (len(margin) - 2) + "| " + pad + "^"]
