"""Topics in files and tables: reads their rows as records, and writes records as files."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import unquote

import orjson

from streamkit import durations
from streamkit.errors import InexactError, SerdeError, TransportError, UsageError
from streamkit.plan.model import Plan
from streamkit.record import Headers
from streamkit.runtime.records import RecordJson, headers_from_json
from streamkit.runtime.spark.fields_read import fields_read
from streamkit.runtime.spark.job_options import (
    AVRO,
    COMPLETE,
    DELTA,
    DELTA_LOG,
    ICEBERG,
    IN_UTC,
    JSON_LINES,
    OF_SPARK,
    PARQUET,
    TABLE,
    Place,
)
from streamkit.runtime.spark.rows.file_system import (
    TOKEN,
    FileSystem,
    changed_files,
    class_of,
    escaped,
    formats_of,
    input_files,
    join,
    joined,
    relation_of,
    table_versions,
)
from streamkit.runtime.spark.rows.input_columns import (
    PARTS,
    Source,
    check_case,
    columns_of_parts,
    encoded_part,
    expression,
    milliseconds,
    order_of,
    plain_part,
    quoted,
    schema_of_parts,
    select_parts,
    with_fields,
)
from streamkit.runtime.spark.rows.output_columns import LOG_TYPES, OutputLayout, arranged, write_columns
from streamkit.runtime.spark.rows.row_order import (
    BLOCK,
    FILE,
    FILE_OF_SPARK,
    INDEX,
    INDEX_OF_SPARK,
    ROW,
    RowOrder,
    place_of_line,
    position_columns,
    row_order,
    same_path,
)
from streamkit.runtime.spark.rows.text_checks import (
    EXCERPT_CHARACTERS,
    check_compression,
    check_csv,
    check_json,
    check_kinds,
    check_names,
    check_numbers,
    check_tables,
)
from streamkit.runtime.spark.spark_session import (
    changed_meaning,
    changed_settings,
    classic_context,
    translated,
    without_error_log,
)
from streamkit.runtime.spark.stage_plan import matching
from streamkit.runtime.spark.workers import arrow_rows
from streamkit.runtime.spark.workers.output_collector import LINE, LINES_DDL, lines_of, partitions_of
from streamkit.runtime.spark.workers.worker import load, mark_errors, source_id
from streamkit.serdes.formats.json_text import from_text
from streamkit.serdes.plain import Json
from streamkit.serdes.serde import Serde
from streamkit.serdes.size import MAX_BYTES
from streamkit.suggestions import did_you_mean

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from py4j.java_gateway import JavaObject
    from pyarrow.parquet import FileMetaData
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructField, StructType

_ENDING, _OWN_ENDING = ".txt", ".jsonl"
_DONE = "_SUCCESS"
_MOST_ROWS = "spark.sql.files.maxRecordsPerFile"
_BEYOND_THREE_DIGITS = re.compile(r"-c\d{4,}\.[^/]*$")
"""The number of a file of a task, beyond those that Spark writes with equal lengths."""
_MARKED = "mapreduce.fileoutputcommitter.marksuccessfuljobs"


_NUMBERS = ("partition", "offset")
_OF_A_LINE = frozenset(("topic", *PARTS, "error"))
"""The fields of a line that is a record; `consume` writes `error`."""
_OF_A_HEADER = ({"name", "value"}, {"key", "value"})
_FILE_OF_ICEBERG = "_file"
_OF_ROWS = {"mode": "FAILFAST", "columnNameOfCorruptRecord": "_streamkit_corrupt_record"}
"""A row that does not fit fails. Spark's own column for such rows would hide a field of the same name, `_corrupt_record`."""
_OPTIONS = {
    # Rows with too many or too few columns fail, and so do files with different columns. Quoted values may contain line breaks.
    "csv": {
        **_OF_ROWS,
        "header": "true",
        "enforceSchema": "false",
        # RFC 4180: a quote in a value is doubled.
        "escape": '"',
        "unescapedQuoteHandling": "RAISE_ERROR",
        "columnPruning": "false",
        "multiLine": "true",
    },
    JSON_LINES: _OF_ROWS,
    # Text as it is: Spark would cut off blanks, and read 007 as 7.
    "xml": {**_OF_ROWS, "inferSchema": "false", "ignoreSurroundingSpaces": "false"},
    # Otherwise Spark would take the columns of all files from an arbitrary one.
    PARQUET: {"mergeSchema": "true"},
    # Columns are read by their names, also in a session that reads the files of old tables of Hive by position.
    "orc": {"mergeSchema": "true", "orc.force.positional.evolution": "false", "orc.skip.corrupt.data": "false"},
    # Hadoop's avro.mapred.ignore.inputs.without.extension would leave out files without the suffix.
    AVRO: {"ignoreExtension": "true"},
}
_WITHOUT_LOOKUPS = {f"parquet.filter.{kind}.enabled": "false" for kind in ("dictionary", "bloom")}
"""Options for conditions that name a zero: Parquet does not find 0.0 among values of which -0.0 is one, and leaves out its rows."""
_ZERO = re.compile(r"(?<![0-9])0(?![0-9]*[1-9])")
_ELSEWHERE = re.compile(
    r"[\ue000-\U0010ffff]|(?<![0-9])(?:0[0-9]|1[0-5])[0-9]{2}(?![0-9])|\\|\bx'|"
    r"\b(?:chr|char|decode|unhex|unbase64|url_decode|from_json|get_json_object|\w*make_\w+|\w*from_unix_date|timestamp_\w+)\(",
    re.IGNORECASE,
)
"""In a condition: characters that UTF-16 does not order as UTF-8 does, years in which ORC has another calendar, and what may make them."""
_IN_SPARK = frozenset((PARQUET, "csv", JSON_LINES, AVRO, "text", "xml"))
"""Formats of which Spark, with the options above, reads all rows for which a condition is true."""
_OF_PARQUET = frozenset(("file_path", "file_modification_time", "row_index"))
"""The hidden columns of files that are read here."""
_OF_TABLES = {**_OF_ROWS, "columnPruning": "false"}
"""Options for CSV and JSON tables in a catalog, where a malformed row would otherwise be read as nulls."""
_CASE = "spark.sql.caseSensitive"
_AVRO_SCHEMAS = ("avroschema", "avroschemaurl")
"""Options that determine the columns to read, in lower case."""
_CHOOSING = ("pathglobfilter", "modifiedbefore", "modifiedafter")
_LISTING = (*_CHOOSING, "recursivefilelookup", "timezone", "basepath")
"""Options that choose files, in lower case."""
_OF_BINARY_FILES = ("path", "modificationTime", "length", "content")
"""The columns of Spark's format `binaryFile`; the columns from folders NAME=VALUE follow them."""
_OF_FILES = (*OF_SPARK, "text", "xml")
"""The formats whose files are found by their folders; rows of the last two need an order."""
_WITH_HISTORY = {DELTA_LOG: DELTA, ".hoodie": "hudi"}
"""The folders by which tables are recognized whose own folders have the files of all versions."""
_METADATA, _DATA = "metadata", "data"
"""The folders of a table of Iceberg."""
_STREAM_LOG = "_spark_metadata"
"""The folder in which a stream of Spark lists the files that it has written; Spark reads no others of the directory."""
_SCHEMA_READERS = 8
_SCHEMA_OF_SPARK = b"org.apache.spark.sql.parquet.row.metadata"
_MOST_FILES = 32
"""Files that a query reads one after the other: Spark plans a scan of each."""
_INFERS_FOLDERS = "spark.sql.sources.partitionColumnTypeInference.enabled"
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_SPECIAL = re.compile(r"[=*?{}\[\]\\]")
_ORDERED = 1 << 62
"""Added to a number that orders rows, so that the resulting place is higher than the places in files."""
_EXACT_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of Spark's JSON and CSV: it would truncate times to milliseconds."""
_REPLACED = {"partitionOverwriteMode": "static"}
"""An overwrite replaces the whole directory, whatever the session's setting."""
_WRITTEN = {
    "csv": {
        "header": "true",
        "escape": '"',
        # Spark would strip blanks at both ends.
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
        **_EXACT_TIMES,
    }
}
_PLACED = {
    "partition": "int",
    "key": "binary",
    "value": "binary",
    "timestamp": "bigint",
    "source": "bigint",
    "offset": "bigint",
}
"""The columns of rows that Spark has encoded; the others are constant (arrow_rows.with_all_columns)."""
_PLACED_DDL = ", ".join(f"`{name}` {kind}" for name, kind in _PLACED.items())
_BLOCK_BITS = 41
"""The bits for the position of a block in its file: files may have up to 2 TB."""
FILES, OFFSETS, NUMBERS, TIMES_OF_ROWS = "their place in files", "offset", "whole numbers", "times"
"""The kinds of order of an input's rows."""


