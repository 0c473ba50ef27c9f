"""Dead letters: the source's bytes with headers that say what failed (KIP-1034, ExceptionHandlerUtils), and reading them."""

from __future__ import annotations

import traceback
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from streamkit.compile.services import FailedRecord
from streamkit.plan.model import Plan
from streamkit.record import Headers, TopicPartition

PREFIX = "__streams.errors."
STEP = "__streamkit.errors.step"
"""The pipeline and the step that failed (`pipeline.step`): what Java's headers do not tell."""
SETTING = "errors.dead.letter.queue.topic.name"


@dataclass(frozen=True)
class DeadLetter:
    """A dead letter as it lies on the log; `topic`, `partition`, `offset` say where its record was read."""

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
    key: bytes | None
    value: bytes | None
    headers: Headers
    """Those that the source had."""


def dead_letter(topic: str | None, error: BaseException, record: FailedRecord, step: str = "") -> tuple:
    """Return the row for a dead-letter topic: the source's bytes, time and headers, then KIP-1034's headers."""
    name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    text = str(error)
    facts = {
        "exception": name,
        "message": text or None,
        "stacktrace": "".join(traceback.format_exception(error)),
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
    }
    headers: Headers = source_headers(record.headers or [])
    headers += [(f"{PREFIX}{key}", None if value is None else value.encode()) for key, value in facts.items()]
    if step:
        headers.append((STEP, step.encode()))
    return (topic, record.raw_key, record.raw_value, record.timestamp, headers, None)


def read_dead_letter(place: TopicPartition, offset: int, columns: tuple) -> DeadLetter:
    """Return what a record (key, value, timestamp, headers) of a dead-letter topic tells; absent headers are empty.

    >>> read_dead_letter(TopicPartition("dead", 0), 3, (b"k", b"v", 5, [("__streams.errors.exception", b"KeyError")])).error
    'KeyError'
    """
    key, value, timestamp, headers = columns
    told = {name: (data or b"").decode(errors="replace") for name, data in headers or ()}
    partition, source_offset = (_number(told.get(f"{PREFIX}{name}")) for name in ("partition", "offset"))
    return DeadLetter(
        place,
        offset,
        told.get(f"{PREFIX}exception", "").partition(":")[0].rpartition(".")[2],
        told.get(f"{PREFIX}message", ""),
        told.get(STEP, ""),
        told.get(f"{PREFIX}topic") or None,
        partition,
        source_offset,
        timestamp,
        key,
        value,
        source_headers(headers or []),
    )


def source_headers(headers: Headers) -> Headers:
    """Return headers without those that a dead letter adds, so that a record that fails again has them once."""
    return [(name, value) for name, value in headers if name != STEP and not name.startswith(PREFIX)]


def dead_letter_topics(plan: Plan) -> list[str]:
    """Return the topics on the log that the topology writes dead letters to: that of the application, those of steps."""
    nodes = (node for sub in plan.sub_topologies for node in sub.nodes.values())
    answers = (getattr(node, "on_error", None) for node in nodes)
    found = [plan.config.get(SETTING), *(answer.topic for answer in answers if answer is not None)]
    return list(dict.fromkeys(filter(None, found)))


def refused_letters(topic: str, error: BaseException, rows: Collection[tuple]) -> list[tuple]:
    """Return the dead letters of rows that the log refused: their own bytes, and the topic that they were for.

    Which source record they came from is not known by then; Java sends none of their bytes.
    """
    return [
        dead_letter(topic, error, FailedRecord(target, -1 if number is None else number, -1, time, key, value, headers))
        for target, key, value, time, headers, number in rows
    ]


def step_of(node: Any) -> str:
    """Return `pipeline.step` of a node that stands for a step of the file, else its name."""
    origin = getattr(node, "origin", None)
    return f"{origin.pipeline}.{origin.step}" if origin is not None else getattr(node, "name", "")


def _number(text: str | None) -> int:
    return int(text) if text and text.lstrip("-").isdecimal() else -1
