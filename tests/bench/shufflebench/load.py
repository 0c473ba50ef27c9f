"""The records of ShuffleBench: random bytes by a seed, what must come of them, and a producer at a steady rate."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.bench.shufflebench.functions import HEAD, MASK, Index, name, place, ranges

SIZE = 1024
"""Bytes of a record, as published."""
CHUNK = 2_000
START_MS = 1_700_000_000_000
TICK_SECONDS = 0.01


def records(count: int, seed: int = 1) -> Iterator[bytes]:
    """So many records."""
    draw = np.random.default_rng(seed)
    for start in range(0, count, CHUNK):
        drawn = draw.bytes(SIZE * min(CHUNK, count - start))
        for offset in range(0, len(drawn), SIZE):
            yield drawn[offset : offset + SIZE]


def matches(count: int, rules: int, selectivity: float, exponent: float) -> dict[str, tuple[int, int]]:
    """By consumer how many of the records it gets, and the sum of their first 8 bytes modulo 2**64."""
    index = Index(ranges(rules, selectivity, exponent))
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for data in records(count):
        first, second = HEAD.unpack_from(data)
        for _, consumers in index.matches(np.array([place(first, second)], dtype=np.uint64)):
            for consumer in consumers:
                counts[consumer] += 1
                sums[consumer] += first
    return {consumer: (number, sums[consumer] & MASK) for consumer, number in counts.items()}


def matched_one_by_one(data: bytes, found: list[tuple[int, int]]) -> list[str]:
    """The consumers of a record, by asking each rule: what the index must give."""
    own = place(*HEAD.unpack_from(data))
    return [name(rule) for rule, (begin, width) in enumerate(found) if (own - begin) % (1 << 63) < width]


def create(bootstrap: str, topic: str, partitions: int = 1, by_broker: bool = True) -> None:
    """Make a topic; `by_broker`: whether times of its records are those of their arrival."""
    kind = "LogAppendTime" if by_broker else "CreateTime"
    # The name keeps the client alive until the broker has answered.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(topic, partitions, 1, config={"message.timestamp.type": kind})]).values():
        made.result()
    # The broker that has made a topic lists it later, if other work keeps it busy.
    while len(admin.list_topics(topic).topics[topic].partitions) < partitions:
        pass


def fill(bootstrap: str, topic: str, count: int) -> None:
    """Write records to a topic of one partition, one a millisecond of event time."""
    producer = _producer(bootstrap)
    for number, data in enumerate(records(count)):
        _produce(producer, topic, data, 0, START_MS + number)
    producer.flush()


class Feeder:
    """Writes records at a steady rate until so many seconds are over, to all partitions in turns."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: int, seconds: float):
        self.count = int(rate * seconds)
        self._producer = _producer(bootstrap)
        self._topic = topic
        self._partitions = partitions
        self._rate = rate
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)

    def start(self) -> None:
        """Start to write."""
        self._thread.start()

    @property
    def writing(self) -> bool:
        """Whether it still writes."""
        return self._thread.is_alive()

    def end(self) -> None:
        """Wait until all records are written."""
        self._thread.join()
        self._producer.flush()

    def _run(self) -> None:
        pause = threading.Event()
        began = time.monotonic()
        for number, data in enumerate(records(self.count)):
            while number > (time.monotonic() - began) * self._rate:
                self._producer.poll(0)
                pause.wait(TICK_SECONDS)
            _produce(self._producer, self._topic, data, number % self._partitions, 0)


def _producer(bootstrap: str) -> Producer:
    return Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True, "delivery.timeout.ms": 900_000}
        | {"queue.buffering.max.kbytes": 200_000, "log_level": 3}
    )


def _produce(producer: Producer, topic: str, data: bytes, partition: int, time_ms: int) -> None:
    while True:
        try:
            producer.produce(topic, data, None, partition, timestamp=time_ms)
            return
        except BufferError:
            producer.poll(0.1)
