"""Decides which thread of which process runs which task, and follows the group's rebalances."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from streamkit.record import TopicPartition
from streamkit.runtime.local.assignor import Id, assign
from streamkit.runtime.local.instances import InstanceMetadata, decode_instances, encode_instances
from streamkit.runtime.local.setup import TopicsOnLog
from streamkit.transport.base import CommittedOffset, Member, MemberAssignment, Membership, Transport

END_ALL = b"end"
"""What the leader has for members when one of them asked that all end."""


class Share(NamedTuple):
    """What a thread runs, and what it keeps standbys of."""

    active: Sequence[Id] = ()
    standby: Sequence[Id] = ()


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
        self.all_must_end = False
        """Whether an instance has asked all to end, and the group has said so."""
        self._ends_all = False
        self._said_end = False
        self._metadata: bytes | None = None
        self._tasks: list[Id] = []
        self._respread = False
        self._gate = threading.Lock()
        self._closed = False
        self._commits = 0

    def join(self, transport: Transport, group: str, member_id: str) -> None:
        """Join the application's group, on a transport that offers membership."""
        self._membership = transport.membership(group, member_id, self.decide)
        self._say()

    def first(self) -> dict[str, Share]:
        """Return the tasks of each thread where there is no group to ask."""
        self._tasks = self._topics.tasks()
        self.instances = (InstanceMetadata(self._server, tuple(self._tasks)),)
        return self._spread()

    def use_threads(self, names: Sequence[str]) -> None:
        """Note that threads have come or gone: what this process owns is spread anew, and the group may give it more."""
        if list(names) == self._threads:
            return
        self._threads = list(names)
        self._respread = self.assigned
        if self._membership is not None:
            self._say()

    @property
    def is_member(self) -> bool:
        """Whether the group has given this process its tasks and not gone on without it."""
        return self._membership is not None and self.assigned

    @property
    def rebalancing(self) -> bool:
        """Whether commits are held off because the group finds its next generation."""
        return self._closed

    def poll(self, *, join: bool = True, wait_ms: int = 0) -> dict[str, Share] | None:
        """Take part in the group; return the threads' tasks when they changed. Raises FencedError, TransportError.

        join False: threads still follow the last rebalance, so that no other may begin.
        """
        rebalance = None
        if self._membership is not None:
            if self._ends_all and not self._said_end:
                self._said_end = True
                self._say()
            try:
                rebalance = self._membership.poll(wait_ms, join=join and self._may_join())
            except Exception:
                self.assigned = False
                self._open_gate()
                raise
        if rebalance is not None:
            assert self._membership is not None
            self._metadata = self._membership.group_metadata()
            self.all_must_end = rebalance.data == END_ALL
            if not self.all_must_end:
                self.instances = decode_instances(rebalance.data)
            self._tasks = self._whole_tasks(rebalance.partitions)
            self._open_gate()
        elif not (self._respread and join and self._threads):
            return None
        return self._spread()

    @contextmanager
    def committing(self) -> Iterator[bool]:
        """Hold rebalances off while a commit goes on; False: one goes on already, and the commit has to wait for its end.

        A group that has gone on to its next generation refuses the last one's commits, and a thread could not tell that
        from having been given up (TaskManager.commit, which does nothing while rebalanceInProgress).
        """
        with self._gate:
            free = not self._closed
            self._commits += free
        try:
            yield free
        finally:
            with self._gate:
                self._commits -= free

    def group_metadata(self) -> bytes | None:
        """Return what a transaction carries to prove its generation; None without membership."""
        return self._metadata

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> bool:
        """Commit through the membership; False where there is none. Raises FencedError."""
        if self._membership is None:
            return False
        self._membership.commit(offsets)
        return True

    def end_all(self) -> bool:
        """Have the next poll tell all instances to end, this one too; False where there is no group to tell."""
        if self._membership is None:
            return False
        self._ends_all = True
        return True

    def rejoin(self) -> None:
        """Ask the group anew what is this process's own: a thread has given its tasks up."""
        if self._membership is not None:
            self.assigned = False
            self._membership.rebalance()

    def give_up(self, reason: str) -> None:
        """Leave the group to join it again: its partitions can't be answered for. The next poll raises FencedError."""
        if self._membership is not None:
            self.assigned = False
            self._membership.give_up(reason)

    def leave(self) -> None:
        """Leave the group."""
        if self._membership is not None:
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
        told = {name: json.loads(member.metadata or b"{}") for name, member in members.items()}
        servers = {name: each.get("server", "") for name, each in told.items()}
        data = encode_instances(InstanceMetadata(servers[name], tuple(tasks)) for name, tasks in wanted.items())
        if any(each.get("end") for each in told.values()):
            data = END_ALL
        return {
            name: MemberAssignment(tuple(tp for task in tasks for tp in self._topics.partitions_of(task)), data)
            for name, tasks in wanted.items()
        }

    def _say(self) -> None:
        assert self._membership is not None
        topics = {topic for inputs in self._topics.inputs.values() for topic in inputs}
        said = {"threads": len(self._threads), "server": self._server, "end": self._ends_all}
        self._membership.join(json.dumps(said).encode(), topics)

    def _may_join(self) -> bool:
        """Close the gate for a rebalance that is due; it may begin when the last commit is through."""
        assert self._membership is not None
        if not self._membership.gated:
            return True
        with self._gate:
            self._closed = self._membership.rebalancing()
            return self._closed and not self._commits

    def _open_gate(self) -> None:
        with self._gate:
            self._closed = False

    def _spread(self) -> dict[str, Share]:
        self.assigned, self._respread = True, False
        self._owned = assign(self._tasks, self._threads, self._owned)
        return {name: Share(tasks) for name, tasks in self._owned.items()}

    def _whole_tasks(self, partitions: frozenset[TopicPartition]) -> list[Id]:
        """Return the tasks all of whose inputs are owned; the rest wait until their last partition is free."""
        return [task for task in self._topics.tasks() if partitions.issuperset(self._topics.partitions_of(task))]
