"""The records of an input as typed columns: a column for each field that the steps of a job read, and no others.

Values that are JSON text become columns in Python, with the serde of the topic. That takes less CPU than Spark's `from_json`,
which accepts text that the serde refuses, and reads numbers and objects as texts.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, Protocol, cast

from streamkit.errors import InexactError, SerdeError, UntranslatableError
from streamkit.expressions.types import ANY
from streamkit.record import Value
from streamkit.runtime.execution.collecting import collect_rarely
from streamkit.runtime.spark.job_options import PARQUET, Place
from streamkit.runtime.spark.rows.file_system import (
    BLOCK,
    FILE,
    FILE_OF_SPARK,
    INDEX,
    INDEX_OF_SPARK,
    ROW,
    input_files,
    same_path,
)
from streamkit.runtime.spark.rows.files import FILES, NUMBERS, TIMES_OF_ROWS, OpenedInput, chosen_source, placed_parts
from streamkit.runtime.spark.rows.input_columns import (
    HIDDEN,
    WHOLE,
    check_columns,
    columns_of_parts,
    is_plain,
    milliseconds,
    plain_field,
    plain_part,
    plain_type,
    quoted,
    schema_of_parts,
    without_case,
)
from streamkit.runtime.spark.rows.output_columns import ticked
from streamkit.runtime.spark.sql.terms import (
    BOOLEAN,
    COLUMN_TYPES,
    INTEGER,
    LARGEST,
    NUMBER,
    OBJECT,
    SERDE_KINDS,
    TEXT,
    UNREAD,
    Fields,
    Guard,
    Term,
    chosen,
    failure,
    fits_serde,
    literal,
    quoted_text,
)
from streamkit.runtime.spark.workers import arrow_rows
from streamkit.runtime.spark.workers.worker import mark_errors
from streamkit.serdes.formats.json_text import batch_decoder
from streamkit.serdes.formats.primitives import kind_of
from streamkit.serdes.serde import Serde
from streamkit.serdes.size import MAX_DEPTH, least_size

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

TASKS = "tasks"
"""The order of records that several tasks have written: each has its own, and a query must not depend on it."""
LATEST = ((1 << 63) - 1) // 1000
"""The last millisecond that a column of times holds."""
_TIME_BITS = LATEST.bit_length() - 1
"""The bits of the timestamps that queries take, all of which such a column holds."""
LONGEST = 1 << 16
"""Bytes of a column of text; a row with a longer one is Python's, whose limits of a record's size it may pass."""
_MOST_TEXT = 1 << 19
"""Bytes of all columns of text that steps read, which a value may have as a whole, and several times."""
TIME = "timestamp"
ORDER = f"{HIDDEN}order"
"""The column of a number that orders rows: the rank of their file, and their index in it. Spark sorts by it without reading rows."""
_INDEX_BITS = 41
_MOST_RANKED = 64
"""Files whose ranks a query has as constants, which it looks through for each row."""
_PLACED = "place in the order"
_PLAIN_TYPES = {INTEGER: "bigint", NUMBER: "double", TEXT: "string"}
"""All numbers have 64 bits, so that no arithmetic ends at fewer; and Spark would pad what it compares with a `char`."""
_TIMES_IN_OBJECTS = ("date", "timestamp", "timestamp_ntz")
_OF_TIMES = ("timestamp", "timestamp_ntz", "date", *WHOLE)
Path = tuple[str, ...]
_VALUE: Path = ("value",)
THERE = "there"
"""The first name in the path of a column that tells whether the text of a record has the field of the rest of the path."""
_TEXT_OF_VALUE = f"{HIDDEN}text"
_MOST_LOOKED_AT = 1 << 20
"""Bytes of the files of a table whose keys are compared before a query begins."""
_MOST_SAMPLED = 1000
"""Values whose JSON text determines the types of its fields."""
_MOST_LEVELS = 20
"""Levels of objects whose fields become columns."""
_MOST_PARSED, _MOST_BYTES = 1000, 1 << 25
"""Values that are parsed at a time, and the bytes of their text."""
_CLASSES: dict[str, type] = {TEXT: str, INTEGER: int, NUMBER: float, BOOLEAN: bool, OBJECT: dict}
"""The Python classes of values of these kinds."""


@dataclass(frozen=True)
class InputColumns:
    """What is known of an input before it is read. schema: of its rows; has_key: whether it names a key; order: of its rows.

    is_by_time: whether their timestamps order them; numbered: how many files it has if Spark numbers the rows of each, as those of Parquet.
    first_values: reads the bytes of the first values; None if only Spark can read them.
    """

    schema: StructType
    has_key: bool
    order: str
    is_by_time: bool = False
    numbered: int = 0
    first_values: Callable[[], list[bytes]] | None = field(default=None, compare=False)

    @classmethod
    def of(cls, opened: OpenedInput) -> InputColumns:
        """Return what is known of an opened input."""
        place = opened.place
        is_by_time = opened.by is not None and place.order in (None, place.columns.timestamp or TIME)
        numbered = len(opened.files or input_files(opened.source)) if opened.is_numbered else 0
        read = cache(partial(_first_values, opened))
        return cls(opened.schema, place.columns.key is not None, opened.order, is_by_time, numbered, read)

    def has_text_for(self, serde: Serde) -> bool:
        """Return whether the values are the text that a serde of JSON reads."""
        return serde.spec == "json" and self._value_type in ("string", "binary")

    @property
    def _value_type(self) -> str:
        return self.schema["value"].dataType.simpleString() if "value" in self.schema.names else ""


class RecordSource(Protocol):
    """What the records of a query come from: a topic (SqlSource), or a join of two streams (join_queries.Pairs)."""

    is_joined: ClassVar[bool]
    """Whether a join of streams makes the records."""

    @property
    def topic(self) -> str: ...
    @property
    def sources(self) -> tuple[SqlSource, ...]: ...
    @property
    def key(self) -> Term: ...
    @property
    def time(self) -> Term: ...
    @property
    def emits_alone(self) -> bool: ...
    @property
    def has_keys(self) -> bool: ...
    @property
    def has_made_times(self) -> bool: ...
    @property
    def is_numbered(self) -> bool: ...
    @property
    def may_be_in_order(self) -> bool: ...
    def columns_in(self, texts: Sequence[str]) -> list[Path]: ...
    def guards(self, columns: Sequence[Path]) -> list[Guard]: ...
    def rows(
        self, opened: Callable[[str], OpenedInput], paths: Sequence[Path], has_order: bool = False
    ) -> DataFrame: ...
    def order_columns(self, rows: DataFrame) -> list[Column]: ...


class SqlSource:
    """The records of one input as columns. Raises UntranslatableError for an input whose rows only Python makes records of.

    mark: the beginning of the names of its columns, if they are joined with those of another input.
    """

    is_joined: ClassVar[bool] = False
    emits_alone: ClassVar[bool] = False

    def __init__(self, topic: str, columns: InputColumns, serdes: tuple[Serde, Serde], mark: str = ""):
        self.topic = topic
        self.mark = mark
        self._columns = columns
        self._serdes = dict(zip(("key", "value"), serdes, strict=True))
        self._leaves: dict[Path, str] = {}
        """The kinds of the columns that steps read, by the path to their field."""
        self._read = columns.first_values if columns.has_text_for(serdes[1]) else None
        names = [column.name for column in columns.schema.fields if not column.name.startswith(HIDDEN)]
        for name in ("headers", "partition", "offset"):
            if name in names:
                raise UntranslatableError(f"the records of {topic} have a column {name}")
        if columns.order not in (FILES, NUMBERS, TIMES_OF_ROWS, TASKS):
            raise UntranslatableError(f"the records of {topic} have offsets")
        if not {"value", "timestamp"}.issubset(names):
            raise UntranslatableError(f"the records of {topic} have no column for their value or their timestamp")
        kind = columns.schema["timestamp"].dataType.simpleString()
        if kind not in _OF_TIMES:
            raise UntranslatableError(f"the timestamps of {topic} are of type {kind}")
        self.key = self._part("key") if "key" in names else Term("null", "NULL", nullable=True)
        self.value = self._part("value")
        self.time = Term(INTEGER, ticked(TIME))
        self._made_time: Term | None = None

    def timed_by(self, time: Term) -> None:
        """Take the timestamps from a value of the records, whose own timestamps it may name. Raises UntranslatableError."""
        if time.kind != INTEGER:
            raise UntranslatableError(f"{time.kind} is no timestamp of {self.topic}")
        self._made_time = time

    def _part(self, part: str) -> Term:
        """Return the key or the value. Raises UntranslatableError."""
        field, serde = self._columns.schema[part], self._serdes[part]
        if part == "value" and self._has_text:
            self._leaves[_VALUE] = OBJECT
            return self._term(_VALUE, self._type_of_text(), True, OBJECT)
        kind = _kind(field.dataType, 1)
        known = SERDE_KINDS.get(serde.spec, ()) if isinstance(serde.spec, str) else ()
        if kind is None or kind not in known or (serde.spec == "json" and kind == TEXT):
            word = field.dataType.simpleString() if kind != OBJECT else "a struct"
            raise UntranslatableError(f"the {part} of {self.topic} is {word} for the serde {serde.spec}")
        return self._term((part,), field.dataType, field.nullable, kind)

    def _type_of_text(self) -> DataType:
        """Return the type of the first values. Raises UntranslatableError for values that are no objects."""
        try:
            values = _parsed(self.topic, [] if self._read is None else self._read())
        except InexactError as error:
            raise UntranslatableError(str(error)) from error
        if set(map(type, values)) != {dict}:
            raise UntranslatableError(f"the first values of {self.topic} are not all objects of JSON text")
        return _type_of(values)

    def _term(self, path: Path, kind: DataType, nullable: bool, word: str) -> Term:
        fields_of = _FieldsOfText if self._has_text and path[:1] == _VALUE else _Fields
        fields = fields_of(self, path, kind) if word == OBJECT else {}
        size = {OBJECT: _MOST_TEXT, TEXT: LONGEST}.get(word, 0)
        return Term(word, ticked(self.name_of(path)), nullable, fields=fields, size=size)

    def field(self, path: Path, kind: DataType, nullable: bool) -> Term | None:
        """Return a field; None for one of a type whose values SQL does not treat as Python does."""
        word = _kind(kind, len(path))
        if word is None:
            return None
        self._leaves[path] = word
        return self._term(path, kind, nullable, word)

    @property
    def _has_text(self) -> bool:
        """Whether values are JSON text."""
        return self._read is not None

    def has_field(self, path: Path) -> str:
        """Return the condition that the JSON text of a record has a field."""
        there = (THERE, *path)
        self._leaves[there] = BOOLEAN
        return f"({ticked(self.name_of(there))} IS TRUE)"

    def named_in(self, path: Path) -> list[str]:
        """Return the names of the fields of an object that steps have named so far."""
        return [name for *owner, name in self._leaves if tuple(owner) == path]

    def name_of(self, path: Path) -> str:
        """Return the name of the column of a path."""
        return self.mark + name_of(path)

    def columns_in(self, texts: Sequence[str]) -> list[Path]:
        """Return the paths of the columns that texts of SQL name, and perhaps of others."""
        made = self._made_time
        texts = [*texts, *([] if made is None else [made.sql, *(guard.sql for guard in made.guards)])]
        # Python parses all of the text, also if no step reads a field.
        return [
            path
            for path in self.all_columns()
            if (path == _VALUE and self._has_text) or any(ticked(self.name_of(path)) in text for text in texts)
        ]

    def guards(self, columns: Sequence[Path]) -> list[Guard]:
        """Return what holds of each row that a task can read, and that no limit of a record's size refuses, by `read_rows`.

        columns: those that are read.
        """
        # One function names the time once: if an expression occurs twice, Spark decodes all columns before it tests a row.
        fits = f"(shiftrightunsigned({ticked(TIME)}, {_TIME_BITS}) = 0L)"
        guards = [Guard(fits, f"a timestamp of {self.topic} is before 1970 or too late")]
        if self._columns.order not in (FILES, TASKS):
            guards.append(Guard(f"({ticked(_PLACED)} IS NOT NULL)", f"a row of {self.topic} has no place in the order"))
        if self.has_keys and ("key",) in columns:
            guards.append(Guard(f"({self.key.sql} IS NOT NULL)", f"a key of {self.topic} is null", self.key.sql))
        for (part, *inner), term in ((path, self.key if path == ("key",) else self.value) for path in columns):
            if not inner:
                guards += fits_serde(self._serdes[part].spec, term, f"a {part} of {self.topic} has over 32 bits")
        texts = sum(self._kind_of(path) == TEXT for path in columns)
        longest = min(LONGEST, _MOST_TEXT // max(1, texts))
        for path in columns:
            column, kind = ticked(self.name_of(path)), self._kind_of(path)
            if kind == TEXT:
                fits = f"is_valid_utf8({column}) AND octet_length({column}) <= {longest}"
                reason = "is no UTF-8, or a long text"
            elif kind == NUMBER:
                fits, reason = f"abs({column}) < CAST('Infinity' AS DOUBLE)", "is NaN or infinite"
            else:
                continue
            # Not `IS NULL OR`, which may occur elsewhere.
            guards.append(Guard(f"coalesce({fits}, true)", f"{name_of(path)} of {self.topic} {reason}", column))
        return guards

    @property
    def sources(self) -> tuple[SqlSource, ...]:
        """This one."""
        return (self,)

    @property
    def has_keys(self) -> bool:
        """Whether the input names a key, which a guard requires in each row whose key is read."""
        return self._columns.has_key

    @property
    def order(self) -> str:
        """FILES, NUMBERS or TIMES_OF_ROWS."""
        return self._columns.order

    @property
    def is_numbered(self) -> bool:
        """Whether each row has a number in its file."""
        return self._columns.numbered > 0

    @property
    def is_ranked(self) -> bool:
        """Whether one number of each row, `ORDER`, orders all rows."""
        return 0 < self._columns.numbered <= _MOST_RANKED

    @property
    def is_by_time(self) -> bool:
        """Whether the timestamps of the rows order them."""
        return self._columns.is_by_time and not self.has_made_times

    @property
    def has_made_times(self) -> bool:
        """Whether the topology makes the timestamps of values."""
        return self._made_time is not None

    def order_columns(self, rows: DataFrame) -> list[Column]:
        """Return what orders the rows of the input, as `ranks_of` and the Python engine do. rows: of `frame`."""
        from pyspark.sql import functions as sf

        if ORDER in rows.columns:
            return [sf.col(ORDER)]
        if self._columns.order != FILES:
            return [sf.col(ROW), sf.col(BLOCK)]
        return [file_order(), sf.col(BLOCK), sf.col(ROW)]

    def rows(self, opened: Callable[[str], OpenedInput], paths: Sequence[Path], has_order: bool = False) -> DataFrame:
        """Return what `frame` does of the topic's input among opened ones."""
        return self.frame(opened(self.topic), paths, has_order)

    @property
    def may_be_in_order(self) -> bool:
        """Whether Spark can tell that the rows are in the order of their timestamps."""
        return self.order == FILES or self.is_by_time

    def frame(self, opened: OpenedInput, paths: Sequence[Path], has_order: bool = False) -> DataFrame:
        """Return the columns that steps read, under the names that terms have. Raises TransportError as the Python engine.

        paths: the columns; has_order: whether those of `order_columns` are needed.
        """
        from pyspark.sql import functions as sf

        # The types of all columns must fit, those that no step reads too.
        place = opened.place
        for part, serde in self._serdes.items():
            if part in opened.schema.names and not is_plain(opened.schema[part].dataType, part, serde):
                plain_part(opened.parts, place, part, serde)
        made = self._made_time
        paths = paths if made is None else list(dict.fromkeys((*paths, *self.columns_in(()))))
        placed = [] if self._columns.order == FILES else [f"{ROW} AS {ticked(_PLACED)}"]
        in_text = [path for path in paths if self._has_text and path != ("key",)]
        texts = None if in_text else self._as_texts(opened, paths)
        if texts is not None:
            rank = _rank(opened, FILE_OF_SPARK, INDEX_OF_SPARK) if has_order and opened.is_numbered else None
            frame = chosen_source(opened, is_placed=has_order and rank is None)
            order = _positions(frame, opened) if has_order and rank is None else [rank] if rank else []
            rows = frame.selectExpr(*texts, *placed, *order)
        else:
            frame = placed_parts(opened) if has_order else opened.parts
            columns = [quoted("value").cast("binary").alias(_TEXT_OF_VALUE)] if in_text else []
            columns += [self._column(frame, place, path) for path in paths if path not in in_text]
            time = sf.coalesce(milliseconds(frame, place), sf.lit(0)).alias(TIME)
            positions = map(sf.expr, [*placed, *(_positions(frame, opened) if has_order else ())])
            rows = frame.select(*columns, time, *positions)
        rows = self._with_fields(rows, in_text) if in_text else rows
        return rows if made is None else chosen(rows, made.guards).withColumn(TIME, sf.expr(made.sql))

    def _with_fields(self, rows: DataFrame, paths: Sequence[Path]) -> DataFrame:
        """Return rows with columns of the fields of their JSON text in its place."""
        kinds = {path: self._leaves[path] for path in paths}
        types = {column.name: column.dataType.simpleString() for column in rows.schema.fields[1:]}
        types |= {self.name_of(path): COLUMN_TYPES.get(kind, "boolean") for path, kind in kinds.items()}
        ddl = ", ".join(f"{ticked(name)} {kind}" for name, kind in types.items())
        return rows.mapInArrow(partial(parse_values, self.topic, kinds, list(types)), ddl)

    def _column(self, frame: DataFrame, place: Place, path: Path) -> Column:
        column = plain_field(frame, place, path, self._serdes[path[0]].type if len(path) == 1 else ANY)
        plain = _PLAIN_TYPES.get(self._kind_of(path) or "")
        return (column if plain is None else column.cast(plain)).alias(self.name_of(path))

    def _as_texts(self, opened: OpenedInput, paths: Sequence[Path]) -> list[str] | None:
        """Return SQL of the columns and of the time, over the columns of the input itself; None if some need more than a cast.

        Python then makes no column for each part and field, with several calls, which Spark would take apart again.
        """
        names, kinds = opened.names, {field.name: field.dataType for field in opened.source.schema.fields}
        time = None if names is None else names["timestamp"]
        kind = kinds[time].simpleString() if isinstance(time, str) else "int"
        if names is None or time is None or isinstance(time, tuple) or kind not in (*WHOLE, "timestamp"):
            return None
        texts = []
        for path in paths:
            part, fields = names[path[0]], path[1:]
            columns = (part, *fields) if isinstance(part, str) else fields
            if len(columns) != 1 or _kind(kinds[columns[0]], 1) == OBJECT or plain_type(kinds[columns[0]]) is None:
                return None
            plain = _PLAIN_TYPES.get(self._kind_of(path) or "")
            sql = ticked(columns[0]) if plain is None else f"CAST({ticked(columns[0])} AS {plain})"
            texts.append(f"{sql} AS {ticked(self.name_of(path))}")
        if isinstance(time, int):
            return [*texts, f"{time}L AS {TIME}"]
        milliseconds = f"unix_millis({ticked(time)})" if kind == "timestamp" else f"CAST({ticked(time)} AS BIGINT)"
        return [*texts, f"coalesce({milliseconds}, 0L) AS {TIME}"]

    def has_distinct_keys(self, opened: OpenedInput) -> bool:
        """Return whether a table in small local files is known to have each key in one row, and no null as key or value."""
        import pyarrow as pa
        from pyarrow import compute
        from pyarrow.parquet import read_table

        names, place = opened.names, opened.place
        is_plain = place.format == PARQUET and place.columns.where is None and opened.order == FILES
        if names is None or not is_plain or self._has_text or self.has_made_times:
            return False
        key, parts = names.get("key"), [name for name in (names.get("key"), names["value"]) if isinstance(name, str)]
        # Spark pads a `char`, and compares texts with a collation by another rule.
        if not isinstance(key, str) or opened.source.schema[key].dataType.simpleString() not in ("string", *WHOLE):
            return False
        paths = list(map(same_path, opened.files))
        try:
            if not paths or sum(map(os.path.getsize, paths)) > _MOST_LOOKED_AT:
                return False
            rows = pa.concat_tables(
                [read_table(path, columns=list(dict.fromkeys(parts)), partitioning=None) for path in paths]
            )
        except (OSError, pa.ArrowException):
            return False
        if not set(parts).issubset(rows.column_names) or any(rows[name].null_count for name in parts):
            return False
        return bool(compute.count_distinct(rows[key]).as_py() == rows.num_rows)

    def all_columns(self) -> list[Path]:
        """Return the paths of all columns: the fields, the key, and the value if it is not an object."""
        parts = [(part,) for part in ("key", "value") if part in self._columns.schema.names]
        return list(dict.fromkeys((*parts, *self._leaves)))

    def _kind_of(self, path: Path) -> str | None:
        return self._leaves.get(path) or _kind(self._columns.schema[path[0]].dataType, 1)


