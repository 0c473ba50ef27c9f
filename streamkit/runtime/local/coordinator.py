"""The membership of this process: takes part in rebalances, assigns tasks to threads, and blocks commits meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from typing import NamedTuple

from streamkit.record import TaskId, TopicPartition
from streamkit.runtime.local.internal_topics import TopicsOnLog
from streamkit.runtime.local.subscription_codec import (
    InstanceMetadata,
    Subscription,
    decode_assignment,
    encode_subscription,
)
from streamkit.transport.log_interface import CommittedOffset, Membership, Rebalance

Describe = Callable[[int], Subscription]

_END_SECONDS = 10.0


class Share(NamedTuple):
    """The active tasks and the standbys of a thread."""

    active: Sequence[TaskId] = ()
    standby: Sequence[TaskId] = ()


class Coordinator:
    """Connects a membership with the threads; without a membership the process has all tasks."""

    def __init__(self, topics: TopicsOnLog, threads: Sequence[str], stateful: Collection[TaskId], describe: Describe):
        """`describe`: returns the subscription of this process, given its number of threads; `stateful`: tasks with changelogs."""
        self._topics = topics
        self._stateful = frozenset(stateful)
        self._threads = list(threads)
        self._describe = describe
        self.instances: tuple[InstanceMetadata, ...] = ()
        """The last decision of the group's leader: the tasks of each instance."""
        self.assigned = False
        """Whether this process has its assignment."""
        self._shares: Mapping[str, Share] = {}
        self._membership: Membership | None = None
        self._ends_all = False
        self._end_sent = False
        self._end_assigned_at: float | None = None
        self._others = 0
        self._metadata: bytes | None = None
        self._tasks: list[TaskId] = []
        self._standbys: list[TaskId] = []
        self._probe_at: float | None = None
        self._reassign = False
        self._lock = threading.Lock()
        self._blocked = False
        self._commits = 0

    def join(self, membership: Membership) -> None:
        """Join the application's group."""
        self._membership = membership
        self._send_subscription()

    def assign_all(self) -> dict[str, Share]:
        """Return the tasks of each thread if there is no group: the process has all tasks."""
        self._tasks = self._topics.tasks()
        server = self._describe(len(self._threads)).server
        self.instances = (InstanceMetadata(server, tuple(self._tasks)),)
        return self._assign_threads()

    def use_threads(self, assignments: Mapping[str, tuple[Sequence[TaskId], Sequence[TaskId]]]) -> None:
        """Set the threads, by name, with the last assignment of each: active tasks and standbys.

        If threads were added or removed, the tasks of this process are distributed over threads again, and the group may
        assign it further tasks.
        """
        if list(assignments) != self._threads:
            self._threads = list(assignments)
            self._reassign = self.assigned
            if self._membership is not None:
                self._send_subscription()
        elif self.assigned and any(
            self._shares.get(name, Share([], [])) != assignment for name, assignment in assignments.items()
        ):
            # Since the last call a new thread has replaced another one, under the same name.
            self._reassign = True

    @property
    def is_member(self) -> bool:
        """Whether the group has assigned tasks to this process, and has not removed it."""
        return self._membership is not None and self.assigned

    @property
    def all_must_end(self) -> bool:
        """Whether the group's assignment contains an instance's request that all instances stop.

        The requesting instance waits a few seconds for the others to leave. A member that has not received this
        assignment when another one leaves gets the next one, which contains the request only while its sender is a
        member.
        """
        at = self._end_assigned_at
        if at is None:
            return False
        return not self._ends_all or self._others == 0 or monotonic() - at > _END_SECONDS

    @property
    def rebalancing(self) -> bool:
        """Whether commits wait because the group is in a rebalance."""
        return self._blocked

    def poll(self, *, join: bool = True, wait_ms: int = 0) -> dict[str, Share] | None:
        """Poll the membership; return the threads' tasks if they changed. Raises FencedError, TransportError.

        join False: threads still apply the last assignment, or end, so that no rebalance may begin.
        """
        rebalance = None
        if self._membership is not None:
            if not join and not self._membership.joining():
                # What these threads do next is a commit.
                self._unblock_commits()
            if self._ends_all and not self._end_sent:
                self._end_sent = True
                self._send_subscription()
            if self._probe_at is not None and monotonic() >= self._probe_at:
                self._probe_at = None
                self._membership.rebalance()
            try:
                rebalance = self._membership.poll(wait_ms, join=join and self._may_join())
            except Exception:
                self.assigned = False
                self._unblock_commits()
                raise
        if rebalance is not None:
            self._take_rebalance(rebalance)
            self._unblock_commits()
        elif self._blocked or not (self._reassign and self.assigned and join and self._threads):
            # Threads that have to give up tasks commit first, and could not while a rebalance is due.
            return None
        return self._assign_threads()

    @contextmanager
    def committing(self) -> Iterator[bool]:
        """Block rebalances during a commit; yield False if one is in progress, so that the commit must wait for its end.

        A group rejects commits of its previous generation; a thread can't distinguish that from its removal
        (TaskManager.commit, which does nothing while rebalanceInProgress).
        """
        with self._lock:
            free = not self._blocked
            self._commits += free
        try:
            yield free
        finally:
            with self._lock:
                self._commits -= free

    def group_metadata(self) -> bytes | None:
        """Return the group's metadata for a transaction, with the generation; None without membership."""
        return self._metadata

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> bool:
        """Commit through the membership; return False if there is none. Raises FencedError."""
        if self._membership is None:
            return False
        self._membership.commit(offsets)
        return True

    def end_all(self) -> bool:
        """Request at the next poll that all instances stop, including this one; return False if there is no group."""
        if self._membership is None:
            return False
        self._ends_all = True
        return True

    def rejoin(self) -> None:
        """Request a rebalance: a thread has closed its tasks by itself."""
        if self._membership is not None:
            self.assigned = False
            self._membership.rebalance()

    def give_up(self, reason: str) -> None:
        """Leave the group in order to rejoin it, because a thread no longer processes. The next poll raises FencedError."""
        if self._membership is not None:
            self.assigned = False
            self._membership.give_up(reason)

    def leave(self) -> None:
        """Leave the group."""
        if self._membership is not None:
            self._membership.leave()

    def _send_subscription(self) -> None:
        assert self._membership is not None
        topics = {topic for inputs in self._topics.inputs.values() for topic in inputs}
        # A function, because the offset sums must be those at the time of the rebalance.
        self._membership.join(self._subscription, topics)

    def _subscription(self) -> bytes:
        return encode_subscription(replace(self._describe(len(self._threads)), end=self._ends_all))

    def _may_join(self) -> bool:
        """Block commits if a rebalance is due; return whether it may begin, that is, whether no commit is in progress."""
        assert self._membership is not None
        if not self._membership.gated:
            return True
        with self._lock:
            self._blocked = self._membership.rebalancing()
            return self._blocked and not self._commits

    def _unblock_commits(self) -> None:
        with self._lock:
            self._blocked = False

    def _assign_threads(self) -> dict[str, Share]:
        self.assigned, self._reassign = True, False
        previous = {name: [*share.active, *share.standby] for name, share in self._shares.items()}
        active = assign(self._tasks, self._threads, previous)
        standby = assign(self._standbys, self._threads, previous)
        self._shares = {name: Share(active[name], standby[name]) for name in self._threads}
        return self._shares

    def _take_rebalance(self, rebalance: Rebalance) -> None:
        """Apply the group's decision. Tasks are standbys while other members still own some of their partitions."""
        assert self._membership is not None
        assignment = decode_assignment(rebalance.data)
        self._metadata = self._membership.group_metadata()
        self._tasks = self._complete_tasks(rebalance.partitions)
        followed = self._stateful.intersection((*assignment.mine.standby, *assignment.mine.active))
        self._standbys = sorted(followed.difference(self._tasks))
        self.instances, self._others = assignment.instances, assignment.others
        if assignment.end and self._end_assigned_at is None:
            self._end_assigned_at = monotonic()
        self._probe_at = None if assignment.probe_ms is None else monotonic() + assignment.probe_ms / 1000

    def _complete_tasks(self, partitions: frozenset[TopicPartition]) -> list[TaskId]:
        """Return the tasks whose inputs are all owned; the other tasks wait for their last partition."""
        return [task for task in self._topics.tasks() if partitions.issuperset(self._topics.partitions_of(task))]


