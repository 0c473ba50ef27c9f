"""Refuses, with file and line, malformed text that Spark's readers of JSON and CSV accept without an error.

The JSON reader takes the first value of a line (with multiLine, of a file) and ignores any text after it. The CSV reader takes
everything after an unclosed quote as one field, guesses if text follows a closing quote, and replaces bytes that are not UTF-8.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product
from typing import TYPE_CHECKING, NoReturn

from streamkit.errors import TransportError
from streamkit.runtime.spark.job_options import AVRO, COMPLETE, EVERY, IN_UTC, JSON_LINES, PARQUET, Parts, Place
from streamkit.runtime.spark.rows.file_system import (
    BLOCK,
    FILE,
    ROW,
    escaped,
    file_relations,
    input_files,
    place_of_line,
    position_columns,
    reads_hive_text,
    same_path,
)
from streamkit.runtime.spark.rows.input_columns import PARTS, any_value, types_of, without_case
from streamkit.runtime.spark.spark_session import classic_context, tells_case
from streamkit.runtime.spark.workers import arrow_rows
from streamkit.runtime.spark.workers.worker import mark_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_TEXT = "_streamkit_text"
EXCERPT_CHARACTERS = 120
"""How much of a line a message shows."""
_UNSURE = (".lz4", ".snappy")
_LONG = "[0-9]{16,}"
"""A whole number of so many digits may not be exact as a double."""
_OF_JAVA = r"(?i)^\s*[-+]?0x|[0-9.][df]\s*$"
"""A number in the notation of Java."""
_HALF = r"\\u[dD][89a-fA-F]"
"""Half of a character beyond 16 bits, as an escape."""
_NO_HALVES = r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
"""An escaped backslash, or both halves of a character."""


def _option(place: Place, *names: str, default: str = "") -> str:
    """Return an option of an input by its names, which Spark compares without case."""
    options = {name.lower(): value for name, value in place.options.items()}
    return next((options[name] for name in names if name in options), default)


def _is_wide(place: Place) -> bool:
    return _encoding(place).startswith(("utf-16", "utf-32"))


def _encoding(place: Place) -> str:
    return _option(place, "encoding", "charset").lower()


def _texts(spark: SparkSession, place: Place, paths: Sequence[str], whole: bool) -> DataFrame:
    """Return the lines of files, or whole files, with their positions."""
    from pyspark.sql import functions as sf

    reader = spark.read.options(**IN_UTC | dict(place.options) | COMPLETE)
    frame = reader.schema(f"{_TEXT} string").text(
        list(paths), wholetext=whole, lineSep=_option(place, "linesep") or None
    )
    files = input_files(frame)
    check_compression(place, files)
    _check_patterns(place, files)
    text = sf.decode(sf.col(_TEXT).cast("binary"), _encoding(place)) if _is_wide(place) else sf.col(_TEXT)
    return frame.select(text.alias(_TEXT), *map(sf.expr, position_columns("_metadata.file_block_start")))


def check_compression(place: Place, files: Iterable[str]) -> None:
    """Raise TransportError for text in a compression of which Hadoop reads damaged files, and those of other programs, as shorter ones."""
    unsure = next((name for name in files if name.endswith(_UNSURE)), None)
    if unsure is not None and place.format not in (PARQUET, "orc", AVRO):
        raise TransportError(
            f"{place.path}: {same_path(unsure)} may be incomplete: Spark takes a damaged file of this compression for one that ends "
            "early; compress text as .gz, .bz2 or .zst"
        )


def _check_patterns(place: Place, files: Iterable[str]) -> None:
    """Raise TransportError for a name that Spark takes for a pattern when it infers columns of texts of several lines.

    It would infer them from other files, or from none, and leave out the fields of this one.
    """
    is_whole = _option(place, "multiline", default=str(place.format == "csv")).lower() == "true"
    name = next((name for name in map(same_path, files) if escaped(name) != name), None)
    if is_whole and place.format in (JSON_LINES, "csv") and name is not None:
        raise TransportError(f"{place.path}: Spark takes the name of {name} for a pattern; rename the file")


def check_tables(place: Place, frame: DataFrame) -> bool:
    """Return whether a table of CSV or JSON in a catalog has no zone of its own for times in its text.

    Raises TransportError for text that such a table would lose, also below a view.

    Quotes in CSV are not checked: a table's fields are what Spark finds by its options. Spark Connect tells the format of a table, but
    not what a view reads.
    """
    if classic_context(frame.sparkSession) is not None and reads_hive_text(frame):
        raise TransportError(
            f"{place.path}: Hive reads fields of text that do not fit as nulls, and leaves out extra ones; read the files of the table, "
            "such as /lake/table/*,format=csv,options.header=false,options.sep=SEPARATOR"
        )
    has_zone = True
    for kind, options, paths in _tables_of_text(place, frame):
        has_zone = has_zone and bool(_option(replace(place, options=options), "timezone"))
        kept = {name: value for name, value in options.items() if name.lower() not in ("path", "quote", "header")}
        if _option(replace(place, options=options), "mode").upper() != "FAILFAST":
            raise TransportError(
                f"{place.path}: it reads a table of {kind.upper()} through a view, where Spark reads malformed rows as nulls; read the "
                "table itself"
            )
        if kind == "json":
            check_json(frame.sparkSession, replace(place, options=kept), paths)
        elif kind == "csv":
            check_csv(frame.sparkSession, replace(place, options={**kept, "quote": ""}), paths)
    return not has_zone


def _tables_of_text(place: Place, frame: DataFrame) -> Iterator[tuple[str, Mapping[str, str], list[str]]]:
    """Yield the format, the options and the files of each table that a frame reads."""
    spark = frame.sparkSession
    context = classic_context(spark)
    if context is None:
        table = json.loads(spark.sql(f"DESCRIBE TABLE EXTENDED {place.path} AS JSON").head()[0])  # type: ignore[index]  # one row
        if table.get("provider") in ("csv", "json"):
            options = table.get("storage_properties", {}) | {"mode": "FAILFAST"} | place.options
            yield table["provider"], options, list(frame.inputFiles())
        return
    assert context._jvm is not None
    as_java = context._jvm.scala.jdk.javaapi.CollectionConverters.asJava
    for relation in file_relations(frame):
        kind = relation.fileFormat().toString().lower()
        if kind in ("csv", "json"):
            yield kind, dict(as_java(relation.options())), list(relation.inputFiles())


# -- JSON --------------------------------------------------------------------------------------------------------------


def check_json(spark: SparkSession, place: Place, paths: Sequence[str]) -> bool:
    """Raise TransportError for a line of JSON, or with multiLine a file, that is not one value.

    Return whether there may be a whole number that a double does not have exactly.
    """
    from pyspark.sql import functions as sf

    whole = _option(place, "multiline").lower() == "true"
    text = sf.regexp_replace(_TEXT, "^\ufeff", "")
    has_half = sf.when(text.rlike(_HALF), sf.regexp_replace(text, _NO_HALVES, "").rlike(_HALF)).otherwise(False)
    wrong = sf.when(
        ~(text.rlike(r"^\s*$") | _is_one_value(place, text)) | has_half,
        sf.struct(ROW, sf.substring(text, 1, EXCERPT_CHARACTERS + 1).alias(_TEXT), has_half.alias("half")),
    )
    rows = (
        _texts(spark, place, paths, whole)
        .groupBy(FILE, BLOCK)
        .agg(sf.min(ROW).alias(ROW), sf.min(wrong).alias("wrong"), sf.max(text.rlike(_LONG)).alias("long"))
        .where("wrong is not null or long")
        .orderBy(sf.col("wrong").isNull(), FILE, BLOCK)
        .limit(1)
        .collect()
    )
    for row in rows:
        if row["wrong"] is not None:
            place_of_row = same_path(row[FILE]), row[BLOCK], row["wrong"][ROW] - row[ROW]
            if row["wrong"]["half"]:
                raise TransportError(
                    f"{place_of_line(*place_of_row)}: an escape such as \\ud83d is half of a character, without the other half"
                )
            _refuse_json(*place_of_row, row["wrong"][_TEXT], whole)
    return bool(rows)


def _refuse_json(path: str, block: int, row: int, text: str, whole: bool) -> None:
    shown = text if len(text) <= EXCERPT_CHARACTERS else f"{text[:EXCERPT_CHARACTERS]}…"
    if whole:
        raise TransportError(
            f"{path}: with options.multiLine a JSON file is one value, an object or a list of objects; without it each line is "
            f"one value; the file begins with {' '.join(shown.split())}"
        )
    raise TransportError(f"{place_of_line(path, block, row)}: expected one value of JSON: {shown}")


def _is_one_value(place: Place, text: Column) -> Column:
    """Return whether a text is exactly one JSON value.

    The text must be the only content of both a list and an object. Text after the value would have to close both brackets.
    """
    from pyspark.sql import functions as sf

    in_list = sf.concat(sf.lit("["), text, sf.lit("\n]"))
    in_object = sf.concat(sf.lit('{"":'), text, sf.lit("\n}"))
    # These functions take no options, and are faster than from_json.
    strict = (sf.json_array_length(in_list) == 1) & sf.json_object_keys(in_object).isNotNull()
    options = {name: value for name, value in place.options.items() if name.lower().startswith("allow")}
    lenient = (sf.size(sf.from_json(in_list, "array<string>", options)) == 1) & sf.from_json(
        in_object, "map<string,string>", options
    ).isNotNull()
    return sf.coalesce(strict, sf.lit(False)) | sf.coalesce(lenient, sf.lit(False))


# -- Types that Spark infers -------------------------------------------------------------------------------------------


def check_names(place: Place, frame: DataFrame) -> None:
    """Raise TransportError for fields whose names differ only in case, in a session that does not distinguish them.

    frame: with the fields that the files have, as read with case.
    """
    if tells_case(frame.sparkSession):
        return
    known: dict[str, str] = {}
    for path in types_of(frame):
        other = known.setdefault(without_case(path), path)
        if other != path:
            raise TransportError(
                f"{place.path}: the names of {other} and {path} differ only in case; --conf spark.sql.caseSensitive=true tells them "
                "apart"
            )


def check_kinds(place: Place, frame: DataFrame, paths: Sequence[str]) -> None:
    """Raise TransportError for a field with values of several types, such as text and numbers, all of which Spark reads as text.

    frame: with the types that Spark infers. Only fields that are taken as they are count: expressions say themselves what they make.
    """
    from pyspark.sql import functions as sf

    if _option(place, "primitivesasstring").lower() == "true" or "string" not in types_of(frame).values():
        return
    texts = _texts(frame.sparkSession, place, paths, _option(place, "multiline").lower() == "true")
    value = sf.try_parse_json(sf.regexp_replace(_TEXT, "^\ufeff", ""))
    kinds: str = texts.agg(sf.schema_of_variant_agg(value)).collect()[0][0]
    taken = [name for part in PARTS for name in _names(getattr(place.columns, part))]
    for path in _of_several_types(kinds):
        if EVERY in taken or any(path == name or path.startswith((f"{name}.", f"{name}[]")) for name in taken):
            raise TransportError(
                f"{place.path}: {path} has values of different types, so Spark reads all of them as text; "
                "options.primitivesAsString=true does so for all fields, and value=… without the field leaves it out"
            )


def _names(written: Parts | None) -> list[str]:
    """Return the columns and expressions of a part of a record."""
    if isinstance(written, str):
        return [name.strip() for name in written.split(",")]
    return list(written.values() if isinstance(written, Mapping) else written or ())


_OF_KINDS = re.compile(r"(?:`((?:[^`]|``)*)`|([\w$-]+)): |(OBJECT<|ARRAY<|>|VARIANT)")


def _of_several_types(kinds: str) -> Iterator[str]:
    """Yield the paths of fields whose values have no common type. kinds: what schema_of_variant_agg returns.

    >>> list(_of_several_types("OBJECT<a: OBJECT<b: VARIANT, c: BIGINT>, `d e`: ARRAY<VARIANT>>"))
    ['a.b', 'd e[]']
    """
    outer, path = [""], ""
    for quoted_name, name, word in _OF_KINDS.findall(kinds):
        if not word:
            path = ".".join(filter(None, (outer[-1], quoted_name.replace("``", "`") or name)))
        elif word == "VARIANT":
            yield path.removeprefix("[].")
        elif word == ">":
            outer.pop()
        else:
            path += "[]" if word == "ARRAY<" else ""
            outer.append(path)


def check_numbers(place: Place, frame: DataFrame, read: Callable[[StructType], DataFrame]) -> None:
    """Raise TransportError for a value that is not what Spark reads: as a double a whole number of many digits or a text, or as a time.

    read: reads the same rows with other types.
    """
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StructType

    doubles = [path for path, kind in types_of(frame).items() if kind == "double"]
    times = [path for path, kind in types_of(frame).items() if kind.startswith("timestamp")]
    if not doubles and not times:
        return
    schema = _with_texts(frame.schema)
    assert isinstance(schema, StructType)
    texts = read(schema)
    cure = "options.primitivesAsString=true" if place.format == JSON_LINES else "options.inferSchema=false"
    tests = {
        "has fractions in some rows, so Spark reads it as double, which is not exact for the whole number in another row": _is_inexact,
        "has a text such as 7d in a row, which Spark reads as the number 7": lambda text: text.rlike(_OF_JAVA),
    }
    finer = ("has a time with more than six digits after the second, of which Spark drops the last", _is_finer)
    for path, (reason, test) in chain(product(doubles, tests.items()), product(times, [finer])):
        wrong = any_value(texts, path, test)
        rows = [] if wrong is None else texts.where(wrong).select(sf.to_json(sf.struct("*"))).limit(1).collect()
        if rows:
            raise TransportError(f"{place.path}: {path} {reason}; {cure} reads text: {rows[0][0][:EXCERPT_CHARACTERS]}")


def _is_inexact(text: Column) -> Column:
    from pyspark.sql import functions as sf

    exact = text.try_cast("decimal(38,0)") == text.try_cast("double").try_cast("decimal(38,0)")
    return text.rlike(rf"^\s*[-+]?{_LONG}\s*$") & ~sf.coalesce(exact, sf.lit(False))


def _is_finer(text: Column) -> Column:
    return text.rlike("[.][0-9]{6}0*[1-9]")


def _with_texts(kind: DataType) -> DataType:
    """Return a type with text in place of each double, and of each time."""
    from pyspark.sql.types import (
        ArrayType,
        DoubleType,
        StringType,
        StructField,
        StructType,
        TimestampNTZType,
        TimestampType,
    )

    if isinstance(kind, StructType):
        return StructType(
            [StructField(field.name, _with_texts(field.dataType), field.nullable) for field in kind.fields]
        )
    if isinstance(kind, ArrayType):
        return ArrayType(_with_texts(kind.elementType), kind.containsNull)
    return StringType() if isinstance(kind, (DoubleType, TimestampType, TimestampNTZType)) else kind


# -- CSV ---------------------------------------------------------------------------------------------------------------

_CLOSED, _BEFORE = None, -1
"""The state between two lines: the row whose quote is open, _CLOSED, or _BEFORE for a quote that was opened before the block."""
_STATES = (FILE, BLOCK, "if_closed", "if_open", "broken")
"""The last one is the first row of the block that is not UTF-8."""
_STATES_DDL = f"{FILE} string, {BLOCK} bigint, if_closed bigint, if_open bigint, broken bigint"
_ESCAPES = {"\\t": "\t", "\\r": "\r", "\\b": "\b", "\\f": "\f", "\\u0000": "\0"}
"""Spark's notation for separators that are not printable."""


