"""The entry point."""

from __future__ import annotations

import os
import re
import sys
from functools import partial
from pathlib import Path

_INTERRUPTED = 130
"""The exit code after Ctrl-C: guard.INTERRUPTED."""


def main() -> None:
    """Run the command line of this process and exit."""
    try:
        _run()
    except KeyboardInterrupt:  # while modules are imported; guard.call handles one in a command
        sys.exit(_INTERRUPTED)


def _run() -> None:
    wrong = foreign_package()
    if wrong is not None:
        print(f"streamkit: {wrong}", file=sys.stderr)
        sys.exit(1)
    _utf8()
    # Only after this check: otherwise the other project's modules would be imported instead of ours.
    from streamkit_cli.guard import call

    arguments = sys.argv[1:]
    if arguments[:1] == ["validate"] and arguments[1:] and not any(argument.startswith("-") for argument in arguments):
        # Editors run this command at each save, and the option parser would take half as long again.
        import gc

        # Garbage collection takes a tenth of the time, and the process ends before its memory matters.
        gc.disable()
        from streamkit_cli.problems import validate_files

        sys.exit(call(partial(validate_files, arguments[1:])))
    if arguments == ["lsp"]:
        # An editor waits for the first answer.
        from streamkit_cli.loading import start_language_server

        sys.exit(call(start_language_server))
    from streamkit_cli.command_line import application, renamed

    if "_STREAMKIT_COMPLETE" in os.environ:
        from streamkit_cli.commands.completion import complete

        complete()
    arguments = renamed(arguments)
    application(arguments)(args=arguments, prog_name="streamkit")


def _utf8() -> None:
    """Make the standard streams UTF-8 regardless of the locale, so that records and file names are not changed."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if stream is not None:
            # Their declared type, TextIO, does not have the method of TextIOWrapper.
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]


# Another project's distribution is called `streamkit` too; its files replace ours.

_NAMED_STREAMKIT = re.compile(r"streamkit-([^-]+)\.(dist|egg)-info")


def foreign_package(path: list[str] | None = None) -> str | None:
    """Return a message with the remedy if such a distribution is on the path (sys.path), else None.

    importlib.metadata would find it too, but importing that takes a tenth of the time of `streamkit validate`.
    """
    for folder in sys.path if path is None else path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            match = _NAMED_STREAMKIT.fullmatch(name)
            if match and not _is_ours(Path(folder, name)):
                return (
                    f"another project's package, streamkit {match[1]}, is installed in {folder}, and its modules hide this project's; "
                    f"remove it ({sys.executable} -m pip uninstall streamkit), then install streamkit-kafka again"
                )
    return None


def _is_ours(folder: Path) -> bool:
    """Return whether this is an older release of this project, which had the same name."""
    try:
        return "streamkit_cli" in (folder / "entry_points.txt").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
