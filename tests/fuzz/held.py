"""Draws cases whose caches hold records back, in sizes so small that they are often full."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import yaml

from tests.fuzz.compare import HELD

SIZES = (1, 50, 100, 150, 200, 250, 300, 400, 500, 700, 1000, 2000)
KINDS = ("plain", "tumbling", "hopping", "sliding", "session", "on_close", "table", "grouped_table")
WINDOWS = {
    "tumbling": {"tumbling": 20},
    "hopping": {"hopping": 30, "advance": 10},
    "sliding": {"sliding": 10},
    "session": {"session": 20},
    "on_close": {"tumbling": 20, "emit": "on_close"},
}


def write(seed: int, folder: Path) -> None:
    """Write a case's topology and input."""
    dice = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    folder.mkdir(parents=True)
    (folder / HELD).touch()
    two = kind != "table" and dice.random() < 0.5
    text = yaml.safe_dump(_topology(dice, kind, two), sort_keys=False)
    (folder / "topology.yaml").write_text(text, encoding="utf-8")
    lines = "".join(json.dumps(line) + "\n" for line in _input(dice, kind, two))
    (folder / "input.jsonl").write_text(lines, encoding="utf-8")


def _topology(dice: random.Random, kind: str, two: bool) -> dict[str, Any]:
    # Which entry of windows in memory is the eldest differs (docs/guarantees.md).
    persistent = kind in ("sliding", "session") or dice.random() < 0.75
    store = {"name": "s", "persistent": persistent}
    windowed = kind in WINDOWS
    text = dice.random() < 0.5
    add = (
        "aggregate + value"
        if kind in ("sliding", "session")
        else "None if value == 'stop' else (aggregate or '') + value"
    )
    joined = {"initial": "''", "add": add, "value_serde": "string", "store": store}
    if kind == "session":
        joined["merge"] = "left + right"
    by_letter = {"group_by": {"key": "value[:1]", "key_serde": "string"}}
    steps: list[Any] = [by_letter if dice.random() < 0.3 else "group_by_key"]
    if windowed:
        steps.append({"window": {**WINDOWS[kind], "grace": dice.choice((0, 50, 1000))}})
    steps.append({"aggregate": joined} if text else {"count": {"store": store}})
    source: dict[str, Any] = {"stream": ["a", "longer-topic"] if two else "a"}
    if kind == "table":
        source, steps, text = {"table": "a", "store": store}, [], True
    elif kind == "grouped_table":
        by_letter["group_by"] |= {"value": "value", "value_serde": "string"}
        steps = [
            {"to_table": {"store": {"name": "t", "persistent": persistent}}},
            by_letter,
            {"count": {"store": store}},
        ]
        text = False
    if not windowed and dice.random() < 0.5:
        test = "len(value) < 6" if text else "value % 2 == 1"
        steps.append({"filter": {"if": test, "store": {"name": "f"}}})
    key: Any = {"session_windowed": "string"} if kind == "session" else {"windowed": "string", "size": 20}
    return {
        "streamkit": 1,
        "application": "held",
        "config": {
            "statestore.cache.max.bytes": dice.choice(SIZES),
            **({"dsl.store.format": "HEADERS"} if dice.random() < 0.5 else {}),
        },
        "topics": {
            "a": {"value": "string"},
            "longer-topic": {"value": "string"},
            "out": {"key": key if windowed else "string", "value": "string" if text else "long"},
        },
        "pipelines": {"p": {**source, "steps": [*steps, "to_stream"], "to": "out"}},
    }


def _input(dice: random.Random, kind: str, two: bool) -> list[dict]:
    values = ["p", "q", "rr", "stop", "abcdefgh"] + ([None] if kind in ("table", "grouped_table") else [])
    lines: list[dict] = []
    time = 0
    for _ in range(dice.randint(10, 60)):
        time = max(0, time + dice.choice((-10, -3, 0, 1, 5, 10, 20)))
        topic = dice.choice(("a", "longer-topic")) if two else "a"
        key = dice.choice(("x", "yy", "zzz", "w", "v", "uu", "été"))
        line: dict = {"topic": topic, "key": key, "value": dice.choice(values), "timestamp": time}
        if dice.random() < 0.15:
            line["headers"] = [["h", dice.choice(("1", "22"))]]
        lines.append(line)
        if dice.random() < 0.05:
            lines.append({"advance_wall_clock": 0})
    return [*lines, {"advance_wall_clock": 0}]
