"""librdkafka's messages as columns: the hottest lines of the project, so one comprehension a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamkit.record import RecordBatch

NO_TIMESTAMP = -1


def to_batches(messages: Sequence[Any], single: tuple[str, int] | None) -> list[RecordBatch]:
    """Return the messages as one batch a partition, in the order of first appearance.

    single: the only partition that they can be of, if there is only one. See is_clean about events among them.
    """
    if single is not None:
        return [_batch(single[0], single[1], messages)]
    numbers = [m.partition() for m in messages]
    topics = [m.topic() for m in messages]
    first = (topics[0], numbers[0])
    if numbers.count(first[1]) == len(numbers) and topics.count(first[0]) == len(topics):
        return [_batch(*first, messages)]
    groups: dict[tuple[str, int], list[Any]] = {}
    last, add = None, None
    # Messages come in runs of one partition: most rounds are a comparison and an append.
    for place, message in zip(zip(topics, numbers, strict=True), messages, strict=True):
        if place != last:
            last, add = place, groups.setdefault(place, []).append
        add(message)  # type: ignore[misc]
    return [_batch(topic, number, group) for (topic, number), group in groups.items()]


def is_clean(batches: Sequence[RecordBatch]) -> bool:
    """Tell that surely no message was an event: errors and ends of partitions have no timestamp (nor have few records)."""
    return not any(NO_TIMESTAMP in batch.timestamps for batch in batches)


def _batch(topic: str, partition: int, messages: Sequence[Any]) -> RecordBatch:
    first, last = messages[0].offset(), messages[-1].offset()
    # Offsets grow, so without a gap between the ends there is none inside.
    # An error of the client as a whole has no offset.
    gapless = first is not None and last is not None and last - first + 1 == len(messages)
    return RecordBatch(
        topic,
        partition,
        (
            [m.key() for m in messages],
            [m.value() for m in messages],
            [m.timestamp()[1] for m in messages],
            [m.headers() for m in messages],
            list(range(first, last + 1)) if gapless else [m.offset() for m in messages],
        ),
    )


def split(batch: RecordBatch, count: int) -> tuple[RecordBatch, RecordBatch]:
    """Return the first `count` records of a batch, and the rest."""
    columns = (batch.keys, batch.values, batch.timestamps, batch.headers, batch.offsets)
    head = tuple(column[:count] for column in columns)
    rest = tuple(column[count:] for column in columns)
    return RecordBatch(batch.topic, batch.partition, head), RecordBatch(batch.topic, batch.partition, rest)  # type: ignore[arg-type]
