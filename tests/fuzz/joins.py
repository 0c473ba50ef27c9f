"""Draws joins of every kind, with sides that exist, inline sources or new pipelines."""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz.forms import BYTES, LIST, drawn
from tests.fuzz.kinds import (
    GLOBAL,
    SCALARS,
    STREAM,
    TABLE,
    VALUES,
    Windowed,
)
from tests.fuzz.options import called, is_versioned, lying, named, store


def side(draft, kind: str, key, accept=lambda flow: True):
    """A right side of the kind and key: what stands in `with`, and its flow; None if there can be none."""
    if draft.chance(0.55 if kind != GLOBAL else 0.8):
        found = draft.find(kind, lambda other: other.key == key and accept(other))
        if found:
            return found, draft.ends[found]
    if isinstance(key, Windowed):
        return None
    value = draft.rng.choice(VALUES)
    if kind != GLOBAL and draft.chance(0.3):
        return draft.inline(kind, key, value)
    body, flow = draft.new_source(kind, key, value)
    name = draft.unique("p")
    draft.pipelines[name], draft.ends[name] = body, flow
    return name, flow


def joined(draft, written, step: str, right, options: dict, flow, other, null: bool = False, keyed: bool = False):
    """Writes the join and gives the flow behind it."""
    value = draft.rng.choice([LIST, LIST, *VALUES])
    plain = BYTES not in (flow.key, flow.value, other.value)
    if keyed and plain and not isinstance(flow.key, Windowed) and draft.chance(0.1) and value == LIST:
        text = "[key, left, right]"
    else:
        text = draft.expressions.combine(value, ("left", flow.value), ("right", other.value))
    if null and draft.chance(0.1):
        text = f"None if left is None else {text}"
    if value == LIST and plain and not isinstance(flow.value, Windowed):
        text = called(draft, "pair" if keyed or "on" not in options else "two", text)
    body = {"with": right, "value": text, **options, **draft.serde_option("value", value)}
    written.append({step: named(draft, body)})
    return replace(flow, value=value, versioned=is_versioned(options))


def stream_stream(draft, flow, written):
    found = side(draft, STREAM, flow.key)
    if not found:
        return flow
    options: dict = {}
    if draft.chance(0.6):
        options["within"] = draft.duration(0, 10)
    else:
        bounds = {"before": draft.duration(0, 8), "after": draft.duration(0, 8)}
        if draft.chance(0.3):
            del bounds[draft.rng.choice(["before", "after"])]
        elif draft.chance(0.4):
            # One side's record comes later by at least so much.
            near, far = sorted((draft.milliseconds(0, 8), draft.milliseconds(0, 8)))
            one, other = draft.rng.sample(["before", "after"], 2)
            drawn["join: negative bound"] += 1
            bounds = {one: f"-{near}ms", other: f"{far}ms"}
        options |= bounds
    if draft.chance(0.5):
        options["grace"] = draft.duration(0, 10)
    if draft.chance(0.35):
        options |= stores_of_streams(draft)
    step = draft.rng.choice(["join", "left_join", "outer_join"])
    return joined(draft, written, step, found[0], options, flow, found[1], keyed=True)


def stores_of_streams(draft) -> dict:
    """What a join of two streams says of its stores."""
    options: dict = {}
    name = draft.unique("joined-")
    if draft.chance(0.5):
        options["store"] = name
    else:
        options["store"] = lying(draft) | draft.rng.choice([{}, {"logging": False}, {"name": name}])
    for side_store in ("this_store", "other_store"):
        if draft.chance(0.25):
            more = draft.rng.choice([lying(draft), {"segment_interval": draft.duration(10, 80)}, {}])
            options[side_store] = {"name": draft.unique("side-"), **more}
    return options


def stream_table(draft, flow, written):
    found = side(draft, TABLE, flow.key, lambda other: other.versioned) if draft.chance(0.5) else None
    found = found or side(draft, TABLE, flow.key)
    if not found:
        return flow
    options = {}
    if found[1].versioned and draft.chance(0.6):
        options["grace"] = draft.duration(0, 6)
        drawn["join: grace"] += 1
    return joined(
        draft, written, draft.rng.choice(["join", "left_join"]), found[0], options, flow, found[1], keyed=True
    )


def stream_global(draft, flow, written):
    key = draft.rng.choice(SCALARS)
    found = side(draft, GLOBAL, key)
    if not found:
        return flow
    options = {"on": draft.expressions.new_key(key, flow.key, flow.value, context=False)}
    return joined(
        draft, written, draft.rng.choice(["join", "left_join"]), found[0], options, flow, found[1], keyed=True
    )


def table_table(draft, flow, written):
    found = side(draft, TABLE, flow.key)
    if not found:
        return flow
    options = {}
    if draft.chance(0.35):
        options["store"] = store(draft, "kv", versions=True)
    step = draft.rng.choice(["join", "left_join", "outer_join"])
    after = joined(draft, written, step, found[0], options, flow, found[1], null=True)
    return replace(after, closes=flow.closes and found[1].closes)


def foreign_key(draft, flow, written):
    if isinstance(flow.key, Windowed):
        return flow
    key = draft.rng.choice(SCALARS)
    found = side(draft, TABLE, key)
    if not found:
        return flow
    options: dict = {"on": draft.expressions.new_key(key, flow.key, flow.value, null=0.2, context=False)}
    if draft.chance(0.35):
        options["store"] = store(draft, "kv", versions=True)
    # The driver of Java does not know how many partitions the topics of the join have: `partitions` is -1 there.
    for name in ("partition", "other_partition"):
        if draft.chance(0.1):
            options[name] = draft.rng.choice(["None", "0", "0 if key is None else None"])
    after = joined(draft, written, draft.rng.choice(["join", "left_join"]), found[0], options, flow, found[1])
    return replace(after, closes=False)
