"""Runs a plan as a batch job with its options (`streamkit submit`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from glob import glob, has_magic
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING

from streamkit.errors import ConfigError, ErrorCollector, InexactError, TopicError, TransportError, UsageError
from streamkit.plan.model import Plan
from streamkit.runtime.spark.job import CHANGELOGS, STATE, Job, try_tasks
from streamkit.runtime.spark.job_options import (
    AUTO,
    COMPRESSED,
    EVERY,
    JSON_LINES,
    OF_SPARK,
    PARQUET,
    PYTHON,
    REST,
    TABLE,
    UNKNOWN,
    JobOptions,
    Place,
    Range,
    format_of_name,
    is_ambiguous,
    is_missing,
    recognized,
)
from streamkit.runtime.spark.rows.file_outputs import resumed, write_files
from streamkit.runtime.spark.rows.file_system import FileSystem, check_names_of_server, input_files, same_path
from streamkit.runtime.spark.rows.files import OpenedInput, check_unchanged, count_partitions, open_files
from streamkit.runtime.spark.rows.log_rows import (
    Address,
    LogRange,
    LogReading,
    check_seedable,
    commit_offsets,
    create_internal_topics,
    ensure_topics,
    find_ranges,
    read_frame,
    run_frame,
    topic_counts,
    write_log,
)
from streamkit.runtime.spark.rows.output_columns import LOG_TYPES, OutputLayout, check_columns, layout_of
from streamkit.runtime.spark.rows.topic_inputs import check_order, check_parts, ranks_of, read_inputs, select_topic
from streamkit.runtime.spark.spark_session import (
    changed_meaning,
    changed_settings,
    classic_context,
    every_row,
    translated,
)
from streamkit.runtime.spark.sql.sources import InputColumns, columns_of_files
from streamkit.runtime.spark.sql.stages import SQL
from streamkit.runtime.spark.stage_plan import Stage, has_routes, matching, patterns, topics_read, written_topics
from streamkit.runtime.spark.submission.topic_difference import Difference, compare
from streamkit.runtime.spark.tables.table_target import TableTarget, check_distinct, check_target, targets_of
from streamkit.runtime.spark.tables.table_writing import rows_for, write_table
from streamkit.runtime.spark.work_names import WorkName, named
from streamkit.runtime.spark.workers import arrow_rows
from streamkit.runtime.spark.workers.kept_tasks import MEMORY, Kept
from streamkit.runtime.spark.workers.worker import OFFSETS, StageWork
from streamkit.suggestions import number_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LEFTOVER = "_temporary"
_SPECULATION = "spark.speculation"
_MAX_UNSORTED = 1_000_000
"""Records of a partition that a task which could run key by key reads unsorted. Sorting takes time, but the state of more
keys than this may be too large for a worker's memory."""
Report = Callable[[str], None]
"""Shows a line of progress or a warning."""


@dataclass(frozen=True)
class Prepared:
    """A job, and the parts of the log that it reads."""

    job: Job
    address: Address
    ranges: tuple[LogRange, ...]
    warnings: tuple[str, ...] = ()

    def of(self, topic: str) -> tuple[LogRange, ...]:
        """Return the ranges of a topic."""
        return tuple(span for span in self.ranges if span.place.topic == topic)

    def has_records(self) -> bool:
        """Return whether there may be records to read from the log, those of global tables left out."""
        whole = set(self.job.plan.global_topics)
        return any(span.stop > span.start for span in self.ranges if span.place.topic not in whole)

    def engines(self) -> list[str]:
        """Return a line for each stage about its engine; none if the user chose it."""
        if self.job.options.engine != AUTO:
            return []
        return [
            f"stage {number}: engine {choice.engine}{choice.reason and f', not {SQL}: {choice.reason}'}"
            for number, choice in self.job.engines.items()
        ]

    def describe(self) -> list[str]:
        """Return the lines of a description: the stages with what their tasks read, and the inputs."""
        ranges = {topic: self.of(topic) for topic in self.job.sources() if topic not in self.job.options.inputs}
        lines = []
        for stage in self.job.stages:
            pieces, choice = self.job.pieces(stage), self.job.engines[stage.number]
            lines.append(stage.describe(pieces, choice.engine == SQL))
            load = load_of(stage, self.job.options.inputs, ranges, self.job.partitions, pieces, choice.engine)
            lines.append(f"  engine {choice.engine}; {load}")
            lines += [f"  not {SQL}: {choice.reason}"] if choice.reason else []
        for topic in self.job.sources():
            for place in self.job.options.inputs.get(topic, ()):
                lines.append(f"{topic}: {place.path} ({place.format})")
            for span in self.of(topic):
                count = span.stop - span.start
                lines.append(
                    f"{topic}-{span.place.partition}: offsets {span.start} to {span.stop}, at most {number_of(count, 'record')}"
                )
        return lines


