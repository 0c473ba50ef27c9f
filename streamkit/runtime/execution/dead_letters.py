"""Writes and reads dead letters: the source's bytes, with the failure in headers (KIP-1034, ExceptionHandlerUtils)."""

from __future__ import annotations

import traceback
from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias, cast

from streamkit.operators.core.task_services import FailedRecord
from streamkit.plan.model import Plan, PlanNode
from streamkit.record import Headers, OutputTuple, TopicPartition
from streamkit.runtime.execution.reasons import class_name

PREFIX = "__streams.errors."
OWN_PREFIX = "__streamkit.errors."
"""The prefix of headers that Java does not have."""
STEP = f"{OWN_PREFIX}step"
"""The pipeline and the step that failed (`pipeline.step`)."""
TIME = f"{OWN_PREFIX}time"
"""When the record failed: ms since the epoch. The timestamp of a dead letter is that of its record."""
RecordFields: TypeAlias = tuple[bytes | None, bytes | None, int, Headers | None]
"""Key, value, timestamp and headers of a record."""

SETTING = "errors.dead.letter.queue.topic.name"


@dataclass(frozen=True)
class DeadLetter:
    """A dead letter on the log; `topic`, `partition`, `offset`: where its record was read."""

    place: TopicPartition
    place_offset: int
    error: str
    """The name of the exception's class, without module or package."""
    message: str
    step: str
    topic: str | None
    partition: int
    offset: int
    timestamp: int
    """That of the record."""
    failed_at: int
    """When the record failed, ms since the epoch; `timestamp` for letters of Java and of older versions, which do not have it."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    """The headers of the source record."""


def dead_letter(topic: str, error: BaseException, record: FailedRecord, now: int, step: str = "") -> OutputTuple:
    """Return the row for a dead-letter topic: the source's bytes, time and headers, then KIP-1034's headers.

    `now`: when it failed, in ms; 0 where no clock runs, as in batch jobs.
    """
    text = str(error)
    values = {
        "exception": class_name(error),
        "message": text or None,
        "stacktrace": "".join(traceback.format_exception(error)),
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
    }
    headers: Headers = source_headers(record.headers or [])
    headers += [(f"{PREFIX}{key}", None if value is None else value.encode()) for key, value in values.items()]
    if step:
        headers.append((STEP, step.encode()))
    if now > 0:
        headers.append((TIME, str(now).encode()))
    return (topic, record.raw_key, record.raw_value, record.timestamp, headers, None)


def read_dead_letter(place: TopicPartition, offset: int, columns: RecordFields) -> DeadLetter:
    """Return the content of a record (key, value, timestamp, headers) of a dead-letter topic; absent headers are empty.

    >>> read_dead_letter(TopicPartition("dead", 0), 3, (b"k", b"v", 5, [("__streams.errors.exception", b"KeyError")])).error
    'KeyError'
    """
    key, value, timestamp, headers = columns
    fields = {name: (data or b"").decode(errors="replace") for name, data in headers or ()}
    partition, source_offset = (_number(fields.get(f"{PREFIX}{name}"), -1) for name in ("partition", "offset"))
    failed_at = _number(fields.get(TIME), timestamp)
    return DeadLetter(
        place,
        offset,
        fields.get(f"{PREFIX}exception", "").partition(":")[0].rpartition(".")[2],
        fields.get(f"{PREFIX}message", ""),
        fields.get(STEP, ""),
        fields.get(f"{PREFIX}topic") or None,
        partition,
        source_offset,
        timestamp,
        failed_at,
        key,
        value,
        source_headers(headers or []),
    )


def is_dead_letter(headers: Headers | None) -> bool:
    """Return whether a record is a dead letter, by its headers."""
    return any(name == f"{PREFIX}exception" for name, _ in headers or ())


def source_headers(headers: Headers) -> Headers:
    """Return headers without those that a dead letter adds, so that a record that fails again has them once."""
    return [(name, value) for name, value in headers if not name.startswith((PREFIX, OWN_PREFIX))]


def dead_letter_topics(plan: Plan) -> list[str]:
    """Return the topics on the log that the topology writes dead letters to: those of the application and of steps."""
    nodes = (node for sub in plan.sub_topologies for node in sub.nodes.values())
    handlers = (getattr(node, "on_error", None) for node in nodes)
    found = [plan.config.get(SETTING), *(handler.topic for handler in handlers if handler is not None)]
    return list(dict.fromkeys(filter(None, found)))


def dead_letters_of_rows(
    topic: str, error: BaseException, rows: Collection[OutputTuple], now: int
) -> list[OutputTuple]:
    """Return the dead letters of rows that the log rejected: their own bytes, and the topic that they were for.

    Their source records are not known any more; Java sends none of their bytes.
    """
    return [
        dead_letter(
            topic,
            error,
            # Only changelogs have rows without a timestamp.
            FailedRecord(target, -1 if number is None else number, -1, cast(int, time), key, value, headers),
            now,
        )
        for target, key, value, time, headers, number in rows
    ]


def step_of(node: PlanNode) -> str:
    """Return `pipeline.step` of a node that comes from a step of the file, else its name."""
    origin = getattr(node, "origin", None)
    if origin is not None:
        return f"{origin.pipeline}.{origin.step}"
    name: str = getattr(node, "name", "")
    return name


def _number(text: str | None, default: int) -> int:
    return int(text) if text and text.lstrip("-").isdecimal() else default
