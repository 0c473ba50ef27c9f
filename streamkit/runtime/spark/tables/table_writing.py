"""Writes an output's rows to its table: creates the table, adds columns, and changes it in one commit that identifies the run."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from streamkit.runtime.spark.job_options import APPEND, DELTA, ICEBERG, MERGE, OVERWRITE
from streamkit.runtime.spark.rows.output_columns import OutputLayout, ticked, with_folders, write_columns
from streamkit.runtime.spark.spark_session import changed_settings, classic_context
from streamkit.runtime.spark.tables.table_target import (
    JOB,
    OWNER,
    TableTarget,
    check_owner,
    folder_columns,
    properties_of,
    provider_of,
    provider_of_new,
    schema_of,
    sql_name,
)

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import Column, DataFrame, SparkSession

_DELETED = "deleted"
_PLACE = ("order", "source", "offset")
"""The columns of the log's rows that order the records of a key. No column of an output can have one of these names."""
_RANK = "rank"
_RUN = "streamkit.run"
_ICEBERG_PROPERTY = "spark.sql.iceberg.snapshot-property."
_STAGING = "write.wap.enabled"
_STAGED = "wap.id"
"""Iceberg's properties for staged rows: the first enables staging in a table, the second is the id by which rows are published once."""
_DELTA_ID, _DELTA_VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_EXACT = {"spark.sql.sources.partitionOverwriteMode": "static", "spark.sql.session.timeZone": "UTC"}
"""With other values, an overwrite in Delta would keep partitions without new rows, and the name of a partition would be a local time of
the session's zone, which two instants may share."""
_PUBLISHED = ("DuplicateWAPCommitException", "CherrypickAncestorCommitException")
"""Iceberg's errors for staged rows that are already in the table."""
_DELTA_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


@dataclass(frozen=True)
class Stamp:
    """The properties of a table's commit: the id of the checkpoint, the name of the job, and the number of the run."""

    checkpoint: str
    job: str
    run: int

    @property
    def facts(self) -> dict[str, str]:
        """The properties by which a commit identifies its run."""
        return {OWNER: self.checkpoint, _RUN: str(self.run)}

    @property
    def staged(self) -> str:
        """The id of the run's rows while they are staged."""
        return f"{self.checkpoint}-{self.run}"


def rows_for(frame: DataFrame, plan: bytes, target: TableTarget, layout: OutputLayout | None) -> DataFrame:
    """Convert rows of the log into rows of a table. To merge by key, keep the last record of each key and add the column `deleted`.

    The job fails if a text can't be the name of one of the table's partitions.
    """
    rows = _rows_for(frame, plan, target, layout)
    return with_folders(rows, folder_columns(frame.sparkSession, target), target.shown)


def _rows_for(frame: DataFrame, plan: bytes, target: TableTarget, layout: OutputLayout | None) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    if layout is None:
        return frame.select(*target.types)
    if not target.keys:
        return frame.mapInArrow(partial(write_columns, plan, layout, ()), layout.ddl)
    ddl = ", ".join([layout.ddl, *(f"{ticked(name)} bigint" for name in _PLACE)])
    rows = frame.mapInArrow(partial(write_columns, plan, layout, _PLACE), ddl)
    # By column values: different bytes may be the same key, such as JSON with and without spaces.
    keys = [sf.col(ticked(name)) for name in target.keys]
    latest = Window.partitionBy(*keys).orderBy(*(sf.col(name).desc() for name in _PLACE))
    return rows.withColumn(_RANK, sf.row_number().over(latest)).filter(f"{_RANK} = 1").drop(_RANK, *_PLACE)


def write_table(spark: SparkSession, target: TableTarget, rows: DataFrame, stamp: Stamp | None = None) -> None:
    """Write rows to a table in one commit; create a missing table first. Raises UsageError for a table of another checkpoint.

    If two writers write the same run at once, only one changes the table: two merges conflict, Delta refuses a run that is already in
    the table, and Iceberg refuses staged rows whose id is already published.
    """
    name = sql_name(spark, target)
    provider = _prepare(spark, target, name, stamp)
    if target.mode != OVERWRITE and rows.isEmpty():
        return
    columns = [column for column in rows.columns if column in target.types]
    staged = stamp if _is_staged(target, provider) else None
    with _view(rows) as view, changed_settings(spark, _EXACT | _stamps(provider, stamp, staged)):
        if target.mode == MERGE:
            spark.sql(_merge(name, view, target.keys, columns))
        elif target.mode == OVERWRITE:
            _all_columns(spark, name, rows, target).writeTo(name).overwrite(_everything())
        else:
            listed = ", ".join(map(ticked, columns))
            spark.sql(f"INSERT INTO {name} ({listed}) SELECT {listed} FROM {view}")
    if staged is not None:
        _publish(spark, name, staged)


