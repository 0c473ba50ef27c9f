"""What the processes of test_embedded_processes.py do: `python embedded_worker.py write|member ARGUMENTS`."""

from __future__ import annotations

import sys
from pathlib import Path

from streamkit.record import TopicPartition
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.log_interface import Member, MemberAssignment

TOPIC = "t"
PARTITIONS = 4


def spread(members: dict[str, Member]) -> dict[str, MemberAssignment]:
    """Give the partitions out in turn, by member id."""
    names = sorted(members)
    shares: dict[str, list[TopicPartition]] = {name: [] for name in names}
    for number in range(PARTITIONS):
        shares[names[number % len(names)]].append(TopicPartition(TOPIC, number))
    return {name: MemberAssignment(tuple(share), name.encode()) for name, share in shares.items()}


def write(directory: str, name: str, count: str) -> None:
    producer = EmbeddedTransport(directory).producer()
    for n in range(int(count)):
        producer.send([(TOPIC, name.encode(), b"%d" % n, n, None, None)])
    producer.close()


def member(directory: str, name: str, session_ms: str) -> None:
    """Be a member until killed, printing what is owned after each change; revoked partitions are given up at once."""
    transport = EmbeddedTransport(directory, session_timeout_ms=int(session_ms))
    membership = transport.membership("g", name, spread)
    membership.join(bytes, [TOPIC])
    while True:
        change = membership.poll(1000)
        if change is not None:
            print(*sorted(p.partition for p in change.partitions), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    {"write": write, "member": member}[sys.argv[1]](*sys.argv[2:])
