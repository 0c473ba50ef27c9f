"""Consumer groups on the embedded log: groups in the database, and membership in a group.

A group is `joining` (every member resends its subscription), then `assigning` (its leader decides), then `stable`. Each
change of its membership makes it `joining` again. The functions for groups run inside the caller's transaction.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import NamedTuple

from streamkit.errors import FencedError, TransportError
from streamkit.record import TopicPartition
from streamkit.transport.embedded.database import Database, Execute, Row, every, one
from streamkit.transport.embedded.log_tables import commit_offsets
from streamkit.transport.log_interface import (
    NO_GENERATION,
    Assign,
    CommittedOffset,
    Describe,
    Generation,
    GroupDescription,
    GroupMember,
    Member,
    MemberAssignment,
    Membership,
    Rebalance,
    encode_generation,
    withhold,
)

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
    """Return the milliseconds of the monotonic clock, which all processes on the machine share."""
    return monotonic_ns() // 1_000_000


def load(execute: Execute, name: str) -> Group:
    """Return a group; an empty one if it has no row yet."""
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
    """Start the next generation once every member has joined it; the leader remains leader as long as it is a member."""
    group = load(execute, name)
    rows = _rows(execute, name, "joined")
    if group.state != JOINING or not rows or any(joined <= group.generation for _, joined in rows):
        return
    names = [member for member, _ in rows]
    leader = group.leader if group.leader in names else names[0]
    _store(execute, name, Group(group.generation + 1, ASSIGNING, leader, now()))


def expire(execute: Execute, name: str) -> None:
    """Remove members without a heartbeat, members that do not join in time, and a leader that does not decide in time."""
    group, time = load(execute, name), now()
    gone = []
    for member, heartbeat, timeout, poll_timeout, joined in _rows(
        execute, name, "heartbeat, timeout, patience, joined"
    ):
        late = (group.state == JOINING and joined <= group.generation) or (
            group.state == ASSIGNING and member == group.leader
        )
        # A heartbeat in the future was written before the last reboot.
        if not 0 <= time - heartbeat <= timeout or (late and time - group.since > poll_timeout):
            gone.append(member)
    for member in gone:
        remove(execute, name, member)


def remove(execute: Execute, name: str, member: str) -> None:
    """Remove a member and start a rebalance among the others."""
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
    members = tuple(
        GroupMember(member, member, load_partitions(assigned))
        for member, heartbeat, timeout, assigned in _rows(execute, name, "heartbeat, timeout, assigned")
        if 0 <= time - heartbeat <= timeout
    )
    return GroupDescription(members, load(execute, name).state != STABLE)


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

    A member that has not joined yet may still commit, because its partitions are not reassigned until it has joined.
    """
    if generation.number == NO_GENERATION:
        return
    row = one(execute, "members", "taken", "grp = ? AND id = ?", (generation.group, generation.member))
    if row is None or row[0] != generation.number:
        raise FencedError(
            f"member {generation.member} of group {generation.group} is no longer in generation {generation.number}"
        )


