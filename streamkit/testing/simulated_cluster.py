"""Plays histories of a topology on several partitions: the production Task, a log in memory, and every order as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from streamkit.compile.compiler import compile_sub_topology
from streamkit.compile.program import Program
from streamkit.errors import StreamkitError
from streamkit.operators.core.task_services import EmitIntervals
from streamkit.plan.model import Plan, SubTopology
from streamkit.plan.partitions import Layout, lay_out, source_topics
from streamkit.record import Columns, OutputTuple, RecordBatch, TaskId, TopicPartition
from streamkit.runtime.execution.handlers import CONTINUE, Handlers
from streamkit.runtime.execution.queues import Idling
from streamkit.runtime.execution.store_opening import restore_store
from streamkit.runtime.execution.task import Task
from streamkit.runtime.execution.task_environment import TaskEnvironment, TaskSpec
from streamkit.runtime.records import store_rows
from streamkit.runtime.tracing import ProgramTrace, TracedTask, Tracer, Visit
from streamkit.serdes.partitioner import partition as partition_of
from streamkit.serdes.plain import Json
from streamkit.state.open_store import create
from streamkit.testing.cases import CRASH, REBALANCE, RESTART
from streamkit.transport.log_interface import CommittedOffset

_FAULT_CHANCE, _HOLD_CHANCE, _COMMIT_CHANCE = 0.05, 0.25, 0.4


@dataclass(frozen=True)
class Sent:
    """A record of a test, as its row; `number`: its place among all records of the test."""

    number: int
    row: OutputTuple


@dataclass(frozen=True)
class Segment:
    """Records that may arrive in any order, and what follows when all of them are processed: the clock moves, or a restart."""

    records: tuple[Sent, ...]
    advance_ms: int = 0
    restart: bool = False


@dataclass(frozen=True)
class Event:
    """One step of a history.

    `source`: a given record by its number, or the partition whose next record is delivered; None for a fault.
    `hold`: the task waits for another record before it processes this one. `commit`: the thread commits afterwards.
    `fault`: RESTART or CRASH of the thread `thread`, or REBALANCE, which moves the task `task` to it.
    """

    segment: int
    source: int | TopicPartition | None = None
    instance: int = 0
    """The instance that reads a record of a global topic."""
    hold: bool = False
    commit: bool = True
    fault: str | None = None
    thread: int = 0
    task: TaskId | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """What stays the same if a record is delivered at another time."""
        return (self.segment, self.source, self.instance)

    @property
    def plain(self) -> Event:
        """The same delivery, processed and committed at once."""
        return dataclasses.replace(self, hold=False, commit=True)


@dataclass
class Delivery:
    """An event as it was played: the record of a delivery, the rows that were written, and what each node made of it."""

    event: Event
    row: OutputTuple | None = None
    number: int | None = None
    """The number of the given record, if the row is one."""
    written: list[OutputTuple] = field(default_factory=list)
    visits: list[Visit] = field(default_factory=list)
    processed: int = 0
    """Orders deliveries by when a task has processed them."""


@dataclass
class Played:
    """What a history came to. rows: (store, key, value) of stores that were asked for; error: the message that ended it."""

    deliveries: list[Delivery] = field(default_factory=list)
    written: list[OutputTuple] = field(default_factory=list)
    rows: list[tuple[str, Json, Json]] = field(default_factory=list)
    error: str | None = None

    @property
    def events(self) -> list[Event]:
        """The events, with the deliveries that ended each segment."""
        return [delivery.event for delivery in self.deliveries]


class Programs:
    """The programs of a plan, compiled once for all histories."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self._programs: dict[int, Program] = {}

    def program(self, sub: SubTopology) -> Program:
        """Return the program of a sub-topology."""
        if sub.id not in self._programs:
            self._programs[sub.id] = compile_sub_topology(self.plan, sub)
        return self._programs[sub.id]


@dataclass
class _Record:
    row: OutputTuple
    number: int | None


