"""The inputs of a topic as one: the order of the rows of several, and their records together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from streamkit.errors import UsageError
from streamkit.plan.model import Plan
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


def read_inputs(
    plan: Plan,
    pickled: bytes,
    topic: str,
    partitions: int,
    inputs: Sequence[OpenedInput],
    ranks: Sequence[Mapping[str, int]],
) -> DataFrame:
    """Return the records of a topic as rows for a stage. Raises TransportError for columns that are missing.

    pickled: the plan for the workers; ranks: the places of the files of each input in the order of reading.
    """
    declared = plan.external_topics.get(topic)
    names = (topic,) if declared is None else (topic, declared.entry)
    timed = declared is not None and declared.timestamp is not None and not isinstance(declared.timestamp, str)
    first, *others = (
        read_files(
            each.frame,
            each.place,
            FileReading(pickled, topic, names, partitions, ranks[number], timed, each.place.has_lines),
        )
        for number, each in enumerate(inputs)
    )
    if not others:
        return first
    found = arrow_rows.with_all_columns(first, topic)
    for frame in others:
        found = found.unionByName(arrow_rows.with_all_columns(frame, topic))
    return found


__all__ = ["check_order", "ranks_of", "read_inputs"]
