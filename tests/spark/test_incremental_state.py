"""The state of incremental jobs on Spark: how it goes to and from the files of a checkpoint, by the bytes of its rows."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from streamkit.errors import StateError, TransportError
from streamkit.runtime.spark.checkpoint import job_checkpoint
from streamkit.runtime.spark.checkpoint.job_checkpoint import Checkpoint
from streamkit.runtime.spark.checkpoint.manifest import Manifest, Piece
from streamkit.runtime.spark.job import repartition
from streamkit.runtime.spark.rows.file_system import FileSystem
from streamkit.runtime.spark.spark_session import translated
from streamkit.runtime.spark.workers import arrow_rows, kept_tasks
from streamkit.runtime.spark.workers.arrow_rows import pack, unpack
from streamkit.runtime.spark.workers.kept_tasks import (
    STATE_ORDER,
    STATE_SOURCE,
    Kept,
    StateWriter,
    state_of,
    unpack_rows,
    unpack_state,
)

FOLDER = "000001-0123abcd"
Rows = dict[tuple[str, int], list[tuple[bytes, bytes]]]
Step = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def noting(path: Path, step: Step) -> Step:
    """A step of Spark that notes the rows and bytes of each of its batches in a file."""

    def noted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        def each() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                with path.open("a") as file:
                    size = sum(map(len, batch.column(arrow_rows.VALUE).to_pylist()))
                    file.write(f"{len(batch)} {size}\n")
                yield batch

        return step(each())

    return noted


def noted_in(path: Path) -> list[tuple[int, int]]:
    """The rows and bytes of batches."""
    found = [tuple(map(int, line.split())) for line in path.read_text().splitlines()]
    path.unlink()
    return [(rows, size) for rows, size in found]


def state_rows(spark: Any, stores: Rows, each: int) -> Any:
    """Rows of stores as the tasks of a job give them, `each` of them packed to one, which is a part."""

    def made(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            for (store, partition), rows in stores.items():
                for part, start in enumerate(range(0, len(rows), each)):
                    keys, values = zip(*rows[start : start + each], strict=True)
                    packed = pack(keys, values)
                    place = ([state_of(store)], [partition], [None], [packed])
                    yield arrow_rows.to_batch((*place, [-1], [None], [STATE_ORDER], [STATE_SOURCE], [2 * part + 1]))

    return spark.range(1).repartition(1).mapInArrow(made, arrow_rows.DDL)


def manifest_of(stores: Rows) -> Manifest:
    """The manifest of a run that wrote rows of stores."""
    pieces = [
        (store, partition, Piece(FOLDER, "base", len(rows), sum(len(key) + len(value) for key, value in rows)))
        for (store, partition), rows in stores.items()
    ]
    return Manifest(1, "application", {}).with_pieces(pieces, "base")


def read_by(checkpoint: Checkpoint, manifest: Manifest, stores: Iterable[str]) -> list[tuple[bytes, bytes]]:
    """The rows of stores that a checkpoint gives."""
    frame = checkpoint.state(manifest, list(stores))
    assert frame is not None
    tables = [unpack(bytes(row["value"])) for row in frame.collect()]
    return sorted((row["key"], row["value"]) for table in tables for row in table.to_pylist())


@pytest.fixture
def checkpoint(spark: Any, tmp_path: Path) -> Checkpoint:
    """A checkpoint without runs, in a folder whose name Hadoop could read as a pattern."""
    return Checkpoint(spark, FileSystem(spark), str(tmp_path / "check[1]{point}"))


LIMIT = 300_000
ROW = 10_000
# Random bytes, which do not become fewer in a file.
STORES: Rows = {
    ("counts", at): [(b"%d" % key, random.Random(key).randbytes(ROW)) for key in range(20)] for at in range(2)
}


def check_noted(path: Path) -> None:
    """Check that all rows went to a step in batches of limited bytes; a limit is exceeded by one row at most."""
    found = noted_in(path)
    assert sum(rows for rows, _ in found) == 40
    assert max(size for _, size in found) < LIMIT + ROW + 1_000


def test_state_is_written_in_limited_batches(
    spark: Any, checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_checkpoint, "_MAX_BATCH_BYTES", LIMIT)
    # A first run has no state before it, and writes more than a batch may have.
    monkeypatch.setattr(job_checkpoint, "unpack_state", noting(tmp_path / "noted", unpack_state))
    before = dict(spark.conf.getAll)
    checkpoint.write_state(state_rows(spark, STORES, 1), FOLDER)
    check_noted(tmp_path / "noted")
    assert dict(spark.conf.getAll) == before
    assert read_by(checkpoint, manifest_of(STORES), ["counts"]) == sorted(
        row for rows in STORES.values() for row in rows
    )


def test_one_task_reads_all_partitions_in_limited_batches(
    spark: Any, checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_checkpoint, "_MAX_BATCH_BYTES", LIMIT)
    monkeypatch.setattr(job_checkpoint, "_LARGE_STATE_BYTES", LIMIT)
    checkpoint.write_state(state_rows(spark, STORES, 1), FOLDER)
    manifest = manifest_of(STORES)
    # As the tasks of a cycle do; each partition has less than the limit.
    with checkpoint.limited_batches(manifest):
        frame = checkpoint.state(manifest, ["counts"])
        assert frame is not None
        repartition(frame, 1, 1).mapInArrow(noting(tmp_path / "noted", iter), arrow_rows.DDL).count()
    check_noted(tmp_path / "noted")


class Rowing:
    """Stores with these rows."""

    def __init__(self, rows: dict[str, list[tuple[bytes, bytes]]]):
        self.rows = rows

    def state(self, name: str, partition: int, complete: bool) -> Iterator[tuple[bytes, bytes]]:
        return iter(self.rows[name])


def test_long_rows_cut_only_their_own_files(
    spark: Any, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_tasks, "_PART_BYTES", 10 * ROW)
    # The third store has long rows side by side, which its average length does not show.
    long, short = (b"l%d", [ROW * 6] * 7), (b"s%03d", [3] * 300)
    rows = {
        name: [(form % at, bytes(size)) for form, sizes in found for at, size in enumerate(sizes)]
        for name, found in {"long": [long], "short": [short], "both": [long, short]}.items()
    }
    task: Any = SimpleNamespace(
        spec=SimpleNamespace(sub_topology=SimpleNamespace(stores=list(rows))), partition=0, task_id="0_0"
    )
    stores: Any = Rowing(rows)
    batches = list(StateWriter(Kept(), stores).write(task, {}))[:-1]
    checkpoint.write_state(spark.createDataFrame(pa.Table.from_batches(batches)), FOLDER)
    files = Path(checkpoint.folder, "state", f"folder={FOLDER}").rglob("*.parquet")
    counts = Counter(file.relative_to(checkpoint.folder).parts[2] for file in files)
    assert counts == {"store=long": 7, "store=short": 1, "store=both": 7}
    places = {(name, 0): found for name, found in rows.items()}
    assert read_by(checkpoint, manifest_of(places), ["both"]) == sorted(rows["both"])
    # Version 2 of the format had no folders of parts.
    (folder,) = Path(checkpoint.folder, "state", f"folder={FOLDER}", "store=short").rglob("part=0")
    folder.rename(folder.with_name("part"))
    for file in folder.with_name("part").iterdir():
        file.rename(folder.parent / file.name)
    folder.with_name("part").rmdir()
    assert read_by(checkpoint, manifest_of(places), ["short"]) == sorted(rows["short"])


def test_many_pieces_become_one() -> None:
    first, more = Piece(FOLDER, "base", 100, 1), Piece(FOLDER, "delta", 1, 1)
    for count, is_delta in ((job_checkpoint.MAX_PIECES - 2, True), (job_checkpoint.MAX_PIECES - 1, False)):
        manifest = Manifest(1, "application", {}, state={"counts": {"0": (first, *[more] * count)}})
        assert (("counts", 0) in Checkpoint.kept(manifest).deltas) is is_delta


def flipped(data: bytes, place: int) -> bytes:
    """Bytes with another bit at a place."""
    found = bytearray(data)
    found[place // 8] ^= 1 << place % 8
    return bytes(found)


def test_no_bit_of_a_file_of_state_changes_silently(spark: Any, checkpoint: Checkpoint) -> None:
    stores: Rows = {("counts", at): [(b"%d" % key, b"value %d" % key) for key in range(200)] for at in range(2)}
    written = checkpoint.write_state(state_rows(spark, stores, 200), FOLDER)
    pieces = [
        piece._replace(files=tuple(written[store, "base", partition]))
        for store, partition, piece in manifest_of(stores).pieces()
    ]
    manifest = replace(manifest_of(stores), state={"counts": {str(at): (each,) for at, each in enumerate(pieces)}})
    kept, state = Checkpoint.kept(manifest), Path(checkpoint.folder, "state")
    assert len(kept.files) == 2
    for name in kept.files:
        data = (state / name).read_bytes()
        assert len(unpack_rows(kept, name, pa.py_buffer(data))) == 200
        for place in random.Random(1).sample(range(8 * len(data)), 500):
            with pytest.raises(StateError, match=re.escape(name)) as caught:
                unpack_rows(kept, name, pa.py_buffer(flipped(data, place)))
            assert "\n" not in str(caught.value)
    # Hadoop's own checksums of local files come first.
    for file in (state / name, (state / name).with_name(f".{Path(name).name}.crc")):
        data = file.read_bytes()
        file.write_bytes(flipped(data, 8 * len(data) - 1))
        with pytest.raises(TransportError, match=re.escape(Path(name).name)) as caught, translated():
            read_by(checkpoint, manifest, ["counts"])
        assert "\n" not in str(caught.value)
        file.write_bytes(data)
    assert read_by(checkpoint, manifest, ["counts"]) == sorted(row for rows in stores.values() for row in rows)
