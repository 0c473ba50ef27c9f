"""`streamkit replay`: dead letters back to the topics that their records came from."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from .guard import say
from .loading import load_plan
from .options import EnvFile, File, Settings

if TYPE_CHECKING:
    from streamkit.plan.model import Plan

Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="EXPR",
        help="Only letters for which this is true; names: error message step topic partition offset timestamp key value headers.",
    ),
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Only records of this time or later: ISO 8601 or ms.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only records of before this time.")]
Max = Annotated[int | None, typer.Option("--max", metavar="N", min=0, help="At most N letters.")]
From = Annotated[
    list[str] | None,
    typer.Option("--from", metavar="TOPIC", help="A topic of dead letters; those of the file by default."),
]
Again = Annotated[bool, typer.Option("--again", help="Also letters that were put back before.")]
Json = Annotated[bool, typer.Option("--json", help="JSON Lines instead of a table.")]
Execute = Annotated[bool, typer.Option("--execute", help="Do it; without, what would be put back is only shown.")]


def command(
    file: File,
    where: Where = None,
    since: Since = None,
    until: Until = None,
    most: Max = None,
    topics: From = None,
    again: Again = False,
    as_json: Json = False,
    execute: Execute = False,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> None:
    """Put dead letters back to the topics that their records came from.

    The original bytes, time, headers and partition. What was put back is remembered and not offered again.
    """
    from streamkit.runtime.records import RecordJson
    from streamkit.runtime.replay import Replay

    from .letter_selection import Shown, Wanted
    from .logs import opened

    plan = load_plan(file, settings, env_file)
    form = RecordJson(plan)
    wanted = Wanted(form, where, since, until)
    with opened(plan) as transport:
        replay = Replay(plan, transport, _physical(plan, topics), again=again)
        found = replay.execute(wanted, most) if execute else islice(replay.letters(wanted), most)
        shown = Shown(replay, form, executed=execute)
        shown.json(found) if as_json else shown.table(found)
    if wanted.failed:
        say(f"--where could not be answered for {wanted.failed} of the letters, which are left out: {wanted.failure}")


def _physical(plan: Plan, topics: list[str] | None) -> list[str] | None:
    """Return names on the log: those of entries of the file, others as they are."""
    names = {topic.entry: topic.name for topic in plan.external_topics.values()}
    return [names.get(topic, topic) for topic in topics] if topics else None
