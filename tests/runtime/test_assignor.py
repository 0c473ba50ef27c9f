"""The assignor: every task goes to one member, in balance, and stays where it was."""

from __future__ import annotations

from streamkit.record import TaskId
from streamkit.runtime.local.coordinator import assign


def test_tasks_are_balanced_and_a_sub_topology_is_spread():
    tasks = [TaskId(0, p) for p in range(3)] + [TaskId(1, p) for p in range(3)]
    result = assign(tasks, ["a", "b", "c"])
    assert {name: len(mine) for name, mine in result.items()} == {"a": 2, "b": 2, "c": 2}
    assert [mine for mine in result.values() if {sub for sub, _ in mine} != {0, 1}] == []


def test_tasks_stay_where_they_were():
    tasks = [TaskId(0, p) for p in range(6)]
    before = assign(tasks, ["a", "b"])
    after = assign(tasks, ["a", "b", "c"], before)
    assert {name: len(mine) for name, mine in after.items()} == {"a": 2, "b": 2, "c": 2}
    assert set(after["a"]) < set(before["a"])
    assert set(after["b"]) < set(before["b"])
    assert assign(tasks, ["a", "b", "c"], after) == after


def test_every_task_goes_to_exactly_one_member():
    tasks = [TaskId(s, p) for s in range(3) for p in range(5)]
    result = assign(tasks, ["a", "b", "c", "d"], {"a": tasks, "b": tasks})
    assert sorted(task for mine in result.values() for task in mine) == tasks
    assert {len(mine) for mine in result.values()} == {3, 4}


def test_no_members_no_assignment():
    assert assign([TaskId(0, 0)], []) == {}
