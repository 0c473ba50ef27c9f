"""Every place where an expression may stand, found from what the operators and the language declare.

`declared` reads the JSON Schema, which is made from the operators' fields: a new option with an expression appears there
by itself. `EXAMPLES` are the places in the operators' own examples; `PLACES` adds tables, stores, windows and lookups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import yaml

from streamkit.operators import OPERATORS
from streamkit.spec import examples
from streamkit.spec.schema import build

WHOLE = "function/expr"
"""The one place that the schema has as text, since it depends on the function's own parameters."""
_MAIN = {f"step.{name}": f"step.{name}/{operator.main}" for name, operator in OPERATORS.items() if operator.main}


@cache
def declared() -> set[str]:
    """Return the places that the language declares, as `step.filter/if` or `topic/timestamp`."""
    definitions = build(OPERATORS)["$defs"]
    found = {"/".join((name, *path)) for name, body in definitions.items() for path in _paths(body, ())}
    # Main options and bare predicates are short forms of an option.
    short = {**_MAIN, "branch": "branch/if", "listedBranch": "listedBranch/if"}
    return {short.get(place, place) for place in found} | {WHOLE}


def _paths(node: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(node, list):
        for each in node:
            yield from _paths(each, path)
    elif isinstance(node, dict):
        if node.get("$ref") == "#/$defs/expression":
            yield path
        for name, each in node.items():
            for inner, body in each.items() if name == "properties" else ():
                yield from _paths(body, (*path, inner))
            if name != "properties":
                yield from _paths(each, path)


@dataclass(frozen=True)
class Place:
    """Where an expression stands. covers: declared places; body: pipelines of one expression, in which EXPR is the
    expression and N its number; shared: pipelines that all expressions use.

    operands: what a, b, c and d are in the forms. takes: what the place takes (forms.FORMS).
    """

    covers: str
    body: str
    operands: tuple[str, str, str, str] = ("value", "key", "value == 1", "key == 'k1'")
    takes: str = "any"
    shared: str = ""
    topics: str = ""
    functions: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    brief: bool = False
    """Whether one form of each level must do: running all takes long, or the code is that of another place."""

    @property
    def is_cached(self) -> bool:
        """Whether a cache changes how the place is reached."""
        return "STORE" in self.body and "with: other, 'on'" not in self.body


STREAM = "base: {stream: s}"
TABLE = "base: {table: t, store: rows}"
BARE = "base: {table: t}"
LISTS = ("[value, key]", "[key]", "value == 1", "key == 'k1'")
PAIRS = ("[(key, value)]", "[('k9', key), (value, key)]", "value == 1", "key == 'k1'")
TEXT = ("str(value)", "str(key)", "value == 1", "key == 'k1'")
JOINED = ("[left, right]", "right", "left != 1", "key == 'k1'")
ADDED = ("value", "str(aggregate)[-9:]", "value == 1", "aggregate == 1")
MERGED = ("str(left)[-9:]", "str(right)[-9:]", "left == 1", "right == 1")
WHEN = ("value", "(key == 'k0')", "value == 1", "key == 'k1'")
BOTH = "base: {table: t, store: rows}\nother: {table: u, store: others}"
STORE = "store: kept-N"


def stream(steps: str, to: str = "out-N") -> str:
    """Return the pipeline of steps on the stream."""
    return f"p-N: {{from: base, steps: [{steps}], to: {to}}}"


def table(steps: str) -> str:
    """Return the pipeline of steps on a table, whose changes come out."""
    return stream(f"{steps}, to_stream")


def windowed(window: str, step: str) -> str:
    """Return the pipeline of an aggregation by windows."""
    return stream(
        f"group_by_key, {{window: {{{window}}}}}, {step}, to_stream, {{map: {{key: str(key), value: value}}}}"
    )


REFUSED = {"step.outer_join/on", "step.outer_join/partition", "step.outer_join/other_partition"}
"""Options that `outer_join` shares with `join` and that no topology can use."""

PLACES: dict[str, Place] = {
    # -- streams --
    "filter": Place("step.filter/if", stream("{filter: EXPR}"), shared=STREAM),
    "filter_not": Place("step.filter_not/if", stream("{filter_not: EXPR}"), brief=True, shared=STREAM),
    "map key": Place("step.map/key", stream("{map: {key: EXPR}}"), shared=STREAM),
    "map value": Place("step.map/value", stream("{map: {value: EXPR}}"), brief=True, shared=STREAM),
    "map_values": Place("step.map_values/value", stream("{map_values: EXPR}"), shared=STREAM),
    "select_key": Place("step.select_key/key", stream("{select_key: EXPR}"), brief=True, shared=STREAM),
    "peek": Place(
        "step.peek/do",
        stream("{peek: EXPR}"),
        ("note('N', value)", "note('N', key)", "note('N', value == 1)", "note('N', key == 'k1')"),
        shared=STREAM,
    ),
    "flat_map": Place("step.flat_map/records", stream("{flat_map: EXPR}"), PAIRS, "list", STREAM),
    "flat_map_values": Place("step.flat_map_values/values", stream("{flat_map_values: EXPR}"), LISTS, "list", STREAM),
    "headers": Place(
        "step.set_headers/headers",
        stream("{set_headers: {headers: {h: EXPR, gone: null, i: key}}}"),
        TEXT,
        "text",
        STREAM,
    ),
    "branch": Place(
        "branch/if",
        "p-N: {from: base, steps: [{branch: {when: {x: EXPR, y: value}, default: z}}]}\n"
        "x-N: {from: p-N.x, to: out-N}\ny-N: {from: p-N.y, steps: [{map_values: '[value]'}], to: out-N}\n"
        "z-N: {from: p-N.z, steps: [{map_values: '[[value]]'}], to: out-N}",
        WHEN,
        shared=STREAM,
    ),
    "branch in a list": Place(
        "listedBranch/if",
        "p-N: {from: base, steps: [{branch: {when: [key == 'k0', {if: EXPR, to: out-N}]}}]}",
        WHEN,
        brief=True, shared=STREAM,
    ),
    "function": Place(
        WHOLE,
        stream("{map_values: 'mine_N(value, key)'}"),
        ("one", "two", "one == 1", "two == 'k1'"),
        shared=STREAM,
        functions="mine_N: {params: [one, two], expr: EXPR}",
    ),
    "partition of a repartition": Place(
        "step.repartition/partition",
        stream("{repartition: {name: again-N, partition: EXPR}}"),
        ("partitions - 1", "key", "value == 1", "key == 'k1'"),
        brief=True, shared=STREAM,
    ),
    "partition of a sink": Place(
        "sink/partition",
        stream("{map_values: '[value]'}", "{topic: out-N, partition: EXPR}"),
        ("partitions - 1", "key", "value == 1", "key == 'k1'"),
        shared=STREAM,
    ),
    "route": Place(
        "sink/route",
        stream("{map_values: '[value]'}", "{route: EXPR}"),
        ("('out-N-' + str(value))", "('out-N-' + str(key))", "value == 1", "key == 'k1'"),
        "text",
        STREAM,
    ),
    "timestamp": Place(
        "topic/timestamp",
        "p-N: {stream: in-N, to: out-N}",
        ("(value or 0)", "(timestamp + offset)", "value == 1", "key == 'k1'"),
        "number",
        topics="in-N: {timestamp: EXPR}",
    ),
    # -- groups --
    "group_by": Place("step.group_by/key", stream("{group_by: EXPR}, {count: {STORE}}, to_stream"), brief=True, shared=STREAM),
    "reduce": Place("step.reduce/add", table("group_by_key, {reduce: {add: EXPR, STORE}}"), ADDED, brief=True, shared=STREAM),
    "reduce of integers": Place(
        "step.reduce/add",
        table("{map_values: {value: value or 0, value_serde: long}}, group_by_key, {reduce: {add: EXPR, STORE}}"),
        ("value", "aggregate % 99", "value == 1", "aggregate == 1"),
        "number",
        STREAM,
    ),
    "aggregate": Place(
        "step.aggregate/add",
        table("group_by_key, {aggregate: {initial: 0, add: EXPR, STORE}}"),
        ADDED,
        brief=True, shared=STREAM,
    ),
    "aggregate of integers": Place(
        "step.aggregate/add",
        table("group_by_key, {aggregate: {initial: 0, add: EXPR, value_serde: long, STORE}}"),
        ("value", "aggregate % 99", "value == 1", "aggregate == 1"),
        "number",
        STREAM,
    ),
    "initial": Place(
        "step.aggregate/initial",
        table("group_by_key, {aggregate: {initial: EXPR, add: '[str(aggregate)[-9:], value]', STORE}}"),
        ("now()", "[now()]", "now() == 1", "now() == 0"),
        brief=True, shared=STREAM,
    ),
    "initial of integers": Place(
        "step.aggregate/initial",
        table("group_by_key, {aggregate: {initial: EXPR, add: aggregate + value, value_serde: long, STORE}}"),
        ("now()", "(now() + 2)", "now() == 1", "now() == 0"),
        "number",
        STREAM,
    ),
    "cogroup": Place(
        "step.cogroup/add",
        table("group_by_key, {cogroup: {add: EXPR}}, {aggregate: {initial: 0, STORE}}"),
        ADDED,
        brief=True, shared=STREAM,
    ),
    "input of a cogroup": Place(
        "step.cogroup/inputs/add",
        table(
            "group_by_key, {cogroup: {add: '[value]', inputs: [{from: grouped, add: EXPR}]}}, "
            "{aggregate: {initial: 0, STORE}}"
        ),
        ADDED,
        brief=True, shared=STREAM + "\ngrouped: {stream: u, steps: [group_by_key]}",
    ),
    # -- windows --
    "tumbling": Place(
        "step.aggregate/add",
        windowed("tumbling: 10ms", "{aggregate: {initial: 0, add: EXPR, STORE}}"),
        ADDED,
        brief=True, shared=STREAM,
    ),
    "tumbling of integers": Place(
        "step.aggregate/add",
        windowed("tumbling: 10ms", "{aggregate: {initial: 0, add: EXPR, value_serde: long, STORE}}"),
        ("value", "aggregate % 99", "value == 1", "aggregate == 1"),
        "number",
        STREAM,
    ),
    "hopping": Place(
        "step.reduce/add", windowed("hopping: 10ms, advance: 5ms", "{reduce: {add: EXPR, STORE}}"), ADDED, brief=True, shared=STREAM
    ),
    "sliding": Place(
        "step.aggregate/initial",
        windowed("sliding: 10ms", "{aggregate: {initial: EXPR, add: '[str(aggregate)[-9:], value]', STORE}}"),
        ("now()", "[now()]", "now() == 1", "now() == 0"),
        brief=True, shared=STREAM,
    ),
    "session": Place(
        "step.aggregate/merge",
        windowed("session: 10ms", "{aggregate: {initial: 0, add: '[value, str(aggregate)[-9:]]', merge: EXPR, STORE}}"),
        MERGED,
        brief=True, shared=STREAM,
    ),
    # -- tables --
    "table filter": Place("step.filter/if", table("{filter: EXPR}"), WHEN, shared=TABLE),
    "table filter without a store": Place("step.filter/if", table("{filter: EXPR}"), WHEN, shared=BARE),
    "table filter into a store": Place("step.filter/if", table("{filter: {if: EXPR, STORE}}"), WHEN, brief=True, shared=TABLE),
    "table filter_not": Place("step.filter_not/if", table("{filter_not: EXPR}"), WHEN, brief=True, shared=TABLE),
    "table filter_not into a store": Place(
        "step.filter_not/if", table("{filter_not: {if: EXPR, STORE}}"), WHEN, brief=True, shared=TABLE
    ),
    "table filter, looked up": Place(
        "step.filter/if",
        "f-N: {from: base, steps: [{filter: EXPR}]}\n"
        "p-N: {from: stream, steps: [{left_join: {with: f-N, value: '[left, right]'}}], to: out-N}",
        WHEN,
        brief=True, shared=TABLE + "\nstream: {stream: s}",
    ),
    "table filter_not, looked up": Place(
        "step.filter_not/if",
        "f-N: {from: base, steps: [{filter_not: EXPR}]}\n"
        "p-N: {from: stream, steps: [{left_join: {with: f-N, value: '[left, right]'}}], to: out-N}",
        WHEN,
        brief=True, shared=TABLE + "\nstream: {stream: s}",
    ),
    "table map_values": Place("step.map_values/value", table("{map_values: EXPR}"), shared=TABLE),
    "table map_values into a store": Place(
        "step.map_values/value", table("{map_values: {value: EXPR, STORE}}"), brief=True, shared=TABLE
    ),
    "table map_values, looked up": Place(
        "step.map_values/value",
        "f-N: {from: base, steps: [{map_values: EXPR}]}\n"
        "p-N: {from: stream, steps: [{left_join: {with: f-N, value: '[left, right]'}}], to: out-N}",
        brief=True, shared=TABLE + "\nstream: {stream: s}",
    ),
    "table group_by": Place(
        "step.group_by/key", stream("{group_by: EXPR}, {count: {STORE}}, to_stream"), brief=True, shared=TABLE
    ),
    "table group_by value": Place(
        "step.group_by/value",
        table(
            "{group_by: {key: key, value: EXPR}}, {aggregate: {initial: 0, add: '[value]', subtract: "
            "'[[value]]', STORE}}"
        ),
        brief=True, shared=TABLE,
    ),
    "table add": Place(
        "step.aggregate/add",
        table("{group_by: 1}, {aggregate: {initial: 0, add: EXPR, subtract: '[aggregate, value]', STORE}}"),
        ADDED,
        brief=True, shared=TABLE,
    ),
    "table subtract": Place(
        "step.aggregate/subtract",
        table("{group_by: 1}, {aggregate: {initial: 0, add: value, subtract: EXPR, STORE}}"),
        ADDED,
        brief=True, shared=TABLE,
    ),
    "table reduce": Place(
        "step.reduce/subtract",
        table("{group_by: 1}, {reduce: {add: value, subtract: EXPR, STORE}}"),
        ADDED,
        brief=True, shared=TABLE,
    ),
    "to_stream": Place("step.to_stream/key", stream("{to_stream: EXPR}"), brief=True, shared=TABLE),
    # -- joins --
    "stream-table join": Place(
        "step.join/value", stream("{join: {with: other, value: EXPR}}"), JOINED,
        brief=True, shared=STREAM + "\nother: {table: u, store: others}",
    ),
    "stream-table left_join": Place(
        "step.left_join/value", stream("{left_join: {with: other, value: EXPR}}"), JOINED,
        shared=STREAM + "\nother: {table: u, store: others}",
    ),
    "join with grace": Place(
        "step.left_join/value", stream("{left_join: {with: other, value: EXPR, grace: 2ms}}"), JOINED,
        brief=True, shared=STREAM + "\nother: {table: u, store: {name: others, versioned: 50ms}}",
    ),
    "key of a global table": Place(
        "step.join/on", stream("{join: {with: other, 'on': EXPR, value: '[left, right]'}}"),
        brief=True, shared=STREAM + "\nother: {global_table: u, store: others}",
    ),
    "key of a global table, left": Place(
        "step.left_join/on", stream("{left_join: {with: other, 'on': EXPR, value: '[left, right]'}}"),
        brief=True, shared=STREAM + "\nother: {global_table: u, store: others}",
    ),
    "streams": Place(
        "step.join/value", stream("{join: {with: other, value: EXPR, within: 5ms}}"), JOINED,
        brief=True, shared=STREAM + "\nother: {stream: u}",
    ),
    "streams, outer": Place(
        "step.outer_join/value", stream("{outer_join: {with: other, value: EXPR, within: 5ms}}"), JOINED,
        brief=True, shared=STREAM + "\nother: {stream: u}",
    ),
    "stream with itself": Place(
        "step.join/value", stream("{join: {with: base, value: EXPR, within: 5ms}}"), JOINED, brief=True, shared=STREAM,
        options={"topology.optimization": "all"},
    ),
    "tables": Place("step.join/value", table("{join: {with: other, value: EXPR}}"), JOINED, brief=True, shared=BOTH),
    "tables, left": Place("step.left_join/value", table("{left_join: {with: other, value: EXPR}}"), JOINED, brief=True, shared=BOTH),
    "tables, outer": Place(
        "step.outer_join/value", table("{outer_join: {with: other, value: EXPR}}"), JOINED, shared=BOTH
    ),
    "tables, outer, into a store": Place(
        "step.outer_join/value", table("{outer_join: {with: other, value: EXPR, STORE}}"), JOINED, brief=True, shared=BOTH
    ),
    "tables, outer, twice": Place(
        "step.outer_join/value",
        table("{outer_join: {with: other, value: EXPR}}, {filter: value or key == 'k1'}, "
              "{group_by: value}, {count: {STORE}}"),
        JOINED,
        shared=BOTH, brief=True,
    ),
    "tables, looked up": Place(
        "step.outer_join/value",
        "f-N: {from: base, steps: [{outer_join: {with: other, value: EXPR}}]}\n"
        "p-N: {from: stream, steps: [{left_join: {with: f-N, value: '[left, right]'}}], to: out-N}",
        JOINED,
        brief=True, shared=BOTH + "\nstream: {stream: s}",
    ),
    "foreign key": Place(
        "step.join/on", table("{join: {with: other, 'on': EXPR, value: '[left, right]', STORE}}"), shared=BOTH, brief=True
    ),
    "foreign key, left": Place(
        "step.left_join/on", table("{left_join: {with: other, 'on': EXPR, value: '[left, right]', STORE}}"), shared=BOTH, brief=True
    ),
    "value by foreign key": Place(
        "step.left_join/value",
        table("{left_join: {with: other, 'on': key, value: EXPR, STORE}}"),
        ("[left, right]", "right", "left != 1", "right == 1"),
        shared=BOTH, brief=True,
    ),
    "partition by foreign key, left": Place(
        "step.left_join/partition",
        table("{left_join: {with: other, 'on': key, value: '[left, right]', partition: EXPR, STORE}}"),
        ("(partitions - 1)", "key", "key == 'k0'", "key == 'k1'"),
        shared=BOTH, brief=True,
    ),
    "partition by foreign key": Place(
        "step.join/partition",
        table("{join: {with: other, 'on': key, value: '[left, right]', partition: EXPR, STORE}}"),
        ("(partitions - 1)", "key", "key == 'k0'", "key == 'k1'"),
        shared=BOTH, brief=True,
    ),
    "other partition by foreign key": Place(
        "step.join/other_partition",
        table("{join: {with: other, 'on': key, value: '[left, right]', other_partition: EXPR, STORE}}"),
        ("(partitions - 1)", "key", "key == 'k0'", "key == 'k1'"),
        shared=BOTH, brief=True,
    ),
    "other partition by foreign key, left": Place(
        "step.left_join/other_partition",
        table("{left_join: {with: other, 'on': key, value: '[left, right]', other_partition: EXPR, STORE}}"),
        ("(partitions - 1)", "key", "key == 'k0'", "key == 'k1'"),
        shared=BOTH, brief=True,
    ),
}  # fmt: skip


def examples_of() -> list[tuple[str, str, str]]:
    """Return the examples of the operators and of the language reference: a name, the topology file, its input."""
    found = [(name, each.example.topology, each.example.input) for name, each in OPERATORS.items()]
    more = [(name, each) for name, listed in examples.STEPS.items() for each in listed]
    more += [("sources and ends", each) for each in examples.ENDS]
    return found + [(f"{name}: {each.title}", each.topology, each.input) for name, each in more if not each.files]


OUTER = """\
streamkit: 1
application: law
topics: {t: {}, u: {}}
pipelines:
  other: {table: u}
  p: {table: t, steps: [{outer_join: {with: other, '%s': key, value: left}}]}
"""


def expressions_in(topology: str) -> list[tuple[str, str, Callable[[str], dict[str, Any]]]]:
    """Return the expressions of a topology file: place, text, and a function that puts another text there."""
    found: list[tuple[str, str, Callable[[str], dict[str, Any]]]] = []
    data = _data(topology)
    for path, place in _steps(data):
        text = _at(data, path)
        if isinstance(text, (str, int, float)) and not isinstance(text, bool):
            found.append((place, str(text), partial(_replaced, topology, path)))
    return found


def _steps(data: dict[str, Any]) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield path and place of everything that may be an expression of a step in the pipelines of a file."""
    places = declared()
    for pipeline, body in data["pipelines"].items():
        for index, step in enumerate(body.get("steps", ())):
            if isinstance(step, str):
                continue
            [(name, options)] = step.items()
            base = ("pipelines", pipeline, "steps", index, name)
            if not isinstance(options, dict):
                if _MAIN.get(f"step.{name}") in places:
                    yield base, _MAIN[f"step.{name}"]
                continue
            for option in options:
                if f"step.{name}/{option}" in places and not isinstance(options[option], (dict, list)):
                    yield (*base, option), f"step.{name}/{option}"


def _at(data: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        data = data[part]
    return data


def _replaced(topology: str, path: tuple[Any, ...], text: str) -> dict[str, Any]:
    data = _data(topology)
    _at(data, path[:-1])[path[-1]] = text
    return data


def _data(topology: str) -> dict[str, Any]:
    """Return the data of a file; `on` is an option and no boolean."""

    def named(part: Any) -> Any:
        if isinstance(part, dict):
            return {"on" if name is True else name: named(each) for name, each in part.items()}
        return [named(each) for each in part] if isinstance(part, list) else part

    return named(yaml.safe_load(topology))  # type: ignore[no-any-return]
