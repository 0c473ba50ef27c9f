"""Consumer groups in the database: members, generations, and the transitions between them.

A group is `joining` (every member sends its subscription again), then `assigning` (its leader decides), then `stable`. Each
change of the members makes it `joining` again. Every function runs inside the caller's transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from time import monotonic_ns
from typing import NamedTuple

from streamkit.errors import FencedError
from streamkit.record import TopicPartition
from streamkit.transport.embedded.database import Execute, Row, every, one
from streamkit.transport.groups import NO_GENERATION, Generation
from streamkit.transport.log_interface import GroupDescription, GroupMember, Member, MemberAssignment

JOINING, ASSIGNING, STABLE = "joining", "assigning", "stable"


class Group(NamedTuple):
    """A group's row; `since` is the time (ms) at which its state began."""

    generation: int
    state: str
    leader: str
    since: int


class Timeouts(NamedTuple):
    """Milliseconds without a heartbeat, and without a poll, after which a member is removed."""

    session: int
    poll: int


def now() -> int:
    """Return the milliseconds of the monotonic clock, which all processes of the machine share."""
    return monotonic_ns() // 1_000_000


def load(execute: Execute, name: str) -> Group:
    """Return a group; an empty one when it has no row yet."""
    row = one(execute, "groups", "generation, state, leader, since", "name = ?", (name,))
    return Group(*row) if row else Group(0, STABLE, "", 0)


def _store(execute: Execute, name: str, group: Group) -> None:
    execute(
        "INSERT INTO groups VALUES (?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET generation = excluded.generation, "
        "state = excluded.state, leader = excluded.leader, since = excluded.since",
        (name, *group),
    )


def _rows(execute: Execute, name: str, columns: str) -> list[Row]:
    """Return columns of the members of a group, in the order of their ids."""
    rows = every(execute, "members", f"grp, id, {columns}")
    return sorted(row[1:] for row in rows if row[0] == name)


def start_join(execute: Execute, name: str) -> None:
    """Start a rebalance, unless the group is joining already."""
    group = load(execute, name)
    if group.state != JOINING:
        _store(execute, name, group._replace(state=JOINING, since=now()))


def finish_join(execute: Execute, name: str) -> None:
    """Start the next generation when every member has joined it; the leader stays leader as long as it is a member."""
    group = load(execute, name)
    rows = _rows(execute, name, "joined")
    if group.state != JOINING or not rows or any(joined <= group.generation for _, joined in rows):
        return
    names = [member for member, _ in rows]
    leader = group.leader if group.leader in names else names[0]
    _store(execute, name, Group(group.generation + 1, ASSIGNING, leader, now()))


def expire(execute: Execute, name: str) -> None:
    """Remove members without a heartbeat, those that do not join in time, and a leader that does not decide in time."""
    group, time = load(execute, name), now()
    gone = []
    for member, heartbeat, timeout, poll_timeout, joined in _rows(
        execute, name, "heartbeat, timeout, patience, joined"
    ):
        late = (group.state == JOINING and joined <= group.generation) or (
            group.state == ASSIGNING and member == group.leader
        )
        # A heartbeat in the future was written before the machine's last start.
        if not 0 <= time - heartbeat <= timeout or (late and time - group.since > poll_timeout):
            gone.append(member)
    for member in gone:
        remove(execute, name, member)


def remove(execute: Execute, name: str, member: str) -> None:
    """Remove a member and start a rebalance of the others."""
    execute("DELETE FROM members WHERE grp = ? AND id = ?", (name, member))
    start_join(execute, name)
    finish_join(execute, name)


def join(execute: Execute, name: str, member: str, subscription: Member, timeouts: Timeouts) -> None:
    """Write a member's subscription for the next generation; a new member starts a rebalance."""
    if one(execute, "members", "id", "grp = ? AND id = ?", (name, member)) is None:
        start_join(execute, name)
        execute(
            "INSERT INTO members VALUES (?, ?, x'', '[]', '[]', ?, ?, ?, -1, -1, '[]', x'')",
            (name, member, now(), *timeouts),
        )
    execute(
        "UPDATE members SET metadata = ?, topics = ?, owned = ?, joined = ? WHERE grp = ? AND id = ?",
        (
            subscription.metadata,
            json.dumps(sorted(subscription.topics)),
            dump_partitions(subscription.owned),
            load(execute, name).generation + 1,
            name,
            member,
        ),
    )
    finish_join(execute, name)


def members(execute: Execute, name: str) -> dict[str, Member]:
    """Return the subscriptions of a group's members."""
    return {
        member: Member(metadata, frozenset(json.loads(topics)), load_partitions(owned))
        for member, metadata, topics, owned in _rows(execute, name, "metadata, topics, owned")
    }


def described(execute: Execute, name: str) -> GroupDescription:
    """Return the members whose heartbeats are not overdue, with the partitions that they own."""
    time = now()
    found = tuple(
        GroupMember(member, member, load_partitions(assigned))
        for member, heartbeat, timeout, assigned in _rows(execute, name, "heartbeat, timeout, assigned")
        if 0 <= time - heartbeat <= timeout
    )
    return GroupDescription(found, load(execute, name).state != STABLE)


def assign(execute: Execute, name: str, generation: int, decided: dict[str, MemberAssignment]) -> None:
    """Write the leader's decision, unless the group has left that generation."""
    group = load(execute, name)
    if group.state != ASSIGNING or group.generation != generation:
        return
    for member, assignment in decided.items():
        execute(
            "UPDATE members SET assigned = ?, data = ? WHERE grp = ? AND id = ?",
            (dump_partitions(assignment.partitions), assignment.data, name, member),
        )
    _store(execute, name, group._replace(state=STABLE, since=now()))


def take_assignment(execute: Execute, name: str, member: str, generation: int) -> MemberAssignment:
    """Return a member's assignment and mark it as taken: commits of its older generations are rejected from now on."""
    row = execute(
        "UPDATE members SET taken = ? WHERE grp = ? AND id = ? RETURNING assigned, data", (generation, name, member)
    ).fetchone()
    return MemberAssignment(tuple(load_partitions(row[0])), row[1])


def check_generation(execute: Execute, generation: Generation) -> None:
    """Raise FencedError unless the generation is the last one that its member has taken, or NO_GENERATION.

    A member that has not joined yet may still commit: its partitions are not assigned again until it has joined.
    """
    if generation.number == NO_GENERATION:
        return
    row = one(execute, "members", "taken", "grp = ? AND id = ?", (generation.group, generation.member))
    if row is None or row[0] != generation.number:
        raise FencedError(
            f"member {generation.member} of group {generation.group} is not in generation {generation.number} any more"
        )


def dump_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as JSON text."""
    return json.dumps(sorted(partitions))


def load_partitions(text: str) -> frozenset[TopicPartition]:
    """Parse the text of dump_partitions."""
    return frozenset(TopicPartition(*each) for each in json.loads(text))
