"""`streamkit completion`: completion of commands and options in shells."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

SCRIPTS = Path(__file__).parents[1] / "completions"
"""The scripts, in a folder for each shell."""


class Shell(StrEnum):
    """The shells with completion."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


Chosen = Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell.", show_default=False)]


def completion(shell: Chosen) -> None:
    """Print a script that lets a shell complete commands and options.

    For the current shell: source <(streamkit completion bash). For all: put that line into ~/.bashrc or ~/.zshrc; for
    fish: streamkit completion fish > ~/.config/fish/completions/streamkit.fish.

    Examples:
        source <(streamkit completion bash)
        streamkit completion fish > ~/.config/fish/completions/streamkit.fish
    """
    (script,) = (path for path in (SCRIPTS / shell.value).iterdir() if path.is_file())
    print(script.read_text(encoding="utf-8"), end="")


def complete() -> None:
    """Print the completions that the shell requests, and exit."""
    # Typer has no public name for it.
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()
