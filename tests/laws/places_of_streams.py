"""Places of expressions on streams and groups, and in windows."""

from __future__ import annotations

from tests.laws.place import (
    ADDED,
    LISTS,
    MERGED,
    PAIRS,
    STREAM,
    TEXT,
    WHEN,
    Place,
    stream,
    table,
    windowed,
)

WHOLE = "function/expr"
"""The one place that the schema has as text, since it depends on the function's own parameters."""

STREAMS: dict[str, Place] = {
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
    "sample by": Place("step.sample/by", stream("{sample: {rate: 0.5, by: EXPR, seed: 3}}"), shared=STREAM),
    "set_timestamp": Place(
        "step.set_timestamp/to",
        stream("{set_timestamp: EXPR}"),
        ("(value or 0)", "(timestamp + offset)", "value == 1", "key == 'k1'"),
        "number",
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
}  # fmt: skip
