"""`streamkit new`: a topology to begin with."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from streamkit.errors import StateError, UsageError

TEMPLATES = Path(__file__).parent / "templates"
_PLACE = "NAME"


class Template(StrEnum):
    """What the topology does, until it is changed."""

    FILTER = "filter"
    COUNT = "count"
    WINDOW = "window"
    JOIN = "join"
    PROCESSOR = "processor"


Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The application, which is also its new folder.", show_default=False)
]
Chosen = Annotated[
    Template,
    typer.Option(
        "--template",
        help="filter: no state; count: by key; window: by key and minute; join: a stream with a table; processor: in Python.",
    ),
]


def command(name: Name, template: Chosen = Template.COUNT) -> None:
    """Make a folder with a topology and its test.

    The topology names its JSON Schema, which lies beside it, so that editors complete and check it.
    """
    from streamkit.spec.names import kafka_name_mistake
    from streamkit.spec.schema import with_plugins

    folder = Path(name)
    mistake = kafka_name_mistake(folder.name)
    if mistake:
        raise UsageError(f"{folder.name!r} {mistake}")
    if folder.exists():
        raise UsageError(f"{folder} is there already")
    files = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted((TEMPLATES / template.value).iterdir())
        if path.is_file()
    }
    files["topology.yaml"] = files["topology.yaml"].replace(_PLACE, folder.name, 1)
    files["topology.schema.json"] = json.dumps(with_plugins(), indent=1) + "\n"
    files[".gitignore"] = ".streamkit/\n"
    try:
        folder.mkdir(parents=True)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise StateError(f"{folder}: {error.strerror}") from error
    print(
        f"{folder}/topology.yaml and its test are there. Next:\n  cd {folder}\n  streamkit test\n  streamkit run topology.yaml"
    )
