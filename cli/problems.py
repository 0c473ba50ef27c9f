"""What `streamkit validate` does; without typer, so that an editor may call it at every save."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from streamkit.errors import Position, Problem, StreamkitError, TopologyError, UsageError

from .guard import say
from .loading import STDIN, environment, load_model, overrides

if TYPE_CHECKING:
    from streamkit.plan.model import Plan
    from streamkit.spec.model import TopologyModel

ERROR, WARNING = "error", "warning"
INVALID = "invalid"
"""The code of what is a mistake and not a rule of lint."""


@dataclass(frozen=True)
class Wanted:
    """What is looked for, and how it is shown: excerpt None: on a terminal; form: text, json or github.

    online: whether the schema registry is asked too.
    """

    excerpt: bool | None = None
    settings: list[str] | None = None
    env_file: str | None = None
    strict: bool = False
    ignored: frozenset[str] = frozenset()
    form: str = "text"
    online: bool = False


@dataclass(frozen=True)
class Shown:
    """A line of the report."""

    severity: str
    code: str
    position: Position
    message: str


def validate_files(files: Sequence[str], wanted: Wanted | None = None) -> int:
    """Print the problems of all files; return the exit code."""
    chosen = wanted or Wanted()
    code, found = 0, []
    for file in files:
        try:
            found += _problems(file, chosen)
        except UsageError as error:
            say(str(error))
            code = error.exit_code
    _print(found, chosen)
    return max(code, 1 if found else 0)


def _problems(file: str, wanted: Wanted) -> list[Shown]:
    from streamkit.plan import build

    try:
        variables = environment(wanted.env_file)
        model = load_model(file, variables)
        plan = build(model, overrides(wanted.settings), variables, wanted.online)
    except TopologyError as error:
        return [Shown(ERROR, INVALID, problem.position, problem.message) for problem in error.problems]
    except UsageError:
        raise
    except StreamkitError as error:
        # Not a place in the file, such as a wrong --set: still one of the problems that the caller asked for.
        return [Shown(ERROR, INVALID, Position(file, 1, 1), str(error))]
    for warning in _warnings(model, plan):
        say(warning)
    if not wanted.strict:
        return []
    from streamkit.lint import check

    return [
        Shown(WARNING, each.code, each.position, each.message)
        for each in check(model, plan)
        if each.code not in wanted.ignored
    ]


def _warnings(model: TopologyModel, plan: Plan) -> list[str]:
    """Return the warnings of the settings, with their places if they stand in the file."""
    from streamkit.config.settings import ALIASES

    entries = {ALIASES.get(name, name): entry for name, entry in model.config.items()}
    places = {name: f"{entry.position}: " for name, entry in entries.items() if entry.position is not None}
    return [
        (places.get(line.split()[0], "") if plan.config.origin(line.split()[0]) == "file" else "") + line
        for line in plan.config.warnings
    ]


def _print(found: list[Shown], wanted: Wanted) -> None:
    if wanted.form == "json":
        import json

        print(json.dumps([_data(each) for each in found], ensure_ascii=False, indent=2))
    elif wanted.form == "github":
        for each in found:
            print(annotation(each.severity, each.code, each.position, each.message))
    elif found:
        _print_text(found, sys.stdout.isatty() if wanted.excerpt is None else wanted.excerpt)


def _print_text(found: list[Shown], excerpt: bool) -> None:
    from streamkit.spec.report import render

    # What is not UTF-8 is a problem that is shown, not one more error.
    names = {each.position.file for each in found if each.position.file not in ("stdin", STDIN)} if excerpt else set()
    texts = {name: Path(name).read_text(encoding="utf-8", errors="replace") for name in names}
    problems = [
        Problem(each.position, each.message if each.code == INVALID else f"{each.message} [{each.code}]")
        for each in found
    ]
    print(render(problems, texts, excerpt))


def _data(each: Shown) -> dict[str, object]:
    place = {"file": each.position.file, "line": each.position.line, "column": each.position.column}
    return {**place, "severity": each.severity, "code": each.code, "message": each.message}


def annotation(severity: str, title: str, position: Position, message: str) -> str:
    """Return a workflow command, which GitHub shows beside the line of the file; severity: error, warning or notice."""
    place = f"file={_property(position.file)},line={position.line},col={position.column}"
    return f"::{severity} {place},title={_property(title)}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
