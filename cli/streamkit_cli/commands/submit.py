"""`streamkit submit`: history through a topology, as a batch job on Spark."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit.errors import UsageError
from streamkit.plan.lookup import find_topic
from streamkit.plan.model import Plan
from streamkit_cli.loading import load_plan
from streamkit_cli.options import EnvFile, File, Format, Settings, topics

if TYPE_CHECKING:
    from streamkit.runtime.spark.submission.job_options import JobOptions
    from streamkit.runtime.spark.submission.spark_session import Cluster

DIFFERS = 1

Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="local[*], spark://HOST:PORT, k8s://…, yarn or sc://HOST."),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="TOPIC[=PATH]",
        help="Where a topic's records are: files, or a table; PATH,key=COLUMN,… says which columns; without PATH, the log. Repeatable.",
        autocompletion=topics,
    ),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        metavar="TOPIC[=DIR]",
        help="Where to write a topic: a new directory of JSON Lines, or DIR,format=parquet as columns; without DIR, the log; * is all others.",
        autocompletion=topics,
    ),
]
Emit = Annotated[
    str | None,
    typer.Option("--emit", metavar="updates|final", help="Every update, or the last of each key (default for tables)."),
]
From = Annotated[
    str,
    typer.Option(
        "--from", metavar="POSITION", help="earliest, committed, a time as in consume, or a JSON file of offsets."
    ),
]
Until = Annotated[
    str,
    typer.Option(
        "--until", metavar="POSITION", help="latest, committed, a time as in consume, or a JSON file of offsets."
    ),
]
DataLoss = Annotated[
    str,
    typer.Option(
        "--on-data-loss",
        metavar="error|warn",
        help="What to do where retention has removed the beginning of the range.",
    ),
]
Shadow = Annotated[
    str, typer.Option("--shadow", metavar="SUFFIX", help="Write to topics whose names end so, instead of the topics.")
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
    bool, typer.Option("--write-state", help="Write the final stores as changelogs, for `run` to go on from.")
]
Parallelism = Annotated[
    int,
    typer.Option(
        "--parallelism",
        metavar="N",
        min=1,
        help="At least so many Spark tasks a stage, cutting partitions by key where that changes no result.",
    ),
]
CheckpointDir = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help="Keep state in DIR, and process only what is new since the last run with it.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the stages and what they would read; run nothing.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace directories that exist.")]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's; may be repeated.")
]
PyFiles = Annotated[
    str | None, typer.Option("--py-files", metavar="FILES", help="Python files for the workers, separated by commas.")
]
Archives = Annotated[
    str | None, typer.Option("--archives", metavar="FILES", help="Archives for the workers, separated by commas.")
]

Report = Annotated[Format, typer.Option("--format", help="How --dry-run and --compare print what they find.")]
EXAMPLES = (
    "streamkit submit orders.yaml --master 'local[*]' --input orders=orders.jsonl --output totals=out",
    "streamkit submit orders.yaml --from -7d --dry-run",
)
"""The examples of the help."""


def command(
    file: File,
    master: Master = None,
    inputs: Inputs = None,
    outputs: Outputs = None,
    emit: Emit = None,
    start: From = "earliest",
    end: Until = "latest",
    on_data_loss: DataLoss = "error",
    shadow: Shadow = "",
    compare: Compare = None,
    write_state: WriteState = False,
    checkpoint: CheckpointDir = None,
    parallelism: Parallelism = 1,
    dry_run: DryRun = False,
    overwrite: Overwrite = False,
    conf: Conf = None,
    py_files: PyFiles = None,
    archives: Archives = None,
    form: Report = Format.text,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> int | None:
    """Run a topology over history, as one batch job on Spark.

    Inputs are files or ranges of the log, outputs files or topics, in the form of records. All other topics
    are on the log that bootstrap.servers names.
    """
    from streamkit.runtime.spark.submission.job_options import FINAL, UPDATES, JobOptions, Range
    from streamkit.runtime.spark.submission.request import inputs_of, outputs_of
    from streamkit.runtime.spark.submission.submit_job import check, uses_log
    from streamkit_cli.logs import silence_noticed

    one_of("--emit", emit, (None, UPDATES, FINAL))
    one_of("--on-data-loss", on_data_loss, ("error", "warn"))
    plan = load_plan(file, settings, env_file)
    options = JobOptions(
        inputs_of(plan, inputs or ()),
        outputs_of(plan, outputs or ()),
        emit,
        Range(start, end, on_data_loss == "warn"),
        overwrite,
        shadow,
        tuple(find_topic(plan, name).name for name in compare or ()),
        write_state,
        checkpoint,
        parallelism,
    )
    check(plan, options)
    if checkpoint is not None:
        _check_incremental(options, dry_run)
    cluster = cluster_of(master, conf, py_files, archives)
    with silence_noticed(plan) if uses_log(plan, options) else nullcontext():
        if dry_run:
            _show_stages(plan, options, form)
            return None
        return _run(plan, options, cluster, form)


def _check_incremental(options: JobOptions, dry_run: bool) -> None:
    from streamkit.runtime.spark.submission.incremental import check_options

    check_options(options)
    if dry_run:
        raise UsageError("--dry-run and --checkpoint exclude each other: only Spark reads what a checkpoint contains")


def _show_stages(plan: Plan, options: JobOptions, form: Format) -> None:
    from streamkit.runtime.spark.submission.submit_job import declared_counts, prepare
    from streamkit.runtime.spark.submission.trial import try_tasks

    prepared = prepare(plan, options, declared_counts(plan, options.inputs), creates=False)
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
    """Raise UsageError where an option has none of the known values."""
    if value not in known:
        raise UsageError(f"{option} {value}: expected {' or '.join(each for each in known if each)}")


def cluster_of(master: str | None, conf: list[str] | None, py_files: str | None, archives: str | None) -> Cluster:
    """Return where a job runs, from the options. Raises UsageError."""
    from streamkit.runtime.spark.submission.spark_session import Cluster

    return Cluster(master, _pairs(conf), _list(py_files), _list(archives), "--verbose" in sys.argv)


def _pairs(texts: list[str] | None) -> dict[str, str]:
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--conf {text}: expected KEY=VALUE")
        found[name] = value
    return found


def _list(text: str | None) -> list[str]:
    return [each for each in (text or "").split(",") if each]
