"""The examples of docs/contributing.md work as they stand there."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from streamkit import operators, serdes
from streamkit.errors import SerdeError
from streamkit.runtime.driver import run_case
from streamkit.spec.language_reference import parse_examples
from tests.docs.pages import blocks

ROOT = Path(__file__).parents[2]
CONTRIBUTING = ROOT / "docs" / "contributing.md"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], ModuleType]:
    """Makes the module of the only Python block with a text, under the name that it would have."""

    def make(text: str, name: str) -> ModuleType:
        (block,) = (each for each in blocks(CONTRIBUTING, "contributing.md") if text in each.text)
        assert block.language == "python"
        module = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(block.text, str(block), "exec"), module.__dict__)
        return module

    return make


def test_the_step_does_what_its_example_shows(example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = example("class EveryOperator", "streamkit.operators.steps.stateless.every").EveryOperator()
    monkeypatch.setitem(operators.OPERATORS, operator.name, operator)
    (text,) = (each.text for each in blocks(CONTRIBUTING, "contributing.md") if "every: 2" in each.text)
    (shown,) = parse_examples(text, "every.yaml")
    file = tmp_path / "topology.yaml"
    file.write_text(shown.topology, encoding="utf-8")
    records, _ = run_case(file, shown.input.splitlines())
    expected = [json.loads(line) for line in shown.output.splitlines()]
    assert [{**record, "headers": []} for record in expected] == [{**record, "headers": []} for record in records]


def test_the_serde_reads_what_it_writes_and_refuses_the_rest(example, monkeypatch: pytest.MonkeyPatch) -> None:
    example("class HexSerde", "streamkit.serdes.formats.hex")
    monkeypatch.setitem(serdes.FORMATS, "hex", serdes.Format("hex"))
    serde = serdes.parse("hex")
    assert (serde.encode(b"\x0a"), serde.decode(b"0A"), serde.to_json(b"\x0a"), serde.from_json("0a")) == (
        *(b"0a", b"\n"),
        *("0a", b"\n"),
    )
    for refuse in (lambda: serde.encode("a"), lambda: serde.decode(b"61 62"), lambda: serde.from_json(1)):
        with pytest.raises(SerdeError):
            refuse()


def test_the_command_lists_the_stores_of_a_topology(example, capsys: pytest.CaptureFixture[str]) -> None:
    module = example("def stores", "streamkit_cli.commands.stores")
    module.stores(ROOT / "topologies" / "word-count" / "topology.yaml")
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["STORE", "TYPE", "CHANGELOG"]
    assert [row.split()[1] for row in rows] == ["timestamped_key_value"]
