"""Draws what steps of all kinds share: names, stores, callables, and the short or long form of a step."""

from __future__ import annotations

from tests.fuzz.forms import drawn
from tests.fuzz.kinds import (
    Windowed,
    serde,
)


def store(draft, kind: str, retention: int = 0, versions: bool = False, nameless: bool = True):
    """The `store` option: a name, or the long form; `kind` is kv, window or global."""
    name = draft.unique("store-")
    if draft.chance(0.45):
        return name
    options: dict = {} if nameless and draft.chance(0.15) else {"name": name}
    if versions and "name" in options and draft.chance(0.35):
        options["versioned"] = draft.duration(1, 40)
        if draft.chance(0.2):
            options["segment_interval"] = draft.duration(1, 30)
        return options
    if draft.chance(0.4):
        options |= lying(draft)
    if draft.chance(0.35):
        options["caching"] = draft.chance(0.3)
    if draft.chance(0.15):
        options["logging"] = draft.chance(0.3)
    elif kind != "global" and draft.chance(0.1):
        options["config"] = {"segment.bytes": "1000000"}
    if kind == "window" and draft.chance(0.35):
        options["retention"] = f"{retention + draft.milliseconds(0, 20)}ms"
    for option in options:
        drawn[f"store: {kind}, {option}"] += 1
    return options or name


def lying(draft) -> dict:
    """Where a store lies, in either form."""
    persistent = draft.chance(0.2)
    return draft.rng.choice([{"persistent": persistent}, {"type": "persistent" if persistent else "in_memory"}])


def named(draft, options: dict, chance: float = 0.2) -> dict:
    if draft.chance(chance):
        options["name"] = draft.unique("node-")
    return options


def is_versioned(options: dict) -> bool:
    """Whether the step's store is a versioned one."""
    return isinstance(options.get("store"), dict) and "versioned" in options["store"]


def called(draft, name: str, text):
    """The expression, or now and then a Python callable of fuzz_functions.py in its place."""
    if not draft.chance(0.06):
        return text
    drawn[f"called: {name}"] += 1
    return {"call": f"fuzz_functions:{name}"}


def write(draft, written: list, step: str, main: str | None, options: dict) -> None:
    """Adds a step in its shortest form, or now and then in the long one."""
    options = {name: value for name, value in options.items() if value is not None}
    if not options:
        written.append(step)
    elif list(options) == [main] and not isinstance(options[main], dict) and draft.chance(0.7):
        written.append({step: options[main]})
    else:
        written.append({step: options})


def in_hand(draft, flow) -> dict:
    """The serdes that the records have, written down once more."""
    options = {}
    if draft.chance(0.2) and not isinstance(flow.key, Windowed):
        options["key_serde"] = serde(flow.key)
    if draft.chance(0.2):
        options["value_serde"] = serde(flow.value)
    return options
