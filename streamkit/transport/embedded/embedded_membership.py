"""Group membership on the embedded log: `poll` runs the group protocol, a thread sends heartbeats."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import monotonic

from streamkit.errors import FencedError, TransportError
from streamkit.record import TopicPartition
from streamkit.transport.embedded import embedded_groups
from streamkit.transport.embedded.database import Database, Execute, one
from streamkit.transport.embedded.log_tables import commit_offsets
from streamkit.transport.groups import NO_GENERATION, Generation, encode_generation, withhold
from streamkit.transport.log_interface import Assign, CommittedOffset, Describe, Member, Membership, Rebalance

HEARTBEAT_SECONDS = 3.0


class EmbeddedMembership(Membership):
    """A member; it owns the partitions of the last Rebalance, and until the next poll also those that it revoked."""

    def __init__(self, directory: Path, group: str, member_id: str, assign: Assign, timeouts: tuple[int, int]):
        self._member_id = member_id
        self._group = group
        self._assign = assign
        self._timeouts = embedded_groups.Timeouts(*timeouts)
        self._database = Database(directory)
        # Other threads commit than the one that polls, and one thread at a time may use a connection.
        self._commits = Database(directory)
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
            embedded_groups.check_generation(execute, self._current())
            commit_offsets(execute, self._group, rows)

    def give_up(self, reason: str) -> None:
        with self._database.write() as execute:
            embedded_groups.remove(execute, self._group, self._member_id)

    def leave(self) -> None:
        self._heartbeats.stop()
        with self._database.write() as execute:
            embedded_groups.remove(execute, self._group, self._member_id)
        self._database.close()
        self._commits.close()

    def _current(self) -> Generation:
        return Generation(self._group, self._generation, self._member_id)

    def _next_state(self) -> Rebalance | None:
        """Join and decide where that is due; return the assignment of a new generation."""
        with self._database.read() as execute:
            group = embedded_groups.load(execute, self._group)
            joined = self._joined(execute)
        if (
            joined is None
            or self._rejoin_requested
            or (group.state == embedded_groups.JOINING and joined <= group.generation)
        ):
            self._rejoin(joined is None)
            with self._database.read() as execute:
                group = embedded_groups.load(execute, self._group)
        if group.state == embedded_groups.ASSIGNING and group.leader == self._member_id:
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
                embedded_groups.start_join(execute, self._group)
            embedded_groups.join(execute, self._group, self._member_id, subscription, self._timeouts)
        self._rejoin_requested = False

    def _decide(self, generation: int) -> None:
        # Not in a transaction: the callback may use other connections to the log.
        with self._database.read() as execute:
            members = embedded_groups.members(execute, self._group)
        decided = withhold(members, self._assign(members))
        with self._database.write() as execute:
            embedded_groups.assign(execute, self._group, generation, decided)

    def _take(self) -> Rebalance | None:
        with self._database.read() as execute:
            group = embedded_groups.load(execute, self._group)
        if group.state != embedded_groups.STABLE or group.generation == self._generation:
            return None
        with self._database.write() as execute:
            group = embedded_groups.load(execute, self._group)
            joined = self._joined(execute)
            # Since the read above the member may have been removed, or a new rebalance may have started.
            if group.state != embedded_groups.STABLE or joined is None or joined < group.generation:
                return None
            assignment = embedded_groups.take_assignment(execute, self._group, self._member_id, group.generation)
        before, after = self._partitions, frozenset(assignment.partitions)
        self._generation, self._partitions, self._revoked = group.generation, after, before - after
        return Rebalance(group.generation, after, before - after, after - before, assignment.data)


class _HeartbeatThread:
    """The thread that sends the member's heartbeats, and removes members without one."""

    def __init__(self, directory: Path, group: str, member_id: str, timeouts: embedded_groups.Timeouts):
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
                    # A member whose owner no longer polls must expire, although this thread runs.
                    if monotonic() - self._polled < self._timeouts.poll / 1000:
                        execute(
                            "UPDATE members SET heartbeat = ? WHERE grp = ? AND id = ?",
                            (embedded_groups.now(), self._group, self._member_id),
                        )
                    embedded_groups.expire(execute, self._group)
            except TransportError:
                # The fault may be gone at the next heartbeat; otherwise the member's own calls report it.
                continue
        database.close()
