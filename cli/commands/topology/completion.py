"""`streamkit completion`: completion of commands and options in shells."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

VARIABLE = "_STREAMKIT_COMPLETE"
"""Set by the shell when it requests completions."""


class Shell(StrEnum):
    """The shells with completion."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


Chosen = Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell.", show_default=False)]

EXAMPLES = (
    "source <(streamkit completion bash)",
    "streamkit completion fish > ~/.config/fish/completions/streamkit.fish",
)
"""The examples of the help."""


def command(shell: Chosen) -> None:
    """Print a script that lets a shell complete commands and options.

    For the present shell: source <(streamkit completion bash). For all: put that line into ~/.bashrc or ~/.zshrc; for
    fish: streamkit completion fish > ~/.config/fish/completions/streamkit.fish.
    """
    # Typer has no public name for it.
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    print(get_completion_script(prog_name="streamkit", complete_var=VARIABLE, shell=shell.value))


def complete() -> None:
    """Print the completions that the shell requests, and exit."""
    # As above.
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()
