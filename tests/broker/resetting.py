"""Kafka's own reset tool, kept running, and an application whose offsets and internal topics can be put back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient

from streamkit.record import TopicPartition
from streamkit.transport.log_interface import CommittedOffset
from tests.broker.kafka_broker import jars
from tests.broker.support import LIMIT_S, App, Log, application

_SOURCE = Path(__file__).parent / "java" / "Resets.java"
EARLY, LATE = 1_600_000_000_000, 1_700_000_000_000
INPUTS = ("clicks", "users")
RECORDS = 10
INTERNAL = (
    "counts-changelog",
    "counts-repartition",
    "KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000007-topic",
    "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000015-topic",
    "old-version-changelog",
)
TOPOLOGY = """\
topics:
  clicks: {topic: "{a}clicks", key: string, value: string}
  users: {topic: "{a}users", key: string, value: string}
  counted: {topic: "{a}counted", key: string, value: string}
pipelines:
  counting:
    stream: clicks
    steps:
      - join: {with: {table: users}, value: left + right, value_serde: string}
      - group_by: {key: value, key_serde: string}
      - count: counts
"""


class JavaTool:
    """org.apache.kafka.tools.StreamsResetter in one process for many calls."""

    def __init__(self, process: subprocess.Popen):
        self._process = process

    def reset(self, *arguments: object) -> tuple[int, str]:
        """Return the exit code and the output of one call."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(map(str, arguments)) + "\n")
        self._process.stdin.flush()
        lines = []
        for line in self._process.stdout:
            if line.startswith("EXIT CODE "):
                return int(line.split()[-1]), "".join(lines)
            lines.append(line)
        raise AssertionError(f"the tool ended: {''.join(lines)}")


@contextmanager
def java_tool() -> Iterator[JavaTool]:
    """Kafka's own tool, until the end of the block."""
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars()}/*", str(_SOURCE)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield JavaTool(process)
    finally:
        process.communicate()


@dataclass(frozen=True)
class Left:
    """What a reset left: committed offsets by topic and partition, and the internal topics."""

    offsets: dict[tuple[str, int], tuple[int, str]]
    internal: frozenset[str]


class Resettable:
    """An application that has read some of its input, as often as one likes."""

    def __init__(self, folder: Path, log: Log):
        self.app: App = application(folder, log, "resettable", TOPOLOGY)
        for name in (*INPUTS, "counted"):
            log.create(self.app.topic(name), 3)
        log.create(f"{self.app.application}-notes", 1)
        for name in INPUTS:
            topic = self.app.topic(name)
            # Partition 2 stays empty; 1 has its records at two times.
            log.write(
                (topic, b"k", b"v", (EARLY if number < 6 else LATE) + number, None, partition)
                for partition in (0, 1)
                for number in range(RECORDS)
            )
        self._commit()
        with closing(log.transport.admin()) as admin:
            admin.delete_records({TopicPartition(self.app.topic(INPUTS[0]), 0): 2})

    def put_back(self) -> None:
        """Commit the offsets and create the topics that an application in the middle of its work has."""
        log, group = self.app.log, self.app.application
        for name in INTERNAL:
            log.create(f"{group}-{name}", 1)
        # Its answers come only while the client is there.
        admin = AdminClient({"bootstrap.servers": log.address})
        admin.delete_consumer_groups([group])[group].result(LIMIT_S)
        self._commit()

    def _commit(self) -> None:
        # Nothing is committed for partition 2.
        middle = {TopicPartition(self.app.topic(name), number): 5 + number for name in INPUTS for number in (0, 1)}
        with closing(self.app.log.transport.consumer(self.app.application)) as consumer:
            consumer.commit({place: CommittedOffset(offset, "AgAAAAAAAAPo") for place, offset in middle.items()})

    def left(self) -> Left:
        """What there is now."""
        log, group = self.app.log, self.app.application
        offsets = {
            (name, partition): found
            for name in INPUTS
            for partition, found in log.committed(group, self.app.topic(name)).items()
        }
        return Left(offsets, frozenset(log.topics(f"{group}-")))
