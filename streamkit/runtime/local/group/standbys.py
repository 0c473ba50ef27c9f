"""Standbys: on other instances than the active task, on different racks, where state exists, and balanced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from streamkit.record import TaskId
from streamkit.runtime.local.group.assignment_model import Decision, Instance, Rules


def place_standbys(
    instances: Mapping[str, Instance], decision: Decision, stateful: Sequence[TaskId], rules: Rules
) -> None:
    """Add num.standby.replicas standbys of each task to a decision (ClientTagAwareStandbyTaskAssignor, KIP-708)."""
    if not rules.standbys:
        return
    active = {task: name for name, tasks in decision.active.items() for task in tasks}
    warming: dict[TaskId, set[str]] = {}
    for name, tasks in decision.standby.items():
        for task in tasks:
            warming.setdefault(task, set()).add(name)
    threads = sum(each.threads for each in instances.values())
    fair = {name: -(-len(stateful) * rules.standbys * each.threads // threads) for name, each in instances.items()}
    counts = dict.fromkeys(instances, 0)
    # The standbys of one instance's tasks are distributed, so that its failure adds load to several instances.
    beside: Counter[tuple[str, str]] = Counter()
    for task in stateful:
        if task not in active:
            continue
        chosen = [active[task]]
        for _ in range(rules.standbys):
            free = [
                name
                for name, each in instances.items()
                if name not in chosen and name not in warming.get(task, ()) and (each.able is None or task in each.able)
            ]
            if not free:
                decision.missing_standbys += rules.standbys + 1 - len(chosen)
                break
            best = min(
                free,
                key=lambda name: (
                    _alike(instances, name, chosen, rules.rack_tags),
                    counts[name] >= fair[name],
                    instances[name].lags.get(task, float("inf")),
                    beside[active[task], name],
                    counts[name] / instances[name].threads,
                    name,
                ),
            )
            chosen.append(best)
            decision.standby[best].append(task)
            counts[best] += 1
            beside[active[task], best] += 1


def _alike(instances: Mapping[str, Instance], name: str, chosen: Sequence[str], keys: Sequence[str]) -> int:
    """Return how many rack tags an instance has in common with the instances that have the task already."""
    tags = instances[name].tags
    return sum(key in tags and any(instances[other].tags.get(key) == tags[key] for other in chosen) for key in keys)
