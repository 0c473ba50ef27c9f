"""Which thread runs which task: balanced, and as before where balance allows (a pure function; StickyTaskAssignor)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

Id = tuple[int, int]
"""(sub-topology, partition) of a task."""


def assign(
    tasks: Collection[Id], members: Sequence[str], previous: Mapping[str, Collection[Id]] | None = None
) -> dict[str, list[Id]]:
    """Return the tasks of each member: loads differ by at most one; a task stays where it was unless that member is full.

    Partitions of one sub-topology are spread over members. The same input gives the same result everywhere.

    >>> assign([(0, 0), (0, 1), (1, 0)], ["a", "b"])
    {'a': [(0, 0), (1, 0)], 'b': [(0, 1)]}
    """
    if not members:
        return {}
    result: dict[str, list[Id]] = {member: [] for member in sorted(members)}
    floor, extra = divmod(len(tasks), len(result))
    left = _keep(tasks, result, previous or {}, floor, extra)
    for task in sorted(left):
        # The emptiest member, of these the one with the fewest tasks of the same sub-topology.
        target = min(
            result, key=lambda member: (len(result[member]), sum(t[0] == task[0] for t in result[member]), member)
        )
        result[target].append(task)
    for owned in result.values():
        owned.sort()
    return result


def _keep(
    tasks: Collection[Id], result: dict[str, list[Id]], previous: Mapping[str, Collection[Id]], floor: int, extra: int
) -> set[Id]:
    """Give members what they had, up to a fair share; return what is left."""
    left = set(tasks)
    for member, owned in result.items():
        mine = sorted(left & set(previous.get(member, ())))
        room = floor + 1 if extra and len(mine) > floor else floor
        if len(mine) > floor and extra:
            extra -= 1
        owned.extend(mine[:room])
        left.difference_update(owned)
    return left
