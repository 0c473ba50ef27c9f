"""`submit`: from a plan and options to a finished job."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from streamkit.errors import UsageError
from streamkit.plan.model import Plan
from streamkit.runtime.spark.files import Reading, count_partitions, open_files, read_files, write_files
from streamkit.runtime.spark.job import Job
from streamkit.runtime.spark.options import JobOptions, Place, check_input
from streamkit.runtime.spark.session import translated
from streamkit.runtime.spark.stages import matching, topics_read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LEFTOVER = "_temporary"


def submit(plan: Plan, options: JobOptions, spark: SparkSession) -> None:
    """Run a job in a session. Raises StreamkitError of many kinds, each one line."""
    check(plan, options)
    with translated():
        frames = {topic: open_files(spark, place) for topic, place in options.inputs.items()}
        counts = {topic: _count(plan, topic, frame, options.inputs[topic]) for topic, frame in frames.items()}
        counts.update(_written_and_read(plan, counts))
        job = Job(plan, counts, options)
        outputs = job.build(spark, _reader(job, frames))
        for topic, frame in outputs.items():
            place = options.outputs.get(topic)
            if place is None:
                raise UsageError(f"--output {topic}: give a directory")
            write_files(frame, place, job.pickled, options.overwrite or _is_leftover(place))


def check(plan: Plan, options: JobOptions) -> None:
    """Raise UsageError for topics that the plan does not have, and for places that can't be read or written."""
    for topic, place in options.inputs.items():
        if topic not in topics_read(plan) and not matching(plan, topic):
            raise UsageError(f"--input {topic}: the topology does not read it; it reads {', '.join(topics_read(plan))}")
        check_input(place, topic)
    for topic, output in options.outputs.items():
        taken = output is not None and output.is_local and os.path.exists(output.path) and not _is_leftover(output)
        if output is not None and taken and not options.overwrite:
            raise UsageError(f"--output {topic}={output.path}: it exists; --overwrite replaces it")


def _is_leftover(place: Place) -> bool:
    """Return whether a directory holds nothing but what a job that was killed had not committed."""
    return place.is_local and os.path.isdir(place.path) and set(os.listdir(place.path)) <= {_LEFTOVER}


def _count(plan: Plan, topic: str, frame: DataFrame, place: Place) -> int:
    declared = plan.external_topics.get(topic)
    if declared is not None and declared.partitions is not None:
        return declared.partitions
    return count_partitions(frame, place)


def _written_and_read(plan: Plan, counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of topics that the job itself writes before it reads them: as declared, else as wide as inputs."""
    widest = max(counts.values(), default=1)
    return {
        topic.name: topic.partitions or widest
        for topic in plan.external_topics.values()
        if topic.read and topic.written and topic.name not in counts
    }


def _reader(job: Job, frames: Mapping[str, DataFrame]) -> Callable[[str, int], DataFrame]:
    def read(topic: str, partitions: int) -> DataFrame:
        place, frame = job.options.inputs[topic], frames[topic]
        declared = job.plan.external_topics.get(topic)
        names = (topic,) if declared is None else (topic, declared.entry)
        files = {name: rank for rank, name in enumerate(sorted(frame.inputFiles()))}
        timed = declared is not None and declared.timestamp is not None and not isinstance(declared.timestamp, str)
        return read_files(frame, place, Reading(job.pickled, topic, names, partitions, files, timed))

    return read
