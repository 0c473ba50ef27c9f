"""Turns records into rows for queries: with columns for keys, values, windows and times instead of the log's bytes."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from ctypes import c_float
from dataclasses import dataclass
from datetime import date
from decimal import MAX_PREC, Context, Decimal
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from streamkit import durations
from streamkit.errors import SerdeError, UsageError
from streamkit.expressions.types import (
    BOOLEAN,
    BYTES,
    INTEGER,
    NUMBER,
    TEXT,
    ListOf,
    MapOf,
    Record,
    Type,
    WindowedKey,
    one_of,
)
from streamkit.plan.model import Plan
from streamkit.record import Headers
from streamkit.runtime.records import RecordJson, headers_to_json
from streamkit.runtime.spark.job_options import BUCKET, TIMES, Place, Transform
from streamkit.runtime.spark.rows.input_columns import HIDDEN, any_value, in_utc
from streamkit.runtime.spark.rows.input_columns import types_of as types_in
from streamkit.runtime.spark.stage_plan import table_topics
from streamkit.runtime.spark.workers import arrow_rows
from streamkit.runtime.spark.workers.worker import load, mark_errors
from streamkit.serdes.formats.json_text import to_text
from streamkit.serdes.plain import Document, Json

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, DataFrameWriter

JSON, STRUCT, ARRAY, MAP = "json", "struct", "array", "map"
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|\w+|[<>(),:])")
_ALIASES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "timestamp_ltz": "timestamp"}
_DECIMALS = ("decimal", "dec", "numeric")
_MOST_DIGITS = 38


@dataclass(frozen=True)
class Shape:
    """The type of a column. kind: a type of Spark, or JSON for any value as JSON text; fields: the fields of a nested type."""

    kind: str
    fields: tuple[tuple[str, Shape], ...] = ()

    @property
    def ddl(self) -> str:
        """The type in Spark's notation."""
        if self.kind == STRUCT:
            return f"struct<{','.join(f'{ticked(name)}:{shape.ddl}' for name, shape in self.fields)}>"
        if self.kind == ARRAY:
            return f"array<{self.fields[0][1].ddl}>"
        if self.kind == MAP:
            return f"map<string,{self.fields[0][1].ddl}>"
        return "string" if self.kind == JSON else self.kind


def ticked(name: str) -> str:
    """Return a name quoted for SQL."""
    return "`" + name.replace("`", "``") + "`"


def parse_shape(text: str, scalars: Collection[str]) -> Shape:
    """Parse a type, or a list of names with types. scalars: the types that a value can have.

    Raises ValueError with the expected syntax.

    >>> parse_shape("amount decimal(10,2), tags array<string>", ["string"]).ddl
    'struct<`amount`:decimal(10,2),`tags`:array<string>>'
    """
    return _Parser(text, scalars).shape()


