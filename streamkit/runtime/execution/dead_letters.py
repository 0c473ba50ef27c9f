"""Dead letters: the source's bytes with the failure in headers (KIP-1034), and the reasons of failures as text."""

from __future__ import annotations

import ast
import linecache
import os
import re
import struct
import sysconfig
import traceback
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import CodeType
from typing import NamedTuple, TypeAlias, cast

from streamkit.errors import StreamkitError
from streamkit.operators.core.task_services import FailedRecord
from streamkit.plan.model import Plan, PlanNode
from streamkit.record import Headers, OutputTuple, TopicPartition

PREFIX = "__streams.errors."
OWN_PREFIX = "__streamkit.errors."
"""The prefix of headers that Java does not have."""
STEP = f"{OWN_PREFIX}step"
"""The pipeline and the step that failed (`pipeline.step`)."""
TIME = f"{OWN_PREFIX}time"
"""When the record failed: ms since the epoch. The timestamp of a dead letter is that of its record."""
RecordFields: TypeAlias = tuple[bytes | None, bytes | None, int, Headers | None]
"""Key, value, timestamp and headers of a record."""


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
    """The timestamp of the record."""
    failed_at: int
    """When the record failed, in ms since the epoch; `timestamp` for dead letters of Java and older versions, which lack it."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    """The headers of the source record."""


def dead_letter(topic: str, error: BaseException, record: FailedRecord, now: int, step: str = "") -> OutputTuple:
    """Return the row for a dead-letter topic: the source's bytes, time and headers, then KIP-1034's headers.

    `now`: when it failed, in ms; 0 without a clock, as in batch jobs.
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
    """Return the headers without those that a dead letter adds, so that a record that fails again has them only once."""
    return [(name, value) for name, value in headers if not name.startswith((PREFIX, OWN_PREFIX))]


def dead_letter_topics(plan: Plan) -> list[str]:
    """Return the topics on the log to which the application and its steps write dead letters."""
    handlers = (node.on_error for node in plan.nodes)
    topics = [
        plan.config.errors_dead_letter_queue_topic_name,
        *(handler.topic for handler in handlers if handler is not None),
    ]
    return list(dict.fromkeys(filter(None, topics)))


def dead_letters_of_rows(
    topic: str, error: BaseException, rows: Collection[OutputTuple], now: int
) -> list[OutputTuple]:
    """Return the dead letters of rows that the log rejected: their own bytes and their target topic.

    Their source records are no longer known; Java sends none of their bytes.
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
    """Return `pipeline.step` for a node that comes from a step of the file, else the node's name."""
    origin = getattr(node, "origin", None)
    if origin is not None:
        return f"{origin.pipeline}.{origin.step}"
    name: str = getattr(node, "name", "")
    return name


def _number(text: str | None, default: int) -> int:
    return int(text) if text and text.lstrip("-").isdecimal() else default


# Reasons why a record failed, for the author of a topology, with the position of errors in the author's Python modules.

_FOREIGN_FOLDERS = (str(Path(__file__).parents[2]) + os.sep, sysconfig.get_path("stdlib") + os.sep)
MOST_FRAMES = 5
"""The number of frames of the user's modules in a message; `--verbose` shows all."""
_KINDS = {
    "str": "text",
    "bool": "a boolean",
    "int": "a whole number",
    "float": "a number",
    "dict": "an object",
    "list": "a list",
    "tuple": "a list",
    "bytes": "bytes",
    "NoneType": "an absent value (null)",
    "WindowedKey": "a windowed key",
}
_A_FIELD = "a field"
# Messages of Python, and their meaning for the author of an expression. {0}, {1}: the kinds of the types in the message.
_MEANINGS = tuple(
    (re.compile(pattern), meaning)
    for pattern, meaning in (
        (r"descriptor 'encode' for '(?:str)' objects doesn't apply to an? '(\w+)' object", "serde string takes text, not {0}"),
        (r"'(\w+)' object is not subscriptable", "a field is read from {0}"),
        (r"string indices must be integers.*", "a field is read from text"),
        (r"(list|tuple) indices must be integers or slices, not str", "a field is read from {0}"),
        (r"'(\w+)' object has no attribute '(\w+)'", "{0} has no method {1}"),
        (r"'([<>=]+)' not supported between instances of '(\w+)' and '(\w+)'", "{1} {0} {2} can't be compared"),
        (r"unsupported operand type\(s\) for (\S+?)=?(?: or \w+\(\))?: '(\w+)' and '(\w+)'", "{1} {0} {2} can't be calculated"),
        (r"can only concatenate (\w+) \(not \"(\w+)\"\) to \w+", "{0} + {1} can't be calculated"),
        (r"cannot unpack non-iterable (\w+) object", "a pair is expected, found {0}"),
        (r"(?:too many|not enough) values to unpack \(expected 2.*", "a pair is expected, found another number of values"),
        (r"'(\w+)' object is not iterable", "a list is expected, found {0}"),
        (r"unpack requires a buffer of (\d+) bytes", "exactly {0} bytes are expected"),
        (r"invalid literal for int\(\) with base 10: ('.*')", "{0} is no whole number"),
        (r"could not convert string to float: ('.*')", "{0} is not a number"),
    )
)  # fmt: skip


