"""The conformance cases: what Kafka Streams described and produced for a topology, streamkit describes and produces.

Each folder below tests/conformance has topology.yaml, input.jsonl, describe.txt and expected.jsonl; some have
stores.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from streamkit.plan.describe import describe
from streamkit.runtime.driver import run_case
from tests.conformance_cases import (
    CASES,
    FOLDER,
    as_json,
    assert_same_records,
    assert_same_stores,
    every_case,
    parse,
    plan_of,
)

THROUGH_THE_COMMAND = ("word-count", "branch-with-default", "table-filter", "windowed-key-topic")
STREAMKIT = [sys.executable, "-m", "streamkit_cli"]


def test_there_are_cases() -> None:
    assert len(CASES) >= 60


@every_case
def test_describe(case: Path) -> None:
    text = describe(plan_of(case), "text")
    assert text.removesuffix("\n") == (case / "describe.txt").read_text(encoding="utf-8").removesuffix("\n")


@every_case
def test_records_and_stores(case: Path) -> None:
    with (case / "input.jsonl").open(encoding="utf-8") as lines:
        records, stores = run_case(case / "topology.yaml", lines)
    assert_same_records(parse((case / "expected.jsonl").read_text(encoding="utf-8")), as_json(records))
    assert_same_stores(case, as_json(stores))


@pytest.mark.parametrize("name", THROUGH_THE_COMMAND)
def test_the_commands_say_the_same(name: str, tmp_path: Path) -> None:
    case = FOLDER / name
    expected = (case / "describe.txt").read_text(encoding="utf-8")
    assert _streamkit("describe", case / "topology.yaml") in (expected, expected + "\n")
    stores = tmp_path / "stores.json"
    printed = _streamkit("try", case / "topology.yaml", "--input", case / "input.jsonl", "--stores", stores)
    assert_same_records(parse((case / "expected.jsonl").read_text(encoding="utf-8")), parse(printed))
    assert_same_stores(case, json.loads(stores.read_text(encoding="utf-8")))


def _streamkit(*arguments: object) -> str:
    command = [*STREAMKIT, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
