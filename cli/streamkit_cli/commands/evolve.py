"""`streamkit evolve`: a new aggregate with its past, in a running application."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit.errors import UsageError
from streamkit.serdes.plain import Document
from streamkit_cli.commands.migrate import New, Old, Stores, read_version, renames_of
from streamkit_cli.commands.submit import Archives, Conf, Master, PyFiles, cluster_of, one_of
from streamkit_cli.guard import FAILED, print_message
from streamkit_cli.loading import STDIN
from streamkit_cli.options import EnvFile, Format, Settings, Shown

if TYPE_CHECKING:
    from streamkit.runtime.spark.evolution.evolution import Evolution
    from streamkit.runtime.spark.evolution.new_stores import NewStores
    from streamkit.runtime.spark.submission.spark_session import Cluster
    from streamkit.transport import Transport

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

EXAMPLES = (
    "streamkit evolve orders-v1.yaml orders-v2.yaml --checkpoint evolving --master 'local[*]'",
    "streamkit evolve orders-v1.yaml orders-v2.yaml --checkpoint s3a://lake/evolving --wait",
)
"""The examples of the help."""


def command(
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
    """
    from streamkit.runtime.spark.evolution.evolution import Evolution
    from streamkit_cli.logs import opened

    if STDIN in (old, new):
        raise UsageError("evolve reads both versions from files, and not from stdin")
    one_of("--on-data-loss", on_data_loss, ("error", "warn"))
    before, after = (read_version(file, "evolve", settings, env_file) for file in (old, new))
    cluster = cluster_of(master, conf, py_files, archives)

    def evolution_on(transport: Transport) -> Evolution:
        return Evolution(before, after, transport, folder, renames_of(stores), on_data_loss == "warn")

    with opened(after, creates=False) as transport:
        found = evolution_on(transport).find()
    output = _Output(after.application, list(found.changelogs), form)
    if not found.changelogs:
        output.end("no store is new: `streamkit migrate` moves the state of the others", True)
        return None
    with opened(after) as transport:
        evolution = evolution_on(transport)
        output.line(f"{after.application}: new stores: {', '.join(found.changelogs)}")
        is_done = evolution.is_done(found)
        if is_done and evolution.has_begun(found):
            topics = ", ".join(topic.name for topic in found.changelogs.values())
            output.step("done", f"{new} has run since; if {old} ran after it, delete {topics}, and repeat")
        members = () if is_done or wait else evolution.members()
        if members and evolution.is_complete(found):
            print_message(
                f"group {after.application} is active with {len(members)} members, and the changelogs are complete up to offsets "
                f"that it has passed: if the members run {new}, nothing is to do; if they run {old}, stop all instances, and "
                "repeat the command"
            )
            output.end("", False)
            return FAILED
        if is_done or _take_steps(evolution, found, cluster, wait, output):
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
    from streamkit.runtime.spark.submission.job_progress import show_progress
    from streamkit.runtime.spark.submission.ship import ship
    from streamkit.runtime.spark.submission.spark_session import open_session

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
                text = f"group {stores.plan.application} is active with {len(members)} members: stop all instances"
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
