"""Draws groupings, windows, cogroups and aggregations."""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz.forms import LIST, LONG
from tests.fuzz.kinds import (
    GROUPED,
    GROUPED_TABLE,
    SCALARS,
    STREAM,
    TABLE,
    VALUES,
    Windowed,
    serde,
)
from tests.fuzz.options import called, in_hand, is_versioned, named, store, write


def group(draft, flow, written):
    """group_by or group_by_key, and mostly the aggregation at once; without it the group can be referred to."""
    options = named(draft, {})
    if draft.chance(0.5):
        key = draft.rng.choice(SCALARS)
        options["key"] = draft.expressions.new_key(key, flow.key, flow.value)
        options |= draft.serde_option("key", key)
        if draft.chance(0.15):
            options["value_serde"] = serde(flow.value)
        write(draft, written, "group_by", "key", options)
        flow = replace(flow, key=key)
    else:
        options |= in_hand(draft, flow)
        write(draft, written, "group_by_key", None, options)
    flow = replace(flow, kind=GROUPED)
    return flow if draft.chance(0.12) else aggregation(draft, flow, written)


def group_table(draft, flow, written):
    key = draft.rng.choice(SCALARS)
    options = named(draft, {"key": draft.expressions.new_key(key, flow.key, flow.value)})
    options |= draft.serde_option("key", key)
    value = flow.value
    if draft.chance(0.4):
        value = draft.rng.choice(VALUES)
        options["value"] = draft.expressions.of_record(value, flow.key, flow.value)
        options |= draft.serde_option("value", value)
    write(draft, written, "group_by", "key", options)
    return aggregation(
        draft, replace(flow, kind=GROUPED_TABLE, key=key, value=value, closes=False, versioned=False), written
    )


def window(draft, flow, written, cogrouped: bool):
    """A window step; gives the new key type and the retention that a store must have."""
    kind = draft.rng.choice(["tumbling", "tumbling", "hopping", "sliding", "session"])
    size = draft.milliseconds(2, 12)
    grace = draft.rng.choice([None, 0, draft.milliseconds(1, 12)])
    options: dict = {kind: f"{size}ms"}
    if kind == "hopping":
        options["advance"] = f"{max(1, size // draft.rng.choice([1, 2, 3]))}ms"
    if grace is not None:
        options["grace"] = f"{grace}ms"
    if not cogrouped and draft.chance(0.3):
        options["emit"] = draft.rng.choice(["on_close", "on_close", "on_update"])
    written.append({"window": options})
    retention = size * (2 if kind == "sliding" else 1) + (grace or 0)
    return Windowed(flow.key, None if kind == "session" else size), retention


def aggregation(draft, flow, written):
    """What follows a grouping: perhaps a cogroup, perhaps a window, then the aggregation itself."""
    table = flow.kind == GROUPED_TABLE
    target = draft.rng.choice([*VALUES, LIST])
    cogrouped = not table and draft.chance(0.15)
    if cogrouped:
        cogroup(draft, flow, written, target)
    key, retention, sessions = flow.key, 0, False
    windowed = not table and not isinstance(flow.key, Windowed) and draft.chance(0.5)
    if windowed:
        key, retention = window(draft, flow, written, cogrouped)
        sessions = key.size is None
    options: dict = named(draft, {})
    if draft.chance(0.45):
        options["store"] = store(draft, "window" if windowed else "kv", retention, versions=not windowed)
    kind = "aggregate" if cogrouped else draft.rng.choice(["count", "reduce", "aggregate"])
    if kind == "count":
        write(draft, written, "count", "store", options)
        value = LONG
    elif kind == "reduce":
        value = flow.value
        options = {"add": called(draft, "last", draft.expressions.fold(value, value)), **options}
        if draft.chance(0.15):
            options["value_serde"] = serde(value)
        if table:
            options["subtract"] = draft.expressions.unfold(value, value)
        write(draft, written, "reduce", "add", options)
    else:
        value = target
        initial = {"initial": draft.expressions.constant(value)}
        if not cogrouped:
            add = draft.expressions.fold(value, flow.value)
            initial["add"] = called(draft, "one_more", add) if value == LONG else add
        if table:
            initial["subtract"] = draft.expressions.unfold(value, flow.value)
        if sessions:
            initial["merge"] = called(draft, "right_one", draft.expressions.unite(value))
        written.append({"aggregate": initial | options | draft.serde_option("value", value)})
    inner = key.inner if windowed else key
    draft.keep(options, "session" if sessions else "window" if windowed else "key_value", inner, value)
    return replace(flow, kind=TABLE, key=key, value=value, closes=windowed, versioned=is_versioned(options))


def cogroup(draft, flow, written, target) -> None:
    inputs = []
    for _ in range(draft.rng.choice([0, 1, 1, 2])):
        found = draft.find(GROUPED, lambda other: other.key == flow.key) if draft.chance(0.4) else None
        if not found:
            found = grouped_source(draft, flow)
        if not found:
            continue
        inputs.append({"from": found, "add": draft.expressions.fold(target, draft.ends[found].value)})
    # One group twice in a cogroup adds twice in Java too; it is left out as no one writes it.
    inputs = list({entry["from"]: entry for entry in inputs}.values())
    written.append({"cogroup": {"add": draft.expressions.fold(target, flow.value), "inputs": inputs}})


def grouped_source(draft, flow) -> str | None:
    """A new pipeline that ends with a group of the flow's key."""
    if isinstance(flow.key, Windowed):
        return None
    name = draft.unique("p")
    body, other = draft.new_source(STREAM, flow.key, draft.rng.choice(VALUES))
    inner: list = []
    if draft.chance(0.5):
        options = {"key": draft.expressions.new_key(flow.key, other.key, other.value)} | draft.serde_option(
            "key", flow.key
        )
        write(draft, inner, "group_by", "key", named(draft, options))
    else:
        write(draft, inner, "group_by_key", None, named(draft, {}))
    draft.pipelines[name] = {**body, "steps": inner}
    draft.ends[name] = replace(other, kind=GROUPED)
    return name