def prepare(
    plan: Plan,
    options: JobOptions,
    file_counts: Mapping[str, int],
    kept: Kept | None = None,
    columns: Mapping[str, Sequence[InputColumns] | None] = MappingProxyType({}),
    *,
    creates: bool = True,
) -> Prepared:
    """Return the job of a plan; file_counts: the partitions of topics that are read from files. Uses the log, not Spark.

    kept: what an incremental job continues from. columns: of inputs, if they are known. creates False: an embedded log that
    does not exist counts as an empty one.
    Raises StreamkitError of many kinds.
    """
    address = Address.of(plan, creates=creates)
    counts, ranges, warnings = dict(file_counts), list[LogRange](), list[str]()
    written = {topic for sub in plan.sub_topologies for topic in written_topics(plan, sub)}
    needed = [topic for topic in topics_read(plan) if topic not in counts and topic not in written]
    by_pattern = _reads_by_pattern(plan, counts)
    if needed or by_pattern or _writes_log(options):
        known = topic_counts(address)
        missing = [topic for topic in needed if topic not in known]
        if missing:
            subject = f"topic {missing[0]} does" if len(missing) == 1 else f"topics {', '.join(missing)} do"
            inputs = " ".join(f"--input {topic}=PATH" for topic in missing)
            raise TopicError(f"{subject} not exist at {address.servers}; {inputs} reads files")
        read = {topic: known[topic] for topic in needed}
        if by_pattern:
            read.update({topic: count for topic, count in known.items() if matching(plan, topic)})
        ranges, warnings = find_ranges(address, plan.application, options.range, read, plan.global_topics)
        counts = {**{name: known[name] for name in plan.external_topics if name in known}, **read, **counts}
    elif options.range != Range():
        raise UsageError("--from and --until select records of the log, and every input is read from files")
    counts.update(_undetermined(plan, counts))
    ends = {span.place: span.stop for span in ranges}
    job = Job(plan, counts, options, ends, kept, columns)
    if kept is None or not kept.tasks:  # later runs keep the partitions of the first
        by_task = [stage for stage in job.stages if job.engines[stage.number].engine != SQL]
        cut = {topic: job.pieces(stage) for stage in by_task for topic in stage.inputs}
        warnings += one_task_warnings(plan, cut, options.inputs, counts, is_read=creates)
        warnings += text_warnings(plan, options.inputs)
    return Prepared(job, address, tuple(ranges), tuple(warnings))


def uses_log(plan: Plan, options: JobOptions) -> bool:
    """Return whether a job reads or writes topics on the log."""
    written = {topic for sub in plan.sub_topologies for topic in written_topics(plan, sub)}
    reads = any(topic not in options.inputs and topic not in written for topic in topics_read(plan))
    return reads or _reads_by_pattern(plan, options.inputs) or _writes_log(options)


def _reads_by_pattern(plan: Plan, files: Collection[str]) -> bool:
    return bool(patterns(plan)) and not any(matching(plan, topic) for topic in files)


def _writes_log(options: JobOptions) -> bool:
    to_log = options.writes_everything or None in options.outputs.values()
    return to_log or bool(options.compare) or options.write_state


