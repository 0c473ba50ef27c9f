"""Writes records of a topic to stdout: JSON Lines, plain values, blocks or a table."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Protocol

from streamkit.plan.model import Plan
from streamkit.record import TopicPartition
from streamkit.runtime.execution.dead_letters import is_dead_letter, read_dead_letter
from streamkit.runtime.operations.topic_reading import Found, Row, record_json
from streamkit.runtime.records import RecordJson, headers_to_json
from streamkit.serdes.plain import Document
from streamkit_cli.record_lines import json_line, line_of_value


class Format(StrEnum):
    """The formats of consume."""

    json = "json"
    text = "text"
    pretty = "pretty"
    table = "table"


class Output(Protocol):
    """Writes records; the caller flushes after each poll."""

    def write(self, found: Found) -> None:
        """Add a record."""

    def flush(self) -> None:
        """Write the added records."""


def output(form: Format, plan: Plan, *, lines: bool, offsets: bool) -> Output:
    """Return the output of the options for records of a plan's topics."""
    if lines:
        return Values()
    if form is Format.json:
        return JsonLines(offsets)
    return Blocks(RecordJson(plan)) if form is Format.pretty else Table()


class JsonLines:
    """One object a line."""

    def __init__(self, offsets: bool):
        self._offsets = offsets

    def write(self, found: Found) -> None:
        sys.stdout.write(json_line(record_json(found, offsets=self._offsets)))

    def flush(self) -> None:
        sys.stdout.flush()


class Values:
    """One value a line."""

    def write(self, found: Found) -> None:
        value = found.decoded.sides[1].json(found.decoded.value)
        sys.stdout.write(line_of_value(value, found.row.value))

    def flush(self) -> None:
        sys.stdout.flush()


class Blocks:
    """A line that names the record, and below it key, headers and value, indented; with colours on a terminal.

    A dead letter is shown as its record, in the form of the record's topic, with the failure in place of the headers about it.
    """

    def __init__(self, forms: RecordJson) -> None:
        from rich.console import Console
        from rich.highlighter import JSONHighlighter

        self._console = Console(highlighter=JSONHighlighter(), markup=False, emoji=False, soft_wrap=True)
        self._forms = forms

    def write(self, found: Found) -> None:
        record = record_json(found)
        row = found.row
        self._console.print(f"{row.topic}-{row.partition}@{row.offset}  {time_text(row.timestamp)}", highlight=False)
        if is_dead_letter(row.headers):
            record = self._dead_letter(row)
        for name in ("key", "headers", "value", "error"):
            if name in record:
                text = json.dumps(record[name], ensure_ascii=False, indent=None if name == "headers" else 2)
                self._console.print(f"  {name + ':':<9}{text.replace(chr(10), chr(10) + ' ' * 11)}")

    def _dead_letter(self, row: Row) -> dict[str, Document]:
        """Print what failed, where and when, and return the record in the form of its own topic."""
        place = TopicPartition(row.topic, row.partition)
        letter = read_dead_letter(place, row.offset, (row.key, row.value, row.timestamp, row.headers))
        source = f"{letter.topic}-{letter.partition}@{letter.offset}" if letter.topic else "no record"
        facts = (
            ("failed", ": ".join(filter(None, (letter.error, letter.message)))),
            ("step", letter.step),
            ("read at", source),
            ("time", time_text(letter.failed_at)),
        )
        for name, text in facts:
            if text:
                self._console.print(f"  {name + ':':<9}{_printable(text)}", highlight=False)
        key, value = self._forms.decode_source(letter.topic, letter.key, letter.value)
        headers = {"headers": headers_to_json(letter.headers)} if letter.headers else {}
        return {"key": key, "value": value, **headers}

    def flush(self) -> None:
        sys.stdout.flush()


_COLUMNS = ("PARTITION", "OFFSET", "TIME", "KEY", "HEADERS", "VALUE")
_NUMBERS = 2
"""The first columns, which are aligned to the right."""
_WIDEST = 40
"""Characters to which a cell widens its column; a longer one is printed in full and shifts the rest of its row."""


class Table:
    """Rows below a head that is printed once; columns widen while records arrive."""

    def __init__(self) -> None:
        from rich.console import Console

        self._width = Console().width if sys.stdout.isatty() else None
        self._widths = [len(name) for name in _COLUMNS]
        self._rows: list[tuple[str, ...]] = []
        self._is_begun = False

    def write(self, found: Found) -> None:
        row = found.row
        record: dict[str, Document] = record_json(found)
        value = "; ".join(filter(None, (_cell(record["value"]), record.get("error"))))
        headers = " ".join(f"{name}={_cell(text)}" for name, text in record.get("headers", ())) or "-"
        cells = (str(row.partition), str(row.offset), time_text(row.timestamp), _cell(record["key"]), headers, value)
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


def _cell(value: Document) -> str:
    return json_line(value)[:-1]


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(each if each.isprintable() else "�" for each in text)


def time_text(timestamp: int) -> str:
    """Return a timestamp (ms) as ISO 8601 in UTC; one that is no date as a number.

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
