"""Topics of the benchmark: making them, filling the input, and reading what came out."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.bench.scenarios import MARK

KEYS, WORDS, WORDS_A_LINE, MARKS = 10_000, 5_000, 5, 60


def create(bootstrap: str, *names: str) -> None:
    """Make topics of one partition; the broker stamps their records, so one clock times every program."""
    _create(bootstrap, [NewTopic(name, 1, 1, config={"message.timestamp.type": "LogAppendTime"}) for name in names])


def lines(count: int, seed: int = 1) -> Iterator[tuple[str, str]]:
    """The input: keys and lines of words, and a marker after every sixtieth part; the last line is one."""
    rng = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    vocabulary = ["".join(rng.choices(letters, k=rng.randint(3, 9))) for _ in range(WORDS)]
    step = count // MARKS
    for number in range(1, count + 1):
        if number % step == 0:
            marker = f"{MARK}{number:07d}"
            yield marker, marker
        else:
            yield f"key-{rng.randrange(KEYS)}", " ".join(rng.choices(vocabulary, k=WORDS_A_LINE))


def fill(bootstrap: str, topic: str, count: int) -> None:
    _create(bootstrap, [NewTopic(topic, 1, 1)])
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100, "queue.buffering.max.messages": 1_000_000})
    for number, (key, value) in enumerate(lines(count)):
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()


def _create(bootstrap: str, new: list[NewTopic]) -> None:
    # The name keeps the client alive until the broker has answered.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics(new).values():
        made.result()


class Reader:
    """Reads a topic from its start to the end that it has now."""

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

    def last(self, topic: str) -> str | None:
        """The key of the topic's last record."""
        end = self.end(topic)
        return next((key for key, _, _ in self.read(topic, end - 1)), None) if end else None

    def read(self, topic: str, start: int = 0) -> Iterator[tuple[str, bytes, int]]:
        """(key, value, time) of each record."""
        self._consumer.assign([TopicPartition(topic, 0, start)])
        while True:
            for message in self._consumer.consume(10_000, timeout=5):
                if message.error():
                    if message.error().code() == KafkaError._PARTITION_EOF:
                        return
                    raise KafkaException(message.error())
                yield message.key().decode(), message.value(), message.timestamp()[1]

    def close(self) -> None:
        self._consumer.close()


def result(reader: Reader, topic: str, last_per_key: bool) -> str:
    """A digest of what a program wrote: the last value of every key, or all records in order."""
    digest = hashlib.sha256()
    if last_per_key:
        latest = {key: value for key, value, _ in reader.read(topic)}
        rows = sorted(latest.items())
    else:
        rows = ((key, value) for key, value, _ in reader.read(topic))
    for key, value in rows:
        digest.update(key.encode() + b"\0" + value + b"\0")
    return digest.hexdigest()[:16]


def marks(reader: Reader, topic: str) -> dict[int, int]:
    """When each marker was appended: {number of the input line: milliseconds}."""
    return {int(key[1:]): time for key, _, time in reader.read(topic) if key.startswith(MARK)}
