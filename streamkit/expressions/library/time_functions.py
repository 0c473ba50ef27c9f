"""Times: milliseconds since the epoch, in UTC."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from streamkit import durations
from streamkit.errors import ConfigError
from streamkit.expressions.analysis.types import INTEGER, TEXT
from streamkit.expressions.library.function_entry import LibraryFunction, need_integer, one_of_words
from streamkit.record import Value

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ABSENT = object()
_UNITS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
"""(milliseconds, by how many units) of each unit."""
_PARTS: dict[str, Callable[[datetime], int]] = {
    "year": lambda time: time.year,
    "quarter": lambda time: (time.month + 2) // 3,
    "month": lambda time: time.month,
    "week": lambda time: time.isocalendar().week,
    "day": lambda time: time.day,
    "day_of_year": lambda time: time.timetuple().tm_yday,
    "weekday": lambda time: time.isoweekday(),
    "hour": lambda time: time.hour,
    "minute": lambda time: time.minute,
    "second": lambda time: time.second,
    "millisecond": lambda time: time.microsecond // 1000,
}


def _moment(time: Value, name: str) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=need_integer(time, name))
    except OverflowError:
        raise ValueError(f"{name}() takes times of the years 1 to 9999") from None


def parse_time(text: Value, default: Value = _ABSENT) -> Value:
    """Return the time of an ISO 8601 text. Raises ValueError for other text without a default."""
    found = durations.iso_time(text) if isinstance(text, str) else None
    if found is not None:
        return found
    if default is not _ABSENT:
        return default
    raise ValueError(f"parse_time() takes an ISO 8601 time such as 2025-01-31T08:00:00Z, not {str(text)[:40]!r}")


def format_time(time: Value) -> str:
    """Return the ISO 8601 text of a time."""
    shown = _moment(time, "format_time").isoformat(timespec="milliseconds")
    return shown.replace("+00:00", "Z")


def from_epoch(number: Value, unit: Value) -> int:
    """Return the time of a number of units since the epoch, cut off to milliseconds."""
    _UNIT(unit)
    milliseconds, units = _UNITS[unit]
    if type(number) not in (int, float):
        raise TypeError(f"from_epoch() takes a number, not {type(number).__name__}")
    return _long(int(number * milliseconds // units), "from_epoch")


def to_epoch(time: Value, unit: Value) -> int:
    """Return how many units a time is after the epoch, cut off to a whole number."""
    _UNIT(unit)
    milliseconds, units = _UNITS[unit]
    return _long(need_integer(time, "to_epoch") * units // milliseconds, "to_epoch")


def _long(number: int, name: str) -> int:
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{name}() gives numbers of 64 bits; this one has {number.bit_length()}")
    return number


def time_part(time: Value, part: Value) -> int:
    """Return a part of a time."""
    _PART(part)
    return _PARTS[part](_moment(time, "time_part"))


def truncate_time(time: Value, duration: Value) -> int:
    """Return the last multiple of a duration since the epoch that is no later than a time."""
    size = _milliseconds(duration)
    return need_integer(time, "truncate_time") // size * size


def _milliseconds(duration: Value) -> int:
    try:
        return durations.parse(duration, 1)
    except ConfigError as error:
        raise ValueError(f"truncate_time() takes a duration that {error}") from None


_UNIT, _PART = one_of_words(*_UNITS), one_of_words(*_PARTS)

ENTRIES = (
    LibraryFunction(
        "parse_time",
        ("text", "default"),
        parse_time,
        "The time of an ISO 8601 text, UTC where it names no zone, cut off to milliseconds. Other values are an error, or give "
        "`default`.",
        (("parse_time('2025-01-31T09:00:00+01:00')", "1738310400000"), ("parse_time('soon', 0)", "0")),
        optional=1,
        factor=1.0,
    ),
    LibraryFunction(
        "format_time",
        ("time",),
        format_time,
        "The ISO 8601 text of a time in UTC, with milliseconds.",
        (("format_time(1738310400000)", "'2025-01-31T08:00:00.000Z'"),),
        kind="str",
        type=TEXT,
        constant=32.0,
    ),
    LibraryFunction(
        "from_epoch",
        ("number", "unit"),
        from_epoch,
        "The time of a number of units since the epoch: `s`, `ms`, `us` or `ns`; cut off to milliseconds.",
        (("from_epoch(1738310400.5, 's')", "1738310400500"), ("from_epoch(1999999, 'ns')", "1")),
        kind="int",
        type=INTEGER,
        checks={1: _UNIT},
    ),
    LibraryFunction(
        "to_epoch",
        ("time", "unit"),
        to_epoch,
        "How many units a time is after the epoch, cut off to a whole number.",
        (("to_epoch(1738310400999, 's')", "1738310400"),),
        kind="int",
        type=INTEGER,
        checks={1: _UNIT},
    ),
    LibraryFunction(
        "time_part",
        ("time", "part"),
        time_part,
        "A part of a time in UTC: `year quarter month week day day_of_year weekday hour minute second millisecond`; `week` is "
        "that of ISO 8601, `weekday` 1 for Monday to 7.",
        (("time_part(1738310400000, 'weekday')", "5"), ("time_part(1738310400000, 'hour')", "8")),
        kind="int",
        type=INTEGER,
        checks={1: _PART},
    ),
    LibraryFunction(
        "truncate_time",
        ("time", "duration"),
        truncate_time,
        "The last multiple of a duration since the epoch that is no later than a time: where its tumbling window begins.",
        (("format_time(truncate_time(1738312345678, '1h'))", "'2025-01-31T08:00:00.000Z'"),),
        kind="int",
        type=INTEGER,
        checks={1: _milliseconds},
    ),
)
