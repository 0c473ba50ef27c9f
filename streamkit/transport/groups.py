"""What every group membership shares: the bytes that name a generation, and holding back partitions that are owned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from streamkit.errors import TransportError
from streamkit.transport.base import Member, MemberAssignment

NO_GENERATION = -1
_MAGIC = b"CGMDv2:"


class Generation(NamedTuple):
    """A member at one point of its group's history; generation -1 and no member: offsets without a check."""

    group: str
    number: int = NO_GENERATION
    member: str = ""


def encode_generation(generation: Generation, instance: str | None = None) -> bytes:
    """Return the bytes that librdkafka takes for a group's metadata; `instance`: the static member's group.instance.id.

    >>> decode_generation(encode_generation(Generation("app", 3, "m-1")))
    Generation(group='app', number=3, member='m-1')
    """
    number = generation.number.to_bytes(4, "little", signed=True)
    static = b"\1" if instance is None else b"\0" + instance.encode() + b"\0"
    return _MAGIC + number + generation.group.encode() + b"\0" + generation.member.encode() + b"\0" + static


def decode_generation(data: bytes) -> Generation:
    """Read encode_generation's bytes. Raises TransportError."""
    if not data.startswith(_MAGIC):
        raise TransportError("these bytes are not the metadata of a consumer group")
    body = data[len(_MAGIC) :]
    group, member = body[4:].split(b"\0")[:2]
    return Generation(group.decode(), int.from_bytes(body[:4], "little", signed=True), member.decode())


def withhold(members: Mapping[str, Member], wanted: Mapping[str, MemberAssignment]) -> dict[str, MemberAssignment]:
    """Take from each wanted assignment what another member still owns: it must be given up first.

    Members without a wanted assignment get an empty one.
    """
    owners = {partition: name for name, member in members.items() for partition in member.owned}
    result = {}
    for name in members:
        assignment = wanted.get(name, MemberAssignment(()))
        free = tuple(p for p in assignment.partitions if owners.get(p, name) == name)
        result[name] = replace(assignment, partitions=free)
    return result
