"""A table that an output is written to: its name, its columns, and whether a table that exists can take them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn
from zlib import crc32

from streamkit.errors import TransportError, UsageError
from streamkit.plan.model import Plan
from streamkit.runtime.spark.job_options import (
    APPEND,
    DELTA,
    ICEBERG,
    MERGE,
    OVERWRITE,
    REST,
    TABLE,
    JobOptions,
    Place,
    Transform,
)
from streamkit.runtime.spark.rows.file_system import FileSystem, same_path
from streamkit.runtime.spark.rows.output_columns import LOG_TYPES, WHOLE_NUMBERS, OutputLayout, ticked
from streamkit.runtime.spark.spark_session import classic_context, package_of, without_error_log
from streamkit.runtime.spark.stage_plan import table_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

OWNER, JOB = "streamkit.checkpoint", "streamkit.job"
"""Properties of a table that the runs of a checkpoint write: the checkpoint's id, and words that name the job."""
_PROVIDERS = (ICEBERG, DELTA)
_OWN_CATALOG = "spark_catalog"
_PARTS_WITH_CATALOG = 3
_NO_TABLE = ("TABLE_OR_VIEW_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE", "PATH_NOT_FOUND", "SCHEMA_NOT_FOUND")


@dataclass(frozen=True)
class TableTarget:
    """A table as an output. path: a name or a path; types: by column; keys: the columns that identify rows, none for a stream."""

    topic: str
    path: str
    format: str
    types: Mapping[str, str]
    keys: tuple[str, ...] = ()
    mode: str = APPEND
    partition_by: tuple[Transform, ...] = ()
    """Of a table that is created, as `sort_by` is."""
    sort_by: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The output as the user wrote it."""
        return f"--output {self.topic}={self.path}"

    @property
    def change(self) -> tuple[str, str]:
        """The topic and what a write does with it."""
        done = {MERGE: "merged into", OVERWRITE: "written over the rows of", APPEND: "appended to"}[self.mode]
        return "other topics" if self.topic == REST else self.topic, f"{done} {self.path}"

    @property
    def described(self) -> str:
        """The same for the report of a job."""
        return ": ".join(self.change)

    @property
    def is_path(self) -> bool:
        """Whether the table is at a path, rather than in a catalog."""
        return "/" in self.path


def targets_of(plan: Plan, options: JobOptions, layouts: Mapping[str, OutputLayout]) -> dict[str, TableTarget]:
    """Return the outputs that are tables, by topic. Raises UsageError."""
    tables = table_topics(plan)
    return {
        topic: _target(topic, place, layouts.get(topic), topic in tables, options.overwrite)
        for topic, place in options.outputs.items()
        if place is not None and place.is_table
    }


def _target(topic: str, place: Place, layout: OutputLayout | None, is_table: bool, overwrite: bool) -> TableTarget:
    mode = place.layout.mode or (OVERWRITE if overwrite else MERGE if is_table and layout is not None else APPEND)
    target = TableTarget(
        topic,
        place.path,
        place.format,
        LOG_TYPES if layout is None else layout.types,
        (),
        mode,
        place.layout.partition_by,
        place.layout.sort_by,
    )
    if layout is None:
        return target
    shown = f"--output {topic}={place.path}"
    if mode == MERGE and not is_table:
        raise UsageError(f"{shown}: mode=merge keeps the last record of each key, and {topic} is a stream: mode=append")
    if mode == APPEND or not is_table:
        return target
    keys = {column.name: column.shape for column in layout.columns if column.part == "key"}
    for name, shape in keys.items():
        if "map<" in shape.ddl:
            raise UsageError(
                f"{shown}: the column {name} of the key is of type {shape.ddl}, which Spark does not compare; mode=append "
                "adds a row for each record"
            )
    types = {name: kind for name, kind in layout.types.items() if name != "deleted"}
    return replace(target, types=types, keys=tuple(keys))


def sql_name(spark: SparkSession, target: TableTarget) -> str:
    """Return the name of a table in SQL. A table of Iceberg at a path gets a catalog of its folder, since MERGE needs a name."""
    path = target.path
    if not target.is_path:
        return path if "`" in path else ".".join(map(ticked, path.split(".")))
    if "://" not in path and not path.startswith("file:"):
        path = os.path.abspath(path)
    if target.format == DELTA:
        return f"delta.{ticked(path)}"
    folder, _, name = path.rstrip("/").rpartition("/")
    catalog = f"streamkit_{crc32(folder.encode()):08x}"
    settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": folder}
    for setting, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.{catalog}{setting}", value)
    return f"{catalog}.{ticked(name)}"


def schema_of(spark: SparkSession, name: str) -> StructType | None:
    """Return the columns of a table; None if it does not exist."""
    from pyspark.errors import AnalysisException

    try:
        with without_error_log():
            return spark.table(name).schema
    except AnalysisException as error:
        if error.getCondition() in _NO_TABLE:
            return None
        raise


def provider_of(spark: SparkSession, target: TableTarget, name: str) -> str:
    """Return the format of a table that exists. Raises UsageError for one that is neither of Iceberg nor of Delta."""
    provider = str(_details(spark, name).get("Provider", "no format")).lower()
    if provider not in _PROVIDERS:
        raise UsageError(
            f"{target.shown}: it is a table of {provider}; outputs are tables of {' or '.join(_PROVIDERS)}"
        )
    return provider


def _details(spark: SparkSession, name: str) -> dict[str, str]:
    return {row["col_name"]: row["data_type"] for row in spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()}


def location_of(spark: SparkSession, target: TableTarget) -> str | None:
    """Return the path of a table's files; None if the table does not exist, or its catalog does not report the path."""
    name = sql_name(spark, target)
    if schema_of(spark, name) is None:
        return same_path(os.path.abspath(target.path)) if target.is_path and "://" not in target.path else None
    location = _details(spark, name).get("Location")
    return location and same_path(location).rstrip("/")


