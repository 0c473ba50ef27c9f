"""`streamkit validate`: every problem of some files at once."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import EnvFile, Settings
from .problems import validate_files

Files = Annotated[list[str], typer.Argument(metavar="FILE…", help="Topology files.", show_default=False)]
Excerpt = Annotated[
    bool | None,
    typer.Option(
        "--excerpt/--no-excerpt", help="Show the place in the file below each problem; the default on a terminal."
    ),
]


def command(files: Files, excerpt: Excerpt = None, settings: Settings = None, env_file: EnvFile = None) -> int:
    """Find every mistake in topology files.

    Each problem is a line FILE:LINE:COL: message. Exit code 0 for none, 1 for some, 2 for no such file.
    """
    return validate_files(files, excerpt, settings, env_file)