def submit(
    plan: Plan, options: JobOptions, spark: SparkSession, report: Report = lambda line: None
) -> list[Difference]:
    """Run a job in a session; return how the topics to compare differ. Raises StreamkitError of many kinds, each one line."""
    check(plan, options)
    with translated():
        options = with_formats(spark, options)
        check_session(spark, options)
        errors = ErrorCollector()
        with errors.collecting(), named(spark, WorkName.of(plan.application, "outputs", "look")):
            targets = targets_of(plan, options, layouts_of(plan, options)).values()
            _check_outputs(spark, options, targets, report)
        setting = changed_meaning(spark)
        if setting is not None and options.engine == AUTO:
            report(f"all stages run in Python: {setting} changes what queries mean")
            options = replace(options, engine=PYTHON)
        opened = _opened_inputs(spark, plan, options, errors)
        for topic, inputs in opened.items():
            for opened_input in inputs:
                is_of_files = opened_input.place.format in OF_SPARK and not opened_input.files
                if is_of_files and not input_files(opened_input.source):  # chosen by their topics, rows keep no names
                    report(f"{topic}: there are no files in {opened_input.place.path}")
        counts = {topic: count_of(plan, topic, inputs) for topic, inputs in opened.items()}
        with named(spark, WorkName.of(plan.application, "inputs", "look")):
            prepared = prepare(plan, options, counts, columns=columns_of(opened))
        try_tasks(prepared.job)
        for line in (*plan.config.warnings, *prepared.warnings, *prepared.engines()):
            report(line)
        if not options.inputs and not prepared.has_records():
            chosen = options.range
            report(f"there are no records to read: --from {chosen.start}, --until {chosen.end}")
        if options.write_state:
            if options.inputs:
                raise UsageError("--write-state needs the offsets of the log: read all topics from it")
            check_seedable(plan, prepared.address, prepared.job.layout)
        with changed_settings(spark, every_row(spark) | prepared.job.settings):
            outputs = _written_outputs(spark, prepared, opened, report)
        if options.write_state:
            _write_state(plan, spark, prepared, outputs, report)
        return [_compare(spark, prepared, outputs[topic], topic) for topic in options.compare]


def _opened_inputs(
    spark: SparkSession, plan: Plan, options: JobOptions, errors: ErrorCollector
) -> dict[str, list[OpenedInput]]:
    """Return the inputs of each topic. Raises the errors of all inputs, and those collected before."""
    opened: dict[str, list[OpenedInput]] = {}
    for topic, places in options.inputs.items():
        opened[topic] = []
        for number, place in enumerate(places):
            with errors.collecting(), named(spark, WorkName.of(plan.application, topic, "look")), translated():
                found = select_topic(plan, open_files(spark, place, number=number), topic, options.inputs)
                check_parts(plan, found, topic)
                opened[topic].append(found)
    errors.raise_errors()
    return opened


def _written_outputs(
    spark: SparkSession,
    prepared: Prepared,
    opened: Mapping[str, Sequence[OpenedInput]],
    report: Report,
) -> dict[str, DataFrame]:
    """Write the outputs, and return them. From the first query or row on that is not exact, Python makes them."""

    def verify() -> None:
        for opened_input in chain.from_iterable(opened.values()):
            check_unchanged(opened_input)

    def in_python(reason: InexactError) -> tuple[Prepared, dict[str, DataFrame]]:
        report(f"all stages run in Python after all: {reason}")
        other = replace(prepared, job=prepared.job.in_python())
        try_tasks(other.job)
        return other, other.job.build(spark, JobInputs(spark, other, opened))

    try:
        with translated():
            outputs = prepared.job.build(spark, JobInputs(spark, prepared, opened))
    except InexactError as reason:
        prepared, outputs = in_python(reason)
    for topic in tuple(outputs):
        try:
            with translated():
                write_outputs(spark, prepared, {topic: outputs[topic]}, report, verify=verify)
        except InexactError as reason:
            prepared, outputs = in_python(reason)
            write_outputs(spark, prepared, {topic: outputs[topic]}, report, is_second=True, verify=verify)
    for line in prepared.job.dropped():
        report(line)
    return outputs


