"""Runs a topology in memory, record by record, on the production Task: `try` and tests (TopologyTestDriver)."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from streamkit import durations
from streamkit.compile.compiler import compile_sub_topology
from streamkit.errors import ConfigError, SerdeError, StreamkitError, TopicError
from streamkit.operators.core.task_services import EmitIntervals
from streamkit.plan import load
from streamkit.plan.model import Plan, SourceNode, SubTopology
from streamkit.record import Columns, OutputTuple, RecordBatch, TaskId, TopicPartition
from streamkit.runtime.execution.handlers import CONTINUE, Handlers
from streamkit.runtime.execution.queues import Idling, Part, PartitionGroup, RecordQueue, Run
from streamkit.runtime.execution.store_opening import MemoryStores, reprocess, reprocesses, restore_store
from streamkit.runtime.execution.task import Task
from streamkit.runtime.execution.task_environment import TaskEnvironment, TaskSpec, log_to_stderr
from streamkit.runtime.records import RecordJson, store_rows
from streamkit.serdes.plain import Json, json_of_line
from streamkit.state.definitions import Store
from streamkit.suggestions import did_you_mean, number_of
from streamkit.transport.log_interface import CommittedOffset

if TYPE_CHECKING:
    from streamkit.runtime.tracing import Tracer


CONTROL = "advance_wall_clock"


@dataclasses.dataclass
class Remains:
    """The log that a driver leaves behind; another driver restores its stores from it and continues."""

    changelogs: dict[str, list[OutputTuple]] = dataclasses.field(default_factory=dict)
    """Rows by changelog, or by source topic if that serves as the changelog."""
    committed: dict[TopicPartition, CommittedOffset] = dataclasses.field(default_factory=dict)
    offsets: dict[TopicPartition, int] = dataclasses.field(default_factory=dict)
    clock: int = 0
    waiting: list[OutputTuple] = dataclasses.field(default_factory=list)
    """Rows of topics that the topology reads, written when the processors were closed."""
    logs: bool = True
    """Whether changelogs are kept. They grow with each write to a store; a driver that no other one continues needs none."""

    def keep(self, row: OutputTuple) -> None:
        """Append a row to its changelog."""
        if self.logs:
            self.changelogs.setdefault(row[0], []).append(row)

    def restore(self, plan: Plan, task: Task) -> None:
        """Restore the empty stores of a task."""
        for name, store in task.stores.items():
            topic = plan.changelog_name(name) or ""
            rows = self.changelogs.get(topic, [])
            if not rows:
                continue
            _, keys, values, timestamps, headers, _ = map(list, zip(*rows, strict=True))
            batch = RecordBatch(topic, 0, Columns(keys, values, timestamps, headers, range(len(keys))))
            if reprocesses(task.spec.sub_topology):
                task.start({})
                reprocess(task, batch)
                task.flush_stores()
                task.reset()
            else:
                restore_store(task, name, batch)
            store.commit()


class Driver:
    """One task for the whole topology, one partition a topic, a commit after each record, a clock that starts at 0.

    With `remains` it continues where another driver of the same topology stopped; `reached` counts the records that reach
    each node, by its name. `records` converts input and output records, in place of JSON. `tracer` receives the visits of nodes.
    """

    def __init__(
        self,
        plan: Plan,
        remains: Remains | None = None,
        reached: Counter[str] | None = None,
        records: RecordJson | None = None,
        tracer: Tracer | None = None,
    ):
        self.plan = plan
        self.remains = remains or Remains()
        self.clock = self.remains.clock
        if plan.registry is not None:
            plan.registry.start_dry_run()
        self._json = records or RecordJson(plan)
        self._printed: list[dict[str, Json]] = []
        self._internal = plan.internal_names
        self._changelogs = {
            plan.changelog_name(name) for name, store in plan.stores.items() if store.source_topic is None
        }
        self._sources_as_changelogs = {plan.changelog_name(name) for name in plan.stores} - self._changelogs
        self._offsets = self.remains.offsets
        self._pending: deque[OutputTuple] = deque()
        environment = self._environment()
        # Java's driver skips global records that do not decode, whichever handler is set.
        lenient = dataclasses.replace(
            environment, handlers=dataclasses.replace(environment.handlers.of_globals(), deserialization=CONTINUE)
        )
        self._globals = [_make_task(sub, lenient, reached, tracer) for sub in plan.sub_topologies if sub.is_global]
        shared = {name: store for task in self._globals for name, store in task.stores.items()}
        for task in self._globals:
            self._start(task)
        self._global_topics = {partition.topic: task for task in self._globals for partition in task.spec.inputs}
        sub_topology = merged(plan)
        environment = dataclasses.replace(environment, global_stores=shared)
        self._task = _make_task(sub_topology, environment, reached, tracer) if sub_topology else None
        self._task_topics = {partition.topic for partition in self._task.inputs} if self._task else set()
        self._counters: dict[str, TopicPartition] = {}
        """By topic that matches a pattern: the partition that counts its offsets."""
        self._patterns = [
            re.compile(node.pattern)
            for sub in plan.sub_topologies
            for node in sub.nodes.values()
            if isinstance(node, SourceNode) and node.pattern is not None
        ]
        if self._task is not None:
            self._start(self._task)
            self._settle()
            waiting, self.remains.waiting = self.remains.waiting, []
            for row in waiting:
                self._pipe(row)

    def _environment(self) -> TaskEnvironment:
        plan = self.plan
        return TaskEnvironment(
            plan,
            clock=lambda: self.clock,
            open_store=MemoryStores(plan).open,
            partitions=lambda topic: 1,
            handlers=Handlers.of(plan.config),
            idling=Idling(plan.config.max_task_idle_ms),
            emit_intervals=EmitIntervals.of(plan.config, default=0),
            group=JavaPartitionGroup,
            print_line=lambda text: print(text, file=sys.stderr),
            log_line=log_to_stderr,
            max_request_size=plan.config.max_request_size,
        )

    def pipe(self, record: Mapping[str, Json]) -> list[dict[str, Json]]:
        """Process a record, or a control line, and return the output records, in order, in JSON form.

        Raises TopicError for a topic that the topology does not read, SerdeError for what its serde can't encode, and
        what processing raises; `printed` then returns the output before the failure.
        """
        if CONTROL in record:
            return self.advance(_duration(record[CONTROL]))
        row = self._json.encode(record, self.clock, self._reads)
        self._check_partition(row[0], record.get("partition"))
        self._pipe(row)
        return self.printed()

    def pipe_row(self, row: OutputTuple) -> list[dict[str, Json]]:
        """Process the bytes of a record, as they are on the log. Raises as `pipe`."""
        self._reads(row[0])
        self._pipe(row)
        return self.printed()

    def advance(self, by_ms: int) -> list[dict[str, Json]]:
        """Move the clock, fire wall-clock punctuators, and return the output records."""
        self.clock += by_ms
        self.remains.clock = self.clock
        if self._task is not None:
            self._task.punctuate_wall_clock()
            self._commit()
            self._complete()
        return self.printed()

    def printed(self) -> list[dict[str, Json]]:
        """Return the output records since the last call."""
        printed, self._printed = self._printed, []
        return printed

    @property
    def dropped(self) -> int:
        """The number of records dropped so far (dropped-records-total)."""
        return sum(task.dropped_total for task in [*self._globals, *([self._task] if self._task else [])])

    def stores(self) -> dict[str, list[list[Json]]]:
        """Return the rows of every store, caches included, in JSON form."""
        return {name: store_rows(self.plan.stores[name], store) for name, store in self.opened().items()}

    def opened(self) -> dict[str, Store]:
        """Return the stores by name, in the order of the plan."""
        tasks = [*self._globals, *([self._task] if self._task else [])]
        opened = {name: store for task in tasks for name, store in task.stores.items()}
        return {name: opened[name] for name in self.plan.stores if name in opened}

    def finish(self) -> list[dict[str, Json]]:
        """Close the processors, as a clean stop does, and return the output records (TopologyTestDriver.close).

        What they write to topics that the topology reads is for the driver that continues.
        """
        if self._task is not None:
            self._task.close_processors()
            self._commit()
            self._settle()
        return self.printed()

    def close(self) -> None:
        """Close processors and stores."""
        for task in [*([self._task] if self._task else []), *self._globals]:
            task.close()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- Inside ----------------------------------------------------------------------------------------------------

    def _start(self, task: Task) -> None:
        self.remains.restore(self.plan, task)
        task.start(self.remains.committed)

    def _reads(self, topic: str) -> None:
        """Raise TopicError unless the topology reads a topic."""
        if topic in self._global_topics or self._task_reads(topic):
            return
        known = sorted({*self._global_topics, *self._task_topics})
        hint = did_you_mean(topic, known, f"it reads {', '.join(known)}")
        raise TopicError(f"the topology does not read topic {topic!r}{hint}")

    def _check_partition(self, name: str, partition: Json) -> None:
        """Raise SerdeError for a partition that the topic does not have; `try` has one partition, in which all records are."""
        topic = self.plan.external_topics.get(name)
        count = None if topic is None else topic.partitions
        if partition is None or (type(partition) is int and partition >= 0 and (count is None or partition < count)):
            return
        has = (
            "partitions are whole numbers from 0"
            if count is None
            else f"topic {name} has {number_of(count, 'partition')}, counted from 0"
        )
        raise SerdeError(f"partition is {partition!r}; {has}")

    def _task_reads(self, topic: str) -> bool:
        if self._task is None:
            return False
        if topic in self._task_topics:
            return True
        matching = next((pattern for pattern in self._patterns if pattern.fullmatch(topic)), None)
        if topic in self._internal or matching is None:
            return False
        self._counters[topic] = TopicPartition(matching.pattern, 0)
        self._task.add_input(TopicPartition(topic, 0))
        self._task_topics.add(topic)
        return True

    def _pipe(self, row: OutputTuple) -> None:
        topic = row[0]
        if self._task_reads(topic):
            self._enqueue(row)
            self._complete()
        if topic in self._global_topics:
            self._update_global(row)

    def _batch(self, row: OutputTuple) -> RecordBatch:
        topic, key, value, timestamp, headers, _ = row
        partition = TopicPartition(topic, 0)
        # Java's driver counts the records of all topics of a pattern together.
        counter = self._counters.get(topic, partition)
        offset = self._offsets.get(counter, 0)
        self._offsets[counter] = self._offsets[partition] = offset + 1
        time = self.clock if timestamp is None or (timestamp < 0 and topic in self._internal) else timestamp
        if topic in self._sources_as_changelogs:
            self.remains.keep((topic, key, value, time, headers, 0))
        return RecordBatch(topic, 0, Columns([key], [value], [time], [headers], [offset]))

    def _enqueue(self, row: OutputTuple) -> None:
        assert self._task is not None
        self._task.add(self._batch(row))

    def _update_global(self, row: OutputTuple) -> None:
        task = self._global_topics[row[0]]
        task.update(self._batch(row))
        task.flush_stores()
        del task.output[:]

    def _complete(self) -> None:
        task = self._task
        assert task is not None
        self._settle()
        task.set_lags(dict.fromkeys(task.inputs, 0))
        while True:
            expiring = task.expiring
            if not task.process(1) and not expiring:
                break
            task.punctuate_stream_time()
            self._commit()
            self._settle()

    def _commit(self) -> None:
        assert self._task is not None
        offsets = self._task.prepare_commit(lambda partition: self._offsets.get(partition, 0))
        self.remains.committed.update(offsets)
        # The driver enforces a checkpoint, which flushes once more, so that entries of the first flush are forwarded too.
        self._task.flush_stores()
        self._task.post_commit()

    def _settle(self) -> None:
        """Collect output of external topics, and read back output of topics that the topology reads."""
        task = self._task
        assert task is not None
        rows = list(task.output)
        del task.output[:]
        for row in rows:
            topic = row[0]
            if topic in self._changelogs:
                self.remains.keep(row)
                continue
            if topic not in self._internal:
                self._printed.append(self._json.decode(row))
            if task.closing:
                self.remains.waiting += [row] if topic in self._global_topics or self._task_reads(topic) else []
                continue
            if self._task_reads(topic):
                self._enqueue(row)
            if topic in self._global_topics:
                self._update_global(row)


def merged(plan: Plan) -> SubTopology | None:
    """Return all sub-topologies that are not global as a single one, as Java's driver runs them; None if there are none."""
    subs = [sub for sub in plan.sub_topologies if not sub.is_global]
    if not subs:
        return None
    used = {name for sub in subs for name in sub.stores}
    nodes = {name: node for sub in subs for name, node in sub.nodes.items()}
    return SubTopology(
        id=0,
        nodes={name: nodes[name] for name in plan.node_order or nodes if name in nodes},
        is_global=False,
        stores=tuple(name for name in plan.stores if name in used),
        source_topics=tuple(topic for sub in subs for topic in sub.source_topics),
        sink_topics=tuple(topic for sub in subs for topic in sub.sink_topics),
    )


