"""`streamkit produce`: records from stdin into a topic."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamkit.errors import SerdeError, StreamkitError, UsageError
from streamkit.plan.lookup import find_topic

from .json_lines import STDIN, input_lines, parsed, value_of_line
from .loading import load_plan, refuse_stdin
from .options import EnvFile, File, Settings

if TYPE_CHECKING:
    from streamkit.plan.model import ExternalTopic, Plan
    from streamkit.transport.base import Transport

BATCH = 1000
Lines = Annotated[bool, typer.Option("--lines", help="Each line is a value; the key is absent.")]


Target = Annotated[
    str | None,
    typer.Argument(
        metavar="[TOPIC]", help="A topic, by the name of its entry in the file; without it each record names its own."
    ),
]


def command(
    file: File, topic: Target = None, lines: Lines = False, settings: Settings = None, env_file: EnvFile = None
) -> None:
    """Write records from stdin to a topic.

    Records are JSON Lines with key, value, timestamp, headers and partition, all optional; with topic where none is
    named here. A timestamp is milliseconds, a time such as 2025-01-31T08:00:00Z, UTC where it names no zone, or a
    duration since 0 such as 90s. A missing topic is created as the file declares it.
    """
    from .logs import opened

    refuse_stdin(file)
    plan = load_plan(file, settings, env_file)
    if lines and topic is None:
        raise UsageError("--lines needs a TOPIC: plain lines name none")
    only = find_topic(plan, topic) if topic is not None else None
    with opened(plan) as transport:
        targets = _Targets(plan, transport, only)
        producer = transport.producer()
        written = 0
        try:
            for rows in _batches(_rows(plan, targets, lines)):
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


class _Targets:
    """The topics that records go to, each looked up on the log, and created where it is missing, once."""

    def __init__(self, plan: Plan, transport: Transport, only: ExternalTopic | None):
        self._plan = plan
        self._transport = transport
        self._only = only
        self._found: dict[str, tuple[ExternalTopic, int]] = {}
        if only is not None:
            self._take(only.entry, only)

    @property
    def names(self) -> list[str]:
        """The topics so far."""
        return list(dict.fromkeys(topic.name for topic, _ in self._found.values()))

    def of(self, name: Any) -> tuple[ExternalTopic, int]:
        """Return the topic of an entry's or its own name, and how many partitions it has. Raises SerdeError."""
        if self._only is not None:
            if name not in (None, self._only.name, self._only.entry):
                raise SerdeError(f"the record is for topic {name!r}, not {self._only.entry!r}")
            return self._found[self._only.entry]
        if not isinstance(name, str):
            raise SerdeError("the record has no topic; it needs one where the command names none")
        if name not in self._found:
            topic = self._plan.external_topics.get(name)
            try:
                self._take(name, topic if topic is not None else find_topic(self._plan, name))
            except UsageError as error:
                raise SerdeError(str(error)) from None
        return self._found[name]

    def _take(self, name: str, topic: ExternalTopic) -> None:
        from .logs import existing_topic

        self._found[name] = (topic, existing_topic(self._transport, self._plan, topic).partitions)


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


def _rows(plan: Plan, targets: _Targets, lines: bool) -> Iterator[tuple]:
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
                record = parsed(line)
                target, partitions = targets.of(record.get("topic"))
            _check_partition(record.get("partition"), partitions)
            row = form.encode({**record, "topic": target.name}, time.time_ns() // 1_000_000, _any_topic)
            if row[3] < 0:
                raise SerdeError(f"timestamp is {record['timestamp']!r}; Kafka takes none before 1970-01-01T00:00:00Z")
        except StreamkitError as error:
            raise SerdeError(f"{STDIN}:{number}: {error}") from None
        yield row


def _check_partition(partition: Any, partitions: int) -> None:
    if partition is not None and (type(partition) is not int or not 0 <= partition < partitions):
        raise SerdeError(f"partition is {partition!r}; the topic has {partitions}")


def _any_topic(topic: str) -> None:
    """Let any topic be written, also one that the topology only writes."""
