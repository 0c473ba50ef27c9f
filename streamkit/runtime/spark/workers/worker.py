"""Runs tasks in Spark's Python workers. Each task processes the rows of its partition in the order of a live task."""

from __future__ import annotations

import hashlib
import json
import pickle
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from itertools import chain, pairwise
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeAlias, TypeVar, cast

from streamkit.compile.compiler import compile_sub_topology
from streamkit.compile.program import Program
from streamkit.errors import InexactError, StreamkitError
from streamkit.expressions.calls import CallableRef, load_callable
from streamkit.metrics import DroppedCount, dropped_line
from streamkit.operators.core.task_services import EmitIntervals
from streamkit.plan.model import Plan, SubTopology
from streamkit.plan.partitions import Layout
from streamkit.record import Columns, RecordBatch, TaskId, TopicPartition
from streamkit.runtime.execution.collecting import collect_rarely, keep_memory
from streamkit.runtime.execution.handlers import Handlers
from streamkit.runtime.execution.queues import Idling
from streamkit.runtime.execution.store_opening import MemoryStores, reprocess
from streamkit.runtime.execution.task import Task
from streamkit.runtime.execution.task_environment import TaskEnvironment, TaskSpec, log_to_stderr
from streamkit.runtime.records import RecordJson
from streamkit.runtime.spark.stage_plan import Stage
from streamkit.runtime.spark.workers import arrow_rows
from streamkit.runtime.spark.workers.kept_tasks import (
    BatchTask,
    Kept,
    Reading,
    StateWriter,
    check_filled,
    fill,
    leading_state,
    memories_in,
    memory_of,
    resume,
)
from streamkit.runtime.spark.workers.output_collector import LINES_DDL, JsonOutputCollector, OutputCollector, OutputSpec
from streamkit.runtime.spark.workers.task_stores import KeptStores, SpillingStores

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import Accumulator, SparkContext
    from pyspark.accumulators import AccumulatorParam

    from streamkit.state.definitions import Store

P = ParamSpec("P")
T = TypeVar("T")

MARK = "streamkit-failure:"
"""The marker before the JSON of an error in the text of Spark's exceptions."""
OFFSETS = "committed offsets"
"""Replaces the topic in rows that contain the offsets that a task would commit. No topic can have this name."""
_NO_IDLING = Idling(-1)


@dataclass(frozen=True)
class StageWork:
    """Everything that a Spark task needs to run a stage. Spark sends it to the workers, which compile the plan again."""

    plan: bytes
    """A pickled Plan whose stores neither cache nor log."""
    stage: Stage
    layout: Layout
    """The tasks and their input partitions."""
    output: OutputSpec
    global_tables: GlobalTables | None = None
    ends: Mapping[TopicPartition, int] | None = None
    """The end offsets of the input, if the tasks must return the offsets that they would commit; else empty."""
    spill_bytes: int = 128 * 1024 * 1024
    """The size in bytes beyond which a store moves from memory to disk."""
    by_key: bool = False
    """Whether rows are sorted by key buckets, so that a task needs a key's state only within its bucket."""
    max_rows: int = 200_000
    """The number of rows after which a task drops the state of processed buckets."""
    as_json: bool = False
    """Whether the output is lines of JSON rather than rows."""
    kept: Kept | None = None
    """The state from which the tasks continue, if the job keeps its state; else None."""
    drops: Drops | None = None
    """Takes the counts of dropped records; None if nothing reports them."""
    from_tasks: frozenset[str] = frozenset()
    """The topics of rows without an order that several tasks write, by whose numbers the rows are sorted."""

    def new_stores(self, plan: Plan) -> SpillingStores:
        """Return the object that opens the stores of a task."""
        return SpillingStores(plan, self.spill_bytes) if self.kept is None else KeptStores(plan, self.spill_bytes)

    @property
    def ddl(self) -> str:
        """The columns of the output, for Spark."""
        return LINES_DDL if self.as_json else arrow_rows.DDL


