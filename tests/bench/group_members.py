"""`python -m tests.bench.group_members [--instances N]`: many instances in one streams group of a real broker.

Each is a member with the protocol of `streamkit run` and no task to process. Prints how long the group takes to give each
instance its share, and what heartbeats cost the broker.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

from streamkit.record import TopicPartition
from streamkit.transport.kafka import KafkaTransport
from streamkit.transport.kafka.streams_membership import StreamsMembership
from streamkit.transport.log_interface import Rebalance, StreamsInstance, StreamsTopology, SubTopologyTopics
from tests.broker.kafka_broker import Broker
from tests.broker.support import Log
from tests.java import build

GROUP, TOPIC = "many", "many-in"
STEADY_S, LONGEST_S = 60, 300
POLL_MS = 300_000


class Members:
    """Members of one group, and the requests that they have sent."""

    def __init__(self, address: str, threads: int):
        self.sent = 0
        self.opened: list[StreamsMembership] = []
        self._address = address
        self._owned: dict[StreamsMembership, frozenset[TopicPartition]] = {}
        self._topology = StreamsTopology(
            {0: SubTopologyTopics((TOPIC,), (), (), (), ())},
            lambda task: [TopicPartition(TOPIC, task.partition)],
            lambda data: StreamsInstance(data.decode(), POLL_MS, threads=threads),
            lambda assignment: b"",
        )

    def join(self) -> StreamsMembership:
        member = KafkaTransport(self._address).streams_membership(GROUP, "instance", self._topology)
        assert isinstance(member, StreamsMembership)
        send = member._coordinator.send

        def counted(request: object) -> object:
            self.sent += 1
            return send(request)

        member._coordinator.send = counted  # type: ignore[method-assign]
        self.opened.append(member)
        name = f"process-{len(self.opened)}".encode()
        member.join(lambda: name, ())
        return member

    def leave(self, member: StreamsMembership) -> None:
        self.opened.remove(member)
        self._owned.pop(member, None)
        member.leave()

    def poll(self) -> None:
        for member in self.opened:
            change: Rebalance | None = member.poll(0)
            if change is not None:
                self._owned[member] = change.partitions

    def settle(self, partitions: int) -> float:
        """Poll until all partitions are shared evenly; return the seconds. Raises TimeoutError."""
        least, most = partitions // len(self.opened), -(-partitions // len(self.opened))

        def even() -> bool:
            shares = [self._owned.get(member, frozenset()) for member in self.opened]
            return all(least <= len(share) <= most for share in shares) and sum(map(len, shares)) == partitions

        return self.go_on(even, LONGEST_S)

    def go_on(self, done: Callable[[], bool], limit: float) -> float:
        began = time.monotonic()
        while not done():
            self.poll()
            time.sleep(0.02)
            if time.monotonic() - began > limit:
                raise TimeoutError(f"not within {limit} s")
        return time.monotonic() - began


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.group_members", description=__doc__)
    parser.add_argument("--instances", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2, help="tasks of each instance; an instance is one member")
    options = parser.parse_args()
    partitions = options.instances * options.threads
    settings = "group.streams.initial.rebalance.delay.ms=0\n"
    with Broker(settings=settings, version=build.ANCHOR, measured=True) as broker:
        assert broker._process is not None
        process = broker._process.pid
        log = Log(broker.address)
        log.create(TOPIC, partitions)
        log.close()
        members = Members(broker.address, options.threads)
        began = cpu_seconds(process)
        for _ in range(options.instances):
            members.join()
        seconds = members.settle(partitions)
        print(f"{options.instances} instances join: {seconds:.1f} s, broker {cpu_seconds(process) - began:.1f} CPU s")
        sent, began, start = members.sent, cpu_seconds(process), time.monotonic()
        members.go_on(lambda: time.monotonic() - start > STEADY_S, 2 * STEADY_S)
        rate, share = (members.sent - sent) / STEADY_S, (cpu_seconds(process) - began) / STEADY_S
        print(f"steady: {rate:.1f} heartbeats/s, broker {100 * share:.1f} % of a core")
        for member in members.opened[: options.instances // 10]:
            members.leave(member)
        print(f"a tenth leaves: {members.settle(partitions):.1f} s")
        for _ in range(options.instances - len(members.opened)):
            members.join()
        print(f"a tenth joins: {members.settle(partitions):.1f} s")
        for member in list(members.opened):
            members.leave(member)


if __name__ == "__main__":
    main()
