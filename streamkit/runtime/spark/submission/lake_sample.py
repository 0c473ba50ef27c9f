"""A sample of the inputs of `submit` as records in JSON form: test data for `try`, `test` and `generate`."""

from __future__ import annotations

import heapq
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from streamkit.expressions.expression import Expression
from streamkit.plan.model import Plan
from streamkit.record import Headers
from streamkit.runtime.records import RecordJson
from streamkit.runtime.spark.job_options import JobOptions, Place
from streamkit.runtime.spark.rows.files import OpenedInput, first_rows, open_files
from streamkit.runtime.spark.rows.topic_inputs import check_order, ranks_of, read_inputs
from streamkit.runtime.spark.spark_session import Cluster, open_session, translated
from streamkit.runtime.spark.submission.submit_job import check, count_of, with_formats
from streamkit.runtime.spark.workers import arrow_rows
from streamkit.runtime.spark.workers.output_collector import lines_of
from streamkit.serdes.plain import Json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMIT = 100
"""The records of each topic that are read where nothing says how many."""


def sample(
    plan: Plan, inputs: Mapping[str, tuple[Place, ...]], limit: int = LIMIT, cluster: Cluster | None = None
) -> list[dict[str, Json]]:
    """Return the first records of each topic as `submit` reads them, those of several topics by their times as a task takes them.

    Opens and ends a Spark session. Raises StreamkitError of many kinds, each one line.
    """
    check(plan, JobOptions(inputs))
    spark = open_session(cluster or Cluster("local[*]"), f"streamkit {plan.application}: sample")
    try:
        with translated():
            return sample_in(spark, plan, inputs, limit)
    finally:
        spark.stop()


def sample_in(
    spark: SparkSession, plan: Plan, inputs: Mapping[str, tuple[Place, ...]], limit: int
) -> list[dict[str, Json]]:
    """Return the same from an open session."""
    known = with_formats(spark, JobOptions(inputs)).inputs
    by_topic = [
        _records(plan, topic, [open_files(spark, place, number=number) for number, place in enumerate(places)], limit)
        for topic, places in known.items()
    ]
    return [record for _, record in heapq.merge(*by_topic, key=lambda each: each[0])]


def _records(plan: Plan, topic: str, inputs: Sequence[OpenedInput], limit: int) -> list[tuple[int, dict[str, Json]]]:
    """Return the first records of a topic with their times, as the topic's entry in the topology extracts them."""
    check_order(topic, [(each.place.path, each.order) for each in inputs])
    count = count_of(plan, topic, inputs)
    first = [first_rows(each, limit) for each in inputs]
    frame = read_inputs(plan, pickle.dumps(plan), topic, count, first, ranks_of(inputs))
    rows = arrow_rows.with_all_columns(frame, topic).orderBy("source", "offset", "partition").limit(limit)
    form, found = RecordJson(plan), list[tuple[int, dict[str, Json]]]()
    time_of = _extractor(plan, topic, form)
    for batch in rows.toArrow().to_batches():
        topics, partitions, keys, values, times = (
            arrow_rows.values_of(batch.column(index)) for index in range(arrow_rows.HEADERS)
        )
        headers = arrow_rows.headers_of(batch.column(arrow_rows.HEADERS))
        lines = lines_of(form, (topics, keys, values, times, headers, partitions)).column(0).to_pylist()
        for line, *row in zip(lines, keys, values, times, headers, strict=True):
            record = json.loads(line)
            record.pop("partition", None)
            found.append((time_of(*row), record))
    return found


def _extractor(
    plan: Plan, topic: str, form: RecordJson
) -> Callable[[bytes | None, bytes | None, int, Headers | None], int]:
    """Return the function that gives the time of a record, by which a task merges its topics."""
    declared = plan.external_topics.get(topic)
    if declared is None or not isinstance(declared.timestamp, Expression):
        return lambda key, value, time, headers: time
    extract = declared.timestamp.function(("key", "value", "timestamp", "headers", "topic", "partition", "offset"))
    key_serde, value_serde = form.reading(topic)

    def run(key: bytes | None, value: bytes | None, time: int, headers: Headers | None) -> int:
        decoded = (None if key is None else key_serde.decode(key), None if value is None else value_serde.decode(value))
        try:
            found = extract(*decoded, time, headers, topic, 0, 0)
        except Exception:
            return time  # an error of the topology, which the run of the sample reports
        return found if type(found) is int else time

    return run
