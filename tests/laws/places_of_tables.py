"""Places of expressions on tables and in joins."""

from __future__ import annotations

from tests.laws.place import (
    ADDED,
    BARE,
    BOTH,
    JOINED,
    STREAM,
    TABLE,
    WHEN,
    Place,
    stream,
    table,
)

TABLES: dict[str, Place] = {
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
