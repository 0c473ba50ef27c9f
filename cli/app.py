"""The surface: commands and options, of which only the command that is asked for is imported."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any

import typer

from .guard import guarded

COMMANDS = {
    "new": "new",
    "validate": "validate",
    "describe": "describe",
    "diff": "diff",
    "try": "try_",
    "test": "test",
    "run": "run",
    "status": "status",
    "lag": "lag",
    "state": "state",
    "query": "query",
    "produce": "produce",
    "consume": "consume",
    "replay": "replay",
    "reset-offsets": "reset_offsets",
    "submit": "submit",
    "topics": "topics",
    "config": "config",
    "doctor": "doctor",
    "completion": "completion",
}
"""Modules by command, in the order of the help; each has a function `command`."""


def application(arguments: list[str]) -> typer.Typer:
    """Return the commands that these arguments may need: one where its name is first, else all.

    What a single command does not need is not imported, which halves the time that a short one takes.
    """
    app = typer.Typer(
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Kafka Streams topologies in YAML: validated, described, tried and run.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_options)
    first = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name in [first] if first in COMMANDS else COMMANDS:
        app.command(name)(_load(name, "--verbose" in arguments))
    return app


def _load(name: str, verbose: bool) -> Callable[..., Any]:
    module = import_module(f".{COMMANDS[name]}", __package__)
    return guarded(module.command, verbose)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"streamkit {version('streamkit')}")
        raise typer.Exit


def _options(
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", help="Show tracebacks, with the lines of generated code in them, and more of the log."
        ),
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass
