"""`streamkit reset-offsets` moves the offsets from which an application starts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit.errors import UsageError
from streamkit_cli.guard import FAILED, print_message
from streamkit_cli.loading import load_plan, opened
from streamkit_cli.options import TIME_HELP, EnvFile, File, Format, Settings, Shown, topics_in_list
from streamkit_cli.tables import table

if TYPE_CHECKING:
    from streamkit.runtime.operations.reset import LocalState, Reset
    from streamkit.runtime.operations.topic_reading import Target
    from streamkit.serdes.plain import Json


ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="Move to the first records; the default.")]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="Move to the ends.")]
ToDatetime = Annotated[
    str | None,
    typer.Option(
        "--to-datetime",
        metavar="TIME",
        help=f"Move to the first record at or after a time: {TIME_HELP}.",
    ),
]
ToOffset = Annotated[int | None, typer.Option("--to-offset", metavar="N", help="Move to an offset.")]
ByDuration = Annotated[
    str | None,
    typer.Option("--by-duration", metavar="DURATION", help="Move to this long before now: PnDTnHnMnS, or 5m, 1h."),
]
ShiftBy = Annotated[
    int | None, typer.Option("--shift-by", metavar="N", help="Move by a number of records, back if negative.")
]
FromFile = Annotated[
    str | None, typer.Option("--from-file", metavar="CSV", help="Move to the offsets in lines TOPIC,PARTITION,OFFSET.")
]
Skip = Annotated[
    str | None,
    typer.Option(
        "--skip",
        metavar="TOPIC-PARTITION@OFFSET",
        help="Skip this record, which must be the group's next one; keep internal topics and state.",
    ),
]
InputTopics = Annotated[
    list[str] | None,
    typer.Option(
        "--input-topics",
        metavar="TOPICS",
        help="Only these input topics, separated by commas; by default all that the file reads.",
        autocompletion=topics_in_list,
    ),
]
IntermediateTopics = Annotated[
    list[str] | None,
    typer.Option(
        "--intermediate-topics",
        metavar="TOPICS",
        help="Topics to skip to their ends; by default those that the file both writes and reads.",
        autocompletion=topics_in_list,
    ),
]
InternalTopics = Annotated[
    list[str] | None,
    typer.Option("--internal-topics", metavar="TOPICS", help="Delete only these internal topics."),
]
Force = Annotated[bool, typer.Option("--force", help="Remove remaining members from the group.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would change; the default.")]
Execute = Annotated[bool, typer.Option("--execute", help="Make the changes.")]
Server = Annotated[
    str | None,
    typer.Option("--bootstrap-server", metavar="HOST:PORT", help="The same as --set bootstrap.servers=HOST:PORT."),
]

ConfigFile = Annotated[
    str | None,
    typer.Option("--config-file", metavar="FILE", help="A properties file of settings; --set takes precedence."),
]


def reset_offsets(
    file: File,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_datetime: ToDatetime = None,
    to_offset: ToOffset = None,
    by_duration: ByDuration = None,
    shift_by: ShiftBy = None,
    from_file: FromFile = None,
    skip: Skip = None,
    input_topics: InputTopics = None,
    intermediate_topics: IntermediateTopics = None,
    internal_topics: InternalTopics = None,
    force: Force = False,
    dry_run: DryRun = False,
    execute: Execute = False,
    form: Shown = Format.text,
    bootstrap_server: Server = None,
    config_file: ConfigFile = None,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> int:
    """Reset an application so that it processes its input again.

    Moves the offsets of its input topics, and deletes its internal topics and its local state. With --skip it only
    moves one partition past the failing record. Nothing changes without --execute. The exit code is 1 if the group has
    active members (see --force), if a topic of --input-topics is missing, or if --skip does not name the group's next
    record.

    Examples:
        streamkit reset-offsets orders.yaml --to-datetime 2025-01-31T08:00Z --execute
        streamkit reset-offsets orders.yaml --skip orders-0@17 --execute
    """
    from streamkit.runtime.operations import reset as resets

    if dry_run and execute:
        raise UsageError("--dry-run and --execute exclude each other")
    target = _target(to_earliest, to_latest, to_datetime, to_offset, by_duration, shift_by, from_file, skip)
    lists = {
        "--input-topics": input_topics,
        "--intermediate-topics": intermediate_topics,
        "--internal-topics": internal_topics,
    }
    chosen_lists = [name for name, values in lists.items() if values is not None]
    if skip is not None and chosen_lists:
        raise UsageError(f"--skip and {chosen_lists[0]} exclude each other: --skip already names the record's topic")
    chosen = resets.Choice(_names(input_topics), _names(intermediate_topics), _names(internal_topics))
    plan = load_plan(file, _settings(config_file, settings, bootstrap_server), env_file)
    with opened(plan, creates=execute) as transport:
        if skip is not None:
            reset = resets.prepare_skip(plan, transport, skip, force=force)
        else:
            reset = resets.prepare(plan, transport, target, chosen)
        if execute:
            resets.execute(plan, transport, reset, force=force)
    print(json.dumps(_as_json(reset, execute), indent=2) if form is Format.json else _as_text(reset, execute))
    if reset.members and not force:
        print_message(f"group {reset.application} is active: --execute would be refused without --force")
        return FAILED
    if reset.missing and chosen.inputs is not None:
        print_message(f"no such topic: {', '.join(reset.missing)}")
        return FAILED
    return 0


def _target(
    earliest: bool,
    latest: bool,
    moment: str | None,
    offset: int | None,
    duration: str | None,
    shift: int | None,
    path: str | None,
    skip: str | None,
) -> Target:
    from streamkit.runtime.operations import topic_reading as targets

    makers = {
        "--to-earliest": (lambda: targets.Target()) if earliest else None,
        "--to-latest": (lambda: targets.Target("latest")) if latest else None,
        "--to-datetime": None if moment is None else lambda: targets.to_datetime(moment),
        "--to-offset": None if offset is None else lambda: targets.Target("offset", offset),
        "--by-duration": None if duration is None else lambda: targets.by_duration(duration),
        "--shift-by": None if shift is None else lambda: targets.Target("shift", shift),
        "--from-file": None if path is None else lambda: targets.from_file(path),
        "--skip": None if skip is None else lambda: targets.Target(),
    }
    names = [name for name, make in makers.items() if make is not None]
    if len(names) > 1:
        raise UsageError(f"{' and '.join(names)} exclude each other")
    make = makers[names[0]] if names else None
    return make() if make is not None else targets.Target()


def _settings(config_file: str | None, settings: list[str] | None, server: str | None) -> list[str]:
    from streamkit.config import read_properties

    of_file = read_properties(config_file).items() if config_file else ()
    address = [f"bootstrap.servers={server}"] if server else []
    return [*(f"{name}={value}" for name, value in of_file), *(settings or ()), *address]


def _names(values: list[str] | None) -> list[str] | None:
    """Return the names in an option that can be repeated, and whose values are separated by commas."""
    return None if values is None else [name.strip() for value in values for name in value.split(",") if name.strip()]


def _as_json(reset: Reset, executed: bool) -> dict[str, Json]:
    return {
        "application": reset.application,
        "executed": executed,
        "offsets": [
            {
                "topic": change.place.topic,
                "partition": change.place.partition,
                "role": change.role,
                "before": change.before,
                "after": change.after,
                "note": change.note,
            }
            for change in reset.offsets
        ],
        "missing_topics": list(reset.missing),
        "internal_topics": [{"topic": topic.name, "in_topology": topic.known} for topic in reset.internals],
        "members": list(reset.members),
        "state": _state_as_json(reset.state[0]),
        "other_instances": [*map(_state_as_json, reset.state[1:])],
    }


def _state_as_json(state: LocalState) -> dict[str, Json]:
    return {"directory": str(state.directory), "entries": list(state.entries)}


def _as_text(reset: Reset, executed: bool) -> str:
    if reset.skips:
        outcome = "skips one record" if executed else "would skip one record; add --execute to do it"
    else:
        outcome = "was reset" if executed else "would be reset as follows; add --execute to do it"
    parts = [f"{reset.application} {outcome}"]
    if reset.offsets:
        rows = [
            (
                *change.place,
                change.role,
                change.before,
                change.before if change.after is None else change.after,
                change.note,
            )
            for change in reset.offsets
        ]
        parts.append(table(("TOPIC", "PARTITION", "ROLE", "COMMITTED", "NEW", "NOTE"), rows, numbers=(1, 3, 4)))
    if reset.missing:
        parts.append(_section("Input topics that do not exist", reset.missing))
    if reset.internals:
        names = [topic.name if topic.known else f"{topic.name}  (not in the topology)" for topic in reset.internals]
        parts.append(_section("Internal topics deleted" if executed else "Internal topics to delete", names))
    for state in reset.state:
        if state.entries:
            what = "deleted" if executed else "to delete"
            parts.append(_section(f"Local state {what} in {state.directory}", [", ".join(state.entries)]))
    if reset.members:
        parts.append(_section("Members removed" if executed else "Active members", reset.members))
    return "\n\n".join(parts)


def _section(title: str, lines: Iterable[str]) -> str:
    return "\n".join([f"{title}:", *(f"  {line}" for line in lines)])
