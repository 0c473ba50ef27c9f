"""Mistakes of meaning: every wrong kind, windows, aggregations, sources, and names given twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.operators.mistakes import assert_is_found
from tests.plan.support import HEAD, plan_of, problems_of

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
    "top without a group": (
        "p: {stream: a, steps: [top: {n: 1, by: value}]}",
        "a `group_by` or `group_by_key` is missing",
    ),
    "top of a table's group": (
        "p: {table: a, steps: [group_by: value, top: {n: 1, by: value}]}",
        "top: expected a grouped stream or a windowed stream, found a grouped table",
    ),
    "top of too many": ("p: {stream: a, steps: [group_by_key, top: {n: 10001, by: value}]}", "`n` is at most 10,000"),
    "rank of a timestamp": (
        "p: {stream: a, steps: [group_by_key, top: {n: 1, by: timestamp}]}",
        "unknown name 'timestamp' (there are: key, value)",
    ),
    "deduplicate on a table": (
        "p: {table: a, steps: [deduplicate: {by: key, within: 1m}]}",
        "deduplicate: expected a stream, found a table",
    ),
    "deduplicate for no time": (
        "p: {stream: a, steps: [deduplicate: {by: key, within: 0s}]}",
        "'within' of 'deduplicate' must be at least 1 ms",
    ),
    "deduplicate with a retention": (
        "p: {stream: a, steps: [deduplicate: {by: key, within: 1m, store: {name: s, ttl: 1h}}]}",
        "deduplicate: its store has no option `ttl`",
    ),
    "sample of too much": ("p: {stream: a, steps: [sample: 1.5]}", "must be a number from 0 to 1"),
    "log with an unknown level": (
        "p: {stream: a, steps: [log: {message: value, level: warn}]}",
        "did you mean 'warning'?",
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
        "on a grouped table `subtract` is required",
    ),
    "reduce without subtract": (
        "p: {table: a, steps: [group_by: value, reduce: aggregate + value]}",
        "`subtract` is required",
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
    "aggregate without add": ("p: {stream: a, steps: [group_by_key, aggregate: {initial: '0'}]}", "`add` is required"),
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
        "after `cogroup`, give `add` with each input",
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
        "results are never emitted early",
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
}


@pytest.mark.parametrize("case", CASES)
def test_mistake(case: str, tmp_path: Path) -> None:
    assert_is_found(CASES[case], tmp_path)


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
    plan_of(tmp_path, good, head)
    found = problems_of(tmp_path, "p: {stream: a, steps: [merge: {with: {stream: b}}, repartition], to: out}", head)
    assert "different value serdes (string and json)" in found[0]


def test_internal_topics_with_names_too_long(tmp_path: Path) -> None:
    name = "n" * 240
    found = problems_of(tmp_path, f"p: {{stream: a, steps: [select_key: value, repartition: {{name: {name}}}]}}")
    assert any("would be called app-nnn" in message for message in found), found
