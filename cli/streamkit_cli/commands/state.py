"""`streamkit state`: the stores of a stopped application, and whether they are intact."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit_cli.guard import FAILED
from streamkit_cli.loading import load_plan
from streamkit_cli.options import EnvFile, Format, Settings, Shown
from streamkit_cli.tables import table, time_cell

if TYPE_CHECKING:
    from streamkit.runtime.operations.stopped_state import KeptStore

Folder = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="A state.dir, or the directory of one application in it.", show_default=False),
]
Topology = Annotated[
    str | None, typer.Option("--topology", metavar="FILE", help="The application's file, whose log is read too.")
]
Verify = Annotated[
    bool,
    typer.Option("--verify", help="Read every row, and with --topology compare the rows with the changelogs."),
]

EXAMPLES = (
    "streamkit state .streamkit/orders",
    "streamkit state .streamkit --topology orders.yaml --verify",
)
"""The examples of the help."""


def command(
    folder: Folder,
    topology: Topology = None,
    verify: Verify = False,
    form: Shown = Format.text,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> int:
    """Show the stores on disk of a stopped application: rows, bytes, offsets, last commit.

    Exit code 1 if a store is damaged or differs from its changelog; the application would delete and restore it.
    """
    from streamkit.runtime.operations.stopped_state import kept_stores

    if topology is None:
        found = kept_stores(folder, verify=verify)
    else:
        from streamkit_cli.logs import opened

        plan = load_plan(topology, settings, env_file)
        with opened(plan, creates=False) as transport:
            found = kept_stores(folder, verify=verify, plan=plan, transport=transport)
    print(json.dumps([asdict(each) for each in found], indent=2) if form is Format.json else _text(found))
    return FAILED if any(each.problem for each in found) else 0


def _text(found: list[KeptStore]) -> str:
    heads = ("APPLICATION", "TASK", "STORE", "ROWS", "BYTES", "OFFSET", "END", "LAST COMMIT", "STATE")
    return table(heads, map(_row, found), numbers=[3, 4, 5, 6])


def _row(kept: KeptStore) -> tuple[object, ...]:
    about = "" if kept.counted else "~"
    rows = None if kept.rows is None else f"{about}{kept.rows:,}"
    size = None if kept.bytes is None else f"{kept.bytes:,}"
    checked = "as the changelog" if kept.compared else "all rows read" if kept.counted else "opens"
    place = (kept.application, kept.task, kept.store)
    return (*place, rows, size, kept.offset, kept.end, time_cell(kept.committed_ms), kept.problem or checked)
