"""Interactive queries: of this instance, or of the application by requests to the instances that have the rows."""

from __future__ import annotations

import base64
import binascii
import heapq
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from streamkit.errors import InstanceError, QueryError, SerdeError, StoreUnavailableError
from streamkit.http.endpoint import Arguments, Endpoint, Parameter, json_response
from streamkit.http.json_client import PARTITIONS, ROW
from streamkit.http.service import Service
from streamkit.runtime.local.queries import Row, is_global, require_store
from streamkit.runtime.records import headers_to_json
from streamkit.serdes.plain import TEXTS, Document, Json, json_of_key
from streamkit.serdes.serde import Serde
from streamkit.state.definitions import KINDS, Query, StoreDef, require_headers, require_kind
from streamkit.state.layouts import MAX_LONG

# Queries in the form of HTTP requests: keys as text, pages by a token, rows as JSON.

MOST_ROWS = 1000
ROWS = 100

KEY = Parameter("key", "The key: plain text if the key's serde is a text serde, else JSON.")
_PAGE = (
    Parameter("limit", f"Rows of a page, at most {MOST_ROWS}.", "integer", default=ROWS),
    Parameter("after", "`next` of the previous page."),
    Parameter("reverse", "From the last row to the first.", "boolean", default=False),
)
SCOPE = (
    Parameter("stale", "Also read standbys and restoring tasks if no active task answers.", "boolean"),
    Parameter("scope", "`application`: ask the other instances too; `local`: this one only.", default="application"),
    Parameter("partition", "Only this partition of the store.", "integer"),
)
_ISOLATION = Parameter(
    "isolation",
    "`read_committed`: what the last commit has; `read_uncommitted`: later writes too. By default what "
    "default.interactive.query.isolation.level says.",
)
_HEADERS = Parameter("headers", "Rows with their headers, from stores of `dsl.store.format: HEADERS`.", "boolean")
_WITH_HEADERS = ("get", "range", "prefix", "all")
_TIMES = {
    "windows": ("from", "Windows that start at this time or later (ms).", "to", "… or earlier, both included."),
    "sessions": ("from", "Sessions that end at this time or later (ms).", "to", "… and start at this time or earlier."),
    "versions": ("from", "Versions that were valid at this time (ms) or later.", "to", "… or earlier."),
}


def parameters_of(kind: str) -> tuple[Parameter, ...]:
    """Return the parameters of a kind of query."""
    own: tuple[Parameter, ...] = ()
    if kind == "get":
        as_of = Parameter("as_of", "For versioned stores: the value at this time (ms).", "integer")
        return (replace(KEY, required=True), as_of, _HEADERS, _ISOLATION, *SCOPE)
    if kind == "range":
        own = (Parameter("from", "The lowest key, included."), Parameter("to", "The highest key, included."))
    elif kind == "prefix":
        own = (Parameter("prefix", "The beginning of the keys' bytes.", required=True),)
    elif kind in _TIMES:
        low, low_meaning, high, high_meaning = _TIMES[kind]
        own = (
            replace(KEY, required=kind == "versions"),
            Parameter(low, low_meaning, "integer"),
            Parameter(high, high_meaning, "integer"),
        )
    headers = (_HEADERS,) if kind in _WITH_HEADERS else ()
    return (*own, *_PAGE, *headers, _ISOLATION, *SCOPE)


def read_query(request: Request, kind: str, definition: StoreDef) -> Query:
    """Return the query of a request. Raises QueryError, also for a kind that the store does not answer."""
    require_kind(definition, kind)
    arguments = Arguments(request, parameters_of(kind))
    for parameter in parameters_of(kind):
        if parameter.required and arguments.text(parameter.name) is None:
            raise QueryError(f"{kind} needs the parameter {parameter.name}")

    def key(name: str) -> bytes | None:
        text = arguments.text(name)
        return None if text is None else key_bytes(definition.key_serde, text, name)

    query = Query(kind, limit=arguments.number("limit", ROWS, 1, MOST_ROWS), reverse=arguments.flag("reverse"))
    query = replace(query, after=read_token(arguments.text("after")), committed=_isolation(arguments))
    if kind in _WITH_HEADERS and arguments.flag("headers"):
        require_headers(definition)
        query = replace(query, headers=True)
    if kind == "get":
        return replace(query, key=key("key"), as_of=arguments.number("as_of"))
    if kind == "range":
        return replace(query, low=key("from"), high=key("to"))
    if kind == "prefix":
        return replace(query, key=key("prefix"))
    if kind in _TIMES:
        start, end = arguments.number("from", 0), arguments.number("to", MAX_LONG)
        return replace(query, key=key("key"), start=start, end=end)
    return query


