"""Functions of every group membership: the bytes of a generation, and the withholding of owned partitions (KIP-429)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from streamkit.errors import TransportError
from streamkit.transport.log_interface import Member, MemberAssignment

NO_GENERATION = -1
_MAGIC = b"CGMDv2:"


class Generation(NamedTuple):
    """A group, generation and member, which a commit of offsets names; generation -1 and no member: a commit without a check."""

    group: str
    number: int = NO_GENERATION
    member: str = ""


def encode_generation(generation: Generation, instance: str | None = None) -> bytes:
    """Return the bytes that librdkafka accepts as a group's metadata; `instance`: the static member's group.instance.id.

    >>> decode_generation(encode_generation(Generation("app", 3, "m-1")))
    Generation(group='app', number=3, member='m-1')
    """
    number = generation.number.to_bytes(4, "little", signed=True)
    static = b"\1" if instance is None else b"\0" + instance.encode() + b"\0"
    return _MAGIC + number + generation.group.encode() + b"\0" + generation.member.encode() + b"\0" + static


def decode_generation(data: bytes) -> Generation:
    """Decode the bytes of encode_generation. Raises TransportError."""
    if not data.startswith(_MAGIC):
        raise TransportError("these bytes are not the metadata of a consumer group")
    body = data[len(_MAGIC) :]
    group, member = body[4:].split(b"\0")[:2]
    return Generation(group.decode(), int.from_bytes(body[:4], "little", signed=True), member.decode())


def withhold(members: Mapping[str, Member], wanted: Mapping[str, MemberAssignment]) -> dict[str, MemberAssignment]:
    """Remove from each wanted assignment the partitions that another member still owns, which must revoke them first.

    A member without a wanted assignment gets an empty one.
    """
    owners = {partition: name for name, member in members.items() for partition in member.owned}
    result = {}
    for name in members:
        assignment = wanted.get(name, MemberAssignment(()))
        free = tuple(p for p in assignment.partitions if owners.get(p, name) == name)
        result[name] = replace(assignment, partitions=free)
    return result
