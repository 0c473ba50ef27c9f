"""What is wrong with an application, the worst first: the first line of `status`, and the head of the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from streamkit.runtime.local.instance.status_model import total_lag
from streamkit.serdes.plain import Json

Object: TypeAlias = dict[str, Json]

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
