"""Turns rows with columns into records: selects the columns of each part, and converts columns into plain data.

Spark does so before a row reaches a task, and leaves columns that are already plain data unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from streamkit.durations import DAY_MS
from streamkit.errors import ErrorCollector, TransportError
from streamkit.expressions.types import (
    ANY,
    BOOLEAN,
    BYTES,
    INTEGER,
    NUMBER,
    TEXT,
    ListOf,
    MapOf,
    OneOf,
    Record,
    Type,
    item,
    member,
)
from streamkit.plan.assemble import misfit
from streamkit.runtime.spark.job_options import EVERY, OF_SPARK, Parts, Place
from streamkit.runtime.spark.spark_session import translated
from streamkit.serdes.serde import Serde
from streamkit.suggestions import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    Step: TypeAlias = Callable[[Column, Callable[[Column], Column]], Column]

PARTS = ("key", "value", "timestamp", "headers", "partition", "offset")
HIDDEN = "_streamkit_"
"""The prefix of the names of columns with a row's position."""
WHOLE, TIMES = ("tinyint", "smallint", "int", "bigint"), ("timestamp", "timestamp_ntz")
_EXACT_DIGITS = 15
"""A decimal number of up to this many digits survives a conversion to a double and back."""
_CASTS = {TEXT: "string", INTEGER: "bigint", NUMBER: "double", BOOLEAN: "boolean"}
_NAME = re.compile(r"\w+")
_SMALL_NUMBER = re.compile("[0-9]{1,9}")
"""Whole numbers that are an `int` of Spark's."""


def select_parts(frame: DataFrame, place: Place, order: str | None, *, may_be_null: bool = False) -> DataFrame:
    """Select the columns of an input that are parts of its records, and its hidden columns. Raises TransportError.

    order: the column or expression that orders the rows, instead of their offsets; may_be_null: whether rows may have a null
    in the column or expression that the input declares as key.
    """
    from pyspark.sql import functions as sf

    columns = [name for name in frame.columns if not name.startswith(HIDDEN)]
    hidden = [sf.col(name) for name in frame.columns if name.startswith(HIDDEN)]
    chosen = {part: getattr(place.columns, part) for part in PARTS}
    check_case(place, columns)
    if order is not None:
        chosen.pop("offset")
    parts = []
    for part, written in chosen.items():
        if written is None and part in columns:
            parts.append(quoted(part))
        elif written is not None:
            make = _headers if part == "headers" and isinstance(written, Mapping) else _part
            column = make(place, columns, part, written)
            is_checked = part == "key" and not may_be_null
            parts.append((_never_null(place, column, written) if is_checked else column).alias(part))
    with translated(place.path):
        return frame.select(*parts, *hidden)


Source = str | int | tuple[str, ...]
"""What a part of a record is made of: a column, a whole number, or the columns that are its fields."""


def columns_of_parts(place: Place, columns: Sequence[str]) -> dict[str, Source] | None:
    """Return what each part of an input's records is made of; None if one is another expression."""
    names: dict[str, Source] = {}
    for part in PARTS:
        written = getattr(place.columns, part)
        fields = _fields_in(written, columns)
        if fields is not None:
            names[part] = tuple(dict.fromkeys(fields))
        elif isinstance(written, str):
            is_number = part == "timestamp" and written not in columns and _SMALL_NUMBER.fullmatch(written)
            names[part] = int(written) if is_number else written
        elif part in columns and written is None:
            names[part] = part
        elif written is not None:
            return None
    read = [(name,) if isinstance(name, str) else name for name in names.values() if not isinstance(name, int)]
    return names if {*columns}.issuperset(chain.from_iterable(read)) else None


def schema_of_parts(names: Mapping[str, Source], rows: StructType) -> StructType:
    """Return the types of the parts of records. names: as of `columns_of_parts`; rows: the types of the columns."""
    from pyspark.sql.types import IntegerType, StructType

    schema = StructType()
    for part, name in names.items():
        if isinstance(name, int):
            schema = schema.add(part, IntegerType(), False)
        elif isinstance(name, str):
            schema = schema.add(part, rows[name].dataType, rows[name].nullable)
        else:
            schema = schema.add(part, StructType([rows[field] for field in name]), False)
    return schema


