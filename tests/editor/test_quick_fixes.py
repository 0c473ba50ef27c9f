"""Code actions apply what messages name."""

from __future__ import annotations

from lsprotocol import types as lsp

from streamkit.editor.quick_fixes import quick_fixes
from streamkit.editor.texts import Text

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


def test_topics_in_brackets_stay_as_they_are() -> None:
    text = Text("a.yaml", FILE.replace("topics:\n    in: {}", "topics: {in: {}}"))
    assert quick_fixes("file:///a.yaml", text, [problem("There is no topic 'inn' in 'topics'")]) == []
