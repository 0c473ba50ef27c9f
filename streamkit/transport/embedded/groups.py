"""Consumer groups in the database: who is a member, which generation it is, and the steps from one to the next.

A group is `joining` (every member says again what it owns), then `assigning` (its leader decides), then `stable`. Any
change of the members starts again at joining. Every function here runs inside the caller's transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from time import monotonic_ns
from typing import NamedTuple

from streamkit.errors import FencedError
from streamkit.record import TopicPartition
from streamkit.transport.base import Member, MemberAssignment
from streamkit.transport.embedded.log import Execute
from streamkit.transport.groups import NO_GENERATION, Generation

JOINING, ASSIGNING, STABLE = "joining", "assigning", "stable"


class Group(NamedTuple):
    """A group's row; `since` is when its state began."""

    generation: int
    state: str
    leader: str
    since: int


class Timeouts(NamedTuple):
    """Milliseconds: without a heartbeat, and without a poll, until a member is given up."""

    session: int
    poll: int


def now() -> int:
    """Return milliseconds of a clock that all processes of the machine share and that is never set."""
    return monotonic_ns() // 1_000_000


def load(execute: Execute, name: str) -> Group:
    """Return a group, the empty one when it has no row yet."""
    row = execute("SELECT generation, state, leader, since FROM groups WHERE name = ?", (name,)).fetchone()
    return Group(*row) if row else Group(0, STABLE, "", 0)


def _store(execute: Execute, name: str, group: Group) -> None:
    execute("INSERT OR REPLACE INTO groups VALUES (?, ?, ?, ?, ?)", (name, *group))


def start_join(execute: Execute, name: str) -> None:
    """Begin a rebalance, unless its first phase goes on already."""
    group = load(execute, name)
    if group.state != JOINING:
        _store(execute, name, group._replace(state=JOINING, since=now()))


def finish_join(execute: Execute, name: str) -> None:
    """Begin the next generation when every member has joined it; the leader stays the leader while it is there."""
    group = load(execute, name)
    rows = execute("SELECT id, joined FROM members WHERE grp = ? ORDER BY id", (name,)).fetchall()
    if group.state != JOINING or not rows or any(joined <= group.generation for _, joined in rows):
        return
    names = [member for member, _ in rows]
    leader = group.leader if group.leader in names else names[0]
    _store(execute, name, Group(group.generation + 1, ASSIGNING, leader, now()))


def expire(execute: Execute, name: str) -> None:
    """Give up members that are silent, that keep others waiting in a join, or that lead and don't decide."""
    group, time = load(execute, name), now()
    gone = []
    rows = execute("SELECT id, heartbeat, timeout, patience, joined FROM members WHERE grp = ?", (name,))
    for member, heartbeat, timeout, patience, joined in rows.fetchall():
        late = (group.state == JOINING and joined <= group.generation) or (
            group.state == ASSIGNING and member == group.leader
        )
        # A heartbeat of the future is one from before the machine's last start.
        if not 0 <= time - heartbeat <= timeout or (late and time - group.since > patience):
            gone.append(member)
    for member in gone:
        remove(execute, name, member)


def remove(execute: Execute, name: str, member: str) -> None:
    """Take a member out; the others rebalance."""
    execute("DELETE FROM members WHERE grp = ? AND id = ?", (name, member))
    start_join(execute, name)
    finish_join(execute, name)


def join(execute: Execute, name: str, member: str, said: Member, timeouts: Timeouts) -> None:
    """Write what a member says for the generation that is coming; a new member starts the join."""
    if execute("SELECT 1 FROM members WHERE grp = ? AND id = ?", (name, member)).fetchone() is None:
        start_join(execute, name)
        execute(
            "INSERT INTO members VALUES (?, ?, x'', '[]', '[]', ?, ?, ?, -1, -1, '[]', x'')",
            (name, member, now(), *timeouts),
        )
    execute(
        "UPDATE members SET metadata = ?, topics = ?, owned = ?, joined = ? WHERE grp = ? AND id = ?",
        (
            said.metadata,
            json.dumps(sorted(said.topics)),
            dump_partitions(said.owned),
            load(execute, name).generation + 1,
            name,
            member,
        ),
    )
    finish_join(execute, name)


def members(execute: Execute, name: str) -> dict[str, Member]:
    """Return what the members of a group have said."""
    rows = execute("SELECT id, metadata, topics, owned FROM members WHERE grp = ? ORDER BY id", (name,))
    return {
        member: Member(metadata, frozenset(json.loads(topics)), load_partitions(owned))
        for member, metadata, topics, owned in rows.fetchall()
    }


def live_members(execute: Execute, name: str) -> list[str]:
    """Return the ids of the members whose heartbeats are not overdue."""
    time = now()
    rows = execute("SELECT id, heartbeat, timeout FROM members WHERE grp = ?", (name,)).fetchall()
    return [member for member, heartbeat, timeout in rows if 0 <= time - heartbeat <= timeout]


def assign(execute: Execute, name: str, generation: int, decided: dict[str, MemberAssignment]) -> None:
    """Write the leader's decision, unless the group has gone on meanwhile."""
    group = load(execute, name)
    if group.state != ASSIGNING or group.generation != generation:
        return
    for member, assignment in decided.items():
        execute(
            "UPDATE members SET assigned = ?, data = ? WHERE grp = ? AND id = ?",
            (dump_partitions(assignment.partitions), assignment.data, name, member),
        )
    _store(execute, name, group._replace(state=STABLE, since=now()))


def take(execute: Execute, name: str, member: str, generation: int) -> MemberAssignment:
    """Return a member's assignment and note that it has it: its older commits are refused from now on."""
    row = execute(
        "UPDATE members SET taken = ? WHERE grp = ? AND id = ? RETURNING assigned, data", (generation, name, member)
    ).fetchone()
    return MemberAssignment(tuple(load_partitions(row[0])), row[1])


def check_generation(execute: Execute, generation: Generation) -> None:
    """Raise FencedError unless the generation is the last that its member has taken, or names none.

    A member that the group waits for may still commit: what it owns is not assigned again until it has answered.
    """
    if generation.number == NO_GENERATION:
        return
    row = execute(
        "SELECT taken FROM members WHERE grp = ? AND id = ?", (generation.group, generation.member)
    ).fetchone()
    if row is None or row[0] != generation.number:
        raise FencedError(
            f"member {generation.member} of group {generation.group} is not in generation {generation.number} any more"
        )


def dump_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Write partitions as text."""
    return json.dumps(sorted(partitions))


def load_partitions(text: str) -> frozenset[TopicPartition]:
    """Read dump_partitions' text."""
    return frozenset(TopicPartition(*each) for each in json.loads(text))