def _isolation(arguments: Arguments) -> bool | None:
    if arguments.text("isolation") is None:
        return None
    return arguments.choice("isolation", ("read_committed", "read_uncommitted")) == "read_committed"


def key_bytes(serde: Serde, text: str, name: str = "key") -> bytes:
    """Return the bytes of a key that a request has as text. Raises QueryError."""
    try:
        return serde.encode(serde.from_json(text if serde.spec in TEXTS else json_of_key(text)))
    except SerdeError as error:
        raise QueryError(f"{name} is {text!r}: {error}") from error


def token_of(place: bytes, partition: int) -> str:
    """Return a row's place as text."""
    return base64.urlsafe_b64encode(partition.to_bytes(4, "big") + place).decode().rstrip("=")


def read_token(text: str | None) -> tuple[bytes, int] | None:
    """Return the place of a row from its text. Raises QueryError."""
    if text is None:
        return None
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        data = b""
    if len(data) < 4:
        raise QueryError(f"after is {text!r}; expected the `next` of a page")
    return data[4:], int.from_bytes(data[:4], "big")


def rows_json(definition: StoreDef, rows: list[Row], headers: bool) -> list[dict[str, Json]]:
    """Return rows in the JSON form of their serdes, each with the token of its place, and with `headers` with its headers."""
    write = definition.kind.implementation_class().row_writer(definition)
    result = []
    for place, partition, row in rows:
        key, value = write(row.key, row.value)
        shown: dict[str, Json] = {
            "key": key,
            "value": value,
            "partition": partition,
            "cursor": token_of(place, partition),
        }
        if row.timestamp is not None:
            shown["timestamp"] = row.timestamp
        if headers:
            shown["headers"] = headers_to_json(row.headers or [])
        result.append(shown)
    return result


def sort_key(row: dict[str, Document]) -> tuple[bytes, int]:
    """Return the place of a row that has its token."""
    place = read_token(row["cursor"])
    assert place is not None
    return place


def list_stores(service: Service, request: Request) -> Response:
    """Return the stores of the topology with the kinds of queries that each answers."""
    plan = service.application.plan
    stores = [
        {
            "name": store.name,
            "type": store.type,
            "persistent": store.persistent,
            "global": store.is_global,
            "sub_topology": store.sub_topology,
            "queries": list(KINDS[store.type].queries),
            "key": plan.stores[store.name].key_serde.spec,
            "value": plan.stores[store.name].value_serde.spec,
            "tasks": list(store.tasks),
        }
        for store in service.application.status(lag=False).stores
    ]
    return json_response({"application": plan.application, "stores": stores})


def query_store(service: Service, request: Request, *, kind: str) -> Response:
    """Answer one kind of query."""
    plan = service.application.plan
    name = request.path_params["store"]
    require_store(plan, name)
    definition = plan.stores[name]
    query = read_query(request, kind, definition)
    arguments = Arguments(request, parameters_of(kind))
    stale, number = arguments.flag("stale"), arguments.number("partition", None, 0)
    wanted = None if number is None else [number]
    store_query = StoreQuery(service, definition, query, stale, dict(request.query_params))
    # Every instance has all rows of a global table.
    local = arguments.choice("scope", ("application", "local")) == "local" or is_global(plan, name)
    if kind == "get":
        return json_response(store_query.row(wanted) if local else store_query.row_of_owner(wanted))
    return json_response(store_query.page(wanted) if local else store_query.page_of_all(wanted))


