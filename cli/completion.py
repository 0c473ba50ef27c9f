"""`streamkit completion`: commands and options at the press of a key."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

VARIABLE = "_STREAMKIT_COMPLETE"
"""Set by the shell when it asks for completions."""


class Shell(StrEnum):
    """The shells that are known."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


Chosen = Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell.", show_default=False)]


def command(shell: Chosen) -> None:
    """Print a script that lets a shell complete commands and options.

    For the present shell: source <(streamkit completion bash). For all: put that line into ~/.bashrc or ~/.zshrc; for
    fish: streamkit completion fish > ~/.config/fish/completions/streamkit.fish.
    """
    from typer.completion import get_completion_script

    print(get_completion_script(prog_name="streamkit", complete_var=VARIABLE, shell=shell.value))


def answer() -> None:
    """Let this process answer a shell that asks."""
    from typer.completion import completion_init

    completion_init()
