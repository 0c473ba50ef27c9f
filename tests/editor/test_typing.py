"""The server answers while the fraud example is typed from nothing, in wrong encodings, and in a very long file."""

from __future__ import annotations

import random
from pathlib import Path

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

from tests.bench.editor import text_of
from tests.editor.client import Client
from tests.editor.recording import PAGE, recorded

FRAUD = Path(__file__).parents[2] / "topologies" / "fraud-detection" / "topology.yaml"
PAIRS = {"{": "}", "[": "]", "(": ")", "'": "'", '"': '"'}
"""What editors add to a character that is typed."""


def ask_everything(client: Client, uri: str, text: str, offset: int) -> None:
    """Make every request at a place."""
    before = text[:offset]
    place = lsp.Position(before.count("\n"), len(before) - before.rfind("\n") - 1)
    document, server = lsp.TextDocumentIdentifier(uri), client.client
    whole = lsp.Range(lsp.Position(0, 0), lsp.Position(text.count("\n") + 1, 0))
    options = lsp.FormattingOptions(tab_size=2, insert_spaces=True)
    for answer in (
        server.text_document_completion_async(lsp.CompletionParams(document, place)),
        server.text_document_hover_async(lsp.HoverParams(document, place)),
        server.text_document_signature_help_async(lsp.SignatureHelpParams(document, place)),
        server.text_document_definition_async(lsp.DefinitionParams(document, place)),
        server.text_document_references_async(lsp.ReferenceParams(lsp.ReferenceContext(True), document, place)),
        server.text_document_formatting_async(lsp.DocumentFormattingParams(document, options)),
        server.text_document_semantic_tokens_full_async(lsp.SemanticTokensParams(document)),
        server.text_document_code_lens_async(lsp.CodeLensParams(document)),
        server.text_document_inlay_hint_async(lsp.InlayHintParams(document, whole)),
        server.text_document_rename_async(lsp.RenameParams(document, place, "other")),
    ):
        refused: list[int] = []
        try:
            client.wait(answer)
        except JsonRpcException as error:
            refused.append(error.code)
        assert refused in ([], [-32803])  # a rename that is not possible
    found = client.problems(uri)
    actions = lsp.CodeActionParams(document, whole, lsp.CodeActionContext(found))
    client.wait(server.text_document_code_action_async(actions))


def test_the_fraud_example_is_typed_from_nothing(client: Client, tmp_path: Path) -> None:
    text, drawn = FRAUD.read_text(encoding="utf-8"), random.Random(38)
    uri = client.open(tmp_path / "topology.yaml", "")
    client.problems(uri)
    for offset in sorted(drawn.sample(range(1, len(text)), 40)):
        typed = text[:offset]
        line = typed.rpartition("\n")[2]
        closing = "".join(PAIRS[each] for each in line if each in PAIRS and line.count(PAIRS[each]) < line.count(each))
        client.change(uri, typed + (closing if drawn.random() < 0.5 else ""))
        ask_everything(client, uri, typed, offset)
    client.change(uri, text)
    assert client.problems(uri) == []


def test_the_recording_of_the_fraud_example_is_what_the_server_answers() -> None:
    assert PAGE.read_text(encoding="utf-8") == recorded()


def test_a_file_in_another_encoding_is_a_mistake_until_it_is_saved_as_utf_8(client: Client, tmp_path: Path) -> None:
    part = tmp_path / "part.yaml"
    text = "streamkit: 1\napplication: a\ninclude: part.yaml\n"
    for data in (
        b"topics: {caf\xe9: {}}",
        "topics: {}".encode("utf-16"),
        b"\x00\x01\x02",
        b"\xef\xbb\xbftopics: {a: \xff}",
    ):
        part.write_bytes(data)
        uri = client.open(tmp_path / "topology.yaml", text)
        while not (found := client.problems(part.as_uri())):
            pass
        assert "UTF" in found[0].message or "U+" in found[0].message
        # An answer may name a file that can't be read.
        params = lsp.DefinitionParams(lsp.TextDocumentIdentifier(uri), lsp.Position(2, 12))
        client.wait(client.client.text_document_definition_async(params))
        client.close(uri)


def test_a_file_of_ten_thousand_lines_has_all_answers(client: Client, tmp_path: Path) -> None:
    text = text_of(10_000)
    uri = client.open(tmp_path / "topology.yaml", text)
    assert not [each for each in client.problems(uri) if each.severity == lsp.DiagnosticSeverity.Error]
    place = lsp.Position(text.count("\n") - 1, 9)
    document = lsp.TextDocumentIdentifier(uri)
    found = client.wait(client.client.text_document_definition_async(lsp.DefinitionParams(document, place)))
    assert len(list(found or [])) == 1  # type: ignore[arg-type]
    listed = client.wait(client.client.text_document_completion_async(lsp.CompletionParams(document, place)))
    assert "out1" in [each.label for each in listed or []]  # type: ignore[union-attr]
