"""Global tables in Spark's workers: read once a job, sent to every worker, and never changed."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from streamkit.record import RecordBatch, TopicPartition
from streamkit.runtime.execution.handlers import Handlers
from streamkit.runtime.execution.store_opening import MemoryStores, reprocess
from streamkit.runtime.execution.task import Task
from streamkit.runtime.execution.task_environment import TaskEnvironment, TaskSpec

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from streamkit.plan.model import SubTopology
    from streamkit.runtime.spark.workers.worker import Loaded
    from streamkit.state.definitions import Store

_stores: dict[str, dict[str, Store]] = {}


class Shared(Protocol):
    """Data in every worker: a broadcast of Spark, or Inline."""

    @property
    def value(self) -> bytes:
        """Return the data."""


@dataclass(frozen=True)
class Inline:
    """Data that is sent with each task, where Spark offers no broadcast (Spark Connect)."""

    value: bytes


def share(spark: SparkSession, data: bytes) -> Shared:
    """Make data available in every worker."""
    context = classic_context(spark)
    return Inline(data) if context is None else context.broadcast(data)


def classic_context(spark: SparkSession) -> SparkContext | None:
    """Return the SparkContext of a session; None for one of Spark Connect, which has none."""
    return None if type(spark).__module__.startswith("pyspark.sql.connect") else spark.sparkContext


class GlobalTables:
    """The rows of all topics of global tables, as they are sent to workers.

    rows: pickled record batches. token: identifies the job, since a worker process may run tasks of several jobs.
    """

    def __init__(self, token: str, rows: Shared, partitions: Mapping[str, int]):
        self._token = token
        self._rows = rows
        self._partitions = partitions

    def stores(self, loaded: Loaded) -> dict[str, Store]:
        """Return the global stores of this process, filled at the first call."""
        if self._token not in _stores:
            _stores.clear()
            _stores[self._token] = self._fill(loaded)
        return _stores[self._token]

    def _fill(self, loaded: Loaded) -> dict[str, Store]:
        batches: list[RecordBatch] = [RecordBatch(*parts) for parts in pickle.loads(self._rows.value)]
        found: dict[str, Store] = {}
        for sub in loaded.plan.sub_topologies:
            if not sub.is_global:
                continue
            task = self._task(loaded, sub)
            task.start({})
            for batch in batches:
                if batch.topic in sub.source_topics:
                    # An application that starts with all its input on the log restores the table from it, too.
                    reprocess(task, batch)
            task.flush_stores()
            found.update(task.stores)
        return found

    def _task(self, loaded: Loaded, sub: SubTopology) -> Task:
        inputs = tuple(
            TopicPartition(topic, number) for topic in sub.source_topics for number in range(self._partitions[topic])
        )
        spec = TaskSpec("global", 0, sub, loaded.program(sub.id), inputs)
        environment = TaskEnvironment(
            loaded.plan,
            clock=lambda: 0,
            open_store=MemoryStores(loaded.plan).open,
            partitions=lambda topic: self._partitions.get(topic, 1),
            handlers=Handlers.of(loaded.plan.config).of_globals(),
        )
        return Task(spec, environment)
