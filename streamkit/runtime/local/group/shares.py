"""Balanced shares of instances with different numbers of threads."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping

from streamkit.record import TaskId


class Shares:
    """The tasks of one kind by instance: per thread no two instances differ by more than one, where possible."""

    def __init__(self, threads: Mapping[str, int], tasks: Iterable[TaskId]):
        self.owned: dict[str, list[TaskId]] = {name: [] for name in sorted(threads)}
        self._threads = threads
        self._of_sub: dict[str, Counter[int]] = {name: Counter() for name in self.owned}
        total = sum(threads.values())
        counts = Counter(task.sub_topology for task in tasks)
        self._floor, self._extra = divmod(counts.total(), total) if total else (0, 0)
        # The most tasks of one sub-topology: an instance with most of one sub-topology is a bottleneck for the topology.
        self._sub_limit = {
            name: {sub: -(-count * threads[name] // total) for sub, count in counts.items()} for name in self.owned
        }

    def has_room(self, name: str, task: TaskId | None = None) -> bool:
        """Whether an instance may take one more, of this task's sub-topology where a task is given."""
        if task is not None and self._of_sub[name][task.sub_topology] >= self._sub_limit[name][task.sub_topology]:
            return False
        above = len(self.owned[name]) - self._floor * self._threads[name]
        # An instance may have one extra task for each of its threads, as long as there are any.
        return above < 0 or (above < self._threads[name] and self._extra > 0)

    def give(self, name: str, task: TaskId) -> None:
        """Give a task to an instance."""
        if len(self.owned[name]) >= self._floor * self._threads[name]:
            self._extra -= 1
        self.owned[name].append(task)
        self._of_sub[name][task.sub_topology] += 1

    def load(self, name: str) -> float:
        """Tasks per thread."""
        return len(self.owned[name]) / self._threads[name]

    def load_of(self, name: str, task: TaskId) -> float:
        """Tasks of one sub-topology per thread."""
        return self._of_sub[name][task.sub_topology] / self._threads[name]


class Emptiest:
    """Assigns tasks without a preferred instance to the one with the lowest load; a heap, for groups of a thousand instances."""

    def __init__(self, shares: Shares, spreads: bool):
        """`spreads`: whether instances that have their fair part of the task's sub-topology come last."""
        self._shares = shares
        self._spreads = spreads
        self._heaps: dict[int, list[tuple[bool, float, float, str]]] = {}

    def give(self, task: TaskId) -> str:
        """Assign a task to the instance with the lowest load, then with the fewest of its sub-topology; return its name, or ""."""
        shares = self._shares
        if task.sub_topology not in self._heaps:
            self._heaps[task.sub_topology] = sorted(self._place(name, task) for name in shares.owned)
        heap = self._heaps[task.sub_topology]
        while heap:
            name = heap[0][-1]
            place = self._place(name, task)
            if not shares.has_room(name):
                heapq.heappop(heap)  # a full instance stays full
            elif place != heap[0]:
                heapq.heapreplace(heap, place)  # loads only grow, so the first entry that is up to date is the lowest
            else:
                shares.give(name, task)
                return name
        return ""

    def _place(self, name: str, task: TaskId) -> tuple[bool, float, float, str]:
        shares = self._shares
        is_full = self._spreads and not shares.has_room(name, task)
        return (is_full, shares.load(name), shares.load_of(name, task), name)