class _Parser:
    def __init__(self, text: str, scalars: Collection[str]):
        self._scalars = scalars
        self._tokens = _TOKEN.findall(text)
        if _TOKEN.sub("", text).strip():
            self._tokens = []

    def shape(self) -> Shape:
        """Parse the whole text."""
        is_list = len(self._tokens) > 1 and self._tokens[1] not in ("<", "(")
        own_shape = Shape(STRUCT, self._fields()) if is_list else self._type()
        return own_shape if not self._tokens else self._refuse()

    def _fields(self) -> tuple[tuple[str, Shape], ...]:
        shapes: dict[str, Shape] = {}
        while True:
            name = self._next()
            name = name[1:-1].replace("``", "`") if name.startswith("`") else name
            self._skip(":")
            if not re.match(r"\w", name) or name in shapes:
                self._refuse()
            shapes[name] = self._type()
            if not self._skip(","):
                return tuple(shapes.items())

    def _type(self) -> Shape:
        name = self._next().lower()
        name = _ALIASES.get(name, name)
        if name in _DECIMALS:
            return self._decimal()
        if name in (STRUCT, ARRAY, MAP):
            return self._nested(name)
        if name not in self._scalars:
            known = ", ".join(self._scalars)
            raise ValueError(f"a value can't have the type {name}; use one of {known}, decimal, struct, array, map")
        return Shape(name)

    def _nested(self, name: str) -> Shape:
        self._expect("<")
        if name == STRUCT:
            fields = self._fields()
        elif name == ARRAY:
            fields = (("element", self._type()),)
        else:
            self._expect("string")
            self._expect(",")
            fields = (("value", self._type()),)
        self._expect(">")
        return Shape(name, fields)

    def _decimal(self) -> Shape:
        precision, scale = "10", "0"
        if self._skip("("):
            precision = self._next()
            scale = self._next() if self._skip(",") else "0"
            self._expect(")")
        if not (precision.isdecimal() and scale.isdecimal() and int(scale) <= int(precision) <= _MOST_DIGITS):
            self._refuse()
        return Shape(f"decimal({int(precision)},{int(scale)})")

    def _next(self) -> str:
        return str(self._tokens.pop(0)) if self._tokens else self._refuse()

    def _skip(self, token: str) -> bool:
        if not self._tokens or self._tokens[0].lower() != token:
            return False
        self._tokens.pop(0)
        return True

    def _expect(self, token: str) -> None:
        if not self._skip(token):
            self._refuse()

    def _refuse(self) -> NoReturn:
        raise ValueError("expected a type of Spark, or names with types: amount double, item string")


Cell: TypeAlias = object
"""A value of a column that Arrow accepts."""
Make: TypeAlias = Callable[[Json], Cell]

_SCALARS = {TEXT: "string", INTEGER: "bigint", NUMBER: "double", BOOLEAN: "boolean", BYTES: "binary"}
WHOLE_NUMBERS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
"""The number of bits of each integer type."""
LOG_TYPES = {
    "topic": "string",
    "key": "binary",
    "value": "binary",
    "timestamp": "bigint",
    "headers": arrow_rows.HEADERS_DDL,
    "partition": "int",
}
"""The columns that hold the bytes of the log, with their types."""
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")
_DEEPEST = 8
"""The maximum depth of nested objects with columns of their own. Deeper objects, which may be recursive, become text."""
_TIME = "timestamp"
_LATEST = 2**63 - 1
_EXACT = Context(prec=MAX_PREC)
"""Python's own context rounds to 28 digits."""
_DIGITS_OF_A_FLOAT = 9
"""The number of digits that distinguish every 32-bit float."""
_ZONE = re.compile(r"(?:[Zz]|[+-]\d\d:?(?:\d\d)?)$")


JSON_TEXT = Shape(JSON)


@dataclass(frozen=True)
class OutputColumn:
    """A column of an output. part: the part of the record; field: a field of that part, None for the part itself."""

    name: str
    part: str
    field: str | None
    shape: Shape


@dataclass(frozen=True)
class OutputLayout:
    """The columns of a topic's records, and their output for messages. Spark sends this object to the workers."""

    topic: str
    columns: tuple[OutputColumn, ...]
    place: str

    @property
    def types(self) -> dict[str, str]:
        """The types of the columns by name."""
        return {column.name: column.shape.ddl for column in self.columns}

    @property
    def ddl(self) -> str:
        """The columns in Spark's notation."""
        return ", ".join(f"{ticked(name)} {kind}" for name, kind in self.types.items())


def layout_of(plan: Plan, topic: str, place: Place) -> OutputLayout:
    """Derive the columns of a topic's records from its serdes, its expressions and the place. Raises UsageError."""
    layout = place.layout
    key, value = types_of(plan, topic)
    columns: list[OutputColumn] = []
    if isinstance(key, WindowedKey):
        columns += _part("key", key.fields["key"], layout.key, place)
        columns += [OutputColumn(f"window_{end}", "key", end, Shape(_TIME)) for end in ("start", "end")]
    else:
        columns += _part("key", key, layout.key, place)
    columns += _part("value", value, layout.value, place)
    if topic in table_topics(plan):
        columns.append(OutputColumn("deleted", "deleted", None, Shape("boolean")))
    columns.append(OutputColumn("timestamp", "timestamp", None, Shape(_TIME)))
    header = Shape(STRUCT, (("name", Shape("string")), ("value", Shape("binary"))))
    columns.append(OutputColumn("headers", "headers", None, Shape(ARRAY, (("element", header),))))
    if place.format == "csv":
        columns = [OutputColumn(column.name, column.part, column.field, _flat(column.shape)) for column in columns]
    return OutputLayout(topic, tuple(columns), f"{topic}={place.path}")


