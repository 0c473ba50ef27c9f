"""`streamkit submit`: history through a topology, as a batch job on Spark."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamkit.errors import UsageError

from .loading import find_topic, load_plan
from .options import EnvFile, File, Settings

if TYPE_CHECKING:
    from streamkit.plan.model import Plan

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
    overwrite: Overwrite = False,
    conf: Conf = None,
    py_files: PyFiles = None,
    archives: Archives = None,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> None:
    """Run a topology over history, as one batch job on Spark.

    Inputs are files or ranges of the log, outputs files or topics, in the form of records.
    """
    from streamkit.runtime.spark.options import FINAL, UPDATES, JobOptions
    from streamkit.runtime.spark.session import Cluster, open_session
    from streamkit.runtime.spark.submit import check, submit

    if emit not in (None, UPDATES, FINAL):
        raise UsageError(f"--emit {emit}: expected updates or final")
    plan = load_plan(file, settings, env_file)
    options = JobOptions(_inputs(plan, inputs), _outputs(plan, outputs), emit, overwrite=overwrite)
    check(plan, options)
    cluster = Cluster(master, _pairs(conf), _list(py_files), _list(archives), "--verbose" in sys.argv)
    spark = open_session(cluster, f"streamkit {plan.application}")
    try:
        submit(plan, options, spark)
    finally:
        spark.stop()


def _inputs(plan: Plan, texts: list[str] | None) -> dict[str, Any]:
    from streamkit.runtime.spark.options import parse_place
    from streamkit.runtime.spark.stages import matching

    found = {}
    for text in texts or ():
        name, place = parse_place(text, "--input")
        topic = name if matching(plan, name) else find_topic(plan, name).name
        if topic in found:
            raise UsageError(f"--input {name}: given twice")
        if place is not None:
            found[topic] = place
    return found


def _outputs(plan: Plan, texts: list[str] | None) -> dict[str, Any]:
    from streamkit.runtime.spark.options import REST, parse_place
    from streamkit.runtime.spark.stages import has_routes

    entries = {topic.entry: topic.name for topic in plan.external_topics.values()}
    found = {}
    for text in texts or ():
        name, place = parse_place(text, "--output")
        topic = entries.get(name, name)
        if name not in entries and name != REST and not has_routes(plan):
            topic = find_topic(plan, name).name
        if topic in found:
            raise UsageError(f"--output {name}: given twice")
        found[topic] = place
    return found


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
