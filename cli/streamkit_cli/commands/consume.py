"""`streamkit consume`: the records of a topic, as JSON Lines, values, blocks or a table."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Protocol

import typer

from streamkit.durations import LONGEST, option_time
from streamkit.errors import SerdeError, TopicError, UsageError
from streamkit.plan.model import Plan, find_readable
from streamkit.record import TopicPartition
from streamkit.runtime.execution.dead_letters import DeadLetter, is_dead_letter, read_dead_letter
from streamkit.runtime.operations.topic_reading import (
    KeyCondition,
    Range,
    Reading,
    RecordFilter,
    Row,
    SelectedRecord,
    Target,
    TopicForms,
    first_offsets,
    record_json,
)
from streamkit.runtime.records import RecordJson, headers_to_json
from streamkit.serdes.plain import Document, Json
from streamkit.suggestions import number_of
from streamkit.transport.log_interface import Consumer, TopicInfo, Transport
from streamkit_cli.guard import print_message
from streamkit_cli.loading import load_plan, silence_noticed
from streamkit_cli.options import TIME_HELP, EnvFile, File, Settings, readable_topics
from streamkit_cli.record_lines import json_line, line_of_value


class Format(StrEnum):
    """The formats of consume."""

    json = "json"
    text = "text"
    pretty = "pretty"
    table = "table"


Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        help="A topic, by the name of its entry in the file, or an internal topic such as counts-changelog.",
        show_default=False,
        autocompletion=readable_topics,
    ),
]
Limit = Annotated[
    int | None, typer.Option("--limit", "--max", metavar="N", min=0, help="Stop after N records; --max is the same.")
]
UntilIdle = Annotated[bool, typer.Option("--until-idle", help="Stop at the end of the topic.")]
Follow = Annotated[bool, typer.Option("--follow", help="Continue after the end; the default without --tail and --to.")]
FromEnd = Annotated[bool, typer.Option("--from-end", help="Only records that arrive from now on.")]
Offset = Annotated[
    str | None,
    typer.Option(
        "--offset",
        metavar="OFFSET",
        help="Start each partition at this offset: N, earliest (the default), latest, or -N for the last N offsets.",
    ),
]
Partition = Annotated[
    list[str] | None,
    typer.Option("--partition", metavar="P", help="Only these partitions; may be repeated or a comma-separated list."),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TIME",
        help=f"Only records with this timestamp or a later one: {TIME_HELP}.",
    ),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="TIME", help="Only records before this time; stops at the topic's current end."),
]
Tail = Annotated[
    int | None,
    typer.Option(
        "--tail",
        metavar="N",
        min=0,
        max=LONGEST,
        help="The last N records: among the last N of each partition, by offset, those with the latest timestamps, ordered by timestamp, partition and offset. Only records that meet the other conditions count.",
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help="Only records with this key: text, or the JSON form of its serde; for windowed keys, the key alone also matches.",
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
PlainLines = Annotated[
    bool, typer.Option("--lines", help="Only values, as plain lines: text, or JSON for other serdes.")
]
WithOffsets = Annotated[bool, typer.Option("--with-offsets", help="Add the offset to each object of JSON Lines.")]
Form = Annotated[
    Format | None, typer.Option("--format", help="JSON Lines (the default), blocks (pretty), or a table (text, table).")
]


def consume(
    file: File,
    topic: Topic,
    limit: Limit = None,
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
    lines: PlainLines = False,
    with_offsets: WithOffsets = False,
    form: Form = None,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> None:
    """Print the records of a topic.

    Prints JSON Lines from the topic's beginning until --limit, --until-idle or a signal ends it; --tail and --to also
    end it, unless --follow is given. It creates nothing: no topic, no group, no state.

    Examples:
        streamkit consume orders.yaml totals --tail 10 --format table
        streamkit consume orders.yaml orders --from -1h --where 'value.cents > 500'
    """
    from streamkit.runtime.operations.opening import open_log
    from streamkit_cli.command_process import stopping

    _refuse_contradictions(locals())
    span = read_range(offset, from_end, since, until, partitions)
    plan = load_plan(file, settings, env_file)
    name = find_readable(plan, topic)
    forms = TopicForms(plan, name)
    record_filter = RecordFilter(plan, forms, span, _key_condition(forms, key), where)
    ends = not follow and (until_idle or tail is not None or until is not None or limit == 0)
    out = output(form or Format.json, plan, lines=lines, offsets=with_offsets)
    with stopping() as stopped, closing(open_log(plan)) as transport, silence_noticed(plan):
        info = wait_for_topic(transport, plan, name, None if ends else stopped)
        if info is None:
            return
        places = places_of(info.name, info.partitions, span.partitions)
        # With read_committed, records of open or aborted transactions are left out.
        with closing(transport.consumer(None, read_committed=True)) as consumer:
            reading = Reading(consumer, record_filter, stopped.is_set)
            polls = _polls(reading, consumer, places, span, tail, follow, until_idle, limit)
            _write(polls, out, limit)
    _report(record_filter)


def _key_condition(forms: TopicForms, key: str | None) -> KeyCondition | None:
    """Return the condition of `--key`. Raises UsageError if no serde of the topic's keys accepts the key."""
    try:
        return None if key is None else KeyCondition(forms, key)
    except SerdeError as error:
        raise UsageError(f"--key {key}: {error}") from error