class _Instance:
    """What the threads of an instance share: global stores, and the environment of tasks."""

    def __init__(self, cluster: Cluster):
        plan = cluster.plan
        handlers = Handlers.of(plan.config)
        environment = TaskEnvironment(
            plan,
            clock=lambda: cluster.clock,
            open_store=lambda spec, name, services: create(plan.stores[name], None, services),
            partitions=cluster.count,
            handlers=handlers,
            idling=Idling(plan.config.max_task_idle_ms),
            emit_intervals=EmitIntervals.of(plan.config, default=0),
            print_line=lambda text: None,
            log_line=lambda level, text: None,
            max_request_size=plan.config.max_request_size,
        )
        lenient = dataclasses.replace(
            environment, handlers=dataclasses.replace(handlers.of_globals(), deserialization=CONTINUE)
        )
        self.globals = [cluster.make(sub, 0, lenient) for sub in plan.sub_topologies if sub.is_global]
        self.stores = {name: store for task in self.globals for name, store in task.stores.items()}
        self.environment = dataclasses.replace(environment, global_stores=self.stores)
        self._readers = {partition.topic: task for task in self.globals for partition in task.inputs}
        for task in self.globals:
            task.start({})

    def update(self, batch: RecordBatch) -> None:
        """Process a record of a global topic."""
        task = self._readers[batch.topic]
        task.update(batch)
        task.flush_stores()
        del task.output[:]


@dataclass
class _Thread:
    """The tasks of a thread, which commit together."""

    instance: _Instance
    tasks: dict[TaskId, Task] = field(default_factory=dict)


