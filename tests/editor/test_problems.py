"""Problems while typing: a real client types topologies, tests and parts, whole and half-typed."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
from pathlib import Path

import pytest
from lsprotocol import types as lsp

from streamkit.editor.project import Options, Project, Published
from streamkit.serdes.plain import Json
from tests.editor.client import PATIENCE_S, Client

HEAD = "streamkit: 1\napplication: shop\n"
VALID = HEAD + (
    "topics: {in: {value: json}, out: {value: json}}\n"
    "pipelines:\n  p:\n    stream: in\n    steps:\n      - filter: value.n > 1\n    to: out\n"
)


def places(found: list[lsp.Diagnostic]) -> list[tuple[int, int, int, str]]:
    return [(d.range.start.line, d.range.start.character, d.range.end.character, d.message) for d in found]


def test_a_valid_file_has_no_problems_and_a_changed_one_all_of_them(client: Client, tmp_path: Path) -> None:
    uri = client.open(tmp_path / "a.yaml", VALID)
    assert client.problems(uri) == []
    client.change(uri, VALID.replace("filter", "filtr").replace("to: out", "to: ot"))
    assert places(client.problems(uri)) == [
        (7, 8, 13, "There is no step 'filtr'; did you mean 'filter'?"),
        (8, 8, 10, "There is no topic 'ot' in 'topics'; did you mean 'out'?"),
    ]


def test_an_analysis_that_fails_is_a_problem_and_keeps_no_request_waiting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def failing(*given: object) -> None:
        raise KeyError("a fault of ours")

    monkeypatch.setattr("streamkit.editor.project.analyse", failing)
    published, analysed = list[Published](), queue.Queue[str]()
    project = Project(Options(debounce_ms=0), "utf-16", published.append, lambda uri, version: analysed.put(uri))
    uri = (tmp_path / "a.yaml").as_uri()
    project.open(uri, VALID, 1)
    assert analysed.get(timeout=PATIENCE_S) == uri
    assert not project.is_behind(uri)
    assert "could not be analysed (KeyError)" in published[0].diagnostics[0].message
    project.worker.close()


def test_lint_rules_are_warnings(client: Client, tmp_path: Path) -> None:
    uri = client.open(tmp_path / "a.yaml", VALID.replace("    to: out\n", ""))
    found = client.problems(uri)
    assert ("unused-pipeline", lsp.DiagnosticSeverity.Warning) in [(d.code, d.severity) for d in found]


def test_malformed_yaml_hides_no_other_mistake(client: Client, tmp_path: Path) -> None:
    text = VALID.replace("value: json}}", "value: jsn}}").replace("to: out", "to: [out")
    found = places(client.problems(client.open(tmp_path / "a.yaml", text)))
    assert [message.partition(":")[0] for *_, message in found] == [
        "Malformed YAML while parsing a flow sequence that begins in line 9",
        "'value' of the topic 'out'",
    ]


def test_a_step_that_is_being_typed_is_the_only_problem(client: Client, tmp_path: Path) -> None:
    text = VALID.replace("    to: out\n", "      - map_va\n    to: out\n")
    found = places(client.problems(client.open(tmp_path / "a.yaml", text)))
    assert found == [(8, 8, 14, "There is no step 'map_va'; did you mean 'map_values'?")]


def test_columns_count_in_utf_16(client: Client, tmp_path: Path) -> None:
    text = VALID.replace("value.n > 1", "value.n == '😀' and valu")
    assert places(client.problems(client.open(tmp_path / "a.yaml", text)))[0][:3] == (7, 35, 39)


def test_a_part_shows_its_mistakes_as_its_topology_has_them(client: Client, tmp_path: Path) -> None:
    (tmp_path / "main.yaml").write_text(VALID.replace("topics: {in", "include: part.yaml\ntopics: {in"))
    part = tmp_path / "part.yaml"
    part.write_text("topics:\n  more: {}\n")
    uri = client.open(part, "topics:\n  more: {valu: json}\n")
    while not (found := client.problems(uri)):
        pass
    assert places(found) == [(1, 9, 13, "The topic 'more' has no key 'valu'; did you mean 'value'?")]


def test_a_test_file_is_checked_against_the_topology_in_the_editor(client: Client, tmp_path: Path) -> None:
    topology = tmp_path / "a.yaml"
    topology.write_text(VALID)
    first = client.open(topology)
    client.problems(first)
    test = tmp_path / "a.test.yaml"
    uri = client.open(test, "tests:\n  works:\n    given: [{topic: in, value: {n: 2}}]\n    expect: {out: []}\n")
    assert client.problems(uri) == []
    client.change(first, VALID.replace("out", "away"))
    assert "does not write a topic 'out'" in client.problems(uri)[0].message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0\0\0",
        "streamkit: 1\napplication: \x07",
        "streamkit: " + "[" * 50_000,
        "streamkit: 1\n" + "".join(" " * depth + "a:\n" for depth in range(300)),
        "streamkit: 1\npipelines: {p: {steps: [filter: '" + "(" * 5_000 + "']}}",
        "streamkit: &a [*a]",
        "streamkit: 1\r\napplication: x\u2028y\x0b\r",
    ],
    ids=["empty", "zeros", "control", "brackets", "deep", "parentheses", "alias", "line ends"],
)
def test_any_text_gets_an_answer(client: Client, tmp_path: Path, text: str) -> None:
    uri = client.open(tmp_path / "a.yaml", text)
    client.problems(uri)
    client.change(uri, VALID)
    assert client.problems(uri) == []


def test_a_closed_file_has_no_problems_any_more(client: Client, tmp_path: Path) -> None:
    uri = client.open(tmp_path / "a.yaml", "streamkit: 2\n")
    assert client.problems(uri)
    client.close(uri)
    assert client.problems(uri) == []


def test_typing_imports_no_module_of_the_user(client: Client, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef f(key, value): pass\n")
    text = VALID.replace("filter: value.n > 1", "peek: {call: 'mine:f'}")
    assert client.problems(client.open(tmp_path / "a.yaml", text)) == []
    assert not (tmp_path / "ran").exists()


def test_answers_that_still_wait_when_the_client_leaves_are_dropped(tmp_path: Path) -> None:
    uri = (tmp_path / "a.yaml").as_uri()
    document: Json = {"uri": uri, "languageId": "yaml", "version": 1, "text": VALID}
    messages: list[dict[str, Json]] = [
        {"id": 1, "method": "initialize", "params": {"capabilities": {}}},
        {"method": "textDocument/didOpen", "params": {"textDocument": document}},
        {"id": 2, "method": "textDocument/semanticTokens/full", "params": {"textDocument": {"uri": uri}}},
        {"method": "exit"},
    ]
    bodies = [json.dumps({"jsonrpc": "2.0", **message}).encode() for message in messages]
    told = b"".join(b"Content-Length: %d\r\n\r\n%b" % (len(body), body) for body in bodies)
    command = [sys.executable, "-m", "streamkit_cli", "lsp"]
    ended = subprocess.run(command, input=told, capture_output=True, timeout=PATIENCE_S, check=False)
    assert "Error sending data" not in ended.stderr.decode()
