"""What runs inside Spark's Python workers: tasks over the rows of their partitions, in the order in which they run live."""

from __future__ import annotations

import hashlib
import json
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from itertools import pairwise
from typing import Any

from streamkit.compile import Program, compile_sub_topology
from streamkit.errors import StreamkitError
from streamkit.plan.model import Plan, SubTopology
from streamkit.record import RecordBatch, TopicPartition
from streamkit.runtime.collecting import collect_rarely, keep_memory
from streamkit.runtime.environment import EmitIntervals, TaskEnvironment, TaskSpec
from streamkit.runtime.handlers import Handlers
from streamkit.runtime.queues import Idling
from streamkit.runtime.records import RecordJson
from streamkit.runtime.spark import arrow_rows
from streamkit.runtime.spark.globals import GlobalTables
from streamkit.runtime.spark.json_output import LINES_DDL, Lines
from streamkit.runtime.spark.outbox import Outbox, Wanted
from streamkit.runtime.spark.spill import SpillingStores
from streamkit.runtime.spark.stages import Stage
from streamkit.runtime.task import Task

MARK = "streamkit-failure:"
"""What stands before the JSON of an error in the text of Spark's exceptions."""
Batches = Iterable[Any]
OFFSETS = "committed offsets"
"""Instead of a topic, in rows that say what a task would commit. No topic can be called so."""
_NO_WAITING = Idling(-1)


@dataclass(frozen=True)
class StageWork:
    """All that a Spark task needs to run a stage; shipped to the workers, which compile the plan again."""

    plan: bytes
    """A pickled Plan whose stores neither cache nor log."""
    stage: Stage
    sources: Mapping[int, tuple[str, ...]]
    """The topics that each sub-topology reads, patterns resolved."""
    wanted: Wanted
    global_tables: GlobalTables | None = None
    ends: Mapping[TopicPartition, int] | None = None
    """The offsets after what is read, where tasks are to say what they would commit."""
    spill_bytes: int = 128 * 1024 * 1024
    """Of one store in memory before it moves to disk."""
    by_key: bool = False
    """Whether rows may come by buckets of keys, so that what a task holds of a key is of no use after its bucket."""
    most_rows: int = 200_000
    """That a task takes in before it lets go of the buckets that are through."""
    lines: bool = False
    """Whether the output comes as lines of JSON rather than as rows."""

    @property
    def ddl(self) -> str:
        """The columns of the output, for Spark."""
        return LINES_DDL if self.lines else arrow_rows.DDL


class Loaded:
    """A plan as this process knows it, and its programs."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.subs: dict[int, SubTopology] = {sub.id: sub for sub in plan.sub_topologies}
        self._programs: dict[int, Program] = {}

    def program(self, index: int) -> Program:
        """Return the program of a sub-topology, compiled once a process."""
        if index not in self._programs:
            self._programs[index] = compile_sub_topology(self.plan, self.subs[index])
        return self._programs[index]


_loaded: dict[bytes, Loaded] = {}


def load(plan: bytes) -> Loaded:
    """Return a pickled plan, loaded once a process: Spark uses its workers again."""
    digest = hashlib.sha256(plan).digest()
    if digest not in _loaded:
        _loaded.clear()
        _loaded[digest] = Loaded(pickle.loads(plan))
    return _loaded[digest]


class BatchTask(Task):
    """A task without a clock."""

    def schedule(
        self, node: int, interval_ms: int, kind: str, callback: Callable[[int], None], start: int | None = None
    ) -> Any:
        """Call back at "stream_time" intervals. Raises StreamkitError for "wall_clock"."""
        if kind == "wall_clock":
            raise StreamkitError("schedule: a batch job has no wall clock, so that it gives the same whenever it runs")
        return super().schedule(node, interval_ms, kind, callback, start)

    def wall_clock(self) -> int:
        """Raise StreamkitError."""
        raise StreamkitError("a batch job has no wall clock, so that it gives the same whenever it runs")


def new_task(loaded: Loaded, work: StageWork, index: int, partition: int, stores: SpillingStores) -> BatchTask:
    """Return the task of a sub-topology's partition, not started."""
    plan, counts = loaded.plan, work.wanted.partitions
    inputs = tuple(TopicPartition(topic, partition) for topic in work.sources[index] if partition < counts[topic])
    spec = TaskSpec(f"{index}_{partition}", partition, loaded.subs[index], loaded.program(index), inputs)
    environment = TaskEnvironment(
        plan,
        clock=lambda: 0,
        open_store=stores.open,
        partitions=lambda topic: counts.get(topic, 1),
        handlers=Handlers.of(plan.config),
        idling=_NO_WAITING,
        emit_intervals=EmitIntervals(0, 0),  # a batch job has no clock
        global_stores={} if work.global_tables is None else work.global_tables.stores(loaded),
        print_line=lambda text: print(text, file=sys.stderr),
        max_request_size=plan.config.max_request_size,
    )
    return BatchTask(spec, environment)


