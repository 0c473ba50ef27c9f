"""Topics, and records that are written to a log and read again, for the tests of every log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic
from uuid import uuid4

import pytest

from streamkit.record import RecordBatch, TopicPartition
from streamkit.transport.log_interface import (
    Consumer,
    NewTopic,
    Transport,
)

PATIENCE = 180.0
KAFKA = pytest.param("kafka", marks=pytest.mark.broker)
KAFKA_IN_PYTHON = pytest.param("kafka in python", marks=pytest.mark.broker)
"""Without the native extension, which `kafka` uses where it is built."""


def attempts(what: Callable[[], str]) -> Iterator[None]:
    """Give turns until the caller has what it polls for; fail with what never came after PATIENCE."""
    deadline = monotonic() + PATIENCE
    while monotonic() < deadline:
        yield
    raise AssertionError(f"never: {what()}")


def create(transport: Transport, partitions: int, config: dict[str, str] | None = None) -> str:
    name = f"topic-{uuid4()}"
    admin = transport.admin()
    admin.create_topics([NewTopic(name, partitions, config or {})])
    admin.close()
    return name


def produce(transport: Transport, rows: list[tuple]) -> None:
    producer = transport.producer()
    producer.send(rows)
    producer.flush()
    producer.close()


def numbered(topic: str, first: int, last: int) -> list[tuple]:
    return [(topic, b"k", b"%d" % n, 1000 + n, None, 0) for n in range(first, last)]


def read_until(consumer: Consumer, done: Callable[[list[RecordBatch]], bool], limit: int = 500) -> list[RecordBatch]:
    batches: list[RecordBatch] = []
    for _ in attempts(lambda: f"all records: {sum(map(len, batches))} came"):
        if done(batches):
            break
        batches.extend(consumer.poll(limit, 200))
    return batches


def read(consumer: Consumer, count: int, limit: int = 500) -> list[RecordBatch]:
    return read_until(consumer, lambda batches: sum(map(len, batches)) >= count, limit)


def values(batches: list[RecordBatch]) -> list[bytes | None]:
    return [value for batch in batches for value in batch.values]


def reach_end(consumer: Consumer, place: TopicPartition) -> list[RecordBatch]:
    end = consumer.end_offsets([place])[place]
    return read_until(consumer, lambda _: consumer.position(place) >= end)
