"""A small application that counts, over the embedded log, and what it leaves there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.record import TopicPartition
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.log_interface import EARLIEST, NewTopic

PARTITIONS = 3
TEXT = """\
streamkit: 1
application: app
config:
  bootstrap.servers: embedded
topics:
  words: {{key: string, value: string, partitions: {partitions}}}
  counts: {{key: string, value: long, partitions: 1}}
pipelines:
  count:
    stream: words
    steps:
      - group_by_key
      - count: {{store: {{name: counts, persistent: {persistent}}}}}
      - to_stream
    to: counts
"""


def counting(folder: Path, *, persistent: bool = True, **config: Any) -> Plan:
    """Return the plan of a count by key with its state in `folder`; names of settings with underscores for dots."""
    folder.mkdir(exist_ok=True)
    path = folder / "count.yaml"
    path.write_text(TEXT.format(partitions=PARTITIONS, persistent=str(persistent).lower()))
    settings = {"state.dir": str(folder), "poll.ms": "5", "statestore.cache.max.bytes": "0", "commit.interval.ms": "20"}
    return load(path, {}, {**settings, **{name.replace("_", "."): str(value) for name, value in config.items()}})


def create(log: EmbeddedTransport) -> None:
    """Create the topics."""
    admin = log.admin()
    admin.create_topics([NewTopic("words", PARTITIONS), NewTopic("counts", 1)])
    admin.close()


def send(log: EmbeddedTransport, rounds: int, keys: int = 6) -> None:
    """Write every key so often; key n goes to partition n % PARTITIONS."""
    producer = log.producer()
    producer.send(
        [("words", f"k{key}".encode(), b"v", 1, None, key % PARTITIONS) for _ in range(rounds) for key in range(keys)]
    )
    producer.flush()
    producer.close()


def rows(log: EmbeddedTransport, topic: str, partitions: int = 1) -> list[tuple[str, int]]:
    """Return the (key, count) of a topic's committed records, in order."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    consumer = log.consumer(None, read_committed=True)
    try:
        ends = consumer.end_offsets(places)
        consumer.assign(dict.fromkeys(places, EARLIEST))
        found = []
        while any(consumer.position(place) < end for place, end in ends.items()):
            for batch in consumer.poll(1000, 10):
                found += [
                    (key.decode(), int.from_bytes(value)) for key, value in zip(batch.keys, batch.values, strict=True)
                ]
        return found
    finally:
        consumer.close()


def by_key(found: list[tuple[str, int]]) -> dict[str, list[int]]:
    """Return the counts of each key in the order in which they came."""
    result: dict[str, list[int]] = {}
    for key, count in found:
        result.setdefault(key, []).append(count)
    return result
