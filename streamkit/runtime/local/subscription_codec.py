"""The bytes of subscriptions and assignments (SubscriptionInfo, AssignmentInfo).

The format is a version, then compressed JSON, because task ids repeat. Later versions may add names, which earlier ones ignore.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streamkit.errors import TransportError
from streamkit.plan.model import Plan
from streamkit.record import TaskId
from streamkit.runtime.local.internal_topics import TopicsOnLog
from streamkit.serdes.partitioner import partition as partition_of
from streamkit.serdes.plain import Document

VERSION = 1


@dataclass(frozen=True)
class Subscription:
    """The data that a member sends to the leader."""

    process: str = ""
    threads: int = 1
    """0: the member runs no task."""
    server: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    offset_sums: Mapping[TaskId, int] = field(default_factory=dict)
    """For each task of which the member has state: the sum of its changelogs' offsets; RUNNING for tasks that it runs."""
    end: bool = False
    """Whether the member requests that all instances stop."""


@dataclass(frozen=True)
class Assignment:
    """The data that the leader sends to a member: the complete decision, and the index of the member's part."""

    instances: tuple[InstanceMetadata, ...] = ()
    own: int = 0
    probe_ms: int | None = None
    """Time after which the member requests a probing rebalance; None: never."""
    end: bool = False
    """Whether all instances must stop, because one has requested it."""
    others: int = 0
    """If all must stop: the number of members that have not requested it themselves."""

    @property
    def mine(self) -> InstanceMetadata:
        """The member's own part; empty if the decision has no members."""
        return self.instances[self.own] if self.instances else InstanceMetadata("")


def encode_subscription(subscription: Subscription) -> bytes:
    """Return the bytes of a subscription.

    >>> decode_subscription(encode_subscription(Subscription("p", 2, "h:1", {"zone": "a"}, {TaskId(0, 1): 7}))).offset_sums
    {TaskId(sub_topology=0, partition=1): 7}
    """
    return _pack(
        {
            "process": subscription.process,
            "threads": subscription.threads,
            "server": subscription.server,
            "tags": dict(subscription.tags),
            "sums": [[*task, offset] for task, offset in sorted(subscription.offset_sums.items())],
            "end": subscription.end,
        }
    )


def decode_subscription(data: bytes) -> Subscription:
    """Decode the bytes of a subscription; a member without any has one thread and no state. Raises TransportError."""
    fields = _unpack(data)
    return Subscription(
        fields.get("process", ""),
        fields.get("threads", 1),
        fields.get("server", ""),
        fields.get("tags", {}),
        {TaskId(sub, partition): offset for sub, partition, offset in fields.get("sums", ())},
        fields.get("end", False),
    )


def encode_assignment(assignment: Assignment) -> bytes:
    """Return the bytes of an assignment.

    >>> decode_assignment(encode_assignment(Assignment((InstanceMetadata("a:1", (TaskId(0, 1),)),)))).mine.active
    (TaskId(sub_topology=0, partition=1),)
    """
    return _pack(
        {
            "instances": [
                [instance.server, _group(instance.active), _group(instance.standby)]
                for instance in assignment.instances
            ],
            "own": assignment.own,
            "probe_ms": assignment.probe_ms,
            "end": assignment.end,
            "others": assignment.others,
        }
    )


def decode_assignment(data: bytes) -> Assignment:
    """Decode the bytes of an assignment; without any it is empty. Raises TransportError."""
    fields = _unpack(data)
    return Assignment(
        tuple(
            InstanceMetadata(server, _ungroup(active), _ungroup(standby))
            for server, active, standby in fields.get("instances", ())
        ),
        fields.get("own", 0),
        fields.get("probe_ms"),
        fields.get("end", False),
        fields.get("others", 0),
    )


def _group(tasks: Iterable[TaskId]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for sub, partition in tasks:
        grouped.setdefault(str(sub), []).append(partition)
    return grouped


def _ungroup(grouped: Mapping[str, list[int]]) -> tuple[TaskId, ...]:
    return tuple(TaskId(int(sub), partition) for sub, partitions in grouped.items() for partition in partitions)


def _pack(values: dict[str, Document]) -> bytes:
    return bytes([VERSION]) + zlib.compress(json.dumps(values, separators=(",", ":")).encode())


def _unpack(data: bytes) -> dict[str, Document]:
    if not data:
        return {}
    try:
        values: dict[str, Document] = json.loads(zlib.decompress(data[1:]))
        return values
    except (zlib.error, ValueError) as error:
        raise TransportError(
            "a member of the group sent data that can't be decoded; does it belong to another application?"
        ) from error


# The instances of the application that have a task or key (StreamsMetadataState).


@dataclass(frozen=True)
class InstanceMetadata:
    """An instance and its tasks (StreamsMetadata)."""

    server: str
    """Its application.server; empty if it has none, so that no instance can query it."""
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
    """Return the location of a key of a non-global store, by the default partitioner.

    `key`: its bytes, without the window in window and session stores.
    """
    sub = next(sub_topology.id for sub_topology in plan.sub_topologies if store in sub_topology.stores)
    # A task for each partition of the widest source topic.
    partition = partition_of(key, sum(task.sub_topology == sub for task in topics.tasks()))
    known, task = list(instances), TaskId(sub, partition)
    active = next((instance.server for instance in known if task in instance.active and instance.server), None)
    standbys = tuple(instance.server for instance in known if task in instance.standby and instance.server)
    return KeyMetadata(partition, active, standbys)
