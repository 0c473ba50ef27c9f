"""Health, readiness, the state of an instance and of the whole application, and its threads."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from streamkit.errors import StoreUnavailableError, StreamkitError
from streamkit.http.endpoint import Arguments, Endpoint, Parameter, json_response
from streamkit.http.service import Service
from streamkit.runtime.local.states import ClientState
from streamkit.runtime.local.status import ApplicationStatus

if TYPE_CHECKING:
    from starlette.requests import Request

_LIVE = (ClientState.CREATED, ClientState.REBALANCING, ClientState.RUNNING, ClientState.PENDING_SHUTDOWN)
_END_SECONDS = 60.0
"""How long the end of a thread is waited for: a commit, and the close of its stores."""
_SCOPE = (Parameter("scope", "`application`: all instances; `local`: this one only.", default="application"),)


def health(service: Service, request: Request) -> Response:
    """Tell whether the process should live on."""
    state = service.application.state
    error = service.application.error
    body = {"state": state.value, **({"error": str(error)} if error is not None else {})}
    return json_response(body, 200 if state in _LIVE and error is None else 503)


def ready(service: Service, request: Request) -> Response:
    """Tell whether every thread runs its tasks."""
    application = service.application
    return json_response({"state": application.state.value}, 200 if application.ready else 503)


def status(service: Service, request: Request) -> Response:
    """Return what every instance, or this one, does."""
    own = {"address": service.peers.own, **status_json(service.application.status())}
    if Arguments(request, _SCOPE).choice("scope", ("application", "local")) == "local":
        return json_response(own)
    instances = [own]
    for address in service.peers.others():
        try:
            instances.append(service.peers.ask(address, "/status", {"scope": "local"}))
        except StreamkitError as error:
            instances.append({"address": address, "error": str(error)})
    return json_response({"application": own["application"], "instances": instances})


def lag(service: Service, request: Request) -> Response:
    """Return how far each input partition of this instance is."""
    found = service.application.status()
    partitions = [
        {"topic": each.topic, "partition": each.partition, "task": task.id, "position": each.position, "end": each.end, "lag": each.lag}
        for task in found.tasks
        if task.kind == "active"
        for each in task.inputs
    ]  # fmt: skip
    return json_response({"lag": found.lag, "partitions": partitions})


def add_thread(service: Service, request: Request) -> Response:
    """Start one more stream thread."""
    return _changed(service, service.application.add_thread())


def remove_thread(service: Service, request: Request) -> Response:
    """End a stream thread in order."""
    return _changed(service, service.application.remove_thread(_END_SECONDS))


def pause(service: Service, request: Request) -> Response:
    """Process nothing until resumed."""
    service.application.pause()
    return json_response({"paused": service.application.paused})


def resume(service: Service, request: Request) -> Response:
    """Go on."""
    service.application.resume()
    return json_response({"paused": service.application.paused})


def _changed(service: Service, thread: str | None) -> Response:
    if thread is None:
        raise StoreUnavailableError(f"the application is {service.application.state.value}: it has no thread to spare")
    return json_response({"thread": thread, "threads": [each.name for each in service.application.threads]})


def status_json(status: ApplicationStatus) -> dict[str, Any]:
    """Return a snapshot as JSON-ready data."""
    return {**asdict(status), "lag": status.lag}


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
    Endpoint("/status", "States, tasks, rates, lag, stores and restoring of every instance.", status, _SCOPE),
    Endpoint(
        "/threads",
        "Start one more stream thread on this instance.",
        add_thread,
        method="POST",
        answers={503: "The application does not run."},
    ),
    Endpoint(
        "/threads",
        "End the newest stream thread of this instance in order; the others take its tasks.",
        remove_thread,
        method="DELETE",
        answers={503: "The application does not run or has no thread left, or the thread takes longer to end."},
    ),
    Endpoint("/pause", "Process, restore and update nothing on this instance until resumed.", pause, method="POST"),
    Endpoint("/resume", "Go on after a pause.", resume, method="POST"),
    Endpoint("/lag", "Position, end and lag of each input partition of this instance.", lag),
)
