"""The JSON Schema: every good file is valid by it, and typical mistakes are not."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml

from streamkit.operators import OPERATORS
from streamkit.spec.topology_schema import PATH, build
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
