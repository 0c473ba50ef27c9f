"""The inputs of a topic as one: the order of the rows of several, and their records together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from streamkit.errors import UsageError
from streamkit.runtime.spark.rows import arrow_rows
from streamkit.runtime.spark.rows.files import FILES, OFFSETS, FileReading, OpenedInput, read_files, same_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_order(topic: str, inputs: Sequence[OpenedInput]) -> None:
    """Raise UsageError where nothing orders the rows of several inputs among each other.

    Rows with offsets and rows of files have an order together, as in a directory: those with an offset come first.
    """
    first, *others = inputs
    for other in others:
        if first.order != other.order and {first.order, other.order} != {FILES, OFFSETS}:
            raise UsageError(
                f"--input {topic}: nothing orders the rows of {first.place.path} ({first.order}) among those of "
                f"{other.place.path} ({other.order}); order=COLUMN of the same kind for each does"
            )


def ranks_of(inputs: Sequence[OpenedInput]) -> list[Mapping[str, int]]:
    """Return, for each input, the place of its files in the order of reading: input by input, each by the names of files."""
    found: list[Mapping[str, int]] = []
    first = 0
    for each in inputs:
        names = sorted(map(same_path, each.frame.inputFiles()))
        found.append({name: rank for rank, name in enumerate(names, first)})
        first += len(names)
    return found


def read_inputs(topic: str, inputs: Sequence[OpenedInput], reading: Callable[[int], FileReading]) -> DataFrame:
    """Return the records of a topic as rows for a stage. Raises TransportError for columns that are missing.

    reading: how the rows of an input, by its number, become records.
    """
    first, *others = (read_files(each.frame, each.place, reading(number)) for number, each in enumerate(inputs))
    if not others:
        return first
    found = arrow_rows.with_all_columns(first, topic)
    for frame in others:
        found = found.unionByName(arrow_rows.with_all_columns(frame, topic))
    return found


__all__ = ["check_order", "ranks_of", "read_inputs"]
