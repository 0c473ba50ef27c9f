"""How far an application's group is behind its inputs, as the log tells it: also when nothing runs."""

from __future__ import annotations

from dataclasses import dataclass

from streamkit.plan.model import Plan
from streamkit.plan.partitions import source_topics
from streamkit.record import TopicPartition
from streamkit.transport.base import Transport


@dataclass(frozen=True)
class PartitionLag:
    """An input partition; internal topics are inputs too."""

    topic: str
    partition: int
    committed: int | None
    """The next offset to read, None where nothing was committed."""
    end: int
    lag: int
    """Records up to the end; all that there are where nothing was committed."""


@dataclass(frozen=True)
class GroupLag:
    """The inputs of an application by topic and partition."""

    partitions: tuple[PartitionLag, ...]
    missing: tuple[str, ...]
    """Topics that do not exist, internal ones of an application that never ran included."""
    members: tuple[str, ...]
    """The ids of the group's active members."""

    @property
    def total(self) -> int:
        """The lag of all partitions together."""
        return sum(each.lag for each in self.partitions)


def group_lag(plan: Plan, transport: Transport) -> GroupLag:
    """Return the lag of the group that has the application's name. Raises TransportError."""
    admin = transport.admin()
    try:
        counts = admin.partition_counts()
        members = tuple(sorted(admin.group_members(plan.application)))
    finally:
        admin.close()
    topics = sorted(
        {topic for sub in plan.sub_topologies if not sub.is_global for topic in source_topics(plan, sub, counts)}
    )
    inputs = [TopicPartition(topic, number) for topic in topics for number in range(counts.get(topic, 0))]
    consumer = transport.consumer(plan.application, read_committed=plan.config.read_committed(), client_id="lag")
    try:
        ends = consumer.end_offsets(inputs) if inputs else {}
        committed = consumer.committed(inputs) if inputs else {}
        starts = consumer.beginning_offsets([tp for tp in inputs if tp not in committed]) if inputs else {}
    finally:
        consumer.close()
    partitions = []
    for partition in inputs:
        known = committed[partition].offset if partition in committed else None
        start = starts[partition] if known is None else known
        partitions.append(PartitionLag(*partition, known, ends[partition], max(0, ends[partition] - start)))
    return GroupLag(tuple(partitions), tuple(topic for topic in topics if topic not in counts), members)
