"""The services that a task provides to generated code and kernels, and the types of their functions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from streamkit.config import Config
from streamkit.record import Headers, Key, OutputTuple, RecordContext, Value
from streamkit.state.definitions import CurrentTopic
from streamkit.user_metrics import TaskMetrics


class Cancellable(Protocol):
    """A scheduled punctuator (Cancellable)."""

    def cancel(self) -> None:
        """Stop the punctuator."""


@dataclass(frozen=True)
class EmitIntervals:
    """Intervals (ms of the task's clock) at which closed windows, and outer-join rows without a match, are emitted."""

    windows: int = Config.emit_interval_ms_of_windows.default
    joins: int = Config.emit_interval_ms_of_outer_joins.default
    may_lose: bool = False
    """Whether windows that a store expires between their close and the next emit are lost, as in Kafka Streams."""

    @classmethod
    def of(cls, config: Config, default: int | None = None) -> EmitIntervals:
        """Read the settings of a Config. `default` replaces the value of settings that are not set, as in TopologyTestDriver (0)."""
        windows, joins = (
            config.value(setting) if default is None or config.origin(setting.name) != "default" else default
            for setting in (Config.emit_interval_ms_of_windows, Config.emit_interval_ms_of_outer_joins)
        )
        return cls(windows, joins, may_lose=default is not None)


UserLog: TypeAlias = "logging.LoggerAdapter[logging.Logger]"
"""A log whose lines name the task and the node."""


class TaskServices(Protocol):
    """`rt` in generated code: one object per task, which implements this protocol directly.

    `output`: rows `(topic, key, value, timestamp, headers, partition)` in the order produced, including changelog rows. The owner
    of the task empties the list with `del output[:]` and never replaces it, because generated code holds `output.append`.
    Topics are names on the log; internal topics have the application's prefix.
    """

    output: list[OutputTuple]
    task_id: str
    application_id: str
    partition: int
    current_topic: CurrentTopic
    """The topic of the current record, which is part of the size of a cache entry."""
    processor_metadata: dict[str, int]
    """The times in the metadata of committed offsets (ProcessorMetadata)."""

    metrics: TaskMetrics
    """The metrics of the user's code and of the steps that call it."""

    @property
    def poll_interval_ms(self) -> int:
        """The maximum time between two polls of the log (max.poll.interval.ms)."""

    @property
    def emit_intervals(self) -> EmitIntervals:
        """The intervals of emit on close and of outer-join results."""

    def store(self, name: str) -> Any:  # the code that uses a store is generated for its class
        """Return a store of the task, or a global one."""

    def node_name(self, node: int) -> str:
        """Return the name of a node (index into Program.nodes)."""

    def place_of_node(self, node: int) -> str:
        """Return the position of a node's step in the file, for messages."""

    def log(self, node: int) -> UserLog:
        """Return the log of the user's code at a node."""

    def stopping(self) -> bool:
        """Return whether the application is stopping. Code must not wait for long then."""

    def partitions(self, topic: str) -> int:
        """Return the number of a topic's partitions."""

    def now(self) -> int:
        """Return the task's clock in milliseconds."""

    def wall_clock(self) -> int:
        """Return the processors' clock in milliseconds; a batch job has no clock and raises StreamkitError."""

    def stream_time(self) -> int:
        """Return the highest timestamp that the task has taken from its queues, -1 before the first (StreamTask)."""

    def dropped(self, reason: str) -> None:
        """Count a record that a node dropped (dropped-records)."""

    def times_at(self, node: str) -> list[int]:
        """Return the list that collects the timestamps of records that reach a terminal node (KIP-613)."""

    def on_error(self, node: int, error: Exception, record: FailedRecord) -> None:
        """Handle the failure of a node (index into Program.nodes). If this returns, the node drops the record.

        Raises ProcessingError for all other responses.
        """

    def skips_failures(self, node: int) -> bool:
        """Return whether `on_error` drops records at which a node fails, instead of raising."""

    def on_refusal(self, node: int, error: Exception, record: FailedRecord, encoding: bool) -> None:
        """Handle a record that a sink refuses. If this returns, the sink drops the record.

        Raises RefusedError, which the node above handles. encoding: whether its key or value can't be encoded; otherwise its topic or partition is invalid.
        """

    def on_deserialization_error(self, node: int, error: Exception, record: FailedRecord) -> None:
        """Handle bytes that can't be decoded. If this returns, the record is skipped. Raises DeserializationError."""

    def schedule(
        self, node: int, interval_ms: int, kind: str, callback: Callable[[int], None], start: int | None = None
    ) -> Cancellable:
        """Call back at "stream_time" or "wall_clock" intervals, aligned with `start` (ms) if given (PunctuationSchedule)."""

    def print_line(self, text: str) -> None:
        """Print a line of the `print` step: to stdout, under `try` to stderr."""

    def log_line(self, level: int, text: str) -> None:
        """Log a line of the `log` step at a level of the module `logging`; `try` and batch jobs print it to stderr."""

    def request_commit(self) -> None:
        """Request a commit as soon as possible (ProcessorContext.commit)."""


@dataclass(slots=True)
class FailedRecord:
    """A record that failed: its position in its topic, its bytes and headers, and the key and value that the node received."""

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    raw_key: bytes | None
    raw_value: bytes | None
    headers: Headers | None
    key: Key = None
    value: Value = None


# The types of the functions that generated code passes to kernels; times are milliseconds.

Forward: TypeAlias = Callable[[Key, Value, int, RecordContext], None]
"""(key, value, timestamp, context): forwards a record to the children of a node."""

ForwardChange: TypeAlias = Callable[[Key, Value, Value, int, RecordContext, bool], None]
"""(key, new value, old value, timestamp, context, whether it is the latest): forwards a change of a table."""

Lookup: TypeAlias = Callable[[bytes], tuple[Value, int] | None]
"""(key bytes) to the value and timestamp of a table's row; None if there is no row."""

Joiner: TypeAlias = Callable[[Key, Value, Value], Value]
"""(key, left, right) to the joined value."""

DecodeKey: TypeAlias = Callable[[bytes], Key]
