"""The commands and options; only the module of the requested command is imported."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from streamkit_cli.guard import guarded, print_message

COMMANDS = {
    "demo": "new:demo",
    "new": "new:new",
    "validate": "validate:validate",
    "describe": "describe:describe",
    "diff": "diff:diff",
    "try": "try_:try_",
    "test": "test:run_tests",
    "run": "run:run",
    "dev": "dev:dev",
    "status": "status:status",
    "lag": "status:lag",
    "state": "query:state",
    "query": "query:query",
    "produce": "produce:produce",
    "generate": "produce:generate",
    "consume": "consume:consume",
    "replay": "replay:replay",
    "explain": "try_:explain",
    "migrate": "migrate:migrate",
    "evolve": "migrate:evolve",
    "reset-offsets": "reset_offsets:reset_offsets",
    "submit": "submit:submit",
    "topics": "topics:topics",
    "transactions": "transactions:transactions",
    "config": "config:config",
    "doctor": "doctor:doctor",
    "docs": "docs:docs",
    "lsp": "lsp:lsp",
    "completion": "completion:completion",
}
"""The module and the function of each command, in the order of the help."""
_EXAMPLES = "\n\nExamples:\n"

Command = Callable[..., int | None]


def application(arguments: list[str]) -> typer.Typer:
    """Return the commands that these arguments may need: one if its name is first, else all.

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
        command = function_of(name)
        text = inspect.cleandoc(command.__doc__ or "").partition(_EXAMPLES)[0]
        # Given by itself, since the one taken from the help is cut to the width of the terminal.
        summary = text.partition("\n\n")[0]
        # \b keeps the lines of a paragraph as they are.
        epilog = "\b\n" + "\n".join(["Examples:", *(f"  {line}" for line in examples_of(command))])
        app.command(name, help=text, short_help=summary, epilog=epilog)(guarded(command, "--verbose" in arguments))
    return app


def function_of(name: str) -> Command:
    """Return the function of a command; its docstring is the help, with the examples as the last part."""
    module, _, function = COMMANDS[name].partition(":")
    command: Command = getattr(import_module(f"{__package__}.commands.{module}"), function)
    return command


def examples_of(command: Command) -> list[str]:
    """Return the examples of a command, one a line."""
    return [line.strip() for line in inspect.cleandoc(command.__doc__ or "").partition(_EXAMPLES)[2].splitlines()]


def _version(requested: bool) -> None:
    if requested:
        from streamkit.distribution import installed_version

        print(f"streamkit {installed_version()}")
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


# The group of all commands, which reports values that no option takes.

_EXPECTED = {"int_parsing": "a whole number", "float_parsing": "a number"}
"""The value that is expected, by the type of the error."""
_BEGIN = "Input should be "


class CommandGroup(TyperGroup):
    """A group whose messages about wrong values name both the expected values and the given one."""

    def invoke(self, ctx: Any) -> object:  # The class of contexts differs between releases of Typer.
        """Run a command. Raises BadParameter."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = _message(error)
            raise


def _message(error: typer.BadParameter) -> str:
    """Return the message in place of that of the library which converts values."""
    text = error.message.removeprefix("Value error, ")
    details = getattr(error.__cause__, "errors", None)
    reported = details()[0] if details is not None else {}
    expected = _EXPECTED.get(reported.get("type", ""))
    if expected is None and text.startswith(_BEGIN):
        expected = f"a value {text.removeprefix(_BEGIN)}"
    return text if expected is None else f"expected {expected}, not {reported.get('input')!r}"


# Names of options that another one replaces: they work for one release, with a line on stderr.

_AS_JSON: dict[str, tuple[str, ...]] = {"--json": ("--format", "json")}
FORMER: dict[str, dict[str, tuple[str, ...]]] = {
    "doctor": _AS_JSON,
    "lag": _AS_JSON,
    "replay": {**_AS_JSON, "--max": ("--limit",)},
    "state": _AS_JSON,
    "status": _AS_JSON,
}
"""By command: its former options, and the arguments that replace each one."""


def renamed(arguments: list[str]) -> list[str]:
    """Return the arguments with present names of options, and print a line for each former one.

    >>> renamed(["lag", "orders.yaml", "--format", "json"])
    ['lag', 'orders.yaml', '--format', 'json']
    """
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    former = FORMER.get(command, {})
    present: list[str] = []
    for at, argument in enumerate(arguments):
        if argument == "--":
            return present + arguments[at:]
        name, equals, value = argument.partition("=")
        if name not in former:
            present.append(argument)
            continue
        words = former[name]
        print_message(f"{name} is now {' '.join(words)}; the former name works in this release for the last time")
        present += [*words[:-1], words[-1] + equals + value]
    return present
