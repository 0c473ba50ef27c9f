"""Which part of a topic a command reads: partitions, offsets and times."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from streamkit import durations
from streamkit.errors import ConfigError, SerdeError, UsageError
from streamkit.record import TopicPartition

if TYPE_CHECKING:
    from streamkit.runtime.reset_targets import Target
    from streamkit.transport.base import Consumer


class Range(NamedTuple):
    """What the options ask for: where to begin, and times (ms) that bound the records, `until` not included."""

    start: Target
    since: int | None = None
    until: int | None = None
    partitions: frozenset[int] | None = None

    @property
    def first_offset(self) -> int:
        """The offset before which no record is wanted."""
        return self.start.number if self.start.kind == "offset" else 0


def read_range(
    offset: str | None, from_end: bool, since: str | None, until: str | None, partitions: Sequence[str] | None
) -> Range:
    """Return the range that options name. Raises UsageError."""
    from streamkit.runtime.reset_targets import Target

    low, high = (moment(text, name) for text, name in ((since, "--from"), (until, "--to")))
    if low is not None and high is not None and low >= high:
        raise UsageError(f"--from {since} is not before --to {until}")
    if low is not None:
        start = Target("time", max(low, 0))
    else:
        start = Target("latest") if from_end else _start(offset or "earliest")
    return Range(start, low, high, None if partitions is None else _numbers(partitions))


def _start(text: str) -> Target:
    from streamkit.runtime.reset_targets import Target

    if text in ("earliest", "latest"):
        return Target(text)
    if not re.fullmatch(r"-?[0-9]{1,18}", text, re.ASCII):
        raise UsageError(f"--offset {text}: expected an offset, earliest, latest, or -N for the last N offsets")
    return Target("shift" if text.startswith("-") else "offset", int(text))


def _numbers(texts: Sequence[str]) -> frozenset[int]:
    found = set()
    for part in ",".join(texts).split(","):
        if not re.fullmatch(r"[0-9]{1,9}", part.strip(), re.ASCII):
            raise UsageError(f"--partition {part.strip()}: expected a number, or several with commas")
        found.add(int(part))
    return frozenset(found)


def moment(text: str | None, option: str) -> int | None:
    """Return a point in time as milliseconds, as test files have it; `-5m` is five minutes before now. Raises UsageError."""
    if text is None:
        return None
    try:
        if text.isascii() and text.isdigit():
            return int(text)
        if text.startswith("-"):
            return time.time_ns() // 1_000_000 - durations.parse(text[1:])
        return durations.instant(text)
    except (SerdeError, ConfigError):
        raise UsageError(
            f"{option} {text}: expected {durations.TIME_FORMS}, or a duration before now such as -5m"
        ) from None


def places_of(topic: str, count: int, wanted: frozenset[int] | None) -> list[TopicPartition]:
    """Return the partitions to read. Raises UsageError for one that the topic does not have."""
    missing = sorted(number for number in wanted or () if number >= count)
    if missing:
        raise UsageError(f"--partition {missing[0]}: topic {topic} has {count} partitions, counted from 0")
    return [TopicPartition(topic, number) for number in (range(count) if wanted is None else sorted(wanted))]


def first_offsets(consumer: Consumer, start: Target, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
    """Return where reading begins in each partition, within what it has."""
    from streamkit.runtime.reset_targets import resolve

    # Nothing is committed: a shift counts from the end.
    return {place: found or 0 for place, (found, _) in resolve(consumer, start, dict.fromkeys(places)).items()}