def columns_of(opened: Mapping[str, Sequence[OpenedInput]]) -> dict[str, Sequence[InputColumns]]:
    """Return the columns of the inputs that have some."""
    return {
        topic: [InputColumns.of(source) for source in inputs]
        for topic, inputs in opened.items()
        if not any(source.place.has_lines for source in inputs)
    }


def known_columns(inputs: Mapping[str, tuple[Place, ...]]) -> dict[str, Sequence[InputColumns] | None]:
    """Return the columns of inputs that can be read from their files without Spark; None for other files.

    Raises an error for each column that an input names, and that its files do not have.
    """
    by_topic, errors = dict[str, Sequence[InputColumns] | None](), ErrorCollector()
    for topic, places in inputs.items():
        if not any(place.has_lines for place in places):
            known = []
            for place in places:
                with errors.collecting():
                    names = columns_of_files(place, local_files(place))
                    known += [] if names is None else [names]
            by_topic[topic] = known if len(known) == len(places) else None
    errors.raise_errors()
    return by_topic


def with_formats(spark: SparkSession, options: JobOptions) -> JobOptions:
    """Return the options with the formats of inputs that only Spark can look at."""
    if all(place.format != UNKNOWN for places in options.inputs.values() for place in places):
        return options
    files = None if classic_context(spark) is None else FileSystem(spark)

    def known(place: Place) -> Place:
        if place.format != UNKNOWN:
            return place
        if files is None:
            return replace(place, format=format_of_name(place.path))
        path = next(iter(files.matches(place.path)), place.path)
        return replace(place, format=recognized(path, files.inside, files.first_bytes))

    return replace(options, inputs={topic: tuple(map(known, places)) for topic, places in options.inputs.items()})


def check_session(spark: SparkSession, options: JobOptions) -> None:
    """Raise ConfigError for a session that would pass over files (FileSystem.check_names), or would write to the log out of order.

    If Spark runs a task twice at a time, the one that it ends may write old records of a key after the last ones of the other.
    """
    if _writes_log(options) and (spark.conf.get(_SPECULATION, None) or "").lower() == "true":
        raise ConfigError(
            f"{_SPECULATION}=true: two runs of a task would write to the log at a time, so that older records follow newer ones; "
            f"--conf {_SPECULATION}=false"
        )
    places = (*chain.from_iterable(options.inputs.values()), *options.outputs.values())
    paths = [place.path for place in places if place is not None and (place.is_local or place.path.startswith("file:"))]
    if classic_context(spark) is None:
        check_names_of_server(spark, paths)
    else:
        FileSystem(spark).check_names(paths)


def check(plan: Plan, options: JobOptions) -> None:
    """Raise all UsageErrors for topics that the plan does not have or that can't be read, TransportErrors for places that exist."""
    errors = ErrorCollector()
    for topic, places in options.inputs.items():
        with errors.collecting():
            if reason := unread(plan, topic):
                raise UsageError(f"--input {topic}: {reason}")
        for place in places:
            with errors.collecting():
                _check_input(topic, place)
    for option, topics in (("--output", options.outputs), ("--compare", options.compare)):
        for topic in topics:
            with errors.collecting():
                if topic != REST and (reason := unwritten(plan, topic)):
                    raise UsageError(f"{option} {topic}: {reason}")
    errors.raise_errors()  # the columns of an output follow from its topic
    with errors.collecting():
        _check_places(options)
    with errors.collecting():
        layouts = layouts_of(plan, options)
        targets = targets_of(plan, options, layouts)
        for topic, output in options.outputs.items():
            if output is not None:
                types = layouts[topic].types if topic in layouts else LOG_TYPES
                with errors.collecting():
                    check_columns(output, topic, targets[topic].types if topic in targets else types)
    for topic, output in options.outputs.items():
        if output is None or output.is_table or options.overwrite or options.checkpoint is not None:
            continue
        with errors.collecting():
            if output.is_local and os.path.exists(output.path) and not _is_leftover(output):
                raise TransportError(f"--output {topic}={output.path}: it exists; --overwrite replaces it")
    errors.raise_errors()


