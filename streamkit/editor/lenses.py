"""Code lenses, and inlay hints with the values of the last `try` or test."""

from __future__ import annotations

import os

from lsprotocol import types as lsp

from streamkit.editor.analysis import TEST, TOPOLOGY, kind_of, yaml_root
from streamkit.editor.programs import found_tests
from streamkit.editor.project import Project
from streamkit.editor.texts import Text

TRY, TEST_COMMAND, DESCRIBE = COMMANDS = ("streamkit.try", "streamkit.test", "streamkit.describe")


def code_lenses(project: Project, uri: str, text: Text) -> list[lsp.CodeLens]:
    """Return `try`, `test` and `describe` above the pipelines of a topology, `test` above each test."""
    kind = kind_of(text.file, text.text)
    if kind == TEST:
        return [
            _lens(text, text.of(each.key), "test", TEST_COMMAND, {"uri": uri, "id": f"{text.file}::{each.name}"})
            for each in found_tests(yaml_root(text))
        ]
    line = next((number for number, row in enumerate(text.all_lines) if row.startswith("pipelines:")), None)
    if kind != TOPOLOGY or line is None:
        return []
    at = lsp.Range(text.position(line, 0), text.position(line, len("pipelines")))
    stem = os.path.splitext(text.file)[0]
    has_tests = any(os.path.isfile(stem + ending) for ending in (".test.yaml", ".test.yml"))
    chosen = [("try", TRY), *([("test", TEST_COMMAND)] if has_tests else []), ("describe", DESCRIBE)]
    return [_lens(text, at, title, command, {"uri": uri}) for title, command in chosen]


def _lens(text: Text, at: lsp.Range, title: str, command: str, argument: dict[str, str]) -> lsp.CodeLens:
    return lsp.CodeLens(at, lsp.Command(title, command, arguments=[argument]))


def inlay_hints(project: Project, text: Text, shown: lsp.Range) -> list[lsp.InlayHint]:
    """Return the values of the lines that are shown."""
    return [
        lsp.InlayHint(
            position=text.position(hint.line - 1, len(text.line(hint.line - 1))),
            label=hint.text,
            tooltip=hint.detail,
            padding_left=True,
        )
        for hint in project.hints.get(os.path.realpath(text.file), [])
        if shown.start.line <= hint.line - 1 <= shown.end.line
    ]
