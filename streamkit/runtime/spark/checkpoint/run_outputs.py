"""The outputs of runs: a folder that each run writes gets its final name once the run is committed; rows of tables wait until then."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from streamkit.errors import TransportError, UsageError
from streamkit.runtime.spark.checkpoint.job_checkpoint import TABLES, Checkpoint
from streamkit.runtime.spark.checkpoint.manifest import Manifest, Output, RunOutput, TableRows, WrittenFile
from streamkit.runtime.spark.job_options import JSON_LINES, OVERWRITE, PARQUET, Place, parse_transforms
from streamkit.runtime.spark.rows.file_system import FileSystem, escaped, join
from streamkit.runtime.spark.tables.table_target import (
    OWNER,
    TableTarget,
    check_distinct,
    check_target,
    missing,
    properties_of,
    schema_of,
    sql_name,
)
from streamkit.runtime.spark.tables.table_writing import (
    Stamp,
    has_history_since,
    is_rolled_back,
    last_run,
    write_table,
)
from streamkit.runtime.spark.work_names import WorkName, named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LISTING = "_manifest.json"
# Spark hides names that begin with an underscore only if they have no "=": it takes others for partitions.
_STAGED = "_run-"
_FORMATS = (JSON_LINES, PARQUET, "orc")


def staged_place(place: Place, run: int, token: str) -> Place:
    """Return where a run writes an output before it is committed; readers skip names that begin with an underscore."""
    return replace(place, path=join(place.path, f"{_STAGED}{run:06}-{token}"))


def written(files: FileSystem, run: int, staged: Place) -> RunOutput:
    """Return what a run has written."""
    name = staged.path.rpartition("/")[2]
    return RunOutput(run, f"run={run:06}", name, _files_in(files, staged.path))


def _files_in(files: FileSystem, folder: str) -> tuple[WrittenFile, ...]:
    return tuple(WrittenFile(*file) for file in sorted(files.files_in(folder).items()))


def check_outputs(
    files: FileSystem,
    manifest: Manifest,
    places: Mapping[str, Place | None],
    columns: Mapping[str, Mapping[str, str]],
) -> None:
    """Check that the outputs are those of earlier runs, and still have the files of these runs. Raises UsageError, TransportError.

    columns: the types of the columns that this run writes, by topic and name; none for the bytes of the log.
    """
    in_files = {topic: place for topic, place in places.items() if place is not None}
    for topic, place in in_files.items():
        if place.format not in _FORMATS and not place.is_table:
            raise UsageError(
                f"--output {topic}={place.path}: --checkpoint writes a folder for each run, as {', '.join(_FORMATS)}, or to a table, "
                f"not {place.format}"
            )
        before = manifest.outputs.get(topic)
        if before is None and manifest.run:
            raise UsageError(f"--output {topic}={place.path}: earlier runs have not written this topic there")
        if before is not None and (before.path, before.format) != (place.path, place.format):
            raise UsageError(
                f"--output {topic}={place.path}: earlier runs wrote it to {before.path} as {before.format}; use the same output"
            )
        if place.is_table:
            continue
        if before is not None:
            _check_columns(topic, place, before.columns, columns.get(topic, {}))
            _check_folders(topic, place, before)
        if before is None and any(not name.startswith("_") for name in files.names(place.path)):
            raise TransportError(f"--output {topic}={place.path}: it has files which no run of this checkpoint wrote")
    for topic, output in manifest.outputs.items():
        if topic not in in_files:
            raise UsageError(f"earlier runs wrote {topic} to {output.path}: give --output {topic}={output.path} again")
        _check_runs(files, topic, output)


def _check_columns(topic: str, place: Place, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise UsageError if files of one output would have columns of other types; new columns are null in older files."""
    shown = f"--output {topic}={place.path}"
    if bool(before) != bool(now):
        cure = "add columns=log" if now else "leave columns=log out"
        raise UsageError(
            f"{shown}: earlier runs wrote {'decoded columns' if before else 'the bytes of the log'}; {cure}"
        )
    for name, kind in now.items():
        if before.get(name, kind) != kind:
            raise UsageError(
                f"{shown}: column {name} is of type {kind}, and earlier runs wrote {before[name]}; give its type with "
                "key= or value=, or begin with a new checkpoint and a new output"
            )


def folders_of(place: Place) -> tuple[str, ...]:
    """Return the `partition_by` of an output as text."""
    return tuple(transform.text for transform in place.layout.partition_by)


