"""The conformance cases and their plans, the files of examples, and comparing records and rows as JSON."""

from __future__ import annotations

import json
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from streamkit.operators.core.operator import Example
from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.serdes.formats.json_text import to_text

FOLDER = Path(__file__).parent / "conformance"
CASES = sorted(path.parent for path in FOLDER.glob("*/topology.yaml"))


@cache
def plan_of(case: Path) -> Plan:
    """Return the plan of a case, which many tests look at."""
    return load(case / "topology.yaml")


every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def write_example(folder: Path, example: Example) -> Path:
    """Write the topology of an example, and the modules beside it; return the topology's file."""
    for name, text in {**example.files, "topology.yaml": example.topology}.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "topology.yaml"


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
        assert name in found, f"there is no store {name}"
        assert same(ordered(rows), ordered(found[name])), f"store {name}: expected {rows}, found {found[name]}"
