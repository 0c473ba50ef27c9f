"""What the language reference shows beyond one example a step: it is what happens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamkit.operators import OPERATORS
from streamkit.runtime.driver import run_case
from streamkit.spec import language_reference
from streamkit.spec.language_reference import Shown, pages
from tests.conformance_cases import assert_same_records, parse, write_example

ALL = [(name, each) for name, listed in language_reference.STEPS.items() for each in listed]
ALL += [("sources and ends", each) for each in language_reference.ENDS]


@pytest.mark.parametrize("shown", [each for _, each in ALL], ids=[f"{name}: {each.title}" for name, each in ALL])
def test_examples_do_what_they_say(shown: Shown, tmp_path: Path) -> None:
    records, _ = run_case(write_example(tmp_path, shown), shown.input.splitlines())
    assert_same_records(parse(shown.output), json.loads(json.dumps(records)))


def test_all_of_them_are_shown() -> None:
    assert language_reference.STEPS.keys() <= OPERATORS.keys()
    text = "\n".join(pages().values())
    for each in [*(each for _, each in ALL), *(operator.example for operator in OPERATORS.values())]:
        assert each.topology.strip() in text
        assert [code for code in each.files.values() if code.strip() not in text] == []


def test_examples_name_no_module_of_the_package() -> None:
    for each in [*(each for _, each in ALL), *(operator.example for operator in OPERATORS.values())]:
        assert "streamkit." not in each.topology


def test_each_step_stands_in_its_own_example() -> None:
    for name, operator in OPERATORS.items():
        assert f"- {name}" in operator.example.topology
    for name, listed in language_reference.STEPS.items():
        assert [each for each in listed if f"- {name}" not in each.topology] == []
