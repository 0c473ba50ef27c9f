"""A batch job from options as text, in a Spark session of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from streamkit.errors import UsageError
from streamkit.plan.lookup import find_topic
from streamkit.plan.model import Plan
from streamkit.runtime.spark.stages.stage_plan import has_routes, matching, written_topics
from streamkit.runtime.spark.submission.incremental import submit_next
from streamkit.runtime.spark.submission.job_options import REST, JobOptions, Place, parse_place
from streamkit.runtime.spark.submission.ship import ship
from streamkit.runtime.spark.submission.spark_session import Cluster, open_session
from streamkit.runtime.spark.submission.submit_job import submit
from streamkit.runtime.spark.submission.topic_difference import Difference

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def inputs_of(plan: Plan, texts: Iterable[str]) -> dict[str, Place]:
    """Return the files by topic on the log of `TOPIC[=PATH]`; topics without a path are left out. Raises UsageError."""
    written = {topic for sub in plan.sub_topologies for topic in written_topics(plan, sub)}
    found: dict[str, Place | None] = {}
    for text in texts:
        name, place = parse_place(text, "--input")
        topic = name if matching(plan, name) else find_topic(plan, name).name
        if topic in found:
            raise UsageError(f"--input {name}: given twice")
        if place is None and topic in written:
            # Among the records on the log are those that the application wrote, which the job writes again.
            raise UsageError(
                f"--input {name}: the file writes this topic too, and the log does not tell which records are its own; "
                f"--input {name}=PATH reads those of others from files"
            )
        found[topic] = place
    # Topics without a place are read from the log, like topics without an option.
    return {topic: place for topic, place in found.items() if place is not None}


def outputs_of(plan: Plan, texts: Iterable[str]) -> dict[str, Place | None]:
    """Return the files by topic on the log of `TOPIC[=PATH]`; None: the log. Raises UsageError."""
    entries = {topic.entry: topic.name for topic in plan.external_topics.values()}
    found: dict[str, Place | None] = {}
    for text in texts:
        name, place = parse_place(text, "--output")
        topic = entries.get(name, name)
        if name not in entries and name != REST and not any(map(has_routes, plan.sub_topologies)):
            topic = find_topic(plan, name).name
        if topic in found:
            raise UsageError(f"--output {name}: given twice")
        found[topic] = place
    return found


def run_job(
    plan: Plan,
    options: JobOptions,
    cluster: Cluster,
    report: Callable[[str], None] = lambda line: None,
    job_context: Callable[[SparkSession], AbstractContextManager[object]] = nullcontext,
) -> list[Difference]:
    """Run a job in a Spark session of its own; return the differences of compared topics.

    job_context: gives, from the session, a context manager around the job. Raises StreamkitError of many kinds.
    """
    spark = open_session(cluster, f"streamkit {plan.application}")
    try:
        ship(spark, plan)
        with job_context(spark):
            if options.checkpoint is not None:
                submit_next(plan, options, spark, report)
                return []
            return submit(plan, options, spark, report)
    finally:
        spark.stop()
