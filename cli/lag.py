"""`streamkit lag`: how far an application is behind its inputs, also when it does not run."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from .guard import FAILED, say
from .loading import load_plan
from .options import EnvFile, File, Settings
from .tables import table

if TYPE_CHECKING:
    from streamkit.plan.model import Plan
    from streamkit.runtime.group_lag import GroupLag

Json = Annotated[bool, typer.Option("--json", help="One JSON object.")]
Most = Annotated[int | None, typer.Option("--max", metavar="N", min=0, help="Exit code 1 where the total is more.")]


def command(
    file: File, as_json: Json = False, most: Most = None, settings: Settings = None, env_file: EnvFile = None
) -> int:
    """Show committed offsets, ends and lag of every input partition, internal topics included."""
    found = show_lag(load_plan(file, settings, env_file), as_json)
    if most is not None and found.total > most:
        say(f"the lag is {found.total}, more than {most}")
        return FAILED
    return 0


def show_lag(plan: Plan, as_json: bool) -> GroupLag:
    """Print and return what the log knows of a topology's group."""
    from streamkit.runtime.group_lag import group_lag

    from .logs import opened

    with opened(plan) as transport:
        found = group_lag(plan, transport)
    if as_json:
        print(json.dumps({"application": plan.application, "lag": found.total, **asdict(found)}, indent=2))
        return found
    members = f"{len(found.members)} active member{'' if len(found.members) == 1 else 's'}"
    print(f"{plan.application}: {members}, lag {found.total}")
    if found.partitions:
        rows = [(each.topic, each.partition, each.committed, each.end, each.lag) for each in found.partitions]
        print(table(("TOPIC", "PARTITION", "COMMITTED", "END", "LAG"), rows, numbers=[1, 2, 3, 4]))
    if not found.members and not any(each.committed is not None for each in found.partitions):
        print(
            f"the group {plan.application} has no members and no committed offsets: "
            "the application has not started, or ended before its first commit"
        )
    if found.missing:
        print(f"missing topics: {', '.join(found.missing)}")
    return found