class Loaded:
    """A plan in this process, with its programs."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.subs: dict[int, SubTopology] = {sub.id: sub for sub in plan.sub_topologies}
        self._programs: dict[int, Program] = {}

    def program(self, index: int) -> Program:
        """Return the program of a sub-topology, which is compiled once per process."""
        if index not in self._programs:
            self._programs[index] = compile_sub_topology(self.plan, self.subs[index])
        return self._programs[index]


_loaded: dict[bytes, Loaded] = {}


def load(plan: bytes) -> Loaded:
    """Return a pickled plan, which is loaded once per process because Spark runs several tasks in one process."""
    digest = hashlib.sha256(plan).digest()
    if digest not in _loaded:
        _loaded.clear()
        _loaded[digest] = Loaded(pickle.loads(plan))
    return _loaded[digest]


def new_task(loaded: Loaded, work: StageWork, index: int, partition: int, stores: SpillingStores) -> BatchTask:
    """Return the task of a sub-topology's partition, before its start."""
    plan, counts = loaded.plan, work.output.partitions
    task_id = TaskId(index, partition)
    inputs = work.layout.inputs(task_id)
    spec = TaskSpec(str(task_id), partition, loaded.subs[index], loaded.program(index), inputs)
    environment = TaskEnvironment(
        plan,
        clock=lambda: 0,
        open_store=stores.open,
        partitions=lambda topic: counts.get(topic, 1),
        handlers=Handlers.of(plan.config),
        idling=_NO_IDLING,
        emit_intervals=EmitIntervals(0, 0),  # a batch job has no clock
        global_stores={} if work.global_tables is None else work.global_tables.stores(loaded),
        print_line=lambda text: print(text, file=sys.stderr),
        log_line=log_to_stderr,
        max_request_size=plan.config.max_request_size,
    )
    return BatchTask(spec, environment)


def check_state(work: StageWork, sub: SubTopology, partition: int, stores: SpillingStores) -> None:
    """Check that the stores of a task have the state of earlier runs. Raises StateError."""
    if work.kept is not None and isinstance(stores, KeptStores):
        check_filled(work.kept, stores, sub.stores, partition)


