"""The one exception tree: every error that streamkit raises on purpose is a StreamkitError."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a file; line and column count from 1, in characters.

    within: for a place in a macro or in its argument, the other place that a message names.
    """

    file: str
    line: int
    column: int
    within: Within | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    @property
    def note(self) -> str:
        """The end of a message about this place: the uses of macros that lead to it; empty outside of macros.

        >>> Position("f", 3, 1, Within("in the macro 'm', used in", Position("f", 9, 5))).note
        " (in the macro 'm', used in f:9:5)"
        """
        parts, within = [], self.within
        while within is not None:
            parts.append(f"{within.words} {within.place}")
            within = within.place.within
        return f" ({', '.join(parts)})" if parts else ""

    @property
    def order(self) -> tuple[tuple[int, int], ...]:
        """Line and column of the outermost use, and of the places inside it: sorts places of one pipeline by the order of its steps."""
        outer = self.within.place.order if self.within is not None else ()
        return (*outer, (self.line, self.column))


class Within(NamedTuple):
    """How a place belongs to another one: the words before that place in a message."""

    words: str
    place: Position


@dataclass(frozen=True, slots=True)
class Problem:
    """One user's mistake in a file; `message` has what was expected, what was found, and the nearest valid name.

    In a macro, the message ends with the note of its position.
    """

    position: Position
    message: str

    def __post_init__(self) -> None:
        note = self.position.note
        if note and note not in self.message:
            object.__setattr__(self, "message", self.message + note)

    def __str__(self) -> str:
        return f"{self.position}: {self.message}"


class TakenTracebacks:
    """The tracebacks of an exception and of its causes, which have been removed from them.

    A function may raise one exception object again and again. Each time, Python adds the new frames to the traceback that the
    object still has, so that the traceback grows, and keeps the variables of all frames.
    """

    __slots__ = ("_taken",)

    def __init__(self, error: BaseException):
        self._taken: list[tuple[BaseException, TracebackType | None]] = []
        chain: list[BaseException | None] = [error]
        while chain:
            link = chain.pop()
            if link is not None and all(link is not other for other, _ in self._taken):
                self._taken.append((link, link.__traceback__))
                link.__traceback__ = None
                chain += (link.__cause__, link.__context__)

    def restore(self) -> None:
        """Put the tracebacks back, replacing any that the exceptions have collected since."""
        for error, trace in self._taken:
            error.__traceback__ = trace


class StreamkitError(Exception):
    """The root: its text is one clear line for the user."""

    exit_code = 1


class UsageError(StreamkitError):
    """A command was called with wrong arguments."""

    exit_code = 2


class SeveralErrors(StreamkitError):
    """Errors that are reported together, each in its own line."""

    def __init__(self, errors: Sequence[StreamkitError]):
        super().__init__("\n".join(map(str, errors)))
        self.errors = tuple(errors)
        self.exit_code = max(error.exit_code for error in errors)


class ErrorCollector:
    """Collects the errors of independent parts, so that all of them are reported at once."""

    def __init__(self) -> None:
        self._errors: dict[str, StreamkitError] = {}

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Keep an error of the block, and go on after the block."""
        try:
            yield
        except StreamkitError as error:
            for single in error.errors if isinstance(error, SeveralErrors) else (error,):
                self._errors.setdefault(str(single), single)

    def raise_errors(self) -> None:
        """Raise the error, or SeveralErrors."""
        errors = list(self._errors.values())
        if errors:
            raise errors[0] if len(errors) == 1 else SeveralErrors(errors)


class TopologyError(StreamkitError):
    """All problems of a topology file."""

    def __init__(self, problems: list[Problem]):
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class InvalidTopologyError(StreamkitError):
    """A topology that does not fit the topics on the log, for example because of their partition counts (TopologyException)."""


class ConfigError(StreamkitError):
    """A setting that is unknown or has an impossible value."""


class SerdeError(StreamkitError):
    """Bytes that do not decode, or a value that does not encode (SerializationException)."""


class SerdeTypeError(SerdeError):
    """A value whose type a serde does not accept (ClassCastException)."""


class TimestampError(StreamkitError):
    """A record for which the `timestamp` expression of its topic gives no timestamp."""


class RefusedError(StreamkitError):
    """A record that a sink could not write; the node above the sink handles the failure, if there is one.

    cause: the sink's error; record: the sink's record, a operators.core.task_services.FailedRecord; step: the sink's, `pipeline.step`.
    """

    def __init__(self, message: str, cause: Exception, record: object, step: str):
        super().__init__(message)
        self.cause = cause
        self.record = record
        self.step = step


class RegistryError(StreamkitError):
    """The schema registry does not answer, refuses a request, or does not have the schema (`is_missing`).

    No handler drops records for this error: they can be read or written once the registry answers.
    """

    def __init__(self, message: str, is_missing: bool = False):
        super().__init__(message)
        self.is_missing = is_missing


class RetriableError(StreamkitError):
    """A failure of the user's function that may be temporary: `enrich` calls the function again (RetriableException)."""