_DECODED = {
    "string": "CAST({0} AS STRING)",
    "long": "CAST(conv(hex({0}), 16, -10) AS BIGINT)",
    "integer": "CAST(conv(concat(if(hex({0}) < '8', '00000000', 'FFFFFFFF'), hex({0})), 16, -10) AS INT)",
    "boolean": "({0} = X'01')",
}
"""SQL of what bytes of a serde hold, and null for null."""
_HEADERS = "headers of the record"


class TaskSource(SqlSource):
    """The records of a topic between stages that tasks in Python write, from their bytes, in no order that a query may use.

    Other values than texts, whole numbers and booleans are UNREAD.
    """

    def __init__(self, topic: str, serdes: tuple[Serde, Serde]):
        from pyspark.sql import types

        schema = types.StructType()
        for part, serde in zip(("key", "value"), serdes, strict=True):
            # The serdes are called as Spark's types are.
            schema = schema.add(part, str(serde.spec) if serde.spec in _DECODED else "binary", True)
        super().__init__(topic, InputColumns(schema.add(TIME, "long", True), False, TASKS), serdes)

    def _part(self, part: str) -> Term:
        if part == "value" and self._serdes[part].spec not in _DECODED:
            return Term(UNREAD, ticked(self.name_of((part,))), True)
        return super()._part(part)

    def guards(self, columns: Sequence[Path]) -> list[Guard]:
        """Return what `SqlSource.guards` does, and that records have no headers, which the last one of a key gives to a table."""
        has_none = f"({ticked(_HEADERS)} IS NULL OR size({ticked(_HEADERS)}) = 0)"
        return [*super().guards(columns), Guard(has_none, f"a record of {self.topic} has headers")]

    def frame(self, opened: OpenedInput, paths: Sequence[Path], has_order: bool = False) -> DataFrame:
        """Return the columns that steps read of rows between stages."""
        from pyspark.sql import functions as sf

        cells = {part: _DECODED.get(str(self._serdes[part].spec), "{0}").format(ticked(part)) for (part,) in paths}
        columns = [sf.expr(sql).alias(self.name_of((part,))) for part, sql in cells.items()]
        return opened.source.select(*columns, sf.col(TIME), sf.col("headers").alias(_HEADERS))

    @classmethod
    def opened(cls, topic: str, rows: DataFrame) -> OpenedInput:
        """Return rows between stages as an input."""
        return OpenedInput(Place(topic, PARQUET), lambda: rows, TASKS, rows, 0)