def _is_staged(target: TableTarget, provider: str) -> bool:
    return provider == ICEBERG and target.mode == APPEND


def _publish(spark: SparkSession, name: str, stamp: Stamp) -> None:
    """Publish a run's staged rows in an Iceberg table, unless another process has published them meanwhile."""
    from py4j.protocol import Py4JJavaError

    query = f"SELECT snapshot_id FROM {name}.snapshots WHERE summary['{_STAGED}'] = {_text(stamp.staged)}"
    snapshot = spark.sql(f"{query} ORDER BY committed_at DESC LIMIT 1").collect()[0][0]
    iceberg, table = _iceberg(spark), _loaded(spark, name)
    # With these properties Iceberg makes a new commit even if others came in between.
    for fact, value in stamp.facts.items():
        iceberg.EnvironmentContext.put(fact, value)
    try:
        table.manageSnapshots().cherrypick(snapshot).commit()
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() not in _PUBLISHED:
            raise
    finally:
        for fact in stamp.facts:
            iceberg.EnvironmentContext.remove(fact)


def _iceberg(spark: SparkSession) -> JavaObject:
    context = classic_context(spark)
    assert context is not None
    assert context._jvm is not None
    return context._jvm.org.apache.iceberg


def last_run(spark: SparkSession, target: TableTarget, checkpoint: str) -> int:
    """Return the number of the checkpoint's last run in the commits of a table; 0 if there is none."""
    from pyspark.sql import functions as sf

    name = sql_name(spark, target)
    if provider_of(spark, target, name) == ICEBERG:
        history = spark.sql(f"SELECT snapshot_id FROM {name}.history WHERE is_current_ancestor")
        snapshots = spark.sql(f"SELECT snapshot_id, summary FROM {name}.snapshots").join(history, "snapshot_id")
        owner, run = (sf.col("summary")[key] for key in (OWNER, _RUN))
    else:
        snapshots = spark.sql(f"DESCRIBE HISTORY {name}").select("userMetadata")
        owner, run = (sf.get_json_object("userMetadata", f"$['{key}']") for key in (OWNER, _RUN))
    (row,) = snapshots.filter(owner == checkpoint).agg(sf.max(run.cast("int"))).collect()
    return row[0] or 0


def is_rolled_back(spark: SparkSession, target: TableTarget, checkpoint: str) -> bool:
    """Return whether a table was rolled back to a state before the checkpoint's last run."""
    from pyspark.sql import functions as sf

    name = sql_name(spark, target)
    if provider_of(spark, target, name) == ICEBERG:
        run = sf.max(sf.col("summary")[_RUN].cast("int"))
        written = spark.sql(f"SELECT summary FROM {name}.snapshots").where(sf.col("summary")[OWNER] == checkpoint)
        (row,) = written.agg(run).collect()
        return (row[0] or 0) > last_run(spark, target, checkpoint)
    history = spark.sql(f"DESCRIBE HISTORY {name}").select(
        "version", "operation", "operationParameters", "userMetadata"
    )
    is_own = sf.get_json_object("userMetadata", f"$['{OWNER}']") == checkpoint
    (row,) = history.agg(sf.max(sf.when(is_own, sf.col("version")))).collect()
    own: int = -1 if row[0] is None else row[0]
    later = history.where(sf.col("operation") == "RESTORE").collect()
    restored = {row["version"]: int(row["operationParameters"].get("version") or -1) for row in later}
    last = max(restored, default=own)
    while last > own and last in restored:
        # A RESTORE copies an older version, which may itself be a RESTORE: follow them to the version that has the rows.
        last = max((version for version in restored if own < version <= restored[last]), default=restored[last])
    return last < own


def snapshot_of(spark: SparkSession, target: TableTarget) -> int | None:
    """Return the id of an Iceberg table's last snapshot, or 0 if it has none; None unless rows are appended to the table.

    Merges and Delta tables do not need it, because writing a run twice changes nothing there.
    """
    name = sql_name(spark, target)
    if target.mode != APPEND:
        return None
    if schema_of(spark, name) is None:
        return 0
    if provider_of(spark, target, name) != ICEBERG:
        return None
    snapshot = _loaded(spark, name).currentSnapshot()
    return 0 if snapshot is None else snapshot.snapshotId()


def has_history_since(spark: SparkSession, target: TableTarget, snapshot: int) -> bool:
    """Return whether an Iceberg table still has all snapshots since this one; 0: since its creation."""
    table, history = _loaded(spark, sql_name(spark, target)), _iceberg(spark).util.SnapshotUtil
    current = table.currentSnapshot()
    if current is None:
        return snapshot == 0
    if snapshot == 0:
        return history.oldestAncestor(table).parentId() is None
    return current.snapshotId() == snapshot or bool(history.isParentAncestorOf(table, current.snapshotId(), snapshot))