def types_of(plan: Plan, topic: str) -> tuple[Type, Type]:
    """Return the key type and the value type that a plan writes to a topic."""
    inferred = plan.written_types.get(topic, ())
    declared = plan.external_topics.get(topic)
    key, value = (one_of(types[side] for types in inferred) for side in (0, 1))
    if declared is None:
        return key, value
    of_serdes = declared.key_serde.type, declared.value_serde.type
    return tuple(
        type_ if shape_of(own).kind == JSON and not isinstance(own, WindowedKey) else own
        for own, type_ in zip(of_serdes, (key, value), strict=True)
    )  # type: ignore[return-value]


def _part(part: str, kind: Type, declared: str | None, place: Place) -> list[OutputColumn]:
    """Return the columns of a key or a value: a single column, or one for each field of an object."""
    shape = shape_of(kind) if declared is None else _parsed(declared, part, place)
    if shape.kind != STRUCT:
        return [OutputColumn(part, part, None, shape)]
    return [OutputColumn(f"{part}_{name}", part, name, inner) for name, inner in shape.fields]


def _flat(shape: Shape) -> Shape:
    """Return the shape of a column of text: nested values and bytes become JSON."""
    return JSON_TEXT if shape.fields or shape.kind == "binary" else shape


def shape_of(kind: Type, depth: int = 0) -> Shape:
    """Return the shape of a column for values of a type."""
    scalar = next((name for known, name in _SCALARS.items() if known is kind), None)
    if scalar is not None:
        return Shape(scalar)
    if depth < _DEEPEST:
        if isinstance(kind, Record) and kind.closed and kind.fields:
            return Shape(STRUCT, tuple((name, shape_of(inner, depth + 1)) for name, inner in kind.fields.items()))
        if isinstance(kind, ListOf):
            return Shape(ARRAY, (("element", shape_of(kind.item, depth + 1)),))
        if isinstance(kind, MapOf):
            return Shape(MAP, (("value", shape_of(kind.value, depth + 1)),))
    return JSON_TEXT


def _parsed(ddl: str, part: str, place: Place) -> Shape:
    """Parse a type that the user wrote. Raises UsageError."""
    try:
        return parse_shape(ddl, [kind for kind in _MAKERS if kind != JSON])
    except ValueError as error:
        raise UsageError(f"{place.path}: {part}={ddl}: {error}") from error


# -- In the workers ----------------------------------------------------------------------------------------------------