def order_of(place: Place, columns: Sequence[str]) -> str | None:
    """Return the column that orders the rows of an input: the timestamp if rows have neither a position in a file nor an offset."""
    if place.order is not None or place.format in OF_SPARK or place.columns.offset is not None or "offset" in columns:
        return place.order
    return place.columns.timestamp


def check_case(place: Place, columns: Sequence[str]) -> None:
    """Raise TransportError for a column whose name differs from a part of the record only in case, which Spark ignores.

    If settings choose parts, only for the offsets of an exported topic, from which no setting reads the order of the records.
    """
    chosen = {part: getattr(place.columns, part) for part in PARTS}
    unread = {
        name.lower(): name
        for name in columns
        if name not in PARTS and name.lower() in PARTS and chosen[name.lower()] is None
    }
    if any(chosen.values()):
        is_topic = {"partition", "offset"} <= unread.keys() and place.order is None and EVERY not in chosen.values()
        unread = {"offset": unread["offset"]} if is_topic else {}
    for part, name in unread.items():
        raise TransportError(
            f"{place.path}: column {name!r} would not be read; rename it to {part!r}, or set {part}={name}"
        )


def check_columns(place: Place, columns: Sequence[str]) -> None:
    """Raise an error for each column that the settings of an input name, and that the input does not have."""
    errors = ErrorCollector()
    for part in (*PARTS, "order"):
        written = place.order if part == "order" else getattr(place.columns, part)
        if isinstance(written, Mapping):
            texts = list(written.values())
        elif isinstance(written, str):
            texts = [] if written == EVERY else list(_fields_in(written, columns) or [written])
        else:
            texts = list(written or ())
        for text in texts:
            with errors.collecting():
                _check_column(place, columns, part, text)
    errors.raise_errors()


def _part(place: Place, columns: Sequence[str], part: str, written: Parts) -> Column:
    """Return a part of the record: a column, an expression, or an object of several."""
    names = _fields_in(written, columns)
    if names is None and isinstance(written, str):
        return expression(place, columns, part, written)
    fields = written if isinstance(written, Mapping) else {name: name for name in names or ()}
    return _struct({name: expression(place, columns, part, text) for name, text in fields.items()})


def _fields_in(written: Parts | None, columns: Sequence[str]) -> Sequence[str] | None:
    """Return the columns that are the fields of a part; None if it is one column, or has expressions."""
    if written == EVERY:
        return columns
    if isinstance(written, str) and written not in columns and "," in written:
        names = [name.strip() for name in written.split(",")]
        return names if set(names) <= set(columns) else None
    return None if written is None or isinstance(written, str | Mapping) else written


def _never_null(place: Place, key: Column, written: Parts) -> Column:
    """Return the key that an input names. A row with a null key fails, because most steps would drop its record."""
    from pyspark.sql import functions as sf

    refusal = f"{place.path}: key={written} is null in a row; where={written} is not null skips such rows"
    return sf.when(key.isNull(), sf.raise_error(sf.lit(refusal))).otherwise(key)


def _headers(place: Place, columns: Sequence[str], part: str, written: Mapping[str, str]) -> Column:
    from pyspark.sql import functions as sf

    return sf.array(
        *(
            sf.struct(sf.lit(name).alias("name"), expression(place, columns, part, text).cast("binary").alias("value"))
            for name, text in written.items()
        )
    )


def expression(place: Place, columns: Sequence[str], part: str, text: str) -> Column:
    from pyspark.sql import functions as sf

    if text in columns:
        return quoted(text)
    _check_column(place, columns, part, text)
    return sf.expr(text)


def _check_column(place: Place, columns: Sequence[str], part: str, text: str) -> None:
    """Raise TransportError for the name of a column that an input does not have; expressions are Spark's to check."""
    if text not in columns and _NAME.fullmatch(text) and not text.isdigit():
        known = f"it has {', '.join(columns)}"
        raise TransportError(f"{place.path}: {part}={text}: no such column{did_you_mean(text, columns, known)}")