def _check_input(topic: str, place: Place) -> None:
    if is_ambiguous(place):
        raise UsageError(
            f"--input {topic}={place.path}: it is the name of a file or directory, and Spark takes it for a pattern; rename it"
        )
    if is_missing(place):
        raise UsageError(f"--input {topic}={place.path}: no such file or directory")


def unread(plan: Plan, topic: str) -> str | None:
    """Return why a topic can't be an input, if so."""
    if topic in topics_read(plan) or matching(plan, topic):
        return None
    return f"the topology does not read it; it reads {', '.join(topics_read(plan))}"


def unwritten(plan: Plan, topic: str) -> str | None:
    """Return why a topic can't be an output, if so."""
    written = dict.fromkeys(topic for sub in plan.sub_topologies for topic in written_topics(plan, sub))
    if topic in written or any(map(has_routes, plan.sub_topologies)):
        return None
    return f"the topology does not write it; it writes {', '.join(written) or 'nothing'}"


def _check_places(options: JobOptions) -> None:
    """Raise UsageError for outputs that would replace each other, or an input."""
    folders = {topic: _folder(place) for topic, place in options.outputs.items() if place is not None}
    for topic, place in options.outputs.items():
        if place is None:
            continue
        shown, folder = f"--output {topic}={place.path}", folders[topic]
        for other, its in folders.items():
            if other != topic and its.startswith(folder):
                raise UsageError(f"{shown}: --output {other} is in the same directory; give each output its own")
        if options.checkpoint is not None and not place.is_table:
            continue  # each run adds a folder, and replaces nothing
        for other, sources in options.inputs.items():
            if any(_folder(source).startswith(folder) for source in sources):
                raise UsageError(f"{shown}: --input {other} is in this directory; give the output its own")


def _folder(place: Place) -> str:
    path = same_path(place.path) if "://" in place.path or place.path.startswith("file:") else place.path
    return (path if "://" in path else os.path.realpath(path)).rstrip("/") + "/"


def _check_outputs(spark: SparkSession, options: JobOptions, tables: Collection[TableTarget], report: Report) -> None:
    """Raise TransportError for outputs that exist, in any file system of Spark; Spark Connect gives no access to it.

    Completes those that a job was about to replace when it was killed. Raises UsageError for tables that can't take the rows.
    """
    for target in tables:
        check_target(spark, target)
    check_distinct(spark, tables)
    if classic_context(spark) is None:
        return
    files = FileSystem(spark)
    for topic, place in options.outputs.items():
        if place is None or place.is_table:
            continue
        for line in resumed(spark, place.path):
            report(line)
        if options.overwrite:
            continue
        if files.exists(place.path) and not set(files.names(place.path)) <= {_LEFTOVER}:
            raise TransportError(f"--output {topic}={place.path}: it exists; --overwrite replaces it")


class JobInputs:
    """The topics of files and of the log (job.Inputs)."""

    def __init__(self, spark: SparkSession, prepared: Prepared, files: Mapping[str, Sequence[OpenedInput]]):
        self._spark = spark
        self._prepared = prepared
        self._files = files
        for topic, inputs in files.items():
            check_order(topic, [(opened.place.path, opened.order) for opened in inputs])

    def frame(self, topic: str) -> DataFrame:
        """Return the records of a topic as rows."""
        job = self._prepared.job
        if topic not in self._files:
            return read_frame(self._spark, LogReading(self._prepared.address, self._prepared.of(topic)))
        inputs = self._files[topic]
        if not inputs:
            return self._spark.createDataFrame([], arrow_rows.DDL)
        return read_inputs(job.plan, job.pickled, topic, job.partitions[topic], inputs, self._ranks(topic, inputs))

    def _ranks(self, topic: str, inputs: Sequence[OpenedInput]) -> Sequence[Mapping[str, int]]:
        """Return the places of the files of each input in the order of reading."""
        return ranks_of(inputs)

    def state(self, stores: Collection[str]) -> DataFrame | None:
        """Return None: the job begins without state."""
        return None

    def opened(self, topic: str) -> OpenedInput:
        """Return the one input of a topic."""
        (frame,) = self._files[topic]
        return frame

    def direct(self, topic: str, work: StageWork) -> DataFrame | None:
        """Return the output of a stage that reads only this topic from the log and needs no order by key; else None."""
        if topic in self._files:
            return None
        ranges = self._prepared.of(topic)
        if work.by_key and max((span.stop - span.start for span in ranges), default=0) > _MAX_UNSORTED:
            return None
        return run_frame(self._spark, LogReading(self._prepared.address, ranges), work)


