"""The directory of a checkpoint.

`manifests/` has one file per run. `state/` has the rows of stores, and `tables/` the rows that wait for their tables, both as Parquet.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from streamkit.changes.compare_versions import compare
from streamkit.changes.finding import Verdict
from streamkit.changes.form import from_json, to_json
from streamkit.changes.of_plan import form_of
from streamkit.errors import StateError
from streamkit.plan.model import Plan
from streamkit.runtime.spark.checkpoint.manifest import Manifest, Piece, StateFile, damaged, parse_manifest
from streamkit.runtime.spark.rows.file_system import FileSystem, escaped, join, same_path
from streamkit.runtime.spark.workers import arrow_rows
from streamkit.runtime.spark.workers.kept_tasks import (
    STATE_DDL,
    STATE_ORDER,
    STATE_SOURCE,
    Kept,
    missing_file,
    state_of,
    unpack_state,
)
from streamkit.serdes.plain import Json
from streamkit.suggestions import number_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MAX_DELTA = 1.0
"""Maximum ratio of delta rows to base rows of a store; beyond it, a run writes a new base."""
MAX_PIECES = 50
"""The number of pieces of a store and partition at which a run writes a new base."""
_MANIFESTS, _STATE = "manifests", "state"
_KEPT_MANIFESTS = 5
_UNPUBLISHED = r"_[0-9a-f]{8}-(\d{6})\.json"
TABLES = "tables"
"""The folder of rows that are not in their tables yet."""
_OF_RUN = r"(\d{6})-[0-9a-f]{8}"
_OWN = {_MANIFESTS, _STATE, TABLES, "_lock"}
_PATH = "/(folder=([0-9]+)-[^/]*/store=([^/]*)/kind=([^/]*)/partition=([0-9]+)/(?:part=[0-9]+/)?[^/]*)$"
"""The path of a state file: its groups are the path below the state folders, and the values of those folders.

