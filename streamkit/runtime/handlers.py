"""What happens to records that fail: fail, continue, or the dead-letter topic (KIP-1033, KIP-1034)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from streamkit.compile.services import FailedRecord
from streamkit.errors import (
    ConfigError,
    DeserializationError,
    ProcessingError,
    RefusedError,
    RegistryError,
    SerdeTypeError,
)
from streamkit.runtime.dead_letters import SETTING, dead_letter, step_of
from streamkit.runtime.reasons import human_reason, one_line
from streamkit.serdes.shown import shown

FAIL = "fail"
CONTINUE = "continue"
DEAD_LETTER = "dead_letter"

_LONGEST = 200
_JAVA_HANDLERS = {
    "LogAndFailExceptionHandler": FAIL,
    "LogAndContinueExceptionHandler": CONTINUE,
    "LogAndFailProcessingExceptionHandler": FAIL,
    "LogAndContinueProcessingExceptionHandler": CONTINUE,
    "DefaultProductionExceptionHandler": FAIL,
}


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

    @classmethod
    def of(cls, config: Any) -> Handlers:
        """Read the handlers of a Config. Raises ConfigError for a class that is none of the built-in ones."""
        processing = handler_action(config, "processing.exception.handler")
        return cls(
            handler_action(config, "deserialization.exception.handler"),
            processing,
            handler_action(config, "production.exception.handler"),
            config.get(SETTING) or None,
            processing if config.get("processing.exception.handler.global.enabled") else FAIL,
        )

    def of_globals(self) -> Handlers:
        """Return the handlers of global stores, whose tasks write no dead letters (KIP-1270)."""
        return replace(self, processing=self.processing_global, dead_letter_topic=None)


def handler_action(config: Any, name: str) -> str:
    """Return what a handler setting means: FAIL or CONTINUE; Java's class names are understood. Raises ConfigError."""
    value = str(config.get(name) or FAIL)
    action = _JAVA_HANDLERS.get(value.rpartition(".")[2].rpartition("$")[2], value)
    if action not in (FAIL, CONTINUE):
        raise ConfigError(
            f"{name} is {value!r}; expected fail, continue or one of the built-in handlers of Kafka Streams"
        )
    return action


class ErrorPolicy:
    """Answers failures of one task's nodes: returns, writes dead letters, or raises."""

    def __init__(self, nodes: tuple[Any, ...], handlers: Handlers, send: Callable[[tuple], None]):
        self._nodes = nodes
        self._handlers = handlers
        self._send = send

    def processing(self, node: int, error: Exception, record: FailedRecord) -> None:
        """Return when the record is dropped at this node. Raises ProcessingError when the handler says fail."""
        plan_node = self._nodes[node]
        step, text = step_of(plan_node), None
        if isinstance(error, RefusedError):
            # A sink below could not take what this node gave it; that is what is shown.
            record, step, text = cast(FailedRecord, error.record), error.step, str(error)
            error = error.cause
        if isinstance(error, RegistryError):
            raise ProcessingError(describe_failure(plan_node, error, record)) from error
        own = getattr(plan_node, "on_error", None)
        action = own.action if own is not None else self._handlers.processing
        topic = own.topic if own is not None and action == DEAD_LETTER else self._handlers.dead_letter_topic
        if action == DEAD_LETTER or (own is None and topic):
            self._send(dead_letter(topic, error, record, step))
        if action == FAIL:
            raise ProcessingError(text or describe_failure(plan_node, error, record)) from error

    def refusal(self, node: int, error: Exception, record: FailedRecord, encoding: bool) -> None:
        """Return when the record is dropped at this sink (RecordCollectorImpl.send, SinkNode.process).

        Only what does not encode is the production handler's; a value of another type than the serde's is not
        (ClassCastException), nor a failing route or partition. Raises RefusedError for those and where it says fail,
        ProcessingError where the schema registry fails.
        """
        plan_node = self._nodes[node]
        text = describe_failure(plan_node, error, record)
        if isinstance(error, RegistryError):
            raise ProcessingError(text) from error
        asked = encoding and not isinstance(error, SerdeTypeError)
        if not asked or self._handlers.production == FAIL:
            raise RefusedError(text, error, record, step_of(plan_node)) from error
        if self._handlers.dead_letter_topic:
            self._send(dead_letter(self._handlers.dead_letter_topic, error, record, step_of(plan_node)))

    def unanswered(self, error: RefusedError) -> ProcessingError:
        """Return what ends the application, when no node stands above the sink; the dead letter is written first."""
        topic = self._handlers.dead_letter_topic
        if topic:
            self._send(dead_letter(topic, error.cause, cast(FailedRecord, error.record), error.step))
        return ProcessingError(str(error))

    def deserialization(self, node: int | None, error: Exception, record: FailedRecord) -> None:
        """Return when the record is skipped. Raises DeserializationError when the handler says fail."""
        # A record is good although the registry is away: no handler drops it.
        is_good = isinstance(error, RegistryError)
        if self._handlers.dead_letter_topic and not is_good:
            self._send(dead_letter(self._handlers.dead_letter_topic, error, record))
        if self._handlers.deserialization == FAIL or is_good:
            plan_node = self._nodes[node] if node is not None else None
            raise DeserializationError(describe_failure(plan_node, error, record)) from error


def describe_failure(node: Any, error: Exception, record: FailedRecord) -> str:
    """Return one line: where in the file, where in the log, why, and the record shortened."""
    parts = []
    origin = getattr(node, "origin", None)
    if origin is not None:
        parts.append(f"{origin.position.file}:{origin.position.line}: pipeline {origin.pipeline}, step {origin.step}")
    elif node is not None:
        parts.append(f"node {node.name}")
    if record.topic is not None:
        parts.append(f"topic {record.topic}, partition {record.partition}, offset {record.offset}")
    elif record.offset == -1:
        parts.append(f"timer or flush at {record.timestamp}")
    parts.append(human_reason(error))
    if record.key is None and record.value is None and record.topic is None:
        return one_line(": ".join(parts))
    if record.key is None and record.value is None:
        key, value = record.raw_key, record.raw_value
    else:
        key, value = record.key, record.value
    return one_line(": ".join(parts)) + f" (key {shorten(key)}, value {shorten(value)})"


def shorten(value: Any, longest: int = _LONGEST) -> str:
    """Return a value as one short line; bytes that are text are shown as text, absent values as null."""
    if value is None:
        return "null"
    if isinstance(value, bytes):
        # No decoding of megabytes for a line of a message.
        head = value[: longest + 4]
        try:
            text = head.decode() if len(head) == len(value) else head.decode(errors="ignore")
        except UnicodeDecodeError:
            text = repr(head)
    else:
        # Blanks come together below, hence more than is shown.
        text = shown(value, 4 * longest)
    text = one_line(text)
    return text if len(text) <= longest else text[: longest - 1] + "…"


__all__ = [
    "CONTINUE",
    "DEAD_LETTER",
    "FAIL",
    "ErrorPolicy",
    "Handlers",
    "describe_failure",
    "handler_action",
    "human_reason",
    "one_line",
    "shorten",
]
