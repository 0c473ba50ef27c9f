"""`streamkit migrate` moves state from one version to the next; `streamkit evolve` fills the stores that a version adds."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit.errors import UsageError
from streamkit.serdes.plain import Document
from streamkit.suggestions import number_of
from streamkit_cli.commands.submit import Archives, Conf, Master, PyFiles, cluster_of, one_of
from streamkit_cli.guard import FAILED, print_message
from streamkit_cli.loading import STDIN, load_plan, opened, require_file
from streamkit_cli.options import EnvFile, Format, Settings, Shown

if TYPE_CHECKING:
    from streamkit.plan.model import Plan
    from streamkit.runtime.operations.migration import Migration
    from streamkit.runtime.spark.evolution.evolution import Evolution
    from streamkit.runtime.spark.evolution.new_stores import NewStores
    from streamkit.runtime.spark.spark_session import Cluster
    from streamkit.serdes.plain import Json
    from streamkit.transport import Transport

Old = Annotated[
    str, typer.Argument(metavar="OLD", help="The topology file of the version that ran.", show_default=False)
]
New = Annotated[str, typer.Argument(metavar="NEW", help="The topology file of the next version.", show_default=False)]
Execute = Annotated[bool, typer.Option("--execute", help="Execute the steps; without it, they are only listed.")]
Stores = Annotated[
    list[str] | None,
    typer.Option(
        "--store",
        metavar="OLD=NEW",
        help="The new name of a store, where the files leave it open; OLD= for one that starts empty. May be repeated.",
    ),
]


def migrate(
    old: Old,
    new: New,
    execute: Execute = False,
    stores: Stores = None,
    form: Shown = Format.text,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> int:
    """Move the state of a stopped application to the names and the form that its next version expects.

    Copies changelogs to their new names, serdes and partitions, drains repartition topics, and keeps offsets and task
    directories. It may be repeated after a crash. Exit code 1 if a step is refused or the group has members.

    Examples:
        streamkit migrate orders-v1.yaml orders-v2.yaml
        streamkit migrate orders-v1.yaml orders-v2.yaml --store totals=totals-by-day --execute
    """
    from streamkit.runtime.operations.migration import Migrator, shown_members

    if STDIN in (old, new):
        raise UsageError("migrate reads both versions from files, and not from stdin")
    renames = renames_of(stores)
    before, after = (read_version(file, "migrate", settings, env_file) for file in (old, new))
    if not execute and after.registry is not None:
        after.registry.start_dry_run()  # rows are converted, which would register the schema of a new subject
    with opened(after, creates=execute) as transport:
        migrator = Migrator(before, after, transport, renames)
        if execute:
            migrator.execute()
        migration = migrator.prepare()
    print(
        json.dumps(_data(migration, execute), ensure_ascii=False, indent=2)
        if form is Format.json
        else _text(migration, execute)
    )
    if migration.members:
        print_message(f"{shown_members(migration.members)}: stop all instances first")
    is_well = migration.is_done if execute else migration.is_possible
    return 0 if is_well and not migration.members else FAILED


def read_version(file: str, command_name: str, settings: list[str] | None, env_file: str | None) -> Plan:
    """Return the plan of a version. Raises UsageError for a description, and what `load_plan` raises."""
    from streamkit.changes.of_describe import is_description

    require_file(file)
    if is_description(Path(file).read_bytes().decode(errors="replace")):
        raise UsageError(
            f"{file}: {command_name} needs a topology file, since a description has neither serdes nor a log"
        )
    return load_plan(file, settings, env_file)


def renames_of(stores: list[str] | None) -> dict[str, str]:
    """Return the pairs of `--store`. Raises UsageError."""
    renames: dict[str, str] = {}
    for pair in stores or ():
        old, equals, new = pair.partition("=")
        if not equals or not old or old in renames:
            raise UsageError(f"--store {pair}: expected OLD=NEW, once for each store")
        renames[old] = new
    return renames


def _data(migration: Migration, executed: bool) -> dict[str, Json]:
    return {
        "application": migration.application,
        "executed": executed,
        "members": sorted(member for members in migration.members.values() for member in members),
        "steps": [asdict(step) for step in migration.steps],
        "left": [
            {name: getattr(finding, name) for name in ("verdict", "subject", "name", "message", "action")}
            for finding in migration.left
        ],
    }


def _text(migration: Migration, executed: bool) -> str:
    lines = [f"{migration.application}: {_summary(migration, executed)}"]
    for number, step in enumerate(migration.steps, 1):
        count = "" if step.count is None else f" ({step.count})"
        lines.append(f"  {number}. {step.state}: {step.text}{count}")
        if step.reason:
            lines.append(f"     {step.subject}: {step.reason}")
    if migration.left:
        lines.append("Left to you:")
        for finding in migration.left:
            lines.append(f"  {finding.verdict}: {finding.message}")
            if finding.action:
                lines.append(f"    {finding.action}")
    return "\n".join(lines)


def _summary(migration: Migration, executed: bool) -> str:
    if not migration.steps:
        return "nothing is left to do" if executed else "nothing is to do"
    if not executed:
        return "nothing is changed without --execute"
    if not migration.is_done:
        return "the log was written to meanwhile: stop all programs that do, and repeat"
    return "all steps are done"


# `streamkit evolve`: a new aggregate with its past, in a running application.


Folder = Annotated[
    str,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help="Where to keep the state of the new stores until they are complete.",
        show_default=False,
    ),
]
DataLoss = Annotated[
    str,
    typer.Option(
        "--on-data-loss", metavar="error|warn", help="What to do if retention has removed the beginning of an input."
    ),
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait until all instances are stopped, with the Spark session open.")
]


def evolve(
    old: Old,
    new: New,
    folder: Folder,
    wait: Wait = False,
    stores: Stores = None,
    on_data_loss: DataLoss = "error",
    master: Master = None,
    conf: Conf = None,
    py_files: PyFiles = None,
    archives: Archives = None,
    form: Shown = Format.text,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> int | None:
    """Compute the stores that the next version adds from all history, while the old version runs.

    Then stop all instances and repeat the command, or use --wait: it processes the few remaining records, and writes
    changelogs and offsets from which the new version continues. It stops no instance, and may be repeated after a crash
    at any point.

    Examples:
        streamkit evolve orders-v1.yaml orders-v2.yaml --checkpoint evolving --master 'local[*]'
        streamkit evolve orders-v1.yaml orders-v2.yaml --checkpoint s3a://lake/evolving --wait
    """
    from streamkit.runtime.spark.evolution.evolution import Evolution

    if STDIN in (old, new):
        raise UsageError("evolve reads both versions from files, and not from stdin")
    one_of("--on-data-loss", on_data_loss, ("error", "warn"))
    before, after = (read_version(file, "evolve", settings, env_file) for file in (old, new))
    cluster = cluster_of(master, conf, py_files, archives)

    def evolution_on(transport: Transport) -> Evolution:
        return Evolution(before, after, transport, folder, renames_of(stores), on_data_loss == "warn")

    with opened(after, creates=False) as transport:
        wanted = evolution_on(transport).find()
    output = _Output(after.application, list(wanted.changelogs), form)
    if not wanted.changelogs:
        output.end("no store is new: `streamkit migrate` moves the state of the others", True)
        return None
    with opened(after) as transport:
        evolution = evolution_on(transport)
        output.line(f"{after.application}: new stores: {', '.join(wanted.changelogs)}")
        is_done = evolution.is_done(wanted)
        if is_done and evolution.has_begun(wanted):
            topics = ", ".join(topic.name for topic in wanted.changelogs.values())
            output.step("done", f"{new} has run since; if {old} ran after it, delete {topics}, and repeat")
        members = () if is_done or wait else evolution.members()
        if members and evolution.is_complete(wanted):
            print_message(
                f"group {after.application} is active with {number_of(len(members), 'member')}, and the changelogs are complete up to offsets "
                f"that it has passed: if the members run {new}, nothing is to do; if they run {old}, stop all instances, and "
                "repeat the command"
            )
            output.end("", False)
            return FAILED
        if is_done or _take_steps(evolution, wanted, cluster, wait, output):
            output.end(f"all steps are done: `streamkit run {new}` continues", True)
            return None
        output.end("", False)
    return FAILED


class _Output:
    """The lines of the command: printed as they come, or in one JSON object at the end."""

    def __init__(self, application: str, stores: list[str], form: Format):
        self._data = {"application": application, "stores": stores}
        self._steps: list[Document] = []
        self._form = form

    def line(self, text: str) -> None:
        """Print a line of text."""
        if self._form is Format.text:
            print(text, flush=True)

    def step(self, name: str, text: str) -> None:
        """Begin a step."""
        self._steps.append({"step": name, "text": text, "reports": []})
        self.line(f"{name}: {text}")

    def report(self, text: str) -> None:
        """Add what a step has done."""
        self._steps[-1]["reports"].append(text)
        self.line(f"  {text}")

    def end(self, text: str, is_done: bool) -> None:
        """Print the last line, or the object."""
        if self._form is Format.json:
            print(json.dumps({**self._data, "steps": self._steps, "done": is_done}, ensure_ascii=False, indent=2))
        elif text:
            print(text)


def _take_steps(evolution: Evolution, stores: NewStores, cluster: Cluster, wait: bool, output: _Output) -> bool:
    """Take the steps that are possible now; return whether all are done."""
    from streamkit.runtime.spark.spark_session import open_session
    from streamkit.runtime.spark.submission.job_progress import show_progress
    from streamkit.runtime.spark.submission.request import ship

    evolution.begin(stores)
    spark = open_session(cluster, f"streamkit {stores.plan.application}")
    try:
        ship(spark, stores.plan)
        with show_progress(spark):
            if evolution.members():
                output.step("history", "while the old version runs")
                evolution.catch_up(stores, spark, output.report)
            members = evolution.members()
            if members:
                text = f"group {stores.plan.application} is active with {number_of(len(members), 'member')}: stop all instances"
                if not wait:
                    print_message(f"{text}, and repeat the command")
                    return False
                output.step("stop", text)
                evolution.wait(stores, spark, output.report)
            output.step("rest", "up to the offsets that the old version has committed")
            evolution.finish(stores, spark, output.report)
    finally:
        spark.stop()
    return True
