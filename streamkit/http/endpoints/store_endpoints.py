"""Interactive queries: of this instance, or of the application by requests to the instances that have the rows."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.responses import Response

from streamkit.errors import InstanceError, StoreUnavailableError
from streamkit.http.answers import PARTITIONS, ROW
from streamkit.http.endpoints.endpoint import Arguments, Endpoint, json_response
from streamkit.http.endpoints.store_queries import parameters_of, read_query, rows_json, sort_key
from streamkit.http.service import Service
from streamkit.runtime.local.instance.queries import is_global, require_store
from streamkit.serdes.plain import Json
from streamkit.state.definitions import StoreDef
from streamkit.state.reading import Query
from streamkit.state.store_kinds import KINDS

if TYPE_CHECKING:
    from starlette.requests import Request


def list_stores(service: Service, request: Request) -> Response:
    """Return the stores of the topology with the kinds of queries that each answers."""
    plan = service.application.plan
    stores = [
        {
            "name": each.name,
            "type": each.type,
            "persistent": each.persistent,
            "global": each.is_global,
            "sub_topology": each.sub_topology,
            "queries": list(KINDS[each.type].queries),
            "key": plan.stores[each.name].key_serde.spec,
            "value": plan.stores[each.name].value_serde.spec,
            "tasks": list(each.tasks),
        }
        for each in service.application.status(lag=False).stores
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
    store_query = _StoreQuery(service, definition, query, stale, dict(request.query_params))
    # Every instance has all rows of a global table.
    local = arguments.choice("scope", ("application", "local")) == "local" or is_global(plan, name)
    if kind == "get":
        return json_response(store_query.row(wanted) if local else store_query.row_of_owner(wanted))
    return json_response(store_query.page(wanted) if local else store_query.page_of_all(wanted))


class _StoreQuery:
    """One query, of this instance's stores or of those of other instances."""

    def __init__(self, service: Service, definition: StoreDef, query: Query, stale: bool, parameters: dict[str, str]):
        self._service = service
        self._definition = definition
        self._query = query
        self._stale = stale
        self._parameters = parameters

    def page(self, partitions: list[int] | None, *, stale: bool | None = None) -> dict[str, Json]:
        """Return a page of this instance's stores. Raises StoreUnavailableError."""
        stale = self._stale if stale is None else stale
        answer = self._service.application.stores.read(self._definition.name, self._query, partitions, stale=stale)
        return self._page(rows_json(self._definition, answer.rows), answer.partitions, answer.standbys)

    def row(self, partitions: list[int] | None) -> dict[str, Json]:
        """Return the row of a key from this instance. Raises StoreUnavailableError, InstanceError where it has none."""
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
            places += [place for place in owner.standbys if place not in places]
        if not places:
            raise StoreUnavailableError(f"no instance has the key's partition of store {self._definition.name} now")
        failure: StoreUnavailableError | None = None
        for place in places:
            try:
                return self.row(wanted) if place == peers.own else self._request(place, wanted, self._stale)
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
            for page in self._all(places, stale) if missing else ():
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

    def _all(self, places: list[str], stale: bool) -> list[dict[str, Json]]:
        """Return the pages of all instances that answer."""
        own = self._service.peers.own

        def read(place: str) -> dict[str, Json] | None:
            try:
                return self.page(None, stale=stale) if place == own else self._request(place, None, stale)
            except StoreUnavailableError:
                # The partitions show whether rows are missing without it.
                return None

        if len(places) == 1:
            found = [read(places[0])]
        else:
            with ThreadPoolExecutor(min(16, len(places))) as pool:
                found = list(pool.map(read, places))
        return [page for page in found if page is not None]

    def _request(self, place: str, partitions: list[int] | None, stale: bool) -> dict[str, Json]:
        parameters = {**self._parameters, "scope": "local", "stale": str(stale).lower()}
        if partitions is not None:
            parameters["partition"] = str(partitions[0])
        path = f"/stores/{quote(self._definition.name)}/{self._query.kind}"
        shape = ROW if self._query.kind == "get" else PARTITIONS
        answer: dict[str, Json] = self._service.peers.request(place, path, parameters, shape=shape)
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
    "get": "The value of a key; of a versioned store also as of a time.",
    "range": "The rows between two keys, in the order of the keys' bytes.",
    "prefix": "The rows whose keys' bytes begin with those of a prefix.",
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


def _handler(kind: str) -> Callable[[Service, Request], Response]:
    return partial(query_store, kind=kind)


ENDPOINTS = (
    Endpoint("/stores", "The stores of the topology, and what each answers.", list_stores),
    *(
        Endpoint(f"/stores/{{store}}/{kind}", summary, _handler(kind), parameters_of(kind), answers=_ANSWERS)
        for kind, summary in _SUMMARIES.items()
    ),
)
