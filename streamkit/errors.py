"""The one exception tree: every error that streamkit raises on purpose is a StreamkitError."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a file; line and column count from 1, in characters."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake of a user in a file: what was expected, what came, and the nearest valid name in `message`."""

    position: Position
    message: str

    def __str__(self) -> str:
        return f"{self.position}: {self.message}"


class StreamkitError(Exception):
    """The root: its text is one clear line for a person."""

    exit_code = 1


class UsageError(StreamkitError):
    """A command was called in a way that it does not offer."""

    exit_code = 2


class TopologyError(StreamkitError):
    """Everything that is wrong with a topology file, all at once."""

    def __init__(self, problems: list[Problem]):
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class InvalidTopologyError(StreamkitError):
    """What only shows against real topics: partition counts that do not fit (TopologyException)."""


class ConfigError(StreamkitError):
    """A setting that is unknown or has an impossible value."""


class SerdeError(StreamkitError):
    """Bytes that do not decode, or a value that does not encode (SerializationException)."""


class SerdeTypeError(SerdeError):
    """A value of a type that a serde does not take at all (ClassCastException)."""


class RefusedError(StreamkitError):
    """A record that a sink could not take, for which the node above answers, if there is one.

    cause: the sink's error; record: what the sink had, a compile.services.FailedRecord; step: the sink's, `pipeline.step`.
    """

    def __init__(self, message: str, cause: Exception, record: object, step: str):
        super().__init__(message)
        self.cause = cause
        self.record = record
        self.step = step


class RegistryError(StreamkitError):
    """The schema registry does not answer, refuses, or does not have what is asked for (`is_missing`).

    No handler drops records for it: they are good once the registry is.
    """

    def __init__(self, message: str, is_missing: bool = False):
        super().__init__(message)
        self.is_missing = is_missing


class LimitError(StreamkitError):
    """An expression went beyond the bounds of the language."""


class TimeLimitError(LimitError):
    """An expression took longer than it may: how long depends on the machine and what else runs on it."""


class StateError(StreamkitError):
    """A state directory or a store that cannot be used."""


class IncompatibleStateError(StateError):
    """Changelogs hold rows that this version of a topology would misread."""


class StateLockedError(StateError):
    """Another process owns the state directory."""


class TaskCorruptedError(StateError):
    """The state of tasks can't be trusted and must be restored from their changelogs (TaskCorruptedException).

    `on_disk`: what is on disk can't be trusted either; otherwise it is as of the last commit. `path`: the store's
    directory that can't, None where that is not known.
    """

    def __init__(self, message: str, *, on_disk: bool = True, path: Path | None = None):
        super().__init__(message)
        self.on_disk = on_disk
        self.path = path


class QueryError(StreamkitError):
    """A query that a store does not offer, or whose arguments make no sense."""


class UnknownStoreError(QueryError):
    """The topology has no store of that name (UnknownStateStoreException)."""


class StoreUnavailableError(StreamkitError):
    """A store can't be read now: nothing runs, or its task is elsewhere or being restored (InvalidStateStoreException)."""


class TransportError(StreamkitError):
    """The log could not be read or written."""


class UnreachableError(TransportError):
    """No broker answers at the address."""


class TopicError(TransportError):
    """A topic is missing, or is not what the topology declares."""


class OffsetOutOfRangeError(TopicError):
    """The log has no record at this offset: it begins later or ends earlier (OffsetOutOfRangeException)."""

    def __init__(self, message: str, topic: str, partition: int):
        super().__init__(message)
        self.topic = topic
        self.partition = partition


class FencedError(TransportError):
    """Another member has taken over: this producer or member is a zombie."""


class ActiveGroupError(TransportError):
    """The application's group has members, so that its offsets can't be changed under them."""


class ForeignMembersError(TransportError):
    """The application's group has members of another kind: they run Java, or another program (InconsistentGroupProtocol)."""


class RetriableTransportError(TransportError):
    """A passing fault; the same call may succeed later."""


class UnknownTopicError(TopicError, RetriableTransportError):
    """Brokers do not know a topic or a partition now, as just after their restart (UnknownTopicOrPartitionException)."""


class DeserializationError(StreamkitError):
    """A source record does not decode and the handler says fail."""


class ProcessingError(StreamkitError):
    """A step failed on a record and the handler says fail; names pipeline, step, line, topic, partition, offset."""


class ProductionError(StreamkitError):
    """Output records could not be written and the handler says fail."""

    def __init__(self, message: str, rows: list[tuple] | None = None):
        super().__init__(message)
        self.rows = rows or []
        """The rows (record.OutputRow) that the log refused, as far as they are known; the others are written."""

    retriable = False
    """Whether the records themselves are well: writing them again may succeed."""
