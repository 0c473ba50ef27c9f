"""Draws how pipelines end: in branches, or in topics."""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz.forms import LIST, drawn
from tests.fuzz.kinds import (
    STREAM,
    Windowed,
)
from tests.fuzz.options import called, named
from tests.fuzz.plain_steps import SIMPLE_STEPS


def branch(draft, name: str, flow, written: list) -> None:
    """A branch step, the pipeline's last; its branches become open to references."""
    draft.expressions.context = True
    listed = draft.chance(0.25)
    when: list = []
    open_ends = {}
    for at, branch_name in enumerate(draft.rng.sample(["one", "two", "three"], draft.rng.choice([1, 2, 3])), 1):
        body, end = below_branch(draft, flow)
        if listed and draft.chance(0.7):
            open_ends[f"{name}.{at}"] = end
            when.append(body)
        else:
            open_ends[f"{name}.{branch_name}"] = end
            when.append(({"name": branch_name} | body) if listed and isinstance(body, dict) else (branch_name, body))
    if listed:
        # A bare condition has no place for a name.
        when = [{"name": each[0], "if": each[1]} if isinstance(each, tuple) else each for each in when]
    options: dict = {"when": when if listed else dict(when)}
    if draft.chance(0.5):
        options["default"] = True if listed and draft.chance(0.5) else "rest"
        open_ends[f"{name}.0" if options["default"] is True else f"{name}.rest"] = flow
    if draft.chance(0.3):
        options["name"] = draft.unique("split-") + "-"
    drawn["branch: list" if listed else "branch: names"] += 1
    written.append({"branch": options})
    for reference, end in open_ends.items():
        draft.ends[reference] = replace(end, kind=STREAM, closes=False, versioned=False)


def below_branch(draft, flow):
    """A branch's condition, or a mapping with it and what hangs below; and the flow at the branch's end."""
    condition = called(draft, "odd", draft.expressions.condition(flow.key, flow.value))
    if draft.chance(0.5) and isinstance(condition, str):
        return condition, flow
    inner: list = []
    end = flow
    for _ in range(draft.rng.choice([0, 1, 2])):
        end = draft.rng.choice(SIMPLE_STEPS)(draft, end, inner)
    body: dict = {"if": condition}
    if inner:
        body["steps"] = inner
    if draft.chance(0.6):
        body["to"] = to(draft, end)
    elif draft.chance(0.3):
        body["for_each"] = {"call": "fuzz_functions:ignore"}
    if (inner or len(body) > 1) and draft.chance(0.2):
        body["chained"] = True
        drawn["branch: chained"] += 1
    return body, end


def to(draft, flow):
    """Where a stream is written to: a topic, sometimes by a route, by a partition or read again later."""
    draft.expressions.context = True
    topic = draft.topic("out", flow.key, flow.value, "out")
    if draft.chance(0.07):
        other = draft.topic("out", flow.key, flow.value, "out")
        condition = draft.expressions.plain_condition(flow.key, flow.value)
        forms = [
            f'"{topic}" if {condition} else "{other}"',
            f'{condition} and "{topic}" or "{other}"',
            f'["{topic}", "{other}"][bool({condition})]',
            f'min([each for each in ["{topic}", "{other}"] if {condition}] or ["{other}"], key=lambda each: each)',
        ]
        route = draft.rng.choice(forms if draft.expressions.shaped else forms[:1])
        return named(draft, {"route": route})
    if draft.chance(0.08) and not isinstance(flow.key, Windowed) and flow.value != LIST:
        draft.roles[topic] = "through"
        draft.ends[reader(draft, topic)] = replace(flow, kind=STREAM, closes=False)
    if draft.chance(0.2):
        options = named(draft, {"topic": topic}, 0.7)
        return options | ({"partition": partition(draft, flow)} if draft.chance(0.3) else {})
    return topic


def partition(draft, flow) -> str:
    """A partition of the one that each topic has."""
    number = draft.expressions.number("value", flow.value)
    condition = draft.expressions.plain_condition(flow.key, flow.value)
    return draft.rng.choice(
        [
            "0",
            f"abs({number}) % partitions",
            f"0 if {condition} else partitions - 1",
            f"None if {condition} else partitions - 1",
            f"[] if {condition} else [0, partitions - 1]",
            f"{condition} and 0 or 0",
            "0 or partitions - 1",
            "min([partitions - 1, 5], key=lambda each: each)",
        ]
    )


def reader(draft, topic: str) -> str:
    """A pipeline that reads a written topic again."""
    name = draft.unique("p")
    draft.pipelines[name] = {"stream": topic}
    return name
