"""Code actions apply what messages name."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp

from streamkit.editor.analysis import analyse
from streamkit.editor.project import Options, Project
from streamkit.editor.quick_fixes import quick_fixes
from streamkit.editor.texts import Text, Texts

FILE = "streamkit: 1\ntopics:\n    in: {}\npipelines:\n  p: {stream: inn}\n"


def problem(message: str) -> lsp.Diagnostic:
    text = Text("a.yaml", FILE)
    start = FILE.index("inn")
    return lsp.Diagnostic(text.span(start, start + 3), message, source="streamkit")


def applied(action: lsp.CodeAction) -> str:
    assert action.edit is not None
    assert action.edit.changes is not None
    (edit,) = action.edit.changes["file:///a.yaml"]
    text = Text("a.yaml", FILE)
    return FILE[: text.offset(edit.range.start)] + edit.new_text + FILE[text.offset(edit.range.end) :]


def test_a_misspelt_name_is_replaced_and_a_missing_topic_added() -> None:
    found = problem("There is no topic 'inn' in 'topics'; did you mean 'in'?")
    actions = quick_fixes("file:///a.yaml", Text("a.yaml", FILE), [found])
    assert [applied(each) for each in actions] == [
        FILE.replace("inn", "in"),
        FILE.replace("topics:\n", "topics:\n    inn: {}\n"),
    ]


def test_a_word_at_another_place_is_not_replaced() -> None:
    found = problem("The step 'other' has no key 'other'; did you mean 'in'?")
    assert quick_fixes("file:///a.yaml", Text("a.yaml", FILE), [found]) == []


HEAD = "streamkit: 1\napplication: shop\n"
REST = "pipelines:\n  p:\n    stream: in\n    steps:\n      - {}\n    to: out\n"


@pytest.mark.parametrize(
    ("before", "after", "title"),
    [
        ("{value: get(value, 'n', 1)}", "{value: 'get(value, ''n'', 1)'}", "Put it in quotes"),
        ("[1, value.n]", "'[1, value.n]'", "Put it in quotes"),
        ("value.a + '  #x'", "'value.a + ''  #x'''", "Put it in quotes"),
        ("get(value, 'a: 1')", "'get(value, ''a: 1'')'", "Put it in quotes"),
        ("@x", "'@x'", "Put it in quotes"),
        ("valu.a", "value.a", "Change 'valu' to 'value'"),
    ],
)
def test_values_are_put_in_quotes(before: str, after: str, title: str) -> None:
    text = HEAD + "topics: {in: {value: json}, out: {value: json}}\n" + REST.replace("{}", f"map_values: {before}")
    assert fixed(text, title) == text.replace(before, after)


def test_a_name_that_is_a_number_is_put_in_quotes() -> None:
    text = HEAD + "topics: {in: {value: json}, out: {value: json}}\n" + REST.replace("to: out", "to: 12")
    assert fixed(text, "Put it in quotes") == text.replace("to: 12", 'to: "12"')


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        ("topics:\n    in: {}\n", "topics:\n    out: {}\n    in: {}\n"),
        ("topics: {in: {}}\n", "topics: {in: {}, out: {}}\n"),
        ("topics: {\n  in: {},\n}\n", "topics: {\n  in: {}, out: {},\n}\n"),
        ("topics:\n", "topics:\n  out: {}\n"),
        ("topics: &t\n  &k in: {}\n", "topics: &t\n  out: {}\n  &k in: {}\n"),
        ("topics: &t {in: {}}\n", "topics: &t {in: {}, out: {}}\n"),
        ("topics: &t {}\n", "topics: &t {out: {}}\n"),
        ("", "topics:\n  out: {}\n"),
    ],
)
def test_a_missing_topic_is_added(topics: str, expected: str) -> None:
    rest = REST.replace("- {}", "- filter: value.a").replace("stream: in", "stream: out")
    assert fixed(HEAD + topics + rest, "Add the topic 'out'") == HEAD + expected + rest


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("{tumbling: 5m}", "{tumbling: 5m, grace: 5m}"),
        ("\n          tumbling: 5m", "\n          grace: 5m\n          tumbling: 5m"),
    ],
)
def test_a_grace_as_long_as_the_window(window: str, expected: str) -> None:
    text = HEAD + "topics: {in: {value: json}, out: {key: {windowed: string, size: 5m}, value: long}}\n" + REST
    steps = "group_by_key\n      - window: {}\n      - count: {{store: {{name: counts, caching: false}}}}\n      - to_stream"
    found = fixed(text.replace("{}", steps.format(window)), "Wait 5m for late records")
    assert found == text.replace("{}", steps.format(expected))


def fixed(text: str, title: str) -> str:
    """Return a text after the fix with this title, which one of its problems has."""
    found = Text("/a.yaml", text)
    project = Project(Options(), "utf-16", lambda found: None, lambda uri, version: None)
    project.worker.close()
    analysis = analyse(found, Texts({}), {})
    assert analysis is not None
    problems = [project.diagnostic(mark, found) for mark in analysis.marks]
    edits = [each.edit for each in quick_fixes("file:///a.yaml", found, problems) if each.title == title]
    assert edits, problems
    assert edits[0] is not None
    assert edits[0].changes is not None
    (edit,) = edits[0].changes["file:///a.yaml"]
    return text[: found.offset(edit.range.start)] + edit.new_text + text[found.offset(edit.range.end) :]
