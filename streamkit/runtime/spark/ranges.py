"""Which offsets a job reads: from and until, asked of the log once, before anything runs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from streamkit.errors import TransportError, UsageError
from streamkit.record import TopicPartition
from streamkit.runtime.spark.log import Address, LogRange
from streamkit.runtime.spark.options import Range
from streamkit.transport.base import Consumer

EARLIEST, LATEST, COMMITTED = "earliest", "latest", "committed"


def find_ranges(
    address: Address, group: str, wanted: Range, topics: Mapping[str, int], whole: Sequence[str] = ()
) -> tuple[list[LogRange], list[str]]:
    """Return the ranges of all partitions of topics, and warnings about records that are gone.

    whole: topics that are read from their beginning whatever `--from` says (global tables). Raises TransportError where
    retention has removed the beginning of a range, UsageError for a position that is none.
    """
    places = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
    with address.consumer(group) as consumer:
        beginnings, ends = consumer.beginning_offsets(places), consumer.end_offsets(places)
        starts = _positions(consumer, wanted.start, places, beginnings, "--from")
        stops = _positions(consumer, wanted.end, places, ends, "--until")
    ranges, warnings = [], []
    for place in places:
        start = beginnings[place] if place.topic in whole else starts[place]
        if start < beginnings[place]:
            text = (
                f"{place.topic}-{place.partition}: offsets {start} to {beginnings[place] - 1} are gone from the log"
                " (retention)"
            )
            if not wanted.tolerate_loss:
                raise TransportError(f"{text}; --on-data-loss warn reads what is left")
            warnings.append(text)
        start = max(start, beginnings[place])
        ranges.append(LogRange(place, start, max(start, min(stops[place], ends[place]))))
    return ranges, warnings


def _positions(
    consumer: Consumer, text: str, places: list[TopicPartition], default: dict[TopicPartition, int], option: str
) -> dict[TopicPartition, int]:
    if text == (EARLIEST if option == "--from" else LATEST):
        return default
    if text == COMMITTED and option == "--from":
        committed = consumer.committed(places)
        return {place: committed[place].offset if place in committed else default[place] for place in places}
    if os.path.isfile(text):
        offsets = _offsets_of(text, option)
        return {place: offsets.get(place, default[place]) for place in places}
    return consumer.offsets_for_times(dict.fromkeys(places, parse_time(text, option)))


def _offsets_of(path: str, option: str) -> dict[TopicPartition, int]:
    try:
        with open(path, encoding="utf-8") as file:
            found: Any = json.load(file)
        return {
            TopicPartition(topic, int(number)): _offset(offset)
            for topic, offsets in found.items()
            for number, offset in offsets.items()
        }
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f'{option} {path}: expected {{"topic": {{"0": 42, …}}, …}}: {error}') from error


def _offset(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no offset")
    return value


def parse_time(text: str, option: str) -> int:
    """Return milliseconds of a number of them or an ISO date; without a zone it is UTC. Raises UsageError.

    >>> parse_time("1970-01-02", "--from"), parse_time("1500", "--from")
    (86400000, 1500)
    """
    if text.isdecimal():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        words = "earliest, committed" if option == "--from" else "latest"
        raise UsageError(
            f"{option} {text}: expected {words}, a time (2025-01-31T12:00 or milliseconds) or a file of offsets"
        ) from error
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
