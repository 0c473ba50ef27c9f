"""Tables as outputs of runs: rows wait in the checkpoint until their run counts, and then reach their table in one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from streamkit.errors import TransportError, UsageError
from streamkit.runtime.spark.checkpoint.file_system import escaped, join
from streamkit.runtime.spark.checkpoint.job_checkpoint import TABLES, Checkpoint
from streamkit.runtime.spark.checkpoint.manifest import Manifest, Output, RunOutput, TableRows
from streamkit.runtime.spark.submission.job_options import OVERWRITE, PARQUET, Place
from streamkit.runtime.spark.submission.partition_transforms import parse_transforms
from streamkit.runtime.spark.tables.table_target import (
    OWNER,
    TableTarget,
    check_target,
    missing,
    properties_of,
    schema_of,
    sql_name,
)
from streamkit.runtime.spark.tables.table_writing import Stamp, last_run, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def waiting_place(checkpoint: Checkpoint, topic: str, folder: str) -> Place:
    """Return where the rows of a run wait. folder: that of the run."""
    return Place(join(checkpoint.folder, _waiting(topic, folder)), PARQUET)


def output_of(target: TableTarget, before: Output | None, run: int, folder: str) -> Output:
    """Return what the manifest of a run has on a table."""
    since = run if before is None or before.table is None else before.table.since
    partition_by = tuple(each.text for each in target.partition_by)
    rows = TableRows(target.keys, target.mode, since, partition_by, target.sort_by)
    waiting = _waiting(target.topic, folder)
    return Output(target.path, target.format, (RunOutput(run, "", waiting, ()),), target.types, rows)


def _waiting(topic: str, folder: str) -> str:
    return join(TABLES, folder, f"rows of {topic}")


def check_tables(spark: SparkSession, manifest: Manifest, targets: Mapping[str, TableTarget]) -> None:
    """Check that tables can take the rows of the next run, and are those of the runs before. Raises UsageError, TransportError."""
    for topic, target in targets.items():
        if target.mode == OVERWRITE:
            raise UsageError(
                f"{target.shown}: mode=overwrite and --checkpoint exclude each other: it would delete what the runs before wrote"
            )
        exists = check_target(spark, target, manifest.id)
        before = manifest.outputs.get(topic)
        if before is None or before.table is None:
            continue
        if (before.table.keys, before.table.mode) != (target.keys, target.mode):
            raise UsageError(
                f"{target.shown}: the runs before wrote it with mode={before.table.mode} and {_keys(before.table.keys)}, and "
                f"this one has mode={target.mode} and {_keys(target.keys)}; begin with a new checkpoint and a new output"
            )
        _check_history(spark, target, manifest, exists)


def _keys(names: tuple[str, ...]) -> str:
    return f"the key {', '.join(names)}" if names else "no key"


def _check_history(spark: SparkSession, target: TableTarget, manifest: Manifest, exists: bool) -> None:
    """Raise TransportError for a table that is not the one of the runs before, or has a run that the checkpoint does not have."""
    if not exists:
        raise missing(target, "there is no such table")
    if OWNER not in properties_of(spark, sql_name(spark, target)):
        raise missing(target, f"the table has no property {OWNER}, and so is not the one")
    last = last_run(spark, target, manifest.id)
    if last > manifest.run:
        raise TransportError(
            f"{target.shown}: the table has run {last}, and the last manifest is that of run {manifest.run}; put the "
            "manifest back, or begin with a new checkpoint and a new output"
        )


def settle_tables(
    spark: SparkSession, checkpoint: Checkpoint, manifest: Manifest, report: Callable[[str], None] = lambda line: None
) -> None:
    """Write the rows of the last run to its tables, where it ended before it did so. Raises StreamkitError.

    The history of a table tells whether it has the run, so that no run is written twice.
    """
    for topic, output in manifest.outputs.items():
        if output.table is None:
            continue
        last = output.runs[-1]
        waiting = join(checkpoint.folder, last.staged)
        if not checkpoint.files.exists(waiting):
            continue
        target = _target(topic, output, output.table)
        exists = schema_of(spark, sql_name(spark, target)) is not None
        if not exists and last.run > output.table.since:
            raise missing(target, "there is no such table")
        if not exists or last_run(spark, target, manifest.id) < last.run:
            job = f"{manifest.application}, --checkpoint {checkpoint.folder}"
            write_table(spark, target, spark.read.parquet(escaped(waiting)), Stamp(manifest.id, job, last.run))
        checkpoint.files.delete(waiting)
        report(target.described)


def _target(topic: str, output: Output, table: TableRows) -> TableTarget:
    transforms = parse_transforms(",".join(table.partition_by), output.path)
    return TableTarget(
        topic, output.path, output.format, output.columns, table.keys, table.mode, transforms, table.sort_by
    )
