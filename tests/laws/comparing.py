"""Runs each form of a place and its twin in brackets side by side in one topology, through the driver that `try` uses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from streamkit.expressions import load_object
from streamkit.operators import OPERATORS
from streamkit.operators.core.parsed_values import CallRef
from streamkit.plan import load
from streamkit.runtime.driver import Driver
from tests.laws.forms import FORMS, LEVELS, twin
from tests.laws.place import Place

CODE = """
NOTED = []

def note(number, value):
    NOTED.append((number, value))
    return value
"""
_LETTER = "__streams.errors."
_REASONS = (_LETTER + "exception", _LETTER + "message")

# Rows come, change and go (null) on both sides of a join, before and after each other; two records are late.
RECORDS = [
    ("u", "k0", 1, 0),
    ("t", "k0", 1, 1),
    ("s", "k0", 1, 2),
    ("s", "k1", None, 3),
    ("t", "k1", 2, 4),
    ("t", "k2", None, 5),
    ("s", "k1", 0, 7),
    ("t", "k0", None, 8),
    ("u", "k1", 2, 9),
    ("t", "k1", 1, 6),
    ("s", "k0", 3, 12),
    ("t", "k0", 0, 14),
    ("u", "k0", None, 15),
    ("u", 1, "k1", 15),
    ("s", "k1", 1, 11),
    ("t", "k1", None, 16),
    ("t", "k0", None, 17),
    ("u", "k1", None, 18),
    ("s", "k0", 1, 30),
]

_NUMBER = re.compile(r"(?<![A-Za-z])N(?![A-Za-z])")
CHUNK = 15
"""Forms in one topology: one of hundreds of pipelines takes longer than several small ones."""

Behaviour = dict[str, Any]
"""What one expression made: rows and letters in order, rows of its store, what it noted."""


def expressions(place: Place, all_forms: bool = True) -> dict[str, str]:
    """Return the forms of a place by name: all of them, or one of each level."""
    names = dict(zip("abcd", place.operands, strict=True))
    found = {name: form.format(**names) for name, form in FORMS[place.takes].items()}
    return found if all_forms and not place.brief else {name: found[name] for name in LEVELS if name in found}


def behaviours(place: Place, texts: dict[str, str], folder: Path, cache_bytes: int) -> dict[str, Behaviour]:
    """Return what each of some expressions makes in a place, by its number."""
    path = folder / "topology.yaml"
    (folder / "law_code.py").write_text(CODE, encoding="utf-8")
    path.write_text(json.dumps(_topology(place, texts, cache_bytes)), encoding="utf-8")
    plan = load(path)
    found: dict[str, Behaviour] = {number: {"rows": [], "store": None, "noted": []} for number in texts}
    noted = load_object(CallRef("law_code", "NOTED", str(folder)))
    noted.clear()
    with Driver(plan) as driver:
        for record in _records(place, texts):
            for row in driver.pipe(record):
                number = row["topic"].split("-")[1]
                found[number]["rows"].append(shown(row, number))
        for name, rows in driver.stores().items():
            if name.startswith("kept-"):
                found[name.split("-")[1]]["store"] = rows
    for number, value in noted:
        found[number]["noted"].append(value)
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


@dataclass
class Comparison:
    """What comparing the forms of a place with their twins found."""

    count: int = 0
    different: list[str] = field(default_factory=list)
    distinct: set[str] = field(default_factory=set)
    """The behaviours that were seen, as text."""
    rows: int = 0
    """How many forms made rows that are no letters."""


def compare(place: Place, folder: Path, cache_bytes: int, forms: dict[str, str]) -> Comparison:
    """Compare forms of a place with their twins, some of them in each topology."""
    found = Comparison()
    names = list(forms)
    for start in range(0, len(names), CHUNK):
        part = names[start : start + CHUNK]
        texts: dict[str, str] = {}
        for at, name in enumerate(part):
            texts[f"{at}a"], texts[f"{at}b"] = forms[name], twin(forms[name])
        made = behaviours(place, texts, folder, cache_bytes)
        for at, name in enumerate(part):
            found.count += 1
            if made[f"{at}a"] != made[f"{at}b"]:
                found.different.append(f"{name}: {forms[name]}")
            found.distinct.add(json.dumps(made[f"{at}b"]))
            found.rows += any(row[0] != "lost" for row in made[f"{at}b"]["rows"])
    return found


def _records(place: Place, texts: dict[str, str]) -> Iterator[dict[str, Any]]:
    for topic, key, value, time in RECORDS:
        record = {"topic": topic, "key": key, "value": value, "timestamp": time}
        if re.search(rf"[{{ ]{topic}[,}}]", place.shared):
            yield record
        for number in texts if topic == "s" and "in-N" in place.topics else ():
            yield {**record, "topic": f"in-{number}"}


def _topology(place: Place, texts: dict[str, str], cache_bytes: int) -> dict[str, Any]:
    topics: dict[str, Any] = {name: {} for name in "stu"}
    functions: dict[str, Any] = {
        "same": {"params": ["it"], "expr": "it"},
        "note": {"call": "law_code:note"},
    }
    pipelines: dict[str, Any] = dict(_parsed(place.shared))
    for number, text in texts.items():
        topics[f"out-{number}"] = {}
        topics[f"lost-{number}"] = {"key": "bytes", "value": "bytes"}
        topics.update(_filled(place.topics, number, text))
        functions.update(_filled(place.functions, number, text))
        pipelines.update(_answered(_filled(place.body, number, text), f"lost-{number}"))
    return {
        "streamkit": 1,
        "application": "law",
        "config": {
            "statestore.cache.max.bytes": cache_bytes,
            "processing.exception.handler": "continue",
            "deserialization.exception.handler": "continue",
            **place.options,
        },
        "defaults": {"key": "json", "value": "json"},
        "topics": topics,
        "functions": functions,
        "pipelines": pipelines,
    }


@cache
def _parsed(template: str) -> Any:
    return yaml.safe_load(template.replace("STORE", "store: kept-N")) or {}


def _filled(template: str, number: str, text: str) -> dict[str, Any]:
    """Return the data of a template with an expression and its number put in."""
    expression = _NUMBER.sub(number, text)

    def put(part: Any) -> Any:
        if isinstance(part, dict):
            return {put(name): put(each) for name, each in part.items()}
        if isinstance(part, list):
            return [put(each) for each in part]
        if not isinstance(part, str):
            return part
        return expression if part == "EXPR" else _NUMBER.sub(number, part)

    return put(_parsed(template))  # type: ignore[no-any-return]


def _answered(pipelines: dict[str, Any], letters: str) -> dict[str, Any]:
    """Return pipelines whose steps send what they fail at to a topic of letters."""
    for body in pipelines.values():
        body["steps"] = [_step(step, letters) for step in body.get("steps", [])]
    return pipelines


def _step(step: Any, letters: str) -> Any:
    if isinstance(step, str):
        return step
    [(name, options)] = step.items()
    if not isinstance(options, dict):
        options = {OPERATORS[name].main: options}
    return {name: {**options, "on_error": {"dead_letter": letters}}}


def shown(row: dict[str, Any], number: str = "") -> list[Any]:
    """Return a row without the number of its expression, and of letters only what tells why they are ones."""
    topic = row["topic"].replace(f"-{number}", "") if number else row["topic"]
    headers = row.get("headers") or []
    if any(name.startswith(_LETTER) for name, _ in headers):
        headers = [header for header in headers if header[0] in _REASONS]
    return [topic, row["key"], row["value"], row["timestamp"], headers]
