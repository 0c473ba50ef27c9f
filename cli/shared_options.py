"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from streamkit_cli.arguments.suggested_values import settings, topics


class Format(StrEnum):
    """The formats of commands that print something to read."""

    text = "text"
    json = "json"


File = Annotated[str, typer.Argument(metavar="FILE", help="The topology file; - is stdin.", show_default=False)]
Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        help="A topic, by the name of its entry in the file.",
        show_default=False,
        autocompletion=topics,
    ),
]
TIME_HELP = "2025-01-31T08:00Z (UTC where it names no zone), milliseconds, 90s since 0, or -5m before now"
"""The forms of a time, in the help of each option that takes one (streamkit.durations.option_time)."""

Shown = Annotated[Format, typer.Option("--format", help="A table to read, or JSON.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A config value in place of the file's; may be repeated.",
        autocompletion=settings,
    ),
]
EnvFile = Annotated[
    str | None,
    typer.Option(
        "--env-file", metavar="FILE", help="Variables, as NAME=VALUE lines; those of the environment take precedence."
    ),
]