# Assigns tasks to threads: balanced, and sticky where balance allows it (a pure function; StickyTaskAssignor).


def assign(
    tasks: Collection[TaskId], members: Sequence[str], previous: Mapping[str, Collection[TaskId]] | None = None
) -> dict[str, list[TaskId]]:
    """Return the tasks of each member: loads differ by at most one; a task stays on its member unless that is full.

    Partitions of one sub-topology are spread over members. The same input gives the same result everywhere.

    >>> tasks = assign([TaskId(0, 0), TaskId(0, 1), TaskId(1, 0)], ["a", "b"])
    >>> {member: list(map(str, owned)) for member, owned in tasks.items()}
    {'a': ['0_0', '1_0'], 'b': ['0_1']}
    """
    if not members:
        return {}
    result: dict[str, list[TaskId]] = {member: [] for member in sorted(members)}
    floor, extra = divmod(len(tasks), len(result))
    left = _keep(tasks, result, previous or {}, floor, extra)
    for task in sorted(left):
        # The member with the fewest tasks, then with the fewest of the same sub-topology.
        target = min(
            result,
            key=lambda member: (
                len(result[member]),
                sum(t.sub_topology == task.sub_topology for t in result[member]),
                member,
            ),
        )
        result[target].append(task)
    for owned in result.values():
        owned.sort()
    return result


def _keep(
    tasks: Collection[TaskId],
    result: dict[str, list[TaskId]],
    previous: Mapping[str, Collection[TaskId]],
    floor: int,
    extra: int,
) -> set[TaskId]:
    """Assign members their previous tasks, up to a fair share; return the other tasks."""
    left = set(tasks)
    for member, owned in result.items():
        mine = sorted(left & set(previous.get(member, ())))
        room = floor + 1 if extra and len(mine) > floor else floor
        if len(mine) > floor and extra:
            extra -= 1
        owned.extend(mine[:room])
        left.difference_update(owned)
    return left