def check_distinct(spark: SparkSession, targets: Collection[TableTarget]) -> None:
    """Raise UsageError for outputs that are one table under several names.

    One would replace rows of another, and a run that has written one of them would count as written for the other.
    """
    by_name: dict[str, TableTarget] = {}
    for target in targets if len(targets) > 1 else ():
        named = None if target.is_path else _full_name(spark, target.path)
        for same in {named, location_of(spark, target)} - {None}:
            other = by_name.setdefault(str(same), target)
            if other is not target:
                raise UsageError(f"{target.shown}: {other.shown} is the same table; give each output its own")


def _full_name(spark: SparkSession, path: str) -> str:
    """Return a name with its catalog and database, in lower case, because not all catalogs distinguish names by case."""
    parts = [part.strip("`") for part in path.split(".")]
    is_catalog = parts[0] == _OWN_CATALOG or bool(spark.conf.get(f"spark.sql.catalog.{parts[0]}", ""))
    if len(parts) == 1:
        parts.insert(0, spark.catalog.currentDatabase())
    if len(parts) < _PARTS_WITH_CATALOG and not is_catalog:
        parts.insert(0, spark.catalog.currentCatalog())
    return ".".join(parts).lower()


def provider_of_new(spark: SparkSession, target: TableTarget) -> str:
    """Return the format of a table that is to be created. Raises UsageError if nothing determines it."""
    if target.format != TABLE:
        return target.format
    catalog = _catalog(spark, target.path)
    kind = spark.conf.get(f"spark.sql.catalog.{catalog}", "") or ""
    provider = next((known for known in _PROVIDERS if known in kind.lower()), None)
    if provider is None:
        raise UsageError(
            f"{target.shown}: the table does not exist, and the catalog {catalog} does not determine its format; add "
            f"{' or '.join(f'format={known}' for known in _PROVIDERS)}"
        )
    return provider


def _catalog(spark: SparkSession, path: str) -> str:
    """Return the catalog of a name. Raises UsageError for one that Spark does not have."""
    first, *others = path.split(".")
    if len(others) + 1 < _PARTS_WITH_CATALOG:
        return spark.catalog.currentCatalog()
    catalog = first.strip("`")
    if catalog != _OWN_CATALOG and not spark.conf.get(f"spark.sql.catalog.{catalog}", ""):
        raise UsageError(
            f"Spark has no catalog {catalog}, which {path} names: --conf spark.sql.catalog.{catalog}="
            "org.apache.iceberg.spark.SparkCatalog, and its settings"
        )
    return catalog


def properties_of(spark: SparkSession, name: str) -> dict[str, str]:
    """Return the properties of a table."""
    return {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}


def check_target(spark: SparkSession, target: TableTarget, owner: str | None = None) -> bool:
    """Check that an output can be written to its table; return whether that exists. Raises UsageError.

    owner: the id of the checkpoint whose runs write it; None: no checkpoint.
    """
    if target.format == DELTA and DELTA not in (spark.conf.get("spark.sql.extensions", "") or "").lower():
        raise UsageError(f"{target.shown}: the session has no Delta: {package_of(DELTA)}")
    if not target.is_path:
        _catalog(spark, target.path)
    name = sql_name(spark, target)
    schema = schema_of(spark, name)
    if schema is None:
        _check_database(spark, target)
        _check_arranged(spark, target, provider_of_new(spark, target))
        _check_path(spark, target)
        return False
    provider_of(spark, target, name)
    _check_columns(target, schema)
    check_owner(spark, target, name, owner)
    return True


