"""A task: queues, clocks, stores and a program for one partition of a sub-topology (StreamTask)."""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial

from streamkit import rounds
from streamkit.compile.compiler import FATAL
from streamkit.compile.program import BoundProgram
from streamkit.compile.program import Run as RunFunction
from streamkit.errors import ProcessingError, RefusedError, RegistryError, StateError, StreamkitError
from streamkit.latency import TaskLatency
from streamkit.metrics import DroppedRecords
from streamkit.operators.core.task_services import FailedRecord, UserLog
from streamkit.plan.model import source_node
from streamkit.record import Columns, OutputTuple, RecordBatch, TopicPartition, Value
from streamkit.runtime.execution import metadata
from streamkit.runtime.execution.dead_letters import place_of
from streamkit.runtime.execution.handlers import Drop, ErrorPolicy, describe_failure
from streamkit.runtime.execution.metadata import UNKNOWN
from streamkit.runtime.execution.punctuation import PunctuationQueue, Punctuator, first_time
from streamkit.runtime.execution.queues import (
    MAX_OUTPUT_ROWS,
    MAX_RUN,
    Extractor,
    PartitionGroup,
    QueueServices,
    RecordQueue,
    Run,
)
from streamkit.runtime.execution.task_environment import StoreServices, TaskEnvironment, TaskSpec
from streamkit.serdes import size
from streamkit.state.definitions import CurrentTopic, Store
from streamkit.state.stores.key_value import ExpiringStore
from streamkit.transport.log_interface import CommittedOffset
from streamkit.user_metrics import TaskMetrics

# The part of a task that its program uses: stores, clocks, failures, punctuation (ProcessorContextImpl).

USER_LOG = "streamkit.user"
"""The logger of the user's code."""


class _UserLog(logging.LoggerAdapter[logging.Logger]):
    """Prefixes each line with its position."""

    def process(self, msg: object, kwargs: MutableMapping[str, Value]) -> tuple[str, MutableMapping[str, Value]]:
        place = self.extra["place"] if self.extra is not None else ""
        return f"{place}: {msg}", kwargs


