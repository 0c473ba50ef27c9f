"""Topics of the benchmark: making them, filling the inputs, and reading what came out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.bench.inputs import MAKE, MARK, Record


def create(bootstrap: str, *names: str) -> None:
    """Make topics of one partition; the broker stamps their records, so one clock times every program."""
    _create(bootstrap, [NewTopic(name, 1, 1, config={"message.timestamp.type": "LogAppendTime"}) for name in names])


def fill(bootstrap: str, topic: str, name: str, count: int, partitions: int) -> None:
    """Make an input topic and write its records; markers go to every partition."""
    _create(bootstrap, [NewTopic(topic, partitions, 1)])
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 100, "partitioner": "murmur2_random", "acks": 1}
        | {"queue.buffering.max.messages": 1_000_000}
    )
    for number, record in enumerate(MAKE[name](count)):
        for partition in range(partitions) if record[0].startswith(MARK) else (-1,):
            _produce(producer, topic, partition, record)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()


def changelog(bootstrap: str, topic: str, records: Iterable[tuple[bytes, bytes, int]], partitions: int) -> None:
    """Make a changelog and write its records: (key, value, timestamp in ms)."""
    _create(bootstrap, [NewTopic(topic, partitions, 1, config={"cleanup.policy": "compact"})])
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 100, "partitioner": "murmur2_random", "acks": 1}
        | {"queue.buffering.max.messages": 1_000_000}
    )
    for number, record in enumerate(records):
        _produce(producer, topic, -1, record)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()


def append(bootstrap: str, topic: str, *records: Record, partition: int = 0) -> None:
    """Write further records."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for record in records:
        _produce(producer, topic, partition, record)
    producer.flush()


def _produce(producer: Producer, topic: str, partition: int, record: Record | tuple[bytes, bytes, int]) -> None:
    key, value, time = record
    while True:
        try:
            producer.produce(topic, value, key, partition, timestamp=time)
            return
        except BufferError:
            producer.poll(0.1)


def _create(bootstrap: str, new: list[NewTopic]) -> None:
    # The name keeps the client alive until the broker has answered.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics(new).values():
        made.result()


class Reader:
    """Reads a topic from its start to the end that it has now; only what is committed."""

    def __init__(self, bootstrap: str):
        settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "log_level": 0}
        self._consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.partition.eof": True})

    def end(self, topic: str) -> int:
        """The offset after the last record; 0 as long as a new topic has no leader."""
        try:
            return self._consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
        except KafkaException as error:
            if not error.args[0].retriable() and error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
                raise
            return 0

    def count_of(self, topic: str, key: str, back: int) -> int:
        """How many of the topic's last records have a key; `back`: how many to look at."""
        end = self.end(topic)
        return sum(found == key.encode() for found, _, _ in self.read(topic, max(0, end - back))) if end else 0

    def read(self, topic: str, start: int = 0) -> Iterator[tuple[bytes, bytes, int]]:
        """(key, value, time) of each record."""
        self._consumer.assign([TopicPartition(topic, 0, start)])
        while True:
            # Returns only when there are so many, or the time is over: the end of a partition does not end it.
            for message in self._consumer.consume(10_000, timeout=0.05):
                if message.error():
                    if message.error().code() == KafkaError._PARTITION_EOF:
                        return
                    raise KafkaException(message.error())
                yield message.key(), message.value(), message.timestamp()[1]

    def close(self) -> None:
        self._consumer.close()


def result(reader: Reader, topic: str, compare: str) -> str:
    """A digest of what a program wrote: the last value of every key, or all records in their or in any order."""
    rows = ((key, value) for key, value, _ in reader.read(topic))
    if compare == "last of a key":
        rows = iter(sorted(dict(rows).items()))
    elif compare == "any order":
        rows = iter(sorted(rows))
    digest = hashlib.sha256()
    for key, value in rows:
        digest.update(key + b"\0" + value + b"\0")
    return digest.hexdigest()[:16]


def mark_times(reader: Reader, topic: str) -> list[int]:
    """When markers were appended, in ascending order (ms): those of all partitions of the input."""
    return sorted(time for key, _, time in reader.read(topic) if key.startswith(MARK.encode()))


def marks(reader: Reader, topic: str) -> dict[int, tuple[int, int]]:
    """When each marker was appended: {number of the record: (first, last time in ms)}."""
    found: dict[int, tuple[int, int]] = {}
    for key, _, time in reader.read(topic):
        if key.startswith(MARK.encode()):
            number = int(key[1:])
            found[number] = (found.get(number, (time, time))[0], time)
    return found
