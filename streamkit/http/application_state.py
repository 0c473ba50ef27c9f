"""The state of an application and of its instances, for the endpoints and the page: health, status, lag, threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from streamkit.errors import InstanceGoneError, QueryError, StoreUnavailableError, StreamkitError
from streamkit.http.endpoint import Arguments, Endpoint, Parameter, json_response
from streamkit.http.event_stream import Event, EventStream
from streamkit.http.history import INTERVAL_S
from streamkit.http.json_client import HISTORY, INSTANCE
from streamkit.http.service import Service
from streamkit.runtime.local.states import ClientState
from streamkit.runtime.local.status_model import total_lag
from streamkit.runtime.operations.group_lag import member_label
from streamkit.serdes.plain import Document, Json

Object: TypeAlias = dict[str, Document]
Place: TypeAlias = tuple[str, int]

_PEER_SECONDS = 5.0
"""The time within which another instance must answer with its state; otherwise it counts as unreachable."""
_MOST_AT_ONCE = 8
_OWNED = ("RUNNING", "RESTORING")


def local_state(service: Service) -> Object:
    """Return the state of this instance as JSON-ready data, with all inputs of the application as it knows them."""
    status = service.application.status()
    return {
        "address": service.peers.own,
        **asdict(status),
        "shown_state": status.shown_state,
        "lag": status.lag,
        "own_lag": status.own_lag,
    }


def application_state(service: Service) -> Object:
    """Return the state of every instance, the inputs of the application, and its problems, the worst first."""
    own = local_state(service)
    instances = [own, *_others(service, own)]
    inputs = _inputs(instances)
    problems = problems_of(instances, inputs, own["group"]["rebalancing"])
    return {
        "application": own["application"],
        **worst_of(problems, own["shown_state"]),
        "problems": [asdict(problem) for problem in problems],
        "lag": total_lag(partition["lag"] for partition in inputs),
        "rate": sum(instance["rate"] for instance in instances if "threads" in instance),
        "group": own["group"],
        "inputs": inputs,
        "drops": [
            {"instance": instance["address"], **drop} for instance in instances for drop in instance.get("drops", ())
        ],
        "instances": instances,
    }


def _others(service: Service, own: Object) -> list[Object]:
    """Return the states of the other instances that the group names; instances that do not answer are GONE or UNKNOWN, with an `error`."""
    tasks = {member.server: [str(task) for task in member.active] for member in service.application.metadata_for_all()}
    addresses = service.peers.others()

    def state_of(address: str) -> Object:
        try:
            status: Object = service.peers.request(
                address, "/status", {"scope": "local"}, shape=INSTANCE, timeout_seconds=_PEER_SECONDS
            )
        except StreamkitError as error:
            # While the log does not respond, the other instance may be waiting for it and nothing else.
            gone = isinstance(error, InstanceGoneError) and own["group"]["members"] is not None
            state = "GONE" if gone else "UNKNOWN"
            return {
                "address": address,
                "state": state,
                "shown_state": state,
                "error": str(error),
                "tasks": tasks.get(address, []),
            }
        return status

    if not addresses:
        return []
    with ThreadPoolExecutor(min(len(addresses), _MOST_AT_ONCE), "status") as pool:
        return list(pool.map(state_of, addresses))


def _inputs(instances: list[Object]) -> list[Object]:
    """Return each input partition of the application as its owner knows it, with the owner's address or name."""
    known: list[Object] = next((instance["inputs"] for instance in instances if instance.get("inputs")), [])
    owned: dict[Place, Object] = {}
    for instance in instances:
        for partition in instance.get("inputs", ()):
            if partition["state"] in _OWNED:
                owned_partition = {**partition, "owner": _name(instance)}
                # While a task moves, both instances may have it.
                if partition["state"] == "RUNNING" or _place(partition) not in owned:
                    owned[_place(partition)] = owned_partition
    return [owned.get(_place(partition)) or _of_other(partition, instances) for partition in known]


def _of_other(partition: Object, instances: Iterable[Object]) -> Object:
    """Return an input that none of the responding instances processes."""
    member = partition["member"]
    for instance in instances:
        process = instance.get("process")
        if member is not None and process and member.startswith(process):
            return {**partition, "owner": _name(instance)}
    for instance in instances:
        if "threads" not in instance and partition["task"] in instance["tasks"]:
            return {**partition, "owner": instance["address"], "state": instance["state"]}
    return {**partition, "owner": None if member is None else member_label(member)}


def _name(instance: Object) -> str:
    return instance["address"] or "this instance"


def _place(partition: Object) -> Place:
    return partition["topic"], partition["partition"]


# What is wrong with an application, the worst first: the first line of `status`, and the head of the page.

