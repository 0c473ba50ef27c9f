"""Options that several commands share."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from streamkit.plan.model import Plan


def topics(incomplete: str) -> list[str]:
    """Return the topics of the file, by the names of its entries."""
    return _matching(_keys("topics"), incomplete)


def settings(incomplete: str) -> list[str]:
    """Return the settings, each with its `=`; settings of the file come first."""
    from streamkit.config import SETTINGS

    return [f"{name}=" for name in _matching([*_keys("config"), *sorted(SETTINGS)], incomplete)]


class Format(StrEnum):
    """The formats of commands that print something to read."""

    text = "text"
    json = "json"


class CiFormat(StrEnum):
    """The formats of commands that find problems; `github` and `gitlab` are for CI."""

    text = "text"
    json = "json"
    github = "github"
    gitlab = "gitlab"


File = Annotated[str, typer.Argument(metavar="FILE", help="The topology file; - is stdin.", show_default=False)]
Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        help="A topic, by the name of its entry in the file.",
        show_default=False,
        autocompletion=topics,
    ),
]
TIME_HELP = "2025-01-31T08:00Z (UTC by default), milliseconds, 90s since 0, or -5m before now"
"""The forms of a time, in the help of each option that takes one (streamkit.durations.option_time)."""

Shown = Annotated[Format, typer.Option("--format", help="A table to read, or JSON.")]
Problems = Annotated[
    CiFormat,
    typer.Option("--format", help="text; JSON; annotations of GitHub Actions; or a Code Quality report of GitLab."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a config value of the file; may be repeated.",
        autocompletion=settings,
    ),
]
EnvFile = Annotated[
    str | None,
    typer.Option("--env-file", metavar="FILE", help="A file of NAME=VALUE lines; the environment takes precedence."),
]


# The values that shells complete: topics and stores of the file on the line, and settings.
#
# Each function takes the word to complete. The file is taken from the environment, in which shells pass the line: the parser
# does not have it while it waits for the value of an option. A file that can't be read has no completions, since a message would
# go into the line that the user types.


def topics_in_list(incomplete: str) -> list[str]:
    """Return the topics of the file for the last name of a list with commas."""
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in topics(last)]


def readable_topics(incomplete: str) -> list[str]:
    """Return the topics of the file and its internal topics, without the application's prefix."""
    plan = _plan()
    if plan is None:
        return topics(incomplete)
    changelogs = [f"{name}-changelog" for name, store in plan.stores.items() if store.source_topic is None]
    entries = [topic.entry for topic in plan.external_topics.values()]
    return _matching([*entries, *plan.internal_topics, *changelogs], incomplete)


def stores(incomplete: str) -> list[str]:
    """Return the stores of the file."""
    plan = _plan()
    return _matching(plan.stores, incomplete) if plan is not None else []


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _file() -> str | None:
    """Return the topology file of the command line: its first word that is a file."""
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()  # the last word may end within a quotation
    return next((word for word in words if os.path.isfile(word)), None)


def _keys(section: str) -> list[str]:
    """Return the keys of a section, even if other sections of the file have mistakes."""
    from streamkit.errors import StreamkitError
    from streamkit.spec.topology_file import read_text
    from streamkit.spec.yaml_nodes import Source, compose

    file = _file()
    try:
        root = compose(Source(read_text(file), file), []) if file is not None else None
    except StreamkitError:
        return []
    sections = [
        value
        for key, value in (root.value if root is not None and root.kind == "mapping" else ())
        if key.value == section
    ]
    return [key.value for key, _ in sections[0].value] if sections and sections[0].kind == "mapping" else []


def _plan() -> Plan | None:
    from streamkit import spec
    from streamkit.errors import StreamkitError
    from streamkit.plan import build

    file = _file()
    try:
        return build(spec.load(file, environment=os.environ), {}, os.environ) if file is not None else None
    except StreamkitError:
        return None