_EXCLUSIVE = (
    ("--offset", "--from-end"),
    ("--offset", "--from"),
    ("--offset", "--tail"),
    ("--from-end", "--from"),
    ("--from-end", "--to"),
    ("--from-end", "--tail"),
    ("--limit", "--tail"),
    ("--follow", "--until-idle"),
    ("--lines", "--format"),
    ("--lines", "--with-offsets"),
)
_PARAMETERS = {"--from": "since", "--to": "until", "--format": "form"}


def _refuse_contradictions(options: Mapping[str, object]) -> None:
    """Raise UsageError for two options that exclude each other."""
    for pair in _EXCLUSIVE:
        values = [options[_PARAMETERS.get(option, option[2:].replace("-", "_"))] for option in pair]
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
) -> Iterator[list[SelectedRecord]]:
    """Yield the selected records, a list for each poll."""
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
        first = {partition: max(first[partition], end) for partition, end in ends.items()}
    yield from reading.follow(first, until_idle=until_idle, most=most)


def _write(polls: Iterator[list[SelectedRecord]], out: Output, most: int | None) -> None:
    left = most
    for records in polls:
        for record in records[:left]:
            out.write(record)
        out.flush()
        left = None if left is None else left - len(records[:left])
        if left == 0:
            return


def _report(record_filter: RecordFilter) -> None:
    if record_filter.failed:
        print_message(
            f"--where could not be evaluated for {record_filter.failed} of the records, which are left out: {record_filter.failure}"
        )


# The part of a topic that the options of a command name: partitions, offsets and times.


def read_range(
    offset: str | None, from_end: bool, since: str | None, until: str | None, partitions: Sequence[str] | None
) -> Range:
    """Return the range of the options. Raises UsageError."""
    low = None if since is None else option_time("--from", since)
    high = None if until is None else option_time("--to", until)
    if low is not None and high is not None and low >= high:
        raise UsageError(f"--from {since} is not before --to {until}")
    if low is not None:
        start = Target("time", max(low, 0))
    else:
        start = Target("latest") if from_end else _start(offset or "earliest")
    return Range(start, low, high, None if partitions is None else _numbers(partitions))


def _start(text: str) -> Target:
    if text in ("earliest", "latest"):
        return Target(text)
    if not re.fullmatch(r"-?[0-9]{1,18}", text, re.ASCII):
        raise UsageError(f"--offset {text}: expected an offset, earliest, latest, or -N for the last N offsets")
    return Target("shift" if text.startswith("-") else "offset", int(text))


def _numbers(texts: Sequence[str]) -> frozenset[int]:
    numbers = set()
    for part in ",".join(texts).split(","):
        if not re.fullmatch(r"[0-9]{1,9}", part.strip(), re.ASCII):
            raise UsageError(f"--partition {part.strip()}: expected a number, or several separated by commas")
        numbers.add(int(part))
    return frozenset(numbers)


