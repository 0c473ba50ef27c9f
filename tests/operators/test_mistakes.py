"""Mistakes of meaning: every wrong kind, and what goes together badly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plan.support import HEAD, problems_of

STORES = (
    "stores: {kv: {type: key_value}, ww: {type: window, window_size: 1m, retention: 1h}, "
    "cc: {type: key_value, config: {segment.ms: 5}}, tt: {type: key_value, ttl: 1h}}"
)
CASES = {
    "two branches with one name": (
        "p: {stream: a, steps: [branch: {when: [{name: '2', if: value}, value]}]}",
        "branch: every branch needs a name of its own",
    ),
    "suppress on a stream": (
        "p: {stream: a, steps: [suppress: 5s]}",
        "suppress: expected a table, found a stream; suppress holds back a table's updates",
    ),
    "aggregation without a group": ("p: {stream: a, steps: [count]}", "a `group_by` or `group_by_key` is missing"),
    "to on a table": (
        "p: {table: a, to: out}",
        "to: expected a stream, found a table: a table is not written directly",
    ),
    "to on a group": ("p: {stream: a, steps: [group_by_key], to: out}", "found a grouped stream: an aggregation"),
    "stream step on a table": (
        "p: {table: a, steps: [peek: value]}",
        "peek: expected a stream, found a table; a `to_stream`",
    ),
    "step on a global table": ("p: {global_table: a, steps: [filter: value]}", "a global table is only for joins"),
    "window alone": ("p: {stream: a, steps: [group_by_key, window: {tumbling: 1s}]}", "`window` needs an aggregation"),
    "step after a window": (
        "p: {stream: a, steps: [group_by_key, window: {tumbling: 1s}, filter: value]}",
        "found a windowed stream; an aggregation (count, reduce or aggregate) is missing",
    ),
    "two kinds of window": (
        "p: {stream: a, steps: [group_by_key, window: {tumbling: 1s, session: 1s}, count]}",
        "expected exactly one of tumbling, hopping, sliding, session",
    ),
    "hopping without advance": (
        "p: {stream: a, steps: [group_by_key, window: {hopping: 1s}, count]}",
        "`hopping` needs `advance`",
    ),
    "advance longer than the window": (
        "p: {stream: a, steps: [group_by_key, window: {hopping: 1s, advance: 2s}, count]}",
        "`advance` can't be longer than the window",
    ),
    "window on a table's group": (
        "p: {table: a, steps: [group_by: value, window: {tumbling: 1s}, count]}",
        "tables have no windows",
    ),
    "subtract missing": (
        "p: {table: a, steps: [group_by: value, aggregate: {initial: '0', add: aggregate + 1}]}",
        "on a grouped table `subtract` is needed",
    ),
    "reduce without subtract": (
        "p: {table: a, steps: [group_by: value, reduce: aggregate + value]}",
        "`subtract` is needed",
    ),
    "subtract on a stream": (
        "p: {stream: a, steps: [group_by_key, reduce: {add: aggregate, subtract: aggregate}]}",
        "`subtract` is for grouped tables",
    ),
    "session without merge": (
        "p: {stream: a, steps: [group_by_key, window: {session: 1s}, aggregate: {initial: '0', add: aggregate}]}",
        "session windows need `merge`",
    ),
    "merge without session": (
        "p: {stream: a, steps: [group_by_key, aggregate: {initial: '0', add: aggregate, merge: left}]}",
        "`merge` is for session windows",
    ),
    "aggregate without add": ("p: {stream: a, steps: [group_by_key, aggregate: {initial: '0'}]}", "`add` is needed"),
    "count after cogroup": (
        "p: {stream: a, steps: [group_by_key, cogroup: {add: aggregate}, count]}",
        "comes `aggregate`",
    ),
    "on_close after cogroup": (
        "p: {stream: a, steps: [group_by_key, cogroup: {add: aggregate}, window: {tumbling: 1s, emit: on_close}, "
        "aggregate: {initial: '0'}]}",
        "not available after `cogroup`",
    ),
    "add after cogroup": (
        "p: {stream: a, steps: [group_by_key, cogroup: {add: aggregate}, aggregate: {initial: '0', add: aggregate}]}",
        "after `cogroup`, `add` stands with each input",
    ),
    "cogroup with a stream": (
        "q: {stream: b}\np: {stream: a, steps: [group_by_key, cogroup: {add: aggregate, inputs: [{from: q, add: aggregate}]}, "
        "aggregate: {initial: '0'}]}",
        "cogroup: expected a grouped stream, found a stream",
    ),
    "merge with a table": (
        "p: {stream: a, steps: [merge: {with: {table: b}}]}",
        "merge: expected a stream, found a table",
    ),
    "stream-stream join without a window": (
        "p: {stream: a, steps: [join: {with: {stream: b}, value: left}]}",
        "two streams join within a window",
    ),
    "within and before": (
        "p: {stream: a, steps: [join: {with: {stream: b}, value: left, within: 1s, before: 1s}]}",
        "`within` already says",
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
        "join: a join of two tables by their keys takes no `partition`",
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
        "there is no outer join",
    ),
    "table joins a stream": ("p: {table: a, steps: [join: {with: {stream: b}, value: left}]}", "a table joins a table"),
    "global join without on": (
        "p: {stream: a, steps: [join: {with: {global_table: b}, value: left}]}",
        "`on` is needed",
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
        "`left` and `right` only",
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
    "suppress without a window": (
        "p: {table: a, steps: [suppress: window_closes]}",
        "Window close time is only defined for windowed computations. Got [root->KTABLE-SOURCE-0000000002].",
    ),
    "suppress a versioned table": (
        "p: {table: a, store: {name: s, versioned: 1s}, steps: [filter: value, suppress: 1s]}",
        "suppress() is only supported for non-versioned KTables",
    ),
    "emit early with window_closes": (
        "p: {stream: a, steps: [group_by_key, window: {tumbling: 1s}, count, "
        "suppress: {until: window_closes, max_records: 5, when_full: emit_early}]}",
        "results never come out early",
    ),
    "versioned windows": (
        "p: {stream: a, steps: [group_by_key, window: {tumbling: 1s}, count: {store: {name: s, versioned: 1s}}]}",
        "windows have a store of their own",
    ),
    "short retention": (
        "p: {stream: a, steps: [group_by_key, window: {tumbling: 1s}, count: {store: {name: s, retention: 10ms}}]}",
        "must be no smaller than its window size plus the grace period",
    ),
    "versioned global table": (
        "p: {global_table: a, store: {name: s, versioned: 1s}}",
        "GlobalTables cannot be versioned.",
    ),
    "ttl of windows": (
        "p: {stream: a, steps: [group_by_key, window: {tumbling: 1s}, count: {store: {name: s, ttl: 1h}}]}",
        "store s: `ttl` is for rows by their keys; windows and sessions have `retention`",
    ),
    "ttl of a global table": (
        "p: {global_table: a, store: {name: s, ttl: 1h}}",
        "store s: `ttl` is not for global tables: each instance has all rows, and none has their stream time",
    ),
    "ttl of a table that may keep no rows": (
        "p: {table: a, store: {ttl: 1h}}",
        "store: `ttl` needs a `name` here: without one this table may keep no rows",
    ),
    "ttl of a filter that keeps no rows": (
        "p: {table: a, steps: [filter: {if: value, store: {ttl: 1h}}]}",
        "store: `ttl` needs a `name` here: without one this table may keep no rows",
    ),
    "ttl of a stream that becomes a table that may keep no rows": (
        "p: {stream: a, steps: [to_table: {store: {ttl: 1h}}]}",
        "store: `ttl` needs a `name` here",
    ),
    "ttl of a foreign-key join that may keep no rows": (
        "p: {table: a, steps: [join: {with: {table: b}, on: key, value: left, store: {ttl: 1h}}]}",
        "store: `ttl` needs a `name` here",
    ),
    "ttl of a join of two streams": (
        "p: {stream: a, steps: [join: {with: {stream: b}, value: left, within: 1s, store: {ttl: 1h}}]}",
        "join: `store` of a join of two streams takes no `ttl`",
    ),
    "ttl of one side of a join of two streams": (
        "p: {stream: a, steps: [join: {with: {stream: b}, value: left, within: 1s, this_store: {name: s, ttl: 1h}}]}",
        "join: `this_store` of a join of two streams takes no `ttl`",
    ),
    "ttl of a store that is kept from a topic": (
        "r: {read_only_store: a, store: tt}",
        "store tt: `ttl` deletes rows that its topic still has; a read_only_store can't have it",
    ),
    "ttl of a global store": (
        "r: {global_store: a, store: tt}",
        "store tt: `ttl` deletes rows that its topic still has; a global_store can't have it",
    ),
    "store on a stream's filter": ("p: {stream: a, steps: [filter: {if: value, store: s}]}", "`store` is for tables"),
    "nameless versioned store": (
        "p: {table: a, store: {versioned: 1h}}",
        "store: a versioned store needs a `name`",
    ),
    "versioned store in memory": (
        "p: {table: a, store: {name: s, versioned: 1h, type: in_memory}}",
        "store s: a versioned store is always persistent",
    ),
    "segments of plain rows": (
        "p: {stream: a, steps: [group_by_key, count: {store: {name: s, segment_interval: 1m}}]}",
        "store s: `segment_interval` is for the stores of windows and sessions, and versions",
    ),
    "segments of a nameless store": (
        "p: {stream: a, steps: [group_by_key, window: {tumbling: 1m}, count: {store: {segment_interval: 1m}}]}",
        "store: a store with a `segment_interval` needs a `name`",
    ),
    "segments in memory": (
        "p: {stream: a, steps: [group_by_key, window: {tumbling: 1m}, "
        "count: {store: {name: s, segment_interval: 1m, persistent: false}}]}",
        "store s: `segment_interval` is for persistent stores",
    ),
    "segments of sessions that emit on close": (
        "p: {stream: a, steps: [group_by_key, window: {session: 1m, emit: on_close}, "
        "count: {store: {name: s, segment_interval: 1m}}]}",
        "store s: sessions with `emit: on_close` take no `segment_interval`",
    ),
    "retention of a nameless store": (
        "p: {stream: a, steps: [group_by_key, window: {tumbling: 1m}, count: {store: {retention: 1s}}]}",
        "The retention period of the window store must be no smaller than its window size plus the grace period.",
    ),
    "retention of a filtered table": (
        "p: {table: a, steps: [filter: {if: value, store: {retention: 1s}}]}",
        "store: `retention` is for the stores of windows and sessions",
    ),
    "global table with settings of a changelog": (
        "p: {global_table: a, store: {name: s, config: {segment.ms: 5}}}",
        "`config` is for a changelog; a global table has none",
    ),
    "global table with a nameless store": (
        "p: {global_table: a, store: {type: in_memory}}",
        "the store of a global table needs a `name`",
    ),
    "cache of a stream join": (
        "p: {stream: a, steps: [join: {with: {stream: b}, value: left, within: 1s, store: {caching: false}}]}",
        "join: `store` of a join of two streams takes no `caching`",
    ),
    "logging of one side of a stream join": (
        "p: {stream: a, steps: [join: {with: {stream: b}, value: left, within: 1s, this_store: {name: s, logging: false}}]}",
        "join: `this_store` of a join of two streams takes no `logging`",
    ),
    "nameless store of one side": (
        "p: {stream: a, steps: [join: {with: {stream: b}, value: left, within: 1s, other_store: {type: in_memory}}]}",
        "join: `other_store` needs a `name`",
    ),
    "segments of one side in memory": (
        "p: {stream: a, steps: [join: {with: {stream: b}, value: left, within: 1s, other_store: {name: s, type: in_memory, segment_interval: 1s}}]}",
        "join: `segment_interval` is for persistent stores",
    ),
    "store of one side of a join with a table": (
        "p: {stream: a, steps: [join: {with: {table: b}, value: left, this_store: s}]}",
        "join: a join of a stream and a table takes no `this_store`",
    ),
    "store of one side of a join of tables": (
        "p: {table: a, steps: [join: {with: {table: b}, value: left, other_store: s}]}",
        "join: a join of two tables takes no `other_store`",
    ),
    "changelog of a suppress without one": (
        "p: {table: a, steps: [suppress: {until: 5s, logging: false, config: {segment.ms: 5}}]}",
        "suppress: `config` is for the changelog, which `logging: false` does without",
    ),
    "step below a global store": (
        "g: {global_store: a, store: kv}\np: {from: g, steps: [filter: value]}",
        "filter: expected a stream or a table, found a store that is kept from a topic",
    ),
    "global store named by a processor": (
        "g: {global_store: a, store: kv}\np: {stream: b, steps: [process: {call: 'm:f', stores: [kv]}]}",
        "Global StateStore kv can be used by a Processor without being specified; it should not be explicitly passed.",
    ),
    "two global stores of one name": (
        "g: {global_store: a, store: kv}\nh: {global_store: b, store: kv}",
        "A different GlobalStateStore has already been added with the name kv",
    ),
    "read-only store of a topic that is read": (
        "p: {stream: a, to: out}\nr: {read_only_store: a, store: kv}",
        "Topic a has already been registered by another source.",
    ),
    "read-only store with the name of a step": (
        "p: {stream: b, steps: [filter: {if: value, name: r}], to: out}\nr: {read_only_store: a, store: kv}",
        "Processor r is already added",
    ),
    "changelog of a store that is kept from a topic": (
        "r: {read_only_store: a, store: cc}",
        "store cc: `config` is for a changelog; this one is restored from its topic",
    ),
    "windows without a processor that keeps them": (
        "r: {global_store: a, store: ww}",
        "global_store: a store of type window needs `process`, which writes to it",
    ),
    "from a pipeline that ends in branches": (
        "p: {stream: a, steps: [branch: {when: {x: value, y: key}}]}\nq: {from: p}",
        "ends with branches; name one of them: p.x, p.y",
    ),
    "step after a branch": (
        "p: {stream: a, steps: [branch: {when: {x: value}}, peek: value]}",
        "A pipeline ends with its 'branch' step",
    ),
    "stream and table of one topic": (
        "p: {stream: a}\nq: {table: a}",
        "Topic a has already been registered by another source.",
    ),
    "overlapping streams": ("p: {stream: [a, b]}\nq: {stream: b}", "overlapping but not equal input topics"),
    "pattern that matches": (
        "p: {stream: a}\nq: {stream: {pattern: '[a-c]'}}",
        "will match a topic that has already been",
    ),
    "names given twice": (
        "p: {stream: a, steps: [filter: {if: value, name: n}, filter: {if: value, name: n}]}",
        "Processor n is already added",
    ),
    "stores named twice": (
        "p: {stream: a, steps: [group_by_key, count: s]}\nq: {stream: b, steps: [group_by_key, count: s]}",
        "s",
    ),
    "keys that don't meet": (
        "p: {stream: a, steps: [join: {with: {table: by-number}, value: left}]}",
        "join: the keys don't meet: their serde is string here and long there",
    ),
    "partition counts": (
        "p: {stream: a, steps: [join: {with: {table: c}, value: left}]}",
        "Topics not co-partitioned: [{a=2, c=3}]",
    ),
    "fixed repartition against a topic": (
        "p: {stream: a, steps: [repartition: {partitions: 4, name: r}, join: {with: {table: b}, value: left}]}",
        "Number of partitions [4] of repartition topic [app-r-repartition] doesn't match number of partitions [2]",
    ),
    "fixed repartitions": (
        "q: {stream: b, steps: [repartition: {partitions: 3, name: s}]}\n"
        "p: {stream: a, steps: [repartition: {partitions: 4, name: r}, join: {with: q, value: left, within: 1s}]}",
        "Following topics do not have the same number of partitions: [{r-repartition=4, s-repartition=3}]",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_mistake(case: str, tmp_path: Path) -> None:
    pipelines, expected = CASES[case]
    found = problems_of(tmp_path, pipelines, HEAD.replace("pipelines:", f"{STORES}\npipelines:"))
    assert len(found) == 1, found
    assert expected in found[0]


def test_all_mistakes_at_once_and_no_echo(tmp_path: Path) -> None:
    found = problems_of(
        tmp_path,
        "p: {stream: a, steps: [count, to_stream], to: out}\n"
        "q: {from: p, steps: [suppress: 5s]}\n"
        "r: {table: b, steps: [peek: value]}",
    )
    assert len(found) == 2
    assert found[0].startswith("count:")
    assert found[1].startswith("peek:")


def test_merged_serdes_matter_only_where_one_is_needed(tmp_path: Path) -> None:
    head = HEAD.replace("b: {value: string", "b: {value: json")
    good = "p: {stream: a, steps: [merge: {with: {stream: b}}, map_values: {value: 'str(value)', value_serde: string}], to: out}"
    from tests.plan.support import plan_of

    plan_of(tmp_path, good, head)
    found = problems_of(tmp_path, "p: {stream: a, steps: [merge: {with: {stream: b}}, repartition], to: out}", head)
    assert "different value serdes (string and json)" in found[0]


def test_internal_topics_with_names_too_long(tmp_path: Path) -> None:
    name = "n" * 240
    found = problems_of(tmp_path, f"p: {{stream: a, steps: [select_key: value, repartition: {{name: {name}}}]}}")
    assert any("would be called app-nnn" in message for message in found)
