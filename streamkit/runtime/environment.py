"""What a task is made of: which one it is, and what it shares with the others of its driver or thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamkit.compile.program import Program
from streamkit.plan.model import Plan, SubTopology
from streamkit.record import Headers, TopicPartition
from streamkit.runtime.handlers import Handlers
from streamkit.runtime.queues import Idling, PartitionGroup


@dataclass(frozen=True)
class TaskSpec:
    """Which task it is."""

    task_id: str
    partition: int
    sub_topology: SubTopology
    program: Program
    inputs: tuple[TopicPartition, ...]
    """By name on the log."""


@dataclass(frozen=True)
class EmitIntervals:
    """How often, in milliseconds of the clock, closed windows and rows of joins without a partner are looked for."""

    windows: int = 1000
    joins: int = 1000

    @classmethod
    def of(cls, config: Any, default: int | None = None) -> EmitIntervals:
        """Read the settings of a Config; `default`: what holds where they are not set (TopologyTestDriver: 0)."""
        names = (
            "__emit.interval.ms.kstreams.windowed.aggregation__",
            "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__",
        )
        return cls(
            *(int(config[name]) if default is None or config.origin(name) != "default" else default for name in names)
        )


@dataclass(frozen=True)
class TaskEnvironment:
    """What tasks of one driver or thread share."""

    plan: Plan
    clock: Callable[[], int]
    """Milliseconds since the epoch."""
    open_store: Callable[[TaskSpec, str, StoreServices], Any]
    """(task, store's name, its services) -> state.base.Store."""
    partitions: Callable[[str], int]
    """How many partitions a topic on the log has."""
    handlers: Handlers = field(default_factory=Handlers)
    idling: Idling = field(default_factory=Idling)
    emit_intervals: EmitIntervals = field(default_factory=EmitIntervals)
    global_stores: Mapping[str, Any] = field(default_factory=dict)
    group: type[PartitionGroup] = PartitionGroup
    """How the next record is chosen among the task's queues."""
    print_line: Callable[[str], None] = print
    """Shows a line of the `print` step."""
    max_request_size: int | None = None
    """Bytes that a key or a value may have when it is written; None: serdes.size.MAX_BYTES."""


class StoreServices:
    """What a store asks of its task (state.base.StoreContext): its changelog and the count of refused records."""

    __slots__ = ("_append", "_partition", "_topic", "dropped", "topic")

    def __init__(self, task: Any, changelog: str | None):
        self._append = task.output.append
        self._topic = changelog
        self._partition = task.partition
        self.dropped = task.dropped
        self.topic = task.current_topic

    def log(self, key: bytes, value: bytes | None, timestamp: int | None, headers: Headers | None) -> None:
        """Append a record to the store's changelog, in the task's partition."""
        if self._topic is not None:
            self._append((self._topic, key, value, timestamp, headers, self._partition))
