"""An application on the real broker or an embedded log: its file, its processes, and what it left on the log."""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from streamkit.errors import RetriableTransportError
from streamkit.record import TopicPartition
from streamkit.transport import open_transport
from streamkit.transport.log_interface import EARLIEST, Consumer, NewTopic, OpenTransaction, Transport
from tests.cli.support import LIMIT_S, Done, command, streamkit

_numbers = itertools.count(1)


def fresh(name: str) -> str:
    """A name that nothing on the session's broker has yet."""
    return f"{name}-{os.getpid()}-{next(_numbers)}"


def until(holds: Callable[[], Any], what: str, seconds: float = LIMIT_S) -> Any:
    """Call `holds` until it returns something true, and return that; fail with `what` after `seconds`.

    For what announces no change: the state of a broker, of another process, or the counters of a thread.
    """
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while True:
        found = holds()
        if found:
            return found
        assert time.monotonic() < deadline, f"never: {what}"
        pause.wait(0.02)


class Raw(NamedTuple):
    """A record as it lies on the log."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: list[tuple[str, bytes | None]]


class Log:
    """A log, Kafka or embedded, as a test looks at it."""

    def __init__(self, address: str, embedded_default: Path | None = None):
        self.address = address
        self.transport: Transport = open_transport(address, {}, str(embedded_default or "unused"))
        self._watchers: dict[str, Consumer] = {}

    def close(self) -> None:
        for consumer in self._watchers.values():
            consumer.close()
        self.transport.close()

    def create(self, topic: str, partitions: int, **config: str) -> None:
        with self._closing(self.transport.admin()) as admin:
            admin.create_topics([NewTopic(topic, partitions, config)])

    def topics(self, prefix: str) -> dict[str, int]:
        """Names that begin so, without the prefix, with their partition counts."""
        with self._closing(self.transport.admin()) as admin:
            found = admin.topics()
        return {name.removeprefix(prefix): info.partitions for name, info in found.items() if name.startswith(prefix)}

    def config(self, topic: str) -> dict[str, str]:
        with self._closing(self.transport.admin()) as admin:
            return admin.topic_config(topic)

    def write(self, rows: Iterable[tuple]) -> None:
        """Write rows (topic, key, value, timestamp, headers, partition) of bytes."""
        with self._closing(self.transport.producer()) as producer:
            producer.send(list(rows))
            producer.flush()

    def read(self, topic: str, *, committed_only: bool = False) -> list[Raw]:
        """Everything that a topic has now, partition by partition."""
        places = self._places(topic)
        found: list[Raw] = []
        with self._closing(self.transport.consumer(None, read_committed=committed_only)) as consumer:
            ends = consumer.end_offsets(places)
            consumer.assign(dict.fromkeys(places, EARLIEST))
            while any(consumer.position(place) < end for place, end in ends.items()):
                for batch in consumer.poll(5000, 100):
                    columns = (batch.offsets, batch.keys, batch.values, batch.timestamps, batch.headers)
                    for offset, key, value, time_ms, headers in zip(*columns, strict=True):
                        found.append(Raw(batch.partition, offset, key, value, time_ms, list(headers or [])))
        return sorted(found, key=lambda raw: raw[:2])

    def beginnings(self, topic: str) -> list[int]:
        with self._closing(self.transport.consumer(None)) as consumer:
            return list(consumer.beginning_offsets(self._places(topic)).values())

    def ends(self, topic: str, *, committed_only: bool = False) -> list[int]:
        with self._closing(self.transport.consumer(None, read_committed=committed_only)) as consumer:
            return list(consumer.end_offsets(self._places(topic)).values())

    def open_transactions(self, partitions: Sequence[TopicPartition], group: str) -> list[OpenTransaction]:
        """The transactions that are open on partitions, and those of a group on the topic of its offsets."""
        with self._closing(self.transport.admin()) as admin:
            return admin.open_transactions(partitions, group)

    def end_transaction(self, transaction: OpenTransaction, committed: bool) -> None:
        """Write the marker of a transaction that is lost."""
        with self._closing(self.transport.admin()) as admin:
            admin.end_transaction(transaction, committed)

    def committed(self, group: str, topic: str) -> dict[int, tuple[int, str]]:
        """A group's offset and metadata by partition."""
        with self._closing(self.transport.consumer(group)) as consumer:
            found = consumer.committed(self._places(topic))
        return {place.partition: (offset.offset, offset.metadata) for place, offset in found.items()}

    def read_so_far(self, group: str, topic: str) -> int:
        """How many records of a topic a group has committed."""
        return sum(offset for offset, _ in self.committed(group, topic).values())

    def remove_members(self, group: str) -> None:
        """End the sessions of the members that a group still has."""
        with self._closing(self.transport.admin()) as admin:
            admin.remove_members(group)

    def is_read(self, group: str, topics: Iterable[str]) -> bool:
        """Tell whether all topics exist and the group has committed all that they have."""
        with self._closing(self.transport.admin()) as admin:
            found = admin.topics(topics := set(topics))
        places = [TopicPartition(name, number) for name, info in found.items() for number in range(info.partitions)]
        if group not in self._watchers:
            self._watchers[group] = self.transport.consumer(group)
        consumer = self._watchers[group]
        # In this order: what is committed was flushed before, so what it made is in the ends.
        committed = consumer.committed(places)
        ends = consumer.end_offsets(places)
        read = {place: committed[place].offset if place in committed else 0 for place in places}
        return found.keys() == topics and read == ends

    def _places(self, topic: str) -> list[TopicPartition]:
        with self._closing(self.transport.admin()) as admin:
            info = admin.topics([topic]).get(topic)
        if info is None:
            # The metadata of a broker that has just started is incomplete.
            raise RetriableTransportError(f"the broker does not know the topic {topic}")
        return [TopicPartition(topic, number) for number in range(info.partitions)]

    @staticmethod
    @contextmanager
    def _closing(resource: Any) -> Any:
        try:
            yield resource
        finally:
            resource.close()


