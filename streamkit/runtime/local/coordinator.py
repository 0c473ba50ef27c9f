"""This process's place in the group: follows its rebalances, spreads what is its own over threads, holds commits off."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from typing import NamedTuple

from streamkit.record import TopicPartition
from streamkit.runtime.local.assignment.codec import Subscription, decode_assignment, encode_subscription
from streamkit.runtime.local.assignor import Id, assign
from streamkit.runtime.local.instances import InstanceMetadata
from streamkit.runtime.local.setup import TopicsOnLog
from streamkit.transport.base import CommittedOffset, Membership, Rebalance

Describe = Callable[[int], Subscription]


class Share(NamedTuple):
    """What a thread runs, and what it keeps standbys of."""

    active: Sequence[Id] = ()
    standby: Sequence[Id] = ()


class Coordinator:
    """Between a membership and the threads; without a membership the process has all tasks to itself."""

    def __init__(self, topics: TopicsOnLog, threads: Sequence[str], stateful: Collection[Id], describe: Describe):
        """`describe`: tells the group of this process, given its number of threads; `stateful`: tasks with changelogs."""
        self._topics = topics
        self._stateful = frozenset(stateful)
        self._threads = list(threads)
        self._describe = describe
        self.instances: tuple[InstanceMetadata, ...] = ()
        """The last decision of the group's leader: which instance holds which tasks."""
        self.assigned = False
        """Whether this process knows what is its own."""
        self._shares: Mapping[str, Share] = {}
        self._membership: Membership | None = None
        self.all_must_end = False
        """Whether an instance has asked all to end, and the group has said so."""
        self._ends_all = False
        self._said_end = False
        self._metadata: bytes | None = None
        self._tasks: list[Id] = []
        self._standbys: list[Id] = []
        self._probe_at: float | None = None
        self._respread = False
        self._gate = threading.Lock()
        self._closed = False
        self._commits = 0

    def join(self, membership: Membership) -> None:
        """Join the application's group."""
        self._membership = membership
        self._say()

    def first(self) -> dict[str, Share]:
        """Return the tasks of each thread where there is no group to ask."""
        self._tasks = self._topics.tasks()
        server = self._describe(len(self._threads)).server
        self.instances = (InstanceMetadata(server, tuple(self._tasks)),)
        return self._spread()

    def use_threads(self, told: Mapping[str, tuple[Sequence[Id], Sequence[Id]]]) -> None:
        """Note the threads, by name, with what each was told last to run and to keep standbys of.

        Where threads have come or gone, what this process owns is spread again, and the group may give it more.
        """
        if list(told) != self._threads:
            self._threads = list(told)
            self._respread = self.assigned
            if self._membership is not None:
                self._say()
        elif self.assigned and any(self._shares.get(name, Share([], [])) != given for name, given in told.items()):
            # One has taken the place of another, and its name, between two looks.
            self._respread = True

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
            if self._probe_at is not None and monotonic() >= self._probe_at:
                self._probe_at = None
                self._membership.rebalance()
            try:
                rebalance = self._membership.poll(wait_ms, join=join and self._may_join())
            except Exception:
                self.assigned = False
                self._open_gate()
                raise
        if rebalance is not None:
            self._take(rebalance)
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
        """Ask the group again what this process owns: a thread has given its tasks up."""
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

    def _say(self) -> None:
        assert self._membership is not None
        topics = {topic for inputs in self._topics.inputs.values() for topic in inputs}
        # As a function: how far state is, is told as it is when the group meets.
        self._membership.join(self._word, topics)

    def _word(self) -> bytes:
        return encode_subscription(replace(self._describe(len(self._threads)), end=self._ends_all))

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
        held = {name: [*share.active, *share.standby] for name, share in self._shares.items()}
        active = assign(self._tasks, self._threads, held)
        standby = assign(self._standbys, self._threads, held)
        self._shares = {name: Share(active[name], standby[name]) for name in self._threads}
        return self._shares

    def _take(self, rebalance: Rebalance) -> None:
        """Note what the group has decided. What other members have not given up yet is followed as a standby until then."""
        assert self._membership is not None
        said = decode_assignment(rebalance.data)
        self._metadata = self._membership.group_metadata()
        self._tasks = self._whole_tasks(rebalance.partitions)
        followed = self._stateful.intersection((*said.mine.standby, *said.mine.active))
        self._standbys = sorted(followed.difference(self._tasks))
        self.instances, self.all_must_end = said.instances, said.end
        self._probe_at = None if said.probe_ms is None else monotonic() + said.probe_ms / 1000

    def _whole_tasks(self, partitions: frozenset[TopicPartition]) -> list[Id]:
        """Return the tasks all of whose inputs are owned; the rest wait until their last partition is free."""
        return [task for task in self._topics.tasks() if partitions.issuperset(self._topics.partitions_of(task))]
