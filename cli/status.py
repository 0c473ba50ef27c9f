"""`streamkit status`: what an application does now."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from .loading import load_plan
from .options import EnvFile, Settings
from .remote import Connection, Place, TokenFile, address_of, is_url
from .tables import moment, table

Json = Annotated[bool, typer.Option("--json", help="One JSON object.")]


def command(
    place: Place,
    as_json: Json = False,
    token_file: TokenFile = None,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> None:
    """Show the instances, threads and tasks of a running application, with rates, lag and restoring.

    Of a file that does not set application.server, what the log knows is shown: members of the group, and lag.
    """
    if is_url(place):
        connection = Connection(place, token_file)
    else:
        plan = load_plan(place, settings, env_file)
        address = address_of(plan)
        if address is None:
            from .lag import show_lag

            show_lag(plan, as_json)
            return
        connection = Connection(address, token_file)
    status = connection.get("/status")
    print(json.dumps(status, indent=2, ensure_ascii=False) if as_json else _text(status))


def _text(status: dict[str, Any]) -> str:
    parts = []
    for instance in status["instances"]:
        where = instance["address"] or "this instance"
        if "threads" not in instance:
            parts.append(f"{where}: {instance['error']}")
            continue
        lag = "unknown" if instance["lag"] is None else instance["lag"]
        head = f"{where}: {instance['state']}, {instance['rate']:.0f} records/s, lag {lag}, up {instance['uptime_seconds']:.0f} s"
        parts.append(head if instance["error"] is None else f"{head}\n{instance['error']}")
        rows = [_row(thread, task) for thread in instance["threads"] for task in thread["tasks"] or [None]]
        heads = ("THREAD", "STATE", "TASK", "KIND", "PROCESSED", "RECORDS/S", "LAG", "STORES")
        parts.append(table(heads, rows, numbers=[4, 5, 6]))
        stores = [_part(store, part) for store in instance["stores"] for part in store["parts"]]
        if stores:
            columns = ("STORE", "TASK", "ROWS", "BYTES", "OFFSET", "END", "LAST COMMIT")
            parts.append(table(columns, stores, numbers=[2, 3, 4, 5]))
        if instance["restoring"]:
            restoring = [
                (each["task"], each["store"], each["restored"], each["total"], f"{each['rate']:.0f}", _eta(each))
                for each in instance["restoring"]
            ]
            parts.append(
                table(("RESTORING", "STORE", "RECORDS", "OF", "RECORDS/S", "ETA"), restoring, numbers=[2, 3, 4, 5])
            )
    return "\n\n".join(parts)


def _row(thread: dict[str, Any], task: dict[str, Any] | None) -> tuple:
    name = thread["name"][thread["name"].find("StreamThread-") :]
    if task is None:
        return (name, thread["state"], *[None] * 6)
    lags = [each["lag"] for each in task["inputs"]]
    lag = None if None in lags else sum(lags)
    stores = ", ".join(task["stores"]) or None
    return (name, thread["state"], task["id"], task["kind"], task["processed"], f"{task['rate']:.0f}", lag, stores)


def _part(store: dict[str, Any], part: dict[str, Any]) -> tuple:
    # Files do not count their rows, so that it is an estimate.
    about = "" if part["bytes"] is None or part["rows"] is None else "~"
    rows = None if part["rows"] is None else f"{about}{part['rows']:,}"
    bytes_ = None if part["bytes"] is None else f"{part['bytes']:,}"
    return (store["name"], part["task"], rows, bytes_, part["offset"], part["end"], moment(part["committed_ms"]))


def _eta(restoring: dict[str, Any]) -> str | None:
    return None if restoring["eta_seconds"] is None else f"{restoring['eta_seconds']:.0f} s"