_LEVELS = {
    "ERROR": "error",
    "GONE": "error",
    "UNOWNED": "error",
    "UNKNOWN": "warning",
    "PAUSED": "warning",
    "CREATED": "warning",
    "REBALANCING": "warning",
    "PENDING_SHUTDOWN": "warning",
    "NOT_RUNNING": "warning",
    "RESTORING": "warning",
    "DEAD LETTERS": "warning",
    "DROPPED": "warning",
}
"""The level of each condition; the worst condition is first."""
_STATES = ("PAUSED", "CREATED", "REBALANCING", "PENDING_SHUTDOWN", "NOT_RUNNING")
_MOST = 5


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: a condition of _LEVELS, its level, and one line of text."""

    condition: str
    level: str
    text: str


def problems_of(instances: Iterable[Object], inputs: list[Object], rebalancing: bool) -> list[Problem]:
    """Return the problems of an application, the worst first."""
    problems = [*_unowned(inputs, rebalancing)]
    for instance in instances:
        problems += _of_instance(instance, inputs)
    order = list(_LEVELS)
    return sorted(problems, key=lambda problem: order.index(problem.condition))


def worst_of(problems: list[Problem], state: str) -> Object:
    """Return condition and level of an application; `state`: the state of an instance without problems."""
    worst = problems[0] if problems else Problem(state, "ok", "")
    return {"condition": worst.condition, "level": worst.level}


def _problem(condition: str, text: str) -> Problem:
    return Problem(condition, _LEVELS[condition], text)


def _unowned(inputs: list[Object], rebalancing: bool) -> Iterator[Problem]:
    missing = [partition for partition in inputs if partition["state"] == "UNOWNED"]
    if missing:
        have = "has" if len(missing) == 1 else "have"
        during = ", during a rebalance" if rebalancing else ""
        yield _problem(
            "UNOWNED",
            f"{_partitions(missing)} of {len(inputs)} {have} no owner{during}: {_waiting(missing)}",
        )
    if any(partition["lag"] is None and partition["state"] != "RESTORING" for partition in inputs):
        yield _problem(
            "UNKNOWN", "the lag is not known: the log does not answer, or an instance does not run its tasks"
        )


def _of_instance(instance: Object, inputs: list[Object]) -> Iterator[Problem]:
    where = instance["address"] or "this instance"
    if "threads" not in instance:
        own = [partition for partition in inputs if partition["owner"] == instance["address"]]
        text = instance["error"] if not own else f"{instance['error']}; it owns {_partitions(own)}: {_waiting(own)}"
        yield _problem(instance["state"], text)
        return
    if instance["error"] is not None or instance["state"] in ("ERROR", "PENDING_ERROR"):
        yield _problem("ERROR", f"{where}: {instance['error'] or instance['state']}")
    for thread in instance["threads"]:
        if thread["error"] is not None and thread["error"] != instance["error"]:
            yield _problem("ERROR", f"{where}, {thread['name']}: {thread['error']}")
    if instance["shown_state"] in _STATES:
        yield _problem(instance["shown_state"], f"{where} is {instance['shown_state']}")
    if instance["restoring"]:
        left = sum(store["total"] - store["restored"] for store in instance["restoring"])
        yield _problem(
            "RESTORING",
            f"{where} restores {_counted(len(instance['restoring']), 'changelog')}, {_counted(left, 'record')} left",
        )
    yield from _dropped(where, instance["drops"])


def _dropped(where: str, drops: list[Object]) -> Iterator[Problem]:
    letters = sum(drop["dead_letters"] for drop in drops)
    dropped = sum(drop["dropped"] for drop in drops)
    if not drops:
        return
    last = max(drops, key=lambda drop: (bool(drop["dead_letters"]), drop["at_ms"]))
    text = f"the last in task {last['task'] or '-'}: {last['reason']}"
    if letters:
        yield _problem("DEAD LETTERS", f"{where} wrote {_counted(letters, 'dead letter')}, {text}")
    else:
        yield _problem("DROPPED", f"{where} dropped {_counted(dropped, 'record')}, {text}")


def _partitions(inputs: list[Object]) -> str:
    return _counted(len(inputs), "input partition")


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _waiting(inputs: list[Object]) -> str:
    """Return the partitions, and the number of records that wait in them."""
    named = [f"{partition['topic']} {partition['partition']}" for partition in inputs[:_MOST]]
    more = "" if len(inputs) <= _MOST else f" and {len(inputs) - _MOST} more"
    lag = total_lag(partition["lag"] for partition in inputs)
    waiting = "1 record waits" if lag == 1 else f"{'an unknown number of' if lag is None else f'{lag:,}'} records wait"
    return f"{', '.join(named)}{more}; {waiting}"


# Health, readiness, the state of an instance and of the application, and its threads.

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


def _state(service: Service) -> dict[str, Document]:
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
    state = application_state(service)
    return json_response({"lag": state["lag"], "partitions": state["inputs"]})


def add_thread(service: Service, request: Request) -> Response:
    """Start one more stream thread."""
    return _on_instance(service, request, lambda: _changed(service, service.application.add_thread()))


def remove_thread(service: Service, request: Request) -> Response:
    """Shut down a stream thread cleanly."""
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
    return {"thread": thread, "threads": [thread.name for thread in service.application.threads]}


# What the page of the application shows while it is open: status by push, the last hour, the steps behind the nodes.

_SECONDS = 1.0
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
    def of(address: str) -> Document:
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
        "/health",
        "Whether the process is healthy (a liveness probe).",
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
        "Shut down the newest stream thread of this instance cleanly; the others take over its tasks.",
        remove_thread,
        _INSTANCE,
        method="DELETE",
        answers={503: "The application does not run or has no thread left, or the thread takes longer to end."},
    ),
    Endpoint(
        "/pause", "Process, restore and update nothing on this instance until resumed.", pause, _INSTANCE, method="POST"
    ),
    Endpoint("/resume", "Resume after a pause.", resume, _INSTANCE, method="POST"),
    Endpoint("/lag", "Owner, position, end and lag of each input partition of the application.", lag),
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
