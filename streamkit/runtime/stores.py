"""Opens the stores of tasks: in memory for the driver, in the state directory for an application."""

from __future__ import annotations

from typing import Any

from streamkit.plan.model import Plan
from streamkit.runtime.environment import StoreServices, TaskSpec
from streamkit.state.cache import CacheBudget
from streamkit.state.definitions import create
from streamkit.state.directory import StateDirectory


class MemoryStores:
    """All stores in memory, with the rules of the kind that the plan names, and one cache."""

    def __init__(self, plan: Plan):
        self._plan = plan
        self._budget = cache_budget(int(plan.config["statestore.cache.max.bytes"]))

    def open(self, spec: TaskSpec, name: str, services: StoreServices) -> Any:
        """Return a new store of a task."""
        return create(self._plan.stores[name], None, services, self._budget)


class DirectoryStores:
    """Persistent stores in the directory of their task; the tasks of one thread share `cache_bytes`."""

    def __init__(self, plan: Plan, directory: StateDirectory, cache_bytes: int):
        self._plan = plan
        self._directory = directory
        self._budget = cache_budget(cache_bytes)

    def resize(self, cache_bytes: int) -> None:
        """Change the size of the cache that the tasks share; stores that were made with one keep it."""
        if self._budget is not None and cache_bytes > 0:
            self._budget.resize(cache_bytes)

    def open(self, spec: TaskSpec, name: str, services: StoreServices) -> Any:
        """Return a store of a task. Raises StateError."""
        definition = self._plan.stores[name]
        is_global = spec.sub_topology.is_global
        path = None
        if definition.persistent:
            path = self._directory.global_state() if is_global else self._directory.task(spec.task_id)
        # A global store forwards nothing, so that a cache of its own would change nothing.
        budget = None if is_global else self._budget
        return create(definition, path, services, budget, engine=self._directory.engine)


def cache_budget(max_bytes: int) -> CacheBudget | None:
    """Return a cache budget, None where there is no cache at all (statestore.cache.max.bytes = 0)."""
    return CacheBudget(max_bytes) if max_bytes > 0 else None
