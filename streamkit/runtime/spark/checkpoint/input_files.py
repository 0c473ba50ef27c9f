"""The files of an input that no run has read yet; those that were read must still be what they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamkit.errors import TransportError, UsageError
from streamkit.runtime.spark.checkpoint.file_system import FileSystem, escaped
from streamkit.runtime.spark.checkpoint.manifest import InputFile
from streamkit.runtime.spark.rows.files import open_files
from streamkit.runtime.spark.submission.job_options import OF_SPARK, Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class FoundFiles:
    """The files of an input: those of earlier runs, and the new ones by name."""

    read: tuple[InputFile, ...]
    new: tuple[InputFile, ...]

    @property
    def ranks(self) -> dict[str, int]:
        """The place of each file in the order in which runs found them, by name within a run."""
        return {each.name: rank for rank, each in enumerate((*self.read, *self.new))}


def find_files(
    files: FileSystem, spark: SparkSession, topic: str, place: Place, read: Sequence[InputFile], run: int
) -> FoundFiles:
    """Return the files of an input for a run. Raises TransportError where one that was read is missing or has changed."""
    if place.format not in OF_SPARK:
        raise UsageError(
            f"--input {topic}={place.path}: --checkpoint needs files ({', '.join(OF_SPARK)}), and a source of the format "
            f"{place.format} has no fixed ones"
        )
    found = files.states(list(open_files(spark, place).inputFiles()))
    for each in read:
        now = found.pop(each.name, None)
        if now is None:
            raise TransportError(f"--input {topic}={place.path}: {each.name} is missing, which run {each.run} has read")
        if (now.size, now.time) != (each.size, each.time):
            raise TransportError(
                f"--input {topic}={place.path}: {each.name} has changed since run {each.run} read it "
                f"({each.size} bytes then, {now.size} now); put new records into new files"
            )
    new = sorted(found.values(), key=lambda each: each.name)
    return FoundFiles(tuple(read), tuple(InputFile(each.name, each.size, each.time, run) for each in new))


def open_some(files: FileSystem, spark: SparkSession, place: Place, chosen: Sequence[InputFile]) -> DataFrame | None:
    """Return the rows of some files of an input; None for no files."""
    if not chosen:
        return None
    base = place.path if files.is_folder(place.path) else None
    return open_files(spark, place, [_uri(each.name) for each in chosen], base)


def _uri(name: str) -> str:
    """Return the name of a file for Spark; local names have no scheme, and Spark's default may be another file system."""
    return f"file://{escaped(name)}" if name.startswith("/") else escaped(name)
