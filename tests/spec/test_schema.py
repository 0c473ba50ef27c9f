"""The JSON Schema: every good file is valid by it, and typical mistakes are not."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml

from streamkit.operators import OPERATORS
from streamkit.spec.topology_schema import PATH, build, main
from tests.spec.helpers import TOPOLOGIES

ROOT = Path(__file__).parent.parent.parent
HEAD = {"streamkit": 1, "application": "a"}


@cache
def validator():
    schema = build(OPERATORS)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_committed_schema_is_up_to_date():
    assert json.loads((ROOT / PATH).read_text(encoding="utf-8")) == build(OPERATORS)


@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.parent.name)
def test_conformance_topologies_are_valid(path):
    # The stock resolver would read `on:` as a boolean; keys are text in the language.
    data = yaml.safe_load(path.read_text(encoding="utf-8").replace(" on:", ' "on":'))
    assert [error.message for error in validator().iter_errors(data)] == []


@pytest.mark.parametrize(
    "data",
    [
        {"application": "a"},
        {**HEAD, "topic": {}},
        {**HEAD, "streamkit": 2},
        {**HEAD, "application": "a b"},
        {**HEAD, "topics": {"t": {"keys": "string"}}},
        {**HEAD, "topics": {"t": {"key": "strng"}}},
        {**HEAD, "topics": {"t": {"partitions": 0}}},
        {**HEAD, "config": {"num.stream.thread": 1}},
        {**HEAD, "config": {"processing.guarantee": "exactly_once"}},
        {**HEAD, "pipelines": {"p": {}}},
        {**HEAD, "pipelines": {"p": {"stream": "a", "table": "b"}}},
        {**HEAD, "pipelines": {"p": {"stream": "a", "steps": ["fliter"]}}},
        {**HEAD, "pipelines": {"p": {"stream": "a", "steps": ["filter"]}}},
        {**HEAD, "pipelines": {"p": {"stream": "a", "steps": [{"filter": ["value"]}]}}},
        {**HEAD, "pipelines": {"p": {"stream": "a", "steps": [{"filter": {"if": "x", "nme": "y"}}]}}},
        {**HEAD, "pipelines": {"p": {"stream": "a", "to": {"topic": "a", "route": "b"}}}},
        {**HEAD, "stores": {"s": {}}},
        {**HEAD, "macros": {"m": {}}},
        {**HEAD, "macros": {"m": {"params": {"x": "txt"}, "steps": []}}},
        {**HEAD, "macros": {"m": {"steps": []}}, "pipelines": {"p": {"stream": "a", "steps": [{"m": 1, "n": 2}]}}},
        {**HEAD, "macros": {"m": {"steps": []}}, "pipelines": {"p": {"stream": "a", "steps": [{"filter": ["value"]}]}}},
    ],
)
def test_mistakes_are_invalid(data):
    assert not validator().is_valid(data)


def test_files_that_may_have_macros_use_them_as_steps():
    steps = ["m", {"n": {"x": 1}}, {"branch": {"when": {"b": {"if": "value", "steps": ["m"]}}}}]
    pipelines = {"p": {"stream": "a", "steps": steps}}
    macro = {
        "params": {"x": "integer", "y": {"type": "steps", "default": None}},
        "steps": ["${y}", {"repartition": "${x}"}],
    }
    assert validator().is_valid({**HEAD, "macros": {"m": macro}, "pipelines": pipelines})
    assert validator().is_valid({**HEAD, "include": "macros.yaml", "pipelines": pipelines})
    assert not validator().is_valid({**HEAD, "pipelines": pipelines})


def test_the_schema_of_a_file_has_its_macros(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(
        "streamkit: 1\napplication: a\nmacros:\n"
        "  m: {description: Of one, params: {x: {type: integer, description: How many}}, steps: []}\n"
        "  n: {params: {x: {type: text, default: a}, y: {type: streams, default: null}}, steps: []}\n"
    )
    assert main(["--macros", str(file)]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    own = jsonschema.Draft202012Validator(schema)

    def is_valid(step: object) -> bool:
        pipelines = {"p": {"stream": "a", "steps": [step]}}
        return own.is_valid({**HEAD, "macros": {"m": {"steps": []}}, "pipelines": pipelines})

    assert [is_valid(step) for step in ({"m": {"x": 1}}, {"m": 2}, "n", {"n": {"y": ["q"]}}, "filter_not")] == [
        True
    ] * 4 + [False]
    assert [is_valid(step) for step in ("m", {"m": {"z": 1}}, {"m": {"x": "a"}}, {"o": 1}, "o")] == [False] * 5
    assert main(["--macros", str(tmp_path / "none.yaml")]) == 2
