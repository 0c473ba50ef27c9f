"""Exception handlers: a failed record ends the task, is dropped, or goes to the dead-letter topic (KIP-1033, KIP-1034)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, cast

from streamkit.config import Config
from streamkit.errors import (
    DeserializationError,
    ProcessingError,
    RefusedError,
    RegistryError,
    SerdeTypeError,
    TakenTracebacks,
    TimestampError,
)
from streamkit.graph.physical_topology import OnError
from streamkit.operators.core.task_services import FailedRecord
from streamkit.plan.model import PlanNode
from streamkit.record import OutputTuple, Value
from streamkit.runtime.execution.dead_letters import (
    HiddenError,
    dead_letter,
    human_reason,
    one_line,
    place_of,
    step_of,
)
from streamkit.serdes.plain import shown

FAIL = "fail"
CONTINUE = "continue"
DEAD_LETTER = "dead_letter"
FULL = "full"
KEYS = "keys"
NOTHING = "none"

_LONGEST = 200


@dataclass(frozen=True)
class Handlers:
    """The application's handlers; each is FAIL or CONTINUE."""

    deserialization: str = FAIL
    processing: str = FAIL
    production: str = FAIL
    dead_letter_topic: str | None = None
    """errors.dead.letter.queue.topic.name (KIP-1034)."""
    processing_global: str = FAIL
    """For the processors of global stores (KIP-1270)."""
    contents: str = FULL
    """How much of a failed record its description shows: FULL, KEYS or NOTHING (log.record.contents)."""

    @classmethod
    def of(cls, config: Config) -> Handlers:
        """Read the handlers of a Config."""
        processing = config.processing_exception_handler
        return cls(
            config.deserialization_exception_handler,
            processing,
            config.production_exception_handler,
            config.errors_dead_letter_queue_topic_name or None,
            processing if config.processing_exception_handler_global_enabled else FAIL,
            config.log_record_contents,
        )

    def shown(self, error: Exception) -> Exception:
        """Return the error to show in messages, dead letters and tracebacks in place of a record's error."""
        return error if self.contents == FULL else HiddenError(error)

    def of_globals(self) -> Handlers:
        """Return the handlers of global stores, whose tasks write no dead letters (KIP-1270)."""
        return replace(self, processing=self.processing_global, dead_letter_topic=None)


class Drop(NamedTuple):
    """A record that a handler dropped: reason, the function that returns the message, and the number of dead letters."""

    reason: str
    message: Callable[[], str]
    dead_letters: int


