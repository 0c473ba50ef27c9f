"""What the threads of an application share, and the settings that they run by."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamkit.compile import Program, compile_sub_topology
from streamkit.errors import ConfigError
from streamkit.metrics import Metrics
from streamkit.plan.model import Plan, SubTopology
from streamkit.record import TopicPartition
from streamkit.runtime.collecting import CycleCollector
from streamkit.runtime.environment import EmitIntervals
from streamkit.runtime.handlers import Handlers
from streamkit.runtime.local.assignor import Id
from streamkit.runtime.queues import Idling
from streamkit.state.directory import StateDirectory
from streamkit.state.maps import check_engine, default_engine
from streamkit.transport.base import Transport

if TYPE_CHECKING:
    from streamkit.runtime.local.coordinator import Coordinator
    from streamkit.runtime.local.progress import Event, RestoreProgress

log = logging.getLogger(__name__)

BATCH = 5000
"""Records a poll where max.poll.records is not set: Java's 1000 would cost Python a fifth of its speed."""


def elapsed() -> int:
    """Return milliseconds that only ever grow, for intervals: the time of day may be set back."""
    return time.monotonic_ns() // 1_000_000


def wall_clock() -> int:
    """Return the time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Settings:
    """The settings of a stream thread, by Kafka Streams' names and defaults; times in milliseconds."""

    poll_ms: int = 100
    commit_interval_ms: int = 30_000
    buffered_records: int = 1000
    max_idle_ms: int = 0
    max_poll_records: int = BATCH
    max_poll_interval_ms: int = 300_000
    session_timeout_ms: int = 45_000
    task_timeout_ms: int = 300_000
    purge_interval_ms: int = 30_000
    exactly_once: bool = False
    read_committed: bool = False
    """Whether inputs are read without open and aborted transactions."""
    restore_read_committed: bool = False
    """The same for changelogs."""
    emit_intervals: EmitIntervals = field(default_factory=EmitIntervals)
    max_request_size: int | None = None
    handlers: Handlers = field(default_factory=Handlers)

    @classmethod
    def of(cls, config: Any) -> Settings:
        """Read the settings of a Config. Raises ConfigError."""
        guarantee = config["processing.guarantee"]
        if guarantee not in ("at_least_once", "exactly_once_v2"):
            raise ConfigError(f"processing.guarantee is {guarantee!r}; expected at_least_once or exactly_once_v2")
        return cls(
            poll_ms=int(config["poll.ms"]),
            commit_interval_ms=int(config["commit.interval.ms"]),
            buffered_records=int(config["buffered.records.per.partition"]),
            max_idle_ms=int(config["max.task.idle.ms"]),
            max_poll_records=int(config.get("max.poll.records") or BATCH),
            max_poll_interval_ms=int(config.get("max.poll.interval.ms") or 300_000),
            session_timeout_ms=int(config.client("main").get("session.timeout.ms", 45_000)),
            task_timeout_ms=int(config["task.timeout.ms"]),
            purge_interval_ms=int(config["repartition.purge.interval.ms"]),
            exactly_once=guarantee == "exactly_once_v2",
            read_committed=config.read_committed(),
            restore_read_committed=config.read_committed("restore"),
            emit_intervals=EmitIntervals.of(config),
            max_request_size=config.max_request_size,
            handlers=Handlers.of(config),
        )

    @property
    def idling(self) -> Idling:
        """How long tasks wait for empty partitions."""
        return Idling(self.max_idle_ms)


class Claims:
    """Which thread holds which task: no two at once, so that a task moves only after it was closed (StateDirectory.lock)."""

    def __init__(self) -> None:
        self._owners: dict[Id, str] = {}
        self._lock = threading.Lock()

    def take(self, task: Id, owner: str) -> bool:
        """Return whether the task is the owner's now."""
        with self._lock:
            return self._owners.setdefault(task, owner) == owner

    def give_up(self, task: Id, owner: str) -> None:
        """Let others have the task."""
        with self._lock:
            if self._owners.get(task) == owner:
                del self._owners[task]