class ProgramServices:
    """Implements operators.core.task_services.TaskServices for a task; a base class, so that generated code calls the task directly."""

    commit_needed: bool
    _bound: BoundProgram
    _expiry: Expiry
    _group: PartitionGroup

    def __init__(self, spec: TaskSpec, environment: TaskEnvironment):
        self.spec = spec
        self.task_id = spec.task_id
        self.partition = spec.partition
        self.application_id = environment.plan.application
        self.emit_intervals = environment.emit_intervals
        self.poll_interval_ms = environment.plan.config.max_poll_interval_ms
        self.output: list[OutputTuple] = []
        self.processor_metadata: dict[str, int] = {}
        self.commit_requested = False
        self.dropped_total = 0
        """Dropped records since the owner last counted them."""
        self.drops = DroppedRecords()
        """Dropped records by reason since the task was created."""
        self.latency = TaskLatency(spec.program.sinks)
        self.times_at = self.latency.times
        self.current_topic = CurrentTopic()
        self.now = environment.clock
        self.partitions = environment.partitions
        self.print_line = environment.print_line
        self.log_line = environment.log_line
        self.stopping = environment.stopping
        self.metrics = TaskMetrics()
        self.stores: dict[str, Store] = {}
        self._environment = environment
        self._policy = ErrorPolicy(spec.program.nodes, environment.handlers, self.output.append, self.now)
        self._stream_punctuators = PunctuationQueue()
        self._wall_punctuators = PunctuationQueue()
        self._running: Run | None = None

    def store(self, name: str) -> Store:
        """Return a store of the task, or a global one. Raises StateError."""
        store = self.stores.get(name)
        if store is None:
            store = self._environment.global_stores.get(name)
        if store is None:
            raise StateError(f"task {self.task_id} has no store {name!r}")
        return store

    def node_name(self, node: int) -> str:
        """Return the name of a node of the program."""
        return self.spec.program.nodes[node].name

    def place_of_node(self, node: int) -> str:
        """Return the file, line, pipeline and step of a node."""
        origin = self.spec.program.nodes[node].origin
        if origin is None:
            return f"node {self.node_name(node)}"
        return origin.place

    def log(self, node: int) -> UserLog:
        """Return the log `streamkit.user`, whose lines begin with the task and the node."""
        return _UserLog(logging.getLogger(USER_LOG), {"place": f"task {self.task_id}, {self.node_name(node)}"})

    def stream_time(self) -> int:
        """Return the highest timestamp (ms) taken from the queues so far, -1 before the first; exact within a run."""
        if self._running is None:
            return self._group.stream_time
        return self._running.time_at(self._bound.position())

    def dropped(self, reason: str, place: str | None = None) -> None:
        """Count a dropped record (dropped-records-total); `place`: its position, by default that of the current record."""
        self.dropped_total += 1
        self.drops.add(reason, self._place() if place is None else place)

    def on_error(self, node: int, error: Exception, record: FailedRecord) -> None:
        """Handle a node's failure by the step's `on_error` or the application's handler. Raises ProcessingError."""
        self._count(self._policy.processing(node, error, record))

    def skips_failures(self, node: int) -> bool:
        """Return whether a record is dropped if a node fails on it."""
        return self._policy.skips_failures(node)

    def on_refusal(self, node: int, error: Exception, record: FailedRecord, encoding: bool) -> None:
        """Handle a sink's failure by the production handler. Raises RefusedError if that is FAIL, ProcessingError."""
        self._count(self._policy.refusal(node, error, record, encoding))

    def on_deserialization_error(self, node: int | None, error: Exception, record: FailedRecord) -> None:
        """Handle bytes that do not decode by the application's handler. Raises DeserializationError."""
        self._count(self._policy.deserialization(node, error, record))

    def _count(self, drop: Drop) -> None:
        self.dropped_total += 1
        self.drops.add(drop.reason, drop.message, dead_letters=drop.dead_letters)

    def _place(self) -> Callable[[], str] | str:
        topic, partition, offset = self._bound.position() or (None, -1, -1)
        return "" if topic is None else partial(place_of, topic, partition, offset)

    def schedule(
        self, node: int, interval_ms: int, kind: str, callback: Callable[[int], None], start: int | None = None
    ) -> Punctuator:
        """Call back at "stream_time" or "wall_clock" intervals (StreamTask.schedule). Raises ProcessingError.

        `start`: a time (ms); calls come at this time and at whole intervals after it, never before it (KIP-1146).
        """
        if interval_ms < 1:
            raise ProcessingError(f"schedule: the interval is {interval_ms} ms; expected at least 1 ms")
        if kind == "stream_time":
            due = 0 if start is None else first_time(start, interval_ms, self.stream_time())
            return self._stream_punctuators.schedule(Punctuator(node, interval_ms, callback, due))
        if kind == "wall_clock":
            now = self.now()
            due = now + interval_ms if start is None else first_time(start, interval_ms, now)
            return self._wall_punctuators.schedule(Punctuator(node, interval_ms, callback, due))
        raise ProcessingError(f"schedule: {kind!r} is not a clock; expected 'stream_time' or 'wall_clock'")

    def wall_clock(self) -> int:
        """Return the time (ms) that processors see."""
        return self.now()

    def request_commit(self) -> None:
        """Request a commit after the current records (ProcessorContext.commit)."""
        self.commit_requested = True

    # -- Punctuation ------------------------------------------------------------------------------------------------

    def punctuate_stream_time(self) -> bool:
        """Fire the stream-time punctuators that are due; return whether any fired."""
        time = self._group.stream_time
        if time == metadata.UNKNOWN or self._expiry.unfinished:
            return False
        fired = self._stream_punctuators.punctuate(time, self.fire)
        self.commit_needed = self.commit_needed or fired
        return fired

    def punctuate_wall_clock(self) -> bool:
        """Fire the wall-clock punctuators that are due; return whether any fired."""
        if self._wall_punctuators.next_due() is None:
            return False
        fired = self._wall_punctuators.punctuate(self.now(), self.fire)
        self.commit_needed = self.commit_needed or fired
        return fired

    def punctuate(self) -> bool:
        """Fire the punctuators that are due, stream time before wall clock; return whether any fired."""
        fired = self.punctuate_stream_time()
        return self.punctuate_wall_clock() or fired

    def leave_record(self) -> None:
        """Reset the current record: updates that leave a cache and punctuators do not belong to it."""
        self.current_topic.size = 0
        self._bound.leave()

    def fire(self, punctuator: Punctuator, time: int) -> None:
        self.leave_record()
        # Records that a callback has forwarded are processed even if it fails later, as they are without steps that hold records.
        for call in (partial(punctuator.callback, time), self._bound.flush):
            try:
                call()
            except FATAL:
                raise
            except Exception as error:
                # Punctuators have no record: topic is null, partition and offset are -1.
                self.on_error(punctuator.node, error, FailedRecord(None, -1, -1, time, None, None, None))


