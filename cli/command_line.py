"""The commands and options; only the module of the requested command is imported."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Annotated

import typer

from streamkit_cli.arguments.command_group import CommandGroup
from streamkit_cli.guard import guarded

COMMANDS = {
    "demo": "topology.demo",
    "new": "topology.new",
    "validate": "topology.validate",
    "describe": "topology.describe",
    "diff": "topology.diff",
    "try": "topology.try_",
    "test": "topology.test",
    "run": "application.run",
    "dev": "application.dev",
    "status": "application.status",
    "lag": "application.lag",
    "state": "application.state",
    "query": "application.query",
    "produce": "application.produce",
    "generate": "application.generate",
    "consume": "application.consume",
    "replay": "application.replay",
    "explain": "application.explain",
    "migrate": "versions.migrate",
    "evolve": "versions.evolve",
    "reset-offsets": "application.reset_offsets",
    "submit": "application.submit",
    "topics": "application.topics",
    "transactions": "application.transactions",
    "config": "topology.config",
    "doctor": "topology.doctor",
    "docs": "topology.docs",
    "completion": "topology.completion",
}
"""Modules by command, in the order of the help; each has a function `command`."""


def application(arguments: list[str]) -> typer.Typer:
    """Return the commands that these arguments may need: one where its name is first, else all.

    The imports of the other commands would double the time of a short command.
    """
    app = typer.Typer(
        cls=CommandGroup,
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
        module = import_module(f"{__package__}.commands.{COMMANDS[name]}")
        command: Callable[..., int | None] = module.command
        # Given by itself, since the one taken from the docstring is cut to the width of the terminal.
        summary = (command.__doc__ or "").partition("\n\n")[0]
        app.command(name, short_help=summary, epilog=_examples(module))(guarded(command, "--verbose" in arguments))
    return app


def _examples(module: ModuleType) -> str:
    """Return the examples of a command as the last part of its help, one a line."""
    # \b keeps the lines of a paragraph as they are.
    return "\b\n" + "\n".join(["Examples:", *(f"  {line}" for line in module.EXAMPLES)])


def _version(requested: bool) -> None:
    if requested:
        from streamkit import __version__

        print(f"streamkit {__version__}")
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
