"""The leader of a group: from what its members say to what each of them owns (StreamsPartitionAssignor.assign)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from streamkit.errors import TransportError
from streamkit.record import TopicPartition
from streamkit.runtime.local.assignment.assign import FAR, decide
from streamkit.runtime.local.assignment.codec import Assignment, Subscription, decode_subscription, encode_assignment
from streamkit.runtime.local.assignment.model import Decision, Instance, Rules
from streamkit.runtime.local.assignor import Id
from streamkit.runtime.local.instances import InstanceMetadata
from streamkit.runtime.local.local_task import RUNNING
from streamkit.runtime.local.setup import TopicsOnLog
from streamkit.transport.base import Member, MemberAssignment

log = logging.getLogger(__name__)

Ends = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]
"""Asks the log for the ends of partitions; raises TransportError."""


class Leader:
    """Decides for a group; every member has one, and the group asks one of them."""

    def __init__(
        self, topics: TopicsOnLog, changelogs: Mapping[Id, Collection[TopicPartition]], rules: Rules, ends: Ends
    ):
        """`changelogs`: of the tasks that have state."""
        self._topics = topics
        self._changelogs = changelogs
        self._rules = rules
        self._ends = ends

    def decide(self, members: Mapping[str, Member]) -> dict[str, MemberAssignment]:
        """Return what each member should own, with the whole decision as data."""
        tasks = self._topics.tasks()
        said = {name: decode_subscription(member.metadata) for name, member in sorted(members.items())}
        totals = self._totals()
        instances = {name: self._instance(members[name], each, tasks, totals) for name, each in said.items()}
        decision = decide(instances, tasks, totals or dict.fromkeys(self._changelogs, FAR), self._rules)
        if decision.missing_standbys:
            log.info("%d standbys have no instance left that could keep them", decision.missing_standbys)
        # Without the ends only the instance that runs a task counts as caught up: another look soon.
        return self._assignments(said, decision, probe=decision.probe or (totals is None and len(said) > 1))

    def _assignments(
        self, said: Mapping[str, Subscription], decision: Decision, probe: bool
    ) -> dict[str, MemberAssignment]:
        parts = {
            name: InstanceMetadata(each.server, tuple(decision.active[name]), tuple(decision.standby[name]))
            for name, each in said.items()
        }
        # Only instances with an address can be queried, so that the tasks of the others are not listed (as in Java).
        known = [name for name, each in said.items() if each.server]
        found = {}
        for number, name in enumerate(said):
            partitions = tuple(tp for task in decision.active[name] for tp in self._topics.partitions_of(task))
            # One member asks for the next look, that is enough for all.
            interval = self._rules.probing_ms if probe and number == 0 else None
            shown = known if said[name].server else [*known, name]
            instances = tuple(parts[each] for each in shown)
            data = Assignment(instances, shown.index(name), interval, any(each.end for each in said.values()))
            found[name] = MemberAssignment(partitions, encode_assignment(data))
        return found

    def _totals(self) -> dict[Id, int] | None:
        """Return how long the changelogs of each task with state are; None where the log does not say."""
        partitions = [partition for each in self._changelogs.values() for partition in each]
        try:
            ends = self._ends(partitions) if partitions else {}
        except TransportError as error:
            log.warning("%s; tasks stay where they are for now", error)
            return None
        return {task: sum(ends[partition] for partition in each) for task, each in self._changelogs.items()}

    def _instance(
        self, member: Member, said: Subscription, tasks: Sequence[Id], totals: Mapping[Id, int] | None
    ) -> Instance:
        whole = {task for task in tasks if member.owned.issuperset(self._topics.partitions_of(task))}
        able = {task for task in tasks if member.topics.issuperset(self._topics.inputs[task[0]])}
        lags = {task: _lag(offset, totals, task) for task, offset in said.offset_sums.items()}
        known = {task: lag for task, lag in lags.items() if lag is not None and task in self._changelogs}
        return Instance(
            said.threads,
            frozenset(whole),
            known,
            said.tags,
            None if len(able) == len(tasks) else frozenset(able),
        )


def _lag(offset: int, totals: Mapping[Id, int] | None, task: Id) -> int | None:
    """Return how far behind state is; None where that can't be told (ClientState.computeTaskLags)."""
    if offset == RUNNING:
        return 0
    if totals is None or task not in totals:
        return None
    # State that is ahead of its changelog is worth nothing.
    return totals[task] - offset if offset <= totals[task] else totals[task]
