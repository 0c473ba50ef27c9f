"""`streamkit consume`: records of a topic to stdout."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamkit.errors import UsageError

from .guard import say
from .loading import load_plan
from .options import EnvFile, File, Settings
from .record_output import Format

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamkit.record import TopicPartition
    from streamkit.transport.base import Consumer

    from .record_output import Output
    from .record_tests import RecordTests
    from .topic_range import Range
    from .topic_reading import Found, Reading

Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        help="A topic, by the name of its entry in the file; or an internal topic such as counts-changelog.",
        show_default=False,
    ),
]
Max = Annotated[int | None, typer.Option("--max", metavar="N", min=0, help="End after N records.")]
UntilIdle = Annotated[bool, typer.Option("--until-idle", help="End when the topic is read to its end.")]
Follow = Annotated[bool, typer.Option("--follow", help="Go on after the end; the default without --tail and --to.")]
FromEnd = Annotated[bool, typer.Option("--from-end", help="Only records that arrive from now on.")]
Offset = Annotated[
    str | None,
    typer.Option(
        "--offset",
        metavar="OFFSET",
        help="Begin in each partition at this offset: N, earliest (the default), latest, or -N for the last N offsets.",
    ),
]
Partition = Annotated[
    list[str] | None,
    typer.Option("--partition", metavar="P", help="Only these partitions; may be repeated, or a list with commas."),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TIME",
        help="Only records of this time or later: 2025-01-31T08:00Z (UTC where it names no zone), milliseconds, a "
        "duration since 0 such as 90s, or before now such as -5m.",
    ),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="TIME", help="Only records of before this time; ends at the topic's present end."),
]
Tail = Annotated[
    int | None,
    typer.Option(
        "--tail",
        metavar="N",
        min=0,
        help="The last N records: of the last N of each partition, by offset, those with the latest timestamps, in the "
        "order of timestamp, partition and offset. Only records that meet the other conditions count.",
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help="Only records with this key: text, or JSON as its serde has it; of a windowed key also the key alone.",
    ),
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="EXPR",
        help="Only records for which this is true; names: key value timestamp headers topic partition offset.",
    ),
]
Lines = Annotated[bool, typer.Option("--lines", help="Only values, as plain lines: text, or JSON for other serdes.")]
WithOffsets = Annotated[bool, typer.Option("--with-offsets", help="Add the offset to each object of JSON Lines.")]
Form = Annotated[Format | None, typer.Option("--format", help="JSON Lines (the default), blocks or a table.")]


def command(
    file: File,
    topic: Topic,
    most: Max = None,
    until_idle: UntilIdle = False,
    follow: Follow = False,
    from_end: FromEnd = False,
    offset: Offset = None,
    partitions: Partition = None,
    since: From = None,
    until: To = None,
    tail: Tail = None,
    key: Key = None,
    where: Where = None,
    lines: Lines = False,
    with_offsets: WithOffsets = False,
    form: Form = None,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> None:
    """Print the records of a topic.

    JSON Lines from the topic's beginning on, until --max, --until-idle or a signal ends it; --tail and --to end it too,
    unless there is --follow. Nothing is created: no topic, no group, no state.
    """
    from streamkit.plan.lookup import find_readable
    from streamkit.runtime.opening import open_log
    from streamkit.runtime.topic_forms import TopicForms

    from .existing import awaited
    from .record_output import output
    from .record_tests import RecordTests
    from .stop_signals import stopping
    from .topic_range import places_of, read_range
    from .topic_reading import Reading

    _refuse_contradictions(locals())
    span = read_range(offset, from_end, since, until, partitions)
    plan = load_plan(file, settings, env_file)
    name = find_readable(plan, topic)
    tests = RecordTests(plan, TopicForms(plan, name), span, key, where)
    ends = not follow and (until_idle or tail is not None or until is not None or most == 0)
    out = output(form or Format.json, lines=lines, offsets=with_offsets)
    with stopping() as stopped, closing(open_log(plan)) as transport:
        info = awaited(transport, plan, name, None if ends else stopped)
        if info is None:
            return
        places = places_of(info.name, info.partitions, span.partitions)
        # Like a reader with read_committed: records of open or aborted transactions are not the topic's yet.
        with closing(transport.consumer(None, read_committed=True)) as consumer:
            reading = Reading(consumer, tests, stopped.is_set)
            polls = _polls(reading, consumer, places, span, tail, follow, until_idle, most)
            _write(polls, out, most)
    _report(tests)


_EXCLUSIVE = (
    ("--offset", "--from-end"),
    ("--offset", "--from"),
    ("--offset", "--tail"),
    ("--from-end", "--from"),
    ("--from-end", "--to"),
    ("--from-end", "--tail"),
    ("--max", "--tail"),
    ("--follow", "--until-idle"),
    ("--lines", "--format"),
    ("--lines", "--with-offsets"),
)
_PARAMETERS = {"--max": "most", "--from": "since", "--to": "until", "--format": "form"}


def _refuse_contradictions(given: dict[str, Any]) -> None:
    """Raise UsageError for two options that exclude each other."""
    for pair in _EXCLUSIVE:
        values = [given[_PARAMETERS.get(option, option[2:].replace("-", "_"))] for option in pair]
        if all(value is not None and value is not False for value in values):
            raise UsageError(f"{pair[0]} and {pair[1]} exclude each other")


def _polls(
    reading: Reading,
    consumer: Consumer,
    places: list[TopicPartition],
    span: Range,
    tail: int | None,
    follow: bool,
    until_idle: bool,
    most: int | None,
) -> Iterator[list[Found]]:
    """Yield what is wanted, a list for each poll."""
    from .topic_range import first_offsets

    if most == 0:
        return
    first = first_offsets(consumer, span.start, places)
    if tail is not None or span.until is not None:
        ends = consumer.end_offsets(places)
        if tail is not None:
            yield reading.last(tail, first, ends)
        else:
            yield from reading.between(first, ends)
        if not follow:
            return
        first = {place: max(first[place], end) for place, end in ends.items()}
    yield from reading.on(first, until_idle=until_idle, most=most)


def _write(polls: Iterator[list[Found]], out: Output, most: int | None) -> None:
    left = most
    for found in polls:
        for each in found[:left]:
            out.write(each)
        out.flush()
        left = None if left is None else left - len(found[:left])
        if left == 0:
            return


def _report(tests: RecordTests) -> None:
    if tests.failed:
        say(f"--where could not be answered for {tests.failed} of the records, which are left out: {tests.failure}")