@dataclass(frozen=True)
class _Quoting:
    """The quoting of CSV fields. Spark sends this object to the workers."""

    opening: re.Pattern[bytes]
    """Finds the next field that begins with a quote."""
    closing: re.Pattern[bytes]
    """Matches the rest of a quoted field, with the closing quote."""
    ending: re.Pattern[bytes]
    """Matches valid text after a closing quote."""
    quote: bytes
    comment: bytes
    breaks: re.Pattern[bytes] | None
    """Matches line breaks in a text of several lines; None if each text is a line."""
    by_line: bool
    """Whether fields have no line breaks."""

    def split(self, text: bytes) -> list[bytes]:
        """Return the lines of a text."""
        return [text] if self.breaks is None else self.breaks.split(text)

    def after(self, line: bytes, row: int, state: int | None) -> int | None:
        """Return the state after a line. A row whose quoted field ends wrongly leads to a permanent state below _BEFORE."""
        is_open = state is not _CLOSED
        if (state or 0) < _BEFORE or (not is_open and self.comment and line.startswith(self.comment)):
            return state
        at = 0
        while match := self.closing.match(line, at) if is_open else self.opening.search(line, at):
            at, is_open = match.end(), not is_open
            if is_open:
                state = row
            elif not self.ending.match(line, at):
                return _wrong(row)
        return _CLOSED if not is_open else _wrong(row) if self.by_line else state


