"""Times, in milliseconds since the epoch; their texts and parts are in UTC or in a zone."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cached_property, lru_cache

from streamkit import durations
from streamkit.distribution import install_command
from streamkit.errors import ConfigError
from streamkit.expressions.function_entry import LibraryFunction, need_integer, need_text, one_of_words
from streamkit.expressions.types import INTEGER, TEXT
from streamkit.record import Operand, Value
from streamkit.suggestions import did_you_mean

# Formats of times: the directives of Python's strftime that depend on no locale, and the time zones of IANA's database.

_LONGEST_FORMAT = 100
_LONGEST_ZONE = 100
_ONE_OF = (("Y", "y"), ("H", "I"), ("m", "b", "B", "j"), ("d", "j"))
"""Directives that give the same part of a time: a format that is read has one of each group."""
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_SECOND, _MINUTE, _HOUR = 1000, 60_000, 3_600_000
"""In milliseconds."""
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SHORT_MONTHS, _SHORT_DAYS = tuple(name[:3] for name in _MONTHS), tuple(name[:3] for name in _DAYS)
_TWO = "[0-9]{1,2}"
_PATTERNS = {
    "Y": "[0-9]{4}",
    "y": "[0-9]{2}",
    "m": _TWO,
    "d": _TWO,
    "j": "[0-9]{1,3}",
    "H": _TWO,
    "I": _TWO,
    "p": "(?i:AM|PM)",
    "M": _TWO,
    "S": _TWO,
    "f": "[0-9]{1,9}",
    "b": f"(?i:{'|'.join(_SHORT_MONTHS)})",
    "B": f"(?i:{'|'.join(_MONTHS)})",
    "a": f"(?i:{'|'.join(_SHORT_DAYS)})",
    "A": f"(?i:{'|'.join(_DAYS)})",
    "z": "Z|[+-][0-9]{2}:?[0-5][0-9]",
}
_WRITTEN: dict[str, Callable[[datetime], str]] = {
    "Y": lambda time: f"{time.year:04}",
    "y": lambda time: f"{time.year % 100:02}",
    "m": lambda time: f"{time.month:02}",
    "d": lambda time: f"{time.day:02}",
    "j": lambda time: f"{time.timetuple().tm_yday:03}",
    "H": lambda time: f"{time.hour:02}",
    "I": lambda time: f"{(time.hour - 1) % 12 + 1:02}",
    "p": lambda time: "AM" if time.hour < 12 else "PM",
    "M": lambda time: f"{time.minute:02}",
    "S": lambda time: f"{time.second:02}",
    "f": lambda time: f"{time.microsecond:06}",
    "b": lambda time: _SHORT_MONTHS[time.month - 1],
    "B": lambda time: _MONTHS[time.month - 1],
    "a": lambda time: _SHORT_DAYS[time.weekday()],
    "A": lambda time: _DAYS[time.weekday()],
    "z": lambda time: time.strftime("%z")[:5],
}

_CHANGES = {"H": _HOUR, "I": _HOUR, "p": _HOUR, "M": _MINUTE, "S": _SECOND, "f": 1}
"""After how many milliseconds what a directive writes may change in UTC; that of the others changes with the day."""


@dataclass(frozen=True)
class TimeFormat:
    """A format in parts: literal text, or a function that writes a part of a time; and the pattern of texts that it reads."""

    parts: tuple[str | Callable[[datetime], str], ...]
    directives: tuple[str, ...]
    pattern: re.Pattern[str]

    def write(self, time: datetime) -> str:
        """Return a time as text."""
        return "".join([part if isinstance(part, str) else part(time) for part in self.parts])

    @cached_property
    def changes(self) -> int:
        """After how many milliseconds the text of a time in UTC may change."""
        return min(
            [_CHANGES.get(directive, durations.DAY_MS) for directive in self.directives], default=durations.DAY_MS
        )

    def read(self, text: str, zone: tzinfo) -> int | None:
        """Return the milliseconds since the epoch of a text; None if it has another form, or its day or time does not exist.

        zone: the time zone of texts without an offset. A time that occurs twice in the zone means the earlier one.
        """
        match = self.pattern.fullmatch(text)
        if match is None:
            return None
        fields = match.groupdict()
        try:
            time = _day(fields) + _time_of_day(fields)
            offset = fields.get("z")
            aware = time.replace(tzinfo=zone if offset is None else _offset(offset))
            return (aware - _EPOCH) // timedelta(milliseconds=1)
        except (ValueError, OverflowError):
            return None


@lru_cache(maxsize=256)
def time_format(format: str) -> TimeFormat:
    """Return the format of a text. Raises ValueError for one that is too long, or has another directive."""
    if len(format) > _LONGEST_FORMAT:
        raise ValueError(f"a format of times has at most {_LONGEST_FORMAT} characters, not {len(format)}")
    parts: list[str | Callable[[datetime], str]] = []
    pattern, directives, at = "", [], 0
    while at < len(format):
        char = format[at]
        if char != "%":
            parts.append(char)
            pattern += re.escape(char)
            at += 1
            continue
        directive = format[at + 1 : at + 2]
        at += 2
        if directive == "%":
            parts.append("%")
            pattern += "%"
        elif directive in _PATTERNS:
            # `strptime` takes no format with a directive twice; in its pattern the second one has no name.
            name = f"?P<{directive}>" if directive not in directives else "?:"
            pattern += f"({name}{_PATTERNS[directive]})"
            directives.append(directive)
            parts.append(_WRITTEN[directive])
        else:
            known = " ".join(f"%{letter}" for letter in _PATTERNS)
            raise ValueError(f"the format {format!r} has {'%' + directive!r}; there are: {known} %%")
    return TimeFormat(tuple(parts), tuple(directives), re.compile(pattern))


def time_zone(name: str) -> tzinfo:
    """Return a time zone of IANA's database, as the machine has it. Raises ValueError for an unknown name."""
    zone = _zone(name) if len(name) <= _LONGEST_ZONE else None
    if zone is None:
        raise ValueError(f"there is no time zone {name[:60]!r}")
    return zone