def mark_errors(function: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """Decorate a function that runs in a worker, so that the driver finds its StreamkitError in Spark's exception by a marker."""

    @wraps(function)
    def run(*arguments: P.args, **options: P.kwargs) -> Iterator[T]:
        try:
            yield from function(*arguments, **options)
        except StreamkitError as error:
            raise RuntimeError(f"{MARK}{json.dumps([type(error).__name__, str(error)])}") from error

    return run


_RESULTS: Mapping[str, type] = {"string": str, "bigint": int, "boolean": bool, "double": float}
"""The types of results of functions, by the types of the columns that hold them."""


@mark_errors
def call_function(
    ref: CallableRef, kind: str, longest: int, shown: str, batches: Iterable[pa.Array | tuple[pa.Array, ...]]
) -> Iterator[pa.Array]:
    """Yield the results of a function of the user for the rows of a query, whose columns are its arguments.

    kind: the type of the column of results, one of _RESULTS; longest: the most bytes of a text; shown: the call, for messages.
    Raises InexactError for a call that fails, and for a result that the column does not hold as it is.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    function, type_ = load_callable(ref), pa.type_for_alias("int64" if kind == "bigint" else kind)
    for batch in batches:
        arguments = batch if isinstance(batch, tuple) else (batch,)
        try:
            results = list(map(function, *map(arrow_rows.values_of, arguments)))
        except Exception as error:
            raise InexactError(f"{shown}: it raises {type(error).__name__}") from error
        others = set(map(type, results)) - {_RESULTS[kind], type(None)}
        if others:
            raise InexactError(f"{shown}: a result is of type {others.pop().__name__}")
        try:
            column = pa.array(results, type_)
        except (pa.ArrowException, UnicodeError, OverflowError) as error:
            raise InexactError(f"{shown}: a result is no {kind}: {error}") from error
        if kind == "string" and (pc.max(pc.binary_length(column)).as_py() or 0) > longest:
            raise InexactError(f"{shown}: a result has over {longest:,} bytes")
        if kind == "double" and pc.all(pc.is_finite(column)).as_py() is False:
            raise InexactError(f"{shown}: a result is NaN or infinite")
        yield column


@mark_errors
def run_tasks(work: StageWork, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run each partition's task over its rows, and yield the output. The rows are sorted by partition and in the task's order."""
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
    """The task of one partition while it runs."""

    def __init__(self, loaded: Loaded, work: StageWork, partition: int):
        self.partition = partition
        (index,) = work.stage.subs
        self._work = work
        self._loaded = loaded
        self._reading = Reading()
        arguments = (work.output, source_id(index, partition), lambda: self._stores.directory())
        self._collector = (
            JsonOutputCollector(*arguments, RecordJson(loaded.plan)) if work.as_json else OutputCollector(*arguments)
        )
        self._rows = 0
        self._bucket = -1
        self._task: BatchTask | None = None
        self._stores: SpillingStores = work.new_stores(loaded.plan)

    def _open(self) -> BatchTask:
        """Create the task, once its stores have the rows of the checkpoint."""
        (index,) = self._work.stage.subs
        check_state(self._work, self._loaded.subs[index], self.partition, self._stores)
        task = self._task = new_task(self._loaded, self._work, index, self.partition, self._stores)
        saved = None if self._work.kept is None else self._work.kept.tasks.get(task.task_id)
        resume(task, saved)
        if saved is not None:
            self._reading.restore(saved)
            self._collector.restore(saved["written"])
        return task

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Process rows; yield output."""
        kept = self._work.kept
        if kept is not None and isinstance(self._stores, KeptStores) and (count := leading_state(batch)):
            first, batch = batch.slice(0, count), batch.slice(count)
            fill(kept, self._stores, first, self.partition)
            if len(memories := memories_in(first)):
                yield memories
            if not len(batch):
                return
        rows = arrow_rows.batch_with_all_columns(batch, self._work.stage.inputs[0])
        if arrow_rows.PLACE in batch.schema.names:
            buckets = batch.column(arrow_rows.PLACE).to_numpy() >> arrow_rows.PLACE_BITS
            rest = int(buckets.searchsorted(self._bucket, "right"))
            if self._rows >= self._work.max_rows and rest < len(rows):
                yield from self._process(rows.slice(0, rest))
                yield from self.finish()
                self._stores = self._work.new_stores(self._loaded.plan)
                self._rows, rows = 0, rows.slice(rest)
            self._rows += len(rows)
            self._bucket = int(buckets[-1])
        yield from self._process(rows)

    def _process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        task = self._task or self._open()
        for columns in by_topic(batch):
            taken = records(columns, self.partition, self._reading.offsets)
            self._reading.note(columns, taken.topic, self.partition)
            task.add(taken)
        drain(task)
        self._stores.commit(task)
        if task.output:
            yield from self._collector.collect(task.output)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Commit once, at the end of the input or of a key bucket, and yield the remaining output."""
        task, kept = self._task, self._work.kept
        (index,) = self._work.stage.subs
        if task is not None and kept is not None and isinstance(self._stores, KeptStores):
            memory = memory_of(task, self._loaded.plan)
            yield from self._collector.collect(task.output)
            yield from self._collector.finish()
            memory |= {**self._reading.to_json(), "written": self._collector.position()}
            yield from StateWriter(kept, self._stores).write(task, memory)
        elif task is not None:
            commit(task, self._work.ends)
            yield from self._collector.collect(task.output)
            yield from self._collector.finish()
        if task is not None and self._work.drops is not None:
            self._work.drops.add(TaskId(index, self.partition), self._bucket, task)
        self.close()

    def close(self) -> None:
        """Close processors and stores."""
        task, self._task = self._task, None
        try:
            if task is not None:
                task.close()
        finally:
            self._stores.close()


def commit(task: Task, ends: Mapping[TopicPartition, int] | None) -> None:
    """Flush the caches of a task and close its processors; if `ends` is given, add the offsets that the task would commit to its output."""
    task.flush_stores()
    task.close_processors()
    if ends is None:
        return
    task.commit_needed = True
    # A live run finds repartition topics empty, so only the stream time in the metadata counts.
    offsets = task.prepare_commit(lambda place: ends.get(place, 0))
    task.output.extend(
        (OFFSETS, json.dumps(place).encode(), json.dumps([offset.offset, offset.metadata]).encode(), 0, None, 0)
        for place, offset in offsets.items()
    )


def drain(task: Task) -> None:
    """Process all records in the queues of a task."""
    while task.has_records() or task.expiring:
        # A requested commit ends a round of process().
        task.process(sys.maxsize)
        task.commit_requested = False


def source_id(index: int, partition: int) -> int:
    """Return the number of a task as a writer, which is at least 1; 0 is the log."""
    return (index << 32) + partition + 1


def by_partition(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each partition of a batch, which is sorted by partition."""
    import numpy as np

    numbers = batch.column("partition").to_numpy()
    if not len(numbers):
        return
    bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    for start, stop in pairwise(bounds):
        yield int(numbers[start]), batch.slice(start, stop - start)


def by_topic(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each topic of a batch, in order. Rows with and without their own offsets are separate.

    The task's queues merge these rows into the order of the batch again: at most one queue begins with a late record, and
    that queue is next.
    """
    topics = batch.column(arrow_rows.TOPIC).unique().to_pylist()
    if len(topics) == 1:
        yield from _by_origin(batch)
        return
    import pyarrow.compute as pc

    for topic in topics:
        yield from _by_origin(batch.filter(pc.equal(batch.column(arrow_rows.TOPIC), topic)))


def _by_origin(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    import numpy as np

    cuts = np.flatnonzero(np.diff(batch.column(arrow_rows.SOURCE).to_numpy() == 0)) + 1
    for start, stop in pairwise([0, *cuts.tolist(), len(batch)]):
        yield batch.slice(start, stop - start)


def records(batch: pa.RecordBatch, partition: int, offsets: dict[tuple[str, int], int]) -> RecordBatch:
    """Return rows from `by_topic` as a batch of records. offsets: the next offsets, for rows without their own."""
    topic = batch.column(arrow_rows.TOPIC)[0].as_py()
    count = len(batch)
    if batch.column(arrow_rows.SOURCE)[0].as_py() == 0:
        numbers = arrow_rows.values_of(batch.column(arrow_rows.OFFSET))
    else:
        first = offsets.get((topic, partition), 0)
        offsets[topic, partition] = first + count
        numbers = list(range(first, first + count))
    return RecordBatch(
        topic,
        partition,
        Columns(
            arrow_rows.values_of(batch.column(arrow_rows.KEY)),
            arrow_rows.values_of(batch.column(arrow_rows.VALUE)),
            arrow_rows.values_of(batch.column(arrow_rows.TIMESTAMP)),
            arrow_rows.headers_of(batch.column(arrow_rows.HEADERS)),
            numbers,
        ),
    )


_stores: dict[str, dict[str, Store]] = {}


class Shared(Protocol):
    """Data that every worker has: a Spark broadcast, or Inline."""

    @property
    def value(self) -> bytes:
        """Return the data."""


@dataclass(frozen=True)
class Inline:
    """Data that is sent with each task, because Spark Connect has no broadcasts."""

    value: bytes


class GlobalTables:
    """The rows of all topics of global tables, in the form in which they are sent to workers.

    rows: pickled record batches. token: identifies the job, since a worker process may run tasks of several jobs.
    """

    def __init__(self, token: str, rows: Shared, partitions: Mapping[str, int]):
        self._token = token
        self._rows = rows
        self._partitions = partitions

    def stores(self, loaded: Loaded) -> dict[str, Store]:
        """Return the global stores of this process, which the first call fills."""
        if self._token not in _stores:
            _stores.clear()
            _stores[self._token] = self._fill(loaded)
        return _stores[self._token]

    def _fill(self, loaded: Loaded) -> dict[str, Store]:
        batches: list[RecordBatch] = [RecordBatch(*parts) for parts in pickle.loads(self._rows.value)]
        stores: dict[str, Store] = {}
        for sub in loaded.plan.sub_topologies:
            if not sub.is_global:
                continue
            task = self._task(loaded, sub)
            task.start({})
            for batch in batches:
                if batch.topic in sub.source_topics:
                    # An application that starts with all its input on the log restores the table in the same way.
                    reprocess(task, batch)
            task.flush_stores()
            stores.update(task.stores)
        return stores

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


# The records that the tasks of a job drop, counted in the workers and reported by the driver.


_Place: TypeAlias = tuple[int, int, int, int]
"""A part of a task's input: sub-topology, partition, Spark's number of its own task, and the key bucket."""
_Drops: TypeAlias = dict[_Place, tuple[DroppedCount, ...]]


class Drops:
    """The dropped records of a job. Spark sends it to the workers, which add to it; the driver reads it."""

    def __init__(self, accumulator: Accumulator[_Drops]):
        self._accumulator = accumulator

    @staticmethod
    def of(context: SparkContext) -> Drops:
        """Return the object for a new job."""
        return Drops(context.accumulator({}, cast("AccumulatorParam[_Drops]", _Merged())))

    def add(self, task_id: TaskId, bucket: int, task: Task) -> None:
        """Add what a task has dropped, at its end. bucket: the key bucket at which it ended."""
        view = task.drops.view()
        if view:
            from pyspark import TaskContext

            context = TaskContext.get()
            number = 0 if context is None else context.partitionId()
            self._accumulator.add({(task_id.sub_topology, task_id.partition, number, bucket): view})

    def describe(self) -> list[str]:
        """Return a line for each sub-topology and reason."""
        totals: Counter[tuple[int, str]] = Counter()
        messages: dict[tuple[int, str], str] = {}
        for (index, *_), counts in sorted(self._accumulator.value.items()):
            for count in counts:
                totals[index, count.reason] += count.dropped
                messages[index, count.reason] = count.message
        return [
            f"sub-topology {index}: {dropped_line(reason, dropped, messages[index, reason])}"
            for (index, reason), dropped in totals.items()
        ]


class _Merged:
    """How Spark combines what its tasks have added. A task that runs again drops the same records, which count once."""

    def zero(self, value: Mapping[_Place, tuple[DroppedCount, ...]]) -> _Drops:
        return {}

    def addInPlace(self, value1: _Drops, value2: _Drops) -> _Drops:
        value1.update(value2)
        return value1


# The order in which a task takes the records of several topics: the queue with the oldest head first (PartitionGroup).


@mark_errors
def order_rows(work: StageWork, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Set the order of external topics' rows to the highest time up to each row. The rows are sorted by partition, topic and offset.

    The row with the smallest order is the head of the next queue, even if late records follow it. Times come from the topics'
    `timestamp` expressions if they have one.
    """
    times = _Times(work)
    before = {} if work.kept is None else work.kept.orders_of(work.stage.subs)
    highest, last = -1, None
    try:
        for batch in batches:
            for partition, part in by_partition(batch):
                for rows in chain.from_iterable(_runs(rows, work.from_tasks) for rows in by_topic(part)):
                    if rows.column(arrow_rows.ORDER).null_count == 0:
                        yield rows
                        continue
                    topic, source = (rows.column(index)[0].as_py() for index in (arrow_rows.TOPIC, arrow_rows.SOURCE))
                    place = topic, partition, source if topic in work.from_tasks else 0
                    if place != last:
                        highest, last = before.get((topic, partition), -1), place
                    ordered, highest = _ordered(rows, times.of(rows, partition), highest)
                    yield ordered
    finally:
        times.close()


def _runs(rows: pa.RecordBatch, from_tasks: Collection[str]) -> Iterator[pa.RecordBatch]:
    """Yield external rows, which have no order yet, before rows that the job wrote, which have one; those of each task by themselves."""
    import numpy as np

    outside = rows.column(arrow_rows.ORDER).null_count
    cuts = {0, outside, len(rows)}
    if rows.column(arrow_rows.TOPIC)[0].as_py() in from_tasks:
        cuts.update((np.flatnonzero(np.diff(rows.column(arrow_rows.SOURCE).to_numpy())) + 1).tolist())
    return (rows.slice(start, stop - start) for start, stop in pairwise(sorted(cuts)))


class _Times:
    """Computes the times of records with the timestamp extractors of their topics."""

    def __init__(self, work: StageWork):
        loaded = load(work.plan)
        self._stores = SpillingStores(loaded.plan, work.spill_bytes)
        self._tasks = [new_task(loaded, work, index, 0, self._stores) for index in work.stage.subs]

    def of(self, rows: pa.RecordBatch, partition: int) -> list[int]:
        """Return the times (ms) of one topic's rows; -1 for a record without a time."""
        topic = rows.column(arrow_rows.TOPIC)[0].as_py()
        extractor = next((extracts for task in self._tasks if (extracts := task.extractor(topic)) is not None), None)
        if extractor is None:
            return arrow_rows.values_of(rows.column(arrow_rows.TIMESTAMP))
        batch = records(rows, partition, {})
        times = extractor(batch.keys, batch.values, batch.timestamps, batch.headers, batch.offsets, partition)
        return [time if type(time) is int else -1 for time in times]

    def close(self) -> None:
        """Close the tasks."""
        for task in self._tasks:
            task.close_stores()
        self._stores.close()


def _ordered(rows: pa.RecordBatch, times: list[int], highest: int) -> tuple[pa.RecordBatch, int]:
    import numpy as np
    import pyarrow as pa

    order = np.maximum.accumulate(np.maximum(np.array(times, dtype=np.int64), highest))
    field = rows.schema.field(arrow_rows.ORDER)
    return rows.set_column(arrow_rows.ORDER, field, pa.array(order, pa.int64())), int(order[-1])