def quoted(name: str) -> Column:
    from pyspark.sql import functions as sf

    return sf.col("`" + name.replace("`", "``") + "`")


def _struct(fields: Mapping[str, Column]) -> Column:
    from pyspark.sql import functions as sf

    return sf.struct(*(column.alias(name) for name, column in fields.items()))


def types_of(frame: DataFrame) -> dict[str, str]:
    """Return the types of the parts of records and of the fields within them; `value.tags[]` is the element of a list."""
    types = {}
    left = [(field.name, field.dataType) for field in frame.schema.fields if not field.name.startswith(HIDDEN)]
    while left:
        name, kind = left.pop(0)
        inner = _inside(name, kind)
        left += [(path, part) for path, part, _ in inner]
        types[name] = kind.typeName() if inner else kind.simpleString()
    return types


def with_known_fields(frame: DataFrame, known: Mapping[str, str], *, is_sorted: bool) -> DataFrame:
    """Return an input whose objects have the same fields as in a job that reads all files at once.

    known: the paths and types of `types_of`, including those of these files. is_sorted: whether Spark sorts the fields, as it
    does for JSON.
    """
    if list(types_of(frame)) == list(known):
        return frame
    return frame.select(
        *(
            _with_known(quoted(field.name), field.name, field.dataType, known, is_sorted).alias(field.name)
            for field in frame.schema.fields
        )
    )


def _with_known(column: Column, path: str, kind: DataType, known: Mapping[str, str], is_sorted: bool) -> Column:
    from pyspark.sql import functions as sf
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        element = kind.elementType
        return sf.transform(column, lambda value: _with_known(value, f"{path}[]", element, known, is_sorted))
    if isinstance(kind, MapType):
        values = kind.valueType
        return sf.transform_values(column, lambda _, value: _with_known(value, f"{path}{{}}", values, known, is_sorted))
    if not isinstance(kind, StructType):
        return column
    types = {field.name: field.dataType for field in kind.fields}
    names = list(dict.fromkeys((*_fields_of(path, known), *types)))
    if is_sorted:
        names.sort(key=lambda name: name.encode("utf-16-be"))  # as Java compares text
    fields = [
        _with_known(column.getField(name), f"{path}.{name}", types[name], known, is_sorted).alias(name)
        if name in types
        else sf.lit(None).cast("string").alias(name)
        for name in names
    ]
    return sf.when(column.isNotNull(), sf.struct(*fields))


def _fields_of(path: str, known: Iterable[str]) -> list[str]:
    """Return the names of the fields of an object, without those within them. known: paths, outer ones first."""
    names: list[str] = []
    for full in known:
        name = full.removeprefix(f"{path}.")
        if name != full and not any(name.startswith((f"{outer}.", f"{outer}[]", f"{outer}{{}}")) for outer in names):
            names.append(name)
    return names


def has_value(frame: DataFrame, path: str) -> bool:
    """Return whether any row has a value at a path of `types_of`."""
    condition = any_value(frame, path, lambda column: column.isNotNull())
    return condition is not None and bool(frame.where(condition).limit(1).collect())


def any_value(frame: DataFrame, path: str, test: Callable[[Column], Column]) -> Column | None:
    """Return the condition that a test is true for some value at a path of `types_of`; None for an unknown path."""
    for field in frame.schema.fields:
        steps = _steps_to(path, field.name, field.dataType)
        if steps is not None:
            return _some(quoted(field.name), steps, test)
    return None


