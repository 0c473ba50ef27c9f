"""Combines the inputs of a topic: orders their rows, and turns them into records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from streamkit.errors import SerdeError, TransportError, UsageError
from streamkit.plan.model import Plan
from streamkit.runtime.spark.job_options import OF_SPARK, Columns, Place
from streamkit.runtime.spark.rows.file_system import input_files
from streamkit.runtime.spark.rows.files import (
    FILES,
    OFFSETS,
    FileReading,
    OpenedInput,
    check_topic,
    narrowed,
    read_files,
    topics_of,
)
from streamkit.runtime.spark.rows.row_order import same_path
from streamkit.runtime.spark.workers import arrow_rows
from streamkit.serdes.plain import Json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def select_topic(
    plan: Plan,
    opened: OpenedInput,
    topic: str,
    inputs: Mapping[str, Sequence[Place]],
    earlier: Callable[[], Iterable[OpenedInput]] = lambda: (),
) -> OpenedInput:
    """Return the rows of an input that belong to a topic, if its column `topic` names the topic of each row.

    If all rows name one topic that is not `topic`, they are an output that was renamed: all belong to `topic`, unless the
    job reads the input for several topics, or an earlier run read rows under the name of `topic`. Inputs with settings for
    columns are returned unchanged, and so are JSON Lines, whose topics the workers check. inputs: the inputs of all topics;
    earlier: opens the inputs of earlier runs. Raises TransportError for a topic that the plan does not have.
    """
    place = opened.place
    if not _names_topics(opened):
        return opened
    names, topics = names_of(plan, topic), _topics_in(opened)
    if len(topics) == 1 and topics.isdisjoint(names):
        readers = [reader for reader, places in inputs.items() if any(other.path == place.path for other in places)]
        before = (other for other in earlier() if other.place == place and _names_topics(other))
        if readers == [topic] and all(_topics_in(other).isdisjoint(names) for other in before):
            return opened
    known = topics_of(plan)
    for name in topics:
        try:
            check_topic(plan, name, known)
        except SerdeError as error:
            raise TransportError(f"{place.path}: column topic: {error}") from error
    return narrowed(opened, _topic().isin(list(names)))


def _names_topics(opened: OpenedInput) -> bool:
    """Return whether the rows of an input name their topics."""
    place, kind = opened.place, dict(opened.source.dtypes).get("topic")
    return (
        kind is not None and "<" not in kind and not place.has_lines and replace(place.columns, where=None) == Columns()
    )


def _topics_in(opened: OpenedInput) -> set[Json]:
    return {topic for (topic,) in opened.source.select(_topic()).distinct().collect()}


def _topic() -> Column:
    """Return the topic of a row: not all writers of Parquet say that its bytes are text, and a name of digits is inferred as a number."""
    from pyspark.sql import functions as sf

    return sf.col("topic").cast("string")


def names_of(plan: Plan, topic: str) -> tuple[str, ...]:
    """Return the names by which records can refer to a topic: its name on the log, and its entry in the topology."""
    declared = plan.external_topics.get(topic)
    return (topic,) if declared is None else (topic, declared.entry)


def check_order(topic: str, inputs: Sequence[tuple[str, str]]) -> None:
    """Raise UsageError if the order among the rows of several inputs is undefined. inputs: path and order of each.

    Rows with offsets and rows of files can be combined, as in a directory; those with offsets come first.
    """
    for (path, order), (other_path, other_order) in pairwise(inputs):
        if order != other_order and {order, other_order} != {FILES, OFFSETS}:
            raise UsageError(
                f"--input {topic}: the order between the rows of {path} ({order}) and {other_path} ({other_order}) is undefined; "
                "give both inputs an order=COLUMN of the same kind"
            )


def ranks_of(inputs: Sequence[OpenedInput]) -> list[Mapping[str, int]]:
    """Return, for each input, the ranks of its files in reading order: input by input, and by file name within an input.

    Raises UsageError for a file that two inputs read in the same way, because its rows would count twice.
    """
    ranks: list[Mapping[str, int]] = []
    first = 0
    for number, opened in enumerate(inputs):
        names = sorted(map(same_path, input_files(opened.frame)))
        for other, known in zip(inputs[:number], ranks, strict=True):
            twice = known.keys() & set(names) if _reads_alike(opened.place, other.place) else ()
            if twice:
                raise UsageError(
                    f"{min(twice)} is in both {other.place.path} and {opened.place.path}, and would be read twice; each file must belong "
                    "to one input"
                )
        ranks.append({name: rank for rank, name in enumerate(names, first)})
        first += len(names)
    return ranks


def _reads_alike(one: Place, other: Place) -> bool:
    """Return whether two inputs turn a file into the same records."""
    return one.format in OF_SPARK and replace(one, path="") == replace(other, path="")


def read_inputs(
    plan: Plan,
    pickled: bytes,
    topic: str,
    partitions: int,
    inputs: Sequence[OpenedInput],
    ranks: Sequence[Mapping[str, int]],
    *,
    whole: bool = False,
) -> DataFrame:
    """Return the records of a topic as rows for a stage. Raises TransportError for missing columns.

    pickled: the plan for the workers; ranks: the ranks of each input's files in reading order; whole: as in `read_files`.
    """
    declared = plan.external_topics.get(topic)
    timed = declared is not None and declared.timestamp is not None and not isinstance(declared.timestamp, str)
    first, *others = (
        read_files(
            opened.frame,
            opened.place,
            FileReading(
                pickled, topic, names_of(plan, topic), partitions, ranks[number], timed, opened.place.has_lines
            ),
            whole=whole,
        )
        for number, opened in enumerate(inputs)
    )
    if not others:
        return first
    rows = arrow_rows.with_all_columns(first, topic)
    for frame in others:
        rows = rows.unionByName(arrow_rows.with_all_columns(frame, topic))
    return rows
