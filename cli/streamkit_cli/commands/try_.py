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
from streamkit_cli.samples import Conf, Limit, check_sample_options, is_place, sample_of

if TYPE_CHECKING:
    from streamkit.runtime.driver import Driver
    from streamkit.runtime.tracing import Tracer, Visit

Input = Annotated[
    list[str],
    typer.Option(
        "--input",
        metavar="RECORDS",
        help="Records as JSON Lines, - is stdin; or TOPIC=PLACE as in submit, of which Spark reads a sample. Repeatable.",
        show_default=False,
    ),
]
Stores = Annotated[str | None, typer.Option("--stores", metavar="FILE", help="Write the rows of every store to FILE.")]
Trace = Annotated[
    bool,
    typer.Option("--trace", help="Show what each step does with each record, instead of the output."),
]
Shown = Annotated[
    Format | None,
    typer.Option("--format", help="Records are JSON Lines; --trace prints a tree (text) or JSON Lines."),
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
    limit: Limit = None,
    conf: Conf = None,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> None:
    """Run a topology in memory over records.

    The output is printed as JSON Lines. There is one partition, a commit after every record, and a clock that only
    lines {"advance_wall_clock": "5s"} advance. --trace shows each record's path through the lines of the file: where it
    is kept, where it is dropped and why, keys and values in and out, rows of stores before and after.
    """
    from streamkit.runtime.driver import Driver, Remains

    if form is Format.text and not trace:
        raise UsageError("--format text needs --trace; records are JSON Lines")
    if STDIN in records:
        refuse_stdin(file)
    check_sample_options(records, limit, conf)
    sources = [(input_name(path), input_lines(path)) for path in records if not is_place(path)]
    with user_output() as stdout, user_log():
        plan = load_plan(file, settings, env_file)
        if places := list(filter(is_place, records)):
            sources.append(("sample", map(json_line, sample_of(plan, places, limit, conf))))
        tracer = _tracer(plan) if trace else None
        with Driver(plan, Remains(logs=False), tracer=tracer) as driver:
            try:
                for name, lines in sources:
                    if tracer is None:
                        _run(driver, lines, name, stdout)
                    else:
                        _trace(driver, tracer, lines, name, (form or Format.text, stdout))
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
