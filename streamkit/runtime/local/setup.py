"""The objects that the threads of an application share, and their settings."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from streamkit.compile.compiler import compile_sub_topology
from streamkit.compile.program import Program
from streamkit.config import Config
from streamkit.config.application_config import TRANSACTION_TIMEOUT_MS
from streamkit.metrics import Metrics
from streamkit.operators.core.task_services import EmitIntervals
from streamkit.plan.model import Plan, SubTopology
from streamkit.record import TaskId
from streamkit.runtime.execution.collecting import CycleCollector
from streamkit.runtime.execution.handlers import Handlers
from streamkit.runtime.execution.queues import Idling
from streamkit.runtime.local.internal_topics import PartitionCounts, TopicsOnLog
from streamkit.runtime.telemetry.open_telemetry import Telemetry
from streamkit.state.definitions import Store
from streamkit.state.directory import StateDirectory, check_engines
from streamkit.transport.log_interface import Transport

if TYPE_CHECKING:
    from streamkit.runtime.local.coordinator import Coordinator
    from streamkit.runtime.local.restore import Event, RestoreProgress

log = logging.getLogger(__name__)


def elapsed() -> int:
    """Return the monotonic clock in milliseconds, for intervals, because the time of day may be set back."""
    return time.monotonic_ns() // 1_000_000


def wall_clock() -> int:
    """Return the time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Settings:
    """The settings of a stream thread, by Kafka Streams' names and defaults; times in milliseconds."""

    poll_ms: int = Config.poll_ms.default
    commit_interval_ms: int = Config.commit_interval_ms.default
    buffered_records: int = Config.buffered_records_per_partition.default
    max_idle_ms: int = Config.max_task_idle_ms.default
    max_poll_records: int = Config.max_poll_records.default
    max_poll_interval_ms: int = Config.max_poll_interval_ms.default
    session_timeout_ms: int = Config.session_timeout_ms.default
    task_timeout_ms: int = Config.task_timeout_ms.default
    purge_interval_ms: int = Config.repartition_purge_interval_ms.default
    exactly_once: bool = False
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    read_committed: bool = False
    """Whether records of open and aborted transactions of inputs are skipped."""
    restore_read_committed: bool = False
    """The same for changelogs."""
    emit_intervals: EmitIntervals = field(default_factory=EmitIntervals)
    max_request_size: int | None = None
    handlers: Handlers = field(default_factory=Handlers)

    @classmethod
    def of(cls, config: Config) -> Settings:
        """Read the settings of a Config. Raises ConfigError."""
        return cls(
            poll_ms=config.poll_ms,
            commit_interval_ms=config.commit_interval_ms,
            buffered_records=config.buffered_records_per_partition,
            max_idle_ms=config.max_task_idle_ms,
            max_poll_records=config.max_poll_records,
            max_poll_interval_ms=config.max_poll_interval_ms,
            session_timeout_ms=config.session_timeout_ms,
            task_timeout_ms=config.task_timeout_ms,
            purge_interval_ms=config.repartition_purge_interval_ms,
            exactly_once=config.exactly_once,
            transaction_timeout_ms=int(config.client("producer").get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)),
            read_committed=config.read_committed(),
            restore_read_committed=config.read_committed("restore"),
            emit_intervals=EmitIntervals.of(config),
            max_request_size=config.max_request_size,
            handlers=Handlers.of(config),
        )

    @property
    def longest_round_ms(self) -> int:
        """How long a thread may process before it commits or polls, with time to spare for both."""
        limit = self.longest_without_poll_ms
        return min(limit, self.transaction_timeout_ms // 4) if self.exactly_once else limit

    @property
    def longest_without_poll_ms(self) -> int:
        """How long a thread may process before it polls: half of the time after which the group removes it (StreamThread)."""
        return self.max_poll_interval_ms // 2

    @property
    def idling(self) -> Idling:
        """How long tasks wait for empty partitions."""
        return Idling(self.max_idle_ms)


class Claims:
    """The owning thread of each task: one at a time, so a task moves only after it is closed (StateDirectory.lock)."""

    def __init__(self) -> None:
        self._owners: dict[TaskId, str] = {}
        self._lock = threading.Lock()

    def claim(self, task: TaskId, owner: str) -> bool:
        """Claim a task if it is free; return whether the owner has it now."""
        with self._lock:
            return self._owners.setdefault(task, owner) == owner

    def release(self, task: TaskId, owner: str) -> None:
        """Free a task of the owner."""
        with self._lock:
            if self._owners.get(task) == owner:
                del self._owners[task]


@dataclass
class Shared:
    """The objects that all threads of one application share; read-only while they run, unless stated otherwise."""

    plan: Plan
    transport: Transport
    settings: Settings
    directory: StateDirectory
    topics: TopicsOnLog
    cache_bytes: int = 0
    """Of one thread."""
    uncommitted_bytes: int | None = None
    """The uncommitted writes of one thread that bring its commit forward, which change with the number of threads; None: no number."""
    clock: Callable[[], int] = wall_clock
    """The time of day in ms, for records and wall-clock timers."""
    elapsed: Callable[[], int] = elapsed
    """The clock of intervals, in ms."""
    global_stores: Mapping[str, Store] = field(default_factory=dict)
    until_idle: threading.Event = field(default_factory=threading.Event)
    """Set: threads commit as soon as they are idle."""
    paused: threading.Event = field(default_factory=threading.Event)
    """Set: no record is processed, restored or updated (KafkaStreams.pause)."""
    print_line: Callable[[str], None] = print
    """Prints a line of the `print` step."""
    restore_listener: Callable[[Event, RestoreProgress], None] | None = None
    claims: Claims = field(default_factory=Claims)
    metrics: Metrics = field(default_factory=Metrics)
    coordinator: Coordinator | None = None
    """Set before threads start; None: threads commit without a membership."""
    telemetry: Telemetry | None = None
    """Traces and metrics for OpenTelemetry; None if otel.enabled is not set."""
    programs: dict[int, Program] = field(default_factory=dict)
    cycles: CycleCollector = field(init=False)
    """Frees tasks and producers that threads have closed."""
    partitions: PartitionCounts = field(init=False)
    """Returns the number of partitions of a topic on the log."""

    def __post_init__(self) -> None:
        self.cycles = CycleCollector(self.elapsed)
        self.partitions = PartitionCounts(self.topics, self.transport)

    def program(self, sub_topology: SubTopology) -> Program:
        """Return the program of a sub-topology, compiled once per process."""
        program = self.programs.get(sub_topology.id)
        if program is None:
            compiled = compile_sub_topology(self.plan, sub_topology, measures_latency=True)
            program = self.programs.setdefault(sub_topology.id, compiled)
        return program


def log_warnings(config: Config) -> None:
    """Log the warnings of a Config, about settings without effect."""
    for warning in config.warnings:
        log.warning(warning)


def state_directory(plan: Plan) -> StateDirectory:
    """Open and lock the state directory; task directories that are too old are deleted first (KIP-1259).

    Raises StateError, StateLockedError; ConfigError for an engine that is not installed.
    """
    config = plan.config
    if any(store.persistent for store in plan.stores.values()):
        check_engines(Path(config.state_dir) / plan.application, config.state_engine)
    group_writes = config.allow_os_group_write_access
    directory = StateDirectory(config.state_dir, plan.application, config.state_engine, group_writes=group_writes)
    oldest = config.state_cleanup_dir_max_age_ms
    if oldest >= 0:
        for task in directory.clean((), time.time() - oldest / 1000):
            log.info(
                "the state of task %s is older than state.cleanup.dir.max.age.ms (%d) and is deleted", task, oldest
            )
    return directory


class StopRequestedError(Exception):
    """The application was stopped before it had started."""
