"""The part of a topic that the options of a command name: partitions, offsets and times."""

from __future__ import annotations

import re
from collections.abc import Sequence

from streamkit.durations import option_time
from streamkit.errors import UsageError
from streamkit.record import TopicPartition
from streamkit.runtime.operations.reading.record_range import Range
from streamkit.runtime.operations.reset_targets import Target


def read_range(
    offset: str | None, from_end: bool, since: str | None, until: str | None, partitions: Sequence[str] | None
) -> Range:
    """Return the range of the options. Raises UsageError."""
    low = None if since is None else option_time("--from", since)
    high = None if until is None else option_time("--to", until)
    if low is not None and high is not None and low >= high:
        raise UsageError(f"--from {since} is not before --to {until}")
    if low is not None:
        start = Target("time", max(low, 0))
    else:
        start = Target("latest") if from_end else _start(offset or "earliest")
    return Range(start, low, high, None if partitions is None else _numbers(partitions))


def _start(text: str) -> Target:
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


def places_of(topic: str, count: int, wanted: frozenset[int] | None) -> list[TopicPartition]:
    """Return the partitions to read. Raises UsageError for one that the topic does not have."""
    missing = sorted(number for number in wanted or () if number >= count)
    if missing:
        raise UsageError(f"--partition {missing[0]}: topic {topic} has {count} partitions, counted from 0")
    return [TopicPartition(topic, number) for number in (range(count) if wanted is None else sorted(wanted))]
