"""CSV: a record is one row, an object with the names of its columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any

from streamkit.errors import SerdeError
from streamkit.expressions.types import BOOLEAN, INTEGER, NUMBER, TEXT, Record, Type
from streamkit.record import Value
from streamkit.serdes.plain import Document, Json, shown
from streamkit.serdes.serde import Serde
from streamkit.serdes.size import check_value
from streamkit.suggestions import number_of

OPTIONS = ("fields", "delimiter", "quote", "header", "null")

# By default the library reads columns of up to 128 KiB, but writes longer ones. Other code limits the size of a record.
csv.field_size_limit(2**31 - 1)


def _integer(text: str) -> int:
    digits = text.strip()
    if len(digits) > 4096 or not digits.lstrip("+-").isdecimal():
        raise ValueError(f"{text[:40]!r} is no whole number")
    return int(digits)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a number") from None


def _boolean(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError(f"{text[:40]!r} is neither true nor false")
    return text.strip().lower() == "true"


_KINDS: dict[str, tuple[Callable[[str], Value], Type, tuple[type, ...]]] = {
    "string": (str, TEXT, (str,)),
    "integer": (_integer, INTEGER, (int,)),
    "long": (_integer, INTEGER, (int,)),
    "float": (_number, NUMBER, (int, float)),
    "double": (_number, NUMBER, (int, float)),
    "boolean": (_boolean, BOOLEAN, (bool,)),
}
"""By the name of a column's type: its parser, its type in expressions, and the types of values that it takes."""