@lru_cache(maxsize=1024)
def _zone(name: str) -> tzinfo | None:
    import zoneinfo

    try:
        return UTC if name == "UTC" else zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


@lru_cache(maxsize=256)
def format_with_day(format: str) -> TimeFormat:
    """Return a format that can be read. Raises ValueError for one without a day, or with half of a time of day."""
    format_ = time_format(format)
    directives = set(format_.directives)
    if not directives & {"Y", "y"} or not ("j" in directives or ("d" in directives and directives & {"m", "b", "B"})):
        raise ValueError(f"the format {format!r} has no day: it needs %Y or %y, and %d with %m, %b or %B, or %j")
    if ("I" in directives) != ("p" in directives):
        raise ValueError(f"the format {format!r} needs %I and %p together; %H are hours of 24")
    if len(directives) < len(format_.directives):
        raise ValueError(f"the format {format!r} has a directive twice")
    for group in _ONE_OF:
        same = [f"%{directive}" for directive in group if directive in directives]
        if len(same) > 1:
            raise ValueError(
                f"the format {format!r} has {' and '.join(same)}, which give the same part of a time: take one"
            )
    return format_


def zone_of(name: Operand) -> tzinfo:
    """Return the time zone of a name. Raises ValueError."""
    _need(name, "time zone")
    return time_zone(name)


def check_written(format: Value) -> None:
    """Check a format of `strftime`."""
    _need(format, "format")
    time_format(format)


def check_read(format: Value) -> None:
    """Check a format of `strptime`."""
    _need(format, "format")
    format_with_day(format)


def check_zone(name: Operand) -> None:
    """Check the name of a time zone, with the nearest known name in the message."""
    import zoneinfo

    _need(name, "time zone")
    try:
        time_zone(name)
    except ValueError as error:
        # The list of all zones takes 25 ms: too long for each record with a wrong name.
        known = zoneinfo.available_timezones()
        hint = (
            did_you_mean(name[:_LONGEST_ZONE], sorted(known))
            if known
            else f"; this machine has none: {install_command('tzdata')}"
        )
        raise ValueError(f"{error}{hint}") from None


def _need(value: Value, what: str) -> None:
    if not isinstance(value, str):
        raise ValueError(f"a {what} is text, not {value!r}")


