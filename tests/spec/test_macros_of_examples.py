"""The five longest examples with macros: the same topologies, and as long as docs/language/macros.md says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamkit.plan import build
from streamkit.plan.describe import describe
from streamkit.spec import load_text

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "language" / "macros.md"
VARIANTS: dict[str, tuple[str, list[tuple[str, str]]]] = {}
"""By example: its macros, and the parts that become uses of them."""
VARIANTS["click-stream"] = (
    """macros:
  count_in:                                # how often each value occurs in windows
    params: {window: steps, store: name, final: {type: steps, default: []}, name: name}
    steps:
      - group_by: {key: value, name: "${name}"}
      - ${window}
      - count: ${store}
      - ${final}
      - to_stream

""",
    [
        (
            """      - group_by: {key: value, name: by-page}
      - window: {hopping: 10m, advance: 5m, grace: 2m}
      - count: page-clicks
      - to_stream
""",
            """      - count_in:
          name: by-page
          window: [{window: {hopping: 10m, advance: 5m, grace: 2m}}]
          store: page-clicks
""",
        ),
        (
            """      - group_by: {key: value, name: by-zip}
      - window: {tumbling: 1h, grace: 5m}
      - count: zip-clicks
      - suppress: {until: window_closes, name: zip-clicks-final}
      - to_stream
""",
            """      - count_in:
          name: by-zip
          window: [{window: {tumbling: 1h, grace: 5m}}]
          store: zip-clicks
          final: [{suppress: {until: window_closes, name: zip-clicks-final}}]
""",
        ),
    ],
)
VARIANTS["customer-360"] = (
    """macros:
  per_customer:                            # a table's rows, brought together by customer
    params:
      if: expression
      value: expression
      serde: serde
      name: name
      initial: expression
      add: expression
      subtract: expression
      store: name
    steps:
      - filter: ${if}
      - group_by: {key: value.customer, value: "${value}", key_serde: string, value_serde: "${serde}", name: "${name}"}
      - aggregate: {initial: "${initial}", add: "${add}", subtract: "${subtract}", store: "${store}"}

""",
    [
        (
            """      - filter: value.status != 'cancelled'
      - group_by: {key: value.customer, value: value.cents, key_serde: string, value_serde: long, name: orders-by-customer}
      - aggregate:
          initial:""",
            """      - per_customer:
          if: value.status != 'cancelled'
          value: value.cents
          serde: long
          name: orders-by-customer
          initial:""",
        ),
        (
            """      - filter: value.open
      - group_by: {key: value.customer, value: value.subject, key_serde: string, value_serde: string, name: tickets-by-customer}
      - aggregate:
          initial:""",
            """      - per_customer:
          if: value.open
          value: value.subject
          serde: string
          name: tickets-by-customer
          initial:""",
        ),
    ],
)
VARIANTS["fraud-detection"] = (
    """macros:
  sums:                                    # what each group comes to in a window
    params: {window: steps, initial: expression, add: expression, store: name}
    steps:
      - ${window}
      - aggregate: {initial: "${initial}", add: "${add}", store: "${store}"}

""",
    [
        (
            """      - window: {sliding: 1m, grace: 30s}
      - aggregate:
          initial: '{"ids": [], "cents": 0}'
""",
            """      - sums:
          window: [{window: {sliding: 1m, grace: 30s}}]
          initial: '{"ids": [], "cents": 0}'
""",
        ),
        (
            """      - window: {tumbling: 1d, grace: 1h}
      - aggregate:                         # lint: ignore=short-grace (a standstill is under an hour)
          initial: '{"alerts": 0, "cents": 0}'
""",
            """      - sums:                              # lint: ignore=short-grace (a standstill is under an hour)
          window: [{window: {tumbling: 1d, grace: 1h}}]
          initial: '{"alerts": 0, "cents": 0}'
""",
        ),
    ],
)
VARIANTS["order-matching"] = (
    """macros:
  sent_as:                                 # a side of the join that goes out as it is
    params: {side: expression}
    steps:
      - map_values: ${side}

""",
    [
        ("                - map_values: value.payment\n", "                - sent_as: value.payment\n"),
        ("                - map_values: value.order\n", "                - sent_as: value.order\n"),
    ],
)
VARIANTS["iot-sensors"] = (
    """macros:
  joined_with_sensor:
    params: {fields: expression}
    steps:
      - join: {with: sensors, value: "merge(left, ${fields})", name: with-sensor}

""",
    [
        (
            """      - join: {with: sensors, value: 'merge(left, {"room": right.room, "limit": right.limit})', name: with-sensor}
""",
            """      - joined_with_sensor: '{"room": right.room, "limit": right.limit}'
""",
        )
    ],
)


def lines(text: str) -> int:
    return len(text.splitlines())


def test_the_longest_examples_are_measured():
    files = ROOT.glob("topologies/*/topology.yaml")
    longest = sorted(files, key=lambda file: lines(file.read_text(encoding="utf-8")))[-5:]
    assert {file.parent.name for file in longest} == VARIANTS.keys()


@pytest.mark.parametrize("example", VARIANTS)
def test_an_example_with_macros_is_the_same_and_as_long_as_documented(example: str):
    file = ROOT / "topologies" / example / "topology.yaml"
    text = file.read_text(encoding="utf-8")
    macros, parts = VARIANTS[example]
    changed = text.replace("pipelines:\n", f"{macros}pipelines:\n", 1)
    for before, after in parts:
        assert before in changed
        changed = changed.replace(before, after)
    plans = [build(load_text(each, str(file), environment={}), env={}) for each in (text, changed)]
    assert describe(plans[0], "text") == describe(plans[1], "text")
    row = re.search(rf"\| `{example}` \| (\d+) \| (\d+) \|", PAGE.read_text(encoding="utf-8"))
    assert row is not None
    assert [int(each) for each in row.groups()] == [lines(text), lines(changed)]
