"""The lag of an application's group behind its inputs, read from the log, even if no instance runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from time import monotonic

from streamkit.errors import OffsetOutOfRangeError
from streamkit.plan.model import Plan
from streamkit.plan.partitions import source_topics, task_inputs, tasks_of
from streamkit.record import TaskId, TopicPartition
from streamkit.transport.log_interface import Admin, Consumer, Transport

COUNTED_ONE_BY_ONE = 1_000
"""A lag of at most this many offsets is counted record by record."""
_POLL_MS, _IDLE_S = 200, 2.0
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
    """The name of the group member that owns it; None if no member does."""
    committed: int | None
    """The next offset to read, None if nothing was committed."""
    end: int
    lag: int
    """The number of records up to the end, or of all records if nothing was committed.

    Many or unread records are counted by offsets.
    """


@dataclass(frozen=True)
class GroupLag:
    """The inputs of an application by topic and partition."""

    partitions: tuple[PartitionLag, ...]
    missing: tuple[str, ...]
    """Topics that do not exist, including internal topics of an application that never ran."""
    members: tuple[str, ...]
    """The names of the group's active members."""
    rebalancing: bool
    """Whether members are joining or waiting for their assignment; partitions may have no owner meanwhile."""

    @property
    def total(self) -> int:
        """The sum of the lags of all partitions."""
        return sum(partition.lag for partition in self.partitions)

    @property
    def unowned(self) -> tuple[PartitionLag, ...]:
        """The partitions that no member owns."""
        return tuple(partition for partition in self.partitions if partition.member is None)


class GroupReader:
    """Reads the lag of a group any number of times with the same connections; used by one thread at a time.

    counts_records: whether small lags are counted by reading the records. Offsets also count transaction markers and compacted
    records, and a repartition topic ends with a marker that no commit passes.
    """

    def __init__(self, plan: Plan, transport: Transport, client_id: str, *, counts_records: bool = False):
        self._plan = plan
        self._counts_records = counts_records
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
        present = {sub: [topic for topic in names if topic in counts] for sub, names in topics.items()}
        tasks = {
            place: task
            for task in tasks_of(present, counts)
            for place in task_inputs(present[task[0]], task[1], counts)
        }
        owners = {place: member.name for member in group.members for place in member.partitions}
        return GroupLag(
            self._partitions(tasks, owners),
            tuple(sorted({topic for names in topics.values() for topic in names if topic not in counts})),
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
        known = {place: committed[place].offset if place in committed else None for place in inputs}
        starts = {place: first_offsets[place] if (at := known[place]) is None else at for place in inputs}
        lags = {place: max(0, ends[place] - starts[place]) for place in inputs}
        if self._counts_records:
            few = {place: starts[place] for place in inputs if 0 < lags[place] <= COUNTED_ONE_BY_ONE}
            lags |= {place: len(offsets) for place, offsets in readable(self._consumer, few, ends).items()}
        return tuple(
            PartitionLag(*place, str(tasks[place]), owners.get(place), known[place], ends[place], lags[place])
            for place in inputs
        )


def readable(
    consumer: Consumer, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, list[int]]:
    """Return the offsets of the records from `starts` to `ends`; partitions that could not be read completely are missing.

    Replaces the assignment of the consumer. Raises TransportError.
    """
    offsets_of: dict[TopicPartition, list[int]] = {place: [] for place in starts}
    pending = set(starts)
    consumer.assign(starts)
    deadline = monotonic() + _IDLE_S
    while pending and monotonic() < deadline:
        for batch in consumer.poll(COUNTED_ONE_BY_ONE, _POLL_MS):
            place = TopicPartition(batch.topic, batch.partition)
            offsets_of[place] += [offset for offset in batch.offsets if offset < ends[place]]
            deadline = monotonic() + _IDLE_S
        pending = {place for place in pending if consumer.position(place) < ends[place]}
    consumer.assign({})
    return {place: offsets for place, offsets in offsets_of.items() if place not in pending}


def has_records(consumer: Consumer, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> bool:
    """Return whether any record is from `starts` on, or may be: a partition could not be read to its end in `ends`.

    Replaces the assignment of the consumer. Raises TransportError.
    """
    consumer.assign(starts)
    before, deadline = list(starts.values()), monotonic() + _IDLE_S
    while monotonic() < deadline:
        try:
            if consumer.poll(1, _POLL_MS):
                return True
        except OffsetOutOfRangeError:
            # Since `starts` were read, records have been read, committed and deleted.
            return True
        now = [consumer.position(place) for place in starts]
        if all(position >= ends[place] for place, position in zip(starts, now, strict=True)):
            return False
        if now != before:
            before, deadline = now, monotonic() + _IDLE_S
    return True


def group_lag(plan: Plan, transport: Transport) -> GroupLag:
    """Return the lag of the group that has the application's name, in records. Raises TransportError."""
    with closing(GroupReader(plan, transport, "lag", counts_records=True)) as reader:
        counts = reader.admin.partition_counts()
        topics = {sub.id: source_topics(plan, sub, counts) for sub in plan.sub_topologies if not sub.is_global}
        return reader.read(topics, counts)


def member_label(name: str) -> str:
    """Return a short form of a member's name: host and process of an instance; other names are unchanged.

    >>> member_label("80c73875-9fb2-40b8-9f61-17d0aab6a926-host-18063")
    'host-18063'
    """
    match = _INSTANCE.fullmatch(name)
    return match[2] if match else name