class StoppedError(StreamkitError):
    """The application is stopping before all calls have returned; their records are not committed."""


class LimitError(StreamkitError):
    """An expression went beyond the bounds of the language."""


class TimeLimitError(LimitError):
    """An expression took longer than its limit; the time depends on the machine and its load."""


class StateError(StreamkitError):
    """A state directory or a store that cannot be used."""


class IncompatibleStateError(StateError):
    """Changelogs hold rows that this version of a topology would misread."""


class StateLockedError(StateError):
    """Another process owns the state directory."""


class TaskCorruptedError(StateError):
    """The state of tasks can't be trusted and must be restored from their changelogs (TaskCorruptedException).

    `on_disk`: the files can't be trusted either; otherwise they are as of the last commit. `path`: the directory of the
    damaged store, None if it is not known.
    """

    def __init__(self, message: str, *, on_disk: bool = True, path: Path | None = None):
        super().__init__(message)
        self.on_disk = on_disk
        self.path = path


class QueryError(StreamkitError):
    """A query that a store does not offer, or with invalid arguments."""


class UnknownNameError(QueryError):
    """A query uses a name that is not in the topology."""


class UnknownStoreError(UnknownNameError):
    """The topology has no store of that name (UnknownStateStoreException)."""


class InstanceError(StreamkitError):
    """A request to an instance of an application fails. `status`: the HTTP status of the answer, None without an answer."""

    def __init__(self, message: str, status: int | None = None):
        super().__init__(message)
        self.status = status


class StoreUnavailableError(StreamkitError):
    """A store can't be read now: none of its tasks runs here, or the task is being restored (InvalidStateStoreException)."""


class InstanceGoneError(StoreUnavailableError):
    """No answer comes from the address of an instance."""


class UntranslatableError(StreamkitError):
    """Steps that a query of SQL does not give exactly; the text is the reason."""


class InexactError(StreamkitError):
    """A row for which a query of SQL may not give what the steps give; the text is the reason."""


class TransportError(StreamkitError):
    """The log could not be read or written."""


class DamagedLogError(TransportError):
    """Records or tables of the log differ from what was written (CorruptRecordException)."""


class UnreachableError(TransportError):
    """No broker answers at the address."""


class TopicError(TransportError):
    """A topic is missing, or differs from its declaration in the topology."""


class OffsetOutOfRangeError(TopicError):
    """The log has no record at this offset: it begins later or ends earlier (OffsetOutOfRangeException)."""

    def __init__(self, message: str, topic: str, partition: int):
        super().__init__(message)
        self.topic = topic
        self.partition = partition


class FencedError(TransportError):
    """Another member has taken over: this producer or member is a zombie."""


class ActiveGroupError(TransportError):
    """The application's group has members; offsets can be changed only while it has none."""


class ForeignMembersError(TransportError):
    """The application's group has members that are not streamkit: Kafka Streams, or another program (InconsistentGroupProtocol)."""


class NotPermittedError(TransportError):
    """The brokers do not allow a request, or do not know it (AuthorizationException, UnsupportedVersionException)."""


class RetriableTransportError(TransportError):
    """A temporary fault; the same call may succeed later."""


class ProducerLostError(RetriableTransportError):
    """A producer can't be used any more. A new one with the same transactional id ends its transaction, and can be used."""


class UnknownTopicError(TopicError, RetriableTransportError):
    """Brokers have no metadata for a topic or partition at the moment, for example just after a restart (UnknownTopicOrPartitionException)."""


class DeserializationError(StreamkitError):
    """A source record does not decode and the handler is `fail`."""


class ProcessingError(StreamkitError):
    """A step failed on a record and the handler is `fail`; names pipeline, step, line, topic, partition, offset."""


class ProcessorStartError(ProcessingError):
    """A processor, or an object that a step calls, can't be created, or its `init` failed. No handler applies."""


class EventLoopError(ProcessingError):
    """The event loop of a stream thread has ended or is blocked. No handler applies."""


class MigrationError(StreamkitError):
    """A step of a migration is not possible, such as rows that do not convert or a target that has records already."""


class ProductionError(StreamkitError):
    """Output records could not be written and the handler is `fail`."""

    def __init__(self, message: str, rows: Sequence[tuple[Any, ...]] | None = None):
        super().__init__(message)
        self.rows = rows or []
        """The rows (record.OutputRow) that are known to have been refused by the log; all others are written."""

    retriable = False
    """Whether the records themselves are valid: writing them again may succeed."""
    droppable = True
    """Whether production.exception.handler decides about the records; if they are not to blame, the application ends."""
    is_missing = False
    """Whether the topic of the records does not exist."""
    lost_producer = False
    """Whether the producer has failed permanently: it would refuse all later records as well."""