def places_of(topic: str, count: int, wanted: frozenset[int] | None) -> list[TopicPartition]:
    """Return the partitions to read. Raises UsageError for one that the topic does not have."""
    missing = sorted(number for number in wanted or () if number >= count)
    if missing:
        raise UsageError(f"--partition {missing[0]}: topic {topic} has {number_of(count, 'partition')}, counted from 0")
    return [TopicPartition(topic, number) for number in (range(count) if wanted is None else sorted(wanted))]


# Waits until a topic exists, for a command that creates nothing.

_PAUSE_SECONDS = 0.2


def wait_for_topic(transport: Transport, plan: Plan, name: str, stopped: threading.Event | None) -> TopicInfo | None:
    """Return a topic as soon as it exists; None if it does not exist, or if `stopped` is set first.

    stopped None: do not wait. Raises TopicError for a missing topic that the file does not declare with partitions.
    """
    from streamkit.runtime.operations.opening import address

    is_reported = False
    while (location := transport.missing()) is not None:
        if stopped is None:
            raise TopicError(f"there is no log in {location} yet; a command that writes creates it")
        if not is_reported:
            print_message(f"there is no log in {location} yet: waiting")
            is_reported = True
        if stopped.wait(_PAUSE_SECONDS):
            return None
    with closing(transport.admin()) as admin:
        while name not in (existing := admin.topics([name])):
            where = f"topic {name} does not exist at {address(plan)}"
            declared = plan.external_topics.get(name)
            if declared is not None and not declared.partitions and not address(plan).startswith("embedded"):
                raise TopicError(f"{where}; it is created where `partitions` is declared")
            if stopped is None:
                if declared is None:
                    raise TopicError(f"{where}; the application creates it when it runs")
                print_message(f"{where} yet")
                return None
            if not is_reported:
                print_message(f"{where} yet: waiting")
                is_reported = True
            if stopped.wait(_PAUSE_SECONDS):
                return None
        return existing[name]


# The formats of the output.


class Output(Protocol):
    """Writes records; the caller flushes after each poll."""

    def write(self, record: SelectedRecord) -> None:
        """Add a record."""

    def flush(self) -> None:
        """Write the added records."""


def output(form: Format, plan: Plan, *, lines: bool, offsets: bool) -> Output:
    """Return the output of the options for records of a plan's topics."""
    if lines:
        return Values()
    if form is Format.json:
        return JsonLines(offsets)
    forms = RecordJson(plan)
    return Blocks(forms) if form is Format.pretty else Table(forms)


class JsonLines:
    """One object per line."""

    def __init__(self, offsets: bool):
        self._offsets = offsets

    def write(self, record: SelectedRecord) -> None:
        sys.stdout.write(json_line(record_json(record, offsets=self._offsets)))

    def flush(self) -> None:
        sys.stdout.flush()


class Values:
    """One value per line."""

    def write(self, record: SelectedRecord) -> None:
        value = record.decoded.sides[1].json(record.decoded.value)
        sys.stdout.write(line_of_value(value, record.row.value))

    def flush(self) -> None:
        sys.stdout.flush()


class Blocks:
    """A line that names the record, and below it key, headers and value, indented; with colours on a terminal.

    A dead letter is shown as its record, in the form of the record's topic; the failure replaces the headers that describe it.
    """

    def __init__(self, forms: RecordJson) -> None:
        from rich.console import Console
        from rich.highlighter import JSONHighlighter

        self._console = Console(highlighter=JSONHighlighter(), markup=False, emoji=False, soft_wrap=True)
        self._forms = forms

    def write(self, record: SelectedRecord) -> None:
        document = record_json(record)
        row = record.row
        self._console.print(f"{row.topic}-{row.partition}@{row.offset}  {time_text(row.timestamp)}", highlight=False)
        if is_dead_letter(row.headers):
            letter, document = _letter_of(row, self._forms)
            self._print_failure(letter)
        for name in ("key", "headers", "value", "error"):
            if name in document:
                text = json.dumps(document[name], ensure_ascii=False, indent=None if name == "headers" else 2)
                self._console.print(f"  {name + ':':<9}{text.replace(chr(10), chr(10) + ' ' * 11)}")

    def _print_failure(self, letter: DeadLetter) -> None:
        """Print what failed, where and when."""
        facts = (
            ("failed", _failure(letter)),
            ("step", letter.step),
            ("read at", _source_of(letter)),
            ("time", time_text(letter.failed_at)),
        )
        for name, text in facts:
            if text:
                self._console.print(f"  {name + ':':<9}{_printable(text)}", highlight=False)

    def flush(self) -> None:
        sys.stdout.flush()


