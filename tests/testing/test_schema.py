"""schemas/test.schema.json is up to date, takes good files and refuses mistakes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml

from streamkit.testing.case_schema import PATH, build, main

ROOT = Path(__file__).parent.parent.parent
TESTS = sorted(ROOT.glob("topologies/*/*.test.yaml"))


@cache
def validator() -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(build())
    return jsonschema.Draft202012Validator(build())


def test_the_schema_is_up_to_date(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert json.loads((ROOT / PATH).read_text(encoding="utf-8")) == build()
    monkeypatch.chdir(ROOT)
    assert main(["--check"]) == 0
    (tmp_path / PATH.parent).mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["--check"]) == 1
    assert main([]) == 0
    assert main(["--check"]) == 0
    assert main(["--chekc"]) == 2


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.parent.name)
def test_tests_of_the_examples_are_valid(path: Path) -> None:
    data = json.loads(json.dumps(yaml.safe_load(path.read_text(encoding="utf-8")), default=str))
    assert [error.message for error in validator().iter_errors(data)] == []


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"tests": {}},
        {"tests": {"t": {"givn": []}}},
        {"tests": {"t": {"given": [{"value": 1}]}}},
        {"tests": {"t": {"given": [{"topic": "a", "vale": 1}]}}},
        {"tests": {"t": {"expect": {"a": {"match": "all"}}}}},
        {"tests": {"t": {"dropped": -1}}},
        {"test": {"t": {}}},
    ],
)
def test_mistakes_are_refused(data: dict) -> None:
    assert not validator().is_valid(data)