def write_outputs(
    spark: SparkSession,
    prepared: Prepared,
    outputs: Mapping[str, DataFrame],
    report: Report,
    staged: Mapping[str, Place] = MappingProxyType({}),
    is_second: bool = False,
    verify: Callable[[], None] = lambda: None,
) -> None:
    """Write all outputs except the state to their places. `staged`: other places in files, which are new.

    is_second: whether a first attempt failed; Spark may then have left an empty directory. verify: raises TransportError if an output
    that is complete must not stay.
    """
    job, options = prepared.job, prepared.job.options
    compared_only = set(options.compare) - set(options.outputs)
    layouts = layouts_of(job.plan, options)
    targets = targets_of(job.plan, options, layouts)
    for topic, frame in outputs.items():
        if topic in (CHANGELOGS, OFFSETS, STATE, MEMORY) or topic in compared_only:
            continue
        place = staged.get(topic) or options.outputs.get(topic)
        with named(spark, job.name_of(topic)):
            if topic in targets:
                rows = rows_for(frame, job.pickled, targets[topic], layouts.get(topic))
                if topic in staged:
                    rows.write.mode("error").parquet(staged[topic].path)
                else:
                    _write_rows(spark, job.plan.application, targets[topic], rows, report, verify)
            elif place is not None:
                replaces = options.overwrite or is_second or _is_leftover(place)
                is_ordered = topic not in job.final_topics()
                write_files(
                    frame, place, job.pickled, replaces, layouts.get(topic), is_ordered=is_ordered, verify=verify
                )
                final = options.outputs.get(topic) or place
                report(f"{'other topics' if topic == REST else topic}: written to {final.path}")
            else:
                _write_records(prepared, topic, frame, report)
                verify()


def _write_rows(
    spark: SparkSession,
    application: str,
    target: TableTarget,
    rows: DataFrame,
    report: Report,
    verify: Callable[[], None],
) -> None:
    """Write rows to a table, once they are complete: MERGE reads them twice, and takes none that Python functions make."""
    complete = rows.localCheckpoint()
    verify()
    with named(spark, WorkName.of(application, *target.change)):
        write_table(spark, target, complete)
    report(target.described)


def _write_records(prepared: Prepared, topic: str, frame: DataFrame, report: Report) -> None:
    """Write rows to the log."""
    shadow = prepared.job.options.shadow
    if topic != REST:
        ensure_topics(prepared.address, {topic + shadow: _declaration(prepared.job, topic)})
    count = write_log(frame, prepared.address, shadow)
    name = "topics of routes" if topic == REST else topic + shadow
    report(f"{name}: {number_of(count, 'record')} written to {prepared.address.servers}")


def layouts_of(plan: Plan, options: JobOptions) -> dict[str, OutputLayout]:
    """Return the columns of the outputs that have some of their own. Raises UsageError for types that the user wrote wrongly."""
    return {
        topic: layout_of(plan, topic, place)
        for topic, place in options.outputs.items()
        if place is not None and place.format != JSON_LINES and topic != REST and not place.layout.as_log
    }


def _declaration(job: Job, topic: str) -> tuple[int | None, int | None, Mapping[str, str]]:
    declared = job.plan.external_topics.get(topic)
    count = job.partitions.get(topic)
    return (count, declared.replication_factor, declared.config) if declared is not None else (count, None, {})


