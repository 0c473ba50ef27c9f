"""The part of a task that its program uses: stores, clocks, failures, punctuation (ProcessorContextImpl)."""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping
from functools import partial

from streamkit.compile import FATAL
from streamkit.compile.bound_program import BoundProgram
from streamkit.errors import ProcessingError, StateError
from streamkit.latency import TaskLatency
from streamkit.metrics import DroppedRecords
from streamkit.operators.core.task_services import FailedRecord, UserLog
from streamkit.operators.kernels.calls.call_times import POLL_INTERVAL
from streamkit.record import OutputTuple, Value
from streamkit.runtime.execution import metadata
from streamkit.runtime.execution.expiry import Expiry
from streamkit.runtime.execution.handlers import Drop, ErrorPolicy
from streamkit.runtime.execution.punctuation import PunctuationQueue, Punctuator, first_time
from streamkit.runtime.execution.queues import PartitionGroup
from streamkit.runtime.execution.reasons import place_of
from streamkit.runtime.execution.runs import Run
from streamkit.runtime.execution.task_environment import TaskEnvironment, TaskSpec
from streamkit.state.store_interface import CurrentTopic, Store
from streamkit.user_metrics import TaskMetrics

USER_LOG = "streamkit.user"
"""The logger of the user's code."""


class _UserLog(logging.LoggerAdapter[logging.Logger]):
    """Begins each line with its place."""

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
        self.poll_interval_ms = int(environment.plan.config.get("max.poll.interval.ms") or POLL_INTERVAL)
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
        found = self.stores.get(name)
        if found is None:
            found = self._environment.global_stores.get(name)
        if found is None:
            raise StateError(f"task {self.task_id} has no store {name!r}")
        return found

    def node_name(self, node: int) -> str:
        """Return the name of a node of the program."""
        return self.spec.program.nodes[node].name

    def place_of_node(self, node: int) -> str:
        """Return the file, line, pipeline and step of a node."""
        origin = self.spec.program.nodes[node].origin
        if origin is None:
            return f"node {self.node_name(node)}"
        return f"{origin.position.file}:{origin.position.line}: pipeline {origin.pipeline}, step {origin.step}"

    def log(self, node: int) -> UserLog:
        """Return the log `streamkit.user`, whose lines begin with the task and the node."""
        return _UserLog(logging.getLogger(USER_LOG), {"place": f"task {self.task_id}, {self.node_name(node)}"})

    def stream_time(self) -> int:
        """Return the highest timestamp (ms) taken from the queues so far, -1 before the first; exact within a run."""
        if self._running is None:
            return self._group.stream_time
        return self._running.time_at(self._bound.position())

    def dropped(self, reason: str, place: str | None = None) -> None:
        """Count a dropped record (dropped-records-total); `place`: that of the record, by default the current one."""
        self.dropped_total += 1
        self.drops.add(reason, self._place() if place is None else place)

    def on_error(self, node: int, error: Exception, record: FailedRecord) -> None:
        """Handle a node's failure by the step's `on_error` or the application's handler. Raises ProcessingError."""
        self._count(self._policy.processing(node, error, record))

    def skips_failures(self, node: int) -> bool:
        """Return whether records at which a node fails are dropped."""
        return self._policy.skips_failures(node)

    def on_refusal(self, node: int, error: Exception, record: FailedRecord, encoding: bool) -> None:
        """Handle a sink's failure by the production handler. Raises RefusedError where that is FAIL, ProcessingError."""
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

        `start`: a time (ms) that all calls are aligned with; no call is before it (KIP-1146).
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
        """Reset the current record: updates that leave a cache, and punctuators, do not belong to it."""
        self.current_topic.size = 0
        self._bound.leave()

    def fire(self, punctuator: Punctuator, time: int) -> None:
        self.leave_record()
        # What a callback has forwarded goes on although it fails afterwards, as without steps that hold records back.
        for call in (partial(punctuator.callback, time), self._bound.flush):
            try:
                call()
            except FATAL:
                raise
            except Exception as error:
                # Punctuators have no record: topic is null, partition and offset are -1.
                self.on_error(punctuator.node, error, FailedRecord(None, -1, -1, time, None, None, None))
