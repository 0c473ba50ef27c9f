"""`python -m tests.bench.take_over`: how long results pause while instances of one streams group are replaced one by one.

Three instances count events by key under load. Kafka Streams is restarted, then replaced by streamkit; streamkit is restarted,
then replaced by Kafka Streams. The group has the broker's default settings. A pause is the longest time between an event's
timestamp and the moment at which a reader of committed records gets its count.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from streamkit.record import TopicPartition
from streamkit.transport.kafka import KafkaTransport
from streamkit.transport.log_interface import LATEST, GroupDescription
from tests.broker.kafka_broker import Broker
from tests.broker.support import App, Log
from tests.chaos.instances import KAFKA_STREAMS, STREAMKIT, Instance, either_line
from tests.chaos.workload import KEYS, PARTITIONS, STREAMS, make
from tests.java import build

COUNT, LONGEST_S, QUIET_S, EACH_S = 3, 240, 5, 0.05
TASKS = 4 * PARTITIONS


class Load:
    """Writes events of now and reads their counts; `longest` is the longest pause since `begin`."""

    def __init__(self, app: App, rate: int):
        self.longest: dict[bytes, float] = {}
        self._topics = app.topic("events"), app.topic("counts")
        self._address, self._batch = app.log.address, max(1, round(rate * EACH_S))
        self._end = threading.Event()
        self._threads = [threading.Thread(target=call, daemon=True) for call in (self._write, self._read)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def begin(self) -> None:
        self.longest = {}

    def _write(self) -> None:
        with closing(KafkaTransport(self._address).producer()) as producer:
            number = 0
            while not self._end.wait(EACH_S):
                now = time.time_ns() // 1_000_000
                keys = [b"k%d" % ((number + each) % KEYS) for each in range(self._batch)]
                producer.send([(self._topics[0], key, b"x", now, None, None) for key in keys])
                number += self._batch

    def _read(self) -> None:
        with closing(KafkaTransport(self._address).consumer(None, read_committed=True)) as consumer:
            consumer.assign({TopicPartition(self._topics[1], number): LATEST for number in range(PARTITIONS)})
            while not self._end.is_set():
                batches = consumer.poll(5000, 50)
                now, longest = time.time(), self.longest
                for batch in batches:
                    for key, timestamp in zip(batch.keys, batch.timestamps, strict=True):
                        longest[key] = max(longest.get(key, 0.0), now - timestamp / 1000)


class Group:
    """The instances of the application."""

    def __init__(self, app: App):
        self.app = app
        self.running: list[Instance] = []
        self._launch = partial(either_line, build.ANCHOR)
        self._started = {STREAMKIT: 1, KAFKA_STREAMS: 2}

    def start(self, program: str) -> Instance:
        """Start an instance with a state directory of its own."""
        number = self._started[program]
        self._started[program] += 2
        instance = Instance(self.app, number, self._launch)
        instance.start()
        self.running.append(instance)
        return instance

    def restart(self, instance: Instance) -> None:
        instance.end()
        instance.start()

    def replace(self, instance: Instance, program: str) -> None:
        self.running.remove(instance)
        instance.end()
        self.start(program)

    def settle(self) -> None:
        """Wait until all tasks are shared for some seconds. Raises TimeoutError."""
        deadline, since = time.monotonic() + LONGEST_S, 0.0
        with closing(self.app.log.transport.admin()) as admin:
            while True:
                now = time.monotonic()
                if not self._is_shared(admin.describe_group(self.app.application)):
                    since = 0.0
                elif not since:
                    since = now
                elif now - since > QUIET_S:
                    return
                if now > deadline:
                    raise TimeoutError("the group does not settle")
                time.sleep(0.2)

    def _is_shared(self, group: GroupDescription) -> bool:
        own = {partition for member in group.members for partition in member.partitions}
        # The join reads two topics in one task.
        return not group.rebalancing and len(own) == TASKS + PARTITIONS

    def kill(self) -> None:
        for instance in self.running:
            instance.kill()


def _measure(what: str, group: Group, load: Load, change: Callable[[Instance], None]) -> None:
    pauses = []
    for instance in list(group.running):
        load.begin()
        change(instance)
        group.settle()
        pauses.append(max(load.longest.values()))
    print(
        f"{what}: longest pause of a key {max(pauses):.1f} s ({', '.join(f'{each:.1f}' for each in pauses)})",
        flush=True,
    )


def main() -> None:
    """Print the pauses."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.take_over", description=__doc__)
    parser.add_argument("--guarantee", choices=("exactly_once_v2", "at_least_once"), default="exactly_once_v2")
    parser.add_argument("--rate", type=int, default=500, help="events a second")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, Broker(version=build.ANCHOR) as broker:
        log = Log(broker.address)
        app = make(Path(place), log, options.guarantee, STREAMS)
        group, load = Group(app), Load(app, options.rate)
        try:
            for _ in range(COUNT):
                group.start(KAFKA_STREAMS)
            load.start()
            group.settle()
            _measure("Kafka Streams restarted", group, load, group.restart)
            _measure("Kafka Streams to streamkit", group, load, lambda each: group.replace(each, STREAMKIT))
            _measure("streamkit restarted", group, load, group.restart)
            _measure("streamkit to Kafka Streams", group, load, lambda each: group.replace(each, KAFKA_STREAMS))
        finally:
            load.end()
            group.kill()
            log.close()


if __name__ == "__main__":
    main()
