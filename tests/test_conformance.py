"""The conformance cases: what Kafka Streams described and produced for a topology, streamkit describes and produces.

Each folder below tests/conformance has topology.yaml, input.jsonl, describe.txt and expected.jsonl; some have
stores.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from streamkit.plan import load
from streamkit.plan.describe import describe
from streamkit.runtime.driver import run_case
from streamkit.serdes.json_text import to_text

FOLDER = Path(__file__).parent / "conformance"
CASES = sorted(path.parent for path in FOLDER.glob("*/topology.yaml"))
THROUGH_THE_COMMAND = ("word-count", "branch-with-default", "table-filter", "windowed-key-topic")
STREAMKIT = [sys.executable, "-m", "streamkit_cli"]

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def by_topic(records: list[dict]) -> dict[str, list[dict]]:
    """The fields that count, of each topic's records in order."""
    topics: dict[str, list[dict]] = {}
    for record in records:
        fields = {name: record.get(name) for name in ("key", "value", "timestamp")}
        topics.setdefault(record["topic"], []).append({**fields, "headers": record.get("headers") or []})
    return topics


def same(one: Any, other: Any) -> bool:
    """Equal as the text of JSON is, but for the order of fields: 1 is neither 1.0 nor true, and 0.0 is not -0.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def parse(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def as_json(value: Any) -> Any:
    """What a value is after it was written and read."""
    return json.loads(to_text(value))


def ordered(rows: list) -> list:
    """Windowed rows in one order, since Java's goes by segments; others as they are."""
    windowed = rows and all(isinstance(key, dict) and {"start", "end"} <= key.keys() for key, _ in rows)
    return sorted(rows, key=json.dumps) if windowed else rows


def assert_same_records(expected: list[dict], found: list[dict]) -> None:
    want, have = by_topic(expected), by_topic(found)
    for topic in sorted(want.keys() | have.keys()):
        for index, (one, other) in enumerate(zip_longest(want.get(topic, []), have.get(topic, []))):
            assert same(one, other), f"topic {topic}, record {index + 1}: expected {one}, found {other}"


def assert_same_stores(case: Path, found: dict[str, list]) -> None:
    path = case / "stores.json"
    if not path.exists():
        return
    for name, rows in json.loads(path.read_text(encoding="utf-8")).items():
        assert name in found
        assert same(ordered(rows), ordered(found[name])), f"store {name}: expected {rows}, found {found[name]}"


def test_there_are_cases() -> None:
    assert len(CASES) >= 60


@every_case
def test_describe(case: Path) -> None:
    text = describe(load(case / "topology.yaml"), "text")
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