def _inside(name: str, kind: DataType) -> list[tuple[str, DataType, Step]]:
    """Return, for each kind of nested value, its path, its type, and the function that applies a test to any such value."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import ArrayType, MapType, StructType

    def of_field(field: str) -> Step:
        return lambda column, test: test(column.getField(field))

    if isinstance(kind, StructType):
        return [(f"{name}.{field.name}", field.dataType, of_field(field.name)) for field in kind.fields]
    if isinstance(kind, ArrayType):
        return [(f"{name}[]", kind.elementType, sf.exists)]
    if isinstance(kind, MapType):
        return [(f"{name}{{}}", kind.valueType, lambda column, test: sf.exists(sf.map_values(column), test))]
    return []


def _steps_to(path: str, name: str, kind: DataType) -> list[Step] | None:
    """Return the steps from a column to a path within it; None if the path is not in the column."""
    if name == path:
        return []
    ways = ((step, _steps_to(path, inner, nested)) for inner, nested, step in _inside(name, kind))
    return next(([step, *rest] for step, rest in ways if rest is not None), None)


def _some(column: Column, steps: Sequence[Step], test: Callable[[Column], Column]) -> Column:
    """Return whether these steps lead to a value for which a test is true."""
    return steps[0](column, lambda inner: _some(inner, steps[1:], test)) if steps else test(column)


def wider_type(one: str, other: str) -> str | None:
    """Return the one of two types that can represent all values of the other as the same plain data; None if neither can.

    >>> wider_type("int", "bigint"), wider_type("bigint", "double"), wider_type("decimal(9,2)", "decimal(12,2)")
    ('bigint', None, 'decimal(12,2)')
    """
    for family in (WHOLE, ("float", "double")):
        if one in family and other in family:
            return max(one, other, key=family.index)
    if all(re.match("string$|(var)?char", kind) for kind in (one, other)):
        return "string"
    first, second = (re.fullmatch(r"decimal\((\d+),(\d+)\)", kind) for kind in (one, other))
    if first and second and first[2] == second[2]:
        return max(one, other, key=lambda kind: int(re.findall(r"\d+", kind)[0]))
    return one if one == other else None


def without_case(name: str) -> str:
    """Return a form of a name that is equal for all names that Spark considers equal (String.equalsIgnoreCase in Java).

    It is also equal for a few names that Spark distinguishes.

    >>> without_case("K\u0131") == without_case("\u212aI")
    True
    """
    return "".join(_without_case(character) for character in name)


def _without_case(character: str) -> str:
    # Java changes the case of single characters only: it leaves ß, whose upper case is SS.
    upper = character.upper()
    return (upper if len(upper) == 1 else character).lower()[0]


# -- Types -------------------------------------------------------------------------------------------------------------


def plain_part(frame: DataFrame, place: Place, part: str, serde: Serde) -> Column:
    """Return a key or a value in the serde's JSON form, or as bytes. Raises TransportError for a type that the serde can't encode."""
    from pyspark.sql import types

    kind, column = frame.schema[part].dataType, quoted(part)
    if isinstance(kind, types.BinaryType):
        return column
    if isinstance(kind, types.StringType) and serde.spec == "json":
        return column.cast("binary").alias(part)
    plain, type_ = _Plain(place).of(column, kind, serde.type, part)
    reason = misfit(part, type_, serde)
    if reason is not None and place.infers_types:
        plain, type_ = _Plain(place, _without_values(frame.select(column))).of(column, kind, serde.type, part)
        reason = misfit(part, type_, serde)
    if reason is not None and not (type_ is INTEGER and serde.type is NUMBER):
        kind_wanted = next((name for wanted, name in _CASTS.items() if wanted is serde.type), None)
        cure = "" if kind_wanted is None else f"; {part}=cast(COLUMN as {kind_wanted}) converts it"
        raise TransportError(
            f"{place.path}: {part} is of type {kind.simpleString()}: the topic {_without_cure(reason)}{cure}"
        )
    return plain.alias(part)


def is_plain(kind: DataType, part: str, serde: Serde) -> bool:
    """Return whether a key or a value is plain data as it is, which its serde takes, so that `plain_part` does not refuse it."""
    type_ = plain_type(kind)
    return type_ is not None and misfit(part, type_, serde) is None


def plain_type(kind: DataType) -> Type | None:
    """Return the type of columns that are plain data as they are; None for those of another type."""
    from pyspark.sql import types

    text = kind.simpleString()
    if isinstance(kind, types.StructType):
        fields = {field.name: plain_type(field.dataType) for field in kind.fields}
        known = {name: type_ for name, type_ in fields.items() if type_ is not None}
        return Record("an object", known) if len(known) == len(kind.fields) else None
    if isinstance(kind, types.StringType) or text.startswith(("char", "varchar")):
        return TEXT
    if isinstance(kind, types.BooleanType):
        return BOOLEAN
    return INTEGER if text in WHOLE else NUMBER if text in ("float", "double") else None


def plain_field(frame: DataFrame, place: Place, path: Sequence[str], wanted: Type) -> Column:
    """Return a field of a key or a value as plain data. path: the names that lead to it. Raises TransportError.

    wanted: the type of this field in the serde.
    """
    column, kind = quoted(path[0]), frame.schema[path[0]].dataType
    for name in path[1:]:
        column, kind = column.getField(name), kind[name].dataType  # type: ignore[index]  # a struct
    return _Plain(place).of(column, kind, wanted, ".".join(path))[0]


def with_fields(frame: DataFrame, names: Collection[str]) -> DataFrame | None:
    """Return an input whose values have only these fields, so that Spark reads no others.

    None if the values are not objects, or have fields that Spark can't distinguish. None also if one of the names is missing,
    because the message about it lists all fields of the value.
    """
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StructType

    field = frame.schema["value"]
    if not isinstance(field.dataType, StructType):
        return None
    known = field.dataType.names
    if not set(names) <= set(known) or len(set(map(without_case, known))) < len(known):
        return None
    value = quoted("value")
    chosen = _struct({name: value.getField(name) for name in known if name in names}) if names else sf.lit(b"{}")
    chosen = sf.when(value.isNotNull(), chosen) if field.nullable else chosen
    return frame.select(*(chosen.alias(name) if name == "value" else quoted(name) for name in frame.columns))


def encoded_part(frame: DataFrame, place: Place, part: str, serde: Serde) -> Column | None:
    """Return a key or a value as bytes that its serde decodes; None for types that only Python can encode.

    The JSON of an object differs from Python's in spaces and numbers, so these bytes must not be written to an output.
    """
    from pyspark.sql import functions as sf
    from pyspark.sql import types

    kind, column = frame.schema[part].dataType, quoted(part)
    if isinstance(kind, types.BinaryType):
        return column
    if serde.spec == "string" and kind.simpleString() == "string":
        return _checked_text(column, f"{place.path}: {part}").cast("binary").alias(part)
    if serde.spec == "long" and kind.simpleString() in WHOLE:
        return sf.unhex(sf.lpad(sf.hex(column.cast("bigint")), 16, "0")).alias(part)
    if serde.spec != "json" or not isinstance(kind, types.StructType):
        return None
    fields = {field.name: _json_field(frame, place, part, field.name) for field in kind.fields}
    known = {name: field for name, field in fields.items() if field is not None}
    if len(known) < len(fields):
        return None
    text = sf.to_json(_struct(known), {"ignoreNullFields": "false"})
    return sf.when(column.isNotNull(), text).cast("binary").alias(part)


def _json_field(frame: DataFrame, place: Place, part: str, name: str) -> Column | None:
    """Return a field of an object whose JSON form Spark writes; None for lists, objects and maps."""
    from pyspark.sql import functions as sf

    kind = frame.schema[part].dataType[name].dataType.simpleString()  # type: ignore[index]  # a struct
    column = plain_field(frame, place, (part, name), ANY)
    if kind == "string":
        return _checked_text(column, f"{place.path}: {part}.{name}")
    if kind in ("float", "double"):
        number = column.cast("double")
        refusal = f"{place.path}: {part}.{name}: JSON has no NaN and no infinite number; write null, or text"
        failure = sf.raise_error(sf.lit(refusal)).cast("double")
        return sf.when(sf.abs(number) < float("inf"), number).when(number.isNotNull(), failure)
    is_plain = kind in (*WHOLE, *TIMES, "boolean", "date") or kind.startswith("decimal")
    return column if is_plain else None


def _checked_text(column: Column, shown: str) -> Column:
    from pyspark.sql import functions as sf

    broken = sf.raise_error(sf.lit(f"{shown} is not UTF-8 in a row")).cast("string")
    return sf.when(sf.is_valid_utf8(column), column).when(column.isNotNull(), broken)


def _without_values(frame: DataFrame) -> frozenset[str]:
    """Return the paths of `types_of` that are null in all rows; Spark infers text for them."""
    return frozenset(path for path, kind in types_of(frame).items() if kind == "string" and not has_value(frame, path))


def milliseconds(frame: DataFrame, place: Place) -> Column:
    """Return the timestamps of records in milliseconds, or unchanged if they are text. Raises TransportError for other types."""
    from pyspark.sql import functions as sf

    kind, column = frame.schema["timestamp"].dataType.simpleString(), quoted("timestamp")
    if kind == "string":
        return column
    if kind == "date":
        return (sf.unix_date(column).cast("bigint") * DAY_MS).alias("timestamp")
    if kind in TIMES:
        return sf.unix_millis(instant(column, kind)).alias("timestamp")
    if kind not in WHOLE:
        written = place.columns.timestamp or "timestamp"
        raise TransportError(
            f"{place.path}: timestamp={written} is of type {kind}; expected a time, a date, or whole milliseconds: "
            f"timestamp=cast({written} as bigint)"
        )
    return column.cast("bigint").alias("timestamp")


def instant(column: Column, kind: str) -> Column:
    """Return a time as an instant. A time without a zone is taken as UTC, regardless of the session's zone."""
    from pyspark.sql import functions as sf

    return column if kind == "timestamp" else sf.concat(column.cast("string"), sf.lit("Z")).cast("timestamp")


