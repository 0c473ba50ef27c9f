"""Opens the stores of tasks, in memory or in the state directory, and restores global stores through their processors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from streamkit.compile.compiler import compile_sub_topology
from streamkit.errors import RegistryError, StateError, TaskCorruptedError
from streamkit.operators.steps.topics.source import GlobalTableSource, TableSource
from streamkit.operators.steps.topics.topic_store import GlobalStoreUpdate
from streamkit.plan.model import Plan, SubTopology
from streamkit.record import Columns, RecordBatch, TopicPartition
from streamkit.runtime.execution.task import Task
from streamkit.runtime.execution.task_environment import StoreServices, TaskEnvironment, TaskSpec
from streamkit.runtime.local.restore import Changelog
from streamkit.serdes.schema_serde import FramedSerde
from streamkit.state.definitions import Owner, Store
from streamkit.state.directory import StateDirectory, delete_checkpoint, unrestorable
from streamkit.state.engines.memory import UndoMap
from streamkit.state.engines.overlay import text_of
from streamkit.state.open_store import create
from streamkit.state.store_offsets import layout_of
from streamkit.state.stores.cache import CacheBudget

log = logging.getLogger(__name__)


class MemoryStores:
    """Opens all stores in memory, with the rules of their kinds, and one cache."""

    def __init__(self, plan: Plan):
        self._plan = plan
        self._budget = cache_budget(plan.config.statestore_cache_max_bytes)

    def open(self, spec: TaskSpec, name: str, services: StoreServices) -> Store:
        """Return a new store of a task."""
        return create(self._plan.stores[name], None, services, self._budget)


class DirectoryStores:
    """Opens persistent stores in the directory of their task; the tasks of one thread share `cache_bytes`.

    `topic_ids`: ids of changelogs by name; state of a topic that was deleted and created again is not used.
    """

    def __init__(
        self,
        plan: Plan,
        directory: StateDirectory,
        cache_bytes: int,
        topic_ids: Mapping[str, str],
    ):
        self._plan = plan
        self._directory = directory
        self._topic_ids = topic_ids
        self._budget = cache_budget(cache_bytes)

    def resize(self, cache_bytes: int) -> None:
        """Change the size of the cache that the tasks share; stores opened with a cache keep it."""
        if self._budget is not None and cache_bytes > 0:
            self._budget.resize(cache_bytes)

    def open(self, spec: TaskSpec, name: str, services: StoreServices) -> Store:
        """Return a store of a task. Unusable files are deleted, so that the store is restored. Raises StateError."""
        definition, directory = self._plan.stores[name], self._directory
        is_global = spec.sub_topology.is_global
        # A global store forwards nothing, so a cache would have no effect.
        budget = None if is_global else self._budget
        if not definition.persistent:
            return create(
                definition, None, services, budget, rows=UndoMap() if self._plan.config.keeps_commits else None
            )
        path = directory.global_state() if is_global else directory.task(spec.task_id)
        owner = self._owner(name, None if is_global else spec.partition)
        opened = self._open(path, owner, services, budget)
        if not isinstance(opened, str):
            return opened
        if owner.topic is None:
            raise unrestorable(name, directory.store(path.name, name), opened)
        log.warning(
            "The state of store %s in %s %s: it is deleted, and restored from its changelog", name, path, opened
        )
        delete_checkpoint(path)
        directory.wipe_store(path.name, name)
        opened = self._open(path, owner, services, budget)
        if isinstance(opened, str):
            raise StateError(f"The state of store {name} in {path} {opened}")
        return opened

    def _owner(self, name: str, partition: int | None) -> Owner:
        plan = self._plan
        topic = plan.changelog_name(name)
        layout = layout_of(plan.stores[name])
        return Owner(plan.application, name, partition, topic, self._topic_ids.get(topic or "", ""), layout)

    def _open(self, path: Path, owner: Owner, services: StoreServices, budget: CacheBudget | None) -> Store | str:
        """Return a store on disk, or the reason why its files can't be used."""
        directory = self._directory
        try:
            store = create(
                self._plan.stores[owner.store], path, services, budget, engine=directory.engine_of(path.name)
            )
        except TaskCorruptedError as error:
            return f"is damaged: {text_of(error.__cause__ or error)}"
        try:
            problem = store.adopt(owner, unmarked=not directory.keeps_offsets(path.name))
        except TaskCorruptedError as error:
            problem = f"is damaged: {text_of(error.__cause__ or error)}"
        except BaseException:
            store.close()
            raise
        if problem is None:
            return store
        store.close()
        return problem


