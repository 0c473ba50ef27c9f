"""`streamkit state`: what the stores of a stopped application hold, and whether it is right."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .guard import FAILED
from .loading import load_plan
from .options import EnvFile, Settings
from .tables import moment, table

if TYPE_CHECKING:
    from streamkit.runtime.kept import KeptStore

Folder = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="A state.dir, or the directory of one application in it.", show_default=False),
]
Topology = Annotated[
    str | None, typer.Option("--topology", metavar="FILE", help="The application's file: its log is asked, too.")
]
Verify = Annotated[
    bool,
    typer.Option("--verify", help="Read every row, and with --topology compare the rows with the changelogs."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON array.")]


def command(
    folder: Folder,
    topology: Topology = None,
    verify: Verify = False,
    as_json: Json = False,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> int:
    """Show the stores on disk of an application that does not run: rows, bytes, offsets, last commit.

    Exit code 1 where a store is damaged, or is not what its changelog says; the application would delete and restore it.
    """
    from streamkit.runtime.kept import kept_stores

    if topology is None:
        found = kept_stores(folder, verify=verify)
    else:
        from .logs import opened

        plan = load_plan(topology, settings, env_file)
        with opened(plan) as transport:
            found = kept_stores(folder, verify=verify, plan=plan, transport=transport)
    print(json.dumps([asdict(each) for each in found], indent=2) if as_json else _text(found))
    return FAILED if any(each.problem for each in found) else 0


def _text(found: list[KeptStore]) -> str:
    heads = ("APPLICATION", "TASK", "STORE", "ROWS", "BYTES", "OFFSET", "END", "LAST COMMIT", "STATE")
    return table(heads, map(_row, found), numbers=[3, 4, 5, 6])


def _row(kept: KeptStore) -> tuple:
    about = "" if kept.counted else "~"
    rows = None if kept.rows is None else f"{about}{kept.rows:,}"
    size = None if kept.bytes is None else f"{kept.bytes:,}"
    checked = "as the changelog" if kept.compared else "all rows read" if kept.counted else "opens"
    place = (kept.application, kept.task, kept.store)
    return (*place, rows, size, kept.offset, kept.end, moment(kept.committed_ms), kept.problem or checked)