def _wrong(row: int) -> int:
    """Convert a row whose quoted field ends wrongly into its state, or the state back into the row."""
    return _BEFORE - 1 - row


def _quoting(place: Place) -> _Quoting | None:
    """Return how the fields of an input are quoted; None if they never are."""
    quote, escape = (_option(place, name, default='"').encode() for name in ("quote", "escape"))
    if quote in (b"", b"\0"):
        return None
    written = _option(place, "sep", "delimiter", default=",")
    separator = re.escape(_ESCAPES.get(written, written).encode())
    blanks = rb"[\x00- ]*" if _option(place, "ignoreleadingwhitespace").lower() == "true" else b""
    end, sign = re.escape(quote), re.escape(escape)
    pair = b"" if not escape else b"|" + sign + (end if escape == quote else b".?")
    end_of_line = _option(place, "linesep").encode()
    return _Quoting(
        re.compile(rb"(?:\A|" + separator + b")" + blanks + end, re.DOTALL),
        re.compile(b"(?:[^" + end + sign + b"]" + pair + b")*+" + end, re.DOTALL),
        re.compile(rb"[\x00- ]*?(?:" + separator + rb"|\Z)"),
        quote,
        _option(place, "comment").encode(),
        re.compile(re.escape(end_of_line) or rb"\r\n|\r|\n") if _is_wide(place) else None,
        _option(place, "multiline").lower() == "false",
    )