def _make_task(
    sub: SubTopology, environment: TaskEnvironment, reached: Counter[str] | None, tracer: Tracer | None
) -> Task:
    plan = environment.plan
    inputs = tuple(TopicPartition(plan.internal_name(topic), 0) for topic in sub.source_topics)
    task_id = str(TaskId(sub.id, 0))
    if tracer is None:
        return Task(TaskSpec(task_id, 0, sub, compile_sub_topology(plan, sub, reached), inputs), environment)
    # Only traces need it.
    from streamkit.runtime.tracing import ProgramTrace, TracedTask

    trace = ProgramTrace(tracer, sub)
    program = compile_sub_topology(plan, sub, trace=trace)
    return TracedTask(TaskSpec(task_id, 0, sub, program, inputs), environment, trace)


def _duration(value: object) -> int:
    try:
        return durations.parse(value)
    except ConfigError as error:
        raise SerdeError(f"{CONTROL} {error}") from error


def record_of_line(line: str, place: str) -> dict[str, Json]:
    """Return the record or the control of a JSON line. Raises SerdeError with its place."""
    try:
        record = json_of_line(line)
    except SerdeError as error:
        raise SerdeError(f"{place}: {error}") from error
    if not isinstance(record, dict):
        raise SerdeError(f"{place}: expected an object with a topic")
    return record