def _loaded(spark: SparkSession, name: str) -> JavaObject:
    table = _iceberg(spark).spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
    table.refresh()
    return table


def _prepare(spark: SparkSession, target: TableTarget, name: str, stamp: Stamp | None) -> str:
    """Create a table, or add missing columns; return its format."""
    schema = schema_of(spark, name)
    if schema is None:
        provider = provider_of_new(spark, target)
        columns = ", ".join(f"{ticked(column)} {kind}" for column, kind in target.types.items())
        parts = ", ".join(transform.of(ticked(transform.column)) for transform in target.partition_by)
        partitions = f" PARTITIONED BY ({parts})" if parts else ""
        own = _own_properties(target, provider, stamp)
        properties = f" TBLPROPERTIES ({_listed(own)})" if own else ""
        spark.sql(f"CREATE TABLE {name} ({columns}) USING {provider}{partitions}{properties}")
        if target.sort_by:
            _set_order(spark, name, target.sort_by)
        return provider
    provider = provider_of(spark, target, name)
    check_owner(spark, target, name, None if stamp is None else stamp.checkpoint)
    own, existing = _own_properties(target, provider, stamp), properties_of(spark, name)
    if any(existing.get(property_) != value for property_, value in own.items() if property_ != JOB):
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({_listed(own)})")
    has = {column.lower() for column in schema.names}
    new = [f"{ticked(column)} {kind}" for column, kind in target.types.items() if column.lower() not in has]
    if new:
        spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({', '.join(new)})")
    return provider


def _own_properties(target: TableTarget, provider: str, stamp: Stamp | None) -> dict[str, str]:
    """Return the properties of a table that the runs of a checkpoint write."""
    own = {} if stamp is None else {OWNER: stamp.checkpoint, JOB: stamp.job}
    return {**own, _STAGING: "true"} if own and _is_staged(target, provider) else own


def _set_order(spark: SparkSession, name: str, columns: tuple[str, ...]) -> None:
    """Set the order in which Iceberg writes rows, through its API, because its SQL needs an extension in the session."""
    iceberg = _iceberg(spark)
    order = _loaded(spark, name).replaceSortOrder()
    for column in columns:
        order = order.asc(iceberg.expressions.Expressions.ref(column), iceberg.NullOrder.NULLS_FIRST)
    order.commit()


def _listed(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{_text(name)} = {_text(value)}" for name, value in properties.items())


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _merge(name: str, view: str, keys: tuple[str, ...], columns: list[str]) -> str:
    """Return the statement that merges rows by their keys, which are not null."""
    same = " AND ".join(f"t.{ticked(key)} = s.{ticked(key)}" for key in keys)
    changes = ", ".join(f"t.{ticked(column)} = s.{ticked(column)}" for column in columns)
    listed, values = (", ".join(f"{side}{ticked(column)}" for column in columns) for side in ("", "s."))
    return (
        f"MERGE INTO {name} t USING {view} s ON {same} WHEN MATCHED AND s.{_DELETED} THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {changes} WHEN NOT MATCHED AND NOT s.{_DELETED} THEN INSERT ({listed}) VALUES ({values})"
    )


def _all_columns(spark: SparkSession, name: str, rows: DataFrame, target: TableTarget) -> DataFrame:
    """Return rows with all columns of a table; rows of deleted keys are left out."""
    from pyspark.sql import functions as sf

    own = {column.lower(): column for column in target.types}
    columns = [
        sf.col(ticked(own[field.name.lower()])).cast(field.dataType).alias(field.name)
        if field.name.lower() in own
        else sf.lit(None).cast(field.dataType).alias(field.name)
        for field in spark.table(name).schema.fields
    ]
    return (rows.filter(f"NOT {_DELETED}") if target.keys else rows).select(*columns)


def _everything() -> Column:
    from pyspark.sql import functions as sf

    return sf.lit(True)


def _stamps(provider: str, stamp: Stamp | None, staged: Stamp | None) -> dict[str, str]:
    """Return the session settings that put the run into a commit. Delta itself refuses a run that is already in the table."""
    if stamp is None:
        return {}
    if provider == DELTA:
        metadata = json.dumps({**stamp.facts, JOB: stamp.job})
        return {_DELTA_ID: stamp.checkpoint, _DELTA_VERSION: str(stamp.run), _DELTA_METADATA: metadata}
    properties = {_ICEBERG_PROPERTY + name: value for name, value in stamp.facts.items()}
    return properties if staged is None else {**properties, f"spark.{_STAGED}": staged.staged}


@contextmanager
def _view(rows: DataFrame) -> Iterator[str]:
    """Yield a name for rows in SQL, valid in the block."""
    name = f"streamkit_{uuid.uuid4().hex}"
    rows.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        rows.sparkSession.catalog.dropTempView(name)