def check_csv(spark: SparkSession, place: Place, paths: Sequence[str]) -> None:
    """Raise TransportError for text that is not UTF-8, and for a field that begins with a quote and does not end with one."""
    quoting, is_utf8 = _quoting(place), _encoding(place) in ("", "utf-8", "utf8")
    if quoting is None and not is_utf8:
        return
    checked = _texts(spark, place, paths, _is_wide(place)).mapInArrow(partial(states_of, quoting, is_utf8), _STATES_DDL)
    open_in: dict[str, tuple[int, int]] = {}
    for name, block, if_closed, if_open, broken in sorted(checked.collect(), key=lambda row: (row[FILE], row[BLOCK])):
        if broken is not None:
            raise TransportError(
                f"{place_of_line(same_path(name), block, broken)}: the text is not UTF-8; options.encoding=NAME reads another "
                "encoding, such as ISO-8859-1"
            )
        state = if_open if name in open_in else if_closed
        if state is _CLOSED:
            open_in.pop(name, None)
        elif state < _BEFORE:
            _refuse_csv(name, block, _wrong(state))
        elif state != _BEFORE:
            open_in[name] = block, state
    for name, place_of_quote in sorted(open_in.items()):
        _refuse_csv(name, *place_of_quote)


def _refuse_csv(name: str, block: int, row: int) -> NoReturn:
    raise TransportError(
        f"{place_of_line(same_path(name), block, row)}: a field that begins with a quote does not end with one; a quote in such a "
        "field is written twice"
    )


