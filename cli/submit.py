"""`streamkit submit`: history through a topology, as a batch job on Spark."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamkit.errors import UsageError
from streamkit.plan.lookup import find_topic

from .loading import load_plan
from .options import EnvFile, File, Settings

if TYPE_CHECKING:
    from streamkit.plan.model import Plan
    from streamkit.runtime.spark.options import JobOptions

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
        help="Where a topic's records are: JSON Lines, Parquet, or PATH,format=…; without PATH, the log. Repeatable.",
    ),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        metavar="TOPIC[=DIR]",
        help="Where to write a topic: a new directory, or DIR,format=parquet; without DIR, the log; * is all others.",
    ),
]
Emit = Annotated[
    str | None,
    typer.Option("--emit", metavar="updates|final", help="Every update, or the last of each key (default for tables)."),
]
From = Annotated[
    str, typer.Option("--from", metavar="POSITION", help="earliest, committed, a time, or a JSON file of offsets.")
]
Until = Annotated[str, typer.Option("--until", metavar="POSITION", help="latest, a time, or a JSON file of offsets.")]
DataLoss = Annotated[
    str,
    typer.Option(
        "--on-data-loss", metavar="error|warn", help="What to do where retention has removed what --from says."
    ),
]
Shadow = Annotated[
    str, typer.Option("--shadow", metavar="SUFFIX", help="Write to topics whose names end so, instead of the topics.")
]
Compare = Annotated[
    list[str] | None,
    typer.Option("--compare", metavar="TOPIC", help="Report how the result differs from the topic; exit 1 if it does."),
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
    parallelism: Parallelism = 1,
    dry_run: DryRun = False,
    overwrite: Overwrite = False,
    conf: Conf = None,
    py_files: PyFiles = None,
    archives: Archives = None,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> int | None:
    """Run a topology over history, as one batch job on Spark.

    Inputs are files or ranges of the log, outputs files or topics, in the form of records. What no option names is on the
    log that bootstrap.servers says.
    """
    from streamkit.runtime.spark.options import FINAL, UPDATES, JobOptions, Range
    from streamkit.runtime.spark.request import inputs_of, outputs_of
    from streamkit.runtime.spark.session import Cluster
    from streamkit.runtime.spark.submit import check

    _one_of("--emit", emit, (None, UPDATES, FINAL))
    _one_of("--on-data-loss", on_data_loss, ("error", "warn"))
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
        parallelism,
    )
    check(plan, options)
    if dry_run:
        _show_stages(plan, options)
        return None
    cluster = Cluster(master, _pairs(conf), _list(py_files), _list(archives), "--verbose" in sys.argv)
    return _run(plan, options, cluster)


def _show_stages(plan: Plan, options: JobOptions) -> None:
    from streamkit.runtime.spark.submit import declared_counts, prepare
    from streamkit.runtime.spark.trial import try_tasks

    prepared = prepare(plan, options, declared_counts(plan, options.inputs))
    try_tasks(prepared.job)
    for line in (*plan.config.warnings, *prepared.warnings, *prepared.describe()):
        print(line)


def _run(plan: Plan, options: JobOptions, cluster: Any) -> int | None:
    from streamkit.runtime.spark.compare import describe
    from streamkit.runtime.spark.progress import shown
    from streamkit.runtime.spark.request import run_job

    differences = run_job(plan, options, cluster, lambda line: print(line, file=sys.stderr), shown)
    for difference in differences:
        print("\n".join(describe(difference)))
    return None if all(difference.is_none for difference in differences) else DIFFERS


def _one_of(option: str, value: str | None, known: tuple[str | None, ...]) -> None:
    if value not in known:
        raise UsageError(f"{option} {value}: expected {' or '.join(each for each in known if each)}")


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