def _day(fields: dict[str, str | None]) -> datetime:
    year = fields.get("Y")
    if year is None:
        short = int(fields.get("y") or 0)
        number = short + (1900 if short >= 69 else 2000)
    else:
        number = int(year)
    of_year = fields.get("j")
    if of_year is not None:
        day = datetime(number, 1, 1) + timedelta(days=int(of_year) - 1)
        if day.year != number:
            raise ValueError
        return day
    return datetime(number, _month(fields), int(fields.get("d") or 0))


def _month(fields: dict[str, str | None]) -> int:
    month = fields.get("m")
    if month is not None:
        return int(month)
    name = fields.get("b") or fields.get("B") or ""
    return _SHORT_MONTHS.index(name[:3].capitalize()) + 1


def _time_of_day(fields: dict[str, str | None]) -> timedelta:
    hours = int(fields.get("H") or 0)
    half = fields.get("p")
    if half is not None and fields.get("I") is not None:
        of_twelve = int(fields["I"] or 0)
        if not 1 <= of_twelve <= 12:
            raise ValueError
        hours = of_twelve % 12 + (12 if half.upper() == "PM" else 0)
    minutes, seconds = int(fields.get("M") or 0), int(fields.get("S") or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError
    milliseconds = int((fields.get("f") or "").ljust(3, "0")[:3])
    return timedelta(hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)


def _offset(text: str) -> tzinfo:
    if text == "Z":
        return UTC
    digits = text[1:].replace(":", "")
    size = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-size if text[0] == "-" else size)


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
_UNIT, _PART = one_of_words(*_UNITS), one_of_words(*_PARTS)
ENTRIES: list[LibraryFunction] = []


def _moment(time: Value, name: str, zone: Value) -> datetime:
    try:
        moment = _EPOCH + timedelta(milliseconds=need_integer(time, name))
        return moment if zone == "UTC" else moment.astimezone(zone_of(zone))
    except OverflowError:
        raise ValueError(f"{name}() takes times of the years 1 to 9999") from None


@LibraryFunction(
    ENTRIES, (("parse_time('2025-01-31T09:00:00+01:00')", "1738310400000"), ("parse_time('soon', 0)", "0")), factor=1.0
)
def parse_time(text: Value, default: Value = _ABSENT) -> Value:
    """The time of an ISO 8601 text, truncated to milliseconds; in UTC if it has no zone. Other values are an error, or give `default`."""
    time = durations.iso_time(text) if isinstance(text, str) else None
    if time is None:
        return _default_or_error(default, "parse_time() takes an ISO 8601 time such as 2025-01-31T08:00:00Z", text)
    return time


@LibraryFunction(
    ENTRIES,
    (
        ("format_time(1738310400000)", "'2025-01-31T08:00:00.000Z'"),
        ("format_time(1738310400000, 'Asia/Tokyo')", "'2025-01-31T17:00:00.000+09:00'"),
    ),
    type=TEXT,
    constant=40.0,
    checks={1: check_zone},
)
def format_time(time: Value, zone: Value = "UTC") -> str:
    """The ISO 8601 text of a time, with milliseconds; in UTC, or in a [zone](expressions.md#zones-and-formats)."""
    shown = _moment(time, "format_time", zone).isoformat(timespec="milliseconds")
    return shown.removesuffix("+00:00") + "Z" if zone == "UTC" else shown


@LibraryFunction(
    ENTRIES,
    (
        ("strptime('31.01.2025 09:00', '%d.%m.%Y %H:%M', 'Europe/Zurich')", "1738310400000"),
        ("strptime('Jan 31, 2025', '%b %d, %Y')", "1738281600000"),
        ("strptime('soon', '%Y-%m-%d', 'UTC', None)", "None"),
    ),
    factor=1.0,
    checks={1: check_read, 2: check_zone},
)
def strptime(text: Value, format: Value, zone: Value = "UTC", default: Value = _ABSENT) -> Value:
    """The time of a text of a [format](expressions.md#zones-and-formats), such as `%d.%m.%Y %H:%M`. Text without an offset (`%z`) is in the zone,
    by default UTC. Other values are an error, or give `default`.
    """
    wanted = format_with_day(need_text(format, "strptime"))
    time = wanted.read(text, zone_of(zone)) if isinstance(text, str) else None
    if time is None:
        return _default_or_error(default, f"strptime() takes a time of the form {format!r}", text)
    return time


