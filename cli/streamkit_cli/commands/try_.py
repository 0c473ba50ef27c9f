"""`streamkit try`: a topology over some records, in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from streamkit.errors import SerdeError, StateError, StreamkitError, UsageError
from streamkit.plan.model import Plan
from streamkit.serdes.plain import Json
from streamkit_cli.command_process import user_log, user_output
from streamkit_cli.loading import STDIN, load_plan, refuse_stdin
from streamkit_cli.options import EnvFile, File, Format, Settings
from streamkit_cli.record_lines import input_lines, input_name, json_line

if TYPE_CHECKING:
    from streamkit.runtime.driver import Driver
    from streamkit.runtime.tracing import Tracer, Visit

Input = Annotated[
    str, typer.Option("--input", metavar="RECORDS", help="Records as JSON Lines; - is stdin.", show_default=False)
]
Stores = Annotated[str | None, typer.Option("--stores", metavar="FILE", help="Write the rows of every store to FILE.")]
Trace = Annotated[
    bool,
    typer.Option("--trace", help="Show what each step makes of each record, in place of the records that come out."),
]
Shown = Annotated[
    Format | None,
    typer.Option("--format", help="Records are JSON Lines; of --trace, a tree to read (text) or JSON Lines."),
]
EXAMPLES = (
    "streamkit try orders.yaml --input orders.jsonl",
    "streamkit try orders.yaml --input - --trace < orders.jsonl",
)
"""The examples of the help."""


def command(
    file: File,
    records: Input,
    stores: Stores = None,
    trace: Trace = False,
    form: Shown = None,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> None:
    """Run a topology in memory over records.

    What comes out is printed as JSON Lines. One partition, a commit after every record, and a clock that only moves by
    lines {"advance_wall_clock": "5s"}. --trace shows the lines of the file that each record passes: what they keep,
    drop and why, keys and values in and out, rows of stores before and after.
    """
    from streamkit.runtime.driver import Driver, Remains

    if form is Format.text and not trace:
        raise UsageError("--format text needs --trace; records are JSON Lines")
    if records == STDIN:
        refuse_stdin(file)
    lines = input_lines(records)
    with user_output() as stdout, user_log():
        plan = load_plan(file, settings, env_file)
        tracer = _tracer(plan) if trace else None
        with Driver(plan, Remains(logs=False), tracer=tracer) as driver:
            try:
                if tracer is None:
                    _run(driver, lines, input_name(records), stdout)
                else:
                    _trace(driver, tracer, lines, input_name(records), (form or Format.text, stdout))
            except UsageError as error:
                # A bad line is an error of the records, not of the usage.
                raise SerdeError(str(error)) from error
            if stores is not None:
                _write_stores(stores, driver.stores())


def _tracer(plan: Plan) -> Tracer:
    from streamkit.runtime.tracing import Tracer

    return Tracer(plan)


def _run(driver: Driver, lines: Iterable[str], name: str, stdout: TextIO) -> None:
    from streamkit.runtime.driver import run_lines

    for record in run_lines(driver, lines, name):
        stdout.write(json_line(record))


def _trace(driver: Driver, tracer: Tracer, lines: Iterable[str], name: str, output: tuple[Format, TextIO]) -> None:
    """Print the trace of each line; of a failing one that of the steps before the failure, too."""
    from streamkit.runtime.driver import pipe_at, record_of_line
    from streamkit_cli.trace_output import trace_writer

    form, stdout = output
    writer = trace_writer(driver.plan, form)

    def write(place: str, record: Mapping[str, Json], visits: list[Visit], printed: list[dict[str, Json]]) -> None:
        with redirect_stdout(stdout):
            writer(place, record, visits, printed)

    tracer.take()  # visits of timers at the start
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{name}:{number}"
        record = record_of_line(line, place)
        try:
            printed = pipe_at(driver, record, place)
        except StreamkitError:
            write(place, record, tracer.take(), driver.printed())
            raise
        write(place, record, tracer.take(), printed)


def _write_stores(path: str, stores: Mapping[str, object]) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(stores, file, ensure_ascii=False)
            file.write("\n")
    except OSError as error:
        raise StateError(f"{path}: {error.strerror}") from error
