"""The state of an application: that of each instance that answers, and owner and lag of every input partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TypeAlias

from streamkit.errors import InstanceGoneError, StreamkitError
from streamkit.http.answers import INSTANCE
from streamkit.http.service import Service
from streamkit.runtime.local.status_model import total_lag
from streamkit.runtime.operations.group_lag import member_label
from streamkit.serdes.plain import Json

Object: TypeAlias = dict[str, Json]
Place: TypeAlias = tuple[str, int]

_PEER_SECONDS = 5.0
"""The time in which another instance answers with its state, or counts as gone."""
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
    found = problems_of(instances, inputs, own["group"]["rebalancing"])
    return {
        "application": own["application"],
        **worst_of(found, own["shown_state"]),
        "problems": [asdict(each) for each in found],
        "lag": total_lag(each["lag"] for each in inputs),
        "rate": sum(each["rate"] for each in instances if "threads" in each),
        "group": own["group"],
        "inputs": inputs,
        "drops": [{"instance": each["address"], **drop} for each in instances for drop in each.get("drops", ())],
        "instances": instances,
    }


def _others(service: Service, own: Object) -> list[Object]:
    """Return the states of the other instances that the group names; `error` and GONE or UNKNOWN of those that do not answer."""
    tasks = {each.server: [str(task) for task in each.active] for each in service.application.metadata_for_all()}
    addresses = service.peers.others()

    def state_of(address: str) -> Object:
        try:
            found: Object = service.peers.request(
                address, "/status", {"scope": "local"}, shape=INSTANCE, timeout_seconds=_PEER_SECONDS
            )
        except StreamkitError as error:
            # While the log does not respond, the other instance may only wait for it.
            gone = isinstance(error, InstanceGoneError) and own["group"]["members"] is not None
            state = "GONE" if gone else "UNKNOWN"
            return {
                "address": address,
                "state": state,
                "shown_state": state,
                "error": str(error),
                "tasks": tasks.get(address, []),
            }
        return found

    if not addresses:
        return []
    with ThreadPoolExecutor(min(len(addresses), _MOST_AT_ONCE), "status") as pool:
        return list(pool.map(state_of, addresses))


def _inputs(instances: list[Object]) -> list[Object]:
    """Return each input partition of the application as its owner knows it, with the owner's address or name."""
    known: list[Object] = next((each["inputs"] for each in instances if each.get("inputs")), [])
    owned: dict[Place, Object] = {}
    for instance in instances:
        for each in instance.get("inputs", ()):
            if each["state"] in _OWNED:
                found = {**each, "owner": _name(instance)}
                # While a task moves, both instances may have it.
                if each["state"] == "RUNNING" or _place(each) not in owned:
                    owned[_place(each)] = found
    return [owned.get(_place(each)) or _of_other(each, instances) for each in known]


def _of_other(partition: Object, instances: Iterable[Object]) -> Object:
    """Return an input that no instance that answers processes."""
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
    found = [*_unowned(inputs, rebalancing)]
    for instance in instances:
        found += _of_instance(instance, inputs)
    order = list(_LEVELS)
    return sorted(found, key=lambda problem: order.index(problem.condition))


def worst_of(problems: list[Problem], state: str) -> Object:
    """Return condition and level of an application; `state`: that of an instance without problems."""
    worst = problems[0] if problems else Problem(state, "ok", "")
    return {"condition": worst.condition, "level": worst.level}


def _problem(condition: str, text: str) -> Problem:
    return Problem(condition, _LEVELS[condition], text)


def _unowned(inputs: list[Object], rebalancing: bool) -> Iterator[Problem]:
    missing = [each for each in inputs if each["state"] == "UNOWNED"]
    if missing:
        have = "has" if len(missing) == 1 else "have"
        during = ", during a rebalance" if rebalancing else ""
        yield _problem(
            "UNOWNED",
            f"{_partitions(missing)} of {len(inputs)} {have} no owner{during}: {_waiting(missing)}",
        )
    if any(each["lag"] is None and each["state"] != "RESTORING" for each in inputs):
        yield _problem(
            "UNKNOWN", "the lag is not known: the log does not answer, or an instance does not run its tasks"
        )


def _of_instance(instance: Object, inputs: list[Object]) -> Iterator[Problem]:
    where = instance["address"] or "this instance"
    if "threads" not in instance:
        own = [each for each in inputs if each["owner"] == instance["address"]]
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
        left = sum(each["total"] - each["restored"] for each in instance["restoring"])
        yield _problem(
            "RESTORING",
            f"{where} restores {_counted(len(instance['restoring']), 'changelog')}, {_counted(left, 'record')} left",
        )
    yield from _dropped(where, instance["drops"])


def _dropped(where: str, drops: list[Object]) -> Iterator[Problem]:
    letters = sum(each["dead_letters"] for each in drops)
    dropped = sum(each["dropped"] for each in drops)
    if not drops:
        return
    last = max(drops, key=lambda each: (bool(each["dead_letters"]), each["at_ms"]))
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
    named = [f"{each['topic']} {each['partition']}" for each in inputs[:_MOST]]
    more = "" if len(inputs) <= _MOST else f" and {len(inputs) - _MOST} more"
    lag = total_lag(each["lag"] for each in inputs)
    waiting = "1 record waits" if lag == 1 else f"{'an unknown number of' if lag is None else f'{lag:,}'} records wait"
    return f"{', '.join(named)}{more}; {waiting}"
