"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

File = Annotated[str, typer.Argument(metavar="FILE", help="The topology file; - is stdin.", show_default=False)]
Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="A topic, by the name of its entry in the file.", show_default=False)
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A config value in place of the file's; may be repeated."),
]
EnvFile = Annotated[
    str | None,
    typer.Option("--env-file", metavar="FILE", help="Variables, as NAME=VALUE lines; the environment goes first."),
]
