"""The entry point.

The folder is called `cli`, and the installed package `streamkit_cli`.
"""

from __future__ import annotations

import os
import sys
from functools import partial

from streamkit_cli.foreign_package import foreign_package


def main() -> None:
    """Run the command line of this process and exit."""
    wrong = foreign_package()
    if wrong is not None:
        print(f"streamkit: {wrong}", file=sys.stderr)
        sys.exit(1)
    _utf8()
    # Not before: the other project's modules would be imported in place of ours.
    from streamkit_cli.guard import call

    arguments = sys.argv[1:]
    if arguments[:1] == ["validate"] and arguments[1:] and not any(each.startswith("-") for each in arguments):
        # Editors call this at each save: the parser of options would add half of its time.
        import gc

        # Garbage collection takes a tenth of the time, and the process ends before its memory matters.
        gc.disable()
        from streamkit_cli.problems import validate_files

        sys.exit(call(partial(validate_files, arguments[1:])))
    from streamkit_cli.arguments.former_options import renamed
    from streamkit_cli.command_line import application

    if "_STREAMKIT_COMPLETE" in os.environ:
        from streamkit_cli.commands.topology.completion import complete

        complete()
    arguments = renamed(arguments)
    application(arguments)(args=arguments, prog_name="streamkit")


def _utf8() -> None:
    """Make the standard streams UTF-8 whatever the locale: records and file names must survive it."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if stream is not None:
            # Their declared type, TextIO, does not have the method of TextIOWrapper.
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
