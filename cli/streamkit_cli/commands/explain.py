"""`streamkit explain`: what the steps of a file make of a record that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from streamkit_cli.loading import load_plan
from streamkit_cli.options import EnvFile, File, Format, Settings, Shown

if TYPE_CHECKING:
    from streamkit.plan.model import Plan
    from streamkit.runtime.execution.dead_letters import DeadLetter
    from streamkit.runtime.tracing import Visit
    from streamkit.serdes.plain import Json

Letter = Annotated[
    str,
    typer.Option(
        "--dead-letter",
        metavar="PLACE",
        help="The dead letter of the record: its offset, or TOPIC-PARTITION@OFFSET as replay shows it.",
        show_default=False,
    ),
]
EXAMPLES = (
    "streamkit explain orders.yaml --dead-letter 3",
    "streamkit explain orders.yaml --dead-letter broken-0@3 --format json",
)
"""The examples of the help."""
STATE = (
    "The record goes through the file as it is now, with the stores as their changelogs are now, not as they were when "
    "it failed. Nothing is written."
)


def command(
    file: File,
    letter: Letter,
    form: Shown = Format.text,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> None:
    """Show what each step does with a record that failed and became a dead letter.

    Prints the tree of try --trace for the record's original bytes, with the state that is on the log now: the stores
    are read from their changelogs into memory. The application may be running; nothing is written.
    """
    from streamkit.runtime.dead_letter_trace import explain, find_letter
    from streamkit_cli.logs import opened
    from streamkit_cli.trace_output import trace_writer

    plan = load_plan(file, settings, env_file)
    with opened(plan, creates=False) as transport:
        dead = find_letter(plan, transport, letter)
        found = explain(plan, transport, dead)
    record, fails = _record(plan, dead), found.failure is not None or any(map(_fails, found.visits))
    if form is Format.text:
        print(f"{_name(dead)}: {dead.error}{f' at {dead.step}' if dead.step else ''}: {dead.message}\n{STATE}\n")
    write = trace_writer(
        plan, form, {} if form is Format.text else {"dead_letter": _data(dead), "state": STATE, "fails": fails}
    )
    write(f"{dead.topic}-{dead.partition}@{dead.offset}", record, found.visits, found.output)
    if form is Format.text:
        end = f", and ends the application: {found.failure}" if found.failure else "."
        print(f"It fails again{end}" if fails else "It does not fail now.")


def _fails(visit: Visit) -> bool:
    return visit.failure is not None or any(map(_fails, visit.visits))


def _name(dead: DeadLetter) -> str:
    return f"{dead.place.topic}-{dead.place.partition}@{dead.place_offset}"


def _record(plan: Plan, dead: DeadLetter) -> dict[str, Json]:
    from streamkit.runtime.records import RecordJson, headers_to_json

    key, value = RecordJson(plan).decode_source(dead.topic, dead.key, dead.value)
    headers = {"headers": headers_to_json(dead.headers)} if dead.headers else {}
    return {"topic": dead.topic, "key": key, "value": value, "timestamp": dead.timestamp, **headers}


def _data(dead: DeadLetter) -> dict[str, Json]:
    return {
        "topic": dead.place.topic,
        "partition": dead.place.partition,
        "offset": dead.place_offset,
        "error": dead.error,
        "message": dead.message,
        "step": dead.step,
    }
