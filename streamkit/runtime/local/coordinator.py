"""Decides which thread of which process runs which task, and follows the group's rebalances."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence

from streamkit.record import TopicPartition
from streamkit.runtime.local.assignor import Id, assign
from streamkit.runtime.local.instances import InstanceMetadata, decode_instances, encode_instances
from streamkit.runtime.local.setup import TopicsOnLog
from streamkit.transport.base import CommittedOffset, Member, MemberAssignment, Membership, Transport


class Coordinator:
    """Tasks over the members of the group: by threads, so that a member with more threads gets more.

    Without a membership (None) the process has all tasks to itself.
    """

    def __init__(self, topics: TopicsOnLog, threads: Sequence[str], server: str = ""):
        self._topics = topics
        self._threads = list(threads)
        self._server = server
        self.instances: tuple[InstanceMetadata, ...] = ()
        """What the group's leader said last of who holds what."""
        self.assigned = False
        """Whether this process knows what is its own."""
        self._owned: dict[str, list[Id]] = {}
        self._membership: Membership | None = None
        self._lock = threading.Lock()
        self._metadata: bytes | None = None

    def join(self, transport: Transport, group: str, member_id: str) -> None:
        """Join the application's group, on a transport that offers membership."""
        self._membership = transport.membership(group, member_id, self.decide)
        topics = {topic for inputs in self._topics.inputs.values() for topic in inputs}
        self._membership.join(self._describe(), topics)

    def first(self) -> dict[str, list[Id]]:
        """Return the tasks of each thread where there is no group to ask."""
        self.instances = (InstanceMetadata(self._server, tuple(self._topics.tasks())),)
        return self._spread(self._topics.tasks())

    def poll(self) -> dict[str, list[Id]] | None:
        """Take part in the group; return the threads' tasks when they changed. Raises FencedError, TransportError."""
        if self._membership is None:
            return None
        with self._lock:
            rebalance = self._membership.poll(0)
            if rebalance is None:
                return None
            self._metadata = self._membership.group_metadata()
            self.instances = decode_instances(rebalance.data)
        return self._spread(self._whole_tasks(rebalance.partitions))

    def group_metadata(self) -> bytes | None:
        """Return what a transaction carries to prove its generation; None without membership."""
        return self._metadata

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> bool:
        """Commit through the membership; False where there is none. Raises FencedError."""
        if self._membership is None:
            return False
        with self._lock:
            self._membership.commit(offsets)
        return True

    def rejoin(self) -> None:
        """Ask the group anew what is this process's own: a thread has given its tasks up."""
        if self._membership is not None:
            self._membership.rebalance()

    def leave(self) -> None:
        """Leave the group."""
        if self._membership is not None:
            with self._lock:
                self._membership.leave()

    def decide(self, members: Mapping[str, Member]) -> dict[str, MemberAssignment]:
        """Decide, as the leader, what each member should own (a pure function of what members tell)."""
        slots = {
            f"{name}/{number}": name
            for name, member in members.items()
            for number in range(max(1, json.loads(member.metadata or b"{}").get("threads", 1)))
        }
        previous: dict[str, list[Id]] = {}
        for name, member in members.items():
            mine = [slot for slot, owner in slots.items() if owner == name]
            for number, task in enumerate(self._whole_tasks(member.owned)):
                previous.setdefault(mine[number % len(mine)], []).append(task)
        wanted: dict[str, list[Id]] = {name: [] for name in members}
        for slot, tasks in assign(self._topics.tasks(), sorted(slots), previous).items():
            wanted[slots[slot]].extend(tasks)
        servers = {name: json.loads(member.metadata or b"{}").get("server", "") for name, member in members.items()}
        data = encode_instances(InstanceMetadata(servers[name], tuple(tasks)) for name, tasks in wanted.items())
        return {
            name: MemberAssignment(tuple(tp for task in tasks for tp in self._topics.partitions_of(task)), data)
            for name, tasks in wanted.items()
        }

    def _spread(self, tasks: list[Id]) -> dict[str, list[Id]]:
        self.assigned = True
        self._owned = assign(tasks, self._threads, self._owned)
        return self._owned

    def _whole_tasks(self, partitions: frozenset[TopicPartition]) -> list[Id]:
        """Return the tasks all of whose inputs are owned; the rest wait until their last partition is free."""
        return [task for task in self._topics.tasks() if partitions.issuperset(self._topics.partitions_of(task))]

    def _describe(self) -> bytes:
        return json.dumps({"threads": len(self._threads), "server": self._server}).encode()
