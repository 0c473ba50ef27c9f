"""The number of records of an input in files, as far as it is known without reading them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from glob import glob, has_magic

from streamkit.runtime.spark.submission.job_options import JSON_LINES, PARQUET, TABLE, Place

_COUNTED_BYTES = 64 * 1024 * 1024
"""Files of lines are counted up to this size together: that takes less than a second."""
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy")


def most_records(place: Place) -> int | None:
    """Return how many records an input has at most; None where only Spark can find out.

    Parquet and ORC files have their rows in their footers; lines are counted.
    """
    if not place.is_local or place.format == TABLE:
        return None
    files = list(_files(place.path))
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
        return None  # what is wrong with a file is an error of the job


def _files(path: str) -> Iterator[str]:
    """Yield the files of a path, those that Spark passes over left out."""
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
