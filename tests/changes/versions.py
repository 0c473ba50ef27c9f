"""Topologies, and the pair of versions that editing one gives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from streamkit import spec
from streamkit.changes.form import Form
from streamkit.changes.of_plan import form_of
from streamkit.plan import build
from streamkit.plan.model import Plan

WORDS = """\
streamkit: 1
application: pair
topics: {lines: {value: string}, counts: {value: long}, other: {value: string}, loud: {value: string}}
pipelines:
  words:
    stream: lines
    steps:
      - flat_map_values: {values: value.lower().split(), value_serde: string}
      - group_by: value
      - count
      - to_stream
    to: counts
"""
NAMED = WORDS.replace("- count\n", "- count: counts\n").replace(
    "group_by: value", "group_by: {key: value, name: by-word}"
)
TOTALS = """\
streamkit: 1
application: pair
topics: {sales: {value: json, partitions: 2}, totals: {value: json}}
pipelines:
  totals:
    stream: sales
    steps:
      - group_by_key
      - aggregate: {initial: "{'n': 0}", add: "{'n': aggregate.n + value.n}", store: totals}
      - to_stream
    to: totals
"""
WINDOWS = """\
streamkit: 1
application: pair
topics: {clicks: {value: string}, out: {key: {windowed: string, size: 60s}, value: long}}
pipelines:
  windows:
    stream: clicks
    steps:
      - group_by_key
      - window: {tumbling: 60s}
      - count: per-key
      - to_stream: {key: "key.key"}
    to: out
"""
WINDOWS = WINDOWS.replace("{windowed: string, size: 60s}", "string")
SESSIONS = WINDOWS.replace("tumbling: 60s", "session: 30s")
SUPPRESS = WINDOWS.replace(
    "      - to_stream", "      - suppress: {until: window_closes, name: final}\n      - to_stream"
)
STREAMS = """\
streamkit: 1
application: pair
topics: {left: {value: string}, right: {value: string}, out: {value: string}}
pipelines:
  right:
    stream: right
  joined:
    stream: left
    steps:
      - join: {with: right, within: 10s, value: left + right, value_serde: string}
    to: out
"""
TABLES = """\
streamkit: 1
application: pair
topics: {users: {value: string}, clicks: {value: string}, out: {value: string}, more: {value: string}}
pipelines:
  users:
    table: users
  joined:
    stream: clicks
    steps:
      - join: {with: users, value: left + right, value_serde: string}
    to: out
"""
REKEYED = TABLES.replace("      - join", "      - select_key: {key: value, key_serde: string}\n      - join")
FOREIGN = """\
streamkit: 1
application: pair
topics: {orders: {value: string}, customers: {value: string}, out: {value: string}}
pipelines:
  customers: {table: customers, store: customers}
  joined:
    table: orders
    store: orders
    steps:
      - join: {with: customers, on: value, value: left + right, value_serde: string, name: customer}
      - to_stream
    to: out
"""
TWO = """\
streamkit: 1
application: pair
topics: {a: {value: string}, b: {value: string}, a-counts: {value: long}, b-counts: {value: long}}
pipelines:
  a:
    stream: a
    steps: [group_by_key, {count: a-store}, to_stream]
    to: a-counts
  b:
    stream: b
    steps: [group_by_key, {count: b-store}, to_stream]
    to: b-counts
"""
EXPLICIT = """\
streamkit: 1
application: pair
topics: {a: {value: string}, counts: {value: long}}
pipelines:
  a:
    stream: a
    steps:
      - repartition: {partitions: 2, name: spread}
      - group_by_key
      - count: counts
      - to_stream
    to: counts
"""
STORES = """\
streamkit: 1
application: pair
topics: {a: {value: string}, out: {value: string}}
stores:
  seen: {type: key_value, key: string, value: long}
pipelines:
  a:
    stream: a
    steps:
      - process: {call: "tests.changes.processors:Once", stores: [seen]}
    to: out
"""
GLOBAL = """\
streamkit: 1
application: pair
topics: {rates: {value: string}, clicks: {value: string}, out: {value: string}, counts: {value: long}}
pipelines:
  rates: {global_table: rates}
  joined:
    stream: clicks
    steps:
      - join: {with: rates, on: value, value: left + right, value_serde: string}
    to: out
"""


@dataclass(frozen=True)
class Pair:
    """edits: texts of the old version and what stands there in the new one."""

    name: str
    old: str
    edits: tuple[tuple[str, str], ...]
    expected: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    java: bool = True
    """Whether the programs of tests/fuzz can stand for it in Java."""

    @property
    def new(self) -> str:
        """The text of the new version."""
        text = self.old
        for before, after in self.edits:
            assert before in text, (self.name, before)
            text = text.replace(before, after)
        return text


@cache
def plan_of(text: str, name: str) -> Plan:
    """Return the plan of a version, which many tests look at."""
    return build(spec.load_text(text, name, environment={}), {}, {})


def forms(pair: Pair) -> tuple[Form, Form]:
    """Return what `diff` compares of the old version, and of the new one."""
    return form_of(plan_of(pair.old, "old.yaml"), "old.yaml"), form_of(plan_of(pair.new, "new.yaml"), "new.yaml")


def pair(
    name: str, old: str, *edits: tuple[str, str], expect: str = "", notes: tuple[str, ...] = (), java: bool = True
) -> Pair:
    expected = tuple(line.strip() for line in expect.strip().splitlines())
    return Pair(name, old, edits, expected, notes, java)
