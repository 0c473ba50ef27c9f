"""`/sql`: a query in SQL over the stores of the application, by the engine of `streamkit query --sql`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from streamkit.errors import ConfigError, LimitError, QueryError, StoreUnavailableError, TimeLimitError, TopologyError
from streamkit.http.endpoint import Arguments, Endpoint, Parameter, error_response, json_response
from streamkit.http.service import Service
from streamkit.http.store_endpoints import MOST_ROWS, SCOPE, StoreQuery, read_token
from streamkit.runtime.local.queries import is_global
from streamkit.runtime.operations.sql_query import (
    STORES,
    Deadline,
    Limits,
    Row,
    SqlTable,
    run_sql,
    store_columns,
    store_row,
)
from streamkit.serdes.plain import Json
from streamkit.state.definitions import Query, StoreDef
from streamkit.state.layouts import MAX_LONG

LIMITS = Limits(rows=1_000, read=100_000, bytes=32 << 20, seconds=10.0, result=4 << 20)
"""Below those of the command: a query takes memory and time from the application."""
_STALE, _SCOPE, _ = SCOPE
_PARAMETERS = (
    Parameter("query", "One SELECT of DuckDB; each store that it names is a table.", required=True),
    _STALE,
    _SCOPE,
)
_running = threading.Lock()


def query_sql(service: Service, request: Request) -> Response:
    """Answer a query in SQL."""
    arguments = Arguments(request, _PARAMETERS)
    sql = arguments.text("query")
    if sql is None:
        raise QueryError("sql needs the parameter query")
    is_local = arguments.choice("scope", ("application", "local")) == "local"
    if not _running.acquire(blocking=False):
        raise StoreUnavailableError("another SQL query runs on this instance; try again after it")
    try:
        answer = run_sql(sql, _tables(service, arguments.flag("stale"), is_local), LIMITS, "query")
    except ConfigError as error:
        return error_response(str(error), 501)
    except TopologyError as error:
        raise QueryError(str(error)) from error
    except (LimitError, TimeLimitError) as error:
        # The options that raise a limit belong to the command.
        raise QueryError(f"{str(error).partition('; --')[0]}; streamkit query --sql has higher limits") from error
    finally:
        _running.release()
    return json_response({"columns": answer.columns, "rows": answer.rows, "more": answer.is_cut})


def _tables(service: Service, stale: bool, is_local: bool) -> list[SqlTable]:
    plan = service.application.plan
    tables = []
    for name, definition in plan.stores.items():
        rows = partial(_rows, service, definition, stale, is_local or is_global(plan, name))
        types = definition.key_serde.type, definition.value_serde.type
        tables.append(SqlTable(STORES, name, rows, store_columns(definition.kind.windowed), *types))
    return tables


def _rows(service: Service, definition: StoreDef, stale: bool, is_local: bool, deadline: Deadline) -> Iterator[Row]:
    """Yield the rows of a store of all instances, page by page. Raises StoreUnavailableError."""
    kind = next(name for name in ("windows", "sessions", "all") if name in definition.kind.queries)
    query = Query(kind, limit=MOST_ROWS, start=0, end=MAX_LONG)
    parameters = {"limit": str(MOST_ROWS)}
    while True:
        store = StoreQuery(service, definition, query, stale, parameters)
        page: dict[str, Json] = store.page(None) if is_local else store.page_of_all(None)
        for row in cast("list[dict[str, Json]]", page["rows"]):
            timestamp = cast("int | None", row.get("timestamp"))
            yield store_row(row["key"], row["value"], timestamp, definition.kind.windowed)
        token = page["next"]
        if not isinstance(token, str):
            return
        deadline.check()
        query = replace(query, after=read_token(token))
        parameters = {**parameters, "after": token}


ENDPOINTS = (
    Endpoint(
        "/sql",
        "The rows of a SQL query over the stores, with the extra `sql`.",
        query_sql,
        _PARAMETERS,
        answers={
            400: "The query has a mistake, with its line and column, or passes a limit.",
            501: "The extra `sql` is not installed.",
            503: "A store can't be read now, or another SQL query runs on this instance.",
        },
    ),
)
