"""The leader of a group: computes assignments from subscriptions (StreamsPartitionAssignor.assign)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from streamkit.errors import TransportError
from streamkit.record import TaskId, TopicPartition
from streamkit.runtime.local.group.instances import InstanceMetadata
from streamkit.runtime.local.group.subscription_codec import (
    Assignment,
    Subscription,
    decode_subscription,
    encode_assignment,
)
from streamkit.runtime.local.group.task_assignor import FAR, Decision, Instance, Rules, decide
from streamkit.runtime.local.tasks.local_task import RUNNING
from streamkit.runtime.local.topics_on_log import TopicsOnLog
from streamkit.transport.log_interface import Member, MemberAssignment

log = logging.getLogger(__name__)

Ends = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]
"""Returns the end offsets of partitions; raises TransportError."""


class Leader:
    """Decides for a group; every member has one, and the group uses that of its leader."""

    def __init__(
        self, topics: TopicsOnLog, changelogs: Mapping[TaskId, Collection[TopicPartition]], rules: Rules, ends: Ends
    ):
        """`changelogs`: of the tasks that have state."""
        self._topics = topics
        self._changelogs = changelogs
        self._rules = rules
        self._ends = ends

    def decide(self, members: Mapping[str, Member]) -> dict[str, MemberAssignment]:
        """Return the assignment of each member, with the complete decision as data."""
        tasks = self._topics.tasks()
        subscriptions = {name: decode_subscription(member.metadata) for name, member in sorted(members.items())}
        totals = self._totals()
        instances = {name: self._instance(members[name], each, tasks, totals) for name, each in subscriptions.items()}
        decision = decide(instances, tasks, totals or dict.fromkeys(self._changelogs, FAR), self._rules)
        if decision.missing_standbys:
            log.info("%d standbys have no instance left that could keep them", decision.missing_standbys)
        # Without the ends only the instance that runs a task counts as caught up: a probing rebalance follows.
        return self._assignments(
            subscriptions, decision, probe=decision.probe or (totals is None and len(subscriptions) > 1)
        )

    def _assignments(
        self, subscriptions: Mapping[str, Subscription], decision: Decision, probe: bool
    ) -> dict[str, MemberAssignment]:
        parts = {
            name: InstanceMetadata(each.server, tuple(decision.active[name]), tuple(decision.standby[name]))
            for name, each in subscriptions.items()
        }
        # Only instances with an address can be queried, so that the tasks of the others are not listed (as in Java).
        known = [name for name, each in subscriptions.items() if each.server]
        requests = [each.end for each in subscriptions.values()]
        end = any(requests), requests.count(False)
        found = {}
        for number, name in enumerate(subscriptions):
            partitions = tuple(tp for task in decision.active[name] for tp in self._topics.partitions_of(task))
            # One member that requests the probing rebalance is enough.
            interval = self._rules.probing_ms if probe and number == 0 else None
            shown = known if subscriptions[name].server else [*known, name]
            instances = tuple(parts[each] for each in shown)
            data = Assignment(instances, shown.index(name), interval, *end)
            found[name] = MemberAssignment(partitions, encode_assignment(data))
        return found

    def _totals(self) -> dict[TaskId, int] | None:
        """Return the length of the changelogs of each stateful task; None where the log does not respond."""
        partitions = [partition for each in self._changelogs.values() for partition in each]
        try:
            ends = self._ends(partitions) if partitions else {}
        except TransportError as error:
            log.warning("%s; tasks stay where they are for now", error)
            return None
        return {task: sum(ends[partition] for partition in each) for task, each in self._changelogs.items()}

    def _instance(
        self, member: Member, subscription: Subscription, tasks: Sequence[TaskId], totals: Mapping[TaskId, int] | None
    ) -> Instance:
        owned = {task for task in tasks if member.owned.issuperset(self._topics.partitions_of(task))}
        able = {task for task in tasks if member.topics.issuperset(self._topics.inputs[task.sub_topology])}
        lags = {task: _lag(offset, totals, task) for task, offset in subscription.offset_sums.items()}
        known = {task: lag for task, lag in lags.items() if lag is not None and task in self._changelogs}
        return Instance(
            subscription.threads,
            frozenset(owned),
            known,
            subscription.tags,
            None if len(able) == len(tasks) else frozenset(able),
        )


def _lag(offset: int, totals: Mapping[TaskId, int] | None, task: TaskId) -> int | None:
    """Return the lag of a task's state; None where it is not known (ClientState.computeTaskLags)."""
    if offset == RUNNING:
        return 0
    if totals is None or task not in totals:
        return None
    # State that is ahead of its changelog can't be used.
    return totals[task] - offset if offset <= totals[task] else totals[task]
