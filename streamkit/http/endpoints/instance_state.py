"""Health, readiness, the state of an instance and of the application, and its threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.responses import Response

from streamkit.errors import QueryError, StoreUnavailableError
from streamkit.http.endpoints.application_state import application_state, local_state
from streamkit.http.endpoints.endpoint import Arguments, Endpoint, Parameter, json_response
from streamkit.http.service import Service
from streamkit.runtime.local.states import ClientState
from streamkit.serdes.plain import Json

if TYPE_CHECKING:
    from starlette.requests import Request

_LIVE = (ClientState.CREATED, ClientState.REBALANCING, ClientState.RUNNING, ClientState.PENDING_SHUTDOWN)
_END_SECONDS = 60.0
"""The time-out for the end of a thread: a commit, and the close of its stores."""
SCOPE = (Parameter("scope", "`application`: all instances; `local`: this one only.", default="application"),)
_INSTANCE = (Parameter("instance", "Another instance, by its `application.server`; this one by default."),)


def health(service: Service, request: Request) -> Response:
    """Report whether the process is healthy. Only a request with the token gets the error, which may show a record."""
    state = service.application.state
    error = service.application.error
    shows_error = error is not None and service.access.has_token(request)
    body = {**_state(service), **({"error": str(error)} if shows_error else {})}
    return json_response(body, 200 if state in _LIVE and error is None else 503)


def ready(service: Service, request: Request) -> Response:
    """Report whether every thread runs its tasks."""
    application = service.application
    return json_response(_state(service), 200 if application.ready else 503)


def _state(service: Service) -> dict[str, Json]:
    return {"state": service.application.state.value, "paused": service.application.paused}


def status(service: Service, request: Request) -> Response:
    """Return the state of every instance, or of this one."""
    if is_local(Arguments(request, SCOPE)):
        return json_response(local_state(service))
    return json_response(application_state(service))


def is_local(arguments: Arguments) -> bool:
    """Return whether a request is for this instance only."""
    return arguments.choice("scope", ("application", "local")) == "local"


def lag(service: Service, request: Request) -> Response:
    """Return owner, position, end and lag of each input partition of the application."""
    found = application_state(service)
    return json_response({"lag": found["lag"], "partitions": found["inputs"]})


def add_thread(service: Service, request: Request) -> Response:
    """Start one more stream thread."""
    return _on_instance(service, request, lambda: _changed(service, service.application.add_thread()))


def remove_thread(service: Service, request: Request) -> Response:
    """End a stream thread in order."""
    return _on_instance(service, request, lambda: _changed(service, service.application.remove_thread(_END_SECONDS)))


def pause(service: Service, request: Request) -> Response:
    """Process nothing until resumed."""
    return _on_instance(service, request, lambda: _paused(service, service.application.pause))


def resume(service: Service, request: Request) -> Response:
    """Resume processing."""
    return _on_instance(service, request, lambda: _paused(service, service.application.resume))


def _on_instance(service: Service, request: Request, change: Callable[[], dict[str, Json]]) -> Response:
    """Make a change on this instance, or on the one that the request names. Raises QueryError for an unknown one."""
    wanted = Arguments(request, _INSTANCE).text("instance")
    if wanted is None or wanted == service.peers.own:
        return json_response(change())
    others = service.peers.others()
    if wanted not in others:
        raise QueryError(f"there is no instance {wanted!r}; known: {', '.join(sorted({service.peers.own, *others}))}")
    answer = service.peers.request(wanted, request.url.path, {}, method=request.method, timeout_seconds=_END_SECONDS)
    return json_response(answer)


def _paused(service: Service, change: Callable[[], None]) -> dict[str, Json]:
    change()
    return {"paused": service.application.paused}


def _changed(service: Service, thread: str | None) -> dict[str, Json]:
    if thread is None:
        raise StoreUnavailableError(f"the application is {service.application.state.value}: it has no thread to spare")
    return {"thread": thread, "threads": [each.name for each in service.application.threads]}


ENDPOINTS = (
    Endpoint(
        "/health",
        "Whether the process should live on (a liveness probe).",
        health,
        answers={503: "A thread has failed, or the application has ended."},
        open=True,
    ),
    Endpoint(
        "/ready",
        "Whether every thread runs its tasks (a readiness probe).",
        ready,
        answers={503: "The application starts, restores, rebalances or ends."},
        open=True,
    ),
    Endpoint(
        "/status",
        "What is wrong, worst first; lag and owners of all inputs; states, tasks, rates, stores of every instance.",
        status,
        SCOPE,
    ),
    Endpoint(
        "/threads",
        "Start one more stream thread on this instance.",
        add_thread,
        _INSTANCE,
        method="POST",
        answers={503: "The application does not run."},
    ),
    Endpoint(
        "/threads",
        "End the newest stream thread of this instance in order; the others take its tasks.",
        remove_thread,
        _INSTANCE,
        method="DELETE",
        answers={503: "The application does not run or has no thread left, or the thread takes longer to end."},
    ),
    Endpoint(
        "/pause", "Process, restore and update nothing on this instance until resumed.", pause, _INSTANCE, method="POST"
    ),
    Endpoint("/resume", "Go on after a pause.", resume, _INSTANCE, method="POST"),
    Endpoint("/lag", "Owner, position, end and lag of each input partition of the application.", lag),
)
