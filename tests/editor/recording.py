"""Writes docs/how-to/typing.md: `python -m tests.editor.recording` types the fraud example at the language server."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from lsprotocol import types as lsp

from tests.editor.client import Client

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "typing.md"
FRAUD = ROOT / "topologies" / "fraud-detection" / "topology.yaml"
_HEAD = """\
# The fraud example, typed from nothing

What the language server answers while `topologies/fraud-detection/topology.yaml` is [written in an editor](editors.md). `¦` is the cursor. This
is a recording of the protocol, which VS Code and other editors show in their own way: `python -m tests.editor.recording` types the file
again, and a test compares this page with it. Each scene shows the last lines above the cursor and the first answers.

The pictures are VS Code 1.139 with the extension, served by code-server 4.139 and shown by Chromium: `python -m tests.editor.vscode_recording`
types the same text there.

![The first letters of a step, and the steps that begin so with their documentation](../screenshots/typing-steps.png)

![A misspelt step with its message and its quick fix](../screenshots/typing-mistake.png)

![The documentation of a step, with its mistake and the types of key and value before it](../screenshots/typing-hover.png)

![The fields of an aggregate, for an expression](../screenshots/typing-fields.png)

![The whole file with its drawing beside it](../screenshots/typing-whole.png)
"""
_SCENES = (
    ("The first lines", "\napplication: fraud-detection\n", "", "problems"),
    ("The options of a topic", "\ntopics:\n  payments: {", "", "completion"),
    ("The topics, for a source", "\n    stream: ", "", "completion"),
    ("A step by its first letters", "    stream: payments\n    steps:\n      - ", "fil", "completion"),
    ("A misspelt step", "    stream: payments\n    steps:\n      - ", "filtr: value.cents > 0\n", "problems"),
    ("What a step does", "      - aggregate", "", "hover"),
    ("A window without a grace", "      - window: {sliding: 1m", "}\n      - count: velocity\n", "problems"),
    ("The fields of an aggregate", "      - to_stream: {key: key.key}\n      - filter: len(value.", "", "completion"),
    ("The pipelines, for a join", "      - join:\n          with: ", "", "completion"),
    ("A topic that does not exist yet", "      - merge: [pattern, abroad]\n    to: ", "alarms\n", "problems"),
    ("The whole file", "", "", "problems"),
)
"""Titles, the last text of the file before the cursor, what is typed in place of the rest, and the question."""
_MOST = 8


def scenes(client: Client, uri: str) -> Iterator[str]:
    """Type each scene and yield its part of the page."""
    whole = FRAUD.read_text(encoding="utf-8")
    for title, before, tail, question in _SCENES:
        text = whole[: whole.index(before) + len(before)] + tail if before else whole
        client.change(uri, text)
        problems = client.problems(uri)
        rows = text.split("\n")
        place = lsp.Position(len(rows) - 1, len(rows[-1]))
        answers = list(_answers(client, uri, place, question, problems))
        shown = "\n".join([row for row in f"{text}¦".split("\n") if row.strip()][-3:])
        yield (
            f"\n## {title}\n\n```text\n{shown}\n\n{question}:\n" + "".join(f"  {each}\n" for each in answers) + "```\n"
        )


def _answers(
    client: Client, uri: str, place: lsp.Position, question: str, problems: list[lsp.Diagnostic]
) -> Iterator[str]:
    document, server = lsp.TextDocumentIdentifier(uri), client.client
    if question == "completion":
        found = client.wait(server.text_document_completion_async(lsp.CompletionParams(document, place)))
        labels = [each.label for each in found or []]  # type: ignore[union-attr]
        yield ", ".join(labels[:_MOST]) + (f" and {len(labels) - _MOST} more" if len(labels) > _MOST else "")
    elif question == "hover":
        hover = client.wait(server.text_document_hover_async(lsp.HoverParams(document, place)))
        assert hover is not None
        assert isinstance(hover.contents, lsp.MarkupContent)
        yield from [row for row in hover.contents.value.split("\n") if row.strip()][:_MOST]
    else:
        for problem in problems[:_MOST]:
            yield f"line {problem.range.start.line + 1}: {problem.message}"
            context = lsp.CodeActionContext([problem])
            actions = client.wait(
                server.text_document_code_action_async(lsp.CodeActionParams(document, problem.range, context))
            )
            for action in actions or []:
                yield f"  quick fix: {action.title}"
        if not problems:
            yield "none"


def recorded() -> str:
    """Return the page."""
    with TemporaryDirectory() as folder:
        client = Client({"debounceMs": 0})
        uri = client.open(Path(folder) / "topology.yaml", "")
        client.problems(uri)
        page = _HEAD + "".join(scenes(client, uri))
        assert client.stop() == 0
    return re.sub(r"[ \t]+$", "", page.replace(folder, ""), flags=re.MULTILINE)


if __name__ == "__main__":
    PAGE.write_text(recorded(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
