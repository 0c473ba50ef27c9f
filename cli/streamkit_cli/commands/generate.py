"""`streamkit generate`: test data into topics, or to stdout."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit.durations import option_time
from streamkit.errors import UsageError
from streamkit_cli.loading import load_plan
from streamkit_cli.options import TIME_HELP, EnvFile, File, Settings, topics
from streamkit_cli.samples import Conf, Limit, check_sample_options, sample_of

if TYPE_CHECKING:
    from threading import Event

    from streamkit.plan.model import Plan
    from streamkit.serdes.plain import Json

PAUSE = 0.05
"""Seconds between two batches of a paced run."""
BATCH = 1000

Topics = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TOPIC]…", help="The topics, by the names of their entries; all by default.", autocompletion=topics
    ),
]
Rate = Annotated[
    str | None,
    typer.Option(
        "--rate",
        metavar="N/s",
        help="The total rate of all topics: 100/s, 600/m. Timestamps follow the rate.",
    ),
]
Count = Annotated[
    int | None, typer.Option("--count", metavar="N", min=0, help="The total number of records of all topics.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="A different number gives different records.")]
Start = Annotated[
    str | None,
    typer.Option(
        "--start",
        metavar="TIME",
        help=f"The time of the first records: {TIME_HELP}; now by default, on stdout 2025-01-01T00:00Z.",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="TOPIC=PLACE",
        help="A sample of files or of a table as in submit, which Spark reads, in place of the generators. Repeatable.",
        autocompletion=topics,
    ),
]
ToStdout = Annotated[bool, typer.Option("--stdout", help="Print JSON Lines, as produce and try read them.")]

EXAMPLES = (
    "streamkit generate orders.yaml --rate 100/s",
    "streamkit generate orders.yaml --count 1000 --seed 7 --stdout > orders.jsonl",
)
"""The examples of the help."""


def command(
    file: File,
    chosen_topics: Topics = None,
    rate: Rate = None,
    count: Count = None,
    seed: Seed = 0,
    start: Start = None,
    stdout: ToStdout = False,
    inputs: Inputs = None,
    limit: Limit = None,
    conf: Conf = None,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> None:
    """Create test data with the generators of a topology.

    Generators are in the section generators of the file, or in NAME.generators.yaml beside NAME.yaml. The same seed and
    start give the same records. Endless records need --rate or --count; SIGTERM and SIGINT end the command.
    --input uses records of a lake instead, unchanged.
    """
    pace = None if rate is None else per_second(rate)
    check_sample_options(inputs or (), limit, conf)
    if inputs:
        for option, is_given in (("TOPIC", chosen_topics), ("--seed", seed), ("--start", start)):
            if is_given:
                raise UsageError(f"{option} and --input exclude each other: {option} is for generators")
        plan = load_plan(file, settings, env_file)
        _put(plan, islice(iter(sample_of(plan, inputs, count if limit is None else limit, conf)), count), pace, stdout)
        return
    from streamkit.testing.generated_records import START, chosen, generated, is_endless

    now = time.time_ns() // 1_000_000
    first = option_time("--start", start) if start is not None else START if stdout else now
    plan = load_plan(file, settings, env_file)
    generators = chosen(plan.generators, chosen_topics or ())
    if count is None and pace is None and is_endless(generators):
        endless = ", ".join(each.topic for each in generators if each.count is None)
        raise UsageError(f"the records of {endless} never end; give --count N or --rate N/s")
    _put(plan, islice(generated(generators, seed, first, pace), count), pace, stdout)


def _put(plan: Plan, records: Iterator[dict[str, Json]], pace: float | None, stdout: bool) -> None:
    """Print records, or write them to the log, until the end or a signal."""
    from streamkit.runtime.local.supervisor import watch_lifeline
    from streamkit_cli.command_process import stopping

    with stopping() as stop_requested:
        watch_lifeline(stop_requested)
        batches = _paced(records, pace, stop_requested)
        written = _print(batches) if stdout else _write(plan, batches)
    if sys.stderr.isatty():
        print(f"{written} records made", file=sys.stderr)


def per_second(rate: str) -> float:
    """Return the records a second of `N/s`, `N/m` or `N/h`. Raises UsageError."""
    number, slash, unit = rate.partition("/")
    seconds = {"s": 1, "m": 60, "h": 3600}.get(unit)
    try:
        found = float(number) / (seconds or 0)
    except (ValueError, ZeroDivisionError):
        found = 0.0
    if not slash or not 0 < found < 1e9:
        raise UsageError(f"--rate {rate}: expected a number of records such as 100/s, 600/m or 1/h")
    return found


def _paced(
    records: Iterator[dict[str, Json]], per_second: float | None, stop_requested: Event
) -> Iterator[list[dict[str, Json]]]:
    """Yield records in batches, no more of them than the rate allows by then, until the end or a signal."""
    begin, made = time.monotonic(), 0
    while not stop_requested.is_set():
        due = BATCH if per_second is None else min(int((time.monotonic() - begin) * per_second) + 1 - made, BATCH)
        if due <= 0:
            stop_requested.wait(PAUSE)
            continue
        batch = list(islice(records, due))
        if not batch:
            return
        made += len(batch)
        yield batch


def _print(batches: Iterable[list[dict[str, Json]]]) -> int:
    from streamkit_cli.record_lines import json_line

    written = 0
    for batch in batches:
        sys.stdout.write("".join(map(json_line, batch)))
        sys.stdout.flush()
        written += len(batch)
    return written


def _write(plan: Plan, batches: Iterable[list[dict[str, Json]]]) -> int:
    from streamkit.runtime.records import RecordJson
    from streamkit_cli.logs import opened
    from streamkit_cli.record_lines import TopicTargets, row_of

    form, written = RecordJson(plan), 0
    with opened(plan) as transport, closing(transport.producer()) as producer:
        targets = TopicTargets(plan, transport, None)
        for batch in batches:
            producer.send([row_of(form, record, targets.of(record["topic"]), 0) for record in batch])
            written += len(batch)
        producer.flush()
    return written
