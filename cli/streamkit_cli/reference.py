"""The reference: the page of a step, a function, a setting, a command or a rule in a terminal, and docs/commands.md and docs/lint.md."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar

from streamkit.config import SETTINGS, Config
from streamkit.config.application_config import variable
from streamkit.config.settings import SettingValue
from streamkit.expressions.function_table import LIBRARY
from streamkit.operators import STEPS
from streamkit.spec.markdown import cell, without_links
from streamkit_cli.command_line import COMMANDS, application, function_of

if TYPE_CHECKING:
    from streamkit.lint import Rule

T = TypeVar("T")


@dataclass(frozen=True)
class ReferencePage:
    """A page of the reference. kind: the kind of its subject, such as `step`; summary: its first sentence; text: returns its Markdown."""

    kind: str
    name: str
    summary: str
    text: Callable[[], str]


def pages() -> Iterator[ReferencePage]:
    """Yield all pages by kind, in the order of the reference."""
    for kind, entries in (
        ("step", _steps()),
        ("section", _sections()),
        ("function", _functions()),
        ("setting", _settings()),
        ("command", _commands()),
        ("rule", _rules()),
    ):
        for name, summary, text in entries:
            yield ReferencePage(kind, name, _first_sentence(summary), text)


_Found = Iterator[tuple[str, str, Callable[[], str]]]
"""Names with their descriptions, and what makes their pages."""


def _steps() -> _Found:
    from streamkit.spec.language_reference import describe_operator

    for operator in STEPS.values():
        yield operator.name, operator.summary, partial(_linkless, describe_operator, operator)


def _sections() -> _Found:
    from streamkit.spec.language_reference import MACROS, describe_macros

    yield "macros", MACROS, describe_macros


def _functions() -> _Found:
    from streamkit.spec.language_reference import describe_function

    for function in LIBRARY.values():
        yield function.name, function.doc, partial(_linkless, describe_function, function)


def _settings() -> _Found:
    for row in setting_rows():
        yield row["name"], row["meaning"], partial(_setting_page, row)


def _commands() -> _Found:
    for name in COMMANDS:
        yield name, function_of(name).__doc__ or "", partial(_command_page, name)


def _rules() -> _Found:
    from streamkit.lint import RULES
    from streamkit.spec.language_reference import examples_of_rules

    examples = examples_of_rules()
    for rule in RULES.values():
        yield rule.code, rule.summary, partial(rule_section, rule, **examples[rule.code])


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

    app, runner = application(arguments), CliRunner(env={"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"})
    return lambda name: runner.invoke(app, [name, "--help"], prog_name="streamkit").output


def command_section(name: str, text: str) -> str:
    """Return the section of a command: its help."""
    lines = [line.rstrip() for line in text.strip().splitlines()]
    return f"## `{name}`\n\n```text\n" + "\n".join(lines) + "\n```\n"


def rule_section(rule: Rule, bad: str, good: str) -> str:
    """Return the section of a rule: its reason, a topology that breaks it, and one that does not."""
    return (
        f"## `{rule.code}`\n\n{rule.summary} {rule.why}\n\n"
        f"Instead of\n\n```yaml\n{bad}```\n\nwrite\n\n```yaml\n{good}```\n"
    )


# Writes docs/commands.md and docs/lint.md, from the help of the commands and from the rules.
#
# `python -m streamkit_cli.reference --write DOCS` writes them; `--check DOCS` exits 1 when they are out of date.

HEAD = """\
# Commands

Exit codes: 0 success, 1 the topology or the job failed, 2 wrong usage. Results go to stdout, everything else to stderr.

## Values of settings

A setting takes its value from the first of these that names it: `--set NAME=value`, the environment, `--env-file`,
`config` of the file, the default. In the environment, the name of a setting is `STREAMKIT_` and its name in capitals,
with `_` for `.` and `-`: `STREAMKIT_NUM_STREAM_THREADS` is `num.stream.threads`. `streamkit config FILE` shows each
value and its source.

`--verbose` before the command shows tracebacks, including lines of generated code, and more log lines.

`STREAMKIT_NATIVE=off` turns the native extension off. If it was built, it reads and writes Kafka records, checks,
measures and merges values, counts in caches, and hashes foreign keys. The default is `auto`. `streamkit doctor` shows
whether it is in use.

<!-- Below: written by `make generate` from the commands' own help. -->
"""
LINT = """\
# Rules of `validate --strict`

A valid topology may break them; each has a reason. What is certainly a mistake, marked as an error, `validate` reports
without `--strict` too. A comment `# lint: ignore=RULE` in the line silences one place, `--ignore RULE` a whole run.

<!-- Below: written by `make generate` from the rules. -->

| rule | finds |
|---|---|
"""


def commands() -> str:
    """Return docs/commands.md."""
    help_of = help_text([])
    return "\n".join([HEAD, *(command_section(name, help_of(name)) for name in COMMANDS)])


def rules() -> str:
    """Return docs/lint.md."""
    from streamkit.lint import RULES
    from streamkit.spec.language_reference import examples_of_rules

    examples = examples_of_rules()
    rows = "".join(
        f"| [`{rule.code}`](#{rule.code}) | {rule.summary}{' An error.' if rule.is_mistake else ''} |\n"
        for rule in RULES.values()
    )
    return LINT + rows + "".join(f"\n{rule_section(rule, **examples[code])}" for code, rule in RULES.items())


def keep(files: dict[Path, str | None], write: bool) -> int:
    """Write files, or compare them; one without a text must not exist. Return the exit code."""
    stale = 0
    for path, text in files.items():
        if (path.read_text(encoding="utf-8") if path.exists() else None) == text:
            continue
        if not write:
            print(f"{path} is out of date: make generate", file=sys.stderr)
            stale = 1
        elif text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return stale


def main(arguments: list[str]) -> int:
    """Write or check the pages in a folder; return the exit code."""
    if len(arguments) != 2 or arguments[0] not in ("--write", "--check"):
        print("usage: python -m streamkit_cli.reference --write|--check DOCS", file=sys.stderr)
        return 2
    folder = Path(arguments[1])
    return keep({folder / "commands.md": commands(), folder / "lint.md": rules()}, arguments[0] == "--write")


# All settings with their types, defaults and meanings, as rows.


class SettingRow(TypedDict):
    """A setting. variable: its name in the environment."""

    name: str
    type: str
    default: SettingValue
    meaning: str
    variable: str


def setting_rows() -> list[SettingRow]:
    """Return the settings by name; deprecated names, which are aliases of current ones, are not among them."""
    defaults = {name: value for name, value, _ in Config("").describe()}
    return [
        {
            "name": name,
            "type": " | ".join(setting.words) if setting.words else setting.kind,
            "default": defaults[name],
            "meaning": setting.description,
            "variable": variable(name),
        }
        for name, setting in sorted(SETTINGS.items())
        if name in defaults
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