class _Fields(Fields):
    """The fields of an object of an input, which records the fields that are requested."""

    def __init__(self, source: SqlSource, path: Path, kind: DataType):
        from pyspark.sql.types import StructType

        assert isinstance(kind, StructType)
        self._source = source
        self._path = path
        folded = Counter(without_case(field.name) for field in kind.fields)
        # Spark does not distinguish names that differ only in case.
        self._names = dict.fromkeys(field.name for field in kind.fields)
        self._fields = {field.name: field for field in kind.fields if folded[without_case(field.name)] == 1}

    def __getitem__(self, name: str) -> Term:
        field = self._fields[name]
        term = self._source.field((*self._path, name), field.dataType, field.nullable)
        if term is None:
            raise KeyError(name)
        return term

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class _FieldsOfText(_Fields):
    """The fields of an object in JSON text. Any record may lack them, and have others."""

    def __getitem__(self, name: str) -> Term:
        term, path = super().__getitem__(name), (*self._path, name)
        reason = f"{name_of(path)} is missing in a record of {self._source.topic}"
        return replace(term, nullable=True, guards=(Guard(self._source.has_field(path), reason),))

    def __iter__(self) -> Iterator[str]:
        raise self._unknown()

    def __len__(self) -> int:
        raise self._unknown()

    @property
    def named(self) -> list[str]:
        return self._source.named_in(self._path)

    def _unknown(self) -> UntranslatableError:
        where = f"{name_of(self._path)} of {self._source.topic}"
        return UntranslatableError(f"{where} is JSON text, of which only fields that steps name become columns")


