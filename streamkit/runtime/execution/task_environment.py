"""The parts of a task: its specification, and what it shares with the other tasks of its driver or thread."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamkit.compile.program import Program
from streamkit.operators.core.task_services import EmitIntervals, TaskServices
from streamkit.plan.model import Plan, SubTopology
from streamkit.record import Headers, TopicPartition
from streamkit.runtime.execution.handlers import Handlers
from streamkit.runtime.execution.queues import Idling, PartitionGroup
from streamkit.state.definitions import Store

if TYPE_CHECKING:
    from streamkit.runtime.telemetry.task_tracing import TaskTracing


@dataclass(frozen=True)
class TaskSpec:
    """A task's id, sub-topology, program and inputs."""

    task_id: str
    partition: int
    sub_topology: SubTopology
    program: Program
    inputs: tuple[TopicPartition, ...]
    """Partitions by the names of topics on the log."""


STEP_LOG = logging.getLogger("streamkit.steps")
"""The logger of the `log` steps."""


def log_to_stderr(level: int, text: str) -> None:
    """Print a line of the `log` step to stderr, for runs without a log."""
    print(f"{logging.getLevelName(level)} {text}", file=sys.stderr)


@dataclass(frozen=True)
class TaskEnvironment:
    """The objects and settings that the tasks of one driver or thread share."""

    plan: Plan
    clock: Callable[[], int]
    """Milliseconds since the epoch."""
    open_store: Callable[[TaskSpec, str, StoreServices], Store]
    """(task, store's name, its services): opens a store."""
    partitions: Callable[[str], int]
    """Returns the number of partitions of a topic on the log."""
    elapsed: Callable[[], int] | None = None
    """Milliseconds of a clock that is never set, for waits; None: `clock`, where time passes only as the caller says."""
    handlers: Handlers = field(default_factory=Handlers)
    idling: Idling = field(default_factory=Idling)
    emit_intervals: EmitIntervals = field(default_factory=EmitIntervals)
    global_stores: Mapping[str, Store] = field(default_factory=dict)
    group: type[PartitionGroup] = PartitionGroup
    """Selects the next records among the task's queues."""
    print_line: Callable[[str], None] = print
    """Prints a line of the `print` step."""
    log_line: Callable[[int, str], None] = STEP_LOG.log
    """Logs a line of the `log` step: (level of the module `logging`, text)."""
    stopping: Callable[[], bool] = lambda: False
    """Returns whether the application is stopping."""
    max_request_size: int | None = None
    """The maximum size in bytes of a written key or value; None: serdes.size.MAX_BYTES."""
    tracing: Callable[[str, SubTopology, Sequence[str]], TaskTracing] | None = None
    """Returns the traces of a task, given its sub-topology and inputs; None if traces are off."""
    measures_latency: bool = False
    """Whether end-to-end latencies are measured (KIP-613); `try` and batch jobs do not process records as they arrive."""


class StoreServices:
    """The services that a store uses (StoreContext): its changelog, and the count of dropped records."""

    __slots__ = ("_append", "_partition", "_topic", "dropped", "topic")

    def __init__(self, task: TaskServices, changelog: str | None):
        self._append = task.output.append
        self._topic = changelog
        self._partition = task.partition
        self.dropped = task.dropped
        self.topic = task.current_topic

    def log(self, key: bytes, value: bytes | None, timestamp: int | None, headers: Headers | None) -> None:
        """Append a record to the store's changelog, in the task's partition."""
        if self._topic is not None:
            self._append((self._topic, key, value, timestamp, headers, self._partition))