class StoreQuery:
    """One query, of stores on this instance or on other instances."""

    def __init__(self, service: Service, definition: StoreDef, query: Query, stale: bool, parameters: dict[str, str]):
        self._service = service
        self._definition = definition
        self._query = query
        self._stale = stale
        self._parameters = parameters

    def page(self, partitions: list[int] | None, *, stale: bool | None = None) -> dict[str, Document]:
        """Return a page of this instance's stores. Raises StoreUnavailableError."""
        stale = self._stale if stale is None else stale
        answer = self._service.application.stores.read(self._definition.name, self._query, partitions, stale=stale)
        return self._page(
            rows_json(self._definition, answer.rows, self._query.headers), answer.partitions, answer.standbys
        )

    def row(self, partitions: list[int] | None) -> dict[str, Json]:
        """Return the row of a key from this instance. Raises StoreUnavailableError, InstanceError if there is no such row."""
        name = self._definition.name
        page = self.page(partitions)
        if not page["rows"]:
            raise InstanceError(f"store {name} has no key {self._parameters['key']}", 404)
        row = {"store": name, **page["rows"][0], "stale": bool(page["stale_partitions"])}
        del row["cursor"]
        return row

    def row_of_owner(self, partitions: list[int] | None) -> dict[str, Json]:
        """Return the row of a key from the instance that has it. Raises StoreUnavailableError, InstanceError."""
        peers = self._service.peers
        owner = peers.owner(self._definition.name, self._query.key or b"")
        wanted = partitions if owner.partition is None else [owner.partition]
        places = [owner.active] if owner.active is not None else []
        if self._stale:
            places += [standby for standby in owner.standbys if standby not in places]
        if not places:
            raise StoreUnavailableError(f"no instance has the key's partition of store {self._definition.name} now")
        failure: StoreUnavailableError | None = None
        for address in places:
            try:
                return self.row(wanted) if address == peers.own else self._request(address, wanted, self._stale)
            except StoreUnavailableError as error:
                failure = failure or error
        assert failure is not None
        raise failure

    def page_of_all(self, partitions: list[int] | None) -> dict[str, Json]:
        """Return a page of all instances' stores. Raises StoreUnavailableError while no instance has a partition."""
        peers = self._service.peers
        places = [peers.own, *peers.others()]
        missing = set(self._service.application.stores.partitions(self._definition.name))
        if partitions is not None:
            missing &= set(partitions)
        read: set[int] = set()
        standbys: set[int] = set()
        columns = []
        for stale in (False, True) if self._stale else (False,):
            for page in self._all(places, partitions, stale) if missing else ():
                # While a task moves two instances may have it.
                fresh = missing.intersection(page["partitions"])
                columns.append([row for row in page["rows"] if row["partition"] in fresh])
                standbys |= fresh.intersection(page["stale_partitions"])
                read |= fresh
                missing -= fresh
        if missing:
            wanted = ", ".join(map(str, sorted(missing)))
            raise StoreUnavailableError(f"no instance answers for partition {wanted} of store {self._definition.name}")
        # A row that is not in the page of its instance comes after the end of this page.
        merged = heapq.merge(*columns, key=sort_key, reverse=self._query.reverse)
        return self._page(list(islice(merged, self._query.limit)), read, standbys)

    def _all(self, places: list[str], partitions: list[int] | None, stale: bool) -> list[dict[str, Document]]:
        """Return the pages of all instances that answer."""
        own = self._service.peers.own

        def read(address: str) -> dict[str, Document] | None:
            try:
                if address == own:
                    return self.page(partitions, stale=stale)
                return self._request(address, partitions, stale)
            except StoreUnavailableError:
                # The partitions show whether rows are missing without it.
                return None

        if len(places) == 1:
            pages = [read(places[0])]
        else:
            with ThreadPoolExecutor(min(16, len(places))) as pool:
                pages = list(pool.map(read, places))
        return [page for page in pages if page is not None]

    def _request(self, address: str, partitions: list[int] | None, stale: bool) -> dict[str, Json]:
        parameters = {**self._parameters, "scope": "local", "stale": str(stale).lower()}
        if partitions is not None:
            parameters["partition"] = str(partitions[0])
        path = f"/stores/{quote(self._definition.name)}/{self._query.kind}"
        shape = ROW if self._query.kind == "get" else PARTITIONS
        answer: dict[str, Json] = self._service.peers.request(address, path, parameters, shape=shape)
        return answer

    def _page(self, rows: list[dict[str, Json]], partitions: Iterable[int], standbys: Iterable[int]) -> dict[str, Json]:
        # A short page is the last one.
        full = len(rows) == self._query.limit and self._query.kind != "get"
        return {
            "store": self._definition.name,
            "rows": rows,
            "next": rows[-1]["cursor"] if full else None,
            "partitions": sorted(partitions),
            "stale_partitions": sorted(standbys),
        }


_SUMMARIES = {
    "get": "The value of a key; for a versioned store also at a given time.",
    "range": "The rows between two keys, in the order of the keys' bytes.",
    "prefix": "The rows whose keys' bytes begin with a prefix.",
    "all": "All rows.",
    "windows": "The windows of a key, or of all keys, that start within some time; by start.",
    "sessions": "The sessions of a key, or of all keys; by end.",
    "versions": "The versions of a key, the newest first.",
}
_ANSWERS = {
    400: "The query makes no sense for this store.",
    404: "There is no such store or key.",
    503: "The store can't be read now: its task moves, is restored, or its instance does not answer.",
}


ENDPOINTS = (
    Endpoint("/stores", "The stores of the topology, and what each answers.", list_stores),
    *(
        Endpoint(
            f"/stores/{{store}}/{kind}", summary, partial(query_store, kind=kind), parameters_of(kind), answers=_ANSWERS
        )
        for kind, summary in _SUMMARIES.items()
    ),
)
