"""The assignor: balanced, sticky, and aware of the lag of state (HighAvailabilityTaskAssignor, KIP-441).

A pure function: the same input gives the same decision on every instance. Balance and stickiness select the target
instance of a task; lag selects the instance that runs it until the target has its state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamkit.record import TaskId
from streamkit.runtime.local.group.assignment_model import Decision, Instance, Rules
from streamkit.runtime.local.group.shares import Emptiest, Shares
from streamkit.runtime.local.group.standbys import place_standbys

FAR = 2**62
"""The lag of an instance without state while the size of the state is not known: higher than every other."""


def decide(
    instances: Mapping[str, Instance], tasks: Sequence[TaskId], stateful: Mapping[TaskId, int], rules: Rules
) -> Decision:
    """Return the active tasks and standbys of each instance.

    stateful: the tasks with state, each with the lag of an instance without it, in changelog records. A task that no
    instance can run is not assigned.
    """
    with_state = _target(instances, [task for task in tasks if task in stateful])
    standby: dict[str, list[TaskId]] = {name: [] for name in instances}
    active, probe = _where_state_is(instances, stateful, with_state, standby, rules)
    _spread_stateless(instances, active, [task for task in tasks if task not in stateful])
    decision = Decision(active, standby, probe)
    place_standbys(instances, decision, sorted(stateful), rules)
    for share in (*active.values(), *standby.values()):
        share.sort()
    return decision


def _able(instances: Mapping[str, Instance], task: TaskId) -> list[str]:
    return [name for name, each in instances.items() if _is_able(each, task)]


def _is_able(instance: Instance, task: TaskId) -> bool:
    return instance.able is None or task in instance.able


def _target(instances: Mapping[str, Instance], tasks: list[TaskId]) -> dict[str, list[TaskId]]:
    """Return the target instances of stateful tasks: running tasks stay, within the fair share of their instance."""
    shares = Shares({name: each.threads for name, each in instances.items()}, tasks)
    owners = _owners(instances)
    left = dict.fromkeys(sorted(tasks))
    for name in shares.owned:
        mine = instances[name].running
        # Tasks that already warm up elsewhere first, so that successive rebalances move the same tasks; then in turn
        # from each sub-topology.
        for task in sorted(
            (task for task in mine if task in left),
            key=lambda task: (len(owners.get(task, ())) > 1, task.partition, task.sub_topology),
        ):
            if shares.has_room(name, task):
                shares.give(name, task)
                del left[task]
    # Tasks with state on an instance, before those without.
    for task in sorted(task for task in left if task in owners):
        _give_to_best(instances, shares, task)
    emptiest = Emptiest(shares, spreads=True)
    alike = all(each.able is None for each in instances.values())
    for task in sorted(task for task in left if task not in owners):
        if not (alike and emptiest.give(task)):
            _give_to_best(instances, shares, task)
    return shares.owned


def _owners(instances: Mapping[str, Instance]) -> dict[TaskId, list[str]]:
    """Return the instances that have state of a task, running or on disk."""
    owners: dict[TaskId, list[str]] = {}
    for name, each in instances.items():
        for task in each.lags:
            owners.setdefault(task, []).append(name)
    return owners


def _give_to_best(instances: Mapping[str, Instance], shares: Shares, task: TaskId) -> None:
    able = _able(instances, task)
    room = [name for name in able if shares.has_room(name)] or able
    if room:
        shares.give(min(room, key=lambda name: _preference(instances[name], shares, name, task)), task)


def _preference(
    instance: Instance, shares: Shares, name: str, task: TaskId
) -> tuple[bool, bool, int, float, float, str]:
    return (
        not shares.has_room(name, task),
        task not in instance.running,
        instance.lags.get(task, FAR),
        shares.load(name),
        shares.load_of(name, task),
        name,
    )


def _where_state_is(
    instances: Mapping[str, Instance],
    stateful: Mapping[TaskId, int],
    target: Mapping[str, list[TaskId]],
    standby: dict[str, list[TaskId]],
    rules: Rules,
) -> tuple[dict[str, list[TaskId]], bool]:
    """Keep tasks on caught-up instances until their target has caught up, and warm the target up (assignTaskMovements)."""
    active: dict[str, list[TaskId]] = {name: [] for name in instances}
    warmups, probe = rules.warmups, False
    owners = _owners(instances)
    for task, name in sorted((task, name) for name, tasks in target.items() for task in tasks):
        lag = instances[name].lags.get(task, stateful[task])
        # An instance without state of a task has the largest lag, so only those with some are compared.
        known = {
            other: instances[other].lags[task] for other in owners.get(task, ()) if _is_able(instances[other], task)
        }
        nearest = min(known.values(), default=lag)
        if lag <= rules.acceptable_lag or lag <= nearest:
            active[name].append(task)
            continue
        limit = max(nearest, rules.acceptable_lag)
        keeper = min(
            (other for other, behind in known.items() if behind <= limit),
            key=lambda other: (task not in instances[other].running, known[other], len(active[other]), other),
        )
        active[keeper].append(task)
        probe = True
        if warmups:
            standby[name].append(task)
            warmups -= 1
    return active, probe


def _spread_stateless(instances: Mapping[str, Instance], active: dict[str, list[TaskId]], tasks: list[TaskId]) -> None:
    """Assign stateless tasks: they balance the instances, and stay on their instance where possible."""
    every = [*tasks, *(task for share in active.values() for task in share)]
    shares = Shares({name: each.threads for name, each in instances.items()}, every)
    for name, share in active.items():
        for task in share:
            shares.give(name, task)
    left = dict.fromkeys(sorted(tasks))
    for name in shares.owned:
        for task in sorted(
            (task for task in instances[name].running if task in left),
            key=lambda task: (task.partition, task.sub_topology),
        ):
            if shares.has_room(name, task):
                shares.give(name, task)
                active[name].append(task)
                del left[task]
    emptiest = Emptiest(shares, spreads=False)
    alike = all(each.able is None for each in instances.values())
    for task in left:
        if alike and (taker := emptiest.give(task)):
            active[taker].append(task)
            continue
        able = _able(instances, task)
        room = [name for name in able if shares.has_room(name)] or able
        if room:
            name = min(room, key=lambda name: (shares.load(name), shares.load_of(name, task), name))
            shares.give(name, task)
            active[name].append(task)
