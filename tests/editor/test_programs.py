"""Drawings, tests, and what try and test print."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types as lsp

from streamkit.serdes.plain import Json
from tests.editor.client import Client
from tests.editor.test_problems import VALID

TESTS = """\
tests:
  keeps large ones:
    given: [{topic: in, value: {n: 2}}, {topic: in, value: {n: 1}}]
    expect: {out: [{value: {n: 2}}]}
  keeps large ones too:
    given: [{topic: in, value: {n: 2}}]
    expect: {out: []}
"""


@pytest.fixture
def files(client: Client, tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "a.yaml").write_text(VALID)
    (tmp_path / "a.test.yaml").write_text(TESTS)
    (tmp_path / "a.jsonl").write_text('{"topic": "in", "value": {"n": 5}}\n{"topic": "in", "value": {"n": 0}}\n')
    opened = client.open(tmp_path / "a.yaml"), client.open(tmp_path / "a.test.yaml")
    for uri in opened:
        client.problems(uri)
    return opened


def ask(client: Client, method: str, **params: Json) -> dict[str, Any]:
    return plain(client.ask(method, params))


def run(client: Client, command: str, **argument: Json) -> dict[str, Any]:
    params = lsp.ExecuteCommandParams(command, arguments=[argument])
    return plain(client.wait(client.client.workspace_execute_command_async(params)))


def plain(found: Any) -> Any:
    """The library makes objects of results that it does not know."""
    if hasattr(found, "_asdict"):
        return {name: plain(value) for name, value in found._asdict().items()}
    return [plain(each) for each in found] if isinstance(found, list) else found


def test_the_drawing_has_the_places_of_its_nodes(client: Client, files: tuple[str, str]) -> None:
    graph = ask(client, "streamkit/graph", textDocument={"uri": files[0]})
    drawn = set(re.findall(r'data-id="(\d[^"]*)"', graph["svg"]))
    assert {node["id"] for node in graph["nodes"]} == drawn
    places = {node["step"]: node["range"]["start"]["line"] for node in graph["nodes"]}
    assert places == {"stream": 5, "filter": 7, "to": 8}
    assert len(graph["edges"]) == 2
    assert graph["message"] is None
    client.change(files[0], VALID.replace("filter", "filtr"))
    client.problems(files[0])
    old = ask(client, "streamkit/graph", textDocument={"uri": files[0]})
    assert old["svg"] == graph["svg"]
    assert old["message"] == "the file has 1 mistake; the drawing is that of its last valid version"


def test_tests_are_found_and_run_one_by_one(client: Client, files: tuple[str, str]) -> None:
    for uri in files:
        listed = ask(client, "streamkit/tests", textDocument={"uri": uri})["tests"]
        assert [(each["name"], each["range"]["start"]["line"]) for each in listed] == [
            ("keeps large ones", 1),
            ("keeps large ones too", 4),
        ]
    one = ask(client, "streamkit/runTest", textDocument={"uri": files[1]}, id=listed[0]["id"])
    assert [(each["id"], each["passed"]) for each in one["results"]] == [(listed[0]["id"], True)]
    both = ask(client, "streamkit/runTest", textDocument={"uri": files[1]})
    assert [each["passed"] for each in both["results"]] == [True, False]
    assert both["results"][1]["failures"][0]["range"]["start"]["line"] == 6


def test_tests_of_no_file_are_refused(client: Client) -> None:
    listed = ask(client, "streamkit/tests", textDocument={"uri": ""})
    assert listed == {"tests": [], "message": "the request names no file"}


def test_try_prints_the_trace_and_leaves_values_beside_the_lines(client: Client, files: tuple[str, str]) -> None:
    result = run(client, "streamkit.try", uri=files[0])
    assert result["ok"], result["text"]
    assert "filter" in result["text"]
    shown = lsp.Range(lsp.Position(0, 0), lsp.Position(20, 0))
    params = lsp.InlayHintParams(lsp.TextDocumentIdentifier(files[0]), shown)
    hints = client.wait(client.client.text_document_inlay_hint_async(params)) or []
    texts = {hint.position.line: hint.label for hint in hints}
    assert str(texts[7]).startswith('null: {"n": 5}, dropped')
    assert run(client, "streamkit.test", uri=files[1])["ok"] is False


def test_describe_takes_the_text_in_the_editor(client: Client, files: tuple[str, str]) -> None:
    client.change(files[0], VALID.replace("filter", "filter_not"))
    client.problems(files[0])
    assert "KSTREAM-FILTER-0000000001" in run(client, "streamkit.describe", uri=files[0])["text"]
    assert not run(client, "streamkit.describe", uri=files[0], format="nothing")["ok"]


def test_lenses_stand_at_pipelines_and_tests(client: Client, files: tuple[str, str]) -> None:
    found = []
    for uri in files:
        params = lsp.CodeLensParams(lsp.TextDocumentIdentifier(uri))
        lenses = client.wait(client.client.text_document_code_lens_async(params)) or []
        found.append([(lens.range.start.line, lens.command.title) for lens in lenses if lens.command])
    assert found == [[(3, "try"), (3, "test"), (3, "describe")], [(1, "test"), (4, "test")]]