@dataclass(frozen=True)
class OpenedInput:
    """The rows of an input with their positions. A row has a line of text, or the columns of a record's parts."""

    place: Place
    rows: Callable[[], DataFrame]
    """Makes `frame`: a job whose steps all run as queries needs no positions."""
    order: str
    """FILES, OFFSETS, NUMBERS or TIMES_OF_ROWS."""
    source: DataFrame
    """All rows and columns, as Spark reads them."""
    number: int
    """The number of the input among the inputs of its topic."""
    by: RowOrder | None = None
    """The column that orders its rows; None if their place in files or an offset does."""
    files: tuple[str, ...] = ()
    """The URIs of the files of its source, before any of them was chosen; none of a table."""
    tasks: int | None = None
    """How many tasks may read its rows, each some that follow each other; None for as many as Spark plans."""

    @cached_property
    def frame(self) -> DataFrame:
        """The parts of its records with their positions, or its lines."""
        return self.rows()

    @property
    def is_numbered(self) -> bool:
        """Whether Spark numbers the rows of each of its files."""
        is_parquet = _is_plain_parquet(self.source, self.place)
        return (is_parquet and order_of(self.place, self.source.columns) is None) or INDEX in self.frame.columns

    @cached_property
    def names(self) -> dict[str, Source] | None:
        """What each part of its records is made of; None if a part or the order is another expression."""
        columns = self.source.columns
        check_case(self.place, columns)
        return None if order_of(self.place, columns) is not None else columns_of_parts(self.place, columns)

    @cached_property
    def schema(self) -> StructType:
        """The types of `parts`."""
        return self.parts.schema if self.names is None else schema_of_parts(self.names, self.source.schema)

    @cached_property
    def parts(self) -> DataFrame:
        """The parts of its records for a query, which compares keys with null by itself; with positions only if a column orders rows."""
        order = order_of(self.place, self.source.columns)
        if order is not None:
            return placed_parts(self)
        return select_parts(filtered(self.source, self.place), self.place, None, may_be_null=True)


@dataclass(frozen=True)
class FileReading:
    """How workers turn the rows of a file into records of a topic."""

    plan: bytes
    topic: str
    names: tuple[str, ...]
    """The names that records may use for the topic: its name on the log, and the name of its entry."""
    partitions: int
    files: Mapping[str, int]
    """The index of each file when they are sorted by name."""
    timed: bool
    """Whether the topic has a timestamp expression."""
    of_lines: bool = True
    """Whether the rows are lines of text."""


@dataclass(frozen=True)
class Sender:
    """The stage of a query that writes a topic between stages, for the rows of stages in Python that read it.

    sub: its sub-topology; tasks: those that write the topic in a live run, one for each partition of the topic `source`.
    """

    sub: int
    tasks: int
    source: str
    topic: str
    partitions: int


WRITER = "writer"
"""The column of the key of the record of the topic `Sender.source` that a row comes from, if several tasks write the topic."""


def open_files(
    spark: SparkSession, place: Place, chosen: Sequence[str] | None = None, base: str | None = None, number: int = 0
) -> OpenedInput:
    """Return the records of a place. Raises TransportError.

    `chosen`: read only these files; `base`: the directory whose folders NAME=VALUE are columns; `number`: the number of the input
    among the inputs of its topic.
    """
    is_table = place.format not in OF_SPARK
    with translated(place.path):
        frame = _opened(spark, place, [place.path] if chosen is None or is_table else list(chosen), base)
    if is_table and chosen is not None:
        frame = frame.filter(_file_of_row(frame, place).isin(list(chosen)))
    files = tuple(input_files(frame)) if place.format in _OF_FILES else ()
    check_compression(place, files)
    if chosen is None and place.format in _OF_FILES:
        _check_all_read(spark, place, frame, files)
    return replace(_rows_of(frame, place, number), files=() if is_table else files)


