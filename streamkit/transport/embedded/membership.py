"""Group membership over the embedded log: poll takes the group's next step, a thread keeps the member alive."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import monotonic

from streamkit.errors import FencedError, TransportError
from streamkit.record import TopicPartition
from streamkit.transport.base import Assign, CommittedOffset, Describe, Member, Membership, Rebalance
from streamkit.transport.embedded import groups
from streamkit.transport.embedded.database import Database
from streamkit.transport.embedded.log import commit_offsets
from streamkit.transport.groups import NO_GENERATION, Generation, encode_generation, withhold

HEARTBEAT_SECONDS = 3.0


class EmbeddedMembership(Membership):
    """A member; its owned partitions are what the last Rebalance gave, and until the next poll what it revoked too."""

    def __init__(self, directory: Path, group: str, member_id: str, assign: Assign, timeouts: tuple[int, int]):
        self._member_id = member_id
        self._group = group
        self._assign = assign
        self._timeouts = groups.Timeouts(*timeouts)
        self._database = Database(directory)
        # Threads commit beside the one that polls, and a connection is one thread's at a time.
        self._commits = Database(directory)
        self._lock = threading.Lock()
        self._said: tuple[Describe, frozenset[str]] | None = None
        self._generation = NO_GENERATION
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._revoked: frozenset[TopicPartition] = frozenset()
        self._again = False
        self._seen_version = -1
        self._heart = _Heart(directory, group, member_id, self._timeouts)

    @property
    def member_id(self) -> str:
        return self._member_id

    def join(self, metadata: Describe, topics: Iterable[str]) -> None:
        self._said = metadata, frozenset(topics)
        self._again = True
        self._heart.start()

    def rebalance(self) -> None:
        self._again = True

    def poll(self, timeout_ms: int, *, join: bool = True) -> Rebalance | None:
        if self._said is None:
            raise TransportError("join the group before polling it")
        self._heart.polled()
        if not join:
            return None
        if self._revoked:
            # The members that get these wait for this message.
            self._revoked = frozenset()
            self._again = True
        deadline = monotonic() + timeout_ms / 1000
        while True:
            version = self._database.version()
            if version != self._seen_version or self._again:
                rebalance = self._step()
                if rebalance is not None:
                    return rebalance
                self._seen_version = version
            left = deadline - monotonic()
            if left <= 0 or not self._database.wait_for_change(version, left, self._heart.stopped):
                return None

    def group_metadata(self) -> bytes:
        return encode_generation(self._current())

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        rows = [(p.topic, p.partition, c.offset, c.metadata) for p, c in offsets.items()]
        with self._lock, self._commits.write() as execute:
            # A member that was never in a generation has nothing to commit.
            if self._generation == NO_GENERATION:
                raise FencedError(f"member {self._member_id} is in no generation of group {self._group}")
            groups.check_generation(execute, self._current())
            commit_offsets(execute, self._group, rows)

    def give_up(self, reason: str) -> None:
        with self._database.write() as execute:
            groups.remove(execute, self._group, self._member_id)

    def leave(self) -> None:
        self._heart.stop()
        with self._database.write() as execute:
            groups.remove(execute, self._group, self._member_id)
        self._database.close()
        self._commits.close()

    def _current(self) -> Generation:
        return Generation(self._group, self._generation, self._member_id)

    def _step(self) -> Rebalance | None:
        """Do what this member can do for the group now; return the assignment when that brings a new one."""
        with self._database.read() as execute:
            group = groups.load(execute, self._group)
            joined = self._joined(execute)
        if joined is None or self._again or (group.state == groups.JOINING and joined <= group.generation):
            self._rejoin(joined is None)
            with self._database.read() as execute:
                group = groups.load(execute, self._group)
        if group.state == groups.ASSIGNING and group.leader == self._member_id:
            self._decide(group.generation)
        return self._take()

    def _joined(self, execute: groups.Execute) -> int | None:
        row = execute("SELECT joined FROM members WHERE grp = ? AND id = ?", (self._group, self._member_id)).fetchone()
        return row and row[0]

    def _rejoin(self, unknown: bool) -> None:
        if unknown and self._generation != NO_GENERATION:
            self._generation = NO_GENERATION
            self._partitions = self._revoked = frozenset()
            raise FencedError(f"group {self._group} went on without member {self._member_id}: its partitions are lost")
        assert self._said is not None
        describe, topics = self._said
        said = Member(describe(), topics, self._partitions | self._revoked)
        with self._database.write() as execute:
            if self._again:
                groups.start_join(execute, self._group)
            groups.join(execute, self._group, self._member_id, said, self._timeouts)
        self._again = False

    def _decide(self, generation: int) -> None:
        # Outside of a transaction: the callback may use other connections to the log.
        with self._database.read() as execute:
            members = groups.members(execute, self._group)
        decided = withhold(members, self._assign(members))
        with self._database.write() as execute:
            groups.assign(execute, self._group, generation, decided)

    def _take(self) -> Rebalance | None:
        with self._database.read() as execute:
            group = groups.load(execute, self._group)
        if group.state != groups.STABLE or group.generation == self._generation:
            return None
        with self._database.write() as execute:
            group = groups.load(execute, self._group)
            joined = self._joined(execute)
            # The member may have been given up, or the group have gone on, since the look before.
            if group.state != groups.STABLE or joined is None or joined < group.generation:
                return None
            assignment = groups.take(execute, self._group, self._member_id, group.generation)
        before, after = self._partitions, frozenset(assignment.partitions)
        self._generation, self._partitions, self._revoked = group.generation, after, before - after
        return Rebalance(group.generation, after, before - after, after - before, assignment.data)


class _Heart:
    """The thread that says that this process lives, and that notices others that don't."""

    def __init__(self, directory: Path, group: str, member_id: str, timeouts: groups.Timeouts):
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
                    # A member that hangs must not be kept alive by its thread.
                    if monotonic() - self._polled < self._timeouts.poll / 1000:
                        execute(
                            "UPDATE members SET heartbeat = ? WHERE grp = ? AND id = ?",
                            (groups.now(), self._group, self._member_id),
                        )
                    groups.expire(execute, self._group)
            except TransportError:
                # The disk may have space again at the next heartbeat; the member's own calls report what stays broken.
                continue
        database.close()
