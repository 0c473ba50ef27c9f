"""What generated code asks of the task that runs it, and what it offers in return: the seam between compile and runtime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from streamkit.record import Headers
from streamkit.state.base import CurrentTopic


class Cancellable(Protocol):
    """A scheduled punctuator (Cancellable)."""

    def cancel(self) -> None:
        """Fire no more."""


class EmitIntervals(Protocol):
    """Milliseconds of the task's clock between two looks."""

    @property
    def windows(self) -> int:
        """At windows to emit on close."""

    @property
    def joins(self) -> int:
        """At rows of outer joins without a partner."""


class TaskServices(Protocol):
    """`rt` in generated code: one object a task, which implements this directly.

    `output`: rows `(topic, key, value, timestamp, headers, partition)` in the order produced, changelog rows included; the owner
    of the task empties it (`del output[:]`, never replaces it: generated code holds `output.append`).
    Topics are names on the log, with the application's prefix where internal.
    """

    output: list[tuple]
    task_id: str
    application_id: str
    partition: int
    current_topic: CurrentTopic
    """What entries of caches are charged for the topic of the current record."""
    processor_metadata: dict[str, int]
    """Times kept in the metadata of committed offsets (ProcessorMetadata)."""

    @property
    def emit_intervals(self) -> EmitIntervals:
        """Throttles of emit on close and of outer-join results."""

    def store(self, name: str) -> Any:
        """Return a store of the task, or a global one."""

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has."""

    def now(self) -> int:
        """Return the task's clock in milliseconds."""

    def wall_clock(self) -> int:
        """Return the clock in milliseconds as processors see it; a batch job has none and raises StreamkitError."""

    def stream_time(self) -> int:
        """Return the highest timestamp that the task has taken from its queues, -1 before the first (clock a)."""

    def dropped(self, count: int = 1) -> None:
        """Count records that a node dropped (dropped-records)."""

    def on_error(self, node: int, error: Exception, record: FailedRecord) -> None:
        """Handle the failure of a node (index into Program.nodes): return to drop the record there, or raise ProcessingError."""

    def on_refusal(self, node: int, error: Exception, record: FailedRecord, encoding: bool) -> None:
        """Handle a record that a sink can't take: return to drop it there, or raise RefusedError for the node above.

        encoding: whether its key or value does not encode; else its topic or partition is what fails.
        """

    def on_deserialization_error(self, node: int, error: Exception, record: FailedRecord) -> None:
        """Handle bytes that do not decode: return to skip the record, or raise DeserializationError."""

    def schedule(
        self, node: int, interval_ms: int, kind: str, callback: Callable[[int], None], start: int | None = None
    ) -> Cancellable:
        """Call back at "stream_time" or "wall_clock" intervals, aligned with `start` (ms) if given (PunctuationSchedule)."""

    def print_line(self, text: str) -> None:
        """Show a line of the `print` step: stdout, and stderr under `try`."""

    def request_commit(self) -> None:
        """Ask for a commit as soon as possible (ProcessorContext.commit)."""


@dataclass(slots=True)
class FailedRecord:
    """The record on which something failed: where it was read, its bytes and headers, and what the node was given."""

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    raw_key: bytes | None
    raw_value: bytes | None
    headers: Headers | None
    key: Any = None
    value: Any = None


Run = Callable[[list, list, list, list, list, int], None]
"""(keys, values, timestamps, headers, offsets, partition): process these records of one partition, in order."""


@dataclass(slots=True)
class BoundProgram:
    """A sub-topology's code with a task's services built in."""

    sources: dict[str, Run]
    """By topic on the log."""
    patterns: dict[str, Callable[[str], Run]]
    """By the regex of a pattern source: gives the run of a topic that matches it."""
    extractors: dict[str, Callable[[list, list, list, list, list, int], list]]
    """By topic whose entry has a timestamp expression: columns and partition in, timestamps out; an item may be an Exception."""
    timestamp_policies: dict[str, str] = field(default_factory=dict)
    """By topic: fail_on_invalid, log_and_skip, use_partition_time, wallclock (applied by the task's queues)."""
    init: Callable[[], None] = lambda: None
    """Makes processors and calls their init; after stores are restored."""
    close: Callable[[], None] = lambda: None
    """Calls processors' close."""
    position: Callable[[], tuple | None] = lambda: None
    """(topic, partition, offset) of the current record, for messages about failures outside a node."""
    leave: Callable[[], None] = lambda: None
    """Forgets the current record: what fails afterwards, in a timer or a flush, is not that record's failure."""