def pipe_at(driver: Driver, record: Mapping[str, Json], place: str) -> list[dict[str, Json]]:
    """Process a record as `Driver.pipe` does; its errors begin with the record's place."""
    try:
        return driver.pipe(record)
    except StreamkitError as error:
        raise type(error)(f"{place}: {error}") from error


def run_lines(driver: Driver, lines: Iterable[str], name: str = "input") -> Iterator[dict[str, Json]]:
    """Process JSON Lines and yield the output records; a failing line raises with its number, after the output before it."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{name}:{number}"
        try:
            printed = pipe_at(driver, record_of_line(line, place), place)
        except StreamkitError:
            yield from driver.printed()
            raise
        yield from printed


def run_case(
    topology: str | Path, lines: Iterable[str], stores: bool = True
) -> tuple[list[dict[str, Json]], dict[str, list[list[Json]]]]:
    """Run a topology file over JSON Lines; return (output records, rows by store). Raises as Driver.pipe."""
    with Driver(load(topology)) as driver:
        records = list(run_lines(driver, lines))
        return records, driver.stores() if stores else {}


# The choice among queues with equal head timestamps, by the order of java.util.PriorityQueue (TopologyTestDriver).


class JavaPartitionGroup(PartitionGroup):
    """Queues in a binary heap by head timestamp alone, one record at a time.

    Between equal timestamps Java's order is that of its heap, which `try` shows. Tasks of a running application choose by
    topic, which does not depend on the order of arrival.
    """

    # `_heap` has queues here. The base class reads only the length of the list, and replaces it by an empty one.

    def next_run(self, limit: int, due: int | None = None) -> Part | None:
        """Take the next record, as PartitionGroup.next_run does with a limit of 1."""
        if not self._heap:
            return None
        first: RecordQueue = self._heap[0]  # type: ignore[assignment]  # see above
        if first.failures:
            first.check_head()
        queue = self._poll()
        columns, highest = queue.take(1, None, due)
        if queue.size:
            self._push(queue)
        return queue.partition, columns, highest

    def next_merged(self, limit: int, due: int | None = None) -> Run | None:
        """Return None: records are taken one at a time."""
        return None

    def _push(self, queue: RecordQueue) -> None:
        heap: list[RecordQueue] = self._heap  # type: ignore[assignment]  # see above
        heap.append(queue)
        time, at = queue.head_time(), len(heap) - 1
        while at > 0:
            parent = (at - 1) >> 1
            if heap[parent].head_time() <= time:
                break
            heap[at] = heap[parent]
            at = parent
        heap[at] = queue

    def _poll(self) -> RecordQueue:
        heap: list[RecordQueue] = self._heap  # type: ignore[assignment]  # see above
        first, last = heap[0], heap.pop()
        if heap:
            self._sift_down(heap, last)
        return first

    def _sift_down(self, heap: list[RecordQueue], queue: RecordQueue) -> None:
        size, at, time = len(heap), 0, queue.head_time()
        while at < size >> 1:
            child = 2 * at + 1
            if child + 1 < size and heap[child].head_time() > heap[child + 1].head_time():
                child += 1
            if time <= heap[child].head_time():
                break
            heap[at] = heap[child]
            at = child
        heap[at] = queue