def _letter_of(row: Row, forms: RecordJson) -> tuple[DeadLetter, dict[str, Json]]:
    """Return a dead letter, and its record in the form of the record's own topic, without the headers that describe the failure."""
    partition = TopicPartition(row.topic, row.partition)
    letter = read_dead_letter(partition, row.offset, (row.key, row.value, row.timestamp, row.headers))
    key, value = forms.decode_source(letter.topic, letter.key, letter.value)
    headers = {"headers": headers_to_json(letter.headers)} if letter.headers else {}
    return letter, {"key": key, "value": value, **headers}


def _failure(letter: DeadLetter) -> str:
    return ": ".join(filter(None, (letter.error, letter.message)))


def _source_of(letter: DeadLetter) -> str:
    return f"{letter.topic}-{letter.partition}@{letter.offset}" if letter.topic else "no record"


_COLUMNS = ("PARTITION", "OFFSET", "TIME", "KEY", "HEADERS", "VALUE")
_NUMBERS = 2
"""The first columns, which are aligned to the right."""
_WIDEST = 40
"""Characters to which a cell widens its column; a longer one is printed in full and shifts the rest of its row."""


class Table:
    """A table whose header is printed once; columns widen while records arrive.

    A dead letter is shown as its record; the failure follows its value.
    """

    def __init__(self, forms: RecordJson) -> None:
        from rich.console import Console

        self._forms = forms

        self._width = Console().width if sys.stdout.isatty() else None
        self._widths = [len(name) for name in _COLUMNS]
        self._rows: list[tuple[str, ...]] = []
        self._is_begun = False

    def write(self, record: SelectedRecord) -> None:
        row = record.row
        document: dict[str, Document] = record_json(record)
        error = document.get("error")
        if is_dead_letter(row.headers):
            letter, document = _letter_of(row, self._forms)
            at = f" at {letter.step}" if letter.step else ""
            error = f"{_failure(letter)}{at}, read at {_source_of(letter)}"
        value = "; ".join(filter(None, (_cell(document["value"]), error)))
        headers = " ".join(f"{name}={_cell(text)}" for name, text in document.get("headers", ())) or "-"
        cells = (str(row.partition), str(row.offset), time_text(row.timestamp), _cell(document["key"]), headers, value)
        self._rows.append(tuple(_printable(cell) for cell in cells))

    def flush(self) -> None:
        from rich.cells import cell_len

        rows = self._rows if self._is_begun else [_COLUMNS, *self._rows]
        if not self._rows:
            return
        for row in rows:
            for at, cell in enumerate(row[:-1]):
                self._widths[at] = max(self._widths[at], min(cell_len(cell), _WIDEST))
        for row in rows:
            sys.stdout.write(self._line(row) + "\n")
        sys.stdout.flush()
        self._rows, self._is_begun = [], True

    def _line(self, row: tuple[str, ...]) -> str:
        from rich.cells import cell_len, set_cell_size

        cells = []
        for at, (cell, width) in enumerate(zip(row[:-1], self._widths, strict=False)):
            blank = " " * (width - cell_len(cell))
            cells.append(blank + cell if at < _NUMBERS else cell + blank)
        line = "  ".join((*cells, row[-1]))
        if self._width is None or cell_len(line) <= self._width:
            return line
        return set_cell_size(line, self._width - 1) + "…"


def _cell(value: Json) -> str:
    return json_line(value)[:-1]


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(character if character.isprintable() else "�" for character in text)


def time_text(timestamp: int) -> str:
    """Return a timestamp (ms) as ISO 8601 in UTC, or as a number if it is not a valid date.

    >>> time_text(1_700_000_000_123), time_text(-1)
    ('2023-11-14T22:13:20.123Z', '-1')
    """
    try:
        seconds, rest = divmod(timestamp, 1000)
        return (
            f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03}Z" if timestamp >= 0 else str(timestamp)
        )
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
