"""Formatting never changes what a file says, keeps each comment, and does not depend on how the file was indented."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from lsprotocol import types as lsp

from streamkit.editor.formatting import applied, edits_of
from streamkit.editor.texts import Text
from streamkit.spec.yaml_nodes import Node, Source, compose
from tests.conformance_cases import CASES
from tests.editor.client import Client

MESSY = """\


streamkit:    1   
application: shop
# the topics
topics:
    in: {value: json}   # read
    # written
    out:
        value: json


   

pipelines:
 p:
   stream: in
   steps:
   -   map_values: >-
             {"a": value.a,

              "b": value.b}
   # large ones
   - filter: "value.a >
              5"
   to: out

"""
NEAT = """\
streamkit:    1
application: shop
# the topics
topics:
  in: {value: json}   # read
  # written
  out:
    value: json

pipelines:
  p:
    stream: in
    steps:
      - map_values: >-
          {"a": value.a,

           "b": value.b}
      # large ones
      - filter: "value.a >
                 5"
    to: out
"""


def formatted(text: str) -> str:
    return applied(text, edits_of(Text("a.yaml", text)))


def data(node: Node | None) -> object:
    """Return a document with the kinds of its scalars."""
    if node is None or node.kind == "scalar":
        return node and (node.value, node.style, node.tag)
    if node.kind == "list":
        return [data(each) for each in node.value]
    return [(data(key), data(value)) for key, value in node.value]


def document(text: str) -> object:
    return data(compose(Source(text, "a.yaml"), []))


def test_a_messy_file_becomes_neat() -> None:
    assert formatted(MESSY) == NEAT
    assert formatted(NEAT) == NEAT


def indented(text: str, drawn: random.Random) -> str:
    """Return a text with other indents, and more blanks and comments."""
    by, rows, end = drawn.randrange(1, 5), list[str](), drawn.choice(["\n", "\r\n"])
    for row in text.split("\n"):
        marks = re.match(r"((?: |- )*)(.*)", row)
        assert marks is not None
        rows.append(re.sub("- |  ", lambda found: found[0][0] + found[0][1] * (2 * by - 1), marks[1]) + marks[2])
        # A comment ends a text of several rows, and is a part of a block.
        if re.fullmatch(r" *(- )?\w+:", row) and drawn.random() < 0.3:
            rows[-1] += drawn.choice([" ", "   # more", "\n" + " " * drawn.randrange(9) + "# more", "\n\n\n"])
    return end.join("\n".join(rows).split("\n"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_file_says_the_same_after_formatting(case: Path) -> None:
    drawn, text = random.Random(case.name), (case / "topology.yaml").read_text(encoding="utf-8")
    for _ in range(3):
        before = indented(text, drawn)
        after = formatted(before)
        assert document(after) == document(before)
        assert re.findall("#[^\r\n]*", after) == [each.rstrip() for each in re.findall("#[^\r\n]*", before)]
        assert formatted(after) == after
        rows = [row for row in after.splitlines() if row.strip() and row.strip() != "# more"]
        kept = [row.replace("   # more", "").rstrip() for row in rows]
        blocks = bool(re.search("[|>][-+]?\r?\n", before))
        assert blocks or kept == [row for row in formatted(text).splitlines() if row.strip()]


@pytest.mark.parametrize(
    "text",
    ["streamkit: 1\n\ttopics: {}", "streamkit: [1", "- ? a\n  : b", "%YAML 1.2\n---\na: 1 \n...\n", "a: |+\n  x\n\n\n", "a: &x\n    b: 1\nc: *x\n"],
)  # fmt: skip
def test_other_yaml_keeps_its_meaning(text: str) -> None:
    after = formatted(text)
    assert after == text or document(after) == document(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:   \n    b: |\n      c", "a:\n  b: |\n    c"),
        ("a: |-   \n    b", "a: |-   \n  b\n"),
        ("a:   \r\n    b: 1", "a:\r\n  b: 1\r\n"),
        ("a: x   \r\nb: |\r\n    c", "a: x\r\nb: |\r\n  c"),
    ],
)
def test_the_last_row_gets_an_end_unless_it_is_text(text: str, expected: str) -> None:
    assert applied(text, edits_of(Text("a.yaml", text))) == expected


def test_a_client_gets_edits(tmp_path: Path) -> None:
    client = Client({"debounceMs": 0})
    uri = client.open(tmp_path / "a.yaml", MESSY)
    options = lsp.FormattingOptions(tab_size=2, insert_spaces=True)
    params = lsp.DocumentFormattingParams(lsp.TextDocumentIdentifier(uri), options)
    found = client.wait(client.client.text_document_formatting_async(params))
    text = Text("a.yaml", MESSY)
    edits = [(text.offset(each.range.start), text.offset(each.range.end), each.new_text) for each in found or []]
    assert applied(MESSY, edits) == NEAT
    assert client.stop() == 0
