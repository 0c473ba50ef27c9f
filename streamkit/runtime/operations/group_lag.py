"""The lag of an application's group behind its inputs, from the log: also while no instance runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamkit.plan.model import Plan
from streamkit.plan.partitions import source_topics, task_inputs, tasks_of
from streamkit.record import TaskId, TopicPartition
from streamkit.transport.log_interface import Admin, Consumer, Transport

_INSTANCE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-(.+)")
"""The name of an instance in its group: the process id of its state directory, host and process."""


@dataclass(frozen=True)
class PartitionLag:
    """An input partition; internal topics are inputs too."""

    topic: str
    partition: int
    task: str
    """The task that reads it, such as 0_1."""
    member: str | None
    """The name of the group's member that owns it; None where none does."""
    committed: int | None
    """The next offset to read, None where nothing was committed."""
    end: int
    lag: int
    """Records up to the end; all records where nothing was committed."""


@dataclass(frozen=True)
class GroupLag:
    """The inputs of an application by topic and partition."""

    partitions: tuple[PartitionLag, ...]
    missing: tuple[str, ...]
    """Topics that do not exist, internal ones of an application that never ran included."""
    members: tuple[str, ...]
    """The names of the group's active members."""
    rebalancing: bool
    """Whether members join, or wait for their assignment: partitions may have no owner meanwhile."""

    @property
    def total(self) -> int:
        """The sum of the lags of all partitions."""
        return sum(each.lag for each in self.partitions)

    @property
    def unowned(self) -> tuple[PartitionLag, ...]:
        """The partitions that no member owns."""
        return tuple(each for each in self.partitions if each.member is None)


class GroupReader:
    """Reads the lag of a group any number of times with the same connections; used by one thread at a time."""

    def __init__(self, plan: Plan, transport: Transport, client_id: str):
        self._plan = plan
        self._transport = transport
        self._client_id = client_id
        self._admin: Admin | None = None
        self._consumer: Consumer | None = None

    @property
    def admin(self) -> Admin:
        """The admin client. Raises TransportError."""
        self._admin = self._admin or self._transport.admin()
        return self._admin

    def read(self, topics: Mapping[int, Sequence[str]], counts: Mapping[str, int]) -> GroupLag:
        """Return the lag of the group that has the application's name. Raises TransportError.

        topics: the source topics by sub-topology, by their names on the log; counts: the partitions of those that exist.
        """
        group = self.admin.describe_group(self._plan.application)
        present = {sub: [topic for topic in each if topic in counts] for sub, each in topics.items()}
        tasks = {
            place: task
            for task in tasks_of(present, counts)
            for place in task_inputs(present[task[0]], task[1], counts)
        }
        owners = {place: member.name for member in group.members for place in member.partitions}
        return GroupLag(
            self._partitions(tasks, owners),
            tuple(sorted({topic for each in topics.values() for topic in each if topic not in counts})),
            tuple(sorted(member.name for member in group.members)),
            group.rebalancing,
        )

    def close(self) -> None:
        """Close the connections."""
        for resource in (self._admin, self._consumer):
            if resource is not None:
                resource.close()
        self._admin = self._consumer = None

    def _partitions(
        self, tasks: Mapping[TopicPartition, TaskId], owners: Mapping[TopicPartition, str]
    ) -> tuple[PartitionLag, ...]:
        inputs = sorted(tasks)
        if not inputs:
            return ()
        if self._consumer is None:
            self._consumer = self._transport.consumer(
                self._plan.application, read_committed=self._plan.config.read_committed(), client_id=self._client_id
            )
        ends = self._consumer.end_offsets(inputs)
        committed = self._consumer.committed(inputs)
        first_offsets = self._consumer.beginning_offsets([place for place in inputs if place not in committed])
        found = []
        for place in inputs:
            known = committed[place].offset if place in committed else None
            start = first_offsets[place] if known is None else known
            lag = max(0, ends[place] - start)
            found.append(PartitionLag(*place, str(tasks[place]), owners.get(place), known, ends[place], lag))
        return tuple(found)


def group_lag(plan: Plan, transport: Transport) -> GroupLag:
    """Return the lag of the group that has the application's name. Raises TransportError."""
    reader = GroupReader(plan, transport, "lag")
    try:
        counts = reader.admin.partition_counts()
        topics = {sub.id: source_topics(plan, sub, counts) for sub in plan.sub_topologies if not sub.is_global}
        return reader.read(topics, counts)
    finally:
        reader.close()


def member_label(name: str) -> str:
    """Return a short form of a member's name: host and process of an instance; others as they are.

    >>> member_label("80c73875-9fb2-40b8-9f61-17d0aab6a926-host-18063")
    'host-18063'
    """
    match = _INSTANCE.fullmatch(name)
    return match[2] if match else name
