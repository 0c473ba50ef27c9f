"""Reads columns through the native extension, from a queue of its own.

Partitions are forwarded from the client's queue to that of the extension, so that nothing but records, ends of partitions
and errors of partitions is there. The client's own queue keeps what confluent-kafka serves: log lines, statistics, errors
of the client, tokens. Each `take` lets it serve them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, cast

from confluent_kafka import Consumer as Client
from confluent_kafka import KafkaError

from streamkit.record import Columns, RecordBatch, TopicPartition
from streamkit.transport.kafka.columns import ConsumedMessage, Event, Taken, split

if TYPE_CHECKING:
    from streamkit import _native

SLICE_SECONDS = 0.1
"""The longest wait for records before the client's own queue is served again."""
MAX_CLIENT_EVENTS = 100


class NativeReader:
    """Reads through a link of the extension, which belongs to the client."""

    def __init__(self, client: Client, link: _native.Consumer):
        self._consume = cast("Callable[[int, float], list[ConsumedMessage]]", client.consume)
        self._link = link
        self._unproven: set[TopicPartition] = set()
        """Partitions of which nothing came so far: the end of an earlier assignment may still take them back."""

    def forward(self, partitions: Sequence[TopicPartition]) -> None:
        """Forward partitions before they are assigned: librdkafka then leaves them where they are."""
        for partition in partitions:
            self._link.forward(*partition)
        self._unproven.update(partitions)

    def forget(self, partitions: Sequence[TopicPartition]) -> None:
        """Forward these partitions no more."""
        self._unproven.difference_update(partitions)

    def take(self, max_records: int, seconds: float) -> Taken:
        """Return available records and events; wait for the first one of either. Raises KafkaException."""
        end = monotonic() + seconds
        while True:
            # Runs callbacks. A record is here only where it came before its partition was forwarded.
            messages = self._consume(min(MAX_CLIENT_EVENTS, max_records), 0)
            if messages:
                return self._proven(split(messages))
            for partition in self._unproven:
                self._link.forward(*partition)
            left = max(end - monotonic(), 0)
            groups, events = self._link.take(max_records, round(min(left, SLICE_SECONDS) * 1000))
            if groups or events:
                return self._proven(_taken(groups, events))
            if left <= SLICE_SECONDS:
                return [], []

    def close(self) -> None:
        """Free the queue, before the client is closed."""
        self._link.close()

    def _proven(self, taken: Taken) -> Taken:
        if self._unproven:
            batches, events = taken
            self._unproven.difference_update([(batch.topic, batch.partition) for batch in batches])
            self._unproven.difference_update([(event.topic, event.partition) for event in events])
        return taken


def _taken(groups: Sequence[_native.Group], events: Sequence[_native.Event]) -> Taken:
    batches = [
        RecordBatch(topic, partition, Columns(keys, values, timestamps, headers, offsets), times)
        for topic, partition, keys, values, timestamps, headers, offsets, times in groups
    ]
    found = [Event(topic, place, offset, KafkaError(code, reason)) for topic, place, offset, code, reason in events]
    return batches, found
