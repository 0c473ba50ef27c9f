"""The reference in pieces: the page of a step, a function, a setting, a command or a rule, from what declares it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from streamkit.spec.documents.markdown import cell, without_links

if TYPE_CHECKING:
    from streamkit.lint import Rule
    from streamkit_cli.setting_rows import SettingRow

T = TypeVar("T")


@dataclass(frozen=True)
class ReferencePage:
    """A page of the reference. kind: what it is about, such as `step`; summary: its first sentence; text: makes its Markdown."""

    kind: str
    name: str
    summary: str
    text: Callable[[], str]


def pages() -> Iterator[ReferencePage]:
    """Yield all pages by kind, in the order of the reference."""
    for kind, found in (
        ("step", _steps()),
        ("function", _functions()),
        ("setting", _settings()),
        ("command", _commands()),
        ("rule", _rules()),
    ):
        for name, summary, text in found:
            yield ReferencePage(kind, name, _first_sentence(summary), text)


_Found = Iterator[tuple[str, str, Callable[[], str]]]
"""Names with their descriptions, and what makes their pages."""


def _steps() -> _Found:
    from streamkit.operators import STEPS
    from streamkit.spec.documents.language_reference import describe_operator

    for operator in STEPS.values():
        yield operator.name, operator.summary, partial(_linkless, describe_operator, operator)


def _functions() -> _Found:
    from streamkit.expressions.library.function_table import LIBRARY
    from streamkit.spec.documents.language_reference import describe_function

    for function in LIBRARY.values():
        yield function.name, function.doc, partial(_linkless, describe_function, function)


def _settings() -> _Found:
    from streamkit_cli.setting_rows import setting_rows

    for row in setting_rows():
        yield row["name"], row["meaning"], partial(_setting_page, row)


def _commands() -> _Found:
    from importlib import import_module

    from streamkit_cli.command_line import COMMANDS

    for name, module in COMMANDS.items():
        command = import_module(f"streamkit_cli.commands.{module}").command
        yield name, command.__doc__ or "", partial(_command_page, name)


def _rules() -> _Found:
    from streamkit.lint import RULES

    for rule in RULES.values():
        yield rule.code, rule.summary, partial(rule_section, rule)


def _linkless(describe: Callable[[T], str], described: T) -> str:
    return without_links(describe(described))


def _command_page(name: str) -> str:
    return command_section(name, help_text([name])(name))


def _first_sentence(text: str) -> str:
    return without_links(" ".join(text.split())).partition(". ")[0].rstrip(".") + "."


def _setting_page(row: SettingRow) -> str:
    rows = {"type": row["type"], "default": row["default"], "variable": row["variable"]}
    table = "\n".join(f"| {key} | `{cell(str(value))}` |" for key, value in rows.items() if value not in (None, ""))
    return f"## `{row['name']}`\n\n{row['meaning']}\n\n| | |\n|---|---|\n{table}\n"


def help_text(arguments: list[str]) -> Callable[[str], str]:
    """Return a function that gives the help of a command, of those that the arguments may need."""
    from typer.testing import CliRunner

    from streamkit_cli.command_line import application

    app, runner = application(arguments), CliRunner(env={"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"})
    return lambda name: runner.invoke(app, [name, "--help"], prog_name="streamkit").output


def command_section(name: str, text: str) -> str:
    """Return the section of a command: its help."""
    lines = [line.rstrip() for line in text.strip().splitlines()]
    return f"## `{name}`\n\n```text\n" + "\n".join(lines) + "\n```\n"


def rule_section(rule: Rule) -> str:
    """Return the section of a rule: its reason, a topology that breaks it, and one that does not."""
    return (
        f"## `{rule.code}`\n\n{rule.summary} {rule.why}\n\n"
        f"Instead of\n\n```yaml\n{rule.bad}```\n\nwrite\n\n```yaml\n{rule.good}```\n"
    )
