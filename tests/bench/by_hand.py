"""The loop that one writes by hand on confluent-kafka: the floor that any framework in Python adds to.

python -m tests.bench.by_hand SCENARIO BOOTSTRAP GROUP INPUT OUTPUT PROGRESS
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from tests.bench import scenarios


def consumed(consumer: Consumer) -> Iterator[tuple[str, str]]:
    """Keys and values of the assigned topic, to its end."""
    while True:
        for message in consumer.consume(5_000, timeout=1):
            if message.error():
                if message.error().code() == KafkaError._PARTITION_EOF:
                    return
                raise KafkaException(message.error())
            yield message.key().decode(), message.value().decode()


def main(name: str, bootstrap: str, group: str, source: str, output: str, progress: str) -> None:
    settings: dict = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    # librdkafka waits a second before it fills its full queue up again: a floor must not stand on that default.
    settings |= {"fetch.queue.backoff.ms": 5}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
    consumer.subscribe([source])
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100, "queue.buffering.max.messages": 1_000_000})
    topics = {"out": output, "progress": progress}
    work = next(each.by_hand for each in scenarios.ALL if each.name == name)
    assert work is not None
    for number, (topic, key, value) in enumerate(work(consumed(consumer))):
        while True:
            try:
                producer.produce(topics[topic], value, key)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 5_000 == 0:
            producer.poll(0)
    producer.flush()
    consumer.commit(asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
