"""The files of a topic's inputs that no run has read yet; those that were read must still be what they were."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamkit.errors import TransportError, UsageError
from streamkit.runtime.spark.checkpoint.file_system import FileState, FileSystem, escaped
from streamkit.runtime.spark.checkpoint.manifest import InputFile
from streamkit.runtime.spark.rows.files import OpenedInput, files_of_place, files_of_table, open_files
from streamkit.runtime.spark.submission.job_options import OF_SPARK, Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class FoundFiles:
    """The files of a topic: those of earlier runs, and the new ones, input by input and by name."""

    read: tuple[InputFile, ...]
    new: tuple[InputFile, ...]
    places: Mapping[str, int]
    """The number of the input of each file, by its name."""

    @property
    def ranks(self) -> dict[str, int]:
        """The place of each file in the order in which runs found them."""
        return {each.name: rank for rank, each in enumerate((*self.read, *self.new))}


def find_files(
    files: FileSystem, spark: SparkSession, topic: str, places: Sequence[Place], read: Sequence[InputFile], run: int
) -> FoundFiles:
    """Return the files of a topic for a run. Raises TransportError where one that was read is missing or has changed.

    Those of a table have their rows in place of their bytes, from which deletions take some, and no time.
    """
    found: dict[str, InputFile] = {}
    numbers: dict[str, int] = {}
    for number, place in enumerate(places):
        for name, state in _states(files, spark, place).items():
            if name in found:
                raise UsageError(
                    f"--input {topic}={place.path}: {name} is in {places[numbers[name]].path} too; give each file to one input"
                )
            numbers[name] = number
            found[name] = InputFile(name, state.size, state.time, run)
    for past in read:
        now = found.pop(past.name, None)
        if now is None:
            cure = _cure(places)
            raise TransportError(
                f"--input {topic}={_paths(places)}: {past.name} is missing, which run {past.run} has read{cure and f'; {cure}'}"
            )
        if (now.size, now.time) != (past.size, past.time):
            place = places[numbers[past.name]]
            unit = "bytes" if place.format in OF_SPARK else "rows"
            raise TransportError(
                f"--input {topic}={place.path}: {past.name} has changed since run {past.run} read it "
                f"({past.size} {unit} then, {now.size} now); {_cure([place]) or 'put new records into new files'}"
            )
    new = sorted(found.values(), key=lambda each: (numbers[each.name], each.name))
    return FoundFiles(tuple(read), tuple(new), numbers)


def _states(files: FileSystem, spark: SparkSession, place: Place) -> dict[str, FileState]:
    if place.format in OF_SPARK:
        return files.states(files_of_place(spark, place))
    return {name: FileState(name, count, 0) for name, count in files_of_table(spark, place).items()}


def _cure(places: Iterable[Place]) -> str:
    tables = any(place.format not in OF_SPARK for place in places)
    return "a run goes on with rows that were added, and not with a table that was rewritten" if tables else ""


def open_some(
    files: FileSystem, spark: SparkSession, places: Sequence[Place], found: FoundFiles, chosen: Sequence[InputFile]
) -> list[OpenedInput]:
    """Return the rows of some files of a topic, by input; none for inputs without such files."""
    opened = []
    for number, place in enumerate(places):
        names = [each.name for each in chosen if found.places[each.name] == number]
        if names and place.format not in OF_SPARK:
            opened.append(open_files(spark, place, names, number=number))
        elif names:
            base = place.path if files.is_folder(place.path) else None
            opened.append(open_files(spark, place, list(map(_uri, names)), base, number))
    return opened


def _paths(places: Sequence[Place]) -> str:
    return ", ".join(place.path for place in places)


def _uri(name: str) -> str:
    """Return the name of a file for Spark; local names have no scheme, and Spark's default may be another file system."""
    return f"file://{escaped(name)}" if name.startswith("/") else escaped(name)
