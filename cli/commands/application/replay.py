"""`streamkit replay`: dead letters back to the topics that their records came from."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit_cli.arguments.suggested_values import topics as topics_of_file
from streamkit_cli.guard import print_message
from streamkit_cli.loading import load_plan
from streamkit_cli.shared_options import TIME_HELP, EnvFile, File, Format, Settings, Shown

if TYPE_CHECKING:
    from streamkit.plan.model import Plan

Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="EXPR",
        help="Only letters for which this is true; names: error message step topic partition offset timestamp failed_at key value headers.",
    ),
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help=f"Only records that failed at this time or later: {TIME_HELP}."),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Only records that failed before this time.")
]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=0, help="At most N letters.")]
From = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="TOPIC",
        help="A topic of dead letters; those of the file by default.",
        autocompletion=topics_of_file,
    ),
]
Again = Annotated[bool, typer.Option("--again", help="Also letters that were put back before.")]
Execute = Annotated[bool, typer.Option("--execute", help="Do it; without, what would be put back is only shown.")]

EXAMPLES = (
    "streamkit replay orders.yaml --where 'error == \"KeyError\"'",
    "streamkit replay orders.yaml --since -1d --limit 100 --execute",
)
"""The examples of the help."""


def command(
    file: File,
    where: Where = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = None,
    topics: From = None,
    again: Again = False,
    form: Shown = Format.text,
    execute: Execute = False,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> None:
    """Put dead letters back to the topics that their records came from.

    The original bytes, time, headers and partition. What was put back is remembered and not offered again.
    """
    from streamkit.runtime.operations.dead_letter_replay import Replay
    from streamkit.runtime.records import RecordJson
    from streamkit_cli.logs import opened
    from streamkit_cli.records.letter_selection import LetterFilter, LetterWriter

    plan = load_plan(file, settings, env_file)
    records = RecordJson(plan)
    letter_filter = LetterFilter(records, where, since, until)
    with opened(plan, creates=execute) as transport:
        replay = Replay(plan, transport, _physical(plan, topics), again=again)
        found = replay.execute(letter_filter, limit) if execute else islice(replay.dead_letters(letter_filter), limit)
        writer = LetterWriter(replay, records, executed=execute)
        writer.json(found) if form is Format.json else writer.table(found)
    if letter_filter.failed:
        print_message(
            f"--where could not be answered for {letter_filter.failed} of the letters, which are left out: {letter_filter.failure}"
        )


def _physical(plan: Plan, topics: list[str] | None) -> list[str] | None:
    """Return names on the log: those of entries of the file, others as they are."""
    names = {topic.entry: topic.name for topic in plan.external_topics.values()}
    return [names.get(topic, topic) for topic in topics] if topics else None
