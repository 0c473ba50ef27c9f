"""What members tell the leader and what it tells them, as bytes (SubscriptionInfo, AssignmentInfo).

A version, then JSON, packed: task ids repeat themselves. Later versions may add names, which earlier ones don't read.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamkit.errors import TransportError
from streamkit.runtime.local.assignor import Id
from streamkit.runtime.local.instances import InstanceMetadata

VERSION = 1


@dataclass(frozen=True)
class Subscription:
    """What a member tells of itself."""

    process: str = ""
    threads: int = 1
    server: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    offset_sums: Mapping[Id, int] = field(default_factory=dict)
    """By task whose state it has: the sum of its changelogs' offsets, RUNNING for those that it runs."""
    end: bool = False
    """Whether it asks that all instances end."""


@dataclass(frozen=True)
class Assignment:
    """What the leader tells a member: the whole decision, and which part of it is the member's."""

    instances: tuple[InstanceMetadata, ...] = ()
    own: int = 0
    probe_ms: int | None = None
    """After how long the member is to ask for another rebalance."""
    end: bool = False
    """Whether all instances are to end, since one has asked for it."""

    @property
    def mine(self) -> InstanceMetadata:
        """The member's own part; an empty one where the leader knew no member."""
        return self.instances[self.own] if self.instances else InstanceMetadata("")


def encode_subscription(subscription: Subscription) -> bytes:
    """Return a member's word.

    >>> decode_subscription(encode_subscription(Subscription("p", 2, "h:1", {"zone": "a"}, {(0, 1): 7}))).offset_sums
    {(0, 1): 7}
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
    """Read encode_subscription's bytes; a member without any has one thread and no state. Raises TransportError."""
    found = _unpack(data)
    return Subscription(
        found.get("process", ""),
        max(1, found.get("threads", 1)),
        found.get("server", ""),
        found.get("tags", {}),
        {(sub, partition): offset for sub, partition, offset in found.get("sums", ())},
        found.get("end", False),
    )


def encode_assignment(assignment: Assignment) -> bytes:
    """Return the leader's word to a member.

    >>> decode_assignment(encode_assignment(Assignment((InstanceMetadata("a:1", ((0, 1),)),)))).mine.active
    ((0, 1),)
    """
    return _pack(
        {
            "instances": [[each.server, _group(each.active), _group(each.standby)] for each in assignment.instances],
            "own": assignment.own,
            "probe_ms": assignment.probe_ms,
            "end": assignment.end,
        }
    )


def decode_assignment(data: bytes) -> Assignment:
    """Read encode_assignment's bytes; nothing is known without any. Raises TransportError."""
    found = _unpack(data)
    return Assignment(
        tuple(
            InstanceMetadata(server, _ungroup(active), _ungroup(standby))
            for server, active, standby in found.get("instances", ())
        ),
        found.get("own", 0),
        found.get("probe_ms"),
        found.get("end", False),
    )


def _group(tasks: Iterable[Id]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for sub, partition in tasks:
        grouped.setdefault(str(sub), []).append(partition)
    return grouped


def _ungroup(grouped: Mapping[str, list[int]]) -> tuple[Id, ...]:
    return tuple((int(sub), partition) for sub, partitions in grouped.items() for partition in partitions)


def _pack(values: dict[str, Any]) -> bytes:
    return bytes([VERSION]) + zlib.compress(json.dumps(values, separators=(",", ":")).encode())


def _unpack(data: bytes) -> dict[str, Any]:
    if not data:
        return {}
    try:
        return json.loads(zlib.decompress(data[1:]))
    except (zlib.error, ValueError) as error:
        raise TransportError("a member of the group says what can't be read; is it another application's?") from error
