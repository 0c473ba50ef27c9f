"""`streamkit try`: a topology over some records, in memory."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from streamkit.errors import SerdeError, StateError, UsageError

from .json_lines import input_lines, input_name, json_line
from .loading import STDIN, load_plan, refuse_stdin
from .options import EnvFile, File, Settings

Input = Annotated[
    str, typer.Option("--input", metavar="RECORDS", help="Records as JSON Lines; - is stdin.", show_default=False)
]
Stores = Annotated[str | None, typer.Option("--stores", metavar="FILE", help="Write the rows of every store to FILE.")]


def command(
    file: File, records: Input, stores: Stores = None, settings: Settings = None, env_file: EnvFile = None
) -> None:
    """Run a topology in memory over records.

    What comes out is printed as JSON Lines. One partition, a commit after every record, and a clock that only moves by
    lines {"advance_wall_clock": "5s"}.
    """
    from streamkit.runtime.driver import Driver, Remains, run_lines

    if records == STDIN:
        refuse_stdin(file)
    plan = load_plan(file, settings, env_file)
    lines = input_lines(records)
    with Driver(plan, Remains(logs=False)) as driver:
        try:
            for record in run_lines(driver, lines, input_name(records)):
                sys.stdout.write(json_line(record))
        except UsageError as error:
            # A bad line is no wrong use of the command: the records failed.
            raise SerdeError(str(error)) from error
        if stores is not None:
            _write_stores(stores, driver.stores())


def _write_stores(path: str, stores: dict[str, list]) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(stores, file, ensure_ascii=False)
            file.write("\n")
    except OSError as error:
        raise StateError(f"{path}: {error.strerror}") from error
