"""The words within expressions have kinds, in whatever way YAML writes the expressions, finished or not."""

from __future__ import annotations

from pathlib import Path

import pytest
from lsprotocol import types as lsp

from streamkit.editor.names import words
from tests.editor.client import Client


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("value.a.lower() == 'x'", "variable:value property:a method:lower operator:== string:'x'"),
        ("len(key) if not value else 1.5e3", "function:len variable:key keyword:if keyword:not variable:value keyword:else number:1.5e3"),
        ("f'a {sum(value[\"b\"])!r:>{n}} {{c}}' + ''", "string:f'a { function:sum variable:value string:\"b\" string:!r:>{ variable:n string:}} {{c}}' operator:+ string:''"),
        ("value.a > ${least} # why", "variable:value property:a operator:> parameter:${least}"),
        ("'not closed + x", "string:'not closed + x"),
        ("double(", "function:double"),
        ("f'{", "string:f'{ string:"),
        ("[*a, **b]", "operator:* variable:a operator:** variable:b"),
    ],
)  # fmt: skip
def test_words(text: str, expected: str) -> None:
    assert " ".join(f"{each.kind}:{text[each.start : each.end]}" for each in words(text)) == expected


FILE = """\
streamkit: 1
application: shop
topics: {in: {value: json}}
pipelines:
  😀: {stream: in, steps: [filter: "value.😀 == 1"]}
  p:
    stream: in
    steps:
      - filter: 'get(value, ''a'') > 1'
      - filter: "value.a == \\"x\\" and key"
      - map_values: >-
          {'a':
           value.b}
      - filter: valu.
"""


def test_a_client_gets_the_words_of_a_file_with_mistakes(tmp_path: Path) -> None:
    client = Client({"debounceMs": 0})
    uri = client.open(tmp_path / "a.yaml", FILE.replace("😀:", "p1:").replace("value.😀", "value.é"))
    params = lsp.SemanticTokensParams(lsp.TextDocumentIdentifier(uri))
    found = client.wait(client.client.text_document_semantic_tokens_full_async(params))
    assert found is not None
    provider = client.initialized.capabilities.semantic_tokens_provider
    assert provider is not None
    line = character = 0
    shown = []
    rows = FILE.replace("😀:", "p1:").replace("value.😀", "value.é").split("\n")
    for at in range(0, len(found.data), 5):
        down, right, length, kind, _ = found.data[at : at + 5]
        line, character = line + down, right + (character if not down else 0)
        word = rows[line][character : character + length]
        shown.append(f"{line}:{word}:{provider.legend.token_types[kind]}")
    assert shown == [
        "4:value:variable", "4:é:property", "4:==:operator", "4:1:number",
        "8:get:function", "8:value:variable", "8:''a':string", "8:>:operator", "8:1:number",
        "9:value:variable", "9:a:property", "9:==:operator", "9:and:keyword", "9:key:variable",
        "11:'a':string", "12:value:variable", "12:b:property",
        "13:valu:variable",
    ]  # fmt: skip
    assert client.stop() == 0