def human_reason(error: BaseException) -> str:
    """Return the reason why a record failed.

    >>> human_reason(KeyError("amount"))
    "field 'amount' is missing"
    >>> human_reason(TypeError("'>' not supported between instances of 'str' and 'int'"))
    "text > a whole number can't be compared"
    """
    text = one_line(str(error))
    if isinstance(error, StreamkitError):
        return text
    place = user_place(error)
    if place:
        return f"{type(error).__name__}: {text}{place}"
    if isinstance(error, KeyError) and error.args:
        return f"field {error.args[0]!r} is missing"
    if isinstance(error, UnicodeDecodeError):
        return "the bytes are not UTF-8 text"
    if isinstance(error, RecursionError):
        return "a value is nested too deeply"
    if isinstance(error, ZeroDivisionError):
        return "division by zero"
    if isinstance(error, (TypeError, ValueError, AttributeError, struct.error)) and text:
        return _meaning(text, error)
    name = type(error).__name__
    return text if isinstance(error, IndexError) and text else f"{name}: {text}" if text else name


class HiddenError(StreamkitError):
    """Replaces an exception whose text may show a record (log.record.contents); has its traceback and its class name."""

    def __init__(self, error: BaseException):
        super().__init__(_bare_reason(error))
        self.class_name = class_name(error)
        self.__traceback__ = error.__traceback__


def class_name(error: BaseException) -> str:
    """Return the name of an exception's class with its module, as in dead letters."""
    if isinstance(error, HiddenError):
        return error.class_name
    return f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")


def _bare_reason(error: BaseException) -> str:
    """Return the reason why a record failed, without a text that may show the record."""
    place = user_place(error)
    if not place and isinstance(error, (RecursionError, ZeroDivisionError, UnicodeDecodeError)):
        return human_reason(error)
    if not place and isinstance(error, (TypeError, AttributeError)):
        # Python's messages about types name only types and fields.
        text = one_line(str(error))
        meaning = _meaning(text, error)
        if meaning != text:
            return meaning
    return f"{type(error).__name__}{place} (log.record.contents hides its text)"


def _meaning(text: str, error: BaseException) -> str:
    for pattern, meaning in _MEANINGS:
        match = pattern.fullmatch(text)
        if match:
            reason = meaning.format(*(_KINDS.get(part, part) for part in match.groups()))
            name = _field_read(error) if reason.startswith(_A_FIELD) else None
            return reason if name is None else f"field {name!r}{reason.removeprefix(_A_FIELD)}"
    return text


def _field_read(error: BaseException) -> str | None:
    """Return the name of the field at whose reading an exception was raised; None if the line of code does not show it."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return None if frame is None else _field_at(frame.tb_frame.f_code, frame.tb_lasti)


@lru_cache(maxsize=64)  # all records may fail at the same place
def _field_at(code: CodeType, instruction: int) -> str | None:
    """Return the name of the field that the code reads at an instruction."""
    first, last, start, end = next(islice(code.co_positions(), instruction // 2, None), (None,) * 4)
    line = linecache.getline(code.co_filename, first or 0)
    if first is None or first != last:
        return None
    try:
        # Columns count bytes of UTF-8.
        tree = ast.parse(line.encode()[start:end].decode(), mode="eval").body
    except (SyntaxError, ValueError):
        return None
    key = tree.slice if isinstance(tree, ast.Subscript) else None
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def user_place(error: BaseException) -> str:
    """Return the frames in the user's Python modules through which an error passed; an empty text if there are none.

    The innermost frame is last, and at most MOST_FRAMES are named.

    >>> user_place(ValueError())
    ''
    """
    frames = user_frames(error)
    if not frames:
        return ""
    if len(frames) == 1:
        return f" ({frames[0].file}, line {frames[0].line})"
    return f" ({'; '.join(f'{frame.file}, line {frame.line}, in {frame.function}' for frame in frames[-MOST_FRAMES:])})"


class UserFrame(NamedTuple):
    """A call in the user's modules: the name of the file, the line and the function."""

    file: str
    line: int
    function: str


def user_frames(error: BaseException) -> list[UserFrame]:
    """Return the frames of the user's Python modules in a traceback, the innermost last."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        file = code.co_filename
        # Generated code has no file; modules of streamkit and of installed packages are not the user's.
        if not file.startswith("<") and not file.startswith(_FOREIGN_FOLDERS) and "site-packages" not in file:
            frames.append(UserFrame(os.path.basename(file), trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    return frames


def place_of(topic: str, partition: int, offset: int) -> str:
    """Return the position of a record on the log, for messages.

    >>> place_of("orders", 0, 17)
    'topic orders, partition 0, offset 17'
    """
    return f"topic {topic}, partition {partition}, offset {offset}"


def one_line(text: str) -> str:
    """Return a text without line breaks or other control characters."""
    return (
        " ".join(text.split())
        if text.isprintable()
        else " ".join("".join(char if char.isprintable() else " " for char in text).split())
    )