def told(function: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Give streamkit's errors a form that can be found again in what Spark makes of exceptions in its workers."""

    @wraps(function)
    def run(*arguments: Any) -> Iterator[Any]:
        try:
            yield from function(*arguments)
        except StreamkitError as error:
            raise RuntimeError(f"{MARK}{json.dumps([type(error).__name__, str(error)])}") from error

    return run


@told
def run_tasks(work: StageWork, batches: Batches) -> Iterator[Any]:
    """Run the task of each partition over rows sorted by partition and by the order of its task; yield their output."""
    collect_rarely()
    keep_memory()
    loaded = load(work.plan)
    running: _Running | None = None
    try:
        for batch in batches:
            for partition, part in by_partition(batch):
                if running is None or running.partition != partition:
                    if running is not None:
                        yield from running.finish()
                    running = _Running(loaded, work, partition)
                yield from running.process(part)
        if running is not None:
            yield from running.finish()
            running = None
    finally:
        if running is not None:
            running.close()


class _Running:
    """The task of one partition at work."""

    def __init__(self, loaded: Loaded, work: StageWork, partition: int):
        self.partition = partition
        (index,) = work.stage.subs
        self._work = work
        self._loaded = loaded
        self._offsets: dict[str, int] = {}
        box = (work.wanted, source_id(index, partition), lambda: self._stores.directory())
        self._outbox = Lines(*box, RecordJson(loaded.plan)) if work.lines else Outbox(*box)
        self._rows = 0
        self._bucket = -1
        self._open(index)

    def _open(self, index: int) -> None:
        self._stores = SpillingStores(self._loaded.plan, self._work.spill_bytes)
        try:
            self._task = new_task(self._loaded, self._work, index, self.partition, self._stores)
        except BaseException:
            self._stores.close()
            raise
        self._task.start({})

    def process(self, batch: Any) -> Iterator[Any]:
        """Process rows; yield output."""
        rows = arrow_rows.widened(batch, self._work.stage.inputs[0])
        if arrow_rows.PLACE in batch.schema.names:
            buckets = batch.column(arrow_rows.PLACE).to_numpy() >> arrow_rows.PLACE_BITS
            rest = int(buckets.searchsorted(self._bucket, "right"))
            if self._rows >= self._work.most_rows and rest < len(rows):
                yield from self._process(rows.slice(0, rest))
                yield from self.finish()
                self._open(*self._work.stage.subs)
                self._rows, rows = 0, rows.slice(rest)
            self._rows += len(rows)
            self._bucket = int(buckets[-1])
        yield from self._process(rows)

    def _process(self, batch: Any) -> Iterator[Any]:
        task = self._task
        for columns in by_topic(batch):
            task.add(records(columns, self.partition, self._offsets))
        drain(task)
        self._stores.settle(task)
        if task.output:
            yield from self._outbox.take(task.output)

    def finish(self) -> Iterator[Any]:
        """Commit once, at the end of the history or of keys; yield the rest of the output."""
        task = self._task
        commit(task, self._work.ends)
        yield from self._outbox.take(task.output)
        yield from self._outbox.rest()
        self.close()

    def close(self) -> None:
        """Close processors and stores."""
        try:
            self._task.close()
        finally:
            self._stores.close()


def commit(task: Task, ends: Mapping[TopicPartition, int] | None) -> None:
    """Empty the caches of a task, and put out what it would commit, where `ends` are known."""
    if ends is None:
        task.flush_stores()
        return
    task.commit_needed = True
    # Repartition topics hold nothing, so what is committed of them is the time that they have come to.
    found = task.prepare_commit(lambda place: ends.get(place, 0))
    task.output.extend(
        (OFFSETS, json.dumps(place).encode(), json.dumps([each.offset, each.metadata]).encode(), 0, None, 0)
        for place, each in found.items()
    )


def drain(task: Task) -> None:
    """Process all that a task has in its queues."""
    while task.has_records() or task.expiring:
        # A processor's wish to commit ends a round.
        task.process(sys.maxsize)
        task.commit_requested = False


def source_id(index: int, partition: int) -> int:
    """Return the number of a task as a writer; from 1, since 0 means the log."""
    return (index << 32) + partition + 1


def by_partition(batch: Any) -> Iterator[tuple[int, Any]]:
    """Yield the parts of a batch that belong to one partition each; rows come sorted by it."""
    import numpy as np

    numbers = batch.column("partition").to_numpy()
    if not len(numbers):
        return
    starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    for start, stop in pairwise(starts):
        yield int(numbers[start]), batch.slice(start, stop - start)


def by_topic(batch: Any) -> Iterator[Any]:
    """Yield the parts of a batch that belong to one topic each, rows in their order.

    A part of the merged order falls into queues that merge again as they did: at most one of them begins with a late
    record, and it is the one whose turn it is.
    """
    topics = batch.column(arrow_rows.TOPIC).unique().to_pylist()
    if len(topics) == 1:
        yield batch
        return
    import pyarrow.compute as pc

    for topic in topics:
        yield batch.filter(pc.equal(batch.column(arrow_rows.TOPIC), topic))


def records(batch: Any, partition: int, offsets: dict[str, int]) -> RecordBatch:
    """Return the rows of one topic as a task takes them; `offsets`: the next one where the log has given none."""
    topic = batch.column(arrow_rows.TOPIC)[0].as_py()
    count = len(batch)
    if batch.column(arrow_rows.SOURCE)[0].as_py() == 0:
        numbers = arrow_rows.values_of(batch.column(arrow_rows.OFFSET))
    else:
        start = offsets.get(topic, 0)
        offsets[topic] = start + count
        numbers = list(range(start, start + count))
    return RecordBatch(
        topic,
        partition,
        (
            arrow_rows.values_of(batch.column(arrow_rows.KEY)),
            arrow_rows.values_of(batch.column(arrow_rows.VALUE)),
            arrow_rows.values_of(batch.column(arrow_rows.TIMESTAMP)),
            arrow_rows.headers_of(batch.column(arrow_rows.HEADERS)),
            numbers,
        ),
    )