def dump_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as JSON text."""
    return json.dumps(sorted(partitions))


def load_partitions(text: str) -> frozenset[TopicPartition]:
    """Parse the text of dump_partitions."""
    return frozenset(TopicPartition(*pair) for pair in json.loads(text))


# Group membership on the embedded log: `poll` runs the group protocol, a thread sends heartbeats.

HEARTBEAT_SECONDS = 3.0


class EmbeddedMembership(Membership):
    """A member; it owns the partitions of the last Rebalance, and until the next poll also those that it revoked."""

    def __init__(self, directory: Path, group: str, member_id: str, assign: Assign, timeouts: tuple[int, int]):
        self._member_id = member_id
        self._group = group
        self._assign = assign
        self._timeouts = Timeouts(*timeouts)
        self._database = Database(directory)
        # The committing thread may differ from the polling one, and only one thread at a time may use a connection.
        self._commits = Database(directory, synced=True)
        self._lock = threading.Lock()
        self._subscription: tuple[Describe, frozenset[str]] | None = None
        self._generation = NO_GENERATION
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._revoked: frozenset[TopicPartition] = frozenset()
        self._rejoin_requested = False
        self._seen_version = -1
        self._heartbeats = _HeartbeatThread(directory, group, member_id, self._timeouts)

    @property
    def member_id(self) -> str:
        return self._member_id

    def join(self, metadata: Describe, topics: Iterable[str]) -> None:
        self._subscription = metadata, frozenset(topics)
        self._rejoin_requested = True
        self._heartbeats.start()

    def rebalance(self) -> None:
        self._rejoin_requested = True

    def poll(self, timeout_ms: int, *, join: bool = True) -> Rebalance | None:
        if self._subscription is None:
            raise TransportError("join the group before polling it")
        self._heartbeats.polled()
        if not join:
            return None
        if self._revoked:
            # The members that get the revoked partitions wait for this join.
            self._revoked = frozenset()
            self._rejoin_requested = True
        deadline = monotonic() + timeout_ms / 1000
        while True:
            version = self._database.version()
            if version != self._seen_version or self._rejoin_requested:
                rebalance = self._next_state()
                if rebalance is not None:
                    return rebalance
                self._seen_version = version
            left = deadline - monotonic()
            if left <= 0 or not self._database.wait_for_change(version, left, self._heartbeats.stopped):
                return None

    def group_metadata(self) -> bytes:
        return encode_generation(self._current())

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        rows = [(p.topic, p.partition, c.offset, c.metadata) for p, c in offsets.items()]
        with self._lock, self._commits.write() as execute:
            # A member that was never in a generation has nothing to commit.
            if self._generation == NO_GENERATION:
                raise FencedError(f"member {self._member_id} is in no generation of group {self._group}")
            check_generation(execute, self._current())
            commit_offsets(execute, self._group, rows)

    def give_up(self, reason: str) -> None:
        with self._database.write() as execute:
            remove(execute, self._group, self._member_id)

    def leave(self) -> None:
        self._heartbeats.stop()
        with self._database.write() as execute:
            remove(execute, self._group, self._member_id)
        self._database.close()
        self._commits.close()

    def _current(self) -> Generation:
        return Generation(self._group, self._generation, self._member_id)

    def _next_state(self) -> Rebalance | None:
        """Join if necessary, decide as the leader, and return the assignment of a new generation."""
        with self._database.read() as execute:
            group = load(execute, self._group)
            joined = self._joined(execute)
        if joined is None or self._rejoin_requested or (group.state == JOINING and joined <= group.generation):
            self._rejoin(joined is None)
            with self._database.read() as execute:
                group = load(execute, self._group)
        if group.state == ASSIGNING and group.leader == self._member_id:
            self._decide(group.generation)
        return self._take()

    def _joined(self, execute: Execute) -> int | None:
        row = one(execute, "members", "joined", "grp = ? AND id = ?", (self._group, self._member_id))
        return None if row is None else int(row[0])

    def _rejoin(self, unknown: bool) -> None:
        if unknown and self._generation != NO_GENERATION:
            self._generation = NO_GENERATION
            self._partitions = self._revoked = frozenset()
            raise FencedError(f"group {self._group} went on without member {self._member_id}: its partitions are lost")
        assert self._subscription is not None
        describe, topics = self._subscription
        subscription = Member(describe(), topics, self._partitions | self._revoked)
        with self._database.write() as execute:
            if self._rejoin_requested:
                start_join(execute, self._group)
            join(execute, self._group, self._member_id, subscription, self._timeouts)
        self._rejoin_requested = False

    def _decide(self, generation: int) -> None:
        # Not in a transaction: the callback may use other connections to the log.
        with self._database.read() as execute:
            joined = members(execute, self._group)
        decided = withhold(joined, self._assign(joined))
        with self._database.write() as execute:
            assign(execute, self._group, generation, decided)

    def _take(self) -> Rebalance | None:
        with self._database.read() as execute:
            group = load(execute, self._group)
        if group.state != STABLE or group.generation == self._generation:
            return None
        with self._database.write() as execute:
            group = load(execute, self._group)
            joined = self._joined(execute)
            # Since that read, the member may have been removed or a new rebalance may have started.
            if group.state != STABLE or joined is None or joined < group.generation:
                return None
            assignment = take_assignment(execute, self._group, self._member_id, group.generation)
        before, after = self._partitions, frozenset(assignment.partitions)
        self._generation, self._partitions, self._revoked = group.generation, after, before - after
        return Rebalance(group.generation, after, before - after, after - before, assignment.data)


class _HeartbeatThread:
    """The thread that sends the member's heartbeats, and removes members without one."""

    def __init__(self, directory: Path, group: str, member_id: str, timeouts: Timeouts):
        self.stopped = threading.Event()
        self._directory = directory
        self._group = group
        self._member_id = member_id
        self._timeouts = timeouts
        self._polled = monotonic()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"heartbeat {self._member_id}", daemon=True)
            self._thread.start()

    def polled(self) -> None:
        self._polled = monotonic()

    def stop(self) -> None:
        self.stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        database = Database(self._directory)
        pause = min(HEARTBEAT_SECONDS, self._timeouts.session / 3000)
        while not self.stopped.wait(pause):
            try:
                with database.write() as execute:
                    # A member whose owner no longer polls must expire even though this thread runs.
                    if monotonic() - self._polled < self._timeouts.poll / 1000:
                        execute(
                            "UPDATE members SET heartbeat = ? WHERE grp = ? AND id = ?",
                            (now(), self._group, self._member_id),
                        )
                    expire(execute, self._group)
            except TransportError:
                # The error may not recur at the next heartbeat; if it does, the member's own calls report it.
                continue
        database.close()
