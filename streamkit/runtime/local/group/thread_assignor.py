"""Assigns tasks to threads: balanced, and sticky where balance allows it (a pure function; StickyTaskAssignor)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from streamkit.record import TaskId


def assign(
    tasks: Collection[TaskId], members: Sequence[str], previous: Mapping[str, Collection[TaskId]] | None = None
) -> dict[str, list[TaskId]]:
    """Return the tasks of each member: loads differ by at most one; a task stays on its member unless that is full.

    Partitions of one sub-topology are spread over members. The same input gives the same result everywhere.

    >>> tasks = assign([TaskId(0, 0), TaskId(0, 1), TaskId(1, 0)], ["a", "b"])
    >>> {member: list(map(str, owned)) for member, owned in tasks.items()}
    {'a': ['0_0', '1_0'], 'b': ['0_1']}
    """
    if not members:
        return {}
    result: dict[str, list[TaskId]] = {member: [] for member in sorted(members)}
    floor, extra = divmod(len(tasks), len(result))
    left = _keep(tasks, result, previous or {}, floor, extra)
    for task in sorted(left):
        # The member with the fewest tasks, then with the fewest of the same sub-topology.
        target = min(
            result,
            key=lambda member: (
                len(result[member]),
                sum(t.sub_topology == task.sub_topology for t in result[member]),
                member,
            ),
        )
        result[target].append(task)
    for owned in result.values():
        owned.sort()
    return result


def _keep(
    tasks: Collection[TaskId],
    result: dict[str, list[TaskId]],
    previous: Mapping[str, Collection[TaskId]],
    floor: int,
    extra: int,
) -> set[TaskId]:
    """Assign members their previous tasks, up to a fair share; return the other tasks."""
    left = set(tasks)
    for member, owned in result.items():
        mine = sorted(left & set(previous.get(member, ())))
        room = floor + 1 if extra and len(mine) > floor else floor
        if len(mine) > floor and extra:
            extra -= 1
        owned.extend(mine[:room])
        left.difference_update(owned)
    return left