@dataclass
class Shared:
    """What all threads of one application share; read only while they run, except what says otherwise."""

    plan: Plan
    transport: Transport
    settings: Settings
    directory: StateDirectory
    topics: TopicsOnLog
    cache_bytes: int = 0
    """Of one thread."""
    clock: Callable[[], int] = wall_clock
    """The time of day in ms, which records and wall-clock timers see."""
    elapsed: Callable[[], int] = elapsed
    """The clock of intervals, in ms."""
    global_stores: Mapping[str, Any] = field(default_factory=dict)
    until_idle: threading.Event = field(default_factory=threading.Event)
    """Set: threads commit as soon as they find nothing to do."""
    paused: threading.Event = field(default_factory=threading.Event)
    """Set: nothing is processed, restored or updated (KafkaStreams.pause)."""
    restore_listener: Callable[[Event, RestoreProgress], None] | None = None
    claims: Claims = field(default_factory=Claims)
    changed: Callable[[Any], None] = lambda thread: None
    """Called by a thread after its state changed."""
    metrics: Metrics = field(default_factory=Metrics)
    coordinator: Coordinator | None = None
    """Set before threads start; None: commits go to the log without a membership."""
    programs: dict[int, Program] = field(default_factory=dict)
    cycles: CycleCollector = field(init=False)
    """Noted by threads that close tasks and producers."""

    def __post_init__(self) -> None:
        self.cycles = CycleCollector(self.elapsed)

    def program(self, sub_topology: SubTopology) -> Program:
        """Return the program of a sub-topology, compiled once a process."""
        found = self.programs.get(sub_topology.id)
        if found is None:
            found = self.programs.setdefault(sub_topology.id, compile_sub_topology(self.plan, sub_topology))
        return found


@dataclass(frozen=True)
class TopicsOnLog:
    """Topics as they exist, and the tasks that follow from them."""

    partitions: Mapping[str, int]
    """Partition counts by name on the log."""
    inputs: Mapping[int, tuple[str, ...]]
    """Source topics on the log by sub-topology, patterns resolved."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """What the log calls the changelogs (Admin.topic_ids)."""

    def count(self, topic: str) -> int:
        """Return a topic's partition count, 1 for one that is not known (a routed topic)."""
        return self.partitions.get(topic, 1)

    def tasks(self) -> list[Id]:
        """Return all tasks: as many a sub-topology as its widest source topic has partitions (PartitionGrouper)."""
        return [
            (sub, partition)
            for sub, topics in self.inputs.items()
            for partition in range(max((self.partitions[topic] for topic in topics), default=0))
        ]

    def partitions_of(self, task: Id) -> tuple[TopicPartition, ...]:
        """Return a task's input partitions: its own number of every source topic that has it."""
        sub, partition = task
        return tuple(
            TopicPartition(topic, partition) for topic in self.inputs[sub] if partition < self.partitions[topic]
        )


def log_warnings(config: Any) -> None:
    """Log what has no effect of a Config."""
    for warning in config.warnings:
        log.warning(warning)


def state_directory(plan: Plan) -> StateDirectory:
    """Take the state directory; tasks that have lain there for too long are deleted first (KIP-1259).

    Raises StateError, StateLockedError; ConfigError for an engine that is not installed.
    """
    config = plan.config
    engine = config["state.engine"] or default_engine()
    if any(store.persistent for store in plan.stores.values()):
        check_engine(engine)
    group_writes = bool(config["allow.os.group.write.access"])
    directory = StateDirectory(config["state.dir"], plan.application, engine, group_writes=group_writes)
    oldest = int(config["state.cleanup.dir.max.age.ms"])
    if oldest >= 0:
        for task in directory.clean((), time.time() - oldest / 1000):
            log.info("the state of task %s is older than state.cleanup.dir.max.age.ms (%d), and deleted", task, oldest)
    return directory
