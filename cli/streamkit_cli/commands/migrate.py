"""`streamkit migrate`: the state of an application goes on under a new version of its topology."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit.errors import UsageError
from streamkit_cli.guard import FAILED, print_message
from streamkit_cli.loading import STDIN, load_plan, require_file
from streamkit_cli.options import EnvFile, Format, Settings, Shown

if TYPE_CHECKING:
    from streamkit.plan.model import Plan
    from streamkit.runtime.operations.migration import Migration
    from streamkit.serdes.plain import Json


Old = Annotated[
    str, typer.Argument(metavar="OLD", help="The topology file of the version that ran.", show_default=False)
]
New = Annotated[str, typer.Argument(metavar="NEW", help="The topology file of the next version.", show_default=False)]
Execute = Annotated[bool, typer.Option("--execute", help="Execute the steps; without it, they are only listed.")]
Stores = Annotated[
    list[str] | None,
    typer.Option(
        "--store",
        metavar="OLD=NEW",
        help="The new name of a store, where the files leave it open; OLD= for one that starts empty. May be repeated.",
    ),
]

EXAMPLES = (
    "streamkit migrate orders-v1.yaml orders-v2.yaml",
    "streamkit migrate orders-v1.yaml orders-v2.yaml --store totals=totals-by-day --execute",
)
"""The examples of the help."""


def command(
    old: Old,
    new: New,
    execute: Execute = False,
    stores: Stores = None,
    form: Shown = Format.text,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> int:
    """Move the state of a stopped application to the names and the form that its next version expects.

    Copies changelogs to their new names, serdes and partitions, drains repartition topics, and keeps offsets and task
    directories. It may be repeated after a crash. Exit code 1 if a step is refused or the group has members.
    """
    from streamkit.runtime.operations.migration import Migrator, shown_members
    from streamkit_cli.logs import opened

    if STDIN in (old, new):
        raise UsageError("migrate reads both versions from files, and not from stdin")
    renames = renames_of(stores)
    before, after = (read_version(file, "migrate", settings, env_file) for file in (old, new))
    if not execute and after.registry is not None:
        after.registry.start_dry_run()  # rows are converted, which would register the schema of a new subject
    with opened(after, creates=execute) as transport:
        migrator = Migrator(before, after, transport, renames)
        if execute:
            migrator.execute()
        found = migrator.prepare()
    print(
        json.dumps(_data(found, execute), ensure_ascii=False, indent=2)
        if form is Format.json
        else _text(found, execute)
    )
    if found.members:
        print_message(f"{shown_members(found.members)}: stop all instances first")
    is_well = found.is_done if execute else found.is_possible
    return 0 if is_well and not found.members else FAILED


def read_version(file: str, command_name: str, settings: list[str] | None, env_file: str | None) -> Plan:
    """Return the plan of a version. Raises UsageError for a description, and what `load_plan` raises."""
    from pathlib import Path

    from streamkit.changes.of_describe import is_description

    require_file(file)
    if is_description(Path(file).read_bytes().decode(errors="replace")):
        raise UsageError(
            f"{file}: {command_name} needs a topology file, since a description has neither serdes nor a log"
        )
    return load_plan(file, settings, env_file)


def renames_of(stores: list[str] | None) -> dict[str, str]:
    """Return the pairs of `--store`. Raises UsageError."""
    found: dict[str, str] = {}
    for pair in stores or ():
        old, equals, new = pair.partition("=")
        if not equals or not old or old in found:
            raise UsageError(f"--store {pair}: expected OLD=NEW, once for each store")
        found[old] = new
    return found


def _data(found: Migration, executed: bool) -> dict[str, Json]:
    return {
        "application": found.application,
        "executed": executed,
        "members": sorted(member for members in found.members.values() for member in members),
        "steps": [
            {
                "kind": step.kind,
                "subject": step.subject,
                "text": step.text,
                "count": step.count,
                "state": str(step.state),
                "reason": step.reason,
            }
            for step in found.steps
        ],
        "left": [
            {
                "verdict": str(each.verdict),
                "subject": each.subject,
                "name": each.name,
                "message": each.message,
                "action": each.action,
            }
            for each in found.left
        ],
    }


def _text(found: Migration, executed: bool) -> str:
    lines = [f"{found.application}: {_summary(found, executed)}"]
    for number, step in enumerate(found.steps, 1):
        count = "" if step.count is None else f" ({step.count})"
        lines.append(f"  {number}. {step.state}: {step.text}{count}")
        if step.reason:
            lines.append(f"     {step.subject}: {step.reason}")
    if found.left:
        lines.append("Left to you:")
        for each in found.left:
            lines.append(f"  {each.verdict}: {each.message}")
            if each.action:
                lines.append(f"    {each.action}")
    return "\n".join(lines)


def _summary(found: Migration, executed: bool) -> str:
    if not found.steps:
        return "nothing is left to do" if executed else "nothing is to do"
    if not executed:
        return "nothing is changed without --execute"
    if not found.is_done:
        return "the log was written to meanwhile: stop all programs that do, and repeat"
    return "all steps are done"
