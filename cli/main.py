"""The entry point.

Imports are relative because the folder is called `cli` and the installed package `streamkit_cli`.
"""

from __future__ import annotations

import os
import sys
from functools import partial

from .guard import call


def main() -> None:
    """Run the command line of this process and exit."""
    _utf8()
    arguments = sys.argv[1:]
    if arguments[:1] == ["validate"] and arguments[1:] and not any(each.startswith("-") for each in arguments):
        # What an editor calls at every save does without the options' parser, a third of its time.
        import gc

        # Collecting is a tenth of the time, in a process that ends before its memory matters.
        gc.disable()
        from .problems import validate_files

        sys.exit(call(partial(validate_files, arguments[1:])))
    from .app import application

    if "_STREAMKIT_COMPLETE" in os.environ:
        from .completion import answer

        answer()
    application(arguments)(args=arguments, prog_name="streamkit")


def _utf8() -> None:
    """Make the standard streams UTF-8 whatever the locale: records and file names must survive it."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
