"""Completion, the help for calls, and hover, at every place; and no answer fails on a file that is cut off anywhere."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from lsprotocol import types as lsp

from streamkit.editor.project import Options, Project
from streamkit.editor.texts import Text
from streamkit.editor.typing_help import _signature, completions, hover, signature
from streamkit.expressions.translate import FUNCTIONS
from tests.conformance_cases import CASES
from tests.editor.client import Client

FILE = """\
streamkit: 1
application: shop
topics:
  orders: {value: json}
  totals: {key: string, value: long}
functions:
  double: {params: [n], expr: n * 2}
pipelines:
  big:
    stream: orders
    steps:
      - filter: value.amount > 1
      - map_values: "{'total': double(value.amount), 'who': value.customer.name}"
      - select_key: value.who
      - group_by_key
      - count
      - to_stream
    to: totals
  more:
    from: big
    steps:
      - filter: "True"
"""


def marked(text: str) -> tuple[str, lsp.Position]:
    before, _, after = text.partition("¦")
    assert "¦" in text
    return before + after, lsp.Position(before.count("\n"), len(before) - before.rfind("\n") - 1)


def labels(client: Client, path: Path, old: str, new: str) -> list[str]:
    assert old in FILE
    text, place = marked(FILE.replace(old, new, 1))
    uri = client.open(path / "a.yaml", FILE)
    client.problems(uri)
    client.change(uri, text)
    client.problems(uri)
    params = lsp.CompletionParams(lsp.TextDocumentIdentifier(uri), place)
    found = client.wait(client.client.text_document_completion_async(params))
    client.close(uri)
    return [item.label for item in found or []]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("old", "new", "some", "none"),
    [
        ("topics:\n", "¦\ntopics:\n", ["config", "stores"], ["topics", "application", "filter"]),
        ("      - count\n", "      - ¦\n", ["count", "window", "filter"], ["stream", "key"]),
        ("      - count\n", "      - cou¦\n", ["count"], []),
        ("      - count\n", "      - window:\n          ¦\n", ["tumbling", "grace"], ["count"]),
        ("      - count\n", "      - window:\n          tumbling: 1m\n          ¦\n", ["grace"], ["tumbling"]),
        ("      - count\n", "      - window: {tumbling: 1m, ¦}\n", ["grace"], ["count"]),
        ("    to: totals", "    to: ¦", ["orders", "totals"], ["big"]),
        ("    stream: orders", "    stream: [orders, ¦]", ["totals"], ["big"]),
        ("    from: big", "    from: ¦", ["big", "more"], ["orders"]),
        ("value: long}", "value: ¦}", ["string", "json", "avro"], ["orders"]),
        ("      - filter: value.amount > 1", "      - filter: ¦", ["key", "value", "double", "sha256"], ["orders"]),
        ('      - filter: "True"', '      - filter: "valu¦"', ["value", "get"], ["aggregate"]),
        ("      - select_key: value.who", "      - select_key: value.¦", ["total", "who"], ["upper"]),
        ("functions:\n", "config:\n  num.str¦\nfunctions:\n", ["num.stream.threads"], []),
    ],
)  # fmt: skip
def test_what_may_be_typed(
    client: Client, tmp_path: Path, old: str, new: str, some: list[str], none: list[str]
) -> None:
    found = labels(client, tmp_path, old, new)
    assert set(some) <= set(found), found
    assert not set(none) & set(found), found


@pytest.mark.parametrize(
    ("written", "label", "argument"),
    [
        ("get(value, ¦", "get(value, path[, default])", 1),
        ("len(¦", "len(value)", 0),
        ("round(max(value.a, len(value.b)) + ¦", "round(number[, digits])", 0),
        ("merge(value, dict(zip(value.a, value.b)), ¦", "merge(first, second)", 1),
    ],
)
def test_a_call_shows_its_parameters(client: Client, tmp_path: Path, written: str, label: str, argument: int) -> None:
    text, place = marked(FILE.replace("value.amount > 1", written))
    uri = client.open(tmp_path / "a.yaml", text)
    client.problems(uri)
    params = lsp.SignatureHelpParams(lsp.TextDocumentIdentifier(uri), place)
    found = client.wait(client.client.text_document_signature_help_async(params))
    assert found is not None
    assert found.signatures[0].label == label
    assert found.active_parameter == argument


def test_every_function_has_a_signature() -> None:
    assert all(_signature(name, None) is not None for name in FUNCTIONS)


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("- count", "- cou¦nt", ["Counts the records", "KSTREAM-AGGREGATE", "changelog `shop-KSTREAM-AGGREGATE"]),
        ("to: totals", "to: tot¦als", ["Topic `totals`: key string, value long"]),
        ("double(value", "dou¦ble(value", ["`double(n)`"]),
        ("value.who", "value.wh¦o", ["value.who"]),
        (
            "- group_by_key",
            "- group_b¦y_key",
            ["Groups records", "value the object {total: any value, who: any value}"],
        ),
    ],
)
def test_hover_has_documentation_types_and_names(
    client: Client, tmp_path: Path, old: str, new: str, parts: list[str]
) -> None:
    text, place = marked(FILE.replace(old, new, 1))
    uri = client.open(tmp_path / "a.yaml", text)
    client.problems(uri)
    params = lsp.HoverParams(lsp.TextDocumentIdentifier(uri), place)
    found = client.wait(client.client.text_document_hover_async(params))
    assert found is not None
    assert isinstance(found.contents, lsp.MarkupContent)
    for part in parts:
        assert part in found.contents.value


@pytest.mark.parametrize("seed", range(3))
def test_every_answer_works_for_topologies_that_are_cut_off(tmp_path: Path, seed: int) -> None:
    drawn = random.Random(seed)
    project = Project(Options(debounce_ms=0), "utf-16", lambda found: None, lambda uri, version: None)
    project.worker.close()
    for case in CASES:
        whole = (case / "topology.yaml").read_text(encoding="utf-8")
        text = whole[: drawn.randrange(len(whole))] + drawn.choice(["", "\n", ".", ": ", "- ", "{", "'", "\t", "\0"])
        path = tmp_path / "topology.yaml"
        uri = path.as_uri()
        found = Text(str(path), text)
        project.opened[str(path)] = found
        analysis = project._analyse(found, lambda: False)
        assert analysis is not None
        project._done(analysis)
        place = found.at(len(text))
        completions(project, uri, found, place)
        signature(project, uri, found, place)
        hover(project, uri, found, place)
