"""Global tables in Spark's workers: read once a job, sent to every worker, the same at each look."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamkit.record import RecordBatch, TopicPartition
from streamkit.runtime.environment import TaskEnvironment, TaskSpec
from streamkit.runtime.handlers import Handlers
from streamkit.runtime.reprocess import reprocess
from streamkit.runtime.stores import MemoryStores
from streamkit.runtime.task import Task

if TYPE_CHECKING:
    from streamkit.runtime.spark.worker import Loaded

_stores: dict[str, dict[str, Any]] = {}


@dataclass(frozen=True)
class Inline:
    """Rows that travel with each task, where Spark offers no broadcast (Spark Connect)."""

    value: bytes


def shipped(spark: Any, data: bytes) -> Any:
    """Return something that has the data as its `value` in every worker."""
    context = classic_context(spark)
    return Inline(data) if context is None else context.broadcast(data)


def classic_context(spark: Any) -> Any:
    """Return the SparkContext of a session, None where it is remote and has none."""
    return None if type(spark).__module__.startswith("pyspark.sql.connect") else spark.sparkContext


class GlobalTables:
    """The rows of all topics of global tables, as they are shipped.

    rows: something with a `value` that is pickled record batches (a Spark broadcast). token: what tells jobs apart.
    """

    def __init__(self, token: str, rows: Any, partitions: Mapping[str, int]):
        self._token = token
        self._rows = rows
        self._partitions = partitions

    def stores(self, loaded: Loaded) -> dict[str, Any]:
        """Return the global stores of this process, filled at the first call."""
        if self._token not in _stores:
            _stores.clear()
            _stores[self._token] = self._fill(loaded)
        return _stores[self._token]

    def _fill(self, loaded: Loaded) -> dict[str, Any]:
        batches: list[RecordBatch] = [RecordBatch(*parts) for parts in pickle.loads(self._rows.value)]
        found: dict[str, Any] = {}
        for sub in loaded.plan.sub_topologies:
            if not sub.is_global:
                continue
            task = self._task(loaded, sub)
            task.start({})
            for batch in batches:
                if batch.topic in sub.source_topics:
                    # A live run that finds all its input on the log restores from it.
                    reprocess(task, batch)
            task.flush_stores()
            found.update(task.stores)
        return found

    def _task(self, loaded: Loaded, sub: Any) -> Task:
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
