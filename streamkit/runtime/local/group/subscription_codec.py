"""The bytes of subscriptions and assignments (SubscriptionInfo, AssignmentInfo).

A version, then compressed JSON: task ids repeat. Later versions may add names, which earlier ones ignore.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streamkit.errors import TransportError
from streamkit.record import TaskId
from streamkit.runtime.local.group.instances import InstanceMetadata
from streamkit.serdes.plain import Json

VERSION = 1


@dataclass(frozen=True)
class Subscription:
    """The data that a member sends to the leader."""

    process: str = ""
    threads: int = 1
    server: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    offset_sums: Mapping[TaskId, int] = field(default_factory=dict)
    """By task of which it has state: the sum of its changelogs' offsets; RUNNING for tasks that it runs."""
    end: bool = False
    """Whether it requests that all instances end."""


@dataclass(frozen=True)
class Assignment:
    """The data that the leader sends to a member: the complete decision, and the index of the member's part."""

    instances: tuple[InstanceMetadata, ...] = ()
    own: int = 0
    probe_ms: int | None = None
    """Time after which the member requests a probing rebalance; None: never."""
    end: bool = False
    """Whether all instances are to end, since one has requested it."""
    others: int = 0
    """Where all are to end: the number of members that have not requested it themselves."""

    @property
    def mine(self) -> InstanceMetadata:
        """The member's own part; an empty one where the decision has no members."""
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
    found = _unpack(data)
    return Subscription(
        found.get("process", ""),
        max(1, found.get("threads", 1)),
        found.get("server", ""),
        found.get("tags", {}),
        {TaskId(sub, partition): offset for sub, partition, offset in found.get("sums", ())},
        found.get("end", False),
    )


def encode_assignment(assignment: Assignment) -> bytes:
    """Return the bytes of an assignment.

    >>> decode_assignment(encode_assignment(Assignment((InstanceMetadata("a:1", (TaskId(0, 1),)),)))).mine.active
    (TaskId(sub_topology=0, partition=1),)
    """
    return _pack(
        {
            "instances": [[each.server, _group(each.active), _group(each.standby)] for each in assignment.instances],
            "own": assignment.own,
            "probe_ms": assignment.probe_ms,
            "end": assignment.end,
            "others": assignment.others,
        }
    )


def decode_assignment(data: bytes) -> Assignment:
    """Decode the bytes of an assignment; without any it is empty. Raises TransportError."""
    found = _unpack(data)
    return Assignment(
        tuple(
            InstanceMetadata(server, _ungroup(active), _ungroup(standby))
            for server, active, standby in found.get("instances", ())
        ),
        found.get("own", 0),
        found.get("probe_ms"),
        found.get("end", False),
        found.get("others", 0),
    )


def _group(tasks: Iterable[TaskId]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for sub, partition in tasks:
        grouped.setdefault(str(sub), []).append(partition)
    return grouped


def _ungroup(grouped: Mapping[str, list[int]]) -> tuple[TaskId, ...]:
    return tuple(TaskId(int(sub), partition) for sub, partitions in grouped.items() for partition in partitions)


def _pack(values: dict[str, Json]) -> bytes:
    return bytes([VERSION]) + zlib.compress(json.dumps(values, separators=(",", ":")).encode())


def _unpack(data: bytes) -> dict[str, Json]:
    if not data:
        return {}
    try:
        values: dict[str, Json] = json.loads(zlib.decompress(data[1:]))
        return values
    except (zlib.error, ValueError) as error:
        raise TransportError("a member of the group says what can't be read; is it another application's?") from error