class Cluster:
    """Instances with their threads and tasks, and the log; it plays one history.

    `threads`: the number of instances, and of threads in each. Raises InvalidTopologyError for a number of partitions that the
    topology can't have.
    """

    def __init__(
        self,
        programs: Programs,
        partitions: int,
        topics: Sequence[str],
        clock: int = 0,
        threads: tuple[int, int] = (1, 1),
        *,
        traced: bool = False,
    ):
        self._programs, plan = programs, programs.plan
        self.plan = plan
        self.clock = clock
        """Milliseconds since the epoch."""
        self._partitions = partitions
        self._counts = dict.fromkeys([*plan.external_topics, *topics], partitions)
        self._layout: Layout = lay_out(plan, self._counts)
        self._global_topics = {
            topic for sub in plan.sub_topologies if sub.is_global for topic in source_topics(plan, sub, self._counts)
        }
        self._internal = plan.internal_names
        self._changelogs = {
            plan.changelog_name(name) for name, store in plan.stores.items() if store.source_topic is None
        }
        self._exactly_once = plan.config.exactly_once
        self._log: dict[TopicPartition, list[_Record]] = {}
        self._order: list[OutputTuple] = []
        self._held: dict[Task, list[Delivery]] = {}
        self._processed = 0
        self._delivered: dict[tuple[TopicPartition, int], int] = {}
        """How many records were delivered of a partition, to an instance (0 but for global topics)."""
        self._subs = {sub.id: sub for sub in plan.sub_topologies}
        self._readers = {partition: task for task in self._layout.tasks for partition in self._layout.inputs(task)}
        self._tracer = Tracer(plan) if traced else None
        instances, per_instance = threads
        self._instances = [_Instance(self) for _ in range(instances)]
        self._threads = [_Thread(self._instances[number // per_instance]) for number in range(instances * per_instance)]
        self._owners: dict[TaskId, _Thread] = {}
        self._committed: dict[TaskId, dict[TopicPartition, CommittedOffset]] = {}
        for number, task in enumerate(self._layout.tasks):
            self._open(task, self._threads[number % len(self._threads)])

    # -- Playing --

    def play(
        self,
        segments: Sequence[Segment],
        events: Sequence[Event] | None,
        draw: Random | None = None,
        faults: Sequence[str] = (),
        stores: Sequence[str] = (),
    ) -> Played:
        """Play events, and what is left after the last one of each segment in order; with `draw`, events at random.

        An event is skipped if its partition has no record left.
        """
        played = Played()
        partitions = {sent.number: self._place(sent) for segment in segments for sent in segment.records}
        try:
            for number, segment in enumerate(segments):
                self._play_segment(number, segment, events or (), partitions, draw, faults, played)
            last = Delivery(Event(max(0, len(segments) - 1)))
            for thread in self._threads:
                self._end(thread, thread.tasks.values(), last)
            if last.written:
                played.deliveries.append(last)
            opened = [*(task.stores for task in self._tasks()), self._instances[0].stores]
            played.rows = [
                (name, key, value)
                for stores_of_task in opened
                for name, store in stores_of_task.items()
                if name in stores
                for key, value in store_rows(self.plan.stores[name], store)
            ]
        except StreamkitError as error:
            played.error = str(error)
        played.written = [row for row in self._order if row[0] not in self._internal]
        return played

    def _play_segment(
        self,
        number: int,
        segment: Segment,
        events: Sequence[Event],
        partitions: Mapping[int, TopicPartition],
        draw: Random | None,
        faults: Sequence[str],
        played: Played,
    ) -> None:
        waiting = {sent.number: sent for sent in segment.records}

        def deliver(event: Event) -> None:
            source = event.source
            if isinstance(source, int):
                if source not in waiting:
                    return
                record = waiting.pop(source)
                source = partitions[source]
                self._append(source, record.row, record.number)
            self._happen(event, source, played)

        for event in events:
            if event.segment == number:
                deliver(event)
        while draw is not None and (drawn := self._drawn(number, waiting, draw, faults)) is not None:
            deliver(drawn)
        while (following := self._next(number, waiting)) is not None:
            deliver(following)
        self._settle(number, played)
        if segment.restart:
            for thread in self._threads:
                self._restart(thread)
        if segment.advance_ms:
            self.clock += segment.advance_ms
            delivery = Delivery(Event(number))
            for task in self._tasks():
                task.punctuate_wall_clock()
                task.flush_stores()
            self._commit_all(delivery)
            played.deliveries.append(delivery)
            self._settle(number, played)

    def _settle(self, number: int, played: Played) -> None:
        """Process, deliver and commit until nothing is left."""
        while True:
            delivery = Delivery(Event(number))
            for task in self._tasks():
                self._process(task)
            self._commit_all(delivery)
            if delivery.written or delivery.visits:
                played.deliveries.append(delivery)
            event = self._next(number, {})
            if event is None:
                return
            self._happen(event, event.source, played)

    def _next(self, segment: int, waiting: Mapping[int, Sent]) -> Event | None:
        """Return the first delivery that is possible: what a record has caused comes before the next record."""
        for partition, instance in self._left():
            return Event(segment, partition, instance)
        for number in waiting:
            return Event(segment, number)
        return None

    def _left(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yield the partitions that have records which their reader has not got, and the reader's instance."""
        for partition, records in self._log.items():
            if partition.topic in self._global_topics:
                for instance in range(len(self._instances)):
                    if self._delivered.get((partition, instance), 0) < len(records):
                        yield partition, instance
            elif partition in self._readers and self._delivered.get((partition, 0), 0) < len(records):
                yield partition, 0

    def _drawn(
        self,
        segment: int,
        waiting: Mapping[int, Sent],
        draw: Random,
        faults: Sequence[str],
    ) -> Event | None:
        # Producers of different keys do not wait for each other, even if their records share a partition.
        firsts: dict[object, int] = {}
        for number, sent in waiting.items():
            topic, key, *_ = sent.row
            firsts.setdefault(number if key is None else (topic, key), number)
        choices: list[tuple[int | TopicPartition, int]] = [*((number, 0) for number in firsts.values()), *self._left()]
        if not choices:
            return None
        if faults and draw.random() < _FAULT_CHANCE:
            thread = draw.randrange(len(self._threads))
            task = draw.choice(self._layout.tasks) if self._layout.tasks else None
            return Event(segment, fault=draw.choice(faults), thread=thread, task=task)
        source, instance = draw.choice(choices)
        return Event(segment, source, instance, draw.random() < _HOLD_CHANCE, draw.random() < _COMMIT_CHANCE)

    def _happen(self, event: Event, source: int | TopicPartition | None, played: Played) -> None:
        delivery = Delivery(event)
        if event.fault is not None:
            self._strike(event)
        elif isinstance(source, TopicPartition):
            at = self._delivered.get((source, event.instance), 0)
            records = self._log.get(source, [])
            if at >= len(records):
                return
            delivery.row, delivery.number = records[at].row, records[at].number
            self._delivered[source, event.instance] = at + 1
            if source.topic in self._global_topics:
                self._instances[event.instance].update(self._batch(source, at))
            if source in self._readers and event.instance == 0:
                self._process_one(self._readers[source], self._batch(source, at), event, delivery)
        if self._tracer is not None:
            delivery.visits += self._tracer.take()
        played.deliveries.append(delivery)

    def _process_one(self, task_id: TaskId, batch: RecordBatch, event: Event, delivery: Delivery) -> None:
        thread = self._owners[task_id]
        task = thread.tasks[task_id]
        task.add(batch)
        self._held.setdefault(task, []).append(delivery)
        if not event.hold:
            self._process(task)
        if event.commit and not event.hold:
            self._commit(thread, delivery)
        elif not self._exactly_once:
            self._publish(task, delivery)

    # -- Tasks --

    def _tasks(self) -> list[Task]:
        return [thread.tasks[task] for task, thread in sorted(self._owners.items())]

    def _process(self, task: Task) -> None:
        # The task takes the oldest record first.
        for delivery in sorted(self._held.pop(task, []), key=lambda waiting: waiting.row[3] or 0 if waiting.row else 0):
            self._processed = delivery.processed = self._processed + 1
        task.set_lags(dict.fromkeys(task.inputs, 0))
        while True:
            expiring = task.expiring
            if not task.process(1000) and not expiring:
                break
            task.punctuate_stream_time()

    def _commit_all(self, delivery: Delivery) -> None:
        for thread in self._threads:
            self._commit(thread, delivery)
        if self._tracer is not None:
            delivery.visits += self._tracer.take()

    def _commit(self, thread: _Thread, delivery: Delivery) -> None:
        """Commit all tasks of a thread as one: what they have written becomes visible, with their offsets."""
        offsets = {
            name: task.prepare_commit(lambda partition: self._delivered.get((partition, 0), 0))
            for name, task in thread.tasks.items()
        }
        for task in thread.tasks.values():
            task.flush_stores()
            self._publish(task, delivery)
            task.post_commit()
        for name, committed in offsets.items():
            self._committed.setdefault(name, {}).update(committed)

    def _publish(self, task: Task, delivery: Delivery) -> None:
        rows = list(task.output)
        del task.output[:]
        for row in rows:
            topic = row[0]
            partition = TopicPartition(topic, self._partition(row))
            self._append(partition, row, None)
            if topic not in self._changelogs:
                self._order.append(row)
                delivery.written.append(row)

    def _partition(self, row: OutputTuple) -> int:
        topic, key, _, _, _, wanted = row
        if wanted is not None:
            return wanted
        return 0 if key is None else partition_of(key, self.count(topic))

    def _place(self, sent: Sent) -> TopicPartition:
        topic, key, _, _, _, wanted = sent.row
        if wanted is not None:
            return TopicPartition(topic, wanted % self._partitions)
        # Records without a key go round.
        return TopicPartition(
            topic, sent.number % self._partitions if key is None else partition_of(key, self._partitions)
        )

    def _append(self, partition: TopicPartition, row: OutputTuple, number: int | None) -> None:
        self._log.setdefault(partition, []).append(_Record(row, number))

    def _batch(self, partition: TopicPartition, at: int) -> RecordBatch:
        _, key, value, timestamp, headers, _ = self._log[partition][at].row
        if timestamp is None or (timestamp < 0 and partition.topic in self._internal):
            timestamp = self.clock
        return RecordBatch(*partition, Columns([key], [value], [timestamp], [headers], [at]))

    # -- Faults --

    def _strike(self, event: Event) -> None:
        thread = self._threads[event.thread]
        if event.fault == REBALANCE and event.task is not None:
            before = self._owners[event.task]
            self._end(before, [before.tasks[event.task]], Delivery(event))
            before.tasks.pop(event.task).close()
            self._open(event.task, thread)
        elif event.fault == RESTART:
            self._restart(thread)
        elif event.fault == CRASH:
            self._reopen(thread)

    def _restart(self, thread: _Thread) -> None:
        for task in thread.tasks.values():
            self._process(task)
        self._end(thread, thread.tasks.values(), Delivery(Event(0)))
        self._reopen(thread)

    def _end(self, thread: _Thread, leaving: Iterable[Task], delivery: Delivery) -> None:
        """Commit the tasks of a thread, close the processors of those that leave it, and commit what these forward."""
        self._commit(thread, delivery)
        for task in leaving:
            task.close_processors()
        self._commit(thread, delivery)

    def _reopen(self, thread: _Thread) -> None:
        """Open the tasks of a thread again, at what they have committed."""
        tasks = list(thread.tasks)
        for task in tasks:
            thread.tasks.pop(task).close()
        for task in tasks:
            self._open(task, thread)

    def _open(self, task_id: TaskId, thread: _Thread) -> None:
        inputs = self._layout.inputs(task_id)
        committed = self._committed.get(task_id, {})
        task = self.make(self._subs[task_id.sub_topology], task_id.partition, thread.instance.environment)
        for partition in inputs:
            self._delivered[partition, 0] = committed[partition].offset if partition in committed else 0
        self._restore(task, task_id.partition)
        task.start(committed)
        thread.tasks[task_id] = task
        self._owners[task_id] = thread

    def _restore(self, task: Task, partition: int) -> None:
        for name, store in task.stores.items():
            topic = self.plan.changelog_name(name) or ""
            changelog = TopicPartition(topic, partition)
            records = self._log.get(changelog, [])
            if self.plan.stores[name].source_topic is not None:
                records = records[: self._delivered.get((changelog, 0), 0)]
            if records:
                _, keys, values, timestamps, headers, _ = map(
                    list, zip(*(record.row for record in records), strict=True)
                )
                columns = Columns(keys, values, timestamps, headers, range(len(keys)))
                restore_store(task, name, RecordBatch(topic, partition, columns))
                store.commit()

    def count(self, topic: str) -> int:
        """Return the number of partitions of a topic."""
        return self._layout.partitions.get(topic, self._partitions)

    def make(self, sub: SubTopology, partition: int, environment: TaskEnvironment) -> Task:
        """Return a new task of a sub-topology; that of a global one reads the first partition by name, and is given all."""
        task = TaskId(sub.id, partition)
        name = str(task)
        topics = source_topics(self.plan, sub, self._counts)
        inputs = tuple(TopicPartition(topic, 0) for topic in topics) if sub.is_global else self._layout.inputs(task)
        if self._tracer is None:
            return Task(TaskSpec(name, partition, sub, self._programs.program(sub), inputs), environment)
        trace = ProgramTrace(self._tracer, sub)
        program = compile_sub_topology(self.plan, sub, trace=trace)
        return TracedTask(TaskSpec(name, partition, sub, program, inputs), environment, trace)

    def close(self) -> None:
        """Close all tasks."""
        for task in [*self._tasks(), *(task for instance in self._instances for task in instance.globals)]:
            task.close()
