"""Mistakes of meaning in stores: what a store of a kind, or of a step, can't have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.operators.mistakes import assert_is_found

CASES = {
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
        "store s: `ttl` is only for stores of rows by key; windows and sessions have `retention`",
    ),
    "ttl of a global table": (
        "p: {global_table: a, store: {name: s, ttl: 1h}}",
        "store s: `ttl` is not for global tables: each instance has all rows, but no instance has their stream time",
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
    "nameless store of one side": (
        "p: {stream: a, steps: [join: {with: {stream: b}, value: left, within: 1s, other_store: {type: in_memory}}]}",
        "join: `other_store` needs a `name`",
    ),
    "segments of one side in memory": (
        "p: {stream: a, steps: [join: {with: {stream: b}, value: left, within: 1s, other_store: {name: s, type: in_memory, segment_interval: 1s}}]}",
        "join: `segment_interval` is for persistent stores",
    ),
    "changelog of a suppress without one": (
        "p: {table: a, steps: [suppress: {until: 5s, logging: false, config: {segment.ms: 5}}]}",
        "suppress: `config` is for the changelog, which `logging: false` turns off",
    ),
    "step below a global store": (
        "g: {global_store: a, store: kv}\np: {from: g, steps: [filter: value]}",
        "filter: expected a stream or a table, found a store that is filled from a topic",
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
    "stores named twice": (
        "p: {stream: a, steps: [group_by_key, count: s]}\nq: {stream: b, steps: [group_by_key, count: s]}",
        "s",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_mistake_in_a_store(case: str, tmp_path: Path) -> None:
    assert_is_found(CASES[case], tmp_path)