# JSON text.


def _first_values(opened: OpenedInput) -> list[bytes]:
    """Return the first values of an input, without nulls."""
    values = opened.parts.select(quoted("value").cast("binary"))
    return [bytes(value) for (value,) in values.where(quoted("value").isNotNull()).limit(_MOST_SAMPLED).collect()]


def _type_of(values: Sequence[Value], levels: int = _MOST_LEVELS) -> DataType:
    """Return the type of parsed values; void if they are of different types, lists, only null, or below so many levels."""
    from pyspark.sql import types

    classes = set(map(type, values)) - {type(None)}
    if classes == {dict} and levels:
        fields: dict[str, list[Value]] = {}
        for name, value in chain.from_iterable(owner.items() for owner in values if isinstance(owner, dict)):
            fields.setdefault(name, []).append(value)
        kinds = {name: _type_of(inner, levels - 1) for name, inner in fields.items() if literal(name) is not None}
        return types.StructType([types.StructField(name, kind) for name, kind in kinds.items()])
    scalars = {str: types.StringType, int: types.LongType, float: types.DoubleType, bool: types.BooleanType}
    return scalars[classes.pop()]() if len(classes) == 1 and classes <= scalars.keys() else types.NullType()


@mark_errors
def parse_values(
    topic: str, kinds: Mapping[Path, str], names: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield rows, whose first column is JSON text, with columns of its fields in place of the text.

    kinds: those of the fields, by their paths; names: those of all columns, the fields last.
    Raises InexactError for text that the serde refuses, and for a field of another kind.
    """
    import pyarrow as pa

    collect_rarely()
    for batch in batches:
        size = max(1, min(_MOST_PARSED, len(batch) * _MOST_BYTES // max(1, batch.nbytes)))
        for start in range(0, len(batch), size):
            part = batch.slice(start, size)
            texts, *others = part.columns
            values = _Values(topic, _parsed(topic, arrow_rows.values_of(texts.cast(pa.binary()))))
            yield pa.RecordBatch.from_arrays([*others, *(values.column(*leaf) for leaf in kinds.items())], names)


def _parsed(topic: str, texts: Sequence[bytes | None]) -> list[Value]:
    """Return the values of texts. Raises InexactError for text that the serde refuses, or refuses once it writes the value again."""
    decode, present = batch_decoder(texts), [text for text in texts if text is not None]
    try:
        values: list[Value] = list(map(decode, present))
        if None in values:
            raise InexactError(f"a value of {topic} is the text null")
        longest = max(map(len, present), default=0)
        if longest > LARGEST:
            raise InexactError(f"a value of {topic} has over {LARGEST:,} bytes")
        # Each level has two brackets.
        for text, value in zip(present, values, strict=True) if longest > 2 * MAX_DEPTH else ():
            if text.count(b"[") + text.count(b"{") > MAX_DEPTH:
                least_size(value)
    except (SerdeError, ValueError, RecursionError) as error:
        raise InexactError(f"a value of {topic} is no JSON: {error}") from error
    if len(present) == len(texts):
        return values
    rest = iter(values)
    return [None if text is None else next(rest) for text in texts]


class _Values:
    """The fields of values of JSON text."""

    def __init__(self, topic: str, values: list[Value]):
        self._topic = topic
        self._known: dict[Path, list[Value]] = {_VALUE: values}

    def column(self, path: Path, kind: str) -> pa.Array:
        """Return a column: of an object, whether there is one. Raises InexactError."""
        import pyarrow as pa

        if path[0] == THERE:
            return pa.array(self._has(path[1:]), pa.bool_())
        values = self._of(path, kind)
        if kind == OBJECT:
            return pa.array([None if value is None else True for value in values], pa.bool_())
        type_ = {TEXT: pa.string(), INTEGER: pa.int64(), NUMBER: pa.float64(), BOOLEAN: pa.bool_()}[kind]
        try:
            return pa.array(values, type_)
        except (pa.ArrowException, UnicodeError, OverflowError) as error:
            raise InexactError(f"{name_of(path)} of {self._topic} has a value beyond its column: {error}") from error

    def _has(self, path: Path) -> list[bool]:
        """Return whether the object of each value has a field."""
        known, name = self._known.get(path), path[-1]
        if known is not None and None not in known:
            return [True] * len(known)
        return [owner is not None and name in owner for owner in self._objects(path[:-1])]

    def _objects(self, path: Path) -> list[dict[str, Value] | None]:
        return cast("list[dict[str, Value] | None]", self._of(path, OBJECT))

    def _of(self, path: Path, kind: str) -> list[Value]:
        """Return the field of each value, None if it is null or missing. Raises InexactError for one of another kind."""
        values = self._known.get(path)
        if values is None:
            owners, name = self._objects(path[:-1]), path[-1]
            values = self._known[path] = [None if owner is None else owner.get(name) for owner in owners]
        allowed = {type(None), _CLASSES[kind]}
        if not allowed.issuperset(map(type, values)):
            other = next(kind_of(value) for value in values if type(value) not in allowed)
            raise InexactError(f"{name_of(path)} of {self._topic} is {kind} in the first records, and {other} later")
        return values


def _positions(frame: DataFrame, opened: OpenedInput) -> list[str]:
    """Return SQL of the columns from which `order_columns` creates an order."""
    rank = _rank(opened, FILE, INDEX) if INDEX in frame.columns else None
    return [FILE, BLOCK, ROW] if rank is None else [rank]


def _rank(opened: OpenedInput, file: str, index: str) -> str | None:
    """Return SQL of one number that orders rows, from their file and their index in it; None if there are too many files."""
    names = opened.files or input_files(opened.source)
    if not 0 < len(names) <= _MOST_RANKED:
        return None
    ranks = {name: rank << _INDEX_BITS for rank, name in enumerate(sorted(names, key=same_path))}
    # `_metadata` and the list of files write the names of local files in different ways, and other releases may swap them.
    forms = {re.sub("^file:/+", form, name): rank for form in ("file:/", "file:///") for name, rank in ranks.items()}
    cases = [f"WHEN {quoted_text(name)} THEN {rank}L" for name, rank in forms.items()]
    unknown = f"CAST(raise_error({quoted_text(failure('a file has another name than those of the input'))}) AS BIGINT)"
    return f"CASE {file} {' '.join(cases)} ELSE {unknown} END + {index} AS {ticked(ORDER)}"


def file_order() -> Column:
    """Return what orders files: their names, not their URIs."""
    from pyspark.sql import functions as sf

    return sf.url_decode(sf.replace(sf.col(FILE), sf.lit("+"), sf.lit("%2B"))).alias(FILE)


def _kind(kind: DataType, depth: int) -> str | None:
    """Return the kind of the plain data that a column of a type becomes; None if SQL does not treat it as Python does."""
    from pyspark.sql import types

    name = kind.simpleString()
    if isinstance(kind, types.StructType):
        return OBJECT if kind.fields else None
    if name == "string" or name.startswith(("char(", "varchar(")) or (depth > 1 and name in _TIMES_IN_OBJECTS):
        return TEXT
    if name in WHOLE:
        return INTEGER
    if name in ("float", "double"):
        return NUMBER
    return BOOLEAN if isinstance(kind, types.BooleanType) else None


def name_of(path: Path) -> str:
    """Return the name of a column; a field whose name has a dot is another one than a field in an object.

    >>> name_of(("value", "a", "b")), name_of(("value", "a.b"))
    ('value.a.b', 'value.a\\\\.b')
    """
    return ".".join(name.replace("\\", "\\\\").replace(".", "\\.") for name in path)


def columns_of_files(place: Place, files: list[str]) -> InputColumns | None:
    """Return the facts in the footers of local Parquet files; None if only Spark can determine the types of the input.

    Raises an error for each column that the input names, and that the files do not have.
    """
    import pyarrow as pa
    from pyarrow.parquet import read_schema
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema

    if place.format != PARQUET or place.order is not None or not files or any("=" in file for file in files):
        return None
    try:
        rows = from_arrow_schema(pa.unify_schemas([read_schema(file) for file in files]))
    except (pa.ArrowException, PySparkException, OSError):
        return None
    for column in rows.fields:
        column.nullable = True  # as Spark has it
    check_columns(place, rows.names)
    names = columns_of_parts(place, rows.names)
    if names is None:
        return None
    return InputColumns(schema_of_parts(names, rows), place.columns.key is not None, FILES, numbered=len(files))


__all__ = [
    "LATEST",
    "ORDER",
    "TASKS",
    "THERE",
    "TIME",
    "InputColumns",
    "RecordSource",
    "SqlSource",
    "TaskSource",
    "columns_of_files",
    "file_order",
    "name_of",
    "parse_values",
]