def in_utc(column: Column) -> Column:
    """Return an instant as a time without a zone, in UTC. In the session's zone a local time can be ambiguous."""
    from pyspark.sql import functions as sf

    micros, day, zero = sf.unix_micros(column), sf.lit(DAY_MS * 1000), sf.lit(0)
    # An interval has at most 12 digits of seconds.
    of_day = sf.pmod(micros, day)
    days = (micros.cast("decimal(20,0)") - of_day) / day
    since = sf.make_dt_interval(days.cast("int"), zero, zero, of_day.cast("decimal(12,0)") / 1_000_000)
    return sf.lit("1970-01-01").cast("timestamp_ntz") + since


def _without_cure(reason: str) -> str:
    return reason.partition(";")[0]


class _Plain:
    """Converts columns into plain data: null, booleans, numbers, text, lists, objects."""

    def __init__(self, place: Place, empty: Collection[str] = ()):
        self._place = place
        self._empty = empty
        """The paths that are null in all rows."""

    def of(self, column: Column, kind: DataType, wanted: Type, name: str) -> tuple[Column, Type]:
        """Return a column as plain data, and its type. Raises TransportError.

        wanted: the type in the serde; name: the column and the field within it, for messages.
        """
        from pyspark.sql import types

        if isinstance(kind, types.StructType):
            return self._object(column, kind, wanted, name)
        if isinstance(kind, types.ArrayType):
            return self._list(column, kind, wanted, name)
        if isinstance(kind, types.MapType):
            return self._map(column, kind, wanted, name)
        return self._scalar(column, kind, wanted, name)

    def _object(self, column: Column, kind: DataType, wanted: Type, name: str) -> tuple[Column, Type]:
        from pyspark.sql import functions as sf
        from pyspark.sql.types import StructType

        assert isinstance(kind, StructType)
        fields, types, changed = {}, {}, False
        for field in kind.fields:
            own = column.getField(field.name)
            inner = member(wanted, field.name) or ANY
            fields[field.name], types[field.name] = self.of(own, field.dataType, inner, f"{name}.{field.name}")
            changed = changed or fields[field.name] is not own
        plain = sf.when(column.isNotNull(), _struct(fields)) if changed else column
        return plain, Record("an object", types)

    def _list(self, column: Column, kind: DataType, wanted: Type, name: str) -> tuple[Column, Type]:
        from pyspark.sql import functions as sf
        from pyspark.sql.types import ArrayType

        assert isinstance(kind, ArrayType)
        types, changed = list[Type](), list[bool]()

        def change(part: Column) -> Column:
            plain, type_ = self.of(part, kind.elementType, item(wanted), f"{name}[]")
            types.append(type_)
            changed.append(plain is not part)
            return plain

        plain = sf.transform(column, change)
        return (plain if any(changed) else column), ListOf(types[0])

    def _map(self, column: Column, kind: DataType, wanted: Type, name: str) -> tuple[Column, Type]:
        from pyspark.sql import functions as sf
        from pyspark.sql.types import MapType, StringType

        assert isinstance(kind, MapType)
        if not isinstance(kind.keyType, StringType):
            self._refuse(
                kind.simpleString(),
                name,
                f"the names of an object are text: transform_keys({name}, (k, v) -> string(k))",
            )
        inner = wanted.value if isinstance(wanted, MapOf) else ANY
        types, changed = list[Type](), list[bool]()

        def change(_: Column, value: Column) -> Column:
            plain, type_ = self.of(value, kind.valueType, inner, f"{name}{{}}")
            types.append(type_)
            changed.append(plain is not value)
            return plain

        plain = sf.transform_values(column, change)
        return (plain if any(changed) else column), MapOf(types[0])

    def _scalar(self, column: Column, kind: DataType, wanted: Type, name: str) -> tuple[Column, Type]:
        from pyspark.sql import functions as sf
        from pyspark.sql import types

        text = kind.simpleString()
        if isinstance(kind, types.NullType) or name in self._empty:
            return column, ANY
        type_ = plain_type(kind)
        if type_ is not None:
            return column, type_
        if isinstance(kind, types.DateType):
            return column.cast("string"), TEXT
        if isinstance(kind, (types.TimestampType, types.TimestampNTZType)):
            return self._time(column, text, wanted, name)
        if isinstance(kind, types.DecimalType):
            return self._decimal(column, kind.precision, kind.scale, wanted, name)
        if isinstance(kind, types.BinaryType):
            if not (wanted is BYTES or (isinstance(wanted, OneOf) and BYTES in wanted.choices)):
                self._refuse(text, name, f"an object can't hold bytes: base64({name}) turns them into text")
            in_one_line = sf.translate(sf.base64(column), "\r\n", "")
            return sf.when(column.isNotNull(), sf.struct(in_one_line.alias("base64"))), BYTES
        self._refuse(text, name, f"write it in another form, such as cast({name} as string)")

    def _time(self, column: Column, kind: str, wanted: Type, name: str) -> tuple[Column, Type]:
        """Return a time as ISO 8601 text, or in milliseconds if the serde needs a number. Times with microseconds then fail."""
        from pyspark.sql import functions as sf

        has_zone = kind == "timestamp"
        if wanted is INTEGER and has_zone and "." not in name:
            fits = column.isNull() | (sf.unix_micros(column) % 1000 == 0)
            lost = sf.concat(
                sf.lit(f"{name} is "),
                column.cast("string"),
                sf.lit(f", which is not a whole number of milliseconds; {name}=unix_millis(COLUMN) truncates it"),
            )
            return sf.when(fits, sf.unix_millis(column)).otherwise(sf.raise_error(lost)).cast("bigint"), INTEGER
        text = sf.replace((in_utc(column) if has_zone else column).cast("string"), sf.lit(" "), sf.lit("T"))
        return (sf.concat(text, sf.lit("Z")) if has_zone else text), TEXT

    def _decimal(self, column: Column, precision: int, scale: int, wanted: Type, name: str) -> tuple[Column, Type]:
        if wanted is TEXT:
            return column.cast("string"), TEXT
        if scale <= 0 and precision <= 18:
            return column.cast("bigint"), INTEGER
        if precision <= _EXACT_DIGITS:
            return column.cast("double"), NUMBER
        self._refuse(
            f"decimal({precision},{scale})",
            name,
            f"more than {_EXACT_DIGITS} digits are not exact as a number: cast({name} as string), or as double",
        )

    def _refuse(self, kind: str, name: str, cure: str) -> NoReturn:
        raise TransportError(f"{self._place.path}: {name} is of type {kind}, which a record can't represent; {cure}")
