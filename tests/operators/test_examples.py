"""What the language reference shows beyond one example a step: it is what happens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamkit.operators import OPERATORS
from streamkit.operators.core.operator import Example
from streamkit.runtime.driver import run_case
from streamkit.spec.language_reference import examples_of, examples_of_ends, examples_of_macros, pages
from tests.conformance_cases import assert_same_records, parse, write_example

STEPS = {name: examples_of(operator) for name, operator in OPERATORS.items()}
"""The examples of each step, of which the first is run by the tests of the language reference."""
ALL = [(name, each) for name, listed in STEPS.items() for each in listed[1:]]
ALL += [("sources and ends", each) for each in examples_of_ends()]
ALL += [("macros", each) for each in examples_of_macros()]


@pytest.mark.parametrize("shown", [each for _, each in ALL], ids=[f"{name}: {each.title}" for name, each in ALL])
def test_examples_do_what_they_say(shown: Example, tmp_path: Path) -> None:
    records, _ = run_case(write_example(tmp_path, shown), shown.input.splitlines())
    assert_same_records(parse(shown.output), json.loads(json.dumps(records)))


def test_all_of_them_are_shown() -> None:
    text = "\n".join(pages().values())
    for each in [*(each for _, each in ALL), *(listed[0] for listed in STEPS.values())]:
        assert each.topology.strip() in text
        assert [code for code in each.files.values() if code.strip() not in text] == []


def test_examples_name_no_module_of_the_package() -> None:
    for each in [*(each for _, each in ALL), *(listed[0] for listed in STEPS.values())]:
        assert "streamkit." not in each.topology


def test_each_step_occurs_in_its_own_example() -> None:
    for name, listed in STEPS.items():
        assert listed
        assert [each for each in listed if f"- {name}" not in each.topology] == []
