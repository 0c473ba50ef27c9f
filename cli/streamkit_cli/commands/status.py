"""`streamkit status` shows a running application, `streamkit lag` how far its group is behind."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit.errors import UsageError
from streamkit.http.json_client import STATUS
from streamkit.serdes.plain import Document, Json
from streamkit_cli.guard import FAILED, print_message
from streamkit_cli.loading import load_plan, opened
from streamkit_cli.options import EnvFile, File, Format, Settings, Shown
from streamkit_cli.remote import Connection, Place, TokenFile, address_of, is_url
from streamkit_cli.tables import is_coloured, red, table, time_cell

if TYPE_CHECKING:
    from streamkit.plan.model import Plan
    from streamkit.runtime.operations.group_lag import GroupLag

Check = Annotated[
    bool, typer.Option("--check", help="Exit with code 1 if the application does not process all its inputs.")
]
MaxLag = Annotated[
    int | None,
    typer.Option("--max-lag", metavar="N", min=0, help="With --check: also exit with code 1 if the lag is higher."),
]
Latency = Annotated[bool, typer.Option("--latency", help="Show how long records take, by stage of each thread.")]
_FAILING = frozenset(("ERROR", "GONE", "UNOWNED", "UNKNOWN", "PAUSED", "CREATED", "PENDING_SHUTDOWN", "NOT_RUNNING"))
"""The conditions for which --check fails; a rebalance and restoring end by themselves."""


def status(
    place: Place,
    form: Shown = Format.text,
    check: Check = False,
    max_lag: MaxLag = None,
    latency: Latency = False,
    token_file: TokenFile = None,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> int:
    """Show the instances, threads and tasks of a running application, with rates, lag and restores.

    The first line states the worst problem. If a file does not set application.server, only data from the log is shown:
    the members of the group, and the lag. With --check the exit code is 1 if an instance is GONE, PAUSED, not running
    or has an error, if inputs have no owner, or if the lag exceeds --max-lag; it is 0 during a rebalance and a restore.
    With --latency only the first lines are shown, and the milliseconds of the last minute: of each stage that records
    pass in a thread, and from their timestamps until nodes have processed them.

    Examples:
        streamkit status orders.yaml --latency
        streamkit status http://127.0.0.1:8080 --check --max-lag 1000
    """
    if max_lag is not None and not check:
        raise UsageError("--max-lag needs --check")
    if is_url(place):
        connection = Connection(place, token_file)
    else:
        plan = load_plan(place, settings, env_file)
        address = address_of(plan)
        if address is None and latency:
            raise UsageError(f"{place}: --latency asks an instance, and the file does not set application.server")
        if address is None:
            group = show_lag(plan, form)
            reasons = [] if group.members else ["the group has no members"]
            if group.members and group.unowned and not group.rebalancing:
                reasons.append(f"{len(group.unowned)} input partitions have no owner")
            return _checked(check, reasons, group.total, max_lag)
        connection = Connection(address, token_file)
    status = connection.get("/status", shape=STATUS)
    as_json = form is Format.json
    shown = json.dumps(status, indent=2, ensure_ascii=False) if as_json else _text(status, is_coloured(), latency)
    print(shown)
    problems = [
        f"{problem['condition']}: {problem['text']}"
        for problem in status["problems"]
        if problem["condition"] in _FAILING
    ]
    return _checked(check, problems, status["lag"], max_lag)


def _checked(check: bool, reasons: list[str], lag: int | None, most: int | None) -> int:
    """Print why a check fails, and return the exit code."""
    if not check:
        return 0
    if most is not None and lag is None:
        reasons = [*reasons, "the lag is not known"]
    elif most is not None and lag is not None and lag > most:
        reasons = [*reasons, f"the lag is {lag}, more than {most}"]
    for reason in reasons:
        print_message(reason)
    return FAILED if reasons else 0


def _text(status: dict[str, Document], colour: bool, latency: bool) -> str:
    """Return the state as text: the worst problem first, then the others, inputs that wait for an owner, and each instance.

    latency: after the problems only the stages and nodes of each instance.
    """
    parts = [_head(status, colour)]
    if latency:
        return "\n\n".join(
            [*parts, *(part for instance in status["instances"] for part in _instance(instance, latency))]
        )
    waiting = [partition for partition in status["inputs"] if partition["state"] in ("UNOWNED", "GONE")]
    if waiting:
        rows = [
            (
                partition["topic"],
                partition["partition"],
                partition["task"],
                partition["owner"] or "no owner",
                *_numbers(partition),
            )
            for partition in waiting
        ]
        heads = ("WAITING INPUT", "PARTITION", "TASK", "OWNER", "COMMITTED", "END", "LAG")
        parts.append(red(table(heads, rows, numbers=[1, 4, 5, 6]), colour))
    if status["drops"]:
        parts.append(_drops(status))
    for instance in status["instances"]:
        if "threads" in instance:
            parts += _instance(instance, latency)
    return "\n\n".join(parts)


_STAGES = {
    "fetch": "from its timestamp until the thread has it",
    "queue": "until it is processed, behind other tasks and commits",
    "process": "until the results of its batch are with the producer",
    "send": "until brokers have acknowledged them, linger.ms included",
    "commit": "a commit, which stops the thread",
    "markers": "a wait for the markers of the last transaction",
}
_FIGURES = ("RECORDS", "P50 MS", "P99 MS", "MAX MS")


def _milliseconds(count: int, p50: float, p99: float, most: float) -> tuple[object, ...]:
    return count, *(f"{latency:,.1f}" for latency in (p50, p99, most))


def _short(thread: str) -> str:
    return thread[thread.find("StreamThread-") :]


def _head(status: dict[str, Document], colour: bool) -> str:
    """Return the first lines: condition, lag and rate with the worst problem, then the other problems."""
    instances = status["instances"]
    answering = sum("threads" in instance for instance in instances)
    count = f"{len(instances)} instance{'' if len(instances) == 1 else 's'}"
    answers = count if answering == len(instances) else f"{answering} of {count} answer"
    totals = f"lag {_lag(status['lag'])}, {status['rate']:,.0f} records/s, {answers}"
    problems = status["problems"]
    worst = f": {problems[0]['text']}" if problems else ""
    lines = [f"{status['application']}: {status['condition']}{worst} ({totals})"]
    lines += [f"{problem['condition']}: {problem['text']}" for problem in problems[1:]]
    levels = [status["level"], *(problem["level"] for problem in problems[1:])]
    return "\n".join(red(line, colour and level == "error") for line, level in zip(lines, levels, strict=True))


def _instance(instance: dict[str, Document], latency: bool) -> list[str]:
    where = instance["address"] or "this instance"
    if latency:
        if "threads" not in instance:
            return [f"{where}: no answer"]
        threads = instance["threads"]
        order = ("count", "p50", "p99", "max")
        stages = [
            (
                _short(thread["name"]),
                stage["stage"],
                *_milliseconds(*map(stage.get, order)),
                _STAGES.get(stage["stage"]),
            )
            for thread in threads
            for stage in thread.get("stages", ())  # an instance of an earlier release has none
        ]
        nodes = [
            (task["id"], node["node"], *_milliseconds(*map(node.get, order)))
            for thread in threads
            for task in thread["tasks"]
            for node in task.get("latency", ())
        ]
        if not stages:
            return [f"{where}: no records in the last minute"]
        by_stage = ("THREAD", "STAGE", *_FIGURES, "WHAT TAKES SO LONG")
        by_node = table(("TASK", "NODE", *_FIGURES), nodes, numbers=range(2, 6))
        return [f"{where}:\n{table(by_stage, stages, numbers=range(2, 6))}", by_node]
    own_lag = _lag(instance["own_lag"])
    parts = [
        f"{where}: {instance['shown_state']}, {instance['rate']:.0f} records/s, lag of its tasks {own_lag}, "
        f"up {instance['uptime_seconds']:.0f} s"
    ]
    rows = [_row(thread, task) for thread in instance["threads"] for task in thread["tasks"] or [None]]
    heads = ("THREAD", "STATE", "TASK", "KIND", "PROCESSED", "RECORDS/S", "LAG", "STORES")
    parts.append(table(heads, rows, numbers=[4, 5, 6]))
    stores = [_part(store, part) for store in instance["stores"] for part in store["parts"]]
    if stores:
        columns = ("STORE", "TASK", "ROWS", "BYTES", "OFFSET", "END", "LAST COMMIT")
        parts.append(table(columns, stores, numbers=[2, 3, 4, 5]))
    if instance["restoring"]:
        restoring = [
            (store["task"], store["store"], store["restored"], store["total"], f"{store['rate']:.0f}", _eta(store))
            for store in instance["restoring"]
        ]
        parts.append(
            table(("RESTORING", "STORE", "RECORDS", "OF", "RECORDS/S", "ETA"), restoring, numbers=[2, 3, 4, 5])
        )
    return parts


def _drops(status: dict[str, Document]) -> str:
    """Return dropped records by task and reason, beside the records that the task has processed."""
    processed = {
        (instance["address"], task["id"]): task["processed"]
        for instance in status["instances"]
        for thread in instance.get("threads", ())
        for task in thread["tasks"]
    }
    rows = [
        (
            drop["task"],
            drop["reason"],
            drop["dropped"],
            processed.get((drop["instance"], drop["task"])),
            drop["dead_letters"],
            time_cell(drop["at_ms"]),
            drop["message"] or None,
        )
        for drop in status["drops"]
    ]
    heads = ("TASK", "DROPPED BECAUSE", "RECORDS", "OF PROCESSED", "DEAD LETTERS", "LAST", "LAST MESSAGE")
    return table(heads, rows, numbers=[2, 3, 4])


def _numbers(partition: dict[str, Json]) -> tuple[object, ...]:
    return partition["committed"], partition["end"], partition["lag"]


def _lag(lag: int | None) -> str:
    return "unknown" if lag is None else f"{lag:,}"


def _row(thread: dict[str, Document], task: dict[str, Document] | None) -> tuple[object, ...]:
    name = _short(thread["name"])
    if task is None:
        return (name, thread["state"], *[None] * 6)
    lags = [partition["lag"] for partition in task["inputs"]]
    lag = None if None in lags else sum(lags)
    stores = ", ".join(task["stores"]) or None
    return (name, thread["state"], task["id"], task["kind"], task["processed"], f"{task['rate']:.0f}", lag, stores)


def _part(store: dict[str, Json], part: dict[str, Document]) -> tuple[object, ...]:
    # Files do not count their rows, so that it is an estimate.
    about = "" if part["bytes"] is None or part["rows"] is None else "~"
    rows = None if part["rows"] is None else f"{about}{part['rows']:,}"
    bytes_ = None if part["bytes"] is None else f"{part['bytes']:,}"
    return (store["name"], part["task"], rows, bytes_, part["offset"], part["end"], time_cell(part["committed_ms"]))


def _eta(restoring: dict[str, Json]) -> str | None:
    return None if restoring["eta_seconds"] is None else f"{restoring['eta_seconds']:.0f} s"


# `streamkit lag`, also of an application that does not run.


Most = Annotated[int | None, typer.Option("--max", metavar="N", min=0, help="Exit with code 1 if the total is higher.")]


def lag(
    file: File, form: Shown = Format.text, most: Most = None, settings: Settings = None, env_file: EnvFile = None
) -> int:
    """Show owner, committed offset, end and lag of every input partition, including internal topics.

    Examples:
        streamkit lag orders.yaml
        streamkit lag orders.yaml --max 1000 --format json
    """
    group = show_lag(load_plan(file, settings, env_file), form)
    if most is not None and group.total > most:
        print_message(f"the lag is {group.total}, more than {most}")
        return FAILED
    return 0


def show_lag(plan: Plan, form: Format) -> GroupLag:
    """Print and return the lag of a topology's group, from the log."""
    from streamkit.runtime.operations.group_lag import group_lag, member_label

    with opened(plan, creates=False) as transport:
        group = group_lag(plan, transport)
    if form is Format.json:
        print(json.dumps({"application": plan.application, "lag": group.total, **asdict(group)}, indent=2))
        return group
    members = f"{len(group.members)} active member{'' if len(group.members) == 1 else 's'}"
    colour = is_coloured()
    print(red(f"{plan.application}: {_worst(group)}{members}, lag {group.total:,}", colour and bool(group.unowned)))
    if group.partitions:
        rows = [
            (
                partition.topic,
                partition.partition,
                member_label(partition.member or "no owner"),
                partition.committed,
                partition.end,
                partition.lag,
            )
            for partition in group.partitions
        ]
        lines = table(("INPUT", "PARTITION", "OWNER", "COMMITTED", "END", "LAG"), rows, numbers=[1, 3, 4, 5]).split(
            "\n"
        )
        print(lines[0])
        for line, partition in zip(lines[1:], group.partitions, strict=True):
            print(red(line, colour and partition.member is None))
    if not group.members and not any(partition.committed is not None for partition in group.partitions):
        print(
            f"the group {plan.application} has no members and no committed offsets: "
            "the application has not started, or ended before its first commit"
        )
    if group.missing:
        print(f"missing topics: {', '.join(group.missing)}")
    return group


def _worst(group: GroupLag) -> str:
    """Return the beginning of the first line, if members own less than all partitions."""
    if not group.members or not group.unowned:
        return ""
    during = " during a rebalance" if group.rebalancing else ""
    return f"{len(group.unowned)} of {len(group.partitions)} input partitions have no owner{during}, "