def _default_or_error(default: Value, expected: str, value: Value) -> Value:
    if default is _ABSENT:
        raise ValueError(f"{expected}, not {str(value)[:40]!r}")
    return default


@LibraryFunction(
    ENTRIES,
    (
        ("strftime(1738310400000, '%Y/%m/%d %H:%M')", "'2025/01/31 08:00'"),
        ("strftime(1738310400000, '%a %d %b, %I %p', 'America/New_York')", "'Fri 31 Jan, 03 AM'"),
    ),
    type=TEXT,
    constant=1000.0,
    checks={1: check_written, 2: check_zone},
)
def strftime(time: Value, format: Value, zone: Value = "UTC") -> str:
    """The text of a time by a [format](expressions.md#zones-and-formats); in UTC, or in a zone."""
    form, moment = need_text(format, "strftime"), need_integer(time, "strftime")
    changes = time_format(form).changes
    if zone != "UTC":
        zone_of(zone)
        # A zone may change its offset at any second.
        changes = min(changes, _SECOND)
    if changes < _SECOND:
        return _written(moment, form, zone)
    # Records that come together have the same day, and nearly the same second.
    return _text_of(moment // changes * changes, form, zone)


def _written(time: Value, format: str, zone: Value) -> str:
    return time_format(format).write(_moment(time, "strftime", zone))


_text_of = lru_cache(maxsize=1024)(_written)


@LibraryFunction(
    ENTRIES,
    (("from_epoch(1738310400.5, 's')", "1738310400500"), ("from_epoch(1999999, 'ns')", "1")),
    type=INTEGER,
    checks={1: _UNIT},
)
def from_epoch(number: Operand, unit: Operand) -> int:
    """The time of a number of units since the epoch: `s`, `ms`, `us` or `ns`; truncated to milliseconds."""
    _UNIT(unit)
    milliseconds, units = _UNITS[unit]
    if type(number) not in (int, float):
        raise TypeError(f"from_epoch() takes a number, not {type(number).__name__}")
    if number != number or number in (_INFINITY, -_INFINITY):
        raise ValueError(f"from_epoch() takes a finite number, not {number}")
    return _long(int(number * milliseconds // units), "from_epoch")


@LibraryFunction(ENTRIES, (("to_epoch(1738310400999, 's')", "1738310400"),), type=INTEGER, checks={1: _UNIT})
def to_epoch(time: Value, unit: Operand) -> int:
    """How many units a time is after the epoch, truncated to a whole number."""
    _UNIT(unit)
    milliseconds, units = _UNITS[unit]
    return _long(need_integer(time, "to_epoch") * units // milliseconds, "to_epoch")


def _long(number: int, name: str) -> int:
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{name}() gives numbers of 64 bits; this one has {number.bit_length()}")
    return number


@LibraryFunction(
    ENTRIES,
    (("time_part(1738310400000, 'weekday')", "5"), ("time_part(1738310400000, 'hour', 'Asia/Tokyo')", "17")),
    type=INTEGER,
    checks={1: _PART, 2: check_zone},
)
def time_part(time: Value, part: Operand, zone: Value = "UTC") -> int:
    """A part of a time in UTC, or in a [zone](expressions.md#zones-and-formats): `year quarter month week day day_of_year weekday hour minute
    second millisecond`; `week` is that of ISO 8601, `weekday` 1 for Monday to 7.
    """
    _PART(part)
    return _PARTS[part](_moment(time, "time_part", zone))


def _milliseconds(duration: Value) -> int:
    try:
        return durations.parse(duration, 1)
    except ConfigError as error:
        raise ValueError(f"truncate_time() takes a duration that {error}") from None


@LibraryFunction(
    ENTRIES,
    (("format_time(truncate_time(1738312345678, '1h'))", "'2025-01-31T08:00:00.000Z'"),),
    type=INTEGER,
    checks={1: _milliseconds},
)
def truncate_time(time: Value, duration: Value) -> int:
    """The last multiple of a duration since the epoch that is not after a time: the start of its tumbling window."""
    size = _milliseconds(duration)
    return need_integer(time, "truncate_time") // size * size
