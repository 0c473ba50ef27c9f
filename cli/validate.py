"""`streamkit validate`: every problem of some files at once."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from streamkit.errors import StreamkitError, TopologyError, UsageError

from .guard import say
from .options import EnvFile, Settings, load_plan

Files = Annotated[list[str], typer.Argument(metavar="FILE…", help="Topology files.", show_default=False)]
Excerpt = Annotated[
    bool | None,
    typer.Option(
        "--excerpt/--no-excerpt", help="Show the place in the file below each problem; the default on a terminal."
    ),
]


def command(files: Files, excerpt: Excerpt = None, settings: Settings = None, env_file: EnvFile = None) -> int:
    """Print every problem as FILE:LINE:COL: message; exit 0 for none, 1 for some, 2 for no such file."""
    shown = sys.stdout.isatty() if excerpt is None else excerpt
    return max(_validate(file, shown, settings, env_file) for file in files)


def _validate(file: str, excerpt: bool, settings: list[str] | None, env_file: str | None) -> int:
    try:
        load_plan(file, settings, env_file)
    except TopologyError as error:
        _show(error, excerpt)
        return error.exit_code
    except UsageError as error:
        say(str(error))
        return error.exit_code
    except StreamkitError as error:
        # Not a place in the file, such as a wrong --set: still one of the problems that the caller asked for.
        print(f"{file}:1:1: {error}")
        return error.exit_code
    return 0


def _show(error: TopologyError, excerpt: bool) -> None:
    if excerpt:
        from streamkit.spec.report import render

        print(render(error.problems))
        return
    for problem in error.problems:
        print(problem)