def file_by_file(opened: OpenedInput) -> OpenedInput | None:
    """Return an input whose rows Spark reads in their order: its tasks, in the order of their numbers, read one part of a file each.

    Without a step that moves rows, files that these tasks write have the order of the input. None if it has no such order, or many
    files, or one whose folder may give it a column, or that has a name that Spark takes for a pattern.
    """
    from pyspark.sql import DataFrame

    place, files = opened.place, sorted(opened.files, key=same_path)
    if opened.order != FILES or place.format != PARQUET or not 0 < len(files) <= _MOST_FILES:
        return None
    if len(files) == 1:
        return opened
    if any(_SPECIAL.search(same_path(name)) for name in files):
        return None
    paths, schema, spark = list(map(same_path, files)), opened.source.schema, opened.source.sparkSession
    scan = _in_one_scan(opened.source, place, paths)
    if scan is not None:
        # As Spark would plan: each task opens files, and writes one.
        most = spark._jsparkSession.sessionState().conf().filesMaxPartitionBytes()
        tasks = max(spark.sparkContext.defaultParallelism, -(-sum(map(os.path.getsize, paths)) // most))
        return replace(opened, source=scan, tasks=tasks)
    reader = _reader(spark, place, None).schema(schema).format(place.format)
    # With their schemes: other paths may be in another file system.
    return replace(opened, source=reduce(DataFrame.unionAll, map(reader.load, map(unquote, files))))


def _in_one_scan(source: DataFrame, place: Place, paths: Sequence[str]) -> DataFrame | None:
    """Return the rows of local files that Spark plans, opens and compiles once, but still reads in their order; None if it would not.

    Spark cuts files into pieces of a size, and sorts these by their length, the longest first (`FilePartition.getFilePartitions`).
    Pieces with the whole size thus stay in the order of the files. With a size such that the last, shorter pieces have no rows,
    all rows do.
    """
    spark, size = source.sparkSession, _piece_size(paths)
    if size is None or classic_context(spark) is None:
        return None
    # The settings of a scan are those of the session that opens it.
    session = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())
    for name, value in (("maxPartitionBytes", size), ("openCostInBytes", 0), ("minPartitionNum", 1)):
        session.conf.set(f"spark.sql.files.{name}", str(value))
    relation = relation_of(source)
    if relation is not None and list(map(same_path, input_files(source))) == paths:
        scan = _in_session(relation, session)
    else:
        reader = _reader(session, place, None).schema(source.schema).format(place.format)
        scan = reader.load([f"file://{path}" for path in paths])
    leaf = scan._jdf.queryExecution().sparkPlan().collectLeaves().head()
    tasks = [joined(spark, task.files()) for task in leaf.inputRDD().partitions()]
    found = [piece for task in tasks for piece in _PIECE.findall(task)]
    whole = [(same_path(name), int(first)) for name, first, end in found if int(end) - int(first) == size]
    expected = [(path, first) for path in paths for first in range(0, os.path.getsize(path) // size * size, size)]
    are_all = len(found) == sum(task.count("partition values: ") for task in tasks)
    return scan if are_all and whole == expected else None


def _in_session(relation: JavaObject, session: SparkSession) -> DataFrame:
    """Return the rows of files as another session reads them, which does not list them again."""
    from pyspark.sql import DataFrame

    parts = ("location", "partitionSchema", "dataSchema", "bucketSpec", "fileFormat", "options")
    copied = class_of(session._jvm, "org.apache.spark.sql.execution.datasources.HadoopFsRelation")(
        *(getattr(relation, part)() for part in parts), session._jsparkSession
    )
    return DataFrame(session._jsparkSession.baseRelationToDataFrame(copied), session)


_PIECE = re.compile(r"path: (.*?), range: (\d+)-(\d+), partition values: ")
"""What Spark prints of a piece."""
_SMALLEST_PIECE = 1 << 10
_MOST_PIECES = 128


def _piece_size(paths: Sequence[str]) -> int | None:
    """Return a number of bytes such that no row group of local Parquet files is read with what is left of a file behind pieces of it.

    Spark reads a row group with the piece that has its middle. None if there is no such number, or the files are not local.
    """
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        sizes = [os.path.getsize(path) for path in paths]
        middles = [_middles(ParquetFile(path).metadata) for path in paths]
    except (OSError, pa.ArrowException):
        return None
    for size in (min(sizes) // count for count in range(1, 9)):
        if size < _SMALLEST_PIECE or sum(sizes) // size > _MOST_PIECES:
            return None
        if all(max(found, default=0) < length // size * size for length, found in zip(sizes, middles, strict=True)):
            return size
    return None


def _middles(footer: FileMetaData) -> list[int]:
    """Return the middle of each row group in a file, with a quarter of its size added to be on the safe side."""
    found = []
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        columns = [group.column(index) for index in range(group.num_columns)]
        starts = (offset for column in columns for offset in (column.dictionary_page_offset, column.data_page_offset))
        first = min(start for start in starts if start)
        found.append(first + sum(column.total_compressed_size for column in columns) * 3 // 4)
    return found


def narrowed(opened: OpenedInput, condition: Column) -> OpenedInput:
    """Return an input with only the rows of its source for which a condition is true. Spark pushes the condition down to the scan."""
    return _rows_of(opened.source.where(condition), opened.place, opened.number)


def of_file(opened: OpenedInput, name: str) -> OpenedInput:
    """Return the rows of one file of an input, named as by `same_path`. Spark opens no other file."""
    from pyspark.sql import functions as sf

    path = sf.regexp_replace(_column(FILE_OF_SPARK), "^file:/+", "/")
    return narrowed(opened, path == re.sub("^file:/+", "/", name))


def _rows_of(source: DataFrame, place: Place, number: int) -> OpenedInput:
    if place.has_lines:
        frame = source.selectExpr("value", *position_columns("_metadata.file_block_start"))
        return OpenedInput(place, lambda: frame, FILES, source, number)
    order = order_of(place, source.columns)
    if order is None and not _has_offset(source, place) and _is_plain_parquet(source, place):
        opened = OpenedInput(place, lambda: _parts_of(source, place, number)[0], FILES, source, number)
        _ = opened.schema  # raises for columns that it does not have
        return opened
    frame, by, kind = _parts_of(source, place, number)
    return OpenedInput(place, lambda: frame, kind, source, number, by)


def _parts_of(source: DataFrame, place: Place, number: int) -> tuple[DataFrame, RowOrder | None, str]:
    """Return the parts of records with their positions, and the rest as of `_positioned`."""
    frame, by, kind = _positioned(source, place, number)
    return select_parts(frame, place, order_of(place, source.columns)), by, kind


def chosen_source(opened: OpenedInput, *, is_placed: bool) -> DataFrame:
    """Return the chosen rows of an input for a query. is_placed: with their positions.

    Only for a query that needs those: Spark computes all that it knows of a file for each row if a query passes over some of them.
    """
    source, place = opened.source, opened.place
    return _positioned(source, place, opened.number)[0] if is_placed else filtered(source, place)


def placed_parts(opened: OpenedInput) -> DataFrame:
    """Return the parts of an input's records for a query, with their positions, as `chosen_source` does."""
    order = order_of(opened.place, opened.source.columns)
    return select_parts(chosen_source(opened, is_placed=True), opened.place, order, may_be_null=True)


def filtered(frame: DataFrame, place: Place) -> DataFrame:
    """Return the rows of an input for which its `where` is true."""
    from pyspark.sql import functions as sf

    where = place.columns.where
    if where is None:
        return frame
    with translated(f"{place.path}: where={where}"):
        condition = expression(place, frame.columns, "where", where)
        if _leaves_out_rows(frame, place, where):
            # In a form that Spark does not pass on to the format. From `coalesce(CONDITION, false)` it would take a condition that can't be null.
            condition = sf.bit_count(condition) == 1
        return frame.where(condition)


def _leaves_out_rows(frame: DataFrame, place: Place, where: str) -> bool:
    """Return whether a format may leave out rows for which a condition is true, by the statistics that it keeps of its files.

    ORC and Iceberg compare -0.0 with 0.0, and NaN, in another way than Spark.
    """
    formats = {place.format} if place.format in OF_SPARK else formats_of(frame)
    if formats <= _IN_SPARK:
        return False
    fractions = (name.lower() for name, kind in frame.dtypes if re.search("float|double", kind))
    return _ELSEWHERE.search(where) is not None or any(name in where.lower() for name in fractions)


def _positioned(source: DataFrame, place: Place, number: int) -> tuple[DataFrame, RowOrder | None, str]:
    """Return the chosen rows with their positions, the column that orders them if there is one, and what their order is."""
    # Filters first, because Spark does not push conditions down through columns that count rows.
    frame, order = filtered(source, place), order_of(place, source.columns)
    if order is None:
        kind = OFFSETS if _has_offset(frame, place) else FILES
        return _with_positions(frame, place, number), None, kind
    frame, by = _ordered(frame, place, order, "timestamp" if place.order is None else "order", number)
    return frame, by, TIMES_OF_ROWS if by.is_time else NUMBERS


def _with_positions(frame: DataFrame, place: Place, number: int) -> DataFrame:
    """Return rows with hidden columns for their file and their place in it, or for their offset. Raises TransportError without either."""
    hidden = _hidden_columns(frame, place) if place.format in OF_SPARK else frozenset()
    if "row_index" in hidden:
        return frame.selectExpr("*", *position_columns(INDEX_OF_SPARK), f"{INDEX_OF_SPARK} AS {INDEX}")
    if "file_block_start" in hidden:
        return frame.selectExpr("*", *position_columns("_metadata.file_block_start"))
    offset = place.columns.offset or ("offset" if "offset" in frame.columns else None)
    if offset is None:
        raise TransportError(
            f"{place.path}: rows of {place.format} have no order of their own: add a column offset, or name a column of "
            f"numbers or times that orders them: {place.path},format={place.format},order=COLUMN"
        )
    return _ordered(frame, place, offset, "offset", number)[0]


def _opened(spark: SparkSession, place: Place, paths: list[str], base: str | None) -> DataFrame:
    """Return the rows of a place. Spark fails on rows that it can't read, even if the session's defaults would skip them."""
    if place.format == TABLE:
        own = _OF_TABLES | dict(place.options) | _lookups(place)
        frame = spark.read.options(**own).table(place.path)
        if check_tables(place, frame):
            return spark.read.options(**IN_UTC | own).table(place.path)
        return _at_one_version(frame, place, lambda more: spark.read.options(**own | more).table(place.path))
    reader = _reader(spark, place, base)
    if place.has_lines:
        return reader.text(paths)
    if place.format == JSON_LINES:
        has_long_numbers = check_json(spark, place, paths)
        # Of two names that differ only in case, a case-insensitive session would infer one, and lose the values of the other.
        with changed_settings(spark, {_CASE: "true"}):
            frame = reader.json(paths)
        check_names(place, frame)
        check_kinds(place, frame, paths)
        if has_long_numbers or any(name.lower() == "infertimestamp" for name in place.options):
            check_numbers(place, frame, lambda schema: reader.schema(schema).json(paths))
        if "topic" in frame.columns and place.columns.value is None:
            raise TransportError(
                f"{place.path}: its lines have a field topic, so they are records, and have no columns to choose; give value="
            )
        _check_folders(place, frame, reader, paths)
        return frame
    if place.format == "csv":
        check_csv(spark, place, paths)
    # In a case-insensitive session, columns of different files would be one if their names differ only in case.
    with changed_settings(spark, {_CASE: "true"} if place.format in (PARQUET, "orc") else {}):
        known = _with_known_schema(place, paths, reader)
        # Some formats accept no list, and the name of a table in place of a path.
        frame = reader.format(place.format).load(paths if len(paths) > 1 else paths[0]) if known is None else known
    if place.format in (PARQUET, "orc"):
        check_names(place, frame)
    if place.format in (DELTA, ICEBERG):
        return _at_one_version(frame, place, lambda more: reader.options(**more).format(place.format).load(paths[0]))
    if place.format == "csv" and place.infers_types:
        check_numbers(place, frame, lambda schema: reader.schema(schema).csv(paths))
    if place.format == AVRO:
        _check_one_schema(spark, place, input_files(frame))
    if place.format in OF_SPARK:
        _check_folders(place, frame, reader, paths)
    return frame


def _with_known_schema(place: Place, paths: Sequence[str], reader: DataFrameReader) -> DataFrame | None:
    """Return the rows of local Parquet files that Spark wrote with one schema, which it needs no job to find; None for others."""
    from pyspark.sql.types import StructType

    folder = paths[0]
    if place.format != PARQUET or place.options or len(paths) > 1 or "://" in folder or not os.path.isdir(folder):
        return None
    entries = list(os.scandir(folder))
    files = sorted(os.path.abspath(file.path) for file in entries if not file.name.startswith(("_", ".")))
    is_plain = all(file.is_file() for file in entries) and not any(map(_SPECIAL.search, files))
    schema = _schema_of_spark(files) if is_plain and 0 < len(files) <= _MOST_FILES else None
    if schema is None:
        return None
    # In this order, a query may read them in one scan.
    frame = reader.schema(StructType.fromJson(orjson.loads(schema))).format(place.format).load(files)
    # Spark may have another default file system.
    are_local = classic_context(frame.sparkSession) is not None and list(map(same_path, input_files(frame))) == files
    return frame if are_local else None


def _schema_of_spark(files: Iterable[str]) -> str | None:
    """Return the JSON of the schema that Spark has written into each of local Parquet files; None if it is in none, or not the same."""
    import pyarrow as pa
    from pyarrow.parquet import read_metadata

    try:
        found = {(read_metadata(file).metadata or {}).get(_SCHEMA_OF_SPARK, b"").decode() for file in files}
    except (OSError, pa.ArrowException, UnicodeDecodeError):
        return None
    schema = found.pop()
    # Metadata of a column changes its type, and Python would import the class of a type that a user has defined.
    is_plain = schema.count('"metadata":{') == schema.count('"metadata":{}') and '"udt"' not in schema
    return schema if schema and not found and is_plain else None


def _reader(spark: SparkSession, place: Place, base: str | None) -> DataFrameReader:
    reader = spark.read if base is None else spark.read.option("basePath", base)
    own = _OPTIONS.get(place.format, {}) | dict(place.options)
    own |= _lookups(place) if place.format == PARQUET else {}
    return reader.options(**(IN_UTC | own | COMPLETE if place.format in _OF_FILES else own))


def _lookups(place: Place) -> dict[str, str]:
    """Return the options with which Parquet, also that of a table, finds all rows of a condition."""
    return _WITHOUT_LOOKUPS if _ZERO.search(place.columns.where or "") else {}


def _check_folders(place: Place, frame: DataFrame, reader: DataFrameReader, paths: list[str]) -> None:
    """Raise TransportError for a column that is in files and in the names of their folders, whose values Spark would use."""
    relation = relation_of(frame)
    if relation is not None:
        shared = relation.overlappedPartCols().keys().mkString("\n").splitlines()
    else:
        folders = _listed(frame.sparkSession, place).columns[len(_OF_BINARY_FILES) :]
        alone = reader.option("recursiveFileLookup", "true").format(place.format).load(paths) if folders else frame
        shared = [name for name in folders if name in alone.columns]
    if shared:
        name = min(shared)
        raise TransportError(
            f"{place.path}: column {name} is in the files, and in the names of their folders {name}=VALUE, which Spark would read "
            "instead; options.recursiveFileLookup=true reads the column of the files, and ignores the folders' names"
        )
    if relation is not None and '"double"' in relation.partitionSchema().json():
        _check_numbers_of_folders(place, relation)


def _check_numbers_of_folders(place: Place, relation: JavaObject) -> None:
    """Raise TransportError for the name of a folder that is not the number that Spark reads, such as 7d or one with many digits."""
    paths = relation.location().partitionSpec().partitions().mkString("\n")
    kinds = orjson.loads(relation.partitionSchema().json())["fields"]
    for name in (field["name"] for field in kinds if field["type"] == "double"):
        for text in map(
            unquote, re.findall(rf"/{re.escape(name)}=([^/\n]*?)(?=/|\)?$)", paths, re.MULTILINE | re.IGNORECASE)
        ):
            if text != _NULL_FOLDER and not _is_shortest(text):
                raise TransportError(
                    f"{place.path}: the folder {name}={text}: Spark would read another number; --conf {_INFERS_FOLDERS}=false reads text"
                )


def _is_shortest(text: str) -> bool:
    """Return whether a text is the number that a double shows as its shortest text."""
    try:
        return Decimal(text) == Decimal(repr(float(text)))
    except (ArithmeticError, ValueError):
        return False


def _check_one_schema(spark: SparkSession, place: Place, files: Sequence[str]) -> None:
    """Raise TransportError for Avro files with different columns: from all files, Spark would read the columns of one of them."""
    if any(name.lower() in _AVRO_SCHEMAS for name in place.options):
        return
    reader = spark.read.format(AVRO)
    with ThreadPoolExecutor(_SCHEMA_READERS) as readers:
        schemas = list(readers.map(lambda file: sorted(reader.load(escaped(unquote(file))).dtypes), files))
    for file, schema in zip(files, schemas, strict=True):
        if schema != schemas[0]:
            ((name, kind), *_) = sorted(set(schema) ^ set(schemas[0]))
            raise TransportError(
                f"{place.path}: {same_path(file)} has other columns than {same_path(files[0])}, such as {name} ({kind}), but Spark "
                "would read the columns of one file: read them as two inputs, or give options.avroSchema=SCHEMA with all columns"
            )


def files_of_table(spark: SparkSession, place: Place) -> dict[str, tuple[int, int]]:
    """Return the files of a table with their row counts and modification times (ms; 0 if Spark does not report them).

    Raises UsageError for a source without files.
    """
    from pyspark.sql import functions as sf

    frame = _opened(spark, place, [place.path], None)
    # Times detect a file that was replaced by one with equally many rows. Iceberg has no times, but never replaces files.
    time = (
        _column("_metadata.file_modification_time")
        if "file_modification_time" in _hidden_columns(frame, place)
        else None
    )
    times = sf.lit(0) if time is None else sf.unix_millis(time)
    files = frame.select(_file_of_row(frame, place).alias("file"), times.alias("time")).groupBy("file")
    counts = files.agg(sf.count("*").alias("rows"), sf.max("time").alias("time")).collect()
    return {row["file"]: (row["rows"], row["time"]) for row in counts}


def _file_of_row(frame: DataFrame, place: Place) -> Column:
    """Return the hidden column with the file of a row. Raises UsageError if there is none."""
    from pyspark.errors import AnalysisException

    if "file_path" in _hidden_columns(frame, place):
        return _column(FILE_OF_SPARK)
    try:
        with without_error_log():
            (name,) = frame.select(_FILE_OF_ICEBERG).schema.names
    except AnalysisException as error:
        raise UsageError(
            f"{place.path}: --checkpoint needs rows that stay in the same file, but a source of the format {place.format} "
            "does not report the files of its rows"
        ) from error
    return _column(name)


def files_of_place(spark: SparkSession, place: Place) -> list[str]:
    """Return the files that Spark finds at a place of a format OF_SPARK, without reading them. Raises TransportError."""
    frame = _listed(spark, place)
    files = input_files(frame)
    _check_all_read(spark, place, frame, files)
    return files


def _listed(spark: SparkSession, place: Place) -> DataFrame:
    """Return the files at a place, with the columns from the names of their folders."""
    chosen = {name: value for name, value in place.options.items() if name.lower() in _LISTING}
    return spark.read.options(**IN_UTC | chosen).format("binaryFile").load(place.path)


def _check_all_read(spark: SparkSession, place: Place, frame: DataFrame, files: Iterable[str]) -> None:
    """Raise TransportError for files in folders that Spark passes over, and for a path that it takes for a hidden one.

    Also for the folder of a table with a history, in which files of deleted rows stay.
    """
    if classic_context(spark) is not None:
        _check_no_list(FileSystem(spark), place.path, files)
    read = set(files)
    left = sorted(_found_below(frame, place) - set(map(same_path, read)))
    option = next((name for name in place.options if name.lower() in _CHOOSING), None)
    if left and option is not None:
        raise TransportError(
            f"{place.path}: options.{option} leaves out {left[0]}; a pattern in the path selects files, such as "
            f"{place.path.rstrip('/')}/*.json"
        )
    if left:
        raise TransportError(
            f"{place.path}: Spark does not read {left[0]}: it reads only the files of a directory, and its folders NAME=VALUE; "
            f"write a pattern such as {place.path.rstrip('/')}/*"
        )
    name = place.path.rstrip("/").rpartition("/")[2]
    if not read and name.startswith(("_", ".")):
        raise TransportError(f"{place.path}: Spark skips names that begin with {name[0]}; give it another name")
    # If folders have columns, Spark lists files beside these folders, but does not read them.
    deepest = max((name.count("/") for name in read), default=0)
    beside = sorted(same_path(name) for name in read if name.count("/") < deepest)
    if beside and len(_listed(spark, place).columns) > len(_OF_BINARY_FILES):
        raise TransportError(
            f"{place.path}: Spark does not read {beside[0]}: it is beside folders NAME=VALUE, whose files have the columns NAME; "
            "move it into such a folder, or out of the directory"
        )


def _found_below(frame: DataFrame, place: Place) -> set[str]:
    """Return the names of all files below the path of an input, those that Spark passes over too."""
    relation = relation_of(frame)
    location = None if relation is None else relation.location()
    if location is None or location.getClass().getSimpleName() != "InMemoryFileIndex":
        reader = frame.sparkSession.read.format("binaryFile").option("recursiveFileLookup", "true")
        return set(map(same_path, input_files(reader.load(place.path))))
    # Spark has listed all of them, as paths without escapes.
    names = location.leafFiles().keys().mkString("\0")
    return {re.sub("^file:/+", "/", name) for name in names.split("\0") if name}


def _check_no_list(files: FileSystem, path: str, read: Iterable[str]) -> None:
    """Raise TransportError for a directory with a list of its valid files: that of a table with a history, or of a stream."""
    from py4j.protocol import Py4JJavaError

    folder = whole = path.rstrip("/")
    inside = files.names(folder)
    while (table := _table_of(files, folder, inside)) is None and _may_be_part(files, folder):
        folder = folder.rpartition("/")[0]
        try:
            inside = files.names(folder)
        except Py4JJavaError:
            break  # the user may read only parts of it
    if table is not None and folder == whole:
        raise TransportError(
            f"{path}: it is a table of {table}, whose folder also has files of deleted rows; format={table} reads the table"
        )
    if table is not None:
        raise TransportError(
            f"{path}: it is a part of a table of {table}, whose folder also has files of deleted rows; {folder},format={table} "
            "reads the table, and where= a part of it"
        )
    if folder == whole and _STREAM_LOG in inside:
        known, start = set(map(same_path, read)), len(files.normal(folder)) + 1
        names = (state.name for state in files.files(folder) if state.name not in known)
        left = sorted(name for name in names if not re.search("(^|/)[._]", name[start:]))
        if left:
            raise TransportError(
                f"{path}: Spark does not read {left[0]}, because the stream that wrote the directory does not list it in {_STREAM_LOG}: "
                f"delete the file if the stream left it behind, or read it with a pattern such as {folder}/part-*"
            )


def _table_of(files: FileSystem, folder: str, inside: Sequence[str]) -> str | None:
    """Return the format of the table with a history whose folder this is. inside: the names in it."""
    found = next((name for log, name in _WITH_HISTORY.items() if log in inside), None)
    names = files.names(join(folder, _METADATA)) if found is None and _METADATA in inside else ()
    return ICEBERG if any(name.endswith(".metadata.json") for name in names) else found


def _may_be_part(files: FileSystem, folder: str) -> bool:
    """Return whether a path may be a part of a table: a file or a pattern in its folder, or a folder of a partition."""
    above, _, name = folder.rpartition("/")
    return (
        bool(above.strip("/:"))
        and not above.endswith("/")
        and ("=" in name or name == _DATA or not files.is_folder(folder))
    )


def check_unchanged(opened: OpenedInput) -> None:
    """Raise TransportError if a file of an input has changed since the job listed it. Added files are not read, and do not matter.

    Each output may be a job of Spark that reads the files again, so that they would have records of different contents.
    """
    if classic_context(opened.source.sparkSession) is None:
        return
    with translated(opened.place.path):
        changed = changed_files(opened.source)
        is_table = opened.place.format not in _OF_FILES
        views = [then != now for then, now in table_versions(opened.source)] if is_table else []
    if changed or any(views):
        name = same_path(changed[0]) if changed else f"{opened.place.path}: the table, or one that it reads,"
        raise TransportError(f"{name} was changed while the job read it; this output was discarded")


def _at_one_version(frame: DataFrame, place: Place, load: Callable[[dict[str, str]], DataFrame]) -> DataFrame:
    """Return the rows of a table of Delta or Iceberg at its present version: otherwise each query, and so each output, reads the newest.

    load: opens the table with more options. What can't be opened so, such as a view or a branch, stays as it is, and so does a table
    without rows, and one with other columns than in its last commit.
    """
    from pyspark.errors import AnalysisException, IllegalArgumentException

    if classic_context(frame.sparkSession) is None or any(name.lower().endswith("asof") for name in place.options):
        return frame
    versions = table_versions(frame)
    if len(versions) != 1 or versions[0][0] is None:
        return frame
    try:
        with without_error_log():
            pinned = load({"versionAsOf": str(versions[0][0])})
    except (AnalysisException, IllegalArgumentException):
        return frame
    return pinned if pinned.schema == frame.schema else frame


def _ordered(frame: DataFrame, place: Place, order: str, setting: str, number: int) -> tuple[DataFrame, RowOrder]:
    """Return rows ordered by a column, and that column. Raises TransportError if its type has no order."""
    from pyspark.sql import functions as sf

    position = row_order(frame, place, order, setting)
    refusal = sf.concat(
        sf.lit(f"{place.path}: {setting}={order}: "),
        sf.coalesce(
            sf.concat(position.column.cast("string"), sf.lit(" is too large")),
            sf.lit(f"a row has null, and so no place in the order; where={order} is not null omits such rows"),
        ),
    )
    fits = sf.when(sf.abs(position.number) < _ORDERED, position.number)
    checked = fits.otherwise(sf.raise_error(refusal).cast("bigint"))
    return frame.select("*", *_no_position(checked, frame, number)), position


def _column(name: str) -> Column:
    from pyspark.sql import functions as sf

    return sf.col(name)


def _has_offset(frame: DataFrame, place: Place) -> bool:
    return place.columns.offset is not None or "offset" in frame.columns


def _is_plain_parquet(frame: DataFrame, place: Place) -> bool:
    """Return whether Spark has its own hidden columns for the rows of Parquet files."""
    return place.format == PARQUET and "_metadata" not in map(str.lower, frame.columns)


def _hidden_columns(frame: DataFrame, place: Place) -> frozenset[str]:
    """Return the names of Spark's hidden columns for the file of a row; empty if rows have no file."""
    from pyspark.errors import AnalysisException

    if _is_plain_parquet(frame, place):
        return _OF_PARQUET  # Spark takes milliseconds to tell
    try:
        with without_error_log():
            kind = frame.select("_metadata").schema[0].dataType
    except AnalysisException:
        return frozenset()
    hidden = frozenset(getattr(kind, "names", ()))
    return hidden if "file_path" in hidden else frozenset()


def _no_position(row: Column, frame: DataFrame, number: int) -> list[Column]:
    """Return the columns of a position that is only a number; rows with the same number are ordered by a hash of their contents.

    A task that Spark repeats therefore reads them in the same order. `number`: the number of the input, which is hashed too, to order
    equal rows of two inputs.
    """
    from pyspark.sql import functions as sf

    contents = sf.to_json(sf.struct(*map(_content, frame.schema.fields)), _EXACT_TIMES)
    hashed = sf.xxhash64(contents, sf.lit(number)) if number else sf.xxhash64(contents)
    return [sf.lit("").alias(FILE), hashed.alias(BLOCK), row.alias(ROW)]


def _content(field: StructField) -> Column:
    """Return a column in a form that to_json writes differently for different values: of a double, a time or a number it is text."""
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

    column = quoted(field.name)
    return column if isinstance(field.dataType, (ArrayType, BinaryType, MapType, StructType)) else column.cast("string")


def count_partitions(opened: OpenedInput) -> int:
    """Return the number of partitions of an input: the highest partition of a record plus 1, or 1 if no record has one."""
    from pyspark.sql import functions as sf

    if opened.place.has_lines:
        number = sf.get_json_object("value", "$.partition").cast("int")
    elif "partition" in opened.schema.names:
        number = sf.col("partition").cast("int")
    else:
        return 1
    (row,) = opened.frame.agg(sf.max(number)).collect()
    return 1 if row[0] is None else max(1, row[0] + 1)


def read_files(frame: DataFrame, place: Place, reading: FileReading, *, whole: bool = False) -> DataFrame:
    """Return the records of a topic as rows for a stage. Raises TransportError for columns that are missing.

    `whole`: also read the fields that no step uses, because the records themselves are shown.
    """
    if place.has_lines:
        return frame.mapInArrow(partial(read_lines, reading), arrow_rows.DDL)
    needed = ["value"] if reading.timed else ["value", "timestamp"]
    missing = [name for name in needed if name not in frame.columns]
    if missing:
        raise TransportError(
            f"{place.path}: there is no column {missing[0]} for the {missing[0]} of a record; name another column with "
            f"{place.path},{missing[0]}=COLUMN{', or all of them with *' if missing[0] == 'value' else ''}"
        )
    if _is_raw(dict(frame.dtypes)):
        return _raw_frame(frame, reading)
    if "headers" in frame.columns:
        _check_headers(frame, place)
    plan = load(reading.plan).plan
    serdes = dict(zip(("key", "value"), RecordJson(plan).reading(reading.topic), strict=True))
    # The types of all columns must fit, including columns that no step uses.
    for name in frame.columns:
        if name in serdes:
            plain_part(frame, place, name, serdes[name])
    used = None if whole or changed_meaning(frame.sparkSession) is not None else fields_read(plan, reading.topic)
    pruned = None if used is None else with_fields(frame, used)
    encoded = None if pruned is None else _encoded(pruned, place, serdes)
    if encoded is not None:
        return encoded.mapInArrow(partial(place_columns, reading, INDEX in frame.columns), _PLACED_DDL)
    frame = frame if pruned is None else pruned
    columns = [
        plain_part(frame, place, name, serdes[name])
        if name in serdes
        else milliseconds(frame, place)
        if name == "timestamp"
        else _whole(name)
        if name in _NUMBERS and frame.schema[name].dataType.simpleString() == "string"
        else _column(name)
        for name in frame.columns
    ]
    return frame.select(*columns).mapInArrow(partial(read_columns, reading), arrow_rows.DDL)


def _encoded(frame: DataFrame, place: Place, serdes: Mapping[str, Serde]) -> DataFrame | None:
    """Return records encoded by Spark, with their positions; None if they have parts that only Python can encode."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StructType

    parts = {name for name in frame.columns if name in PARTS}
    if not {"value", "timestamp"} <= parts <= {"key", "value", "timestamp"}:
        return None
    if frame.schema["timestamp"].dataType.simpleString() == "string":
        return None
    if "key" in parts and isinstance(frame.schema["key"].dataType, StructType):
        # The bytes of a key determine its partition, but Spark and Python write objects as different text.
        return None
    value = encoded_part(frame, place, "value", serdes["value"])
    key = encoded_part(frame, place, "key", serdes["key"]) if "key" in parts else sf.lit(None).cast("binary")
    if key is None or value is None:
        return None
    time = sf.coalesce(milliseconds(frame, place), sf.lit(0)).alias("timestamp")
    positions = [name for name in (FILE, BLOCK, ROW) if name in frame.columns]
    return frame.select(key.alias("key"), value.alias("value"), time, *positions)


def _check_headers(frame: DataFrame, place: Place) -> None:
    """Raise TransportError for objects that are no headers: their names and values would be null."""
    from pyspark.sql.types import ArrayType, StructType

    kind = frame.schema["headers"].dataType
    header = kind.elementType if isinstance(kind, ArrayType) else None
    if isinstance(header, StructType) and set(header.names) not in _OF_A_HEADER:
        raise TransportError(
            f"{place.path}: headers is of type {kind.simpleString()}; a header is an object with name (or key) and value, such as of "
            "headers=transform(headers, h -> struct(h.NAME as name, h.VALUE as value))"
        )


def _whole(name: str) -> Column:
    """Convert a column of text to whole numbers; other text fails, whatever the session's rule for casts."""
    from pyspark.sql import functions as sf

    column = sf.col(name)
    refusal = sf.concat(sf.lit(f"{name} is "), column, sf.lit("; expected a whole number"))
    number = sf.coalesce(column.try_cast("bigint"), sf.raise_error(refusal).cast("bigint"))
    return sf.when(column.isNotNull(), number).alias(name)


def _is_raw(columns: Mapping[str, str]) -> bool:
    """Return whether columns are those of the log, which Spark turns into rows without Python."""
    needed = {"key": "binary", "value": "binary", "timestamp": "bigint", "partition": "int", "offset": "bigint"}
    return (
        needed.items() <= columns.items() and columns.get("headers", arrow_rows.HEADERS_DDL) == arrow_rows.HEADERS_DDL
    )


def _raw_frame(frame: DataFrame, reading: FileReading) -> DataFrame:
    from pyspark.sql import functions as sf

    def checked(name: str, kind: str, highest: int, reason: str) -> Column:
        column = sf.col(name)
        text = sf.coalesce(column.cast("string"), sf.lit("null"))
        refusal = sf.concat(sf.lit(f"topic {reading.topic}: {name} is "), text, sf.lit(f", {reason}"))
        valid = sf.when(column.between(0, highest), column)
        return valid.otherwise(sf.raise_error(refusal).cast(kind)).alias(name)

    unplaced = "which is not an offset; without this column, the place of a row in its file is its offset"
    return frame.select(
        checked("partition", "int", reading.partitions - 1, f"but the topic has {reading.partitions}"),
        "key",
        "value",
        sf.coalesce("timestamp", sf.lit(0)).alias("timestamp"),
        *(["headers"] if "headers" in frame.columns else []),
        checked("offset", "bigint", (1 << arrow_rows.PLACE_BITS) - 1, unplaced),
    )


@mark_errors
def read_lines(reading: FileReading, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the records of JSON Lines; lines of other topics and control lines are skipped."""
    fields = _Fields(reading)
    for batch in batches:
        lines = arrow_rows.values_of(batch.column(0).cast("binary"))
        rows = []
        parse = _parser(batch.column(0))
        for at, (line, place) in enumerate(zip(lines, fields.places(batch), strict=True)):
            if not line or line.isspace():
                continue
            try:
                record = parse(line)
                if type(record) is not dict:
                    raise SerdeError("expected an object with key, value, timestamp, headers, partition, offset")
                if "advance_wall_clock" not in record and fields.is_of_topic(record.get("topic", reading.topic)):
                    if not record.keys() <= _OF_A_LINE:
                        _refuse_field(record)
                    rows.append(fields.row(record, place))
            except (SerdeError, ValueError) as error:
                reason = error if isinstance(error, SerdeError) else f"not JSON: {error}"
                where = fields.line_of(batch, at)
                raise TransportError(f"{where}: topic {reading.topic}: {reason}: {_short(line)}") from error
        if rows:
            topics, numbers, keys, values, times, headers, order, sources, offsets = zip(*rows, strict=True)
            yield fields.batch((topics, numbers, keys, values, times, headers, order, sources, offsets))


@mark_errors
def read_columns(reading: FileReading, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield records from columns: bytes stay as they are, and the topic's serde encodes other types."""
    fields = _Fields(reading)
    for batch in batches:
        if not len(batch):
            continue
        parts = {
            name: batch.column(name).to_pylist() if name == "headers" else arrow_rows.plain_of(batch.column(name))
            for name in batch.schema.names
            if name in PARTS
        }
        try:
            columns = fields.columns(parts, fields.places(batch))
        except SerdeError as error:
            raise TransportError(f"topic {reading.topic}: {error}") from error
        yield fields.batch(columns)


@mark_errors
def place_columns(reading: FileReading, has_index: bool, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield records that Spark has encoded, with their partitions and places. `has_index`: whether blocks are indices of rows."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    fields = _Fields(reading)
    count = reading.partitions
    for batch in batches:
        if not len(batch):
            continue
        # With Spark's setting useLargeVarTypes, these columns have a larger type.
        keys, values = (batch.column(name).cast(pa.binary()) for name in ("key", "value"))
        for part, column in (("key", keys), ("value", values)):
            _check_bytes(reading.topic, part, column)
        sources, offsets = (
            fields.index_places(batch) if has_index else map(np.array, zip(*fields.places(batch), strict=True))
        )
        partitions = partitions_of(keys, count)
        if keys.null_count:
            partitions = np.where(np.asarray(pc.is_valid(keys)), partitions, offsets % count)
        arrays = [partitions.astype(np.int32), keys, values, batch.column("timestamp"), sources, offsets]
        yield pa.RecordBatch.from_arrays([pa.array(array) for array in arrays], names=list(_PLACED))


def sent_rows(frame: DataFrame, sender: Sender, plan: bytes, files: Sequence[str]) -> DataFrame:
    """Return the records of a query as rows of the topic that its stage writes.

    frame: the columns `key` and `value`, as bytes or as what the topic's serdes encode, `timestamp`, `source` and `offset`, by which
    a task has the rows in their order, FILE if the places of files come before these, and WRITER. files: those of the query's input.
    """
    ranks = {name: rank << _BLOCK_BITS for rank, name in enumerate(sorted(map(same_path, files)), 1)}
    return frame.mapInArrow(partial(send_columns, sender, plan, ranks), _PLACED_DDL)


@mark_errors
def send_columns(
    sender: Sender, plan: bytes, ranks: Mapping[str, int], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield records of a query with their bytes and partitions. Raises InexactError for what a serde refuses."""
    import numpy as np
    import pyarrow as pa

    form = RecordJson(load(plan).plan)
    serdes = dict(zip(("key", "value"), form.reading(sender.topic), strict=True))
    serdes[WRITER] = form.reading(sender.source)[0]
    for batch in batches:
        if not len(batch):
            continue
        names = set(batch.schema.names)
        try:
            parts = {name: _bytes_of(batch.column(name), serdes[name], name) for name in serdes if name in names}
        except SerdeError as error:
            raise InexactError(f"topic {sender.topic}: {error}") from error
        sources, offsets = (batch.column(name).to_numpy() for name in ("source", "offset"))
        if FILE in names:
            file = batch.column(FILE).dictionary_encode()
            starts = [ranks[same_path(name)] for name in file.dictionary.to_pylist()]
            sources = sources + np.array(starts, dtype=np.int64)[file.indices.to_numpy()]
        if WRITER in names:
            offsets = sources if FILE in names else offsets
            sources = source_id(sender.sub, 0) + partitions_of(parts[WRITER], sender.tasks)
        partitions = partitions_of(parts["key"], sender.partitions).astype(np.int32)
        columns = [partitions, parts["key"], parts["value"], batch.column("timestamp"), sources, offsets]
        yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=list(_PLACED))


def _bytes_of(column: pa.Array, serde: Serde, what: str) -> pa.Array:
    """Return a column as bytes; what are no bytes yet, the serde encodes. Raises SerdeError."""
    import pyarrow as pa

    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return column.cast(pa.binary())
    encode = _encoder(serde, what)
    return pa.array([None if data is None else encode(data) for data in arrow_rows.plain_of(column)], pa.binary())


def _check_bytes(topic: str, part: str, column: pa.Array) -> None:
    """Raise TransportError for bytes that are too large for a record."""
    import pyarrow.compute as pc

    longest = pc.max(pc.binary_length(column)).as_py() or 0
    if longest > MAX_BYTES:
        raise TransportError(f"topic {topic}: {part}: {longest:,} bytes; at most {MAX_BYTES:,} are allowed")


def _parser(lines: pa.Array) -> Callable[[bytes], Json]:
    """Return a parser of lines: orjson, unless one of them may have an integer that is too large for it."""
    import pyarrow.compute as pc

    return from_text if pc.any(pc.match_substring_regex(lines, "[0-9]{19}")).as_py() else orjson.loads


class _Fields:
    """Makes rows of records in JSON form."""

    def __init__(self, reading: FileReading):
        plan = self._plan = load(reading.plan).plan
        key_serde, value_serde = RecordJson(plan).reading(reading.topic)
        self._topics = topics_of(plan)
        self._reading = reading
        self._key = _encoder(key_serde, "key")
        self._value = _encoder(value_serde, "value")
        self._last: tuple[str, int] | None = None
        self._first_row = 0
        self._before: tuple[tuple[str, int] | None, int] = (None, 0)

    def is_of_topic(self, topic: Json) -> bool:
        """Return whether a record belongs to the topic being read. Raises SerdeError for a topic that the topology does not have."""
        if topic not in self._reading.names:
            check_topic(self._plan, topic, self._topics)
        return topic in self._reading.names

    def row(self, record: Mapping[str, Json], place: tuple[int, int]) -> arrow_rows.Row:
        """Return the row of a record. Raises SerdeError."""
        key, value = record.get("key"), record.get("value")
        raw_key = None if key is None else self._key(key)
        raw_value = None if value is None else self._value(value)
        time = record.get("timestamp")
        if time is None:
            time = 0
        elif type(time) is not int:
            time = _instant(time)
        source, offset = place
        own_offset = record.get("offset")
        if own_offset is not None:
            source, offset = 0, _integer(own_offset, "offset")
        headers = record.get("headers")
        return (
            self._reading.topic,
            self._partition(record.get("partition")),
            raw_key,
            raw_value,
            time,
            _headers(headers) if headers else None,
            None,
            source,
            offset,
        )

    def columns(self, parts: Mapping[str, Sequence[Json]], places: Sequence[tuple[int, int]]) -> arrow_rows.RowColumns:
        """Return the columns of rows for the parts of their records, in half the time that `row` would take. Raises SerdeError."""
        none: list[None] = [None] * len(places)
        sources, offsets = zip(*places, strict=True)
        if "offset" in parts:
            own = [None if offset is None else _integer(offset, "offset") for offset in parts["offset"]]
            sources = tuple(0 if offset is not None else source for source, offset in zip(sources, own, strict=True))
            offsets = tuple(at if offset is None else offset for at, offset in zip(offsets, own, strict=True))
        return (
            [self._reading.topic] * len(places),
            [self._partition(number) for number in parts["partition"]] if "partition" in parts else none,
            [None if key is None else self._key(key) for key in parts.get("key", none)],
            [None if value is None else self._value(value) for value in parts.get("value", none)],
            [
                time if type(time) is int else 0 if time is None else _instant(time)
                for time in parts.get("timestamp", none)
            ],
            [_headers(headers) if headers else None for headers in parts["headers"]] if "headers" in parts else none,
            none,
            sources,
            offsets,
        )

    def batch(self, columns: arrow_rows.RowColumns) -> pa.RecordBatch:
        """Return the columns of rows as an Arrow batch; the partitioner chooses the partitions of rows without one."""
        import pyarrow as pa

        topics, named, keys, values, times, headers, order, sources, offsets = columns
        partitions: list[int | None] = list(named)
        count = self._reading.partitions
        if None in partitions and count > 1:
            by_key = partitions_of(pa.array(keys, pa.binary()), count).tolist()
            partitions = [
                (at if key is not None else offset % count) if number is None else number
                for number, at, key, offset in zip(partitions, by_key, keys, offsets, strict=True)
            ]
        elif None in partitions:
            partitions = [0] * len(partitions)
        return arrow_rows.to_batch((topics, partitions, keys, values, times, headers, order, sources, offsets))

    def places(self, batch: pa.RecordBatch) -> list[tuple[int, int]]:
        """Return two numbers for each row of a batch: the place of its file, or of a block in the file, and the row's place in that.

        The place of a file does not depend on its format, because a topic may have inputs of several formats.
        """
        files = self._reading.files
        names = arrow_rows.values_of(batch.column(FILE))
        blocks = arrow_rows.values_of(batch.column(BLOCK))
        numbers = arrow_rows.values_of(batch.column(ROW))
        # Lines have at least one byte, so that the places in a block are smaller than those in the next block.
        is_place = self._reading.of_lines or INDEX in batch.schema.names
        self._before = self._last, self._first_row
        places = []
        last, first = self._last, self._first_row
        for name, block, row in zip(names, blocks, numbers, strict=True):
            if (name, block) != last:
                last, first = (name, block), row
            if not name:
                places.append((_ORDERED + row, block))
            elif is_place:
                places.append(((1 + files[same_path(name)]) << _BLOCK_BITS, block + row - first))
            else:
                places.append((((1 + files[same_path(name)]) << _BLOCK_BITS) + block, row - first))
        self._last, self._first_row = last, first
        return places

    def index_places(self, batch: pa.RecordBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the places of rows as arrays, for rows whose blocks are their indices in their files."""
        import numpy as np

        names = batch.column(FILE).dictionary_encode()
        starts = [(1 + self._reading.files[same_path(name)]) << _BLOCK_BITS for name in names.dictionary.to_pylist()]
        return np.array(starts, dtype=np.int64)[names.indices.to_numpy()], batch.column(BLOCK).to_numpy()

    def line_of(self, batch: pa.RecordBatch, at: int) -> str:
        """Return the file and line of a row of the batch last passed to `places`."""
        names, blocks, rows = (arrow_rows.values_of(batch.column(name)) for name in (FILE, BLOCK, ROW))
        last, first = self._before
        for name, block, row in zip(names[: at + 1], blocks, rows, strict=False):
            if (name, block) != last:
                last, first = (name, block), row
        return place_of_line(same_path(names[at]), blocks[at], rows[at] - first)

    def _partition(self, number: Json) -> int | None:
        if number is None:
            return None
        partition = _integer(number, "partition")
        if not 0 <= partition < self._reading.partitions:
            raise SerdeError(f"partition is {number}, but the topic has {self._reading.partitions}")
        return partition


def topics_of(plan: Plan) -> set[str]:
    """Return the names that records may use for the topics of a plan: the names on the log, and the names of entries."""
    return plan.topic_names() | {topic.entry for topic in plan.external_topics.values()}


def check_topic(plan: Plan, topic: Json, topics: Collection[str]) -> None:
    """Raise SerdeError for the topic of a record that is neither one of `topics` nor matches a pattern of the plan."""
    if topic not in topics and not matching(plan, str(topic)):
        known = sorted(topics)
        raise SerdeError(f"the topology has no topic {topic!r}{did_you_mean(str(topic), known, ', '.join(known))}")


def _refuse_field(record: Mapping[str, Json]) -> NoReturn:
    unknown = next(name for name in record if name not in _OF_A_LINE)
    raise SerdeError(
        f"unknown field {unknown!r}; a record has {', '.join(sorted(_OF_A_LINE))}; if the lines are data, value=* and "
        "timestamp=COLUMN of --input make records of them"
    )


def _instant(time: object) -> int:
    """Return the milliseconds of a time that is text, because its file has no types. Raises SerdeError."""
    if isinstance(time, str):
        if re.fullmatch("-?[0-9]+", time):
            return int(time)
        instant = durations.iso_time(time)
        if instant is not None:
            return instant
    raise SerdeError(f"timestamp is {time!r}; expected milliseconds or a time such as 2025-01-31T08:00:00Z")


def _integer(number: object, what: str) -> int:
    if type(number) is not int:
        raise SerdeError(f"{what} is {number!r}; expected a whole number")
    return number


def _headers(value: Json) -> Headers | None:
    if not isinstance(value, list):
        raise SerdeError("headers must be a list of objects with name and value, or of pairs")
    if isinstance(value[0], Mapping):
        # A column of structs: name (or key) and value.
        headers = [(header.get("name", header.get("key")), header.get("value")) for header in value]
        if any(name is None for name, _ in headers):
            raise SerdeError(f"headers are {headers!r}; a header needs a name")
        return headers
    return headers_from_json(value)


def _encoder(serde: Serde, what: str) -> Callable[[Json], bytes]:
    encode, from_json = serde.encode, serde.from_json

    def run(data: Json) -> bytes:
        if type(data) is bytes:
            return data
        try:
            return encode(from_json(data))
        except SerdeError as error:
            raise SerdeError(f"{what}: {error}") from error

    return run


def _short(line: bytes) -> str:
    text = line[:EXCERPT_CHARACTERS].decode(errors="replace")
    # A terminal would interpret the control characters of a binary file.
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
    return shown + ("…" if len(line) > EXCERPT_CHARACTERS else "")


# -- Writing ---------------------------------------------------------------------------------------------------------


def write_files(
    frame: DataFrame,
    place: Place,
    plan: bytes,
    overwrite: bool,
    layout: OutputLayout | None = None,
    *,
    is_ordered: bool = True,
    verify: Callable[[], None] = lambda: None,
) -> None:
    """Write rows as files of records, which Spark commits together.

    layout: their columns; None for the columns of the log; is_ordered: whether the order of the rows of a key has a meaning.
    verify: raises TransportError if the written files must not stay.
    """
    if place.format == JSON_LINES:
        lines = frame if frame.columns == [LINE] else frame.mapInArrow(partial(write_lines, plan), LINES_DDL)
        with _fresh(frame.sparkSession, place.path, overwrite, verify) as (path, mode):
            _write_text(lines, path, mode)
        return
    if layout is None:
        rows = frame.select(*LOG_TYPES)
    elif frame.columns == list(layout.types):  # the result of a query has its final columns
        rows = frame
    else:
        rows = frame.mapInArrow(partial(write_columns, plan, layout, ()), layout.ddl)
    options = {**IN_UTC, **_REPLACED, **_WRITTEN.get(place.format, {})}
    shown = f"--output {place.path if layout is None else layout.place}"
    writer = arranged(rows, place, shown, is_ordered=is_ordered).options(**options).format(place.format)
    with _fresh(frame.sparkSession, place.path, overwrite, verify) as (path, mode):
        writer.mode(mode).save(path)


@contextmanager
def _fresh(
    spark: SparkSession, path: str, overwrite: bool, verify: Callable[[], None] = lambda: None
) -> Iterator[tuple[str, str]]:
    """Yield the path at which a directory is written, and Spark's mode. One that exists is replaced at the end: Spark itself would
    delete it first, and leave nothing if the job fails. Over Spark Connect it does.
    """
    files = FileSystem(spark) if overwrite and classic_context(spark) is not None else None
    beside = files.beside(path, uuid.uuid4().hex[:TOKEN]) if files is not None and files.exists(path) else None
    if files is None or beside is None:
        yield path, "overwrite" if overwrite else "error"
        try:
            verify()
            _check_names(spark, path)
        except TransportError:
            FileSystem(spark).delete(path)
            raise
        return
    try:
        yield beside, "error"
        verify()
        _check_names(spark, beside)
    except BaseException:
        files.delete(beside)
        raise
    # While files are deleted, the directory must not seem complete.
    files.delete(join(path, _DONE))
    files.delete(path)
    if not files.rename(beside, path):
        raise TransportError(f"{path} was written by another job meanwhile; the files of this one are in {beside}")


def resumed(spark: SparkSession, path: str) -> list[str]:
    """Return a line for each directory beside an output that a job has written to replace it, and was killed before it did.

    A complete one takes the place of the output if that was deleted already.
    """
    files, lines = FileSystem(spark), []
    for beside in files.written_beside(path):
        if files.exists(join(beside, _DONE)) and not files.exists(path) and files.rename(beside, path):
            lines.append(f"{path}: a job was killed before it renamed {beside}; it is renamed now")
        else:
            lines.append(f"{path}: {beside} has files of a job that was killed, or still runs; delete it if none does")
    return lines


def _check_names(spark: SparkSession, path: str) -> None:
    """Raise TransportError if a task wrote so many files that the order of their names is not that of their rows."""
    if int(spark.conf.get(_MOST_ROWS, "0") or 0) <= 0 or classic_context(spark) is None:
        return
    if any(_BEYOND_THREE_DIGITS.search(state.name) for state in FileSystem(spark).files(path)):
        raise TransportError(
            f"{path}: {_MOST_ROWS} cuts the rows of a task into more than 1,000 files, whose names do not tell their order; set it higher"
        )


@mark_errors
def write_lines(plan: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows as lines of JSON."""
    form = RecordJson(load(plan).plan)
    for batch in batches:
        columns = (arrow_rows.values_of(batch.column(index)) for index in range(arrow_rows.HEADERS))
        topics, partitions, keys, values, times = columns
        headers = arrow_rows.headers_of(batch.column(arrow_rows.HEADERS))
        yield lines_of(form, (topics, keys, values, times, headers, partitions))


def _write_text(frame: DataFrame, path: str, mode: str) -> None:
    """Write a frame of lines to files `part-….jsonl` of a directory, and `_SUCCESS` at the end.

    Spark writes text to .txt files, which are renamed. With Spark Connect they keep this suffix, because it gives no access to files.
    """
    context = classic_context(frame.sparkSession)
    if context is None:
        frame.write.mode(mode).text(path)
        return
    frame.write.mode(mode).option(_MARKED, "false").text(path)
    assert context._jvm is not None
    java = class_of(context._jvm, "org.apache.hadoop.fs.Path")
    folder = java(path)
    files = folder.getFileSystem(context._jsc.hadoopConfiguration())
    for status in files.listStatus(folder):
        name = status.getPath().getName()
        if name.startswith("part-") and _ENDING in name:
            files.rename(status.getPath(), java(folder, name.replace(_ENDING, _OWN_ENDING)))
    files.create(java(folder, _DONE)).close()
