"""Mistakes of meaning in joins: what goes together badly, and topics whose partitions differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.operators.mistakes import assert_is_found

CASES = {
    "stream-stream join without a window": (
        "p: {stream: a, steps: [join: {with: {stream: b}, value: left}]}",
        "two streams join within a window",
    ),
    "within and before": (
        "p: {stream: a, steps: [join: {with: {stream: b}, value: left, within: 1s, before: 1s}]}",
        "use either `within` or `before`",
    ),
    "window of negative length": (
        "p: {stream: a, steps: [join: {with: {stream: b}, value: left, before: -5m, after: 4m}]}",
        "Window interval (ie, beforeMs+afterMs) must not be negative. Got before=[-300000], after=[240000]",
    ),
    "negative before alone": (
        "p: {stream: a, steps: [join: {with: {stream: b}, value: left, before: -1}]}",
        "must not be negative. Got before=[-1], after=[0]",
    ),
    "duration with a minus elsewhere": (
        "p: {stream: a, steps: [join: {with: {stream: b}, value: left, within: -5m}]}",
        "'within' of 'join' must be a duration such as 100ms",
    ),
    "partition of a join by the same key": (
        "p: {table: a, steps: [join: {with: {table: b}, value: left, partition: len(key)}]}",
        "join: a join of two tables by key takes no `partition`",
    ),
    "partition of a join of streams": (
        "p: {stream: a, steps: [join: {with: {stream: b}, value: left, within: 1s, other_partition: len(key)}]}",
        "join: a join of a stream and a stream takes no `other_partition`",
    ),
    "partition of a foreign key by value": (
        "p: {table: a, steps: [join: {with: {table: b}, value: left, on: value, partition: len(value)}]}",
        "value",
    ),
    "outer join with a table": (
        "p: {stream: a, steps: [outer_join: {with: {table: b}, value: left}]}",
        "only with `join` or `left_join`",
    ),
    "table joins a stream": (
        "p: {table: a, steps: [join: {with: {stream: b}, value: left}]}",
        "a table can join only a table",
    ),
    "global join without on": (
        "p: {stream: a, steps: [join: {with: {global_table: b}, value: left}]}",
        "`on` is required",
    ),
    "stream-table join with on": (
        "p: {stream: a, steps: [join: {with: {table: b}, value: left, on: key}]}",
        "takes no `on`",
    ),
    "within for a table": (
        "p: {stream: a, steps: [join: {with: {table: b}, value: left, within: 1s}]}",
        "takes no `within`",
    ),
    "foreign key, outer": (
        "p: {table: a, steps: [outer_join: {with: {table: b}, value: left, on: value}]}",
        "inner or left",
    ),
    "foreign key value with key": (
        "p: {table: a, steps: [join: {with: {table: b}, value: key + left, on: value}]}",
        "has only `left` and `right`",
    ),
    "grace without a versioned table": (
        "p: {stream: a, steps: [join: {with: {table: b}, value: left, grace: 1s}]}",
        "KTable must be versioned to use a grace period in a stream table join.",
    ),
    "grace beyond the history": (
        "p: {stream: a, steps: [join: {with: {table: b, store: {name: s, versioned: 1s}}, value: left, grace: 2s}]}",
        "History retention must be at least grace period.",
    ),
    "grace beyond the history of a table above": (
        "t: {table: b, store: {name: s, versioned: 1s}, steps: [filter: value, map_values: value]}\n"
        "p: {stream: a, steps: [join: {with: t, value: left, grace: 2s}]}",
        "History retention must be at least grace period.",
    ),
    "grace beyond the history of a cogroup": (
        "t: {stream: a, steps: [group_by_key, cogroup: {add: value}, "
        "aggregate: {initial: '1', store: {name: s, versioned: 1s}}]}\n"
        "p: {stream: b, steps: [join: {with: t, value: left, grace: 2s}]}",
        "History retention must be at least grace period.",
    ),
    "cache of a stream join": (
        "p: {stream: a, steps: [join: {with: {stream: b}, value: left, within: 1s, store: {caching: false}}]}",
        "join: `store` of a join of two streams takes no `caching`",
    ),
    "logging of one side of a stream join": (
        "p: {stream: a, steps: [join: {with: {stream: b}, value: left, within: 1s, this_store: {name: s, logging: false}}]}",
        "join: `this_store` of a join of two streams takes no `logging`",
    ),
    "store of one side of a join with a table": (
        "p: {stream: a, steps: [join: {with: {table: b}, value: left, this_store: s}]}",
        "join: a join of a stream and a table takes no `this_store`",
    ),
    "store of one side of a join of tables": (
        "p: {table: a, steps: [join: {with: {table: b}, value: left, other_store: s}]}",
        "join: a join of two tables takes no `other_store`",
    ),
    "keys that don't meet": (
        "p: {stream: a, steps: [join: {with: {table: by-number}, value: left}]}",
        "join: the keys never match: their serde is string here and long there",
    ),
    "partition counts": (
        "p: {stream: a, steps: [join: {with: {table: c}, value: left}]}",
        "Topics not co-partitioned: [{a=2, c=3}]; give a `partitions: 3`, or put `repartition: {partitions: 3}` before the step where its",
    ),
    "fixed repartition against a topic": (
        "p: {stream: a, steps: [repartition: {partitions: 4, name: r}, join: {with: {table: b}, value: left}]}",
        "Number of partitions [4] of repartition topic [app-r-repartition] doesn't match number of partitions [2] of the source topic; write `partitions: 2` in the step",
    ),
    "fixed repartitions": (
        "q: {stream: b, steps: [repartition: {partitions: 3, name: s}]}\n"
        "p: {stream: a, steps: [repartition: {partitions: 4, name: r}, join: {with: q, value: left, within: 1s}]}",
        "Following topics do not have the same number of partitions: [{r-repartition=4, s-repartition=3}]; write the same `partitions`",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_mistake_in_a_join(case: str, tmp_path: Path) -> None:
    assert_is_found(CASES[case], tmp_path)