def cache_budget(max_bytes: int) -> CacheBudget | None:
    """Return a cache budget; None without a cache (statestore.cache.max.bytes = 0)."""
    return CacheBudget(max_bytes) if max_bytes > 0 else None


# Restores global stores that have a custom processor through this processor, record by record (KIP-813, KAFKA-7663).


def reprocesses(sub: SubTopology) -> bool:
    """Return whether a global sub-topology has a custom processor."""
    return any(isinstance(node.processor, GlobalStoreUpdate) for node in sub.nodes.values())


def reprocess(task: Task, batch: RecordBatch) -> None:
    """Process a batch to restore a store; records without a key are skipped, as in Java. Raises ProcessingError."""
    if None in batch.keys:
        columns = batch.columns.keep([key is not None for key in batch.keys])
        batch = RecordBatch(batch.topic, batch.partition, columns)
    task.update(batch)
    del task.output[:]


@dataclass(eq=False)
class ReprocessedTopic(Changelog):
    """A partition whose records restore a global store through the task's processor."""

    task: Task | None = None

    def apply(self, batch: RecordBatch, stop: int | None) -> int:
        """Process the records of a batch before the offset `stop`; return their number. Raises ProcessingError."""
        assert self.task is not None
        batch = batch.before(stop)
        if len(batch):
            reprocess(self.task, batch)
            self.task.flush_stores()
            self.store.note_position(self.partition.partition, batch.offsets[-1] + 1)
            self.store.commit()
            self.restored += len(batch)
        return len(batch)


# Restores tables from their source topics (topology.optimization): what a task has stored is not what its topic has.


def source_rows(task: Task, name: str, partition: TopicPartition) -> SourceRows | None:
    """Return what restores a store from a source topic if a table's records are its rows; None for other stores."""
    sub = task.spec.sub_topology
    processors = (node.processor for node in sub.nodes.values())
    fills = (isinstance(each, TableSource | GlobalTableSource) and each.store == name for each in processors)
    return None if sub.is_global or not any(fills) else SourceRows(task, task.stores[name], partition)


def source_rows_of(plan: Plan, name: str) -> Callable[[TopicPartition], SourceRows | None]:
    """Return `source_rows` for the partitions of a store whose application does not run."""
    sub = next(part for part in plan.sub_topologies if name in part.stores)
    if plan.stores[name].source_topic is None or sub.is_global:
        return lambda partition: None
    stores = MemoryStores(plan)
    environment = TaskEnvironment(plan, clock=lambda: 0, open_store=stores.open, partitions=lambda topic: 1)
    task = Task(TaskSpec(f"{sub.id}_0", 0, sub, compile_sub_topology(plan, sub), ()), environment)
    return partial(source_rows, task, name)


def restore_store(task: Task, name: str, batch: RecordBatch) -> None:
    """Restore a store from all records of its changelog, which may be a source topic."""
    source = TopicPartition(batch.topic, batch.partition)
    rows_of = None if task.stores[name].definition.source_topic is None else source_rows(task, name, source)
    columns = batch.columns if rows_of is None else rows_of(batch)
    task.stores[name].restore_batch(columns.keys, columns.values, columns.timestamps, columns.headers)  # type: ignore[arg-type]


class SourceRows:
    """Gives records of a source topic the form in which the task stored them.

    A table has keys and values as their serdes write them, since look-ups need its keys, and extracted timestamps. It has no record that does not
    decode or has no valid timestamp, since a handler or a reset of offsets has skipped it. Java restores the topic as it is
    (KAFKA-8037).
    """

    def __init__(self, task: Task, store: Store, partition: TopicPartition):
        self._queue = task.restoring_queue(partition)
        self._keys, self._values = store.definition.key_serde, store.definition.value_serde
        self._framed = isinstance(self._values, FramedSerde)
        """Whether values have the id of a schema: reading them with another id gives the same."""

    def __call__(self, batch: RecordBatch) -> Columns:
        """Return the rows of a batch; the store omits those without a key. Raises RegistryError."""
        columns, _ = self._queue.timed(batch)
        self._queue.unhandled.clear()
        if self._queue.failures:
            raise self._queue.failures[0].error
        keys, values, keep = list(columns.keys), list(columns.values), [True] * len(columns.keys)
        for at, (key, value) in enumerate(zip(columns.keys, columns.values, strict=True)):
            try:
                decoded = None if key is None else self._keys.decode(key)
                keys[at] = None if decoded is None else self._keys.encode(decoded)
                read = None if value is None else self._values.decode(value)
                values[at] = None if read is None else value if self._framed else self._values.encode(read)
            except RegistryError:
                raise
            except Exception:
                keep[at] = False
        columns = columns._replace(keys=keys, values=values)
        return columns if all(keep) else columns.keep(keep)
