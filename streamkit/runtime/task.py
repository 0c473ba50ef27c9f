"""A task: queues, clocks, stores and a program for one partition of a sub-topology (StreamTask)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from streamkit import rounds
from streamkit.compile import FATAL
from streamkit.compile.services import BoundProgram, FailedRecord
from streamkit.errors import ProcessingError, RefusedError, StateError, StreamkitError
from streamkit.record import RecordBatch, TopicPartition
from streamkit.runtime import metadata
from streamkit.runtime.environment import StoreServices, TaskEnvironment, TaskSpec
from streamkit.runtime.expiry import Expiry
from streamkit.runtime.handlers import ErrorPolicy, describe_failure
from streamkit.runtime.punctuation import PunctuationQueue, Punctuator, first_time
from streamkit.runtime.queues import Columns, PartitionGroup, QueueServices, RecordQueue
from streamkit.runtime.runs import LONGEST_RUN, MOST_ROWS, Run
from streamkit.serdes import size
from streamkit.state.base import CurrentTopic
from streamkit.transport.base import CommittedOffset


class Task:
    """Runs a program over the records of its input partitions, and knows what to commit.

    It implements compile.services.TaskServices. Nothing here is done once a record: queues hand over runs of records.
    """

    def __init__(self, spec: TaskSpec, environment: TaskEnvironment):
        self.spec = spec
        self.task_id = spec.task_id
        self.partition = spec.partition
        self.application_id = environment.plan.application
        self.emit_intervals = environment.emit_intervals
        self.output: list[tuple] = []
        self.processor_metadata: dict[str, int] = {}
        self.commit_requested = False
        self.commit_needed = False
        self.dropped_total = 0
        """Dropped records since the owner last counted them."""
        self.current_topic = CurrentTopic()
        self.now = environment.clock
        self.partitions = environment.partitions
        self.print_line = environment.print_line
        self._environment = environment
        self._policy = ErrorPolicy(spec.program.nodes, environment.handlers, self.output.append)
        self._stream_punctuators = PunctuationQueue()
        self._wall_punctuators = PunctuationQueue()
        self._running: Run | None = None
        self._consumed: dict[TopicPartition, int] = {}
        self._added: dict[TopicPartition, int] = {}
        self._touched: set[TopicPartition] = set()
        self._committed_metadata: dict[str, int] = {}
        self._bound: BoundProgram
        self._group: PartitionGroup
        self.stores: dict[str, Any] = {}
        try:
            self._open_stores()
            self._expiry = Expiry(self.stores.values(), self.processor_metadata)
            self._bind()
        except BaseException:
            self.close_stores()
            raise

    # -- TaskServices ----------------------------------------------------------------------------------------------

    def store(self, name: str) -> Any:
        """Return a store of the task, or a global one. Raises StateError."""
        found = self.stores.get(name)
        if found is None:
            found = self._environment.global_stores.get(name)
        if found is None:
            raise StateError(f"task {self.task_id} has no store {name!r}")
        return found

    def stream_time(self) -> int:
        """Return the highest timestamp (ms) taken from the queues so far, -1 before the first; exact within a run."""
        if self._running is None:
            return self._group.stream_time
        return self._running.time_at(self._bound.position())

    def dropped(self, count: int = 1) -> None:
        """Count dropped records (dropped-records-total)."""
        self.dropped_total += count

    def on_error(self, node: int, error: Exception, record: FailedRecord) -> None:
        """Answer a node's failure by the step's `on_error` or the application's handler. Raises ProcessingError."""
        self._policy.processing(node, error, record)
        self.dropped_total += 1

    def on_refusal(self, node: int, error: Exception, record: FailedRecord, encoding: bool) -> None:
        """Answer a sink's failure by the production handler. Raises RefusedError where that says fail, ProcessingError."""
        self._policy.refusal(node, error, record, encoding)
        self.dropped_total += 1

    def on_deserialization_error(self, node: int | None, error: Exception, record: FailedRecord) -> None:
        """Answer bytes that do not decode by the application's handler. Raises DeserializationError."""
        self._policy.deserialization(node, error, record)
        self.dropped_total += 1

    def schedule(
        self, node: int, interval_ms: int, kind: str, callback: Callable[[int], None], start: int | None = None
    ) -> Punctuator:
        """Call back at "stream_time" or "wall_clock" intervals (StreamTask.schedule). Raises ProcessingError.

        `start`: a time (ms) that all calls are aligned with, at the earliest itself (KIP-1146).
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
        raise ProcessingError(f"schedule: {kind!r} is no clock; expected 'stream_time' or 'wall_clock'")

    def wall_clock(self) -> int:
        """Return the time (ms) that processors see."""
        return self.now()

    def request_commit(self) -> None:
        """Ask for a commit after the current records (ProcessorContext.commit)."""
        self.commit_requested = True

    # -- Life ------------------------------------------------------------------------------------------------------

    def start(self, committed: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Take up times from committed offsets and make processors; stores have been restored."""
        for partition, offset in committed.items():
            if partition in self._group.queues:
                time, times = metadata.decode(offset.metadata)
                self._group.restore_time(partition, time)
                for name, value in times.items():
                    self.processor_metadata[name] = max(value, self.processor_metadata.get(name, value))
        self._committed_metadata = dict(self.processor_metadata)
        self._expiry.start(self._group.stream_time)
        self._bound.init()

    def reset(self) -> None:
        """Close processors and go back to before `start`, with the stores as they are; everything has been committed."""
        self._stream_punctuators.clear()
        self._wall_punctuators.clear()
        self._bound.close()
        self._expiry.reset()
        for store in self.stores.values():
            store.forget()
        self.processor_metadata.clear()
        del self.output[:]
        self._bind()

    def close(self) -> None:
        """Close processors and stores; what was not committed is gone. A failing close hides no earlier error."""
        self._stream_punctuators.clear()
        self._wall_punctuators.clear()
        try:
            self._bound.close()
        finally:
            self.close_stores()

    def close_stores(self) -> None:
        """Close the stores, all of them even when one fails."""
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

    def extractor(self, topic: str) -> Callable[[list, list, list, list, list, int], list] | None:
        """Return what takes a topic's times from its records: columns and partition in, times or exceptions out."""
        return self._bound.extractors.get(topic)

    def add_input(self, partition: TopicPartition) -> None:
        """Read one more partition: a topic that matches a pattern has appeared."""
        if partition not in self._group.queues:
            self._group.add_queue(self._queue(partition))
            self._added[partition] = 0

    def add(self, batch: RecordBatch) -> int:
        """Queue a batch; return how many records its partition has waiting. Raises what a failing extractor raises."""
        queue = self._group.add(batch)
        self._added[queue.partition] += len(batch.offsets)
        if queue.skipped:
            # Their offsets are to be committed although no record will be taken.
            queue.skipped = False
            self._touched.add(queue.partition)
            self.commit_needed = True
        return queue.size

    def touch(self, partitions: Iterable[TopicPartition]) -> None:
        """Let the next commit name the positions of these inputs, although nothing was processed."""
        self._touched.update(partitions)
        self.commit_needed = True

    def buffered(self, partition: TopicPartition) -> int:
        """Return how many records of a partition wait."""
        return self._group.queues[partition].size

    def head_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record of a partition that waits, None where none does."""
        return self._group.queues[partition].head_offset()

    def taken(self) -> dict[TopicPartition, int]:
        """Return how many records of each partition were taken from the queues so far."""
        return {partition: count - self.buffered(partition) for partition, count in self._added.items()}

    def has_records(self) -> bool:
        """Return whether any record waits."""
        return self._group.buffered() > 0

    @property
    def expiring(self) -> bool:
        """Whether rows are due that `process` has not deleted yet, because they were too many at once."""
        return self._expiry.unfinished

    def set_lags(self, lags: Mapping[TopicPartition, int]) -> None:
        """Note how many records each partition has on the log beyond those fetched; for max.task.idle.ms."""
        self._group.set_lags(lags)

    def process(self, max_records: int) -> int:
        """Process at most so many records, the oldest heads first; return how many. Raises ProcessingError and its subclasses.

        Rows whose time to live is over are deleted, and then stream-time punctuators fire, right after the record that
        makes them due. Where records make much, fewer are processed, so that their output can be sent.
        """
        done = 0
        group, now = self._group, self.now
        rounds.begin(self._end_run)
        size.limit(self._environment.max_request_size)
        try:
            if self._expiry.unfinished:
                self._expire()
            while not self._expiry.unfinished and done < max_records and group.ready(now):
                due = self._expiry.next_due(self._stream_punctuators.next_due())
                run = group.next_run(min(max_records - done, LONGEST_RUN), due)
                if run is None:
                    break
                partition, columns, highest = run
                done += self._process_run(partition, columns, highest)
                if due is not None and group.stream_time >= due:
                    self._expire()
                    self.punctuate_stream_time()
                if self.commit_requested or self._is_full():
                    break
        finally:
            rounds.begin(None)
        return done

    def update(self, batch: RecordBatch) -> None:
        """Process a batch at once, past the queues (GlobalStateUpdateTask)."""
        self._run(batch.topic)(
            batch.keys, batch.values, batch.timestamps, batch.headers, batch.offsets, batch.partition
        )

    def punctuate_stream_time(self) -> bool:
        """Fire what the stream time makes due; return whether anything fired."""
        time = self._group.stream_time
        if time == metadata.UNKNOWN or self._expiry.unfinished:
            return False
        fired = self._stream_punctuators.punctuate(time, self._fire)
        self.commit_needed = self.commit_needed or fired
        return fired

    def punctuate_wall_clock(self) -> bool:
        """Fire what the clock makes due; return whether anything fired."""
        if self._wall_punctuators.next_due() is None:
            return False
        fired = self._wall_punctuators.punctuate(self.now(), self._fire)
        self.commit_needed = self.commit_needed or fired
        return fired

    def punctuate(self) -> bool:
        """Fire what is due, stream time before wall clock; return whether anything fired."""
        fired = self.punctuate_stream_time()
        return self.punctuate_wall_clock() or fired

    # -- Commit ----------------------------------------------------------------------------------------------------

    def flush_stores(self) -> None:
        """Empty caches in the order of registration; what that forwards and logs is in `output` afterwards."""
        try:
            for store in self.stores.values():
                store.flush()
        except StreamkitError:
            raise
        except Exception as error:
            raise self._failed_outside_a_node(error) from error

    def leave_record(self) -> None:
        """Forget the current record: what leaves a cache has nothing to do with it, and must not be blamed on it."""
        self.current_topic.size = 0
        self._bound.leave()

    def prepare_commit(self, position: Callable[[TopicPartition], int]) -> dict[TopicPartition, CommittedOffset]:
        """Flush caches and return the offsets to commit; nothing where nothing happened since the last commit.

        `position`: the consumer's next offset, used where nothing is queued.
        """
        if not self.commit_needed:
            return {}
        self.flush_stores()
        changed = self.processor_metadata != self._committed_metadata
        partitions = self.inputs if changed else sorted(self._touched)
        return {partition: self._committable(partition, position) for partition in partitions}

    def post_commit(self) -> None:
        """Forget what was committed, and make what was flushed durable in the stores."""
        if self.commit_needed:
            for store in self.stores.values():
                store.commit()
        self._committed_metadata = dict(self.processor_metadata)
        self.commit_needed = self.commit_requested = False

    def consumed(self) -> dict[TopicPartition, int]:
        """Return the last offset that was processed, by partition."""
        return dict(self._consumed)

    # -- Inside ----------------------------------------------------------------------------------------------------

    def _bind(self) -> None:
        self._consumed, self._touched, self._committed_metadata = {}, set(), {}
        self._added = dict.fromkeys(self.spec.inputs, 0)
        self._bound = self.spec.program.bind(self)
        self._sources = dict(self._bound.sources)
        self._group = self._environment.group(map(self._queue, self.spec.inputs), self._environment.idling)

    def _open_stores(self) -> None:
        plan = self._environment.plan
        for name in self.spec.sub_topology.stores:
            definition = plan.stores[name]
            # A store that is restored from its source topic has no changelog of its own.
            changelog = None if definition.source_topic is not None else plan.changelog_name(name)
            self.stores[name] = self._environment.open_store(self.spec, name, StoreServices(self, changelog))

    def _queue(self, partition: TopicPartition) -> RecordQueue:
        policy = self._bound.timestamp_policies.get(partition.topic, "fail_on_invalid")
        services = QueueServices(self.now, self.dropped, self._undecodable)
        return RecordQueue(partition, policy, self._bound.extractors.get(partition.topic), services)

    def _run(self, topic: str) -> Any:
        run = self._sources.get(topic)
        if run is None:
            run = self._sources[topic] = self._run_by_pattern(topic)
        return run

    def _run_by_pattern(self, topic: str) -> Any:
        for pattern, make in self._bound.patterns.items():
            if re.fullmatch(pattern, topic):
                return make(topic)
        raise StateError(f"task {self.task_id} does not read topic {topic}")

    def _process_run(self, partition: TopicPartition, columns: Columns, highest: int) -> int:
        keys, values, timestamps, headers, offsets = columns
        group = self._group
        if len(timestamps) == 1:
            if highest > group.stream_time:
                group.stream_time = highest
        else:
            self._running = Run(group.stream_time, columns)
        run = self._sources.get(partition.topic) or self._run(partition.topic)
        self.current_topic.size = len(partition.topic)
        try:
            run(keys, values, timestamps, headers, offsets, partition.partition)
        except RefusedError as error:
            # The sink stands directly below the source: no processing handler is asked (SourceNode.process).
            raise self._policy.unanswered(error) from error.cause
        except StreamkitError:
            raise
        except Exception as error:
            raise self._failed_outside_a_node(error) from error
        finally:
            if self._running is not None:
                rest = self._running.rest
                if rest is not None:
                    highest = max(timestamps)
                    group.put_back(partition, rest, highest)
                self._running = None
                group.stream_time = max(group.stream_time, highest)
        # As many as were processed: a run that ended early has fewer timestamps.
        done = len(timestamps)
        self._consumed[partition] = offsets[done - 1]
        self._touched.add(partition)
        self.commit_needed = True
        return done

    def _expire(self) -> None:
        """Delete rows whose time to live is over, as many as may be at once."""
        self.leave_record()
        try:
            if self._expiry.run(self._group.stream_time, self._is_full):
                self.commit_needed = True
        except StreamkitError:
            raise
        except Exception as error:
            raise self._failed_outside_a_node(error) from error

    def _is_full(self) -> bool:
        return rounds.is_full() or len(self.output) > MOST_ROWS

    def _end_run(self) -> None:
        if self._running is not None:
            self._running.end_at(self._bound.position())

    def _failed_outside_a_node(self, error: Exception) -> ProcessingError:
        topic, partition, offset = self._bound.position() or (None, -1, -1)
        record = FailedRecord(topic, partition, offset, -1, None, None, None)
        return ProcessingError(f"task {self.task_id}: {describe_failure(None, error, record)}")

    def _fire(self, punctuator: Punctuator, time: int) -> None:
        self.leave_record()
        try:
            punctuator.callback(time)
        except FATAL:
            raise
        except Exception as error:
            # Punctuators have no record: topic is null, partition and offset are -1.
            self.on_error(punctuator.node, error, FailedRecord(None, -1, -1, time, None, None, None))

    def _undecodable(self, error: Exception, partition: TopicPartition, columns: Columns, at: int) -> None:
        record = FailedRecord(
            partition.topic,
            partition.partition,
            columns.offsets[at],
            columns.timestamps[at],
            columns.keys[at],
            columns.values[at],
            columns.headers[at],
        )
        self.on_deserialization_error(None, error, record)

    def _committable(self, partition: TopicPartition, position: Callable[[TopicPartition], int]) -> CommittedOffset:
        queue = self._group.queues[partition]
        head = queue.head_offset()
        offset = position(partition) if head is None else head
        return CommittedOffset(offset, metadata.encode(queue.partition_time, self.processor_metadata))
