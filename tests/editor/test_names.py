"""Definitions, references and renames through a real client: one index of names for a topology, its included files and its tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

from streamkit.editor.names import Names
from streamkit.spec.yaml_nodes import Node, Source
from streamkit.spec.yaml_reader import Name
from tests.editor.client import Client

PART = """\
topics:
  orders: {value: json}
functions:
  double: {params: [n], expr: n * 2}
macros:
  keep_big:
    params: {least: expression, store: {type: name, default: bigs}}
    steps:
      - filter: value.amount > ${least}
      - group_by_key
      - count: ${store}
      - to_stream
"""
FILE = """\
streamkit: 1
application: shop
include: part.yaml
topics:
  totals: {key: string, value: long}
  other: {value: json}
generators:
  orders: {value: "{'amount': sequence}"}
pipelines:
  big:
    stream: [orders]
    steps:
      - map_values: "{'amount': double(value.amount), 'text': f'{double(1)} ''double(2)'''}"
      - keep_big: {least: double(5)}
    to: totals
  sums:
    stream: other
    steps:
      - peek: {call: mine:shorten}
      - group_by_key
      - count: sums
      - to_stream
      - branch:
          when:
            huge: {if: value > 5}
          default: small
  rest:
    from: sums.small
"""
TEST = "tests:\n  works:\n    given: [{topic: orders, value: {amount: 1}}]\n    expect: {totals: []}\n    stores: {sums: {}}\n"


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    edits = lsp.WorkspaceEditClientCapabilities(document_changes=True)
    edits.change_annotation_support = lsp.ChangeAnnotationsSupportOptions()
    found = Client(
        {"debounceMs": 0}, lsp.ClientCapabilities(workspace=lsp.WorkspaceClientCapabilities(workspace_edit=edits))
    )
    yield found
    assert found.stop() == 0


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "part.yaml").write_text(PART)
    (tmp_path / "shop.yaml").write_text(FILE)
    (tmp_path / "shop.test.yaml").write_text(TEST)
    (tmp_path / "mine.py").write_text("import json\n\n\ndef shorten(key, value):\n    return key, value\n")
    return tmp_path


def opened(client: Client, path: Path, place: str) -> tuple[lsp.TextDocumentIdentifier, lsp.Position]:
    """Open a file and return the place in it that `place` marks, written `part.yaml: dou¦ble(`."""
    name, _, shown = place.partition(": ")
    text = (path / name).read_text()
    before = text[: text.index(shown.replace("¦", "")) + shown.index("¦")]
    uri = client.open(path / name)
    client.problems(uri)
    return lsp.TextDocumentIdentifier(uri), lsp.Position(before.count("\n"), len(before) - before.rfind("\n") - 1)


def shown(path: Path, locations: list[lsp.Location]) -> list[str]:
    """Return the lines of places, each with brackets around the place."""
    found = []
    for each in locations:
        name = each.uri.rpartition("/")[2]
        row = (path / name).read_text().split("\n")[each.range.start.line]
        start, end = each.range.start.character, each.range.end.character
        found.append(f"{name}: {(row[:start] + '[' + row[start:end] + ']' + row[end:]).strip()}")
    return sorted(found)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("shop.yaml: stream: [ord¦ers", ["part.yaml: [orders]: {value: json}"]),
        ("shop.yaml: double¦(value", ["part.yaml: [double]: {params: [n], expr: n * 2}"]),
        ("shop.yaml: from: s¦ums", ["shop.yaml: [sums]:"]),
        ("shop.yaml: from: sums.sm¦all", ["shop.yaml: default: [small]"]),
        ("shop.yaml: include: par¦t.yaml", ["part.yaml: []topics:"]),
        ("shop.yaml: - keep_¦big", ["part.yaml: [keep_big]:"]),
        ("shop.yaml: {lea¦st", ["part.yaml: params: {[least]: expression, store: {type: name, default: bigs}}"]),
        ("shop.yaml: {call: mine:sho¦rten}", ["mine.py: []def shorten(key, value):"]),
        ("part.yaml: > ${lea¦st}", ["part.yaml: params: {[least]: expression, store: {type: name, default: bigs}}"]),
        ("shop.test.yaml: topic: ord¦ers", ["part.yaml: [orders]: {value: json}"]),
        ("shop.test.yaml: stores: {su¦ms", ["shop.yaml: - count: [sums]"]),
        ("shop.yaml: applica¦tion", []),
    ],
)  # fmt: skip
def test_definitions(client: Client, files: Path, place: str, expected: list[str]) -> None:
    client.open(files / "shop.yaml")
    document, position = opened(client, files, place)
    found = client.wait(client.client.text_document_definition_async(lsp.DefinitionParams(document, position)))
    assert shown(files, list(found or [])) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("part.yaml: ord¦ers", [
            "part.yaml: [orders]: {value: json}",
            "shop.test.yaml: given: [{topic: [orders], value: {amount: 1}}]",
            "shop.yaml: [orders]: {value: \"{'amount': sequence}\"}",
            "shop.yaml: stream: [[orders]]",
        ]),
        ("part.yaml: dou¦ble", [
            "part.yaml: [double]: {params: [n], expr: n * 2}",
            "shop.yaml: - keep_big: {least: [double](5)}",
            "shop.yaml: - map_values: \"{'amount': [double](value.amount), 'text': f'{double(1)} ''double(2)'''}\"",
            "shop.yaml: - map_values: \"{'amount': double(value.amount), 'text': f'{[double](1)} ''double(2)'''}\"",
        ]),
        ("part.yaml: {lea¦st", [
            "part.yaml: - filter: value.amount > ${[least]}",
            "part.yaml: params: {[least]: expression, store: {type: name, default: bigs}}",
            "shop.yaml: - keep_big: {[least]: double(5)}",
        ]),
    ],
)  # fmt: skip
def test_references_in_all_files(client: Client, files: Path, place: str, expected: list[str]) -> None:
    client.open(files / "shop.yaml")
    document, position = opened(client, files, place)
    params = lsp.ReferenceParams(lsp.ReferenceContext(True), document, position)
    found = client.wait(client.client.text_document_references_async(params))
    assert shown(files, list(found or [])) == expected


def renamed(client: Client, files: Path, place: str, name: str) -> tuple[dict[str, str], str | None]:
    """Return the changed files after a rename, and its cost."""
    client.open(files / "shop.yaml")
    document, position = opened(client, files, place)
    found = client.wait(client.client.text_document_rename_async(lsp.RenameParams(document, position, name)))
    assert found is not None
    texts = {}
    for change in found.document_changes or []:
        assert isinstance(change, lsp.TextDocumentEdit)
        path = change.text_document.uri.removeprefix(f"{files.as_uri()}/")
        rows = (files / path).read_text().split("\n")
        for edit in reversed(change.edits):
            row, at = rows[edit.range.start.line], edit.range
            rows[at.start.line] = row[: at.start.character] + edit.new_text + row[at.end.character :]  # type: ignore[union-attr]
        texts[path] = "\n".join(rows)
    costs = found.change_annotations or {}
    return texts, costs["cost"].description if costs else None


def test_a_renamed_topic_is_renamed_in_all_files_and_read_anew(client: Client, files: Path) -> None:
    texts, cost = renamed(client, files, "shop.yaml: stream: [ord¦ers", "true")
    assert texts == {
        "part.yaml": PART.replace("orders", "'true'"),
        "shop.yaml": FILE.replace("orders", "'true'"),
        "shop.test.yaml": TEST.replace("orders", "'true'"),
    }
    assert cost is not None
    assert "true" in cost


def test_a_renamed_store_has_another_changelog(client: Client, files: Path) -> None:
    texts, cost = renamed(client, files, "shop.yaml: count: su¦ms", "totals_by_id")
    assert texts == {
        "shop.yaml": FILE.replace("count: sums", "count: totals_by_id"),
        "shop.test.yaml": TEST.replace("sums", "totals_by_id"),
    }
    assert cost is not None
    assert "Store totals_by_id (was sums) starts empty: its rows stay in shop-sums-changelog" in cost


def test_pipelines_functions_macros_and_parameters_cost_nothing(client: Client, files: Path) -> None:
    for place, old, new in (
        ("shop.yaml: from: su¦ms", ("  sums:", "from: sums."), ("  all:", "from: all.")),
        ("shop.yaml: double¦(5", ("double(v", "{double(1", "double(5", "  double"), ("half(v", "{half(1", "half(5", "  half")),
        ("part.yaml: keep_b¦ig", ("keep_big",), ("large",)),
        ("part.yaml: ${lea¦st}", ("least",), ("minimum",)),
    ):  # fmt: skip
        texts, cost = renamed(client, files, place, new[-1].strip(" .").removeprefix("from: "))
        expected = {}
        for name, text in (("part.yaml", PART), ("shop.yaml", FILE)):
            changed = text
            for one, other in zip(old, new, strict=True):
                changed = changed.replace(one, other)
            if changed != text:
                expected[name] = changed
        assert texts == expected
        assert cost is None


ROUTED = """\
  routed:
    stream: other
    steps: [filter: 'topic == ''totals''']
    to: {route: ROUTE}
