"""Rows that wait in a checkpoint for their table: a run is written to it whole, or not at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import StreamkitError
from streamkit.runtime.spark.checkpoint import run_outputs
from streamkit.runtime.spark.checkpoint.job_checkpoint import Checkpoint
from streamkit.runtime.spark.checkpoint.manifest import Manifest
from streamkit.runtime.spark.checkpoint.run_outputs import output_of, settle_tables, waiting_place
from streamkit.runtime.spark.rows.file_system import FileSystem
from streamkit.runtime.spark.spark_session import translated
from streamkit.runtime.spark.tables.table_target import TableTarget

TARGET = TableTarget("counts", "lake.db.counts", "iceberg", {"key": "string", "value": "bigint"})
FOLDER = "000001-0123abcd"


class Settling:
    """A run that was committed, whose rows wait; `rows`: what reaches the table."""

    def __init__(self, spark: Any, folder: Path):
        self._spark = spark
        self._checkpoint = Checkpoint(spark, FileSystem(spark), str(folder))
        self.place = Path(waiting_place(self._checkpoint, "counts", FOLDER).path)
        frame = spark.createDataFrame([(f"k{at}", at) for at in range(8)], "key string, value bigint")
        frame.repartition(2).write.parquet(str(self.place))
        output = output_of(self._checkpoint, TARGET, None, 1, FOLDER)
        self.manifest = Manifest(1, "words", {}, outputs={"counts": output}, id="a")
        self.rows: list[tuple] = []

    def write(self, spark: Any, target: TableTarget, frame: Any, stamp: Any) -> None:
        self.rows += sorted(map(tuple, frame.collect()))

    def settle(self) -> None:
        with translated():
            settle_tables(self._spark, self._checkpoint, self.manifest)


@pytest.fixture
def settling(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settling]:
    found = Settling(spark, tmp_path)
    monkeypatch.setattr(run_outputs, "write_table", found.write)
    # A session that passes over what it can't read.
    settings = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")
    for name in settings:
        spark.conf.set(name, "true")
    monkeypatch.setattr(run_outputs, "schema_of", lambda *_: None)
    yield found
    for name in settings:
        spark.conf.unset(name)


def test_all_rows_are_written(settling: Settling) -> None:
    settling.settle()
    assert settling.rows == [(f"k{at}", at) for at in range(8)]
    assert not settling.place.exists()


@pytest.mark.parametrize("damage", ["missing", "empty", "other bytes"])
def test_rows_of_damaged_files_are_not_left_out(settling: Settling, damage: str) -> None:
    part = min(settling.place.glob("part-*"))
    # Hadoop would find the change by its checksum.
    (settling.place / f".{part.name}.crc").unlink()
    if damage == "missing":
        part.unlink()
    else:
        part.write_bytes(b"" if damage == "empty" else b"x" * part.stat().st_size)
    with pytest.raises(StreamkitError, match=part.name):
        settling.settle()
    assert settling.rows == []
    assert settling.place.exists()


def test_a_manifest_of_an_older_release_does_not_have_the_files(settling: Settling) -> None:
    output = settling.manifest.outputs["counts"]
    runs = tuple(dataclasses.replace(run, files=()) for run in output.runs)
    settling.manifest = dataclasses.replace(
        settling.manifest, outputs={"counts": dataclasses.replace(output, runs=runs)}
    )
    settling.settle()
    assert len(settling.rows) == 8
