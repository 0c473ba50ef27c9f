"""`streamkit produce` writes records from stdin to topics; `streamkit generate` writes generated ones."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from threading import Event
from typing import Annotated

import typer

from streamkit.durations import option_time
from streamkit.errors import SerdeError, StreamkitError, UsageError
from streamkit.plan.model import Plan, find_topic
from streamkit.record import OutputTuple
from streamkit.serdes.plain import Json
from streamkit.suggestions import number_of
from streamkit_cli.commands.submit import SampleConf, SampleLimit, check_sample_options, sample_of
from streamkit_cli.loading import load_plan, opened, refuse_stdin
from streamkit_cli.options import TIME_HELP, EnvFile, File, Settings, topics
from streamkit_cli.record_lines import (
    STDIN,
    TopicTargets,
    batches,
    input_lines,
    json_line,
    parse_record,
    row_of,
    value_of_line,
)

PlainLines = Annotated[bool, typer.Option("--lines", help="Each line is a value without a key.")]


Target = Annotated[
    str | None,
    typer.Argument(
        metavar="TOPIC",
        help="The topic, by the name of its entry in the file; if absent, each record must name its topic.",
        autocompletion=topics,
    ),
]


def produce(
    file: File, topic: Target = None, lines: PlainLines = False, settings: Settings = None, env_file: EnvFile = None
) -> None:
    """Write records from stdin to a topic.

    Each line is a JSON object. Its members key, value, timestamp, headers and partition are optional; topic is required
    if the command names no TOPIC. A timestamp is a number of milliseconds, a time such as 2025-01-31T08:00:00Z (UTC by
    default), or a duration since 0 such as 90s. A missing topic is created as the file declares it.

    Examples:
        streamkit produce orders.yaml orders < orders.jsonl
        echo tea | streamkit produce words.yaml lines --lines
    """

    refuse_stdin(file)
    plan = load_plan(file, settings, env_file)
    if lines and topic is None:
        raise UsageError("--lines needs a TOPIC, since plain lines do not name one")
    single_topic = find_topic(plan, topic) if topic is not None else None
    with opened(plan) as transport:
        targets = TopicTargets(plan, transport, single_topic)
        producer = transport.producer()
        written = 0
        try:
            for rows in batches(_rows(plan, targets, lines)):
                producer.send(rows)
                written += len(rows)
            producer.flush()
        except SerdeError as error:
            producer.flush()
            raise SerdeError(f"{error}; records written before it: {written}") from None
        finally:
            producer.close()
    if sys.stderr.isatty():
        print(f"{number_of(written, 'record')} written to {', '.join(targets.names)}", file=sys.stderr)


def _rows(plan: Plan, targets: TopicTargets, lines: bool) -> Iterator[OutputTuple]:
    from streamkit.runtime.records import RecordJson

    form = RecordJson(plan)
    for number, line in enumerate(input_lines("-"), 1):
        if not lines and not line.strip():
            continue
        try:
            if lines:
                target, partitions = targets.of(None)
                record = {"value": value_of_line(line, target.value_serde)}
            else:
                record = parse_record(line)
                target, partitions = targets.of(record.get("topic"))
            row = row_of(form, record, (target, partitions), time.time_ns() // 1_000_000)
        except StreamkitError as error:
            raise SerdeError(f"{STDIN}:{number}: {error}") from None
        yield row


# `streamkit generate`: test data into topics, or to stdout.


PAUSE = 0.05
"""Seconds between two batches of a paced run."""
BATCH = 1000

Topics = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC", help="The topics, by the names of their entries; all by default.", autocompletion=topics
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
        help=f"The time of the first records: {TIME_HELP}. The default is now, or with --stdout 2025-01-01T00:00Z.",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="TOPIC=PLACE",
        help="Use a sample of files or of a table, as in submit, instead of the generators; needs Spark. Repeatable.",
        autocompletion=topics,
    ),
]
ToStdout = Annotated[bool, typer.Option("--stdout", help="Print JSON Lines, which produce and try can read.")]


def generate(
    file: File,
    chosen_topics: Topics = None,
    rate: Rate = None,
    count: Count = None,
    seed: Seed = 0,
    start: Start = None,
    stdout: ToStdout = False,
    inputs: Inputs = None,
    limit: SampleLimit = None,
    conf: SampleConf = None,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> None:
    """Create test data with the generators of a topology.

    Generators are in the section generators of the file, or in NAME.generators.yaml beside NAME.yaml. The same seed and
    start give the same records. Endless records need --rate or --count; SIGTERM and SIGINT end the command.
    With --input the records come from a lake instead, unchanged.

    Examples:
        streamkit generate orders.yaml --rate 100/s
        streamkit generate orders.yaml --count 1000 --seed 7 --stdout > orders.jsonl
    """
    pace = None if rate is None else per_second(rate)
    check_sample_options(inputs or (), limit, conf)
    if inputs:
        for option, is_given in (("TOPIC", chosen_topics), ("--seed", seed), ("--start", start)):
            if is_given:
                raise UsageError(f"{option} and --input exclude each other: {option} is for generators")
        plan = load_plan(file, settings, env_file)
        _output(
            plan, islice(iter(sample_of(plan, inputs, count if limit is None else limit, conf)), count), pace, stdout
        )
        return
    from streamkit.testing.generated_records import START, chosen, generated, is_endless

    now = time.time_ns() // 1_000_000
    first = option_time("--start", start) if start is not None else START if stdout else now
    plan = load_plan(file, settings, env_file)
    generators = chosen(plan.generators, chosen_topics or ())
    if count is None and pace is None and is_endless(generators):
        endless = ", ".join(generator.topic for generator in generators if generator.count is None)
        raise UsageError(f"the records of {endless} never end; give --count N or --rate N/s")
    _output(plan, islice(generated(generators, seed, first, pace), count), pace, stdout)


def _output(plan: Plan, records: Iterator[dict[str, Json]], pace: float | None, stdout: bool) -> None:
    """Print records, or write them to the log, until the end or a signal."""
    from streamkit.runtime.local.supervisor import watch_lifeline
    from streamkit_cli.command_process import stopping

    with stopping() as stop_requested:
        watch_lifeline(stop_requested)
        batches = _paced(records, pace, stop_requested)
        written = _print(batches) if stdout else _write(plan, batches)
    if sys.stderr.isatty():
        print(f"{number_of(written, 'record')} generated", file=sys.stderr)


def per_second(rate: str) -> float:
    """Return the number of records per second of a rate `N/s`, `N/m` or `N/h`. Raises UsageError."""
    number, slash, unit = rate.partition("/")
    seconds = {"s": 1, "m": 60, "h": 3600}.get(unit)
    try:
        rate_per_second = float(number) / (seconds or 0)
    except (ValueError, ZeroDivisionError):
        rate_per_second = 0.0
    if not slash or not 0 < rate_per_second < 1e9:
        raise UsageError(f"--rate {rate}: expected a number of records such as 100/s, 600/m or 1/h")
    return rate_per_second


def _paced(
    records: Iterator[dict[str, Json]], per_second: float | None, stop_requested: Event
) -> Iterator[list[dict[str, Json]]]:
    """Yield records in batches until the end or a signal, and never more than the rate allows so far."""
    begin, written = time.monotonic(), 0
    while not stop_requested.is_set():
        due = BATCH if per_second is None else min(int((time.monotonic() - begin) * per_second) + 1 - written, BATCH)
        if due <= 0:
            stop_requested.wait(PAUSE)
            continue
        batch = list(islice(records, due))
        if not batch:
            return
        written += len(batch)
        yield batch


def _print(batches: Iterable[list[dict[str, Json]]]) -> int:
    written = 0
    for batch in batches:
        sys.stdout.write("".join(map(json_line, batch)))
        sys.stdout.flush()
        written += len(batch)
    return written


def _write(plan: Plan, batches: Iterable[list[dict[str, Json]]]) -> int:
    from streamkit.runtime.records import RecordJson

    form, written = RecordJson(plan), 0
    with opened(plan) as transport, closing(transport.producer()) as producer:
        targets = TopicTargets(plan, transport, None)
        for batch in batches:
            producer.send([row_of(form, record, targets.of(record["topic"]), 0) for record in batch])
            written += len(batch)
        producer.flush()
    return written
