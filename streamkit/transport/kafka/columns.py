"""Columns of librdkafka's messages: the hottest code of the project, therefore one comprehension for each column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, cast

from confluent_kafka import Consumer as Client
from confluent_kafka import KafkaError

from streamkit.record import Columns, Headers, RecordBatch, TopicPartition

NO_TIMESTAMP = -1


class Event(NamedTuple):
    """An error, or the end of a partition, among the records; `topic` is None where it is the client's."""

    topic: str | None
    partition: int
    offset: int
    error: KafkaError


Taken = tuple[list[RecordBatch], list[Event]]
"""Records as batches, and the events among them."""


class Reader(Protocol):
    """Takes what a client has fetched."""

    def forward(self, partitions: Sequence[TopicPartition]) -> None:
        """Prepare for partitions that are about to be assigned."""

    def forget(self, partitions: Sequence[TopicPartition]) -> None:
        """Note that partitions are no longer assigned."""

    def take(self, max_records: int, seconds: float) -> Taken:
        """Return available records and events; wait for the first one of either. Raises KafkaException."""

    def close(self) -> None:
        """Free what the reader has, before the client is closed."""


class ConsumedMessage(Protocol):
    """confluent_kafka.Message with the types of a record; only an event (see `error`) has None in place of some."""

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Headers | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def error(self) -> KafkaError | None: ...


class MessageReader:
    """Reads through confluent-kafka's messages."""

    def __init__(self, client: Client):
        # The stub of a message allows None in each field, which only events have.
        self._consume = cast("Callable[[int, float], list[ConsumedMessage]]", client.consume)
        self._assigned: set[TopicPartition] = set()

    def forward(self, partitions: Sequence[TopicPartition]) -> None:
        self._assigned.update(partitions)

    def forget(self, partitions: Sequence[TopicPartition]) -> None:
        self._assigned.difference_update(partitions)

    def take(self, max_records: int, seconds: float) -> Taken:
        # With a timeout consume() waits for all max_records; therefore take available records, then wait for one.
        messages = self._consume(max_records, 0)
        if not messages and seconds > 0:
            messages = self._consume(1, seconds)
            if messages and max_records > 1:
                messages += self._consume(max_records - 1, 0)
        only = next(iter(self._assigned)) if len(self._assigned) == 1 else None
        return split(messages, only) if messages else ([], [])

    def close(self) -> None:
        """Do nothing: the client has everything."""


def split(messages: Sequence[ConsumedMessage], only: TopicPartition | None = None) -> Taken:
    """Return the records among messages as one batch a partition, in the order of first appearance, and the events.

    only: the one partition that is assigned; None where there are several.
    """
    batches = _to_batches(messages) if only is None else [_batch(*only, messages)]
    # Events, and few records, have no timestamp.
    if not any(NO_TIMESTAMP in batch.timestamps for batch in batches):
        return batches, []
    records, events = [], []
    for message in messages:
        error = message.error()
        if error is None:
            records.append(message)
        else:
            events.append(Event(message.topic(), message.partition(), message.offset(), error))
    return _to_batches(records) if records else [], events


def _to_batches(messages: Sequence[ConsumedMessage]) -> list[RecordBatch]:
    numbers = [m.partition() for m in messages]
    topics = [m.topic() for m in messages]
    first = (topics[0], numbers[0])
    if numbers.count(first[1]) == len(numbers) and topics.count(first[0]) == len(topics):
        return [_batch(*first, messages)]
    groups: dict[tuple[str, int], list[ConsumedMessage]] = {}
    last: tuple[str, int] | None = None
    add: Callable[[ConsumedMessage], None] = list[ConsumedMessage]().append
    # Messages come in runs of one partition: most rounds are a comparison and an append.
    for place, message in zip(zip(topics, numbers, strict=True), messages, strict=True):
        if place != last:
            last, add = place, groups.setdefault(place, []).append
        add(message)
    return [_batch(topic, number, group) for (topic, number), group in groups.items()]


def _batch(topic: str, partition: int, messages: Sequence[ConsumedMessage]) -> RecordBatch:
    first, last = messages[0].offset(), messages[-1].offset()
    # Offsets ascend: where the first and the last fit the count, there is no gap. An error of the client has no offset.
    gapless = first is not None and last is not None and last - first + 1 == len(messages)
    return RecordBatch(
        topic,
        partition,
        Columns(
            [m.key() for m in messages],
            [m.value() for m in messages],
            [m.timestamp()[1] for m in messages],
            [m.headers() for m in messages],
            list(range(first, last + 1)) if gapless else [m.offset() for m in messages],
        ),
    )