def _check_database(spark: SparkSession, target: TableTarget) -> None:
    """Raise UsageError for a new table in a database that Spark's own catalog does not have; others may create it."""
    *before, _ = _full_name(spark, target.path).split(".")
    if target.is_path or before[0] != _OWN_CATALOG or spark.catalog.databaseExists(".".join(before)):
        return
    database = ".".join(before)
    raise UsageError(f"{target.shown}: there is no database {database}: CREATE DATABASE {database}")


def _check_arranged(spark: SparkSession, target: TableTarget, provider: str) -> None:
    """Raise UsageError for partitions and orders that the format of a new table does not have."""
    for transform in target.partition_by:
        if provider == DELTA and transform.kind:
            raise UsageError(f"{target.shown}: partition_by={transform.text}: Delta can be partitioned only by columns")
    if target.sort_by and provider == DELTA:
        raise UsageError(f"{target.shown}: sort_by: a table of Delta has no order of rows; one of Iceberg has")
    if target.sort_by and classic_context(spark) is None:
        raise UsageError(f"{target.shown}: sort_by: the order of a table can't be set over Spark Connect")


def _check_path(spark: SparkSession, target: TableTarget) -> None:
    """Raise UsageError for a folder with other files, such as those of a table that only its catalog knows."""
    if not target.is_path or classic_context(spark) is None:
        return
    names = FileSystem(spark).names(target.path)
    if names:
        raise UsageError(
            f"{target.shown}: there is {names[0]}, and no table of {target.format} that can be written by its path; write a "
            "table of a catalog by its name, or to a new path"
        )


def check_owner(spark: SparkSession, target: TableTarget, name: str, owner: str | None) -> None:
    """Raise UsageError for a table that the runs of another checkpoint write."""
    properties = properties_of(spark, name)
    if properties.get(OWNER) not in (None, owner):
        raise UsageError(
            f"{target.shown}: the table belongs to another job ({properties.get(JOB, 'of a checkpoint')}); write to a "
            f"table of its own, or take it over: ALTER TABLE {target.path} UNSET TBLPROPERTIES ('{OWNER}')"
        )


def _check_columns(target: TableTarget, schema: StructType) -> None:
    """Raise UsageError for a column that has another type in the table, and for one that must not be null there."""
    fields = {field.name.lower(): field for field in schema.fields}
    for name, kind in target.types.items():
        field = fields.pop(name.lower(), None)
        if field is not None and not _takes(field.dataType.simpleString(), plain_type(kind)):
            _refuse_column(target, name, field.dataType.simpleString(), plain_type(kind))
    for field in fields.values():
        if not field.nullable:
            raise UsageError(
                f"{target.shown}: the table has a column {field.name} that must not be null, and the job has no such "
                f"column: ALTER TABLE {target.path} ALTER COLUMN {field.name} DROP NOT NULL"
            )


def _refuse_column(target: TableTarget, name: str, has: str, expected: str) -> NoReturn:
    part = name.partition("_")[0]
    cure = f"{part}=TYPE gives the type of the {part}, or " if part in ("key", "value") else ""
    raise UsageError(
        f"{target.shown}: column {name} is of type {has} in the table, and the job writes {expected}; {cure}change "
        f"the table: ALTER TABLE {target.path} ALTER COLUMN {name} TYPE {expected}, where its format can do that"
    )


def folder_columns(spark: SparkSession, target: TableTarget) -> list[str]:
    """Return the columns whose values name folders in a table; those of Iceberg do not depend on the names."""
    name = sql_name(spark, target)
    exists = schema_of(spark, name) is not None
    if (provider_of(spark, target, name) if exists else provider_of_new(spark, target)) != DELTA:
        return []
    if not exists:
        return [transform.column for transform in target.partition_by]
    (detail,) = spark.sql(f"DESCRIBE DETAIL {name}").select("partitionColumns").collect()
    return [column for column in target.types if column.lower() in {name.lower() for name in detail[0]}]


def plain_type(ddl: str) -> str:
    """Return a type of Spark in its one simple form."""
    from pyspark.sql.types import DataType

    return DataType.fromDDL(ddl).simpleString()


def _takes(has: str, wanted: str) -> bool:
    """Return whether a column of a type holds all values of another one; Iceberg has no small whole numbers."""
    if has in WHOLE_NUMBERS and wanted in WHOLE_NUMBERS:
        return WHOLE_NUMBERS[has] >= WHOLE_NUMBERS[wanted]
    return has == wanted


def missing(target: TableTarget, reason: str) -> TransportError:
    """Return the error of a table that runs have written and that is not there any more."""
    return TransportError(
        f"{target.shown}: {reason}, which earlier runs wrote; put it back, or begin with a new checkpoint and a new output"
    )
