"""The offsets that a job reads: `--from` and `--until` as offsets of the log, resolved once before the job."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence

from streamkit import durations
from streamkit.errors import StateError, TransportError, UsageError
from streamkit.record import TopicPartition
from streamkit.runtime.spark.job_options import Range
from streamkit.runtime.spark.rows.log_rows import Address, LogRange
from streamkit.transport.log_interface import Consumer

EARLIEST, LATEST, COMMITTED = "earliest", "latest", "committed"


def find_ranges(
    address: Address, group: str, requested: Range, topics: Mapping[str, int], from_beginning: Sequence[str] = ()
) -> tuple[list[LogRange], list[str]]:
    """Return the ranges of all partitions of topics, and warnings about records that retention has removed.

    from_beginning: topics that are read from their beginning regardless of `--from` (global tables). Raises TransportError if
    retention has removed the beginning of a range, StateError if `committed` offsets are missing or lower than in earlier
    runs, and UsageError for an invalid position.
    """
    places = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
    with address.consumer(group) as consumer:
        beginnings, ends = consumer.beginning_offsets(places), consumer.end_offsets(places)
        first = _positions(consumer, requested.start, places, beginnings, "--from")
        if requested.needs_beginning:
            first = dict.fromkeys(places, 0)
        if requested.end == COMMITTED:
            live = [place for place in places if place.topic not in from_beginning]
            stops = _committed_stops(consumer, group, live, requested.to_end, beginnings, ends)
        else:
            stops = _positions(consumer, requested.end, places, ends, "--until")
    ranges, warnings = [], []
    for place in places:
        start = beginnings[place] if place.topic in from_beginning else requested.continued.get(place, first[place])
        if place in requested.continued and start > ends[place]:
            raise TransportError(
                f"{place.topic}-{place.partition}: earlier runs read up to offset {start}, but the log ends at "
                f"{ends[place]}: the topic was deleted and created again"
            )
        if start < beginnings[place]:
            text = (
                f"{place.topic}-{place.partition}: offsets {start} to {beginnings[place] - 1} are gone from the log"
                " (retention)"
            )
            if not requested.tolerate_loss:
                raise TransportError(f"{text}; --on-data-loss warn reads what is left")
            warnings.append(text)
        start = max(start, beginnings[place])
        stop = min(stops.get(place, ends[place]), ends[place])
        is_behind = max(stop, beginnings[place]) < start
        if requested.end == COMMITTED and place in requested.continued and is_behind:
            raise StateError(
                f"{place.topic}-{place.partition}: earlier runs read up to offset {start}, but group {group} has "
                f"committed {stop}: the group was reset to an earlier offset; begin with a new checkpoint"
            )
        ranges.append(LogRange(place, start, max(start, stop)))
    return ranges, warnings


def _committed_stops(
    consumer: Consumer,
    group: str,
    places: Sequence[TopicPartition],
    to_end: Collection[str],
    beginnings: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the committed offsets. A partition without one gets its end if its topic is in `to_end`, else its beginning."""
    committed = consumer.committed(places)
    read = [place for place in places if place.topic not in to_end]
    if not any(place in committed for place in read) and any(ends[place] > beginnings[place] for place in read):
        topics = ", ".join(sorted({place.topic for place in read}))
        raise StateError(
            f"group {group} has committed no offsets of {topics}, so `--until committed` would read nothing"
        )
    default = {place: (ends if place.topic in to_end else beginnings)[place] for place in places}
    return {place: committed[place].offset if place in committed else default[place] for place in places}


def _positions(
    consumer: Consumer, text: str, places: list[TopicPartition], default: dict[TopicPartition, int], option: str
) -> dict[TopicPartition, int]:
    if text == (EARLIEST if option == "--from" else LATEST):
        return default
    if text == COMMITTED:
        committed = consumer.committed(places)
        return {place: committed[place].offset if place in committed else default[place] for place in places}
    if os.path.isfile(text):
        offsets = _offsets_of(text, option)
        return {place: offsets.get(place, default[place]) for place in places}
    return consumer.offsets_for_times(dict.fromkeys(places, _time(text, option)))


def check_position(text: str, option: str) -> None:
    """Raise UsageError for a position that is neither a keyword, a time nor a file; the file's contents are not checked."""
    if text not in (EARLIEST if option == "--from" else LATEST, COMMITTED) and not os.path.isfile(text):
        _time(text, option)


def _offsets_of(path: str, option: str) -> dict[TopicPartition, int]:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        return {
            TopicPartition(topic, int(number)): _offset(offset)
            for topic, offsets in found.items()
            for number, offset in offsets.items()
        }
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f'{option} {path}: expected {{"topic": {{"0": 42, …}}, …}}: {error}') from error


def _offset(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not an offset")
    return value


def _time(text: str, option: str) -> int:
    return durations.option_time(
        option, text, EARLIEST if option == "--from" else LATEST, COMMITTED, "a file of offsets"
    )
