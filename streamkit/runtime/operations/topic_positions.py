"""Positions in topics: the targets of a reset, as in kafka-streams-application-reset, and the range of a topic to read."""

from __future__ import annotations

import csv
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from streamkit import durations
from streamkit.errors import ConfigError, UsageError
from streamkit.record import TopicPartition
from streamkit.transport.log_interface import Consumer

RAISED = "raised to the first offset"
LOWERED = "lowered to the end"
NOTHING_LATER = "no record so late: the end"
NOT_COMMITTED = "nothing committed: counted from the end"
NOT_NAMED = "not in the file"


@dataclass(frozen=True)
class Target:
    """One way to choose offsets.

    kind: earliest, latest, offset (`number`), shift (by `number`), time (`number` in ms) or file (`offsets`).
    """

    kind: str = "earliest"
    number: int = 0
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


def to_datetime(text: str) -> Target:
    """Return the target of a time, such as Java's `YYYY-MM-DDTHH:mm:SS.sss`. Raises UsageError."""
    return Target("time", durations.option_time("--to-datetime", text))


def by_duration(text: str) -> Target:
    """Return the target of a duration before now. Raises UsageError."""
    try:
        is_number = text.isascii() and text.isdigit() and len(text) <= 20
        return Target("time", time.time_ns() // 1_000_000 - durations.parse(int(text) if is_number else text))
    except ConfigError as error:
        raise UsageError(f"--by-duration {text}: {error}") from None


def from_file(path: str) -> Target:
    """Return the target of a file with lines TOPIC,PARTITION,OFFSET. Raises UsageError."""
    offsets = {}
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            for number, row in enumerate(csv.reader(file), 1):
                if row:
                    place, offset = _row(f"{path}:{number}:1", row)
                    offsets[place] = offset
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from error
    if not offsets:
        raise UsageError(f"{path}: is empty; expected lines TOPIC,PARTITION,OFFSET")
    return Target("file", offsets=offsets)


def _row(where: str, row: Sequence[str]) -> tuple[TopicPartition, int]:
    try:
        topic, partition, offset = (cell.strip() for cell in row)
        return TopicPartition(topic, int(partition)), int(offset)
    except ValueError:
        raise UsageError(f"{where}: expected TOPIC,PARTITION,OFFSET") from None


def resolve(
    consumer: Consumer, target: Target, before: Mapping[TopicPartition, int | None]
) -> dict[TopicPartition, tuple[int | None, str]]:
    """Return the new offset of each partition, and a remark if it differs from the target.

    before: the partitions with the committed offsets of the group. An offset of None does not change. Offsets outside a
    partition become its first or end offset (StreamsResetter.checkOffsetRange). Raises UsageError for partitions of the
    file that are not among these.
    """
    places = list(before)
    beginnings, ends = consumer.beginning_offsets(places), consumer.end_offsets(places)
    if target.kind == "earliest":
        return {place: (beginnings[place], "") for place in places}
    if target.kind == "latest":
        return {place: (ends[place], "") for place in places}
    if target.kind == "time":
        found = consumer.offsets_for_times(dict.fromkeys(places, target.number))
        return {place: (found[place], NOTHING_LATER if found[place] >= ends[place] else "") for place in places}
    if target.kind == "file":
        strange = sorted(target.offsets.keys() - before.keys())
        if strange:
            topic, partition = strange[0]
            raise UsageError(f"{topic},{partition} is not a partition of the application's input topics")
    chosen: dict[TopicPartition, tuple[int | None, str]] = {}
    for place in places:
        wanted, note = _wanted(target, place, before[place], ends[place])
        if wanted is None:
            chosen[place] = None, note
        elif wanted >= ends[place]:
            chosen[place] = ends[place], LOWERED if wanted > ends[place] else note
        else:
            chosen[place] = max(wanted, beginnings[place]), RAISED if wanted < beginnings[place] else note
    return chosen


def _wanted(target: Target, place: TopicPartition, committed: int | None, end: int) -> tuple[int | None, str]:
    if target.kind == "offset":
        return target.number, ""
    if target.kind == "shift":
        # Without a committed offset Java's consumer is at the end (the default of auto.offset.reset).
        return (end if committed is None else committed) + target.number, NOT_COMMITTED if committed is None else ""
    return target.offsets.get(place), "" if place in target.offsets else NOT_NAMED


# The range of a topic to read: partitions, offsets and times.


class Range(NamedTuple):
    """A range: the start, and times (ms) that bound the records; `until` is exclusive."""

    start: Target
    since: int | None = None
    until: int | None = None
    partitions: frozenset[int] | None = None

    @property
    def first_offset(self) -> int:
        """The lowest offset of a record in the range."""
        return self.start.number if self.start.kind == "offset" else 0


def first_offsets(consumer: Consumer, start: Target, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
    """Return the first offset to read of each partition, within its offsets."""
    # Without committed offsets a shift counts from the end.
    return {place: found or 0 for place, (found, _) in resolve(consumer, start, dict.fromkeys(places)).items()}
