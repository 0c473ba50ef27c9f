"""Groups, rows and cached entries are told apart as Java tells them apart, whatever Python takes for equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import ProcessingError
from streamkit.record import Record
from streamkit.serdes.formats.json_text import to_text
from tests.compile.support import driver_of, record

HEAD = """\
streamkit: 1
application: app
config: {%s}
topics:
  in: {value: json}
  events: {key: json, value: json}
  counts: {key: KEY, value: long}
  out: {key: json, value: json}
pipelines:
"""
MOVES = """
p:
  table: in
  steps:
    - group_by: {key: EXPRESSION, key_serde: KEY}
    - count: groups
    - to_stream
  to: counts
"""
NO_CACHE = "statestore.cache.max.bytes: 0"


class Place:
    """A key that can't be hashed and has no equality of its own."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str):
        self.name = name


class PlaceSerde:
    """Writes a place as its name, in small letters."""

    def encode(self, value: Place) -> bytes:
        return value.name.lower().encode()

    def decode(self, data: bytes) -> Place:
        return Place(data.decode())

    def to_json(self, value: Place) -> str:
        return value.name


def place(key: Any, value: Any) -> Place:
    """Return the key of a row's group."""
    return Place(value["g"])


def group_changes(
    folder: Path, key: str, expression: str, values: list[Any], config: str = NO_CACHE
) -> list[tuple[str, Any]]:
    """What a row that takes one value after the other makes of the counts, as (key's text, count)."""
    pipelines = MOVES.replace("EXPRESSION", expression).replace("KEY", key)
    with driver_of(folder, pipelines, config, HEAD.replace("KEY", key)) as driver:
        printed = [line for value in values for line in driver.pipe(record(value, timestamp=0))]
        return [(to_text(line["key"]).decode(), line["value"]) for line in printed]


@pytest.mark.parametrize("config", [NO_CACHE, ""], ids=["no cache", "cached"])
@pytest.mark.parametrize(
    ("key", "one", "other", "shown"),
    [
        ("json", True, 1, ("true", "1")),
        ("json", 1, 1.0, ("1", "1.0")),
        ("json", 0.0, -0.0, ("0.0", "-0.0")),
        ("json", [{"a": True}], [{"a": 1}], ('[{"a":true}]', '[{"a":1}]')),
        ("double", 0.0, -0.0, ("0.0", "-0.0")),
        ("string", "caf\u00e9", "cafe\u0301", ('"caf\u00e9"', '"cafe\u0301"')),
    ],
)
def test_a_row_leaves_its_group(tmp_path: Path, config: str, key: str, one: Any, other: Any, shown: Any) -> None:
    found = group_changes(tmp_path, key, "value.g", [{"g": one}, {"g": other}], config)
    assert found == [(shown[0], 1), (shown[0], 0), (shown[1], 1)]


@pytest.mark.parametrize(
    ("key", "expression", "one", "other", "shown"),
    [
        ("json", "value.g", {"a": 1, "b": 2}, {"b": 2, "a": 1}, '{"a":1,"b":2}'),
        ("double", "value.g", 1, 1.0, "1.0"),
        ("double", "float(value.g)", "nan", "-nan", '"NaN"'),
        ("{call: 'tests.compile.test_keys:PlaceSerde'}", "{call: 'tests.compile.test_keys:place'}", "A", "a", '"a"'),
    ],
)
def test_a_row_stays_in_its_group(tmp_path: Path, key: str, expression: str, one: Any, other: Any, shown: str) -> None:
    # One change, under the old key: the count is never nothing in between.
    assert group_changes(tmp_path, key, expression, [{"g": one}, {"g": other}]) == [(shown, 1), (shown, 1)]


@pytest.mark.parametrize("config", [NO_CACHE, ""], ids=["no cache", "cached"])
def test_stores_of_processors_hold_rows_apart(tmp_path: Path, config: str) -> None:
    keys = [True, 1, 1.0, 0.0, -0.0, {"a": 1, "b": 2}, {"b": 2, "a": 1}, "caf\u00e9", "cafe\u0301"]
    pipelines = """
    p:
      stream: events
      steps:
        - process: {call: "tests.compile.test_keys:Last", stores: [last], value_serde: json}
      to: out
    """
    head = HEAD.replace("KEY", "string").replace(
        "pipelines:", "stores: {last: {type: key_value, key: json, value: json}}\npipelines:"
    )
    with driver_of(tmp_path, pipelines, config, head) as driver:
        first = [driver.pipe(record(number, key, "events"))[0]["value"] for number, key in enumerate(keys)]
        again = [driver.pipe(record(0, key, "events"))[0]["value"] for key in keys]
    assert (first, again) == ([None] * len(keys), list(range(len(keys))))


class Last:
    """Gives what came last under a record's key."""

    def init(self, context: Any) -> None:
        self.store = context.store("last")

    def process(self, record: Record) -> Record:
        before = self.store.get(record.key)
        self.store.put(record.key, record.value)
        return record.replace(value=before)


def other_kind(record: Record) -> Record:
    """Put an equal key of other bytes in place of a key."""
    return record.replace(key={"a": [True]})


def test_process_values_may_not_put_in_a_key_that_holds_another_kind(tmp_path: Path) -> None:
    pipelines = """
    p:
      stream: events
      steps:
        - process_values: {call: "tests.compile.test_keys:other_kind", value_serde: json}
      to: out
    """
    with (
        driver_of(tmp_path, pipelines, "", HEAD.replace("KEY", "string")) as driver,
        pytest.raises(ProcessingError, match="may not change the key"),
    ):
        driver.pipe(record(1, {"a": [1]}, "events"))