State files of format version 2 have no parts.
"""
_MAX_BATCH_BYTES = 32 * 1024 * 1024
"""Approximate maximum size of a batch of store rows that Spark sends to a worker. Spark doubles a batch's memory as the batch grows,
and all tasks of a JVM share that memory (1 GB by default)."""
_LARGE_STATE_BYTES = 4 * _MAX_BATCH_BYTES
"""The size of all store rows beyond which the batch limits also apply while a job reads. The limits make reading slower, because its
batches become smaller."""
_MAX_BATCH_ROWS = 1_000
"""Maximum number of rows in a batch whose bytes Spark counts: for each row, counting takes time proportional to the rows of the batch."""
_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


class Checkpoint:
    """A checkpoint in a directory, which one run uses at a time."""

    def __init__(self, spark: SparkSession, files: FileSystem, folder: str):
        self._spark = spark
        self.files = files
        self.folder = folder.rstrip("/")

    @contextmanager
    def opened(self, plan: Plan) -> Iterator[Manifest]:
        """Lock the checkpoint and yield its last manifest; a new checkpoint has the manifest of run 0. Raises StateError."""
        with self.files.locked(self.folder):
            manifest = self._load(plan)
            yield manifest

    def _load(self, plan: Plan) -> Manifest:
        form = json.loads(json.dumps(to_json(form_of(plan, plan.file))))
        others = set(self.files.names(self.folder)) - _OWN
        names = self._manifests()
        if not names:
            if others:
                raise StateError(f"--checkpoint {self.folder}: the directory has other files, such as {min(others)}")
            return Manifest(0, plan.application, form, id=uuid.uuid4().hex)
        manifest = self._read(names[-1])
        self._check_topology(manifest, form)
        return replace(manifest, topology=form, id=manifest.id or uuid.uuid4().hex)

    def _manifests(self) -> list[str]:
        return [name for name in self.files.names(join(self.folder, _MANIFESTS)) if re.fullmatch(r"\d{6}\.json", name)]

    def _read(self, name: str) -> Manifest:
        path = join(self.folder, _MANIFESTS, name)
        text = self.files.read(path)
        if text is None:
            raise damaged(path, "its checksum is wrong")
        return parse_manifest(text, path)

    def _check_topology(self, manifest: Manifest, form: Json) -> None:
        for finding in compare(from_json(manifest.topology), from_json(form)):
            # A checkpoint does not depend on where a live run keeps its files.
            if finding.verdict is not Verdict.SAFE and finding.subject != "setting":
                raise StateError(
                    f"--checkpoint {self.folder}: it belongs to another topology ({finding.verdict}: {finding.message}); "
                    "use a new directory, or the topology that created it"
                )

    def check_partitions(self, manifest: Manifest, partitions: Mapping[str, int]) -> None:
        """Raise StateError if a topic has a different number of partitions than in earlier runs."""
        for topic, count in manifest.partitions.items():
            now = partitions.get(topic, count)
            if now != count:
                raise StateError(
                    f"--checkpoint {self.folder}: topic {topic} has {number_of(now, 'partition')}, but had {count} in earlier runs; "
                    "state is kept by partition: use a new directory"
                )

    @contextmanager
    def limited_batches(self, manifest: Manifest) -> Iterator[None]:
        """Limit the size of the batches that Spark sends to a worker, if the state of a job is large.

        The limit counts the state of all partitions, because one Spark task runs all tasks of a cycle.
        """
        if manifest.state_bytes() <= _LARGE_STATE_BYTES:
            yield
            return
        with self._limited_batches():
            yield

    @contextmanager
    def _limited_batches(self) -> Iterator[None]:
        conf = self._spark.conf
        limits = {_BATCH_BYTES: _MAX_BATCH_BYTES, _BATCH_ROWS: _MAX_BATCH_ROWS}
        before = {name: str(conf.get(name)) for name in limits}
        for name, limit in limits.items():
            conf.set(name, limit)
        try:
            yield
        finally:
            for name, value in before.items():
                conf.set(name, value)

    @staticmethod
    def kept(manifest: Manifest) -> Kept:
        """Return the state from which the tasks of the next run continue."""
        deltas = {
            (store, int(partition))
            for store, partitions in manifest.state.items()
            for partition, pieces in partitions.items()
            if 0 < len(pieces) < MAX_PIECES and sum(piece.rows for piece in pieces[1:]) <= MAX_DELTA * pieces[0].rows
        }
        rows = {
            (store, int(partition)): sum(piece.rows for piece in pieces)
            for store, partitions in manifest.state.items()
            for partition, pieces in partitions.items()
        }
        files = {file.name: file.crc for _, _, piece in manifest.pieces() for file in piece.files}
        return Kept(manifest.tasks, frozenset(deltas), rows, files)

    # -- State ---------------------------------------------------------------------------------------------------------

    def state(self, manifest: Manifest, stores: Collection[str]) -> DataFrame | None:
        """Return the rows of stores, ordered before all records of their partition; None if the stores have no rows."""
        from pyspark.sql import functions as sf

        paths = [
            escaped(self._path(store, number, piece)) for store, number, piece in manifest.pieces() if store in stores
        ]
        if not paths:
            return None
        # Whole files: a task unpacks a file in a fraction of the time that Spark needs to move its rows one by one.
        files = self._files(paths)
        self._check_files(manifest, stores, files.inputFiles())
        name, number, store, _, partition = _parts_of_path()
        return files.select(
            sf.concat(sf.lit(state_of("")), store).alias("topic"),
            partition.cast("int").alias("partition"),
            name.cast("binary").alias("key"),
            sf.col("content").alias("value"),
            sf.lit(-1).cast("bigint").alias("timestamp"),
            sf.lit(None).cast(arrow_rows.HEADERS_DDL).alias("headers"),
            sf.lit(STATE_ORDER).cast("bigint").alias("order"),
            sf.lit(STATE_SOURCE).cast("bigint").alias("source"),
            # Later runs replace the rows of earlier ones.
            number.cast("bigint").alias("offset"),
        )

    def _files(self, paths: Collection[str]) -> DataFrame:
        return self._spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(list(paths))

    def _check_files(self, manifest: Manifest, stores: Collection[str], uris: Iterable[str]) -> None:
        """Raise StateError if a file of stores is missing."""
        names = {same_path(uri).rpartition(f"/{_STATE}/")[2] for uri in uris}
        for store, _, piece in manifest.pieces():
            for file in piece.files if store in stores else ():
                if file.name not in names:
                    raise missing_file(file.name)

    def write_state(self, rows: DataFrame, folder: str) -> dict[tuple[str, str, int], list[StateFile]]:
        """Write the rows of a run's stores; return their files by store, kind and partition. Each part is a file."""
        from pyspark.sql import functions as sf

        path = join(self.folder, _STATE, f"folder={folder}")
        writer = (
            rows.mapInArrow(unpack_state, STATE_DDL)
            .write.mode("error")
            .partitionBy("store", "kind", "partition", "part")
            # A dictionary would save nothing, because each key occurs once.
            .option("parquet.enable.dictionary", "false")
        )
        # Each row has about 4 MB here, regardless of the state of the previous run.
        with self._limited_batches():
            writer.parquet(path)
        name, _, *place = _parts_of_path()
        written: dict[tuple[str, str, int], list[StateFile]] = {}
        files = self._files([escaped(path)]).select(name, *place, sf.crc32("content"))
        for file, store, kind, partition, crc in sorted(files.collect()):
            written.setdefault((store, kind, int(partition)), []).append(StateFile(file, crc))
        return written

    def _path(self, store: str, partition: int, piece: Piece) -> str:
        return join(
            self.folder,
            _STATE,
            f"folder={piece.folder}",
            f"store={store}",
            f"kind={piece.kind}",
            f"partition={partition}",
        )

    # -- Runs ----------------------------------------------------------------------------------------------------------

    def publish(self, manifest: Manifest, token: str) -> None:
        """Commit a run. Raises StateError if another run has committed first."""
        name = f"{manifest.run:06}.json"
        is_next = all(other < name for other in self._manifests())
        if not is_next or not self.files.publish(join(self.folder, _MANIFESTS, name), manifest.to_text(), token):
            raise StateError(
                f"--checkpoint {self.folder}: another run has committed run {manifest.run} first; this run is discarded"
            )

    def clean(self, manifest: Manifest) -> None:
        """Delete state that neither of the last two manifests needs, old manifests, and files of aborted runs.

        The last run's rows are already in their tables.
        """
        used = {piece.folder for kept in (manifest, *self._before(manifest)) for _, _, piece in kept.pieces()}
        for name in self._left(_STATE, f"folder={_OF_RUN}", manifest):
            if name.removeprefix("folder=") not in used:
                self.files.delete(join(self.folder, _STATE, name))
        for name in (*self._left(_MANIFESTS, _UNPUBLISHED, manifest), *self._manifests()[:-_KEPT_MANIFESTS]):
            self.files.delete(join(self.folder, _MANIFESTS, name))
        for name in self._left(TABLES, _OF_RUN, manifest):
            self.files.delete(join(self.folder, TABLES, name))

    def _before(self, manifest: Manifest) -> list[Manifest]:
        """Return the previous manifest, whose state is kept in case the last manifest is damaged; empty if the previous one is damaged too."""
        name = f"{manifest.run - 1:06}.json"
        try:
            return [self._read(name)] if name in self._manifests() else []
        except StateError:
            return []

    def _left(self, folder: str, pattern: str, manifest: Manifest) -> list[str]:
        """Return names that committed runs have written; a run in progress may be writing others."""
        matches = ((name, re.fullmatch(pattern, name)) for name in self.files.names(join(self.folder, folder)))
        return [name for name, match in matches if match is not None and int(match[1]) <= manifest.run]


def _parts_of_path() -> list[Column]:
    """Return the parts of a state file's path: the path below the state folders, run, store, kind and partition."""
    from pyspark.sql import functions as sf

    return [sf.regexp_extract("path", _PATH, group) for group in range(1, 6)]
