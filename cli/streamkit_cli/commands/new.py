"""`streamkit new`: a topology to begin with."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from streamkit.errors import StateError, UsageError
from streamkit_cli.packaged_files import SCHEMA

TEMPLATES = Path(__file__).parents[1] / "templates"
_PLACE = "NAME"
_SCHEMA = "topology.schema.json"


class Template(StrEnum):
    """What the topology does, until it is changed."""

    FILTER = "filter"
    COUNT = "count"
    WINDOW = "window"
    JOIN = "join"
    PROCESSOR = "processor"


Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The name of the application and of its new folder; . is the current folder.",
        show_default=False,
    ),
]
Chosen = Annotated[
    Template,
    typer.Option(
        "--template",
        help="filter: no state; count: by key; window: by key and minute; join: a stream with a table; processor: in Python.",
    ),
]

EXAMPLES = (
    "streamkit new orders",
    "streamkit new visits --template window",
)
"""The examples of the help."""


def command(name: Name, template: Chosen = Template.COUNT) -> None:
    """Create a folder with a topology and its test.

    The topology names its JSON Schema, so that editors can complete and check it. It is the installed schema, which
    needs no network; doctor shows its path on another machine. If plugins are installed, a schema with their steps is
    created beside the topology.
    """
    from streamkit.spec.yaml_reader import kafka_name_mistake

    if not name.strip():
        raise UsageError("NAME is empty; expected the name of the application, or . for this folder")
    folder = Path(name)
    place = folder.resolve()
    is_here, application = place == Path.cwd(), place.name
    if not application:
        raise UsageError(f"{place} has no name that the application could have")
    mistake = kafka_name_mistake(application)
    if mistake:
        raise UsageError(f"{application!r} {mistake}")
    if folder.exists() and not is_here:
        raise UsageError(f"{folder} already exists")
    files = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted((TEMPLATES / template.value).iterdir())
        if path.is_file()
    }
    files["topology.yaml"] = files["topology.yaml"].replace(_PLACE, application, 1)
    schema = _schema_with_plugins()
    if schema is None:
        files["topology.yaml"] = files["topology.yaml"].replace(_SCHEMA, SCHEMA.as_uri(), 1)
    else:
        files[_SCHEMA] = schema
    if not (folder / ".gitignore").exists():
        files[".gitignore"] = ".streamkit/\n"
    for file in files:
        if (folder / file).exists():
            raise UsageError(f"{folder / file} already exists")
    try:
        folder.mkdir(parents=True, exist_ok=is_here)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise StateError(f"{folder}: {error.strerror}") from error
    step = "" if is_here else f"  cd {folder}\n"
    print(
        f"Created {folder / 'topology.yaml'} and its test. Next:\n{step}  streamkit test\n  streamkit run topology.yaml"
    )


def _schema_with_plugins() -> str | None:
    """Return the JSON Schema where plugins add to the installed one; else None."""
    from streamkit.spec.topology_schema import with_plugins

    schema = with_plugins()
    return None if schema == json.loads(SCHEMA.read_text(encoding="utf-8")) else json.dumps(schema, indent=1) + "\n"
