"""`streamkit produce`: records from stdin into a topic."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Annotated

import typer

from streamkit.errors import SerdeError, StreamkitError, UsageError
from streamkit.plan.lookup import find_topic
from streamkit.plan.model import Plan
from streamkit.record import OutputTuple
from streamkit_cli.loading import load_plan, refuse_stdin
from streamkit_cli.options import EnvFile, File, Settings, topics
from streamkit_cli.record_lines import STDIN, TopicTargets, batches, input_lines, parse_record, row_of, value_of_line

PlainLines = Annotated[bool, typer.Option("--lines", help="Each line is a value without a key.")]


Target = Annotated[
    str | None,
    typer.Argument(
        metavar="[TOPIC]",
        help="A topic, by the name of its entry in the file; without it, each record names its topic.",
        autocompletion=topics,
    ),
]

EXAMPLES = (
    "streamkit produce orders.yaml orders < orders.jsonl",
    "echo tea | streamkit produce words.yaml lines --lines",
)
"""The examples of the help."""


def command(
    file: File, topic: Target = None, lines: PlainLines = False, settings: Settings = None, env_file: EnvFile = None
) -> None:
    """Write records from stdin to a topic.

    Records are JSON Lines with key, value, timestamp, headers and partition, all optional, and with topic if the
    command names none. A timestamp is a number of milliseconds, a time such as 2025-01-31T08:00:00Z (UTC by default),
    or a duration since 0 such as 90s. A missing topic is created as the file declares it.
    """
    from streamkit_cli.logs import opened

    refuse_stdin(file)
    plan = load_plan(file, settings, env_file)
    if lines and topic is None:
        raise UsageError("--lines needs a TOPIC: plain lines name none")
    only = find_topic(plan, topic) if topic is not None else None
    with opened(plan) as transport:
        targets = TopicTargets(plan, transport, only)
        producer = transport.producer()
        written = 0
        try:
            for rows in batches(_rows(plan, targets, lines)):
                producer.send(rows)
                written += len(rows)
            producer.flush()
        except SerdeError as error:
            producer.flush()
            raise SerdeError(f"{error}; the {written} records before it are written") from None
        finally:
            producer.close()
    if sys.stderr.isatty():
        print(f"{written} records written to {', '.join(targets.names)}", file=sys.stderr)


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
