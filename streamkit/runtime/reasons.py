"""Why a record failed, in words for the author of a topology; of errors in their own Python modules, where."""

from __future__ import annotations

import os
import re
import struct
import sysconfig
from pathlib import Path

from streamkit.errors import StreamkitError

_NOT_THE_USERS = (str(Path(__file__).parent.parent) + os.sep, sysconfig.get_path("stdlib") + os.sep)
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
# What Python says, and what that means where an expression was evaluated. {0}, {1}: the kinds of the types in the text.
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
    """Say in words why a record failed.

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


def _meaning(text: str) -> str:
    for pattern, meaning in _MEANINGS:
        match = pattern.fullmatch(text)
        if match:
            return meaning.format(*(_KINDS.get(part, part) for part in match.groups()))
    return text


def user_place(error: BaseException) -> str:
    """Say where in the user's own Python modules an error was raised; nothing where it was not raised in one.

    >>> user_place(ValueError())
    ''
    """
    found = ""
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        # Generated code has no file, and neither streamkit nor what is installed is the user's.
        if not file.startswith("<") and not file.startswith(_NOT_THE_USERS) and "site-packages" not in file:
            found = f" ({Path(file).name}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return found


def one_line(text: str) -> str:
    """Return a text without line breaks or other control characters."""
    return (
        " ".join(text.split())
        if text.isprintable()
        else " ".join("".join(char if char.isprintable() else " " for char in text).split())
    )