"""


def test_a_renamed_topic_is_renamed_where_expressions_and_settings_choose_it(client: Client, files: Path) -> None:
    route = (
        "\"'totals' if value.amount > 1 else {'a': 'orders', 'b': 'logs-' + value.level}.get('orders', '''orders''')\""
    )
    text = FILE.replace("topics:", "config: {errors.dead.letter.queue.topic.name: orders}\ntopics:")
    (files / "shop.yaml").write_text(text + ROUTED.replace("ROUTE", route))
    texts, _ = renamed(client, files, "shop.yaml: stream: [ord¦ers", "sales")
    expected = (files / "shop.yaml").read_text().replace("orders", "sales").replace("get('sales'", "get('orders'")
    assert texts["shop.yaml"] == expected


@pytest.mark.parametrize(
    ("route", "topic", "place"),
    [
        ("value.target", "orders", "32:23"),
        ("\"'or' + value.rest\"", "orders", "32:18"),
        ("\"'x' if value.a else f'{value.b}ers'\"", "orders", "32:38"),
        ("{call: mine:shorten}", "orders", "32:17"),
        ("\"'or' 'ders'\"", "orders", "32:19"),
        ("\"'logs-' + value.level\"", "totals", "31:21"),
        ("\"'x' if key else '${HERE:-orders}'\"", "orders", "32:19"),
    ],
)
def test_a_topic_that_an_expression_may_name_unseen_is_not_renamed(
    client: Client, files: Path, route: str, topic: str, place: str
) -> None:
    (files / "shop.yaml").write_text(FILE + ROUTED.replace("ROUTE", route))
    where = {"orders": "stream: [ord¦ers", "totals": "to: to¦tals"}[topic]
    document, position = opened(client, files, f"shop.yaml: {where}")
    with pytest.raises(JsonRpcException, match=rf"topic can't be renamed: .*shop\.yaml:{place}"):
        client.wait(client.client.text_document_rename_async(lsp.RenameParams(document, position, "sales")))


def test_a_name_on_the_log_that_stays_is_not_looked_for_in_routes(client: Client, files: Path) -> None:
    (files / "part.yaml").write_text(PART.replace("{value: json}", "{value: json, topic: orders-v1}"))
    (files / "shop.yaml").write_text(FILE + ROUTED.replace("ROUTE", "\"'orders' if value.a else value.b\""))
    texts, _ = renamed(client, files, "shop.yaml: stream: [ord¦ers", "sales")
    assert "{route: \"'orders' if value.a else value.b\"}" in texts["shop.yaml"]


def test_a_rename_reaches_topologies_that_share_an_include_and_are_not_open(client: Client, files: Path) -> None:
    (files / "between.yaml").write_text("include: part.yaml\n")
    other = "streamkit: 1\napplication: more\ninclude: between.yaml\npipelines:\n  p: {stream: orders, to: orders}\n"
    (files / "more.yaml").write_text(other)
    (files / "more.test.yaml").write_text("tests:\n  works:\n    given: [{topic: orders}]\n    expect: {orders: []}\n")
    own = "streamkit: 1\napplication: own\ntopics: {orders: {}}\npipelines:\n  p: {stream: orders, to: orders}\n"
    (files / "own.yaml").write_text(own)
    texts, _ = renamed(client, files, "shop.yaml: stream: [ord¦ers", "sales")
    assert set(texts) == {"part.yaml", "shop.yaml", "shop.test.yaml", "more.yaml", "more.test.yaml"}
    assert texts["more.yaml"] == other.replace("orders", "sales")
    # The store of one topology is no part of the others.
    assert set(renamed(client, files, "shop.yaml: count: su¦ms", "counted")[0]) == {"shop.yaml", "shop.test.yaml"}


def test_a_rename_reaches_all_topologies_of_a_repository(client: Client, files: Path) -> None:
    (files / ".git").mkdir()
    far = files / "teams" / "a" / "jobs"
    far.mkdir(parents=True)
    include = "include: ../../../part.yaml\n"
    (far / "far.yaml").write_text(
        f"streamkit: 1\napplication: far\n{include}pipelines:\n  p: {{stream: orders, to: orders}}\n"
    )
    texts, _ = renamed(client, files, "shop.yaml: stream: [ord¦ers", "sales")
    assert "{stream: sales, to: sales}" in texts["teams/a/jobs/far.yaml"]


@pytest.mark.parametrize(("pattern", "name"), [("tot.*", "totals"), ("sal.*", "sales")])
def test_a_topic_whose_name_a_pattern_matches_is_not_renamed(
    client: Client, files: Path, pattern: str, name: str
) -> None:
    (files / "shop.yaml").write_text(f"{FILE}  matched:\n    stream: {{pattern: '{pattern}'}}\n    to: other\n")
    with pytest.raises(
        JsonRpcException, match=f"the pattern {pattern!r} in .*shop.yaml:30:13 matches the name {name!r}"
    ):
        renamed(client, files, "shop.yaml: to: tot¦als", "sales")


def test_a_rename_reads_files_that_have_changed_on_the_disk(client: Client, files: Path) -> None:
    document, position = opened(client, files, "shop.yaml: stream: [ord¦ers")
    (files / "part.yaml").write_text(f"# first\n{PART}")
    found = client.wait(client.client.text_document_rename_async(lsp.RenameParams(document, position, "sales")))
    assert found is not None
    changes = [each for each in found.document_changes or [] if isinstance(each, lsp.TextDocumentEdit)]
    edits = {each.text_document.uri.rpartition("/")[2]: each.edits for each in changes}
    assert [edit.range.start for edit in edits["part.yaml"]] == [lsp.Position(2, 2)]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("place", "name", "message"),
    [
        ("shop.yaml: stream: [ord¦ers", "totals", "is also at"),
        ("shop.yaml: stream: [ord¦ers", "a b", "which is not among the letters"),
        ("shop.yaml: - keep_¦big", "filter", "is a step of the language"),
        ("shop.yaml: {call: mine:sho¦rten}", "other", "A Python object is renamed in its module"),
        ("shop.yaml: double¦(5", "len", "There is a function 'len' already"),
        ("shop.yaml: include: par¦t.yaml", "other", "A file is renamed in its folder"),
        ("part.yaml: count: ${sto¦re}", "1", "must be a letter"),
    ],
)  # fmt: skip
def test_renames_that_make_a_mistake_are_refused(
    client: Client, files: Path, place: str, name: str, message: str
) -> None:
    client.open(files / "shop.yaml")
    document, position = opened(client, files, place)
    with pytest.raises(JsonRpcException, match=message):
        client.wait(client.client.text_document_rename_async(lsp.RenameParams(document, position, name)))


def test_a_name_that_is_put_together_is_not_renamed(client: Client, files: Path) -> None:
    (files / "shop.yaml").write_text(FILE.replace("count: sums", "count: ${STORE:-sums}"))
    document, position = opened(client, files, "shop.yaml: count: ${STO¦RE")
    with pytest.raises(JsonRpcException, match=r"its name is not written out in .*shop.yaml:21:16"):
        client.wait(client.client.text_document_prepare_rename_async(lsp.PrepareRenameParams(document, position)))


def test_a_name_in_the_python_of_a_plugin_is_not_renamed() -> None:
    text = 'return stream.count("counts")'
    found = {
        file: Names([Name("store", "counts", Node("scalar", "counts", 20, 28, Source(text, file)))], []).mentions
        for file in ("steps.py", "shop.yaml")
    }
    assert [each.written for mentions in found.values() for each in mentions] == [False, True]


def test_a_rename_needs_a_file_without_mistakes(client: Client, files: Path) -> None:
    document, position = opened(client, files, "shop.yaml: count: su¦ms")
    client.change(document.uri, FILE.replace("to: totals", "to: tot"))
    params = lsp.PrepareRenameParams(document, position)
    with pytest.raises(JsonRpcException, match=r"mend this first.*There is no topic 'tot'"):
        client.wait(client.client.text_document_prepare_rename_async(params))
    client.change(document.uri, FILE)
    found = client.wait(client.client.text_document_prepare_rename_async(params))
    assert isinstance(found, lsp.PrepareRenamePlaceholder)
    assert found.placeholder == "sums"


def test_a_rename_needs_a_plan(client: Client, files: Path) -> None:
    (files / "shop.yaml").write_text(
        FILE.replace("      - group_by_key\n      - count: sums\n", "      - count: sums\n")
    )
    document, position = opened(client, files, "shop.yaml: count: su¦ms")
    params = lsp.PrepareRenameParams(document, position)
    with pytest.raises(JsonRpcException, match=r"mend this first.*count: expected a grouped stream"):
        client.wait(client.client.text_document_prepare_rename_async(params))


def test_names_in_macros_that_no_pipeline_uses_are_renamed(client: Client, files: Path) -> None:
    macro = "macros:\n  far:\n    params: {n: integer}\n    steps:\n      - filter: double(value.a) > ${n}\n"
    macro += "      - peek: {call: mine:shorten, on_error: {dead_letter: orders}}\n      - keep_big: {least: '${n}'}\n"
    (files / "shop.yaml").write_text(FILE.replace("topics:", f"{macro}topics:"))
    texts, _ = renamed(client, files, "shop.yaml: stream: [ord¦ers", "sales")
    assert "dead_letter: sales" in texts["shop.yaml"]
    texts, _ = renamed(client, files, "part.yaml: dou¦ble", "half")
    assert "filter: half(value.a)" in texts["shop.yaml"]


def test_a_client_without_annotations_is_told_the_cost(files: Path) -> None:
    client = Client({"debounceMs": 0})
    params = lsp.RenameParams(*opened(client, files, "shop.yaml: count: su¦ms"), "counted")
    found = client.wait(client.client.text_document_rename_async(params))
    assert found is not None
    assert sorted(uri.rpartition("/")[2] for uri in found.changes or {}) == ["shop.test.yaml", "shop.yaml"]
    assert "starts empty" in client.messages.get(timeout=60).message
    assert client.stop() == 0