class CsvSerde(Serde):
    """`{csv: {fields: [NAME, …] or {NAME: TYPE, …}, delimiter, quote, header, null}}` (RFC 4180, UTF-8).

    header: each record is two lines, the names and the row, and names may come in any order. null: the text of an absent
    value; without it an empty column is absent if its type is not string. Raises SerdeError for other rows.
    """

    def __init__(self, options: Json):
        if isinstance(options, list):
            options = {"fields": options}
        if not isinstance(options, dict):
            raise SerdeError("serde csv needs its columns: {csv: {fields: [NAME, …]}}")
        for name in options:
            if name not in OPTIONS:
                raise SerdeError(f"serde csv has no option {name!r}; it has {', '.join(OPTIONS)}")
        self.spec = {"csv": options}
        self._columns = _columns(options.get("fields"))
        self._names = list(self._columns)
        self._null = _text(options, "null", None)
        self._header = _flag(options)
        delimiter, quote = _text(options, "delimiter", ","), _text(options, "quote", '"')
        delimiter = "\t" if delimiter == "tab" else delimiter
        for what, mark in (("delimiter", delimiter), ("quote", quote)):
            if mark is None or len(mark) != 1 or mark in "\r\n":
                raise SerdeError(f"serde csv: {what!r} is {mark!r}; expected one character")
        self._format: dict[str, Any] = {"delimiter": delimiter, "quotechar": quote}
        self._readers = [_KINDS[kind][0] for kind in self._columns.values()]
        self._texts = [kind == "string" for kind in self._columns.values()]
        self.type = Record("the CSV row", {name: _KINDS[kind][1] for name, kind in self._columns.items()})

    def decode(self, data: bytes) -> dict[str, Value]:
        try:
            rows = [row for row in csv.reader(io.StringIO(data.decode("utf-8")), strict=True, **self._format) if row]
        except (csv.Error, UnicodeDecodeError) as error:
            raise SerdeError(f"serde csv: {error}: {data[:60]!r}") from error
        expected = 2 if self._header else 1
        if not rows and not self._header and len(self._names) == 1:
            rows = [[""]]
        if len(rows) != expected:
            raise SerdeError(f"serde csv: {number_of(len(rows), 'line')} instead of {expected}: {data[:60]!r}")
        row = rows[-1]
        if self._header:
            row = self._ordered(rows[0], row)
        if len(row) != len(self._names):
            raise SerdeError(f"serde csv: {number_of(len(row), 'column')} instead of {len(self._names)}: {data[:60]!r}")
        return {
            name: self._read(name, text, read, is_text)
            for name, text, read, is_text in zip(self._names, row, self._readers, self._texts, strict=True)
        }

    def _ordered(self, header: list[str], row: list[str]) -> list[str]:
        if sorted(header) != sorted(self._names) or len(row) != len(header):
            raise SerdeError(f"serde csv: the columns {', '.join(header)} instead of {', '.join(self._names)}")
        columns = dict(zip(header, row, strict=True))
        return [columns[name] for name in self._names]

    def _read(self, name: str, text: str, read: Callable[[str], Value], is_text: bool) -> Value:
        if text == self._null or (not text and not is_text):
            return None
        try:
            return read(text)
        except ValueError as error:
            raise SerdeError(f"serde csv: column {name}: {error}") from None

    def encode(self, value: Value) -> bytes:
        if not isinstance(value, dict):
            raise SerdeError(f"serde csv takes an object, not {shown(value, 80)}")
        for name in value:
            if name not in self._columns:
                raise SerdeError(f"serde csv has no column {name!r}; it has {', '.join(self._names)}")
        check_value(value)
        row = [self._text(name, kind, value.get(name)) for name, kind in self._columns.items()]
        lines = [self._names, row] if self._header else [row]
        return "\n".join(map(self._line, lines)).encode("utf-8", "replace")

    def _line(self, row: list[str]) -> str:
        buffer = io.StringIO()
        # Columns with a character of the line's end are quoted. Both end a line when they are read.
        csv.writer(buffer, lineterminator="\r\n", **self._format).writerow(row)
        return buffer.getvalue()[:-2]

    def _text(self, name: str, kind: str, value: Value) -> str:
        if value is None:
            return self._null or ""
        if not isinstance(value, _KINDS[kind][2]) or (isinstance(value, bool) and kind != "boolean"):
            raise SerdeError(f"serde csv: column {name} is of type {kind}, not {shown(value, 40)}")
        if isinstance(value, bool):
            text = "true" if value else "false"
        else:
            text = repr(value) if isinstance(value, float) else str(value)
        if text == self._null:
            raise SerdeError(
                f"serde csv: column {name} can't hold {shown(value, 40)}, which means null by the option 'null'"
            )
        return text

    def to_json(self, value: Document) -> Document:
        return value

    def from_json(self, data: Json) -> Value:
        return data


def _columns(fields: Document) -> dict[str, str]:
    columns = fields if isinstance(fields, dict) else dict.fromkeys(fields or (), "string")
    if (
        not columns
        or not isinstance(fields, (list, dict))
        or not all(isinstance(name, str) and name for name in columns)
    ):
        raise SerdeError("serde csv needs its columns: {csv: {fields: [NAME, …]}} or {csv: {fields: {NAME: TYPE}}}")
    if isinstance(fields, list) and len(fields) != len(columns):
        raise SerdeError("serde csv: a column stands twice in 'fields'")
    for name, kind in columns.items():
        if kind not in _KINDS:
            raise SerdeError(f"serde csv: column {name} has the type {kind!r}; there are {', '.join(_KINDS)}")
    return dict(columns)


def _text(options: dict[str, Json], name: str, default: str | None) -> str | None:
    value = options.get(name, default)
    if value is not None and not isinstance(value, str):
        raise SerdeError(f"serde csv: {name!r} is {value!r}; expected text")
    return value


def _flag(options: dict[str, Json]) -> bool:
    value = options.get("header", False)
    if not isinstance(value, bool):
        raise SerdeError(f"serde csv: 'header' is {value!r}; expected true or false")
    return value


def make_csv(spec: dict[str, Json], folder: str) -> Serde:
    """Return the serde of `{csv: OPTIONS}`. Raises SerdeError."""
    return CsvSerde(spec["csv"])
