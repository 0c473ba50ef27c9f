"""Draws the steps that may stand below a branch, too."""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz.forms import LIST, STRING
from tests.fuzz.kinds import (
    SCALARS,
    TABLE,
    VALUES,
)
from tests.fuzz.options import called, is_versioned, named, store, write


def filter_(draft, flow, written):
    options = named(draft, {"if": called(draft, "odd", draft.expressions.condition(flow.key, flow.value))})
    versioned = flow.versioned
    if flow.kind == TABLE and draft.chance(0.35):
        options["store"] = store(draft, "kv", versions=True)
        versioned = is_versioned(options)
        draft.keep(options, "key_value", flow.key, flow.value)
    write(draft, written, draft.rng.choice(["filter", "filter", "filter_not"]), "if", options)
    return replace(flow, versioned=versioned)


def map_values(draft, flow, written):
    value = draft.rng.choice([*VALUES, LIST])
    null = 0.08 if flow.kind == TABLE else 0.04
    text = draft.expressions.of_record(value, flow.key, flow.value, null)
    options = named(draft, {"value": called(draft, "text", text) if value == STRING else text})
    options |= draft.serde_option("value", value)
    versioned = flow.versioned
    if flow.kind == TABLE and draft.chance(0.35):
        options["store"] = store(draft, "kv", versions=True)
        versioned = is_versioned(options)
        draft.keep(options, "key_value", flow.key, value)
    write(draft, written, "map_values", "value", options)
    return replace(flow, value=value, versioned=versioned)


def map_(draft, flow, written):
    key, value = draft.rng.choice(SCALARS), draft.rng.choice(VALUES)
    options: dict = named(draft, {})
    new = {}
    if draft.chance(0.7):
        options["key"] = draft.expressions.new_key(key, flow.key, flow.value)
        options |= draft.serde_option("key", key)
        new["key"] = key
    if not new or draft.chance(0.6):
        options["value"] = draft.expressions.of_record(value, flow.key, flow.value, 0.04)
        options |= draft.serde_option("value", value)
        new["value"] = value
    written.append({"map": options})
    return replace(flow, **new)


def select_key(draft, flow, written):
    key = draft.rng.choice(SCALARS)
    text = draft.expressions.new_key(key, flow.key, flow.value)
    options = named(draft, {"key": called(draft, "letter", text) if key == STRING else text})
    write(draft, written, "select_key", "key", options | draft.serde_option("key", key))
    return replace(flow, key=key)


def peek(draft, flow, written):
    text = draft.expressions.of_record(draft.rng.choice(VALUES), flow.key, flow.value)
    write(draft, written, "peek", "do", named(draft, {"do": called(draft, "text", text)}))
    return flow


def set_headers(draft, flow, written):
    headers: dict = {}
    for name in draft.rng.sample(["h", "new", "third"], draft.rng.choice([1, 1, 2])):
        text = draft.expressions.of_record(STRING, flow.key, flow.value, 0.1)
        headers[name] = None if draft.chance(0.2) else text
    written.append({"set_headers": named(draft, {"headers": headers})})
    return flow


SIMPLE_STEPS = [filter_, map_values, map_, select_key, peek, set_headers]
