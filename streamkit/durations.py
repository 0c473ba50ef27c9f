"""Durations of the language, `100ms 30s 5m 1h 7d`, ISO-8601 or an integer of milliseconds; and points in time."""

from __future__ import annotations

import datetime
import re
import time

from streamkit.errors import ConfigError, SerdeError, UsageError

DAY_MS = 86_400_000
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": DAY_MS}
_SHORT = re.compile(r"([0-9]+)(ms|s|m|h|d)", re.ASCII)
_ISO = re.compile(
    r"P(?:([0-9]+)D)?(?:T(?=[0-9])(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)(?:[.,]([0-9]{0,9}))?S)?)?", re.ASCII | re.I
)
LONGEST = 2**63 - 1
FORMS = "a duration such as 100ms, 30s, 5m, 1h, 7d, PT5M or an integer of milliseconds"
_SINCE_0 = "milliseconds, a duration since 0 such as 90s,"
TIME_FORMS = f"{_SINCE_0} or a time such as 2025-01-31T08:00:00Z"
OPTION_TIME_FORMS = f"{_SINCE_0} a time such as 2025-01-31T08:00:00Z, or a duration before now such as -5m"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def parse(value: object, minimum: int = 0) -> int:
    """Return a duration in milliseconds; parts of a millisecond are cut off, as Duration.toMillis does.

    Raises ConfigError if it is not a duration, below `minimum`, or too large for a Java long. A text may begin with a minus if
    `minimum` is negative.

    >>> parse("5m"), parse("PT1.5S"), parse(20), parse("-5m", -LONGEST)
    (300000, 1500, 20, -300000)
    """
    result: int | None
    if isinstance(value, int) and not isinstance(value, bool):
        result = value
    elif minimum < 0 and isinstance(value, str) and value.startswith("-"):
        size = _text(value[1:])
        result = -size if size is not None else None
    else:
        result = _text(value)
    if result is None:
        raise ConfigError(f"must be {FORMS}")
    if result < minimum:
        raise ConfigError(f"must be at least {minimum} ms")
    if result > LONGEST:
        raise ConfigError("is too long")
    return result


def instant(value: object) -> int:
    """Return a point in time as milliseconds since the epoch; times without a zone are UTC. Raises SerdeError.

    >>> instant("90s"), instant("1970-01-01T00:01:00Z"), instant(5)
    (90000, 60000, 5)
    """
    if type(value) is int:
        return value
    if isinstance(value, str):
        try:
            return parse(value)
        except ConfigError:
            pass
        time = iso_time(value)
        if time is not None:
            return time
    raise SerdeError(f"must be {TIME_FORMS}")


def iso_time(text: str) -> int | None:
    """Return an ISO 8601 time as milliseconds since the epoch, UTC if it has no time zone; None for any other text.

    >>> iso_time("1970-01-02"), iso_time("1970-01-01T01:00:00.001+01:00"), iso_time("5")
    (86400000, 1, None)
    """
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
    return (aware - _EPOCH) // datetime.timedelta(milliseconds=1)


def option_time(option: str, text: str, *words: str) -> int:
    """Return the point in time of an option of the command line: an `instant`, milliseconds, or `-5m` for 5 minutes ago.

    words: other values that the option accepts, for the message. Raises UsageError.

    >>> option_time("--from", "1970-01-02"), option_time("--from", "1500")
    (86400000, 1500)
    """
    try:
        if text.startswith("-"):
            return time.time_ns() // 1_000_000 - parse(text[1:])
        # The length first: the interpreter refuses to read a number of thousands of digits.
        is_number = text.isascii() and text.isdigit() and len(text) <= 100
        moment = int(text) if is_number else instant(text)
        if moment <= LONGEST:
            return moment
        raise ConfigError("is too late")
    except (SerdeError, ConfigError):
        raise UsageError(f"{option} {text}: expected {', '.join([*words, OPTION_TIME_FORMS])}") from None


def _text(value: object) -> int | None:
    if not isinstance(value, str) or len(value) > 100:
        return None
    match = _SHORT.fullmatch(value)
    if match:
        return int(match[1]) * _UNITS[match[2]]
    match = _ISO.fullmatch(value)
    if not match or not any(match.groups()):
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups()[:4])
    fraction = int((match[5] or "").ljust(3, "0")[:3])
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000 + fraction