def _check_folders(topic: str, place: Place, before: Output) -> None:
    """Raise UsageError if runs would have different folders: Spark then reads none of them."""
    if before.folders not in (None, folders_of(place)):
        earlier = ",".join(before.folders or ()) or "no partitions"
        now = ",".join(folders_of(place)) or "none"
        raise UsageError(
            f"--output {topic}={place.path}: partition_by is {now}, and earlier runs wrote {earlier}; use the same, or begin "
            "with a new checkpoint and a new output"
        )


def _check_runs(files: FileSystem, topic: str, output: Output) -> None:
    if output.table is not None:
        return
    sizes = files.files_in(output.path)
    for run in output.runs:
        _check_files(f"--output {topic}={output.path}", run, run.folder, sizes)


def _check_files(shown: str, run: RunOutput, folder: str, sizes: Mapping[str, int]) -> None:
    """Raise TransportError if a file of a run is missing or has another size; found: the sizes of files by path."""
    for file in run.files:
        name = join(folder, file.name)
        if sizes.get(name) != file.size:
            state = "is missing" if name not in sizes else "has changed"
            raise TransportError(
                f"{shown}: {name} {state}, which run {run.run} wrote; put it back, or begin with a new checkpoint and a new "
                "output"
            )


def settle(files: FileSystem, manifest: Manifest) -> None:
    """Give the outputs of the last run their final names and list them, if it ended before it did so.

    Raises TransportError if a final name is taken by something else.
    """
    for topic, output in manifest.outputs.items():
        last = output.runs[-1] if output.runs else None
        if output.table is not None or last is None or last.run != manifest.run:
            continue
        staged, final = join(output.path, last.staged), join(output.path, last.folder)
        if files.exists(staged) and not files.rename(staged, final):
            _complete(files, topic, output, last)
        text = _listing(manifest, output)
        # The listing only grows, so its size shows whether it has the last run.
        if files.files_in(output.path).get(LISTING) != len(text.encode()):
            files.write(join(output.path, LISTING), text)


def _complete(files: FileSystem, topic: str, output: Output, run: RunOutput) -> None:
    """Move the files of a run that are not in its folder yet: an object store has no rename, and copies file by file.

    Raises TransportError if the folder has something else.
    """
    staged, final = join(output.path, run.staged), join(output.path, run.folder)
    written = {file.name: file.size for file in run.files}
    waiting, moved = files.files_in(staged), files.files_in(final)
    if not moved.items() <= written.items() or written.keys() - waiting.keys() - moved.keys():
        raise TransportError(
            f"--output {topic}={output.path}: {run.folder} exists and is not what run {run.run} wrote, whose files "
            f"are in {run.staged}; move {run.folder} away, and run again"
        )
    for name in waiting.keys() & (written.keys() - moved.keys()):
        files.rename(join(staged, name), join(final, name))
    files.delete(staged)


def _listing(manifest: Manifest, output: Output) -> str:
    runs = [
        {"run": run.run, "folder": run.folder, "files": [file._asdict() for file in run.files]} for run in output.runs
    ]
    return json.dumps({"application": manifest.application, "format": output.format, "runs": runs}, indent=1)


def clean(files: FileSystem, manifest: Manifest) -> None:
    """Delete what runs wrote that were not committed, as far as no run can be writing it."""
    for output in manifest.outputs.values():
        for name in () if output.table is not None else files.names(output.path):
            match = re.fullmatch(_STAGED + r"(\d{6})-[0-9a-f]{8}", name)
            if match is not None and int(match[1]) <= manifest.run:
                files.delete(join(output.path, name))


def waiting_place(checkpoint: Checkpoint, topic: str, folder: str) -> Place:
    """Return the path at which the rows of a run wait. folder: the folder of the run."""
    return Place(join(checkpoint.folder, _waiting(topic, folder)), PARQUET)


def output_of(
    checkpoint: Checkpoint,
    target: TableTarget,
    before: Output | None,
    run: int,
    folder: str,
    snapshot: int | None = None,
) -> Output:
    """Return what the manifest of a run has on a table, whose rows wait. folder: that of the run; snapshot: as in TableRows."""
    since = run if before is None or before.table is None else before.table.since
    partition_by = tuple(transform.text for transform in target.partition_by)
    rows = TableRows(target.keys, target.mode, since, partition_by, target.sort_by, snapshot)
    waiting = _waiting(target.topic, folder)
    files = _files_in(checkpoint.files, join(checkpoint.folder, waiting))
    return Output(target.path, target.format, (RunOutput(run, "", waiting, files),), target.types, rows)


