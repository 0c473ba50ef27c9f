"""What the page of the application shows while it is open: status by push, the last hour, the steps behind the nodes."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from starlette.responses import Response

from streamkit.errors import StreamkitError
from streamkit.http.answers import HISTORY
from streamkit.http.endpoints.application_state import application_state
from streamkit.http.endpoints.endpoint import Arguments, Endpoint, Parameter, json_response
from streamkit.http.endpoints.instance_state import SCOPE, is_local
from streamkit.http.event_stream import Event, EventStream
from streamkit.http.history import INTERVAL_S
from streamkit.http.service import Service
from streamkit.serdes.plain import Json

if TYPE_CHECKING:
    from starlette.requests import Request

_SECONDS = 1.0
_PEER_SECONDS = 5.0
_MOST_AT_ONCE = 8
_AFTER = Parameter("after", "Only points later than this time (ms).", "integer", default=0)


def status_changes(service: Service, request: Request) -> Response:
    """Return the status of all instances each second, and each new point of the history."""
    Arguments(request, ())
    return EventStream(_StatusEvents(service), service.streams)


class _StatusEvents:
    """The events of one page. The status is computed once a second for all pages."""

    def __init__(self, service: Service):
        self._service = service
        self._next = 0.0
        self._sent = service.history.newest

    def read(self) -> list[Event]:
        """Wait for the next second; return the status, and the new points of the history if there are any."""
        service = self._service
        left = self._next - time.monotonic()
        if left > 0 and service.streams.closing.wait(left):
            return []
        self._next = time.monotonic() + _SECONDS
        events = [Event("status", service.status.get(lambda: application_state(service)))]
        newest = service.history.newest
        if newest > self._sent:
            events.append(Event("history", _history(service, self._sent)))
            self._sent = newest
        return events

    def close(self) -> None:
        """Nothing is open."""


def history(service: Service, request: Request) -> Response:
    """Return the last hour of every instance, or of this one."""
    arguments = Arguments(request, (*SCOPE, _AFTER))
    after = arguments.number("after", 0)
    if is_local(arguments):
        return json_response(_own_history(service, after))
    return json_response(_history(service, after))


def _history(service: Service, after: int) -> dict[str, Json]:
    def of(address: str) -> Json:
        parameters = {"after": str(after), "scope": "local"}
        try:
            return service.peers.request(address, "/history", parameters, shape=HISTORY, timeout_seconds=_PEER_SECONDS)
        except StreamkitError as error:
            return {"address": address, "error": str(error)}

    instances, others = [_own_history(service, after)], service.peers.others()
    if others:
        with ThreadPoolExecutor(min(len(others), _MOST_AT_ONCE), "history") as pool:
            instances += pool.map(of, others)
    return {"interval_ms": INTERVAL_S * 1000, "instances": instances}


def _own_history(service: Service, after: int) -> dict[str, Json]:
    points = service.history.points(after)
    return {
        "address": service.peers.own,
        "points": [point._asdict() for point in points],
        "events": service.history.events(),
    }


def nodes(service: Service, request: Request) -> Response:
    """Return the step of each node, with its lines."""
    return json_response({"nodes": service.steps})


ENDPOINTS = (
    Endpoint(
        "/status/changes",
        "The status of every instance each second, and new points of the history, as server-sent events.",
        status_changes,
        content="text/event-stream",
    ),
    Endpoint(
        "/history",
        "The last hour: rate, lag, latency and memory every five seconds; the last warnings, errors and rebalances.",
        history,
        (*SCOPE, _AFTER),
    ),
    Endpoint("/nodes", "The step of each node of the topology, with its lines in the file.", nodes),
)