@mark_errors
def write_columns(
    plan: bytes, layout: OutputLayout, places: tuple[str, ...], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Convert rows of the log into rows of a layout. Raises SerdeError for a value that its column can't contain.

    places: for a table, the columns of the log's rows that are appended; keys then must not be null.
    """
    import pyarrow as pa

    form = RecordJson(load(plan).plan)
    schema = pa.schema([(column.name, arrow_type(column.shape)) for column in layout.columns])
    placed = pa.schema([*schema, *(arrow_rows.schema().field(name) for name in places)])
    write = _Writer(layout)
    for batch in batches:
        if len(batch):
            arrays = [_array(cells, field) for cells, field in zip(write.cells(form, batch), schema, strict=True)]
            if places:
                _check_keys(layout, arrays)
            yield pa.RecordBatch.from_arrays([*arrays, *map(batch.column, places)], schema=placed)


def _check_keys(layout: OutputLayout, arrays: Iterable[pa.Array]) -> None:
    """Raise SerdeError for a row of a table whose key, or a field of it, is null: null keys are neither equal nor different."""
    for column, array in zip(layout.columns, arrays, strict=True):
        if column.part == "key" and array.null_count:
            raise SerdeError(
                f"--output {layout.place}: a record has null as {column.name}, but the rows of a table need keys; "
                "mode=append adds a row for each record"
            )


def _array(cells: list[Cell], field: pa.Field) -> pa.Array:
    """Return an Arrow column. Raises SerdeError for values that Arrow refuses, such as half of a surrogate pair."""
    import pyarrow as pa

    try:
        return pa.array(cells, field.type)
    except (pa.ArrowException, UnicodeError, OverflowError) as error:
        raise SerdeError(f"{field.name}: {error}") from error


class _Writer:
    """Converts records into columns."""

    def __init__(self, layout: OutputLayout):
        self._layout = layout
        self._makers = [maker_of(column.shape, column.name) for column in layout.columns]
        self._fields = {
            part: frozenset(
                column.field for column in layout.columns if column.part == part and column.field is not None
            )
            for part in ("key", "value")
        }
        self._flat = any(column.part == "headers" and column.shape == JSON_TEXT for column in layout.columns)
        self._windowed = any(column.name == "window_start" for column in layout.columns)

    def cells(self, form: RecordJson, batch: pa.RecordBatch) -> list[list[Cell]]:
        """Return the columns of an Arrow batch of the log's rows."""
        keys, values = self._decoded(form, batch)
        headers = arrow_rows.headers_of(batch.column(arrow_rows.HEADERS))
        parts: dict[str, Sequence[Json]] = {
            "key": keys,
            "value": values,
            "timestamp": arrow_rows.values_of(batch.column(arrow_rows.TIMESTAMP)),
            "deleted": [value is None for value in values],
            "headers": [_plain_headers(row_headers, self._flat) for row_headers in headers],
        }
        if self._windowed:
            parts |= {end: [None if key is None else key[end] for key in keys] for end in ("start", "end")}
            parts["key"] = [None if key is None else key["key"] for key in keys]
        return [
            self._column(column, make, parts) for column, make in zip(self._layout.columns, self._makers, strict=True)
        ]

    def _decoded(self, form: RecordJson, batch: pa.RecordBatch) -> tuple[list[Document], list[Json]]:
        keys, values = (arrow_rows.values_of(batch.column(index)) for index in (arrow_rows.KEY, arrow_rows.VALUE))
        columns = form.columns(self._layout.topic, keys, values)
        if columns is not None:
            return columns
        rows = [
            form.decode((self._layout.topic, key, value, 0, None, None))
            for key, value in zip(keys, values, strict=True)
        ]
        return [row["key"] for row in rows], [row["value"] for row in rows]

    def _column(self, column: OutputColumn, make: Make, parts: dict[str, Sequence[Json]]) -> list[Cell]:
        if column.name in ("window_start", "window_end"):
            return [None if part is None else make(part) for part in parts[column.field or ""]]
        cells = parts[column.part]
        try:
            if column.field is None:
                return [None if cell is None else make(cell) for cell in cells]
            name, known = column.field, self._fields[column.part]
            return [_field(cell, name, known, make) for cell in cells]
        except SerdeError as error:
            cure = f"--output {self._layout.place},{column.part}=TYPE gives its type, and columns=log keeps the bytes of the log"
            raise SerdeError(f"topic {self._layout.topic}: {error}; {cure}") from error


def _field(value: Json, name: str, known: frozenset[str | None], make: Make) -> Cell:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise SerdeError(f"{_shown(value)} is not an object, so it has no field {name}")
    if not value.keys() <= known:
        other = next(member for member in value if member not in known)
        raise SerdeError(f"the field {other!r} has no column")
    member = value.get(name)
    return None if member is None else make(member)


def _plain_headers(headers: Headers | None, as_json: bool) -> Json:
    if not headers:
        return None
    return headers_to_json(headers) if as_json else [{"name": name, "value": value} for name, value in headers]


def maker_of(shape: Shape, name: str) -> Make:
    """Return the function that converts a value other than null. The function raises SerdeError for a value that does not fit."""
    if shape.kind == STRUCT:
        makers = {field: maker_of(inner, f"{name}.{field}") for field, inner in shape.fields}
        known = frozenset(makers)
        return lambda value: {field: _field(value, field, known, make) for field, make in makers.items()}
    if shape.kind == ARRAY:
        item = maker_of(shape.fields[0][1], f"{name}[]")
        return lambda value: [
            None if member is None else item(member) for member in _of_kind(value, list, name, "a list")
        ]
    if shape.kind == MAP:
        inner = maker_of(shape.fields[0][1], f"{name}{{}}")
        return lambda value: [
            (key, None if member is None else inner(member))
            for key, member in _of_kind(value, dict, name, "an object").items()
        ]
    make = _MAKERS.get(shape.kind, _decimal)
    return lambda value: make(value, name, shape.kind)


def _of_kind(value: Json, kind: type, name: str, word: str) -> Document:
    if not isinstance(value, kind):
        _refuse(value, name, word)
    return value


def _refuse(value: Json, name: str, word: str) -> NoReturn:
    raise SerdeError(f"{name}: {_shown(value)}; expected {word}")


def _shown(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def _json(value: Json, name: str, kind: str) -> Cell:
    return to_text(value).decode()


def _string(value: Json, name: str, kind: str) -> Cell:
    return _of_kind(value, str, name, "text")


def _boolean(value: Json, name: str, kind: str) -> Cell:
    return _of_kind(value, bool, name, "true or false")


def _whole(value: Json, name: str, kind: str) -> Cell:
    if type(value) is float and value.is_integer():
        value = int(value)
    limit = 1 << (WHOLE_NUMBERS[kind] - 1)
    if type(value) is not int or not -limit <= value < limit:
        _refuse(value, name, f"a whole number of {WHOLE_NUMBERS[kind]} bits")
    return value


def _double(value: Document, name: str, kind: str) -> float:
    if value in _NO_NUMBERS:
        return float(value)
    if type(value) not in (int, float):
        _refuse(value, name, "a number")
    try:
        number = float(value)
    except OverflowError:
        number = None
    if number is None or number != value:
        _refuse(value, name, "a number that a double holds exactly")
    return number


def _float(value: Document, name: str, kind: str) -> Cell:
    """Return the 32-bit float that equals a number, or whose shortest text is that number: 0.1 stands for 0.10000000149."""
    number = _double(value, name, kind)
    narrow: float = c_float(number).value
    if narrow != number and narrow == narrow:
        texts = (float(f"{narrow:.{digits}g}") for digits in range(1, _DIGITS_OF_A_FLOAT + 1))
        if next(text for text in texts if c_float(text).value == narrow) != number:
            _refuse(value, name, "a number that a float holds exactly")
    return narrow


def _binary(value: Json, name: str, kind: str) -> Cell:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, dict) or value.keys() != {"base64"}:
        _refuse(value, name, "bytes")
    try:
        return base64.b64decode(value["base64"], validate=True)
    except (ValueError, TypeError):
        _refuse(value, name, "bytes as base64")


def _date(value: Json, name: str, kind: str) -> Cell:
    try:
        return date.fromisoformat(_of_kind(value, str, name, "a date"))
    except ValueError:
        _refuse(value, name, "a date such as 2025-01-31")


def _timestamp(value: Json, name: str, kind: str) -> Cell:
    """Return a time in microseconds, from a number of milliseconds or from text."""
    micros = value * 1000 if type(value) is int else _micros(value) if isinstance(value, str) else None
    if micros is None or abs(micros) > _LATEST:
        _refuse(value, name, "milliseconds or a time such as 2025-01-31T08:00:00Z, in whole microseconds")
    return micros


def _local_time(value: Json, name: str, kind: str) -> Cell:
    """Return a time in microseconds, from text without a zone."""
    micros = _micros(f"{value}Z") if isinstance(value, str) and not _ZONE.search(value) else None
    if micros is None:
        _refuse(value, name, "a time without a zone such as 2025-01-31T08:00:00, in whole microseconds")
    return micros


def _micros(text: str) -> int | None:
    """Return a time in microseconds, from text; None for text that is not a time, and for finer fractions."""
    milliseconds = durations.iso_time(text)
    fraction = re.search(r"[.,](\d+)", text)
    if milliseconds is None or (fraction and fraction[1][6:].strip("0")):
        return None
    return milliseconds * 1000 + int((fraction[1] if fraction else "").ljust(6, "0")[3:6])


def _decimal(value: Json, name: str, kind: str) -> Cell:
    try:
        number = Decimal(value if isinstance(value, (str, int)) and not isinstance(value, bool) else repr(value))
        precision, scale = map(int, kind[len("decimal(") : -1].split(","))
        scaled = number.scaleb(scale, _EXACT)
        fits = scaled.copy_abs() < 10**precision and scaled == scaled.to_integral_value()
    except ArithmeticError:
        fits = False
    if not fits:
        _refuse(value, name, kind)
    return number


_MAKERS: dict[str, Callable[[Json, str, str], Cell]] = {
    JSON: _json,
    "string": _string,
    "boolean": _boolean,
    **dict.fromkeys(WHOLE_NUMBERS, _whole),
    "float": _float,
    "double": _double,
    "binary": _binary,
    "date": _date,
    _TIME: _timestamp,
    "timestamp_ntz": _local_time,
}


def arrow_type(shape: Shape) -> pa.DataType:
    import pyarrow as pa

    if shape.kind == STRUCT:
        return pa.struct([(name, arrow_type(inner)) for name, inner in shape.fields])
    if shape.kind == ARRAY:
        return pa.list_(arrow_type(shape.fields[0][1]))
    if shape.kind == MAP:
        return pa.map_(pa.string(), arrow_type(shape.fields[0][1]))
    if shape.kind.startswith("decimal"):
        return pa.decimal128(*map(int, shape.kind[len("decimal(") : -1].split(",")))
    kinds = {
        JSON: pa.string(),
        "string": pa.string(),
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "binary": pa.binary(),
        "date": pa.date32(),
        _TIME: pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    return kinds[shape.kind]


_AFTER = {"years": len("-MM-dd"), "months": len("-dd"), "days": 0}
"""The number of characters that follow the year, the month or the day in a date."""
_NULL_FOLDERS = ("", "__HIVE_DEFAULT_PARTITION__")
"""The texts that are null as names of folders."""
_NUMBER = f"{HIDDEN}number"
_LEFT_OUT = "the days from 1582-10-05 to 1582-10-14"
_SECOND, _DAY = 1_000_000, 86_400_000_000
_NESTED = ("struct<", "array<", "map<", "binary")


def check_columns(place: Place, topic: str, types: Mapping[str, str]) -> None:
    """Raise UsageError if `partition_by` or `sort_by` of an output does not fit its columns."""
    shown = f"--output {topic}={place.path}"
    for setting, names in (
        ("partition_by", [transform.column for transform in place.layout.partition_by]),
        ("sort_by", place.layout.sort_by),
    ):
        for name in names:
            if name not in types:
                raise UsageError(f"{shown}: {setting}: there is no column {name}; the columns are {', '.join(types)}")
    for transform in place.layout.partition_by:
        kind = types[transform.column]
        if transform.kind in TIMES and kind not in ("timestamp", "date"):
            raise UsageError(
                f"{shown}: partition_by={transform.text}: the column is of type {kind}; expected a time or a date"
            )
        if transform.kind == BUCKET and not place.is_table:
            raise UsageError(
                f"{shown}: partition_by={transform.text}: buckets are for tables; files have folders by columns and times"
            )
        if not transform.kind and kind.startswith(_NESTED):
            raise UsageError(
                f"{shown}: partition_by={transform.text}: the column is of type {kind}, which can't name a partition"
            )
        if transform.kind and not place.is_table and _folder(transform).lower() in map(str.lower, types):
            raise UsageError(
                f"{shown}: partition_by={transform.text}: the folders would have the name of the column {_folder(transform)}, which "
                "Spark would lose; give the field another name"
            )


def with_folders(rows: DataFrame, names: Iterable[str], shown: str) -> DataFrame:
    """Return rows that fail for a text that can't name a folder, because Spark would read it as null."""
    from pyspark.sql import functions as sf

    for name in names:
        if rows.schema[name].dataType.simpleString() == "string":
            column = sf.col(ticked(name))
            refusal = sf.concat(
                sf.lit(f"{shown}: {name} is '"),
                column,
                sf.lit(f"' in a row, which a partition can't represent: leave {name} out of the partitions"),
            )
            failing = sf.when(column.isin(*_NULL_FOLDERS), sf.raise_error(refusal).cast("string"))
            rows = rows.withColumn(name, failing.otherwise(column))
    return rows


def _with_exact_times(rows: DataFrame, shown: str) -> DataFrame:
    """Return rows that fail for a time or a day that the library of ORC writes as another one.

    It writes the last second before 1970 as one second later, and days that the Gregorian calendar left out as the first after them.
    """
    from pyspark.sql import functions as sf

    first, last = (date(1582, 10, day).toordinal() - date(1970, 1, 1).toordinal() for day in (5, 14))
    tests: Mapping[str, Mapping[str, Callable[[Column], Column]]] = {
        "date": {_LEFT_OUT: lambda day: sf.unix_date(day).between(first, last)},
        "timestamp": {
            "the last second before 1970": lambda time: sf.unix_micros(time).between(1 - _SECOND, -1),
            _LEFT_OUT: lambda time: sf.unix_micros(time).between(first * _DAY, (last + 1) * _DAY - 1),
        },
    }
    for path, kind in types_in(rows).items():
        for words, test in tests.get(kind, {}).items():
            found = any_value(rows, path, test)
            assert found is not None
            refusal = f"{shown}: {path} is in {words} in a row, which ORC can't represent; format=parquet can"
            rows = rows.where(sf.when(found, sf.raise_error(sf.lit(refusal)).cast("boolean")).otherwise(True))
    return rows


def arranged(rows: DataFrame, place: Place, shown: str, *, is_ordered: bool) -> DataFrameWriter:
    """Return a writer that writes rows in the folders and the order of an output.

    shown: the output in messages; is_ordered: whether the rows of a task have an order, which those in each folder keep.
    """
    from pyspark.sql import functions as sf

    layout = place.layout
    rows = _with_exact_times(rows, shown) if place.format == "orc" else rows
    folders = [(_folder(transform), transform) for transform in layout.partition_by]
    rows = with_folders(rows, [name for name, transform in folders if not transform.kind], shown)
    for name, transform in folders:
        if transform.kind:
            rows = rows.withColumn(name, _time(transform, rows.schema[transform.column].dataType.simpleString()))
    if layout.sort_by:
        rows = rows.sortWithinPartitions(*(ticked(name) for name in (*(name for name, _ in folders), *layout.sort_by)))
    elif folders and is_ordered:
        # If a task has many folders, Spark itself sorts its rows by them, and mixes those of a folder once the sort needs a disk.
        numbered = rows.withColumn(_NUMBER, sf.monotonically_increasing_id())
        rows = numbered.sortWithinPartitions(*(ticked(name) for name, _ in folders), _NUMBER).drop(_NUMBER)
    writer = rows.write
    return writer.partitionBy(*(name for name, _ in folders)) if folders else writer


def _folder(transform: Transform) -> str:
    return f"{transform.column}_{transform.kind.removesuffix('s')}" if transform.kind else transform.column


def _time(transform: Transform, kind: str) -> Column:
    """Return the year, month, day or hour of a time in UTC, regardless of the session's zone."""
    from pyspark.sql import functions as sf

    column = sf.col(ticked(transform.column))
    time = column.cast("timestamp_ntz") if kind == "date" else in_utc(column)
    # Not with date_format, which reads a time without a zone in the session's zone.
    day = time.cast("date").cast("string")
    if transform.kind == "hours":
        return sf.concat(day, sf.lit("-"), sf.lpad(sf.hour(time).cast("string"), 2, "0"))
    return sf.left(day, sf.length(day) - _AFTER[transform.kind])