def _write_state(
    plan: Plan, spark: SparkSession, prepared: Prepared, outputs: Mapping[str, DataFrame], report: Report
) -> None:
    job, address = prepared.job, prepared.address
    create_internal_topics(address, job.layout)
    with named(spark, job.name_of(CHANGELOGS)):
        count = write_log(outputs[CHANGELOGS], address)
    # At the end: a live run that finds no committed offsets starts from the beginning.
    with named(spark, job.name_of(OFFSETS)):
        commit_offsets(plan, address, outputs[OFFSETS], prepared.ranges)
    report(f"state: {number_of(count, 'record')} written to changelogs, offsets committed for {plan.application}")


def _compare(spark: SparkSession, prepared: Prepared, reprocessed: DataFrame, topic: str) -> Difference:
    job = prepared.job
    count = topic_counts(prepared.address).get(topic)
    if count is None:
        raise TopicError(f"--compare {topic}: it does not exist at {prepared.address.servers}")
    ranges, _ = find_ranges(prepared.address, job.plan.application, Range(), {topic: count})
    existing = read_frame(spark, LogReading(prepared.address, tuple(ranges)))
    with named(spark, replace(job.name_of(topic), description=f"{job.plan.application} / {topic} / compare")):
        return compare(reprocessed, existing, job.plan, topic, job.is_final(topic))


def _is_leftover(place: Place) -> bool:
    """Return whether a directory has only the uncommitted files of a job that was killed."""
    return place.is_local and os.path.isdir(place.path) and set(os.listdir(place.path)) <= {_LEFTOVER}


def count_of(plan: Plan, topic: str, inputs: Iterable[OpenedInput]) -> int:
    """Return the number of partitions of a topic in files: as declared, or as its records name them; 1 without inputs."""
    declared = plan.external_topics.get(topic)
    if declared is not None and declared.partitions is not None:
        return declared.partitions
    return max((count_partitions(opened) for opened in inputs), default=1)


