"""What `streamkit validate` does; without typer, so that an editor may call it at every save."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from streamkit.errors import StreamkitError, TopologyError, UsageError

from .guard import say
from .loading import load_plan


def validate_files(
    files: Sequence[str],
    excerpt: bool | None = None,
    settings: list[str] | None = None,
    env_file: str | None = None,
) -> int:
    """Print the problems of all files, with excerpts on a terminal unless told; return the exit code."""
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
    from streamkit.spec.report import render

    texts = {name: _text(name) for name in {problem.position.file for problem in error.problems}} if excerpt else None
    print(render(error.problems, texts, excerpt))


def _text(file: str) -> str:
    # What is not UTF-8 is a problem that is shown, not one more error.
    return Path(file).read_text(encoding="utf-8", errors="replace")