def _waiting(topic: str, folder: str) -> str:
    return join(TABLES, folder, f"rows of {topic}")


def check_tables(spark: SparkSession, manifest: Manifest, targets: Mapping[str, TableTarget]) -> None:
    """Check that tables can take the rows of the next run, and are those of earlier runs. Raises UsageError, TransportError."""
    for topic, target in targets.items():
        if target.mode == OVERWRITE:
            raise UsageError(
                f"{target.shown}: mode=overwrite and --checkpoint exclude each other: it would delete what earlier runs wrote"
            )
        exists = check_target(spark, target, manifest.id)
        before = manifest.outputs.get(topic)
        if before is None or before.table is None:
            continue
        if (before.table.keys, before.table.mode) != (target.keys, target.mode):
            raise UsageError(
                f"{target.shown}: earlier runs wrote it with mode={before.table.mode} and {_keys(before.table.keys)}, and "
                f"this one has mode={target.mode} and {_keys(target.keys)}; begin with a new checkpoint and a new output"
            )
        _check_history(spark, target, manifest, exists)
    check_distinct(spark, targets.values())


def _keys(names: tuple[str, ...]) -> str:
    return f"the key {', '.join(names)}" if names else "no key"


def _check_history(spark: SparkSession, target: TableTarget, manifest: Manifest, exists: bool) -> None:
    """Raise TransportError for a table that is not the one of earlier runs, or has a run that the checkpoint does not have."""
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
    if is_rolled_back(spark, target, manifest.id):
        raise TransportError(
            f"{target.shown}: the table was set back to a state before rows that earlier runs wrote, and they are missing; "
            "set it forward again, or begin with a new checkpoint and a new output"
        )


def settle_tables(
    spark: SparkSession, checkpoint: Checkpoint, manifest: Manifest, report: Callable[[str], None] = lambda line: None
) -> None:
    """Write the rows of the last run to its tables, if it ended before it did so. Raises StreamkitError.

    The history of a table tells whether it has the run, so that no run is written twice.
    """
    settled: list[TableTarget] = []
    for topic, output in manifest.outputs.items():
        if output.table is None:
            continue
        last = output.runs[-1]
        waiting = join(checkpoint.folder, last.staged)
        if not checkpoint.files.exists(waiting):
            continue
        target = _target(topic, output, output.table)
        settled.append(target)
        # Two names may only now turn out to be one table: it exists.
        check_distinct(spark, settled)
        exists = schema_of(spark, sql_name(spark, target)) is not None
        if not exists and last.run > output.table.since:
            raise missing(target, "there is no such table")
        if not exists or last_run(spark, target, manifest.id) < last.run:
            if exists:
                _check_reaches(spark, target, output.table.snapshot, last.run, waiting)
            job = f"{manifest.application}, --checkpoint {checkpoint.folder}"
            rows = _waiting_rows(spark, checkpoint, target, last)
            with named(spark, WorkName.of(manifest.application, *target.change)):
                write_table(spark, target, rows, Stamp(manifest.id, job, last.run))
        checkpoint.files.delete(waiting)
        report(target.described)


def _check_reaches(spark: SparkSession, target: TableTarget, snapshot: int | None, run: int, waiting: str) -> None:
    """Raise TransportError if the history of a table is too short to prove that the table does not have a run."""
    if snapshot is not None and not has_history_since(spark, target, snapshot):
        raise TransportError(
            f"{target.shown}: it is unknown whether the table has the rows of run {run}, because the snapshots since then were "
            f"expired; if it does not have them, run INSERT INTO {sql_name(spark, target)} BY NAME SELECT * FROM "
            f"parquet.`{waiting}`; then, or if it has them, delete {waiting}, and run again"
        )


def _waiting_rows(spark: SparkSession, checkpoint: Checkpoint, target: TableTarget, run: RunOutput) -> DataFrame:
    """Return the rows of a run that wait. Raises TransportError if some of their files are missing."""
    place = join(checkpoint.folder, run.staged)
    _check_files(
        target.shown, run, place, {join(place, name): size for name, size in checkpoint.files.files_in(place).items()}
    )
    reader = spark.read.option("ignoreCorruptFiles", "false").option("ignoreMissingFiles", "false")
    return reader.parquet(escaped(place))


def _target(topic: str, output: Output, table: TableRows) -> TableTarget:
    transforms = parse_transforms(",".join(table.partition_by), output.path)
    return TableTarget(
        topic, output.path, output.format, output.columns, table.keys, table.mode, transforms, table.sort_by
    )
