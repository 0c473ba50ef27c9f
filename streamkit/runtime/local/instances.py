"""Which instance of the application holds which tasks and keys (StreamsMetadataState)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from streamkit.plan.model import Plan
from streamkit.runtime.local.assignor import Id
from streamkit.runtime.local.setup import TopicsOnLog
from streamkit.serdes.partitioner import partition as partition_of


@dataclass(frozen=True)
class InstanceMetadata:
    """An instance and its tasks (StreamsMetadata)."""

    server: str
    """Its application.server; empty where it has none, so that no instance can ask it."""
    active: tuple[Id, ...] = ()
    standby: tuple[Id, ...] = ()


@dataclass(frozen=True)
class KeyMetadata:
    """Where a key is (KeyQueryMetadata)."""

    partition: int
    active: str | None
    """The server of the instance with the active task; None while no instance has it."""
    standbys: tuple[str, ...] = ()


def key_metadata(
    plan: Plan, topics: TopicsOnLog, store: str, key: bytes, instances: Iterable[InstanceMetadata]
) -> KeyMetadata:
    """Return where a key of a store is that is not global, by the default partitioner.

    `key`: its bytes, of a window or a session those without it.
    """
    sub = next(each.id for each in plan.sub_topologies if store in each.stores)
    # A task for each partition of the widest source topic.
    partition = partition_of(key, sum(task[0] == sub for task in topics.tasks()))
    known = list(instances)
    active = next((each.server for each in known if (sub, partition) in each.active and each.server), None)
    standbys = tuple(each.server for each in known if (sub, partition) in each.standby and each.server)
    return KeyMetadata(partition, active, standbys)
