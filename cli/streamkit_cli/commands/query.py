"""`streamkit query` prints the stores of a running application, `streamkit state` those of a stopped one."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from streamkit.durations import option_time, parse
from streamkit.errors import ConfigError, InstanceError, StreamkitError, UsageError
from streamkit.http.json_client import ROW, ROWS, STORES
from streamkit.serdes.plain import Document, Json
from streamkit.state.definitions import KINDS
from streamkit_cli.guard import FAILED, print_message
from streamkit_cli.loading import load_plan, opened
from streamkit_cli.options import TIME_HELP, EnvFile, Format, Settings, Shown
from streamkit_cli.options import stores as stores_of_file
from streamkit_cli.record_lines import json_line
from streamkit_cli.remote import Connection, Place, TokenFile, address_of, connect, is_url
from streamkit_cli.tables import table, time_cell

if TYPE_CHECKING:
    from streamkit.plan.model import Plan
    from streamkit.runtime.operations.sql_query import Deadline, Limits, Row, SqlResult, SqlTable
    from streamkit.runtime.operations.stopped_state import KeptStore


class RowFormat(StrEnum):
    """The formats of query."""

    json = "json"
    text = "text"
    csv = "csv"


Store = Annotated[
    str | None,
    typer.Argument(
        metavar="STORE",
        help="A store; by default all stores are listed.",
        show_default=False,
        autocompletion=stores_of_file,
    ),
]
Key = Annotated[
    str | None, typer.Argument(metavar="KEY", help="A key: text, or the JSON form of its serde.", show_default=False)
]
Range = Annotated[tuple[str, str] | None, typer.Option("--range", metavar="LOW HIGH", help="Keys from LOW to HIGH.")]
Prefix = Annotated[str | None, typer.Option("--prefix", metavar="TEXT", help="Keys that begin with this.")]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TIME",
        help=f"Windows, sessions or versions, with --sql records of topics, from this time: {TIME_HELP}.",
    ),
]
To = Annotated[
    str | None, typer.Option("--to", metavar="TIME", help="… up to and including this time; records before it.")
]
AsOf = Annotated[
    str | None, typer.Option("--as-of", metavar="TIME", help="The value of a versioned store at this time.")
]
Versions = Annotated[bool, typer.Option("--versions", help="All versions of the key in a versioned store.")]
Limit = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", min=1, help="The maximum number of rows; all by default, 10,000 with --sql."),
]
Reverse = Annotated[bool, typer.Option("--reverse", help="From the last row to the first.")]
Stale = Annotated[bool, typer.Option("--stale", help="Also read standbys if no active task answers.")]
Rows = Annotated[RowFormat, typer.Option("--format", help="JSON Lines, a table to read, or CSV.")]
Sql = Annotated[
    str | None,
    typer.Option(
        "--sql",
        metavar="QUERY",
        help="A SELECT of DuckDB over stores and topics; it needs the extra sql.",
    ),
]
Timeout = Annotated[
    str | None, typer.Option("--timeout", metavar="DURATION", help="With --sql: the longest time; 60s by default.")
]
MostRows = Annotated[
    int | None,
    typer.Option(
        "--max-rows",
        metavar="N",
        min=1,
        help="With --sql: the maximum number of rows read from a store or topic; 1,000,000 by default.",
    ),
]
_PAGE = 1000


def query(
    place: Place,
    store: Store = None,
    key: Key = None,
    between: Range = None,
    prefix: Prefix = None,
    since: From = None,
    until: To = None,
    at: AsOf = None,
    versions: Versions = False,
    limit: Limit = None,
    reverse: Reverse = False,
    stale: Stale = False,
    sql: Sql = None,
    timeout: Timeout = None,
    most_rows: MostRows = None,
    form: Rows = RowFormat.json,
    token_file: TokenFile = None,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> None:
    """Print rows of a store as JSON Lines, from all instances of a running application.

    With a key, print its row, or its windows or sessions; without a key, print all rows. The application must run with
    `run --http`. Exit code 1 if the key does not exist.

    With --sql, each store and topic that the query names is a table. With a FILE, topics are read from the log, and so are the
    changelogs of stores if no application answers.

    Examples:
        streamkit query http://127.0.0.1:8080 totals ann
        streamkit query orders.yaml --sql 'select key, value from totals order by value desc limit 10' --format text
    """
    if sql is not None:
        if any((store, key, between, prefix, at, versions, reverse)):
            raise UsageError("--sql excludes STORE, KEY, --range, --prefix, --as-of, --versions and --reverse")
        limits = _limits(limit, most_rows, timeout)
        result = _query_sql(place, sql, limits, since, until, stale, token_file, settings, env_file)
        _print((dict(zip(result.columns, row, strict=True)) for row in result.rows), form, result.columns)
        if result.is_cut:
            print_message(f"these are the first {len(result.rows):,} rows; --limit N prints more")
        return
    if timeout is not None or most_rows is not None:
        raise UsageError("--timeout and --max-rows belong to --sql")
    if sum((key is not None, between is not None, prefix is not None)) > 1:
        raise UsageError("KEY, --range and --prefix exclude each other")
    low, high, as_of = (
        None if text is None else option_time(option, text)
        for option, text in (("--from", since), ("--to", until), ("--as-of", at))
    )
    connection = connect(place, settings, env_file, token_file)
    stores = {stored["name"]: stored for stored in connection.get("/stores", shape=STORES)["stores"]}
    if store is None:
        _print(stores.values(), form)
        return
    queries = stores[store]["queries"] if store in stores else ["all"]
    kind = _kind(queries, key, between, prefix, (low, high), versions)
    parameters: dict[str, object] = {"stale": "true" if stale else None}
    if key is not None:
        parameters["key"] = key
    if kind == "get":
        row = connection.get(f"/stores/{quote(store)}/get", {**parameters, "as_of": as_of}, ROW)
        _print([{name: value for name, value in row.items() if name not in ("store", "stale")}], form)
        return
    if as_of is not None:
        raise UsageError("--as-of takes a KEY, of a versioned store")
    if between is not None:
        parameters.update({"from": between[0], "to": between[1]})
    elif prefix is not None:
        parameters["prefix"] = prefix
    elif kind in ("windows", "sessions", "versions"):
        parameters.update({"from": low, "to": high})
    elif low is not None or high is not None:
        raise UsageError(f"--from and --to are times of windows, sessions and versions; store {store} has none")
    if reverse:
        parameters["reverse"] = "true"
    _print(_rows(connection, f"/stores/{quote(store)}/{kind}", parameters, limit), form)


def _kind(
    queries: list[str],
    key: str | None,
    between: tuple[str, str] | None,
    prefix: str | None,
    times: tuple[int | None, ...],
    versions: bool,
) -> str:
    if between is not None:
        return "range"
    if prefix is not None:
        return "prefix"
    for kind in ("windows", "sessions"):
        if kind in queries:
            return kind
    if key is None:
        return "all"
    return "versions" if versions or ("versions" in queries and times != (None, None)) else "get"


def _rows(
    connection: Connection, path: str, parameters: dict[str, object], limit: int | None
) -> Iterator[dict[str, Document]]:
    """Yield rows of a query, a page at a time."""
    left = limit
    while True:
        parameters["limit"] = min(_PAGE, left) if left is not None else _PAGE
        page = connection.get(path, parameters, ROWS)
        for row in page["rows"]:
            row.pop("cursor", None)
            yield row
        left = None if left is None else left - len(page["rows"])
        if page["next"] is None or left == 0:
            return
        parameters["after"] = page["next"]


def _print(rows: Iterable[dict[str, Json]], form: RowFormat, names: list[str] | None = None) -> None:
    """Print rows. names: the columns, if they are known even without a row."""
    if form is RowFormat.json:
        for row in rows:
            sys.stdout.write(json_line(row))
        return
    listed = list(rows)
    names = names or list(dict.fromkeys(name for row in listed for name in row))
    if form is RowFormat.csv:
        lines = csv.writer(sys.stdout, lineterminator="\n")
        lines.writerows([names, *([_cell(row.get(name)) for name in names] for row in listed)] if names else [])
    elif listed:
        print(table([name.upper() for name in names], [[_cell(row.get(name)) for name in names] for row in listed]))


def _cell(value: Json) -> Json:
    return value if value is None or isinstance(value, str) else json_line(value).rstrip("\n")


# `--sql`: stores of a running application by HTTP, and what is on the log.


def _limits(rows: int | None, read: int | None, timeout: str | None) -> Limits:
    from streamkit.runtime.operations.sql_query import Limits

    limits = Limits()
    try:
        seconds = limits.seconds if timeout is None else parse(timeout, 1) / 1000
    except ConfigError as error:
        raise UsageError(f"--timeout {timeout}: {error}") from error
    return Limits(rows or limits.rows, read or limits.read, limits.bytes, seconds)


def _query_sql(
    place: str,
    sql: str,
    limits: Limits,
    since: str | None,
    until: str | None,
    stale: bool,
    token_file: str | None,
    settings: list[str] | None,
    env_file: str | None,
) -> SqlResult:
    from streamkit.runtime.operations.sql_query import STORES as SCHEMA
    from streamkit.runtime.operations.sql_query import log_tables, run_sql
    from streamkit_cli.commands.consume import read_range

    if is_url(place):
        if since or until:
            raise UsageError("--from and --to select records of topics, which need a topology file in place of a URL")
        return run_sql(sql, _remote_tables(connect(place, settings, env_file, token_file), stale), limits)
    span = read_range(None, False, since, until, None)
    plan = load_plan(place, settings, env_file)

    @cache
    def remote() -> dict[str, SqlTable]:
        return {sql_table.name: sql_table for sql_table in _answering(plan, stale, token_file)}

    def rows(table: SqlTable, deadline: Deadline) -> Iterable[Row]:
        return remote().get(table.name, table).rows(deadline)

    with opened(plan, creates=False) as transport:
        tables = log_tables(plan, transport, span)
        tables = [one._replace(rows=partial(rows, one)) if one.schema == SCHEMA else one for one in tables]
        return run_sql(sql, tables, limits)


def _answering(plan: Plan, stale: bool, token_file: str | None) -> list[SqlTable]:
    """Return the stores of the running application; none, with a message, if no application answers."""
    address = address_of(plan)
    why = f"{plan.file} does not set application.server"
    if address is not None:
        try:
            return _remote_tables(Connection(address, token_file), stale)
        except InstanceError:
            raise
        except StreamkitError as error:
            why = str(error)
    print_message(f"{why}: stores are read as of the last commit, from the log or from state.dir")
    return []


def _remote_tables(connection: Connection, stale: bool) -> list[SqlTable]:
    from streamkit.runtime.operations.sql_query import STORES as SCHEMA
    from streamkit.runtime.operations.sql_query import SqlTable, store_columns, store_row

    def rows(name: str, queries: list[str], is_windowed: bool, _: Deadline) -> Iterator[Row]:
        path = f"/stores/{quote(name)}/{_kind(queries, None, None, None, (None, None), False)}"
        for row in _rows(connection, path, {"stale": "true" if stale else None}, None):
            yield store_row(row["key"], row["value"], row.get("timestamp"), is_windowed)

    tables = []
    for stored in connection.get("/stores", shape=STORES)["stores"]:
        kind = KINDS.get(stored.get("type", ""))
        is_windowed = kind is not None and kind.windowed
        read = partial(rows, stored["name"], stored["queries"], is_windowed)
        tables.append(SqlTable(SCHEMA, stored["name"], read, store_columns(is_windowed)))
    return tables


# `streamkit state`: the stores of a stopped application, and whether they are intact.


Folder = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="A state.dir, or the directory of one application in it.", show_default=False),
]
Topology = Annotated[
    str | None, typer.Option("--topology", metavar="FILE", help="The application's file, whose log is read too.")
]
Verify = Annotated[
    bool,
    typer.Option("--verify", help="Read every row, and with --topology compare the rows with the changelogs."),
]


def state(
    folder: Folder,
    topology: Topology = None,
    verify: Verify = False,
    form: Shown = Format.text,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> int:
    """Show the stores on disk of a stopped application: rows, bytes, offsets, last commit.

    Exit code 1 if a store is damaged or differs from its changelog; the application would delete and restore it.

    Examples:
        streamkit state .streamkit/orders
        streamkit state .streamkit --topology orders.yaml --verify
    """
    from streamkit.runtime.operations.stopped_state import kept_stores

    if topology is None:
        kept = kept_stores(folder, verify=verify)
    else:
        plan = load_plan(topology, settings, env_file)
        with opened(plan, creates=False) as transport:
            kept = kept_stores(folder, verify=verify, plan=plan, transport=transport)
    print(json.dumps([asdict(store) for store in kept], indent=2) if form is Format.json else _text(kept))
    return FAILED if any(store.problem for store in kept) else 0


def _text(stores: list[KeptStore]) -> str:
    heads = ("APPLICATION", "TASK", "STORE", "ROWS", "BYTES", "OFFSET", "END", "LAST COMMIT", "STATE")
    return table(heads, map(_row, stores), numbers=[3, 4, 5, 6])


def _row(kept: KeptStore) -> tuple[object, ...]:
    about = "" if kept.counted else "~"
    rows = None if kept.rows is None else f"{about}{kept.rows:,}"
    size = None if kept.bytes is None else f"{kept.bytes:,}"
    checked = "as the changelog" if kept.compared else "all rows read" if kept.counted else "opens"
    application = f"{kept.instance}/{kept.application}" if kept.instance else kept.application
    place = (application, kept.task, kept.store)
    return (*place, rows, size, kept.offset, kept.end, time_cell(kept.committed_ms), kept.problem or checked)