@mark_errors
def states_of(quoting: _Quoting | None, is_utf8: bool, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the state at the end of each block of a file, for both cases: a quote is open at the beginning of the block, or none is.

    quoting: None if no field has quotes; is_utf8: whether the text must be UTF-8.
    """
    import pyarrow as pa

    first: dict[tuple[str, int], int] = {}
    by_block: dict[tuple[str, int], list[int | None]] = {}
    broken: dict[tuple[str, int], int] = {}
    for batch in batches:
        column = batch.column(0).cast("binary")
        has_broken = is_utf8 and not _is_utf8(column)
        texts = arrow_rows.values_of(column)
        files, blocks, numbers = (arrow_rows.values_of(batch.column(name)) for name in (FILE, BLOCK, ROW))
        for text, block, number in zip(texts, zip(files, blocks, strict=True), numbers, strict=True):
            row = number - first.setdefault(block, number)
            # No quote is open at the beginning of a file.
            states = by_block.setdefault(block, [_CLOSED, _BEFORE if block[1] else _CLOSED])
            if has_broken and not _is_utf8(pa.array([text])):
                broken.setdefault(block, row)
            if quoting is not None and quoting.quote in text:
                for at, line in enumerate(quoting.split(text), row):
                    after = {state: quoting.after(line, at, state) for state in states}
                    states[:] = [after[state] for state in states]
    rows = [(*block, *states, broken.get(block)) for block, states in by_block.items()]
    columns = zip(*rows, strict=True) if rows else ((),) * len(_STATES)
    kinds = (pa.string(), *(pa.int64(),) * (len(_STATES) - 1))
    yield pa.RecordBatch.from_arrays(list(map(pa.array, columns, kinds)), _STATES)


def _is_utf8(column: pa.Array) -> bool:
    import pyarrow as pa

    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True
