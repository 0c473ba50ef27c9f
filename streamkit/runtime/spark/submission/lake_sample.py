"""A sample of the inputs of `submit` as records in JSON form: test data for `try`, `test` and `generate`."""

from __future__ import annotations

import heapq
import json
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING

from streamkit.expressions.expression import Expression
from streamkit.plan.model import Plan
from streamkit.record import Headers
from streamkit.runtime.records import RecordJson
from streamkit.runtime.spark.job_options import JobOptions, Place
from streamkit.runtime.spark.rows.file_system import BLOCK, FILE, ROW, same_path
from streamkit.runtime.spark.rows.files import (
    FILES,
    OFFSETS,
    OpenedInput,
    RowOrder,
    narrowed,
    of_file,
    open_files,
    row_order,
)
from streamkit.runtime.spark.rows.input_columns import WHOLE
from streamkit.runtime.spark.rows.topic_inputs import check_order, ranks_of, read_inputs, select_topic
from streamkit.runtime.spark.spark_session import Cluster, open_session, translated
from streamkit.runtime.spark.submission.submit_job import check, count_of, with_formats
from streamkit.runtime.spark.work_names import WorkName, named
from streamkit.runtime.spark.workers import arrow_rows
from streamkit.runtime.spark.workers.output_collector import lines_of
from streamkit.serdes.plain import Json

if TYPE_CHECKING:
    from pyspark.sql import Column, Row, SparkSession

LIMIT = 100
"""The default number of records that are read of each topic."""
_MOST_PARTITIONS = (1 << 31) - 1


def sample(
    plan: Plan, inputs: Mapping[str, tuple[Place, ...]], limit: int = LIMIT, cluster: Cluster | None = None
) -> list[dict[str, Json]]:
    """Return the first records of each topic as `submit` reads them, with the topics merged by time as in a task.

    Opens and ends a Spark session with the settings of a cluster. The session runs on this machine unless MASTER in the
    environment names another master. Raises subclasses of StreamkitError, each with a one-line message.
    """
    check(plan, JobOptions(inputs))
    here = replace(cluster or Cluster(), master=os.environ.get("MASTER") or "local[*]")
    spark = open_session(here, f"streamkit {plan.application}: sample")
    try:
        with translated(), named(spark, WorkName.of(plan.application, "sample")):
            return sample_in(spark, plan, inputs, limit)
    finally:
        spark.stop()


def sample_in(
    spark: SparkSession, plan: Plan, inputs: Mapping[str, tuple[Place, ...]], limit: int
) -> list[dict[str, Json]]:
    """Return the result of `sample` in an open session."""
    known = with_formats(spark, JobOptions(inputs)).inputs
    by_topic = [
        _records(
            plan,
            topic,
            [
                select_topic(plan, open_files(spark, place, number=number), topic, known)
                for number, place in enumerate(places)
            ],
            limit,
        )
        for topic, places in known.items()
    ]
    return [record for _, record in heapq.merge(*by_topic, key=lambda timed: timed[0])]


def _records(plan: Plan, topic: str, inputs: Sequence[OpenedInput], limit: int) -> list[tuple[int, dict[str, Json]]]:
    """Return the first records of a topic with the times that the topic's entry in the topology extracts."""
    check_order(topic, [(opened.place.path, opened.order) for opened in inputs])
    rows = _in_order_of_files(plan, topic, inputs, limit)
    if rows is None:
        rows = _in_order(plan, topic, inputs, limit)
    form, records = RecordJson(plan), list[tuple[int, dict[str, Json]]]()
    time_of = _extractor(plan, topic, form)
    keys, values = ([_bytes(row[name]) for row in rows] for name in ("key", "value"))
    headers = [row.headers and [(header["name"], _bytes(header["value"])) for header in row.headers] for row in rows]
    times, unplaced = [row.timestamp for row in rows], [-1] * len(rows)
    lines = lines_of(form, ([topic] * len(rows), keys, values, times, headers, unplaced)).column(0).to_pylist()
    for line, *parts in zip(lines, keys, values, times, headers, strict=True):
        records.append((time_of(*parts), json.loads(line)))
    return records


def _bytes(data: bytearray | None) -> bytes | None:
    return None if data is None else bytes(data)


def _in_order_of_files(plan: Plan, topic: str, inputs: Sequence[OpenedInput], limit: int) -> list[Row] | None:
    """Return the first rows of a topic without reading more; None if offsets of lines or columns order the rows, not files."""
    if any(opened.order != FILES for opened in inputs):
        return None
    pickled, ranks, declared = pickle.dumps(plan), ranks_of(inputs), plan.external_topics.get(topic)
    # A sample has no partitions, so undeclared ones need not be counted.
    count = (declared and declared.partitions) or _MOST_PARTITIONS
    sample: list[Row] = []
    for part, known in (
        (part, known) for opened, known in zip(inputs, ranks, strict=True) for part in by_files(opened)
    ):
        rows = read_inputs(plan, pickled, topic, count, [part], [known], whole=True)
        sample += arrow_rows.with_all_columns(rows, topic).take(limit - len(sample))
        if any(row.source == 0 for row in sample):
            return None
        if len(sample) == limit:
            break
    return sample