class ErrorPolicy:
    """Handles failures of one task's nodes: returns a Drop, writes dead letters, or raises."""

    def __init__(
        self,
        nodes: tuple[PlanNode, ...],
        handlers: Handlers,
        send: Callable[[OutputTuple], None],
        clock: Callable[[], int],
    ):
        self._nodes = nodes
        self._handlers = handlers
        self._send = send
        self._clock = clock

    def processing(self, node: int, error: Exception, record: FailedRecord) -> Drop:
        """Return if the record is dropped at this node. Raises ProcessingError if the handler is FAIL."""
        plan_node = self._nodes[node]
        step, text = step_of(plan_node), None
        if isinstance(error, RefusedError):
            # A sink below rejected the record that this node forwarded, so the error shows that record.
            record, step, text = cast(FailedRecord, error.record), error.step, str(error)
            error = error.cause
        shown = self._handlers.shown(error)
        if isinstance(error, RegistryError):
            raise ProcessingError(self._described(plan_node, shown, record)) from shown
        own, action = self._own(node), self._action(node)
        topic = own.topic if own is not None and action == DEAD_LETTER else self._handlers.dead_letter_topic
        letters = int(bool(topic) and (own is None or action == DEAD_LETTER))
        if topic and letters:
            self._send(dead_letter(topic, shown, record, self._clock(), step))
        if action == FAIL:
            raise ProcessingError(text or self._described(plan_node, shown, record)) from shown
        message = self._message(plan_node, shown, record, text)
        return Drop(f"{step or plan_node.name} failed: {type(error).__name__}", message, letters)

    def skips_failures(self, node: int) -> bool:
        """Return whether a failure at this node drops the record, by the step's `on_error` or the application's handler."""
        return self._action(node) != FAIL

    def _own(self, node: int) -> OnError | None:
        return self._nodes[node].on_error

    def _action(self, node: int) -> str:
        own = self._own(node)
        return own.action if own is not None else self._handlers.processing

    def refusal(self, node: int, error: Exception, record: FailedRecord, encoding: bool) -> Drop:
        """Return if the record is dropped at this sink (RecordCollectorImpl.send, SinkNode.process).

        The production handler decides about records that can't be encoded, but not about values of a type other than the
        serde's (ClassCastException), or a failing route or partition. Raises RefusedError for these and if the handler is
        FAIL, ProcessingError if the schema registry fails.
        """
        plan_node = self._nodes[node]
        shown = self._handlers.shown(error)
        text = self._described(plan_node, shown, record)
        if isinstance(error, RegistryError):
            raise ProcessingError(text) from shown
        handled = encoding and not isinstance(error, SerdeTypeError)
        if not handled or self._handlers.production == FAIL:
            raise RefusedError(text, error, record, step_of(plan_node)) from shown
        topic, step = self._handlers.dead_letter_topic, step_of(plan_node)
        if topic:
            self._send(dead_letter(topic, shown, record, self._clock(), step))
        return Drop(f"{step} does not encode", self._message(plan_node, shown, record, text), int(bool(topic)))

    def without_handler(self, error: RefusedError) -> ProcessingError:
        """Return the error that ends the application if no node is above the sink, after the dead letter is written."""
        topic = self._handlers.dead_letter_topic
        if topic:
            cause = self._handlers.shown(error.cause)
            self._send(dead_letter(topic, cause, cast(FailedRecord, error.record), self._clock(), error.step))
        return ProcessingError(str(error))

    def skips_undecodable(self, error: Exception) -> bool:
        """Return whether the deserialization handler skips a record that fails with this error."""
        # Without the registry the record can't be judged, so no handler drops it.
        return self._handlers.deserialization != FAIL and not isinstance(error, RegistryError)

    def deserialization(self, node: int | None, error: Exception, record: FailedRecord) -> Drop:
        """Return if the record, which does not decode or has no timestamp, is skipped.

        Raises DeserializationError if the handler is FAIL.
        """
        topic, shown = self._handlers.dead_letter_topic, self._handlers.shown(error)
        if topic and not isinstance(error, RegistryError):
            self._send(dead_letter(topic, shown, record, self._clock()))
        plan_node = self._nodes[node] if node is not None else None
        if not self.skips_undecodable(error):
            raise DeserializationError(self._described(plan_node, shown, record)) from shown
        message = self._message(plan_node, shown, record)
        what = "has no timestamp" if isinstance(error, TimestampError) else "does not decode"
        return Drop(f"topic {record.topic} {what}", message, int(bool(topic)))

    def _described(self, node: PlanNode | None, error: Exception, record: FailedRecord) -> str:
        return describe_failure(node, error, record, self._handlers.contents)

    def _message(
        self, node: PlanNode | None, error: Exception, record: FailedRecord, text: str | None = None
    ) -> Callable[[], str]:
        """Return the function that returns `text` or describes the failure; remove the error's traceback, which would grow."""
        tracebacks = TakenTracebacks(error)
        if text is not None:
            return partial(str, text)

        def message() -> str:
            tracebacks.restore()
            try:
                return self._described(node, error, record)
            finally:
                TakenTracebacks(error)

        return message


def describe_failure(node: PlanNode | None, error: Exception, record: FailedRecord, contents: str = FULL) -> str:
    """Return one line: the position in the file and on the log, the reason, and the shortened `contents` of the record."""
    parts = []
    origin = getattr(node, "origin", None)
    if origin is not None:
        parts.append(origin.place)
    elif node is not None:
        parts.append(f"node {node.name}")
    if record.topic is not None:
        parts.append(place_of(record.topic, record.partition, record.offset))
    elif record.offset == -1:
        parts.append(f"timer or flush at {record.timestamp}")
    parts.append(human_reason(error))
    if contents == NOTHING or (record.key is None and record.value is None and record.topic is None):
        return one_line(": ".join(parts))
    if record.key is not None or record.value is not None:
        key, value = record.key, record.value
    else:
        key, value = record.raw_key, record.raw_value
    shown_value = f", value {shorten(value)}" if contents == FULL else ""
    # A key that no step reads is still bytes; text has the same form decoded and not.
    shown_key = shorten(key.encode("utf-8", "replace") if isinstance(key, str) else key)
    return one_line(": ".join(parts)) + f" (key {shown_key}{shown_value})"


def shorten(value: Value, longest: int = _LONGEST) -> str:
    """Return a value as one short line; bytes that are text are shown as text, absent values as null."""
    if value is None:
        return "null"
    if isinstance(value, bytes):
        # Decode only as much as fits one line.
        head = value[: longest + 4]
        try:
            text = head.decode() if len(head) == len(value) else head.decode(errors="ignore")
        except UnicodeDecodeError:
            text = repr(head)
    else:
        # `one_line` collapses white space, so it needs more text than it shows.
        text = shown(value, 4 * longest)
    text = one_line(text)
    return text if len(text) <= longest else text[: longest - 1] + "…"
