"""The state of an application: that of each instance that answers, and owner and lag of every input partition."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TypeAlias

from streamkit.errors import InstanceGoneError, StreamkitError
from streamkit.http.answers import INSTANCE
from streamkit.http.endpoints.conditions import problems_of, worst_of
from streamkit.http.service import Service
from streamkit.runtime.local.instance.status_model import total_lag
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