def _in_order(plan: Plan, topic: str, inputs: Sequence[OpenedInput], limit: int) -> list[Row]:
    count = count_of(plan, topic, inputs)
    first = [first_rows(opened, limit) for opened in inputs]
    frame = read_inputs(plan, pickle.dumps(plan), topic, count, first, ranks_of(inputs), whole=True)
    return arrow_rows.with_all_columns(frame, topic).orderBy("source", "offset", "partition").limit(limit).collect()


def _extractor(
    plan: Plan, topic: str, form: RecordJson
) -> Callable[[bytes | None, bytes | None, int, Headers | None], int]:
    """Return the function that computes a record's time, by which a task merges its topics."""
    declared = plan.external_topics.get(topic)
    if declared is None or not isinstance(declared.timestamp, Expression):
        return lambda key, value, time, headers: time
    extract = declared.timestamp.function(("key", "value", "timestamp", "headers", "topic", "partition", "offset"))
    key_serde, value_serde = form.reading(topic)

    def run(key: bytes | None, value: bytes | None, time: int, headers: Headers | None) -> int:
        decoded = (None if key is None else key_serde.decode(key), None if value is None else value_serde.decode(value))
        try:
            extracted = extract(*decoded, time, headers, topic, 0, 0)
        except Exception:
            return time  # an error in the topology, which running the sample reports
        return extracted if type(extracted) is int else time

    return run


# Reads the first rows of an input in the order of a job, without reading much more.


_MOST_FILES = 64
"""Maximum number of files per Spark job, because a job's plan grows with the number of files."""


def by_files(opened: OpenedInput) -> Iterator[OpenedInput]:
    """Yield an input with the order FILES in parts whose partitions are in the order of the rows.

    For `take`, Spark reads partitions one after another until it has enough rows; each partition is within one file. Each
    part has twice as many files as the previous one, because a condition may select few rows of each file.
    """
    names = sorted(opened.source.inputFiles(), key=same_path)
    first, size = 0, 1
    while first < len(names):
        frames = [of_file(opened, name).frame for name in names[first : first + size]]
        yield replace(opened, rows=partial(reduce, lambda one, other: one.union(other), frames))
        first, size = first + size, min(2 * size, _MOST_FILES)


def first_rows(opened: OpenedInput, limit: int) -> OpenedInput:
    """Return the first rows of an input with columns; all rows of an input of lines, which may contain several topics."""
    from pyspark.sql import functions as sf

    if opened.place.has_lines:
        return opened
    by = _by_offset(opened) if opened.order == OFFSETS else opened.by
    if by is not None:
        opened = _up_to_last(opened, by, limit)
    # Sorted by file name, not by URI. Rows without an offset come after rows with one.
    by_file = [sf.url_decode(sf.replace(sf.col(FILE), sf.lit("+"), sf.lit("%2B"))), BLOCK, ROW]
    offset = [_offset().asc_nulls_last()] if opened.order == OFFSETS else []
    in_order = [*offset, *by_file] if opened.order in (FILES, OFFSETS) else [ROW, BLOCK]
    rows = opened.frame.orderBy(*in_order).limit(limit)
    return replace(opened, rows=lambda: rows)


def _up_to_last(opened: OpenedInput, by: RowOrder, limit: int) -> OpenedInput:
    """Return an input reduced to its first rows.

    Spark first reads one column of all rows, and then only the files and row groups that can contain the first rows.
    """
    from pyspark.sql import functions as sf

    number = _offset() if opened.order == OFFSETS else sf.col(ROW)
    first = opened.frame.select(number.alias("number")).orderBy(sf.col("number").asc_nulls_last()).limit(limit)
    (totals,) = first.agg(sf.count("number").alias("count"), sf.max("number").alias("last")).collect()
    return opened if totals["count"] < limit else narrowed(opened, by.up_to(totals["last"]))


def _by_offset(opened: OpenedInput) -> RowOrder | None:
    """Return the order of rows by their offset, if the offset is a whole number."""
    if dict(opened.frame.dtypes)["offset"] not in WHOLE:
        return None
    return row_order(opened.source, opened.place, opened.place.columns.offset or "offset", "offset")


def _offset() -> Column:
    from pyspark.sql import functions as sf

    return sf.col("offset").try_cast("bigint")
