"""The instances of the application that have a task or key (StreamsMetadataState)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from streamkit.plan.model import Plan
from streamkit.record import TaskId
from streamkit.runtime.local.topics_on_log import TopicsOnLog
from streamkit.serdes.partitioner import partition as partition_of


@dataclass(frozen=True)
class InstanceMetadata:
    """An instance and its tasks (StreamsMetadata)."""

    server: str
    """Its application.server; empty where it has none, so that no instance can query it."""
    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()


@dataclass(frozen=True)
class KeyMetadata:
    """The location of a key (KeyQueryMetadata)."""

    partition: int
    active: str | None
    """The server of the instance with the active task; None while no instance has it."""
    standbys: tuple[str, ...] = ()


def key_metadata(
    plan: Plan, topics: TopicsOnLog, store: str, key: bytes, instances: Iterable[InstanceMetadata]
) -> KeyMetadata:
    """Return the location of a key, of a store that is not global, by the default partitioner.

    `key`: its bytes, without the window in window and session stores.
    """
    sub = next(each.id for each in plan.sub_topologies if store in each.stores)
    # A task for each partition of the widest source topic.
    partition = partition_of(key, sum(task.sub_topology == sub for task in topics.tasks()))
    known, task = list(instances), TaskId(sub, partition)
    active = next((each.server for each in known if task in each.active and each.server), None)
    standbys = tuple(each.server for each in known if task in each.standby and each.server)
    return KeyMetadata(partition, active, standbys)