exhaust = deque[object](maxlen=0).extend
"""Reads an iterator to its end."""
_ENDED: Iterator[None] = iter(())


class Task(ProgramServices):
    """Runs a program over the records of its input partitions, and collects the offsets to commit.

    It works on runs of records, never on a single one.
    """

    def __init__(self, spec: TaskSpec, environment: TaskEnvironment):
        super().__init__(spec, environment)
        self.commit_needed = False
        self.closing = False
        """Whether the processors are closed."""
        self.wrote_at_end = False
        """Whether the processors forwarded records or wrote rows when they were closed."""
        self._consumed: dict[TopicPartition, int] = {}
        self._added: dict[TopicPartition, int] = {}
        self._touched: set[TopicPartition] = set()
        self._committed_metadata: dict[str, int] = {}
        make = environment.tracing
        topics = [place.topic for place in spec.inputs]
        self._tracing = None if make is None else make(spec.task_id, spec.sub_topology, topics)
        try:
            self._open_stores()
            self._expiry = Expiry(self.stores.values(), self.processor_metadata)
            self._bind()
        except BaseException:
            self.close_stores()
            raise

    # -- Lifecycle -------------------------------------------------------------------------------------------------

    def start(self, committed: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Restore times from committed offsets and create processors; the stores are already restored."""
        for partition, offset in committed.items():
            if partition in self._group.queues:
                time, times = metadata.decode(offset.metadata)
                self._group.restore_time(partition, time)
                for name, value in times.items():
                    self.processor_metadata[name] = max(value, self.processor_metadata.get(name, value))
        self._committed_metadata = dict(self.processor_metadata)
        self._expiry.start(self._group.stream_time)
        self._bound.init()
        self._bound.flush()
        # What processors wrote in `init` is in a transaction, which ends with a commit.
        self.commit_needed = self.commit_needed or bool(self.output)

    def close_processors(self) -> None:
        """Close the processors after a commit. What they forward and write meanwhile is for another one: no record would cause it again."""
        if self.closing:
            return
        self.leave_record()
        self._close_bound()
        self.flush_stores()
        # After a commit, the caches have only what was written since.
        self.wrote_at_end = self.wrote_at_end or (not self.commit_needed and bool(self.output))
        self.commit_needed = self.commit_needed or bool(self.output) or self.uncommitted_bytes() > 0

    def reset(self) -> None:
        """Close processors and return to the state before `start`, keeping the stores; everything has been committed."""
        self._close_bound()
        self._expiry.reset()
        for store in self.stores.values():
            store.forget()
        self.processor_metadata.clear()
        del self.output[:]
        self._bind()

    def close(self) -> None:
        """Close processors and stores; uncommitted changes are lost. A failing close does not hide an earlier error."""
        if self._tracing is not None:
            self._tracing.end()
        try:
            self._close_bound()
        finally:
            self.close_stores()

    def _close_bound(self) -> None:
        self._stream_punctuators.clear()
        self._wall_punctuators.clear()
        if not self.closing:
            self.closing = True
            before = len(self.output)
            self._bound.close()
            self.wrote_at_end = len(self.output) > before

    def close_stores(self) -> None:
        """Close all stores, even if one fails."""
        failure: BaseException | None = None
        for store in self.stores.values():
            try:
                store.close()
            except Exception as error:
                failure = failure or error
        self.stores = {}
        if failure is not None:
            raise failure

    # -- Records ---------------------------------------------------------------------------------------------------

    @property
    def inputs(self) -> list[TopicPartition]:
        """The partitions that the task reads."""
        return list(self._group.queues)

    def extractor(self, topic: str) -> Extractor | None:
        """Return the function that extracts timestamps from a topic's records; None if the topic has no expression."""
        return self._bound.extractors.get(topic)

    def restoring_queue(self, partition: TopicPartition) -> RecordQueue:
        """Return a queue that gives records of an input the timestamps that they have when the task processes them.

        It omits, without a count, the records that no handler and no reset of offsets let pass. Raises RegistryError by its `failures`.
        """
        # The wall clock of that time is not known; records have their own times then, as in Java.
        policy = {"fail_on_invalid": "log_and_skip", "wallclock": "use_partition_time"}
        services = QueueServices(
            self.now, lambda *place: None, lambda error: not isinstance(error, RegistryError), lambda *record: None
        )
        used = self._bound.timestamp_policies.get(partition.topic, "fail_on_invalid")
        queue = RecordQueue(partition, policy.get(used, used), self._bound.extractors.get(partition.topic), services)
        # A record before the first valid one has ended the application.
        queue.restore_time(0)
        return queue

    def add_input(self, partition: TopicPartition) -> None:
        """Add an input partition of a new topic that matches a pattern."""
        if partition not in self._group.queues:
            self._group.add_queue(self._queue(partition))
            self._added[partition] = 0

    def add(self, batch: RecordBatch) -> int:
        """Queue a batch; return the number of queued records of its partition."""
        queue = self._group.add(batch)
        if queue.unhandled:
            queue.handle_skipped()
        self._added[queue.partition] += len(batch.offsets)
        if queue.skipped:
            # The offsets of skipped records are committed too.
            queue.skipped = False
            self._touched.add(queue.partition)
            self.commit_needed = True
        return queue.size

    def touch(self, partitions: Iterable[TopicPartition]) -> None:
        """Include the positions of these inputs in the next commit, even if nothing was processed."""
        self._touched.update(partitions)
        self.commit_needed = True

    def buffered(self, partition: TopicPartition) -> int:
        """Return the number of queued records of a partition."""
        return self._group.queues[partition].size

    def head_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next queued record of a partition; None if there is none."""
        return self._group.queues[partition].head_offset()

    def taken(self) -> dict[TopicPartition, int]:
        """Return the number of records taken from the queues so far, by partition."""
        return {partition: count - self.buffered(partition) for partition, count in self._added.items()}

    def has_records(self) -> bool:
        """Return whether any record is queued."""
        return self._group.buffered() > 0

    @property
    def at_rest(self) -> bool:
        """Whether there is nothing to process, send or commit before another record or wall-clock punctuator."""
        return not (
            self.commit_needed
            or self.commit_requested
            or self.output
            or self._expiry.unfinished
            or self._group.has_work()
        )

    @property
    def next_wall_clock(self) -> int | None:
        """When the next wall-clock punctuator is due (ms); None without any."""
        return self._wall_punctuators.next_due()

    @property
    def expiring(self) -> bool:
        """Whether there are expired rows that `process` has not deleted yet, because they are too many for one call."""
        return self._expiry.unfinished

    def record_written(self, counts: Mapping[str, int], topics: Sequence[str], rows: Sequence[OutputTuple]) -> None:
        """Record the latencies of sent output rows: their number by topic, the topic of each one, and the rows."""
        self.latency.record_rows(counts, topics, rows, self.now)

    def set_lags(self, lags: Mapping[TopicPartition, int]) -> None:
        """Set how many records of each partition are not fetched yet; for max.task.idle.ms."""
        self._group.set_lags(lags)

    def process(self, max_records: int) -> int:
        """Process at most `limit` records, the oldest heads first; return their number.

        Raises ProcessingError and its subclasses. Right after the record that makes them due, expired rows are deleted and
        then stream-time punctuators fire. If records have much output, fewer are processed, so that the output can be sent.
        """
        group, elapsed = self._group, self._environment.elapsed or self.now
        if not (self._expiry.unfinished or group.has_work()):
            return 0
        done = 0
        rounds.begin(self._end_run)
        size.limit(self._environment.max_request_size)
        try:
            if self._expiry.unfinished:
                self.expire()
            while not self._expiry.unfinished and done < max_records and group.ready(elapsed):
                due = self._expiry.next_due(self._stream_punctuators.next_due())
                limit = min(max_records - done, MAX_RUN)
                run = group.next_merged(limit, due) if self._merges else None
                if run is None:
                    part = group.next_run(limit, due)
                    if part is None:
                        break
                    run = Run([part])
                done += self._process_run(run)
                if due is not None and group.stream_time >= due:
                    self.expire()
                    self.punctuate_stream_time()
                if self.commit_requested or self._is_full():
                    break
            group.handle_skipped()
        except BaseException as error:
            if self._tracing is not None:
                self._tracing.end(error)
            raise
        finally:
            rounds.begin(None)
            self.latency.record(self.now)
            self.drops.settle()
        if self._tracing is not None:
            self._tracing.end_round(done)
        return done

    def update(self, batch: RecordBatch) -> None:
        """Process a batch without the queues (GlobalStateUpdateTask)."""
        self._run(batch.topic)(
            batch.keys, batch.values, batch.timestamps, batch.headers, batch.offsets, batch.partition
        )

    # -- Commit ----------------------------------------------------------------------------------------------------

    def flush_stores(self) -> None:
        """Flush the caches in the order of registration; forwarded and logged rows are in `output` afterwards."""
        try:
            # Before the stores, because held records may still reach them: a record must not be committed before it was
            # forwarded.
            self._bound.flush()
            for store in self.stores.values():
                store.flush()
                self._bound.flush()
        except StreamkitError:
            raise
        except Exception as error:
            raise self._failed_outside_a_node(error) from self._environment.handlers.shown(error)

    def prepare_commit(self, position: Callable[[TopicPartition], int]) -> dict[TopicPartition, CommittedOffset]:
        """Flush caches and return the offsets to commit; none if nothing happened since the last commit.

        `position`: the consumer's next offset, used if no record is queued.
        """
        if not self.commit_needed:
            return {}
        self._group.handle_skipped()
        self.flush_stores()
        changed = self.processor_metadata != self._committed_metadata
        partitions = self.inputs if changed else sorted(self._touched)
        return {partition: self._committable(partition, position) for partition in partitions}

    def post_commit(self) -> None:
        """Commit the stores, and reset the state of the commit."""
        if self.commit_needed:
            for store in self.stores.values():
                store.commit()
        self.end_commit()

    def end_commit(self) -> None:
        """Reset the state of the commit, after the commits of the stores."""
        self._committed_metadata = dict(self.processor_metadata)
        self.commit_needed = self.commit_requested = False

    def uncommitted_bytes(self) -> int:
        """Return about how many bytes of keys and values the stores have written since the last commit."""
        return sum(store.uncommitted_bytes() for store in self.stores.values())

    def consumed(self) -> dict[TopicPartition, int]:
        """Return the last offset that was processed, by partition."""
        return dict(self._consumed)

    # -- Inside ----------------------------------------------------------------------------------------------------

    def _bind(self) -> None:
        self.closing = self.wrote_at_end = False
        self._consumed, self._touched, self._committed_metadata = {}, set(), {}
        self._added = dict.fromkeys(self.spec.inputs, 0)
        self._bound = self.spec.program.bind(self)
        self._sources = dict(self._bound.sources)
        # With traces, the records of each topic in a round are one column.
        self._merges = self._bound.stepwise and self._tracing is None
        self._sources_times: dict[str, list[list[int]]] = {}
        self._group = self._environment.group(map(self._queue, self.spec.inputs), self._environment.idling)

    def _open_stores(self) -> None:
        plan = self._environment.plan
        for name in self.spec.sub_topology.stores:
            definition = plan.stores[name]
            # A store that is restored from its source topic has no separate changelog.
            changelog = None if definition.source_topic is not None else plan.changelog_name(name)
            self.stores[name] = self._environment.open_store(self.spec, name, StoreServices(self, changelog))

    def _queue(self, partition: TopicPartition) -> RecordQueue:
        policy = self._bound.timestamp_policies.get(partition.topic, "fail_on_invalid")
        services = QueueServices(
            self.now, self.dropped, self._policy.skips_undecodable, partial(self.on_deserialization_error, None)
        )
        return RecordQueue(partition, policy, self._bound.extractors.get(partition.topic), services)

    def _run(self, topic: str) -> RunFunction:
        run = self._sources.get(topic)
        if run is None:
            run = self._sources[topic] = self._run_by_pattern(topic)
        return run

    def _run_by_pattern(self, topic: str) -> RunFunction:
        for pattern, make in self._bound.patterns.items():
            if re.fullmatch(pattern, topic):
                return make(topic)
        raise StateError(f"task {self.task_id} does not read topic {topic}")

    def _process_run(self, run: Run) -> int:
        group = self._group
        run.begin(group.stream_time)
        self._running = run
        try:
            loops = [self._begin(partition, columns) for partition, columns, _ in run.parts]
            if run.order is not None:
                # Each loop processes its next record; the iteration runs in C.
                exhaust(map(next, map(loops.__getitem__, run.order)))
            else:
                exhaust(loops[0])
            self._bound.flush()
        except RefusedError as error:
            # The sink is directly below the source: no processing handler applies (SourceNode.process).
            raise self._policy.without_handler(error) from error.__cause__
        except StreamkitError:
            raise
        except Exception as error:
            raise self._failed_outside_a_node(error) from self._environment.handlers.shown(error)
        finally:
            self._running = None
            if run.rest:
                group.put_back(run.rest)
            group.stream_time = max(group.stream_time, run.highest)
        done = 0
        for partition, columns, _ in run.parts:
            # A run that ended early has only the timestamps of processed records.
            count = len(columns.timestamps)
            if count:
                if self._environment.measures_latency:
                    self._arrived(partition.topic).append(columns.timestamps)
                self._consumed[partition] = columns.offsets[count - 1]
                self._touched.add(partition)
                done += count
        if self._tracing is not None:
            self._tracing.processed(done)
        self.commit_needed = True
        return done

    def _begin(self, partition: TopicPartition, columns: Columns) -> Iterator[None]:
        """Return the loop that processes these records of one partition, one per step; or process them all now."""
        topic, number = partition
        keys, values, timestamps, headers, offsets = columns
        run = self._sources.get(topic) or self._run(topic)
        self.current_topic.size = len(topic)
        if self._tracing is not None:
            headers = self._tracing.columns(topic, keys, headers)
        return run(keys, values, timestamps, headers, offsets, number) or _ENDED

    def _arrived(self, topic: str) -> list[list[int]]:
        """Return the list of timestamp columns of a source node, for its latency."""
        columns = self._sources_times.get(topic)
        if columns is None:
            node = source_node(self._environment.plan, self.spec.sub_topology, topic)
            columns = self._sources_times[topic] = self.latency.columns(node)
        return columns

    def expire(self) -> None:
        """Delete expired rows, up to the limit of one call."""
        self.leave_record()
        try:
            if self._expiry.run(self._group.stream_time, self._is_full):
                self.commit_needed = True
            self._bound.flush()
        except StreamkitError:
            raise
        except Exception as error:
            raise self._failed_outside_a_node(error) from self._environment.handlers.shown(error)

    def _is_full(self) -> bool:
        return rounds.is_full() or len(self.output) > MAX_OUTPUT_ROWS

    def _end_run(self) -> None:
        if self._running is not None:
            self._running.end_at(self._bound.read_position())

    def _failed_outside_a_node(self, error: Exception) -> ProcessingError:
        topic, partition, offset = self._bound.position() or (None, -1, -1)
        record = FailedRecord(topic, partition, offset, -1, None, None, None)
        handlers = self._environment.handlers
        text = describe_failure(None, handlers.shown(error), record, handlers.contents)
        return ProcessingError(f"task {self.task_id}: {text}")

    def _committable(self, partition: TopicPartition, position: Callable[[TopicPartition], int]) -> CommittedOffset:
        queue = self._group.queues[partition]
        head = queue.head_offset()
        offset = position(partition) if head is None else head
        return CommittedOffset(offset, metadata.encode(queue.partition_time, self.processor_metadata))


# Deletes rows with a time to live: right after the record with which stream time reaches a tick.

_AT_ONCE = 10_000
"""The maximum number of rows to delete before the owner of the task may send output, commit, and run queries."""
_LOOK_AFTER = 256
"""The number of rows after which the size of the output is checked."""


class Expiry:
    """The stores of a task whose rows have a time to live.

    The last tick of each store is committed with the offsets, under the store's name. After a restart, or on the task's
    next owner, rows are therefore deleted at the same stream time, and none twice.
    """

    def __init__(self, stores: Iterable[Store], times: dict[str, int]):
        self._stores = [store for store in stores if isinstance(store, ExpiringStore)]
        self._times = times
        self._running: Iterator[None] | None = None
        self.unfinished = False
        """Whether due rows have not been deleted yet; no record may be processed before they are."""

    def reset(self) -> None:
        """Discard an unfinished run, because the stores or the times have been reset to the last commit."""
        self._running, self.unfinished = None, False

    def start(self, time: int) -> None:
        """Begin at the committed stream time (ms)."""
        self.unfinished = any(self._is_due(store, time) for store in self._stores)

    def next_due(self, timer: int | None = None) -> int | None:
        """Return the next stream time (ms) at which rows of a store may be due, or `timer` if that is earlier."""
        for store in self._stores:
            due = self._tick(store, self._done(store)) + store.tick
            if timer is None or due < timer:
                timer = due
        return timer

    def run(self, time: int, is_full: Callable[[], bool]) -> int:
        """Delete the rows that are due at a stream time (ms); return their number. `unfinished` is set if some are left."""
        deleted = 0
        for store in self._stores:
            while self._is_due(store, time):
                if self._running is None:
                    self._running = store.expire(self._tick(store, time))
                for _ in self._running:
                    deleted += 1
                    if deleted >= _AT_ONCE or (not deleted % _LOOK_AFTER and is_full()):
                        self.unfinished = True
                        return deleted
                self._running = None
                self._times[store.name] = self._tick(store, time)
        self.unfinished = False
        return deleted

    def _is_due(self, store: ExpiringStore, time: int) -> bool:
        return time >= 0 and self._tick(store, time) > self._done(store)

    def _done(self, store: ExpiringStore) -> int:
        # Not cached: the committed times are set after the task is created.
        return self._times.get(store.name, UNKNOWN)

    @staticmethod
    def _tick(store: ExpiringStore, time: int) -> int:
        return time // store.tick * store.tick
