"""Reasons why a record failed, for the author of a topology; with the place of errors in the author's Python modules."""

from __future__ import annotations

import os
import re
import struct
import sysconfig
from pathlib import Path
from typing import NamedTuple

from streamkit.errors import StreamkitError

_FOREIGN_FOLDERS = (str(Path(__file__).parents[2]) + os.sep, sysconfig.get_path("stdlib") + os.sep)
MOST_FRAMES = 5
"""Frames of the user's modules that a message names; `--verbose` shows all."""
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
        (r"could not convert string to float: ('.*')", "{0} is no number"),
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
        return _meaning(text)
    name = type(error).__name__
    return text if isinstance(error, IndexError) and text else f"{name}: {text}" if text else name


class HiddenError(StreamkitError):
    """Stands for an exception whose text may show a record (log.record.contents); has its traceback, and the name of its class."""

    def __init__(self, error: BaseException):
        super().__init__(_bare_reason(error))
        self.class_name = class_name(error)
        self.__traceback__ = error.__traceback__


def class_name(error: BaseException) -> str:
    """Return the name of an exception's class with its module, as dead letters have it."""
    if isinstance(error, HiddenError):
        return error.class_name
    return f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")


def _bare_reason(error: BaseException) -> str:
    """Return the reason why a record failed, without a text that may show the record."""
    place = user_place(error)
    if not place and isinstance(error, (RecursionError, ZeroDivisionError, UnicodeDecodeError)):
        return human_reason(error)
    if not place and isinstance(error, (TypeError, AttributeError)):
        # What Python writes about types names types and fields only.
        text = one_line(str(error))
        meaning = _meaning(text)
        if meaning != text:
            return meaning
    return f"{type(error).__name__}{place} (log.record.contents hides its text)"


def _meaning(text: str) -> str:
    for pattern, meaning in _MEANINGS:
        match = pattern.fullmatch(text)
        if match:
            return meaning.format(*(_KINDS.get(part, part) for part in match.groups()))
    return text


def user_place(error: BaseException) -> str:
    """Return the frames in the user's Python modules through which an error came; an empty text where there are none.

    The innermost frame is last, and at most MOST_FRAMES are named.

    >>> user_place(ValueError())
    ''
    """
    frames = user_frames(error)
    if not frames:
        return ""
    if len(frames) == 1:
        return f" ({frames[0].file}, line {frames[0].line})"
    return f" ({'; '.join(f'{each.file}, line {each.line}, in {each.function}' for each in frames[-MOST_FRAMES:])})"


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
    """Return the place of a record on the log, for messages.

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
