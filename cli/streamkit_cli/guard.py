"""The error handling of commands: an error becomes one line on stderr and a documented exit code."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import traceback
from collections.abc import Callable
from typing import ParamSpec

from streamkit.errors import SeveralErrors, StreamkitError, TopologyError

P = ParamSpec("P")

FAILED = 1
INTERRUPTED = 130


def guarded(command: Callable[P, int | None], verbose: bool = False) -> Callable[P, None]:
    """Return the command with its errors handled; its result is the exit code (None: 0)."""

    @functools.wraps(command)
    def run(*arguments: P.args, **options: P.kwargs) -> None:
        code = call(functools.partial(command, *arguments, **options), verbose)
        if code:
            import typer

            raise typer.Exit(code)

    return run


def call(command: Callable[[], int | None], verbose: bool = False) -> int:
    """Return the exit code of a command; its errors are printed on stderr."""
    try:
        code = command() or 0
        # Here, so that a full disk or a closed pipe is an error of the command and not a traceback at exit.
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _silence_stdout()
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except TopologyError as error:
        # The lines that editors and other tools parse, as validate prints them.
        print(error, file=sys.stderr)
        return error.exit_code
    except StreamkitError as error:
        _flush_stdout()
        if verbose and error.__cause__ is not None:
            # The error is printed in one line; its cause may be in the user's Python or in generated code.
            traceback.print_exception(error.__cause__)
        for single in error.errors if isinstance(error, SeveralErrors) else (error,):
            print_message("; ".join([str(single) or type(single).__name__, *getattr(single, "__notes__", ())]))
        return error.exit_code
    except OSError as error:
        _silence_stdout()
        if verbose:
            raise
        print_message(_os_error(error))
        return FAILED
    except RecursionError:
        if verbose:
            raise
        print_message("nested too deeply")
        return FAILED
    except Exception as error:
        if verbose:
            raise
        _flush_stdout()
        text = " ".join(str(error).split())
        print_message(f"unexpected {type(error).__name__}: {text} (streamkit --verbose … shows the traceback)")
        return FAILED


def print_message(text: str) -> None:
    """Print a message on stderr."""
    print(f"streamkit: {text}", file=sys.stderr)


def _os_error(error: OSError) -> str:
    where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
    return f"{where}{error.strerror or error}"


def _flush_stdout() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _silence_stdout()


def _silence_stdout() -> None:
    """Redirect stdout to the null device: Python would report at exit that it can't write the buffered rest."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
