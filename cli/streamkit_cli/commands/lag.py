"""`streamkit lag`: the lag of an application, also while it does not run."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit_cli.guard import FAILED, print_message
from streamkit_cli.loading import load_plan
from streamkit_cli.options import EnvFile, File, Format, Settings, Shown
from streamkit_cli.tables import is_coloured, red, table

if TYPE_CHECKING:
    from streamkit.plan.model import Plan
    from streamkit.runtime.operations.group_lag import GroupLag

Most = Annotated[int | None, typer.Option("--max", metavar="N", min=0, help="Exit with code 1 if the total is higher.")]

EXAMPLES = (
    "streamkit lag orders.yaml",
    "streamkit lag orders.yaml --max 1000 --format json",
)
"""The examples of the help."""


def command(
    file: File, form: Shown = Format.text, most: Most = None, settings: Settings = None, env_file: EnvFile = None
) -> int:
    """Show owner, committed offset, end and lag of every input partition, including internal topics."""
    found = show_lag(load_plan(file, settings, env_file), form)
    if most is not None and found.total > most:
        print_message(f"the lag is {found.total}, more than {most}")
        return FAILED
    return 0


def show_lag(plan: Plan, form: Format) -> GroupLag:
    """Print and return the lag of a topology's group, from the log."""
    from streamkit.runtime.operations.group_lag import group_lag, member_label
    from streamkit_cli.logs import opened

    with opened(plan, creates=False) as transport:
        found = group_lag(plan, transport)
    if form is Format.json:
        print(json.dumps({"application": plan.application, "lag": found.total, **asdict(found)}, indent=2))
        return found
    members = f"{len(found.members)} active member{'' if len(found.members) == 1 else 's'}"
    colour = is_coloured()
    print(red(f"{plan.application}: {_worst(found)}{members}, lag {found.total:,}", colour and bool(found.unowned)))
    if found.partitions:
        rows = [
            (each.topic, each.partition, member_label(each.member or "no owner"), each.committed, each.end, each.lag)
            for each in found.partitions
        ]
        lines = table(("INPUT", "PARTITION", "OWNER", "COMMITTED", "END", "LAG"), rows, numbers=[1, 3, 4, 5]).split(
            "\n"
        )
        print(lines[0])
        for line, each in zip(lines[1:], found.partitions, strict=True):
            print(red(line, colour and each.member is None))
    if not found.members and not any(each.committed is not None for each in found.partitions):
        print(
            f"the group {plan.application} has no members and no committed offsets: "
            "the application has not started, or ended before its first commit"
        )
    if found.missing:
        print(f"missing topics: {', '.join(found.missing)}")
    return found


def _worst(found: GroupLag) -> str:
    """Return the beginning of the first line, where members own less than all partitions."""
    if not found.members or not found.unowned:
        return ""
    during = " during a rebalance" if found.rebalancing else ""
    return f"{len(found.unowned)} of {len(found.partitions)} input partitions have no owner{during}, "
