"""What became of the records at an offset that a partition does not have."""

from __future__ import annotations

from streamkit.errors import OffsetOutOfRangeError, TransportError
from streamkit.record import TopicPartition
from streamkit.transport.log_interface import Consumer

DELETED = "by the topic's retention (retention.ms, retention.bytes) or on request (delete-records)"


def describe_lost(consumer: Consumer, error: OffsetOutOfRangeError) -> str:
    """Return what became of the records at the position of a partition, and its place; the error's text where no broker tells."""
    partition = TopicPartition(error.topic, error.partition)
    try:
        first = consumer.beginning_offsets([partition])[partition]
        end = consumer.end_offsets([partition])[partition]
        position = consumer.position(partition)
    except (TransportError, KeyError):
        return str(error)
    place = f"{partition.topic}-{partition.partition}"
    if position < first:
        return (
            f"{place}: the records from offset {position} to {first - 1} were deleted before they were read, {DELETED}"
        )
    if position > end:
        return (
            f"{place}: the next offset is {position}, and the partition ends at {end}: the topic was deleted and created "
            "again, or its log was truncated"
        )
    return str(error)
