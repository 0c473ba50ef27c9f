"""What the language reference shows beyond one example a step: it is what happens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamkit.operators import OPERATORS
from streamkit.runtime.driver import run_case
from streamkit.spec import examples
from streamkit.spec.examples import Shown
from streamkit.spec.reference import render
from tests.test_conformance import assert_same_records, parse

ALL = [(name, each) for name, listed in examples.STEPS.items() for each in listed]
ALL += [("sources and ends", each) for each in examples.ENDS]


@pytest.mark.parametrize("shown", [each for _, each in ALL], ids=[f"{name}: {each.title}" for name, each in ALL])
def test_examples_do_what_they_say(shown: Shown, tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(shown.topology, encoding="utf-8")
    for name, text in shown.files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    records, _ = run_case(file, shown.input.splitlines())
    assert_same_records(parse(shown.output), json.loads(json.dumps(records)))


def test_all_of_them_are_shown() -> None:
    assert examples.STEPS.keys() <= OPERATORS.keys()
    text = render(OPERATORS.values())
    for _, each in ALL:
        assert each.topology.strip() in text
        assert all(code.strip() in text for code in each.files.values())


def test_each_step_stands_in_its_own_example() -> None:
    for name, operator in OPERATORS.items():
        assert f"- {name}" in operator.example.topology
    for name, listed in examples.STEPS.items():
        assert all(f"- {name}" in each.topology for each in listed)