def _undetermined(plan: Plan, counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of topics that neither files nor the log have: as declared, else the largest of the inputs."""
    widest = max(counts.values(), default=1)
    outputs = {}
    for topic in plan.external_topics.values():
        if topic.name in counts:
            continue
        if topic.partitions is not None or (topic.read and topic.written):
            outputs[topic.name] = topic.partitions or widest
    return outputs


def declared_counts(plan: Plan, topics: Iterable[str]) -> dict[str, int]:
    """Return the declared counts of topics, 1 if none is declared, to show stages without reading the files."""
    return {
        topic: plan.external_topics[topic].partitions or 1 if topic in plan.external_topics else 1 for topic in topics
    }


# How much a stage's tasks will read: for `submit --dry-run`, and for the warning that one task reads everything.


def load_of(
    stage: Stage,
    inputs: Mapping[str, tuple[Place, ...]],
    ranges: Mapping[str, tuple[LogRange, ...]],
    partitions: Mapping[str, int],
    pieces: int = 1,
    engine: str = PYTHON,
) -> str:
    """Return a text about the number of records that a stage's largest task reads.

    inputs, ranges: the places, or the log ranges, of external topics; partitions: of all topics; pieces: the number of Spark
    tasks per partition. With another engine than Python, tasks do not correspond to partitions.
    """
    outside = [topic for topic in stage.inputs if topic in inputs or topic in ranges]
    if not outside and engine == SQL:
        return "reads the output of earlier stages"
    if not outside:
        return "largest task: not known before the stages that write its topics have run"
    is_one = (stage.cyclic or stage.tasks <= 1) and pieces == 1
    total, largest = 0, 0
    spread = pieces > 1
    for topic in outside:
        counts = _counts(inputs.get(topic), ranges.get(topic, ()))
        if counts is None:
            return f"largest task: only Spark can determine how many records {topic} has"
        total += sum(counts)
        if topic in ranges:
            largest += -(-max(counts, default=0) // pieces)
        else:
            spread = not is_one
            largest += -(-sum(counts) // (max(1, partitions.get(topic, 1)) * pieces))
    others = "" if len(outside) == len(stage.inputs) else ", and the output of earlier stages"
    if engine == SQL:
        return f"its tasks read at most {total:,} records{others}"
    if is_one:
        return f"its one task reads all records: at most {total:,}{others}"
    how = "about" if spread else "at most"
    even = ", if keys spread evenly" if spread else ""
    return f"largest task: {how} {largest:,} of {total:,} records{even}{others}"


def _counts(places: tuple[Place, ...] | None, ranges: tuple[LogRange, ...]) -> list[int] | None:
    """Return the maximum number of records in each place or range of a topic; None if one is unknown."""
    if places is None:
        return [span.stop - span.start for span in ranges]
    counts = [most_records(place) for place in places]
    known = [count for count in counts if count is not None]
    return known if len(known) == len(counts) else None


def one_task_warnings(
    plan: Plan,
    stages: Mapping[str, int],
    inputs: Mapping[str, tuple[Place, ...]],
    partitions: Mapping[str, int],
    is_read: bool,
) -> list[str]:
    """Return a warning for each topic whose records one task reads because no partitions are declared.

    stages: the number of Spark tasks per partition in the topic's stage; is_read: whether the job has read the records.
    """
    warnings = []
    for topic, places in inputs.items():
        declared = plan.external_topics.get(topic)
        if declared is None or declared.partitions is not None or stages.get(topic) != 1:
            continue
        if partitions.get(topic, 1) > 1 or any(place.columns.partition is not None for place in places):
            continue
        unless = "" if is_read else " unless they name partitions"
        warnings.append(
            f"{declared.entry}: one task reads all its records{unless}; `partitions: N` in its entry of topics, or a column "
            "partition, spreads them over N tasks"
        )
    return warnings


def text_warnings(plan: Plan, inputs: Mapping[str, tuple[Place, ...]]) -> list[str]:
    """Return a warning for each topic with objects of all columns of CSV, which Spark reads as text."""
    return [
        f"{declared.entry}: all fields are text, since CSV has no types; with options.inferSchema=true Spark finds numbers"
        for topic, declared in plan.external_topics.items()
        if declared.value_serde.spec == "json"
        and any(
            place.format == "csv" and place.columns.value == EVERY and not place.infers_types
            for place in inputs.get(topic, ())
        )
    ]


_COUNTED_BYTES = 64 * 1024 * 1024
"""Lines are counted in files of up to this total size, which takes less than a second."""


def most_records(place: Place) -> int | None:
    """Return the maximum number of records in an input; None if only Spark can find out.

    The footers of Parquet and ORC files contain the number of rows; lines are counted.
    """
    if not place.is_local or place.format == TABLE:
        return None
    files = local_files(place)
    try:
        if place.format == PARQUET:
            from pyarrow.parquet import read_metadata

            counts: list[int] = [read_metadata(name).num_rows for name in files]
            return sum(counts)
        if place.format == "orc":
            from pyarrow.orc import ORCFile

            counts = [ORCFile(name).nrows for name in files]
            return sum(counts)
        if place.format not in (JSON_LINES, "csv") or any(name.endswith(COMPRESSED) for name in files):
            return None
        if sum(map(os.path.getsize, files)) > _COUNTED_BYTES:
            return None
        return sum(map(_lines, files))
    except (ImportError, OSError, ValueError):
        return None  # the job itself reports a file that can't be read


def local_files(place: Place) -> list[str]:
    """Return the files of a place on this machine that Spark would read; none for a place elsewhere."""
    return list(_files(place.path)) if place.is_local else []


def _files(path: str) -> Iterator[str]:
    for start in glob(path) if has_magic(path) else [path]:
        if not os.path.isdir(start):
            yield start
        for folder, folders, names in os.walk(start):
            folders[:] = [name for name in folders if not name.startswith(("_", "."))]
            yield from (os.path.join(folder, name) for name in names if not name.startswith(("_", ".")))


def _lines(name: str) -> int:
    with open(name, "rb") as file:
        data = file.read()
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
