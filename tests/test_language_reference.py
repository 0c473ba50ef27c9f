"""docs/language is up to date, and what its examples claim is what happens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamkit.errors import UsageError
from streamkit.operators import OPERATORS
from streamkit.operators.core import fields
from streamkit.operators.core.operator import AnyOperator, Example
from streamkit.operators.steps.stateless.peek import PeekOperator
from streamkit.runtime.driver import run_case
from streamkit.spec.language_reference import MARKER, describe_kind, examples_of, group_of, main, pages, render, updated
from tests.conformance_cases import write_example

REFERENCE = Path(__file__).parent.parent / "docs/language"


def by_topic(text: str) -> dict[str, list[dict]]:
    topics: dict[str, list[dict]] = {}
    for record in map(json.loads, text.strip().splitlines()):
        topics.setdefault(record["topic"], []).append({**record, "headers": record.get("headers") or []})
    return topics


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
def test_examples_do_what_they_say(operator: AnyOperator, tmp_path: Path) -> None:
    example = examples_of(operator)[0]
    records, _ = run_case(write_example(tmp_path, example), example.input.splitlines())
    found = by_topic("\n".join(map(json.dumps, records)))
    assert found == by_topic(example.output)


def test_the_reference_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", str(REFERENCE)]) == 0, capsys.readouterr().err


def test_every_option_is_in_the_reference() -> None:
    text = render(OPERATORS.values())
    for operator in OPERATORS.values():
        section = text.split(f"## `{operator.name}`\n")[1].split("\n## ")[0]
        assert [field for field in operator.fields if f"| `{field.name}` |" not in section] == []


def test_every_step_is_on_the_page_of_its_group() -> None:
    found = pages()
    for name, operator in OPERATORS.items():
        assert f"## `{name}`\n" in found[f"{group_of(operator)}.md"]
        assert f"({group_of(operator)}.md#{name})" in found["README.md"]


def test_an_outdated_page_is_detected_and_rewritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in pages():
        (tmp_path / name).write_text(f"# By hand\n\n{MARKER}\n\nold\n", encoding="utf-8")
    assert main(["--check", str(tmp_path)]) == 1
    assert "joins.md is out of date" in capsys.readouterr().err
    assert main(["--write", str(tmp_path)]) == 0
    assert main(["--check", str(tmp_path)]) == 0
    assert (tmp_path / "joins.md").read_text(encoding="utf-8").startswith("# By hand\n")


def test_a_page_that_is_missing_or_has_no_marker_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError):
        updated("# By hand\n", "")
    (tmp_path / "joins.md").write_text("# By hand\n", encoding="utf-8")
    assert main(["--check", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "joins.md: no line <!--" in error
    assert "tables.md: [Errno 2]" in error


def test_kinds_are_described_in_words() -> None:
    assert describe_kind(fields.Choice(("a", "b"))) == "`a` or `b`"
    assert describe_kind(fields.Integer(3)) == "integer, at least 3"
    assert describe_kind(fields.PipelineRef(many=True)) == "pipeline, or a list of them"
    assert describe_kind(fields.DurationOr(("window_closes",))) == "`window_closes` or a duration"
    assert describe_kind(fields.Expr(("key", "value"))) == "expression of `key` `value`"


class Passing(PeekOperator):
    """A step of a package that keeps its examples beside the module."""

    name = "passing"


def test_a_plugin_keeps_its_examples_beside_its_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "passing_plugin").mkdir()
    (tmp_path / "passing_plugin" / "__init__.py").touch()
    file = tmp_path / "passing_plugin" / "passing.yaml"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(Passing, "__module__", "passing_plugin.steps")
    assert examples_of(Passing()) == []
    file.write_text("- {topology: a, input: b, output: c}\n- {title: d, topology: e, input: f, output: g}\n")
    assert examples_of(Passing()) == [Example("a", "b", "c"), Example("e", "f", "g", title="d")]
    for malformed in ("- {topology: a, input: b}", "- {topology: [", "- text", "7"):
        file.write_text(malformed)
        with pytest.raises(UsageError, match=r"^passing_plugin: passing\.yaml is not a list of examples: "):
            examples_of(Passing())
