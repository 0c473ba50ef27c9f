"""How much a stage's tasks will read: for `submit --dry-run`, and for the warning that one task reads everything."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from glob import glob, has_magic

from streamkit.plan.model import Plan
from streamkit.runtime.spark.job_options import JSON_LINES, PARQUET, PYTHON, TABLE, Place
from streamkit.runtime.spark.rows.log_rows import LogRange
from streamkit.runtime.spark.sql.stages import SQL
from streamkit.runtime.spark.stage_plan import Stage


def load_of(
    stage: Stage,
    inputs: Mapping[str, tuple[Place, ...]],
    ranges: Mapping[str, tuple[LogRange, ...]],
    partitions: Mapping[str, int],
    pieces: int = 1,
    engine: str = PYTHON,
) -> str:
    """Return a text about the number of records that a stage's largest task reads.

    inputs, ranges: the places, or the log ranges, of external topics; partitions: of all topics; pieces: the number of Spark
    tasks per partition. With another engine than Python, tasks do not correspond to partitions.
    """
    outside = [topic for topic in stage.inputs if topic in inputs or topic in ranges]
    if not outside and engine == SQL:
        return "part of the previous stage's query"
    if not outside:
        return "largest task: not known before the stages that write its topics have run"
    is_one = (stage.cyclic or stage.tasks <= 1) and pieces == 1
    total, largest = 0, 0
    spread = pieces > 1
    for topic in outside:
        counts = _counts(inputs.get(topic), ranges.get(topic, ()))
        if counts is None:
            return f"largest task: only Spark can tell how many records {topic} has"
        total += sum(counts)
        if topic in ranges:
            largest += -(-max(counts, default=0) // pieces)
        else:
            spread = not is_one
            largest += -(-sum(counts) // (max(1, partitions.get(topic, 1)) * pieces))
    others = "" if len(outside) == len(stage.inputs) else ", and the output of earlier stages"
    if engine == SQL:
        return f"its tasks read at most {total:,} records{others}"
    if is_one:
        return f"its one task reads all records: at most {total:,}{others}"
    how = "about" if spread else "at most"
    even = ", if keys spread evenly" if spread else ""
    return f"largest task: {how} {largest:,} of {total:,} records{even}{others}"


def _counts(places: tuple[Place, ...] | None, ranges: tuple[LogRange, ...]) -> list[int] | None:
    """Return the maximum number of records in each place or range of a topic; None if one is unknown."""
    if places is None:
        return [each.stop - each.start for each in ranges]
    found = [most_records(place) for place in places]
    known = [count for count in found if count is not None]
    return known if len(known) == len(found) else None


def one_task_warnings(
    plan: Plan,
    stages: Mapping[str, int],
    inputs: Mapping[str, tuple[Place, ...]],
    partitions: Mapping[str, int],
    is_read: bool,
) -> list[str]:
    """Return a warning for each topic whose records one task reads because no partitions are declared.

    stages: the number of Spark tasks per partition in the topic's stage; is_read: whether the job has read the records.
    """
    found = []
    for topic, places in inputs.items():
        declared = plan.external_topics.get(topic)
        if declared is None or declared.partitions is not None or stages.get(topic) != 1:
            continue
        if partitions.get(topic, 1) > 1 or any(place.columns.partition is not None for place in places):
            continue
        unless = "" if is_read else " unless they name partitions"
        found.append(
            f"{declared.entry}: one task reads all its records{unless}; `partitions: N` in its entry of topics, or a column "
            "partition, spreads them over N tasks"
        )
    return found


_COUNTED_BYTES = 64 * 1024 * 1024
"""Lines are counted in files of up to this total size, which takes less than a second."""
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy")


def most_records(place: Place) -> int | None:
    """Return the maximum number of records in an input; None if only Spark can find out.

    The footers of Parquet and ORC files contain the number of rows; lines are counted.
    """
    if not place.is_local or place.format == TABLE:
        return None
    files = local_files(place)
    try:
        if place.format == PARQUET:
            from pyarrow.parquet import read_metadata

            counts: list[int] = [read_metadata(name).num_rows for name in files]
            return sum(counts)
        if place.format == "orc":
            from pyarrow.orc import ORCFile

            counts = [ORCFile(name).nrows for name in files]
            return sum(counts)
        if place.format not in (JSON_LINES, "csv") or any(name.endswith(_COMPRESSED) for name in files):
            return None
        if sum(map(os.path.getsize, files)) > _COUNTED_BYTES:
            return None
        return sum(map(_lines, files))
    except (ImportError, OSError, ValueError):
        return None  # the job itself reports a file that can't be read


def local_files(place: Place) -> list[str]:
    """Return the files of a place on this machine that Spark would read; none for a place elsewhere."""
    return list(_files(place.path)) if place.is_local else []


def _files(path: str) -> Iterator[str]:
    for start in glob(path) if has_magic(path) else [path]:
        if not os.path.isdir(start):
            yield start
        for folder, folders, names in os.walk(start):
            folders[:] = [name for name in folders if not name.startswith(("_", "."))]
            yield from (os.path.join(folder, name) for name in names if not name.startswith(("_", ".")))


def _lines(name: str) -> int:
    with open(name, "rb") as file:
        data = file.read()
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
