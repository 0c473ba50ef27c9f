"""A topic that can't take what reaches it is found by `validate`, where both are known, and never wrongly."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamkit.errors import TopologyError
from streamkit.plan import load

HEAD = """\
streamkit: 1
application: app
topics:
  text: {key: string, value: string}
  numbers: {key: string, value: long}
  doubles: {key: string, value: double}
  flags: {key: string, value: boolean}
  raw: {key: string, value: bytes}
  objects: {key: string, value: json}
  ids: {key: string, value: uuid}
  windows: {key: {windowed: string, size: 10s}, value: long}
  sessions: {key: {session_windowed: long}, value: long}
pipelines:
  p:
"""
COUNT = "group_by_key, {window: {tumbling: 10s}}, count: c, to_stream"
TAKES_TEXT = "topic text takes text as its value (serde string), but gets"
WRONG = [
    ("stream: text", "", "numbers", "topic numbers takes a whole number as its value (serde long), but gets text"),
    ("stream: numbers", "", "text", f"{TAKES_TEXT} a whole number; make it text: str(value)"),
    ("stream: text", "map_values: len(value)", "text", f"{TAKES_TEXT} a whole number; make it text: str(value)"),
    ("stream: text", "map_values: value > 'a'", "text", f"{TAKES_TEXT} a boolean; make it text: str(value)"),
    ("stream: objects", "map_values: '{\"a\": value}'", "text", f"{TAKES_TEXT} the object; make it text: str(value)"),
    ("stream: text", "", "flags", "topic flags takes a boolean as its value (serde boolean), but gets text"),
    (
        "stream: objects",
        "group_by_key, {aggregate: {initial: 0, add: aggregate + value.a, value_serde: boolean}}, to_stream",
        "text",
        f"{TAKES_TEXT} a boolean; make it text: str(value)",
    ),
    (
        "stream: raw",
        "filter: key > 'a'",
        "doubles",
        "topic doubles takes a number as its value (serde double), but gets bytes",
    ),
    (
        "stream: text",
        "map_values: 'f\"{key}\"'",
        "raw",
        "topic raw takes bytes as its value (serde bytes), but gets text",
    ),
    (
        "stream: text",
        COUNT,
        "numbers",
        "topic numbers takes text as its key (serde string), but gets a windowed key; give the topic a windowed key serde, "
        "or take the key out: to_stream: {key: key.key}",
    ),
    (
        "stream: numbers",
        "",
        "windows",
        "topic windows takes a windowed key as its key (serde windowed), but gets text",
    ),
    ("stream: text", "map_values: key.cents", "objects", "text has no field 'cents'"),
]
RIGHT = [
    ("stream: numbers", "", "doubles"),
    ("stream: objects", "", "text"),
    ("stream: text", "map_values: value if value == 'a' else 7", "text"),
    ("stream: text", "map_values: None", "numbers"),
    ("stream: text", "map_values: str(len(value))", "text"),
    ("stream: text", "", "objects"),
    ("stream: text", "", "ids"),
    ("stream: text", "{group_by_key: {}}, {window: {tumbling: 10s}}, count: c, to_stream", "windows"),
    ("stream: text", "group_by_key, {window: {tumbling: 10s}}, count: c, to_stream: {key: key.key}", "numbers"),
    ("stream: text", "{map_values: {value: int(value), value_serde: long}}", "numbers"),
]


def problems(folder: Path, start: str, steps: str, to: str) -> list[str]:
    file = folder / "app.yaml"
    file.write_text(f"{HEAD}    {start}\n    steps: [{steps}]\n    to: {to}\n")
    try:
        load(file, env={})
    except TopologyError as error:
        return [each.message for each in error.problems]
    return []


@pytest.mark.parametrize(("start", "steps", "to", "message"), WRONG)
def test_a_misfit(tmp_path: Path, start: str, steps: str, to: str, message: str) -> None:
    assert problems(tmp_path, start, steps, to) == [message]


@pytest.mark.parametrize(("start", "steps", "to"), RIGHT)
def test_what_may_fit(tmp_path: Path, start: str, steps: str, to: str) -> None:
    assert problems(tmp_path, start, steps, to) == []
