"""Runs a batch job from options as text, in a separate Spark session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING

from streamkit.errors import UsageError
from streamkit.plan.model import Plan, find_topic
from streamkit.runtime.spark.job_options import REST, JobOptions, Place, parse_place
from streamkit.runtime.spark.spark_session import Cluster, open_session
from streamkit.runtime.spark.stage_plan import has_routes, matching, written_topics
from streamkit.runtime.spark.submission.incremental import submit_next
from streamkit.runtime.spark.submission.ship import ship
from streamkit.runtime.spark.submission.submit_job import submit
from streamkit.runtime.spark.submission.topic_difference import Difference

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def inputs_of(
    plan: Plan, texts: Iterable[str], before: Mapping[str, tuple[Place, ...]] = MappingProxyType({})
) -> dict[str, tuple[Place, ...]]:
    """Parse options `TOPIC[=PATH]` into inputs by topic on the log; topics without a path are left out. Raises UsageError.

    before: the inputs of topics that no option names.
    """
    found: dict[str, list[Place | None]] = {}
    names = {}
    for text in texts:
        name, place = parse_place(text, "--input")
        topic = name if matching(plan, name) else find_topic(plan, name).name
        names[topic] = name
        found.setdefault(topic, []).append(place)
    joined = {topic: inputs_of_topic(plan, topic, places, f"--input {names[topic]}") for topic, places in found.items()}
    # Jobs read topics without a place from the log, like topics without an option.
    return {topic: places for topic, places in {**before, **joined}.items() if places}


def inputs_of_topic(plan: Plan, topic: str, places: Sequence[Place | None], shown: str) -> tuple[Place, ...]:
    """Return the places of a topic's inputs; an empty result if it is read from the log. Raises UsageError.

    shown: how the user named the input, for messages.
    """
    for number, place in enumerate(places):
        if place in places[:number]:
            raise UsageError(f"{shown}: {'the log' if place is None else place.path} is given twice")
    if None not in places:
        return tuple(place for place in places if place is not None)
    if len(places) > 1:
        raise UsageError(f"{shown}: a topic is read either from the log or from places; give each of them a PATH")
    if topic in {each for sub in plan.sub_topologies for each in written_topics(plan, sub)}:
        # The log also contains the application's own records, which the job writes again.
        raise UsageError(
            f"{shown}: the file writes this topic too, and records on the log do not show who wrote them; "
            f"{shown}=PATH reads the records of other writers from files"
        )
    return ()


def outputs_of(
    plan: Plan, texts: Iterable[str], before: Mapping[str, Place | None] = MappingProxyType({})
) -> dict[str, Place | None]:
    """Parse options `TOPIC[=PATH]` into outputs by topic on the log; None: the log. Raises UsageError.

    before: the outputs of topics that no option names.
    """
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
    return {**before, **found}


def run_job(
    plan: Plan,
    options: JobOptions,
    cluster: Cluster,
    report: Callable[[str], None] = lambda line: None,
    job_context: Callable[[SparkSession], AbstractContextManager[object]] = nullcontext,
) -> list[Difference]:
    """Run a job in a separate Spark session; return the differences of compared topics.

    job_context: takes the session and returns a context manager around the job. Raises subclasses of StreamkitError.
    """
    spark = open_session(cluster, f"streamkit {plan.application}")
    try:
        ship(spark, plan, cluster.files, report)
        with job_context(spark):
            if options.checkpoint is not None:
                submit_next(plan, options, spark, report)
                return []
            return submit(plan, options, spark, report)
    finally:
        spark.stop()
