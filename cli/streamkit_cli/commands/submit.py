"""`streamkit submit` runs a topology over historical records, as a batch job on Spark."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit.errors import ErrorCollector, UsageError
from streamkit.plan.model import Plan, find_topic
from streamkit_cli.loading import STDIN, environment, load_plan, silence_noticed, stdin_text
from streamkit_cli.options import EnvFile, Format, Settings, topics

if TYPE_CHECKING:
    from streamkit.runtime.spark.job_options import JobOptions
    from streamkit.runtime.spark.spark_session import Cluster
    from streamkit.runtime.spark.submission.job_file import JobFile
    from streamkit.serdes.plain import Json

DIFFERS = 1

Job = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="The topology file, or a job file that names it; - is stdin.", show_default=False
    ),
]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="local[*], spark://HOST:PORT, k8s://…, yarn or sc://HOST."),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="TOPIC[=PATH]",
        help="The records of a topic: files or a table; PATH,key=COLUMN,… selects columns; without PATH, the log. Repeatable.",
        autocompletion=topics,
    ),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        metavar="TOPIC[=DIR]",
        help="Where to write a topic: a new directory of JSON Lines, or of columns with DIR,format=parquet, or a table; without DIR, the log. * means all other topics.",
        autocompletion=topics,
    ),
]
Emit = Annotated[
    str | None,
    typer.Option("--emit", metavar="updates|final", help="Every update, or the last of each key (default for tables)."),
]
Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="auto|python",
        help="auto (default): run a stage as Spark SQL if its result is exactly the same; python: never.",
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="POSITION",
        help="earliest (default), committed, a time as in consume, or a JSON file of offsets.",
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="POSITION",
        help="latest (default), committed, a time as in consume, or a JSON file of offsets.",
    ),
]
DataLoss = Annotated[
    str | None,
    typer.Option(
        "--on-data-loss",
        metavar="error|warn",
        help="What to do if retention has removed the beginning of the range: error is the default.",
    ),
]
Shadow = Annotated[
    str | None,
    typer.Option("--shadow", metavar="SUFFIX", help="Write to topics with this suffix instead of the real ones."),
]
Compare = Annotated[
    list[str] | None,
    typer.Option(
        "--compare",
        metavar="TOPIC",
        help="Report how the result differs from the topic; exit 1 if it does.",
        autocompletion=topics,
    ),
]
WriteState = Annotated[
    bool, typer.Option("--write-state", help="Write the final stores as changelogs, from which `run` continues.")
]
Parallelism = Annotated[
    int | None,
    typer.Option(
        "--parallelism",
        metavar="N",
        min=1,
        help="The minimum number of Spark tasks per stage; partitions are split by key if that changes no result.",
    ),
]
CheckpointDir = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help="Keep state in DIR, and process only new records since the last run with it.",
    ),
]
AcceptInputs = Annotated[
    bool,
    typer.Option(
        "--accept-input-changes",
        help="With --checkpoint: from this run on, accept settings or column types of inputs that differ from earlier runs.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the stages and what they would read; run nothing.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace directories that exist, and the rows of tables.")]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; may be repeated.")
]
PyFiles = Annotated[
    str | None, typer.Option("--py-files", metavar="FILES", help="Python files for the workers, separated by commas.")
]
Archives = Annotated[
    str | None, typer.Option("--archives", metavar="FILES", help="Archives for the workers, separated by commas.")
]
Files = Annotated[
    str | None,
    typer.Option(
        "--files", metavar="FILES", help="Data files to place beside the modules on workers, separated by commas."
    ),
]

Report = Annotated[Format, typer.Option("--format", help="The output format of --dry-run and --compare.")]


def submit(
    file: Job,
    master: Master = None,
    inputs: Inputs = None,
    outputs: Outputs = None,
    emit: Emit = None,
    engine: Engine = None,
    start: From = None,
    end: Until = None,
    on_data_loss: DataLoss = None,
    shadow: Shadow = None,
    compare: Compare = None,
    write_state: WriteState = False,
    checkpoint: CheckpointDir = None,
    accept_input_changes: AcceptInputs = False,
    parallelism: Parallelism = None,
    dry_run: DryRun = False,
    overwrite: Overwrite = False,
    conf: Conf = None,
    py_files: PyFiles = None,
    archives: Archives = None,
    files: Files = None,
    form: Report = Format.text,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> int | None:
    """Run a topology over history, as one batch job on Spark.

    Inputs are files, tables or ranges of the log; outputs are files, tables or topics. All other topics are on the log
    that bootstrap.servers selects. A job file has the options as keys; options on the command line override them.

    Examples:
        streamkit submit orders.yaml --master 'local[*]' --input orders=orders.jsonl --output totals=out
        streamkit submit job.yaml --master 'local[*]'
    """
    from streamkit.runtime.spark.job_options import ENGINES, FINAL, UPDATES
    from streamkit.runtime.spark.submission.job_file import ON_DATA_LOSS
    from streamkit.runtime.spark.submission.request import inputs_of, outputs_of
    from streamkit.runtime.spark.submission.submit_job import check, uses_log

    one_of("--emit", emit, (None, UPDATES, FINAL))
    one_of("--engine", engine, (None, *ENGINES))
    one_of("--on-data-loss", on_data_loss, (None, *ON_DATA_LOSS))
    job = _load(file, settings, env_file)
    plan, before = job.plan, job.options
    errors = ErrorCollector()
    options = replace(
        before,
        inputs=inputs_of(plan, inputs or (), before.inputs, errors),
        outputs=outputs_of(plan, outputs or (), before.outputs, errors),
        range=replace(
            before.range,
            start=start or before.range.start,
            end=end or before.range.end,
            tolerate_loss=before.range.tolerate_loss if on_data_loss is None else on_data_loss == "warn",
        ),
        emit=emit or before.emit,
        engine=engine or before.engine,
        overwrite=overwrite or before.overwrite,
        shadow=before.shadow if shadow is None else shadow,
        compare=before.compare if compare is None else tuple(find_topic(plan, name).name for name in compare),
        write_state=write_state or before.write_state,
        checkpoint=checkpoint or before.checkpoint,
        accept_input_changes=accept_input_changes,
        parallelism=parallelism or before.parallelism,
    )
    with errors.collecting():
        check(plan, options)
    errors.raise_errors()
    if options.checkpoint is not None:
        _check_incremental(options, dry_run)
    elif accept_input_changes:
        raise UsageError(
            "--accept-input-changes needs --checkpoint: without one, there are no earlier runs to differ from"
        )
    cluster = replace(
        cluster_of(master, conf, py_files, archives, job.cluster), files=_split(files) or job.cluster.files
    )
    with silence_noticed(plan) if uses_log(plan, options) else nullcontext():
        if dry_run:
            _show_stages(plan, options, form)
            return None
        return _run(plan, options, cluster, form)


def _load(file: str, settings: list[str] | None, env_file: str | None) -> JobFile:
    """Read a job file, or make a job without options from a topology file. Raises UsageError, TopologyError."""
    from streamkit.runtime.spark.submission.job_file import JobFile, is_job_file, is_job_text, load_job

    text = stdin_text() if file == STDIN else None
    if not (is_job_file(file) if text is None else is_job_text(text)):
        return JobFile(load_plan(file, settings, env_file, text=text))

    def plan_of(topology: str, own: Mapping[str, str]) -> Plan:
        return load_plan(topology, [*(f"{name}={value}" for name, value in own.items()), *(settings or ())], env_file)

    return load_job("stdin" if file == STDIN else file, plan_of, environment(env_file), text)


def _check_incremental(options: JobOptions, dry_run: bool) -> None:
    from streamkit.runtime.spark.submission.incremental import check_options

    check_options(options)
    if dry_run:
        raise UsageError("--dry-run and --checkpoint exclude each other: only Spark reads what a checkpoint contains")


def _show_stages(plan: Plan, options: JobOptions, form: Format) -> None:
    from streamkit.runtime.spark.job import try_tasks
    from streamkit.runtime.spark.submission.submit_job import declared_counts, known_columns, prepare

    counts, columns = declared_counts(plan, options.inputs), known_columns(options.inputs)
    prepared = prepare(plan, options, counts, columns=columns, creates=False)
    try_tasks(prepared.job)
    warnings, lines = [*plan.config.warnings, *prepared.warnings], prepared.describe()
    if form is Format.json:
        print(json.dumps({"warnings": warnings, "stages": lines}, ensure_ascii=False, indent=2))
    else:
        print("\n".join([*warnings, *lines]))


def _run(plan: Plan, options: JobOptions, cluster: Cluster, form: Format) -> int | None:
    from streamkit.runtime.spark.submission.job_progress import show_progress
    from streamkit.runtime.spark.submission.request import run_job
    from streamkit.runtime.spark.submission.topic_difference import describe

    differences = run_job(plan, options, cluster, lambda line: print(line, file=sys.stderr), show_progress)
    if form is Format.json and options.compare:
        print(json.dumps([asdict(difference) for difference in differences], ensure_ascii=False, indent=2))
    elif form is Format.text:
        for difference in differences:
            print("\n".join(describe(difference)))
    return None if all(difference.is_none for difference in differences) else DIFFERS


def one_of(option: str, value: str | None, known: tuple[str | None, ...]) -> None:
    """Raise UsageError if the value of an option is not one of the known values."""
    if value not in known:
        raise UsageError(f"{option} {value}: expected {' or '.join(word for word in known if word)}")


def cluster_of(
    master: str | None,
    conf: list[str] | None,
    py_files: str | None,
    archives: str | None,
    before: Cluster | None = None,
) -> Cluster:
    """Return the cluster of a job; options that are given override those of `before`. Raises UsageError."""
    from streamkit.runtime.spark.spark_session import Cluster

    before = before or Cluster()
    return Cluster(
        master or before.master,
        {**before.settings, **_parse_conf(conf)},
        _split(py_files) or before.py_files,
        _split(archives) or before.archives,
        "--verbose" in sys.argv,
    )


def _parse_conf(texts: list[str] | None) -> dict[str, str]:
    pairs = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--conf {text}: expected KEY=VALUE")
        pairs[name] = value
    return pairs


def _split(text: str | None) -> list[str]:
    return [item for item in (text or "").split(",") if item]


# Inputs `TOPIC=PLACE` of commands that take test data: samples of files and tables, which Spark reads.


SampleLimit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        min=1,
        help="The number of records to read for each --input TOPIC=PLACE; default 100.",
    ),
]
SampleConf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark, which reads TOPIC=PLACE; may be repeated."),
]


def is_place(text: str) -> bool:
    """Return whether an input is TOPIC=PLACE rather than a file of records."""
    return "=" in text and not os.path.exists(text)


def check_sample_options(inputs: Sequence[str], limit: int | None, conf: list[str] | None) -> None:
    """Raise UsageError if there are options for samples, but no sample."""
    for option, value in (("--limit", limit), ("--conf", conf)):
        if value is not None and not any(map(is_place, inputs)):
            raise UsageError(f"{option} needs an input of the form --input TOPIC=PLACE, as in submit")


def sample_of(plan: Plan, inputs: Sequence[str], limit: int | None, conf: list[str] | None) -> list[dict[str, Json]]:
    """Return the first records of inputs TOPIC=PLACE, which need Spark. Raises UsageError and other StreamkitErrors."""
    from streamkit.runtime.spark.submission.lake_sample import LIMIT, sample
    from streamkit.runtime.spark.submission.request import inputs_of

    for text in inputs:
        if not is_place(text):
            raise UsageError(f"--input {text}: expected TOPIC=PLACE, as in submit")
    return sample(plan, inputs_of(plan, inputs), limit or LIMIT, cluster_of(None, conf, None, None))
