"""Topologies for the laws, inputs drawn for them, and what a run over them leaves."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.runtime.driver import Driver, Remains

HEAD = """\
streamkit: 1
application: app
config: {statestore.cache.max.bytes: %d%s}
topics:
  a: {value: long}
  b: {value: long}
  out: {value: json}
  windowed: {key: {windowed: string, size: 10ms}, value: json}
  sessions: {key: {session_windowed: string}, value: json}
stores:
  seen: {type: key_value, value: long, caching: true}
pipelines:
"""


@dataclass(frozen=True)
class Case:
    """A topology: its pipelines, and further settings."""

    pipelines: str
    config: str = ""
    values: Any = field(default_factory=lambda: st.none() | st.integers(0, 3))
    ordered: bool = False
    """Whether times only go up: for operators whose own stream time a restart forgets, as in Java."""


CASES = {
    "count": Case("p: {stream: a, steps: [group_by_key, {count: counts}, to_stream], to: out}"),
    "count by value": Case("p: {stream: a, steps: [{group_by: str(value)}, {count: counts}, to_stream], to: out}"),
    "aggregate": Case(
        "p: {stream: a, steps: [group_by_key, {aggregate: {initial: '[]', add: '(aggregate + [value])[-3:]', "
        "store: s}}, to_stream], to: out}"
    ),
    "reduce to null": Case(
        "p: {stream: a, steps: [group_by_key, {reduce: {add: 'None if value == 0 else aggregate + value', "
        "value_serde: long, store: s}}, to_stream], to: out}"
    ),
    "tumbling": Case(
        "p: {stream: a, steps: [group_by_key, {window: {tumbling: 10ms, grace: 20ms}}, {count: {store: {name: w, retention: 1h}}}, to_stream], "
        "to: windowed}",
        ordered=True,
    ),
    "hopping": Case(
        "p: {stream: a, steps: [group_by_key, {window: {hopping: 10ms, advance: 4ms, grace: 20ms}}, "
        "{aggregate: {initial: '0', add: 'aggregate + (value or 0)', store: {name: w, retention: 1h}}}, to_stream], to: windowed}",
        ordered=True,
    ),
    "session": Case(
        "p: {stream: a, steps: [group_by_key, {window: {session: 5ms, grace: 20ms}}, {count: {store: {name: w, retention: 1h}}}, to_stream], "
        "to: sessions}",
        ordered=True,
    ),
    "table and table": Case(
        "q: {table: b, store: right}\n"
        "p: {table: a, store: left, steps: [{outer_join: {with: q, value: '[left, right]', store: both}}, to_stream], "
        "to: out}"
    ),
    "table grouped": Case(
        "p: {table: a, store: rows, steps: [{group_by: {key: str(value % 2), value_serde: long}}, "
        "{aggregate: {initial: '[0, 0]', add: '[aggregate[0] + value, aggregate[1] + 1]', "
        "subtract: 'None if aggregate[1] == 1 else [aggregate[0] - value, aggregate[1] - 1]', store: sums}}, to_stream], "
        "to: out}"
    ),
    "filtered table": Case(
        "p: {table: a, store: rows, steps: [{filter: {if: value > 1, store: large}}, "
        "{map_values: {value: value * 10, store: tens}}, to_stream], to: out}"
    ),
    "source topic as changelog": Case(
        "q: {table: b, store: right}\np: {stream: a, steps: [{left_join: {with: q, value: '[left, right]'}}], to: out}",
        config=", topology.optimization: all",
    ),
    "global table": Case(
        "q: {global_table: b, store: right}\n"
        "p: {stream: a, steps: [{left_join: {with: q, on: key, value: '[left, right]'}}], to: out}"
    ),
    "foreign key": Case(
        "q: {table: b, store: right}\n"
        "p: {table: a, store: left, steps: [{left_join: {with: q, on: '\"k\" + str(value)', value: '[left, right]', "
        "store: both}}, to_stream], to: out}"
    ),
    "processor": Case(
        "p: {stream: a, steps: [{process_values: {call: 'law_code:count', stores: [seen], value_serde: json}}], to: out}"
    ),
    "stream join": Case(
        "p: {stream: a, steps: [{outer_join: {with: {stream: b}, value: '[left, right]', within: 6ms, grace: 5ms}}], "
        "to: out}",
        ordered=True,
    ),
    "suppress until a time": Case(
        "p: {table: a, store: rows, steps: [{suppress: 8ms}, to_stream], to: out}", ordered=True
    ),
    "suppress until windows close": Case(
        "p: {stream: a, steps: [group_by_key, {window: {tumbling: 10ms, grace: 5ms}}, {count: {store: {name: w, retention: 1h}}}, "
        "{suppress: window_closes}, to_stream], to: windowed}",
        ordered=True,
    ),
    "emit on close": Case(
        "p: {stream: a, steps: [group_by_key, {window: {tumbling: 10ms, grace: 5ms, emit: on_close}}, {count: {store: {name: w, retention: 1h}}}, "
        "to_stream], to: windowed}",
        ordered=True,
    ),
    "versioned": Case(
        "q: {table: b, store: {name: right, versioned: 50ms}}\n"
        "p: {stream: a, steps: [{left_join: {with: q, value: '[left, right]', grace: 10ms}}], to: out}",
        ordered=True,
    ),
    "deduplicate": Case("p: {stream: a, steps: [{deduplicate: {by: value, within: 7ms, store: ids}}], to: out}"),
    "top": Case(
        "p: {stream: a, steps: [group_by_key, {top: {n: 2, by: value % 3, store: lists}}, to_stream], to: out}"
    ),
    "top of windows": Case(
        "p: {stream: a, steps: [group_by_key, {window: {tumbling: 10ms, grace: 20ms}}, {top: {n: 2, by: value % 3, "
        "store: {name: w, retention: 1h}}}, to_stream], to: windowed}",
        ordered=True,
    ),
    "cogroup": Case(
        "q: {stream: b, steps: [group_by_key]}\n"
        "p: {stream: a, steps: [group_by_key, {cogroup: {add: aggregate + value, "
        "inputs: [{from: q, add: aggregate - value}]}}, {aggregate: {initial: '0', store: s}}, to_stream], to: out}"
    ),
}

FOLDER = tempfile.TemporaryDirectory(prefix="streamkit-laws-")
CODE = """
def count(record, context):
    seen = context.store("seen")
    total = (seen.get(record.key) or 0) + (record.value or 0)
    seen.put(record.key, total)
    yield record.replace(value=total)
