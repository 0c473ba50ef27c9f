"""Inputs in files and tables: opens them as rows with positions, and refuses what Spark would read otherwise, or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from functools import cached_property, reduce
from typing import TYPE_CHECKING
from urllib.parse import unquote

import orjson

from streamkit.durations import DAY_MS
from streamkit.errors import TransportError, UsageError
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
    BLOCK,
    FILE,
    FILE_OF_SPARK,
    INDEX,
    INDEX_OF_SPARK,
    ROW,
    FileSystem,
    changed_files,
    class_of,
    escaped,
    formats_of,
    input_files,
    join,
    joined,
    position_columns,
    relation_of,
    same_path,
    table_versions,
)
from streamkit.runtime.spark.rows.input_columns import (
    TIMES,
    WHOLE,
    Source,
    check_case,
    check_columns,
    columns_of_parts,
    expression,
    instant,
    order_of,
    quoted,
    schema_of_parts,
    select_parts,
)
from streamkit.runtime.spark.rows.text_checks import (
    check_compression,
    check_csv,
    check_json,
    check_kinds,
    check_names,
    check_numbers,
    check_tables,
)
from streamkit.runtime.spark.spark_session import changed_settings, classic_context, translated, without_error_log

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyarrow.parquet import FileMetaData
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructField, StructType


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
ORDERED = 1 << 62
"""Added to a number that orders rows, so that the resulting place is higher than the places in files."""
EXACT_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of Spark's JSON and CSV: it would truncate times to milliseconds."""
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
        return replace(opened, source=scan, tasks=planned_tasks(spark, sum(map(os.path.getsize, paths))))
    reader = _reader(spark, place, None).schema(schema).format(place.format)
    # With their schemes: other paths may be in another file system.
    return replace(opened, source=reduce(DataFrame.unionAll, map(reader.load, map(unquote, files))))


def planned_tasks(spark: SparkSession, size: int) -> int:
    """Return how many tasks Spark would plan for files of so many bytes: each opens files, and writes one."""
    most: int = spark._jsparkSession.sessionState().conf().filesMaxPartitionBytes()
    return max(spark.sparkContext.defaultParallelism, -(-size // most))


def of_files(opened: OpenedInput, paths: Sequence[str]) -> OpenedInput | None:
    """Return the rows of some local Parquet files of an input; None if a folder may give one a column, or a name is a pattern for Spark."""
    place, spark = opened.place, opened.source.sparkSession
    if any(map(_SPECIAL.search, paths)):
        return None
    reader = _reader(spark, place, None).schema(opened.source.schema).format(place.format)
    source = reader.load([f"file://{path}" for path in paths])
    files = tuple(name for name in opened.files if same_path(name) in paths)
    return replace(_rows_of(source, place, opened.number), files=files)


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
    check_columns(place, source.columns)
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

    if setting == "timestamp" and re.fullmatch("-?[0-9]+", order):
        raise TransportError(
            f"{place.path}: timestamp={order} is the same for all rows, so it does not order them: name a column of numbers or times that "
            f"does, with order=COLUMN; order={order} takes them in an order that depends on their contents"
        )
    position = row_order(frame, place, order, setting)
    refusal = sf.concat(
        sf.lit(f"{place.path}: {setting}={order}: "),
        sf.coalesce(
            sf.concat(position.column.cast("string"), sf.lit(" is too large")),
            sf.lit(f"a row has null, and so no place in the order; where={order} is not null omits such rows"),
        ),
    )
    fits = sf.when(sf.abs(position.number) < ORDERED, position.number)
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

    contents = sf.to_json(sf.struct(*map(_content, frame.schema.fields)), EXACT_TIMES)
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


# The order of rows without a position in a file: by a column of whole numbers or times.

_EPOCH = "1970-01-01 00:00:00"


@dataclass(frozen=True)
class RowOrder:
    """A column, or an expression, that orders rows."""

    column: Column
    kind: str
    """The name of its type in Spark."""
    is_time: bool

    @property
    def number(self) -> Column:
        """The position of a row: its whole number, or its time in microseconds."""
        from pyspark.sql import functions as sf

        if self.kind in TIMES:
            return sf.unix_micros(instant(self.column, self.kind))
        number = sf.unix_date(self.column) if self.kind == "date" else self.column
        return sf.try_multiply(number.cast("bigint"), sf.lit(self._unit))

    def up_to(self, number: int) -> Column:
        """Return the condition that a row's position is at most this one, in the column's type so that Spark can push it into scans."""
        from pyspark.sql import functions as sf

        if self.kind == "timestamp":
            return self.column <= sf.timestamp_micros(sf.lit(number))
        if self.kind == "timestamp_ntz":
            return self.column <= sf.lit(_EPOCH).cast("timestamp_ntz") + sf.lit(timedelta(microseconds=number))
        whole = sf.lit(number // self._unit)
        return self.column <= (
            sf.date_from_unix_date(whole.cast("int")) if self.kind == "date" else whole.cast(self.kind)
        )

    @property
    def _unit(self) -> int:
        if self.kind == "date":
            return DAY_MS * 1000
        return 1000 if self.is_time else 1  # milliseconds of a timestamp


def row_order(frame: DataFrame, place: Place, order: str, setting: str) -> RowOrder:
    """Return the order of an input's rows. Raises TransportError for a column whose type can't order rows."""
    column = expression(place, frame.columns, setting, order)
    kind = frame.select(column).dtypes[0][1]
    if kind not in (*WHOLE, *TIMES, "date"):
        raise TransportError(
            f"{place.path}: {setting}={order}: the column is of type {kind}; expected whole numbers or times"
        )
    return RowOrder(column, kind, kind in (*TIMES, "date") or setting == "timestamp")
