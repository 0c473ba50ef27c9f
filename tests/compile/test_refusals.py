"""Sinks that cannot take a record: which handler answers, and which nodes still get it; the answers are those of Java."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import ProcessingError
from streamkit.plan import load
from streamkit.runtime.driver import Driver
from tests.compile.support import dropped

HEAD = """streamkit: 1
application: app
config: {statestore.cache.max.bytes: 0%s}
defaults: {key: string, value: json}
topics: {in: {}, a: {}, x: {value: long}, b: {}, c: {}, d: {}, dead: {key: bytes, value: bytes}}
pipelines:
"""
KINDS = {
    "below source": """
  s: {stream: in, to: a}
  x: {from: s, to: x}
  b: {from: s, to: b}
""",
    "below node": """
  s: {stream: in}
  m: {from: s, steps: [map_values: value], to: a}
  x: {from: m, to: x}
  b: {from: m, to: b}
  c: {from: m, steps: [peek: {do: value}], to: c}
  d: {from: s, steps: [peek: {do: value}], to: d}
""",
    "flat map": """
  m: {stream: in, steps: [flat_map_values: "[value, 1, value, 2]"], to: a}
  x: {from: m, to: x}
  b: {from: m, to: b}
""",
    "repartition": """
  s: {stream: in}
  r: {from: s, steps: [repartition: {value_serde: long}], to: a}
  b: {from: s, steps: [peek: {do: value}], to: b}
""",
    "store": """
  s: {stream: in}
  r: {from: s, steps: [group_by_key, aggregate: {initial: "0", add: value, value_serde: long}, to_stream], to: a}
  b: {from: s, steps: [peek: {do: value}], to: b}
""",
    "routed": """
  m: {stream: in, steps: [map_values: value], to: {route: value.topic}}
  b: {from: m, to: b}
""",
    "routed below source": """
  m: {stream: in, to: {route: value.topic}}
  b: {from: m, to: b}
""",
}
BIG, TEXT = 2**70, "text"
"""What does not encode as `long`, and what is of another type."""
CONTINUE = {"processing": "processing.exception.handler", "production": "production.exception.handler"}


def driver_of(folder: Path, kind: str, *continuing: str, letters: bool = False) -> Driver:
    settings = "".join(f", {CONTINUE[each]}: continue" for each in continuing)
    if letters:
        settings += ", errors.dead.letter.queue.topic.name: dead"
    path = folder / "topology.yaml"
    path.write_text(HEAD % settings + KINDS[kind], encoding="utf-8")
    return Driver(load(path))


def topics(rows: list[dict]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(row["topic"], []).append(row["value"])
    return found


def record(value: Any) -> dict[str, Any]:
    return {"topic": "in", "key": "k", "value": value, "timestamp": 1}


FAILS = "fails"
ANSWERS: list[tuple[str, Any, str, Any]] = [
    ("below source", BIG, "", FAILS),
    ("below source", BIG, "processing", FAILS),
    ("below source", BIG, "production", ({"a": [BIG], "b": [BIG]}, 1)),
    ("below source", BIG, "processing production", ({"a": [BIG], "b": [BIG]}, 1)),
    ("below source", TEXT, "processing production", FAILS),
    ("below node", BIG, "", FAILS),
    ("below node", BIG, "processing", ({"a": [BIG], "d": [BIG]}, 1)),
    ("below node", BIG, "production", ({"a": [BIG], "b": [BIG], "c": [BIG], "d": [BIG]}, 1)),
    ("below node", TEXT, "production", FAILS),
    ("below node", TEXT, "processing production", ({"a": [TEXT], "d": [TEXT]}, 1)),
    ("flat map", BIG, "", FAILS),
    ("flat map", BIG, "processing", ({"a": [BIG]}, 1)),
    ("flat map", BIG, "production", ({"a": [BIG, 1, BIG, 2], "b": [BIG, 1, BIG, 2], "x": [1, 2]}, 2)),
    ("flat map", TEXT, "processing production", ({"a": [TEXT]}, 1)),
    ("repartition", BIG, "", FAILS),
    ("repartition", BIG, "processing", ({"b": [BIG]}, 1)),
    ("repartition", BIG, "production", ({"b": [BIG]}, 1)),
    ("repartition", TEXT, "production", FAILS),
    ("store", BIG, "", FAILS),
    ("store", BIG, "processing", ({"b": [BIG]}, 1)),
    ("store", BIG, "production", FAILS),
    ("routed", {"a": 1}, "processing production", ({}, 1)),
    ("routed", {"a": 1}, "production", FAILS),
    ("routed below source", {"a": 1}, "processing production", FAILS),
]


@pytest.mark.parametrize(("kind", "value", "continuing", "answer"), ANSWERS)
def test_the_step_that_is_responsible_for_a_sink(
    tmp_path: Path, kind: str, value: Any, continuing: str, answer: Any
) -> None:
    driver = driver_of(tmp_path, kind, *continuing.split())
    if answer is FAILS:
        with pytest.raises(ProcessingError):
            driver.pipe(record(value))
        return
    assert (topics(driver.pipe(record(value))), dropped(driver)) == answer


def test_the_message_names_the_sink(tmp_path: Path) -> None:
    for kind in ("below source", "below node"):
        with pytest.raises(
            ProcessingError, match=r"pipeline x, step to: topic in, .* takes a whole number, not text: 'text'"
        ):
            driver_of(tmp_path, kind).pipe(record(TEXT))


@pytest.mark.parametrize(
    ("kind", "continuing"), [("below source", "production"), ("below node", "processing"), ("below node", "production")]
)
def test_each_refused_record_is_one_dead_letter(tmp_path: Path, kind: str, continuing: str) -> None:
    rows = driver_of(tmp_path, kind, continuing, letters=True).pipe(record(BIG))
    (letter,) = [row for row in rows if row["topic"] == "dead"]
    assert [row for row in letter["headers"] if row[0] == "__streamkit.errors.step"] == [
        ["__streamkit.errors.step", "x.to"]
    ]


def test_the_step_above_answers_by_its_own_on_error(tmp_path: Path) -> None:
    (tmp_path / "topology.yaml").write_text(
        HEAD % "" + "  m: {stream: in, steps: [map_values: {value: value, on_error: continue}], to: x}\n",
        encoding="utf-8",
    )
    driver = Driver(load(tmp_path / "topology.yaml"))
    assert (driver.pipe(record(TEXT)), dropped(driver)) == ([], 1)


def test_many_sinks_below_each_other_compile(tmp_path: Path) -> None:
    chain = "  p0: {stream: in, steps: [map_values: value], to: a}\n" + "".join(
        f"  p{number}: {{from: p{number - 1}, steps: [map_values: value], to: a}}\n" for number in range(1, 40)
    )
    (tmp_path / "topology.yaml").write_text(HEAD % "" + chain, encoding="utf-8")
    assert len(Driver(load(tmp_path / "topology.yaml")).pipe(record(1))) == 40