"""


@cache
def plan_of(name: str, cache_bytes: int) -> Plan:
    """Return the plan of a case with a cache of so many bytes."""
    case = CASES[name]
    folder = Path(FOLDER.name)
    (folder / "law_code.py").write_text(CODE, encoding="utf-8")
    path = folder / f"{name}-{cache_bytes}.yaml"
    body = "".join(f"  {line}\n" for line in case.pipelines.splitlines())
    path.write_text(HEAD % (cache_bytes, case.config) + body, encoding="utf-8")
    return load(path)


@st.composite
def inputs(draw: st.DrawFn, case: Case) -> list[dict]:
    """Draw records for the topics that a case reads."""
    topics = ["a", "b"] if "b}" in case.pipelines or "b," in case.pipelines else ["a"]
    rows = st.tuples(st.sampled_from(topics), st.sampled_from(["k0", "k1", "k2"]), case.values, st.integers(0, 60))
    drawn = draw(st.lists(rows, max_size=14))
    if case.ordered:
        drawn = [(*row[:3], time) for row, time in zip(drawn, sorted(row[3] for row in drawn), strict=True)]
    return [{"topic": topic, "key": key, "value": value, "timestamp": time} for topic, key, value, time in drawn]


def run(driver: Driver, records: list[dict]) -> list[dict]:
    """Process records, and return what came out as it is when written and read."""
    found: list[dict] = []
    for record in records:
        found += driver.pipe(record)
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def stores_of(driver: Driver) -> dict[str, list]:
    """Return all rows of all stores."""
    return json.loads(json.dumps(driver.stores()))  # type: ignore[no-any-return]


def final(records: list[dict]) -> dict[str, Any]:
    """Return the last value of each key of each topic; deleted ones are gone."""
    last = {(record["topic"], json.dumps(record["key"])): record["value"] for record in records}
    return {str(name): value for name, value in last.items() if value is not None}


def compacted(remains: Remains, plan: Plan) -> Remains:
    """Return what is left when the broker has compacted the changelogs that it may compact."""
    kept = dict(remains.changelogs)
    for name, store in plan.stores.items():
        topic = plan.changelog_name(name)
        # A join's windows are never compacted.
        if topic in kept and store.type != "join_window":
            latest = {row[1]: at for at, row in enumerate(kept[topic])}
            kept[topic] = [row for at, row in enumerate(kept[topic]) if latest[row[1]] == at]
    return Remains(kept, dict(remains.committed), dict(remains.offsets), remains.clock)