@dataclass
class App:
    """A topology file whose application, topics and state directory are its own."""

    path: Path
    application: str
    state: Path
    log: Log

    def topic(self, name: str) -> str:
        return f"{self.application}.{name}"

    @property
    def tasks(self) -> Path:
        """Where the tasks' directories are."""
        return self.state / self.application

    def run(self, *options: object) -> Done:
        """Run until idle."""
        return streamkit("run", self.path, "--until-idle", *options)

    def start(self, *options: object) -> subprocess.Popen:
        """Run until something ends it."""
        line = command("run", self.path, *options)
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def application(folder: Path, log: Log, name: str, text: str, **config: object) -> App:
    """Write a topology; `text` is what follows `config`, with {a} for the prefix of topics."""
    own = fresh(name)
    settings = {
        "bootstrap.servers": log.address,
        "state.dir": str(folder / "state"),
        "commit.interval.ms": 100,
        **{key.replace("_", "."): value for key, value in config.items()},
    }
    lines = [
        "streamkit: 1",
        f"application: {own}",
        "config:",
        *(f"  {key}: {value}" for key, value in settings.items()),
    ]
    path = folder / f"{own}.yaml"
    path.write_text("\n".join(lines) + "\n" + text.replace("{a}", f"{own}."))
    return App(path, own, folder / "state", log)


def finish(processes: Sequence[subprocess.Popen]) -> list[Done]:
    """Wait for the ends of processes."""
    done = []
    for process in processes:
        out, err = process.communicate(timeout=LIMIT_S)
        done.append(Done(process.returncode, out, err))
    return done


def kill(processes: Iterable[subprocess.Popen]) -> None:
    """Make sure that nothing goes on after a test that failed."""
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.communicate()
