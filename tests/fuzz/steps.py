"""Draws single steps: each adds itself to the pipeline and gives the flow behind it."""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz import grouping, joins, processors
from tests.fuzz.forms import LIST, STRING
from tests.fuzz.kinds import (
    GROUPED,
    GROUPED_TABLE,
    SCALARS,
    STREAM,
    TABLE,
    VALUES,
    Windowed,
)
from tests.fuzz.options import in_hand, is_versioned, named, store, write
from tests.fuzz.plain_steps import SIMPLE_STEPS, filter_, map_values, select_key


def step(draft, flow, written: list):
    """One step that suits the flow, or an aggregation in several."""
    draft.expressions.context = flow.kind in (STREAM, GROUPED)
    if flow.kind in (GROUPED, GROUPED_TABLE):
        return grouping.aggregation(draft, flow, written)
    if flow.kind == TABLE:
        return draft.rng.choice(TABLE_STEPS)(draft, flow, written)
    return draft.rng.choice(STREAM_STEPS)(draft, flow, written)


def flat_map_values(draft, flow, written):
    value = draft.rng.choice(VALUES)
    expressions = draft.expressions
    text = expressions.items(lambda: expressions.of_record(value, flow.key, flow.value), flow.key, flow.value)
    if draft.chance(0.2) and text.startswith("["):
        text = f"[] if {expressions.condition(flow.key, flow.value)} else {text}"
    options = named(draft, {"values": text}) | draft.serde_option("value", value)
    write(draft, written, "flat_map_values", "values", options)
    return replace(flow, value=value)


def flat_map(draft, flow, written):
    key, value = draft.rng.choice(SCALARS), draft.rng.choice(VALUES)

    def pair() -> str:
        first = draft.expressions.new_key(key, flow.key, flow.value)
        return f"({first}, {draft.expressions.of_record(value, flow.key, flow.value)})"

    options = named(draft, {"records": draft.expressions.items(pair, flow.key, flow.value)})
    write(
        draft,
        written,
        "flat_map",
        "records",
        options | draft.serde_option("key", key) | draft.serde_option("value", value),
    )
    return replace(flow, key=key, value=value)


def print_(draft, flow, written):
    write(draft, written, "print", "label", named(draft, {"label": "look"}))
    return flow


def merge(draft, flow, written):
    others = []
    for _ in range(draft.rng.choice([1, 1, 2])):
        found = draft.find(STREAM, lambda other: (other.key, other.value) == (flow.key, flow.value))
        if found:
            others.append(found)
        elif not isinstance(flow.key, Windowed) and flow.value != LIST:
            others.append(draft.inline(STREAM, flow.key, flow.value)[0])
    if not others:
        return flow
    if len(others) > 1:
        written.append({"merge": others})
    elif isinstance(others[0], dict):
        written.append({"merge": named(draft, {"with": others[0]})})
    else:
        write(draft, written, "merge", "with", named(draft, {"with": others[0]}))
    return flow


def repartition(draft, flow, written):
    options: dict = named(draft, {}, 0.4)
    if draft.chance(0.4):
        options["partitions"] = draft.rng.choice([1, 2, 4])
    options |= in_hand(draft, flow)
    if draft.chance(0.15):
        options["partition"] = draft.rng.choice(["0", "None", "partitions - 1", "[0]", "0 if key is None else None"])
    write(draft, written, "repartition", "partitions", options)
    return flow


def to_table(draft, flow, written):
    options = named(draft, {})
    if draft.chance(0.5):
        options["store"] = store(draft, "kv", versions=True)
        draft.keep(options, "key_value", flow.key, flow.value)
    write(draft, written, "to_table", "store", options)
    return replace(flow, kind=TABLE, versioned=is_versioned(options))


def to_stream(draft, flow, written):
    draft.expressions.context = False
    options = named(draft, {})
    key = flow.key
    if draft.chance(0.2):
        key = draft.rng.choice(SCALARS)
        options["key"] = draft.expressions.new_key(key, flow.key, flow.value)
        options |= draft.serde_option("key", key)
    write(draft, written, "to_stream", "key", options)
    return replace(flow, kind=STREAM, key=key, closes=False, versioned=False)


def suppress(draft, flow, written):
    if flow.closes and draft.chance(0.7):
        options: dict = {"until": "window_closes"}
        if draft.chance(0.2):
            options |= {"max_records": draft.rng.choice([1000, 1000, 3])}
            if draft.chance(0.3):
                options["when_full"] = "shut_down"
    else:
        options = {"until": draft.duration(1, 8)}
        if draft.chance(0.4):
            options["max_records"] = draft.rng.choice([1, 2, 3])
        if draft.chance(0.2):
            # Java's default serde carries a tag here, so that sizes in between differ where a step names no store.
            options["max_bytes"] = draft.rng.choice([1, 20, 1_000_000])
        if len(options) > 1 and draft.chance(0.3):
            options["when_full"] = "emit_early"
    if draft.chance(0.2):
        options["logging"] = False
    elif draft.chance(0.1):
        options["config"] = {"segment.bytes": "1000000"}
    write(draft, written, "suppress", "until", named(draft, options))
    return replace(flow, versioned=False)


def transform(draft, flow, written):
    """`process_values` of a table."""
    options = named(draft, {"call": "fuzz_functions:marked", **draft.serde_option("value", STRING)})
    if draft.chance(0.5):
        options["store"] = store(draft, "kv")
    written.append({"process_values": options})
    return replace(flow, value=STRING, versioned=False)


def aggregation(draft, flow, written):
    return grouping.aggregation(draft, flow, written)


STREAM_STEPS = (
    SIMPLE_STEPS
    + [
        filter_,
        map_values,
        select_key,
        flat_map_values,
        flat_map,
        print_,
        merge,
        merge,
        repartition,
        to_table,
        processors.process,
        processors.process,
        processors.process_values,
    ]
    + [grouping.group] * 7
    + [joins.stream_stream] * 4
    + [joins.stream_table] * 4
    + [joins.stream_global] * 2
)
TABLE_STEPS = (
    [filter_, filter_, map_values, map_values, transform, to_stream, to_stream, suppress, suppress]
    + [grouping.group_table] * 4
    + [joins.table_table] * 4
    + [joins.foreign_key] * 3
)
