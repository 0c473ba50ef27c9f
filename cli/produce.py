"""`streamkit produce`: records from stdin into a topic."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamkit.errors import SerdeError, StreamkitError

from .lines import STDIN, input_lines, parsed, value_of_line
from .loading import find_topic, load_plan, refuse_stdin
from .options import EnvFile, File, Settings, Topic

if TYPE_CHECKING:
    from streamkit.plan.model import ExternalTopic, Plan

BATCH = 1000
Lines = Annotated[bool, typer.Option("--lines", help="Each line is a value; the key is absent.")]


def command(
    file: File, topic: Topic, lines: Lines = False, settings: Settings = None, env_file: EnvFile = None
) -> None:
    """Write records from stdin to a topic.

    Records are JSON Lines with key, value, timestamp, headers and partition, all optional. A missing topic is created
    as the file declares it.
    """
    from .logs import existing_topic, opened

    refuse_stdin(file)
    plan = load_plan(file, settings, env_file)
    target = find_topic(plan, topic)
    with opened(plan) as transport:
        partitions = existing_topic(transport, plan, target).partitions
        producer = transport.producer()
        written = 0
        try:
            for rows in _batches(_rows(plan, target, partitions, lines)):
                producer.send(rows)
                written += len(rows)
            producer.flush()
        except SerdeError as error:
            producer.flush()
            raise SerdeError(f"{error}; the {written} records before it are written") from None
        finally:
            producer.close()
    if sys.stderr.isatty():
        print(f"{written} records written to {target.name}", file=sys.stderr)


def _batches(rows: Iterator[Any]) -> Iterator[list[tuple]]:
    """Yield rows in batches; at a bad line what came before first, then its error."""
    batch: list[tuple] = []
    try:
        for row in rows:
            batch.append(row)
            if len(batch) == BATCH:
                yield batch
                batch = []
    except SerdeError:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def _rows(plan: Plan, target: ExternalTopic, partitions: int, lines: bool) -> Iterator[tuple]:
    from streamkit.runtime.records import RecordJson

    form = RecordJson(plan)
    for number, line in enumerate(input_lines("-"), 1):
        if not lines and not line.strip():
            continue
        try:
            record = {"value": value_of_line(line, target.value_serde)} if lines else parsed(line)
            if record.get("topic", target.name) not in (target.name, target.entry):
                raise SerdeError(f"the record is for topic {record['topic']!r}, not {target.entry!r}")
            _check_partition(record.get("partition"), partitions)
            row = form.encode({**record, "topic": target.name}, time.time_ns() // 1_000_000, _any_topic)
        except StreamkitError as error:
            raise SerdeError(f"{STDIN}:{number}: {error}") from None
        yield row


def _check_partition(partition: Any, partitions: int) -> None:
    if partition is not None and (type(partition) is not int or not 0 <= partition < partitions):
        raise SerdeError(f"partition is {partition!r}; the topic has {partitions}")


def _any_topic(topic: str) -> None:
    """Let any topic be written, also one that the topology only writes."""
