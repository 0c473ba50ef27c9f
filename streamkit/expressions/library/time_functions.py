"""Times: milliseconds since the epoch; their texts and parts are those of UTC, or of a zone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from streamkit import durations
from streamkit.errors import ConfigError
from streamkit.expressions.analysis.types import INTEGER, TEXT
from streamkit.expressions.library.function_entry import LibraryFunction, need_integer, need_text, one_of_words
from streamkit.expressions.library.time_formats import (
    check_read,
    check_written,
    check_zone,
    format_with_day,
    time_format,
    zone_of,
)
from streamkit.record import Value

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ABSENT = object()
_INFINITY = float("inf")
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


def _moment(time: Value, name: str, zone: Value = "UTC") -> datetime:
    try:
        found = _EPOCH + timedelta(milliseconds=need_integer(time, name))
        return found if zone == "UTC" else found.astimezone(zone_of(zone))
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


def format_time(time: Value, zone: Value = "UTC") -> str:
    """Return the ISO 8601 text of a time in a zone."""
    shown = _moment(time, "format_time", zone).isoformat(timespec="milliseconds")
    return shown.removesuffix("+00:00") + "Z" if zone == "UTC" else shown


def strftime(time: Value, format: Value, zone: Value = "UTC") -> str:
    """Return a time in a zone as text of a format."""
    return time_format(need_text(format, "strftime")).write(_moment(time, "strftime", zone))


def strptime(text: Value, format: Value, zone: Value = "UTC", default: Value = _ABSENT) -> Value:
    """Return the time of a text of a format. Raises ValueError for other text without a default."""
    wanted = format_with_day(need_text(format, "strptime"))
    found = wanted.read(text, zone_of(zone)) if isinstance(text, str) else None
    if found is not None:
        return found
    if default is not _ABSENT:
        return default
    raise ValueError(f"strptime() takes a time of the form {format!r}, not {str(text)[:40]!r}")


def from_epoch(number: Value, unit: Value) -> int:
    """Return the time of a number of units since the epoch, cut off to milliseconds."""
    _UNIT(unit)
    milliseconds, units = _UNITS[unit]
    if type(number) not in (int, float):
        raise TypeError(f"from_epoch() takes a number, not {type(number).__name__}")
    if number != number or number in (_INFINITY, -_INFINITY):
        raise ValueError(f"from_epoch() takes a finite number, not {number}")
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


def time_part(time: Value, part: Value, zone: Value = "UTC") -> int:
    """Return a part of a time in a zone."""
    _PART(part)
    return _PARTS[part](_moment(time, "time_part", zone))


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
        ("time", "zone"),
        format_time,
        "The ISO 8601 text of a time, with milliseconds; in UTC, or in a [zone](expressions.md#zones-and-formats).",
        (
            ("format_time(1738310400000)", "'2025-01-31T08:00:00.000Z'"),
            ("format_time(1738310400000, 'Asia/Tokyo')", "'2025-01-31T17:00:00.000+09:00'"),
        ),
        optional=1,
        kind="str",
        type=TEXT,
        constant=40.0,
        checks={1: check_zone},
    ),
    LibraryFunction(
        "strptime",
        ("text", "format", "zone", "default"),
        strptime,
        "The time of a text of a [format](expressions.md#zones-and-formats), such as `%d.%m.%Y %H:%M`. Text without an offset (`%z`) is of the zone, "
        "which is UTC where it is absent. Other values are an error, or give `default`.",
        (
            ("strptime('31.01.2025 09:00', '%d.%m.%Y %H:%M', 'Europe/Zurich')", "1738310400000"),
            ("strptime('Jan 31, 2025', '%b %d, %Y')", "1738281600000"),
            ("strptime('soon', '%Y-%m-%d', 'UTC', None)", "None"),
        ),
        optional=2,
        factor=1.0,
        checks={1: check_read, 2: check_zone},
    ),
    LibraryFunction(
        "strftime",
        ("time", "format", "zone"),
        strftime,
        "The text of a time by a [format](expressions.md#zones-and-formats); in UTC, or in a zone.",
        (
            ("strftime(1738310400000, '%Y/%m/%d %H:%M')", "'2025/01/31 08:00'"),
            ("strftime(1738310400000, '%a %d %b, %I %p', 'America/New_York')", "'Fri 31 Jan, 03 AM'"),
        ),
        optional=1,
        kind="str",
        type=TEXT,
        constant=1000.0,
        checks={1: check_written, 2: check_zone},
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
        ("time", "part", "zone"),
        time_part,
        "A part of a time in UTC, or in a [zone](expressions.md#zones-and-formats): `year quarter month week day day_of_year weekday hour minute second millisecond`; `week` is "
        "that of ISO 8601, `weekday` 1 for Monday to 7.",
        (("time_part(1738310400000, 'weekday')", "5"), ("time_part(1738310400000, 'hour', 'Asia/Tokyo')", "17")),
        optional=1,
        kind="int",
        type=INTEGER,
        checks={1: _PART, 2: check_zone},
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
