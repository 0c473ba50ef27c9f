"""The records of an input as typed columns: a column for each field that the steps of a job read, and no others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamkit.errors import UntranslatableError
from streamkit.expressions.types import ANY
from streamkit.runtime.spark.job_options import EVERY, PARQUET, Parts, Place
from streamkit.runtime.spark.rows.files import FILES, NUMBERS, TIMES_OF_ROWS, OpenedInput, placed_parts
from streamkit.runtime.spark.rows.input_columns import (
    HIDDEN,
    WHOLE,
    milliseconds,
    plain_field,
    plain_part,
    without_case,
)
from streamkit.runtime.spark.rows.output_columns import ticked
from streamkit.runtime.spark.rows.row_order import BLOCK, FILE, INDEX, ROW, same_path
from streamkit.runtime.spark.sql.terms import (
    BOOLEAN,
    INTEGER,
    NUMBER,
    OBJECT,
    SERDE_KINDS,
    TEXT,
    UNREAD,
    Guard,
    Term,
    chosen_rows,
    failure,
    fits_serde,
    quoted_text,
)
from streamkit.serdes.serde import Serde

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

TASKS = "tasks"
"""The order of records that several tasks have written: each has its own, and a query must not depend on it."""
LATEST = ((1 << 63) - 1) // 1000
"""The last millisecond that a column of times holds."""
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


@dataclass(frozen=True)
class InputColumns:
    """What is known of an input before it is read. schema: of its rows; has_key: whether it names a key; order: of its rows.

    is_by_time: whether their timestamps order them; numbered: how many files it has if Spark numbers the rows of each, as those of Parquet.
    """

    schema: StructType
    has_key: bool
    order: str
    is_by_time: bool = False
    numbered: int = 0

    @classmethod
    def of(cls, opened: OpenedInput) -> InputColumns:
        """Return what is known of an opened input."""
        place = opened.place
        is_by_time = opened.by is not None and place.order in (None, place.columns.timestamp or TIME)
        numbered = len(opened.files or opened.source.inputFiles()) if opened.is_numbered else 0
        return cls(opened.parts.schema, place.columns.key is not None, opened.order, is_by_time, numbered)


class SqlSource:
    """The records of one input as columns. Raises UntranslatableError for an input whose rows only Python makes records of.

    mark: the beginning of the names of its columns, if they are joined with those of another input.
    """

    def __init__(self, topic: str, columns: InputColumns, serdes: tuple[Serde, Serde], mark: str = ""):
        self.topic = topic
        self.mark = mark
        self._columns = columns
        self._serdes = dict(zip(("key", "value"), serdes, strict=True))
        self._leaves: dict[Path, str] = {}
        """The kinds of the columns that steps read, by the path to their field."""
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
        kind = _kind(field.dataType, 1)
        known = SERDE_KINDS.get(serde.spec, ()) if isinstance(serde.spec, str) else ()
        if kind is None or kind not in known or (serde.spec == "json" and kind == TEXT):
            word = field.dataType.simpleString() if kind != OBJECT else "a struct"
            raise UntranslatableError(f"the {part} of {self.topic} is {word} for the serde {serde.spec}")
        return self._term((part,), field.dataType, field.nullable, kind)

    def _term(self, path: Path, kind: DataType, nullable: bool, word: str) -> Term:
        fields = _Fields(self, path, kind) if word == OBJECT else {}
        size = {OBJECT: _MOST_TEXT, TEXT: LONGEST}.get(word, 0)
        return Term(word, ticked(self.name_of(path)), nullable, fields=fields, size=size)

    def field(self, path: Path, kind: DataType, nullable: bool) -> Term | None:
        """Return a field; None for one of a type whose values SQL does not treat as Python does."""
        word = _kind(kind, len(path))
        if word is None:
            return None
        self._leaves[path] = word
        return self._term(path, kind, nullable, word)

    def name_of(self, path: Path) -> str:
        """Return the name of the column of a path."""
        return self.mark + name_of(path)

    def columns_in(self, texts: Sequence[str]) -> list[Path]:
        """Return the paths of the columns that texts of SQL name, and perhaps of others."""
        made = self._made_time
        texts = [*texts, *([] if made is None else [made.sql, *(guard.sql for guard in made.guards)])]
        return [path for path in self.all_columns() if any(ticked(self.name_of(path)) in text for text in texts)]

    def guards(self, columns: Sequence[Path]) -> list[Guard]:
        """Return what holds of each row that a task can read, and that no limit of a record's size refuses.

        columns: those that are read.
        """
        guards = [
            Guard(f"({ticked(TIME)} BETWEEN 0 AND {LATEST})", f"a timestamp of {self.topic} is before 1970 or too late")
        ]
        if self._columns.order not in (FILES, TASKS):
            guards.append(Guard(f"({ticked(_PLACED)} IS NOT NULL)", f"a row of {self.topic} has no place in the order"))
        if self.has_keys and ("key",) in columns:
            guards.append(Guard(f"({self.key.sql} IS NOT NULL)", f"a key of {self.topic} is null"))
        for (part, *inner), term in ((path, self.key if path == ("key",) else self.value) for path in columns):
            if not inner:
                guards += fits_serde(self._serdes[part].spec, term, f"a {part} of {self.topic} has over 32 bits")
        texts = sum(self._kind_of(path) == TEXT for path in columns)
        longest = min(LONGEST, _MOST_TEXT // max(1, texts))
        for path in columns:
            if self._kind_of(path) == TEXT:
                column = ticked(self.name_of(path))
                fits = f"(is_valid_utf8({column}) AND octet_length({column}) <= {longest})"
                reason = f"{name_of(path)} of {self.topic} is no UTF-8, or a long text"
                guards.append(Guard(f"({column} IS NULL OR {fits})", reason))
            elif self._kind_of(path) == NUMBER:
                column = ticked(self.name_of(path))
                fits = f"abs({column}) < CAST('Infinity' AS DOUBLE)"
                guards.append(
                    Guard(f"({column} IS NULL OR {fits})", f"{name_of(path)} of {self.topic} is NaN or infinite")
                )
        return guards

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
            if part in opened.parts.columns:
                plain_part(opened.parts, place, part, serde)
        columns = []
        made = self._made_time
        frame = placed_parts(opened) if has_order else opened.parts
        for path in paths if made is None else dict.fromkeys((*paths, *self.columns_in(()))):
            column = plain_field(frame, place, path, self._serdes[path[0]].type if len(path) == 1 else ANY)
            plain = _PLAIN_TYPES.get(self._kind_of(path) or "")
            column = column if plain is None else column.cast(plain)
            columns.append(column.alias(self.name_of(path)))
        time = sf.coalesce(milliseconds(frame, place), sf.lit(0)).alias(TIME)
        placed = [] if self._columns.order == FILES else [sf.col(ROW).alias(_PLACED)]
        rows = frame.select(*columns, time, *placed, *(_positions(frame) if has_order else ()))
        return rows if made is None else rows.where(chosen_rows(made.guards)).withColumn(TIME, sf.expr(made.sql))

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


class _Fields(Mapping[str, Term]):
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


def _positions(frame: DataFrame) -> list[Column]:
    """Return the columns from which `order_columns` creates an order."""
    from pyspark.sql import functions as sf

    names = frame.inputFiles() if INDEX in frame.columns else []
    if not 0 < len(names) <= _MOST_RANKED:
        return [sf.col(name) for name in (FILE, BLOCK, ROW)]
    ranks = {name: rank << _INDEX_BITS for rank, name in enumerate(sorted(names, key=same_path))}
    # `_metadata` and the list of files write the names of local files in different ways, and other releases may swap them.
    forms = {re.sub("^file:/+", form, name): rank for form in ("file:/", "file:///") for name, rank in ranks.items()}
    cases = [f"WHEN {quoted_text(name)} THEN {rank}L" for name, rank in forms.items()]
    unknown = f"CAST(raise_error({quoted_text(failure('a file has another name than those of the input'))}) AS BIGINT)"
    return [sf.expr(f"CASE {FILE} {' '.join(cases)} ELSE {unknown} END + {INDEX}").alias(ORDER)]


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
    """Return the facts in the footers of local Parquet files; None if only Spark can determine the types of the input."""
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
    chosen = _chosen(place, rows)
    return None if chosen is None else replace(chosen, numbered=len(files))


def _chosen(place: Place, rows: StructType) -> InputColumns | None:
    from pyspark.sql.types import StructType

    fields = {field.name: field for field in rows.fields}
    schema = StructType()
    for part in ("key", "value", "timestamp", "headers", "partition", "offset"):
        written: Parts | None = getattr(place.columns, part)
        if written == EVERY:
            written = tuple(fields)
        if isinstance(written, str) and written not in fields and "," in written:
            written = tuple(name.strip() for name in written.split(","))
        names = (part,) if written is None else (written,) if isinstance(written, str) else tuple(written)
        if written is None and part not in fields:
            continue
        if not fields.keys() >= set(names) or isinstance(written, Mapping):
            return None
        if isinstance(written, tuple):
            schema = schema.add(part, StructType([fields[name] for name in names]), False)
        else:
            schema = schema.add(part, fields[names[0]].dataType, True)
    return InputColumns(schema, place.columns.key is not None, FILES)


__all__ = [
    "LATEST",
    "ORDER",
    "TIME",
    "InputColumns",
    "SqlSource",
    "TaskSource",
    "columns_of_files",
    "file_order",
    "name_of",
]
