"""Runs the next part of an incremental job: processes the new input, starting from the state of earlier runs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamkit.errors import ErrorCollector, TransportError, UsageError
from streamkit.plan.model import Plan
from streamkit.record import TopicPartition
from streamkit.runtime.spark.checkpoint import run_outputs
from streamkit.runtime.spark.checkpoint.job_checkpoint import Checkpoint
from streamkit.runtime.spark.checkpoint.manifest import Manifest, Output, Piece
from streamkit.runtime.spark.checkpoint.run_inputs import (
    ACCEPT,
    KnownInputs,
    TopicFiles,
    find_files,
    with_all_fields,
)
from streamkit.runtime.spark.checkpoint.run_outputs import check_tables, output_of, settle_tables, waiting_place
from streamkit.runtime.spark.job import STATE, try_tasks
from streamkit.runtime.spark.job_options import JobOptions, Place, Range
from streamkit.runtime.spark.rows.file_system import FileSystem
from streamkit.runtime.spark.rows.files import OpenedInput
from streamkit.runtime.spark.rows.output_columns import OutputLayout
from streamkit.runtime.spark.rows.topic_inputs import select_topic
from streamkit.runtime.spark.spark_session import translated
from streamkit.runtime.spark.submission.submit_job import (
    JobInputs,
    Prepared,
    Report,
    check,
    check_session,
    count_of,
    layouts_of,
    prepare,
    with_formats,
    write_outputs,
)
from streamkit.runtime.spark.tables.table_target import targets_of
from streamkit.runtime.spark.tables.table_writing import snapshot_of
from streamkit.runtime.spark.work_names import WorkName, named
from streamkit.runtime.spark.workers.kept_tasks import BASE, MEMORY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class _Run:
    """A run that is not committed yet. `token` distinguishes it from other attempts with the same number."""

    checkpoint: Checkpoint
    before: Manifest
    token: str

    @property
    def number(self) -> int:
        return self.before.run + 1

    @property
    def folder(self) -> str:
        return f"{self.number:06}-{self.token}"


def submit_next(plan: Plan, options: JobOptions, spark: SparkSession, report: Report = lambda line: None) -> None:
    """Process the input that is new since the last run of the checkpoint, and commit the run. Raises StreamkitError."""
    check_options(options)
    check(plan, options)
    with translated(), named(spark, WorkName.of(plan.application, "checkpoint", "look")):
        options = with_formats(spark, options)
        check_session(spark, options)
        checkpoint = Checkpoint(spark, FileSystem(spark), options.checkpoint or "")
        with checkpoint.opened(plan) as before:
            run_outputs.settle(checkpoint.files, before)
            settle_tables(spark, checkpoint, before, report)
            layouts = layouts_of(plan, options)
            columns = {topic: layout.types for topic, layout in layouts.items()}
            run_outputs.check_outputs(checkpoint.files, before, options.outputs, columns)
            check_tables(spark, before, targets_of(plan, options, layouts))
            _run_next(plan, options, spark, _Run(checkpoint, before, uuid.uuid4().hex[:8]), report)


def check_options(options: JobOptions) -> None:
    """Raise UsageError for options that an incremental job does not have."""
    reasons = {
        "--write-state": (options.write_state, "writes the state of one run over all history"),
        "--compare": (bool(options.compare), "compares the result of one run over all history"),
        "--overwrite": (options.overwrite, "would delete what earlier runs wrote"),
        "--parallelism": (options.parallelism > 1, "splits partitions, but state is stored by partition"),
    }
    for name, (is_given, reason) in reasons.items():
        if is_given:
            raise UsageError(f"{name} and --checkpoint exclude each other: {name} {reason}")


def _run_next(plan: Plan, options: JobOptions, spark: SparkSession, run: _Run, report: Report) -> None:
    before, checkpoint = run.before, run.checkpoint
    _check_inputs(before, options)
    known = _known_inputs(checkpoint.files, before, options)
    found = {
        topic: find_files(checkpoint.files, spark, topic, places, before.files.get(topic, ()), run.number)
        for topic, places in options.inputs.items()
    }
    opened = _open(plan, options, found)
    inputs = {
        topic: known[topic].after(checkpoint.files, options.inputs[topic], parts, found[topic].open_read)
        for topic, parts in opened.items()
    }
    opened = {
        topic: [with_all_fields(checkpoint.files, part, inputs[topic]) for part in parts]
        for topic, parts in opened.items()
    }
    options = replace(options, range=_continued(before, options.range))
    prepared = prepare(plan, options, _counts(plan, before, opened), checkpoint.kept(before))
    checkpoint.check_partitions(before, prepared.job.partitions)
    topic_ids = _topic_ids(before, prepared)
    try_tasks(prepared.job)
    for warning in (*plan.config.warnings, *prepared.warnings):
        report(warning)
    if not any(files.new for files in found.values()) and not prepared.has_records():
        report(f"nothing is new since run {before.run}" if before.run else "there is no input yet")
        if options.accept_input_changes:
            report(
                f"the changed inputs were not stored, because nothing ran; give {ACCEPT} again with the next new records"
            )
        run_outputs.clean(checkpoint.files, before)
        checkpoint.clean(before)
        return
    with checkpoint.limited_batches(before):
        after = _execute(prepared, spark, run, _Inputs(spark, prepared, opened, found, run), report)
    for topic, files in found.items():
        # Raises if a file changed while the run read it: the run may have read only part of the file, so it must not count.
        find_files(checkpoint.files, spark, topic, options.inputs[topic], files.all, run.number)
    after = replace(
        after,
        run=run.number,
        partitions=dict(prepared.job.partitions),
        files={topic: files.all for topic, files in found.items()},
        inputs=inputs,
        offsets=_offsets(before, prepared),
        topic_ids=topic_ids,
    )
    checkpoint.publish(after, run.token)
    run_outputs.settle(checkpoint.files, after)
    settle_tables(spark, checkpoint, after, report)
    run_outputs.clean(checkpoint.files, after)
    checkpoint.clean(after)
    report(f"run {after.run}: committed to {checkpoint.folder}")


def _execute(prepared: Prepared, spark: SparkSession, run: _Run, inputs: _Inputs, report: Report) -> Manifest:
    """Write outputs and state, which count once the returned manifest is published."""
    job, checkpoint = prepared.job, run.checkpoint
    outputs = job.build(spark, inputs)
    places = {topic: place for topic, place in job.options.outputs.items() if place is not None}
    layouts = layouts_of(job.plan, job.options)
    targets = targets_of(job.plan, job.options, layouts)
    staged = {
        topic: waiting_place(checkpoint, topic, run.folder)
        if topic in targets
        else run_outputs.staged_place(place, run.number, run.token)
        for topic, place in places.items()
    }
    with named(spark, job.name_of(MEMORY)):
        rows = outputs[MEMORY].select("key", "value").collect()
    memories = {bytes(row["key"]).decode(): json.loads(bytes(row["value"])) for row in rows}
    with named(spark, job.name_of(STATE)):
        state_files = checkpoint.write_state(outputs[STATE], run.folder)
    pieces = [
        (store, partition, Piece(run.folder, kind, rows, size, tuple(state_files.get((store, kind, partition), ()))))
        for task, memory in memories.items()
        for partition in [int(task.partition("_")[2])]
        for store, (kind, rows, size) in memory.pop("state").items()
    ]
    # Records for the log are written last: the steps after them hardly ever fail, so that later runs seldom repeat them.
    in_order = dict(sorted(outputs.items(), key=lambda output: output[0] not in staged))
    write_outputs(spark, prepared, in_order, report, staged)
    for line in job.dropped():
        report(line)
    past = run.before.outputs
    tables = {
        topic: output_of(checkpoint, target, past.get(topic), run.number, run.folder, snapshot_of(spark, target))
        for topic, target in targets.items()
    }
    return replace(
        run.before.with_pieces(pieces, BASE),
        tasks={**run.before.tasks, **memories},
        outputs=tables
        | {
            topic: _in_files(checkpoint, place, past.get(topic), run.number, staged[topic], layouts.get(topic))
            for topic, place in places.items()
            if topic not in tables
        },
    )


def _in_files(
    checkpoint: Checkpoint, place: Place, before: Output | None, run: int, staged: Place, layout: OutputLayout | None
) -> Output:
    """Return the entry of an output in files for the manifest of a run."""
    runs, columns = ((), {}) if before is None else (before.runs, before.columns)
    written = run_outputs.written(checkpoint.files, run, staged)
    types = {} if layout is None else {**columns, **layout.types}
    return Output(place.path, place.format, (*runs, written), types, folders=run_outputs.folders_of(place))


class _Inputs(JobInputs):
    """The new files, the new records of the log, and the state of earlier runs."""

    def __init__(
        self,
        spark: SparkSession,
        prepared: Prepared,
        opened: Mapping[str, Sequence[OpenedInput]],
        files_of_topics: Mapping[str, TopicFiles],
        run: _Run,
    ):
        super().__init__(spark, prepared, opened)
        self._found = files_of_topics
        self._run = run

    def _ranks(self, topic: str, inputs: Sequence[OpenedInput]) -> Sequence[Mapping[str, int]]:
        return [self._found[topic].ranks] * len(inputs)

    def state(self, stores: Collection[str]) -> DataFrame | None:
        """Return the rows of stores of the checkpoint; None if there are none."""
        return self._run.checkpoint.state(self._run.before, stores)


def _check_inputs(before: Manifest, options: JobOptions) -> None:
    """Raise UsageError if earlier runs read a topic from another place."""
    if not before.run:
        return
    if options.range.start != Range().start:
        raise UsageError(f"--from {options.range.start}: this run starts at the offsets where run {before.run} ended")
    for topic in options.inputs:
        if topic not in before.files:
            raise UsageError(f"--input {topic}: earlier runs read this topic from the log")
    for topic in before.files:
        if topic not in options.inputs:
            raise UsageError(f"earlier runs read {topic} from files: give --input {topic}=PATH again")


def _known_inputs(files: FileSystem, before: Manifest, options: JobOptions) -> dict[str, KnownInputs]:
    """Return how earlier runs read the inputs. Raises UsageError if this run would read one differently."""
    known_inputs = {
        topic: KnownInputs.of(files, topic, before.run, before.inputs.get(topic, {}), options.accept_input_changes)
        for topic in options.inputs
    }
    for topic, places in options.inputs.items():
        known_inputs[topic].check_settings(files, places)
    return known_inputs


def _open(plan: Plan, options: JobOptions, found: Mapping[str, TopicFiles]) -> dict[str, list[OpenedInput]]:
    """Return the rows of new files. Each run reads all files of a global table."""
    errors, by_topic = ErrorCollector(), dict[str, list[OpenedInput]]()
    for topic, files in found.items():
        with errors.collecting():
            inputs = files.open(files.all if topic in plan.global_topics else files.new)
            by_topic[topic] = [select_topic(plan, opened, topic, options.inputs, files.open_read) for opened in inputs]
    errors.raise_errors()
    return by_topic


def _counts(plan: Plan, before: Manifest, opened: Mapping[str, Sequence[OpenedInput]]) -> dict[str, int]:
    """Return the partitions of topics in files: at least as many as in earlier runs."""
    return {
        topic: max(count_of(plan, topic, inputs) if inputs else 1, before.partitions.get(topic, 1))
        for topic, inputs in opened.items()
    }


def _continued(before: Manifest, requested: Range) -> Range:
    offsets = {
        TopicPartition(topic, int(number)): offset
        for topic, offsets in before.offsets.items()
        for number, offset in offsets.items()
    }
    return replace(requested, continued=offsets)


def _offsets(before: Manifest, prepared: Prepared) -> dict[str, dict[str, int]]:
    offsets: dict[str, dict[str, int]] = {topic: dict(positions) for topic, positions in before.offsets.items()}
    for span in prepared.ranges:
        offsets.setdefault(span.place.topic, {})[str(span.place.partition)] = span.stop
    return offsets


def _topic_ids(before: Manifest, prepared: Prepared) -> dict[str, str]:
    """Return the ids of the topics on the log. Raises TransportError if one is not the topic of earlier runs."""
    topics = sorted({span.place.topic for span in prepared.ranges})
    if not topics:
        return dict(before.topic_ids)
    with prepared.address.admin() as admin:
        ids = admin.topic_ids(topics)
    for topic, now in ids.items():
        if before.topic_ids.get(topic, now) != now:
            raise TransportError(
                f"{topic}: the topic was deleted and created again since run {before.run} read it, so its offsets now belong to "
                "other records; begin with a new checkpoint and a new output"
            )
    return {**before.topic_ids, **ids}
