"""`streamkit config`: every setting, and the origin of its value."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from streamkit.config import Config, read_env_file
from streamkit.config.application_config import variable
from streamkit.config.settings import ALIASES
from streamkit.errors import UsageError
from streamkit.serdes.plain import Document, Json
from streamkit.spec.topology_model import TopologyModel
from streamkit_cli.guard import print_message
from streamkit_cli.loading import load_model, overrides, wrong_settings
from streamkit_cli.options import EnvFile, Format, Settings, Shown
from streamkit_cli.reference import setting_rows
from streamkit_cli.tables import table

Optional = Annotated[
    str | None,
    typer.Argument(metavar="FILE", help="A topology, whose values are shown; - is stdin.", show_default=False),
]
Changed = Annotated[bool, typer.Option("--changed", help="Only settings whose value is not from the default.")]


def config(
    file: Optional = None,
    changed: Changed = False,
    form: Shown = Format.text,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> None:
    """Show every setting with its default and meaning; with FILE also its value and the source of that value.

    A setting takes its value from the first of these that names it: --set, the environment, --env-file, the file, the
    default. Variables are called like settings: STREAMKIT_NUM_STREAM_THREADS is num.stream.threads. Secrets are masked.

    Examples:
        streamkit config
        streamkit config orders.yaml --changed
    """
    for option, given in (("--changed", changed), ("--set", settings), ("--env-file", env_file)):
        if file is None and given:
            raise UsageError(f"{option} needs a FILE, whose values are shown")
    rows: list[dict[str, Document]] = (
        [{**row} for row in setting_rows()] if file is None else _values(file, settings, env_file)
    )
    if changed:
        rows = [row for row in rows if row.get("origin", "default") != "default"]
    if form is Format.json:
        print(json.dumps(rows, ensure_ascii=False, indent=2))
    elif file is None:
        print(
            table(
                ("SETTING", "TYPE", "DEFAULT", "MEANING"),
                [_cells(row, "name", "type", "default", "meaning") for row in rows],
            )
        )
    else:
        print(table(("SETTING", "VALUE", "FROM"), [_cells(row, "name", "value", "origin") for row in rows]))


def _cells(row: dict[str, Json], *names: str) -> list[str]:
    return [" ".join(str(row[name]).split()) for name in names]


def _values(file: str, settings: list[str] | None, env_file: str | None) -> list[dict[str, Json]]:
    in_file = read_env_file(env_file) if env_file else {}
    model = load_model(file, {**in_file, **os.environ})
    with wrong_settings():
        config = Config(
            model.application,
            model.settings,
            overrides=overrides(settings),
            environment=os.environ,
            env_file=in_file,
            folder=os.path.dirname(model.file),
        )
    for warning in config.warnings:
        print_message(warning)
    return [
        {"name": name, "value": value, "origin": _origin(model, name, origin, env_file)}
        for name, value, origin in config.describe()
    ]


def _origin(model: TopologyModel, name: str, origin: str, env_file: str | None) -> str:
    """Return the origin of a value: a line of the file, a variable, or the option."""
    if origin == "file":
        names = [name, *(old for old, present in ALIASES.items() if present == name)]
        entry = next((model.config[name] for name in names if name in model.config), None)
        return f"{model.file}:{entry.position.line}" if entry is not None and entry.position is not None else origin
    return {"environment": variable(name), "--env-file": f"{env_file}: {variable(name)}"}.get(origin, origin)
