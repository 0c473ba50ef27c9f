"""A Kafka broker as a simulation has it: logs with transactions, their coordinator, and the coordinator of classic groups.

Every method is one step: nothing else happens meanwhile. Errors are the names of Kafka's codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from streamkit.record import OutputTuple, TopicPartition
from streamkit.serdes.partitioner import partition as partition_of
from streamkit.transport.log_interface import CommittedOffset, NewTopic
from tests.simulation.scheduler import EPOCH_S, NEVER, Waiting

OFFSETS = TopicPartition("__consumer_offsets", 0)
_MARKER_S = 0.3
"""The longest time from the end of a transaction to its marker in a partition; sometimes it is ten times longer."""


class BrokerError(Exception):
    """The answer of a broker that is an error: the name of its code."""


@dataclass
class Entry:
    """A record or a marker; `state` of a record: plain, open, committed or aborted."""

    key: bytes | None
    value: bytes | None
    time: int
    headers: object
    state: str
    producer: int = -1


@dataclass
class Written:
    """What a partition has of a producer: its epoch, and the first sequence, last sequence and offset of its latest batches."""

    epoch: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass
class Partition:
    """A partition: its records from the offset `first` on, and the transactions that are open in it."""

    entries: list[Entry] = field(default_factory=list)
    first: int = 0
    open: dict[int, int] = field(default_factory=dict)
    """The offset of the first record by producer id."""
    producers: dict[int, Written] = field(default_factory=dict)
    tried: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The latest epoch that each producer has tried since its last transaction here, and the lowest sequence in it: the first
    record may have no higher one."""

    @property
    def end(self) -> int:
        return len(self.entries)

    def lowest(self, producer: int, epoch: int, sequence: int) -> int:
        """Note what a producer tries; return its lowest sequence so far (VerificationStateEntry)."""
        before, lowest = self.tried.get(producer, (epoch, sequence))
        if epoch >= before:
            self.tried[producer] = epoch, min(sequence, lowest) if epoch == before else sequence
        return self.tried[producer][1]

    def accept(self, producer: int, epoch: int, sequence: int, count: int) -> bool:
        """Note a batch of an idempotent producer; return False if it is here already (ProducerAppendInfo)."""
        known = self.producers.get(producer)
        if known is None:
            # Any sequence: what is known of a producer may have been deleted with its records.
            known = Written(epoch, [(0, sequence - 1, 0)])
        if epoch < known.epoch:
            raise BrokerError("INVALID_PRODUCER_EPOCH")
        if epoch > known.epoch:
            known = Written(epoch)
        last = sequence + count - 1
        if any(batch[:2] == (sequence, last) for batch in known.batches):
            return False
        if sequence != (known.batches[-1][1] + 1 if known.batches else 0):
            raise BrokerError("OUT_OF_ORDER_SEQUENCE_NUMBER")
        known.batches = [*known.batches[-4:], (sequence, last, self.end)]
        self.producers[producer] = known
        return True

    def stable(self) -> int:
        return min(self.open.values(), default=self.end)

    def append(self, rows: Iterable[OutputTuple], producer: int, now: int, *, transactional: bool) -> None:
        if transactional:
            self.open.setdefault(producer, self.end)
        state = "open" if transactional else "plain"
        for _, key, value, time, headers, _ in rows:
            self.entries.append(Entry(key, value, time or now, headers, state, producer))

    def end_transaction(self, producer: int, epoch: int, now: int, *, committed: bool) -> None:
        start = self.open.pop(producer, None)
        if self.producers.setdefault(producer, Written(epoch)).epoch < epoch:
            self.producers[producer] = Written(epoch)
        for entry in self.entries[start:] if start is not None else ():
            if entry.producer == producer and entry.state == "open":
                entry.state = "committed" if committed else "aborted"
        self.entries.append(Entry(None, None, now, None, "marker", producer))

    def read(self, offset: int, limit: int, *, committed: bool) -> tuple[list[tuple[int, Entry]], int]:
        """Return at most `limit` records from an offset on, and the offset after what was looked at."""
        if not self.first <= offset <= self.end:
            raise BrokerError("OFFSET_OUT_OF_RANGE")
        found: list[tuple[int, Entry]] = []
        end = self.stable() if committed else self.end
        while offset < end and len(found) < limit:
            entry = self.entries[offset]
            if entry.state != "marker" and not (committed and entry.state == "aborted"):
                found.append((offset, entry))
            offset += 1
        return found, offset


@dataclass
class Transaction:
    """What the coordinator has of a transactional id."""

    producer: int
    epoch: int = -1
    before: int = -1
    """The epoch before this one: a producer that repeats its request for a new epoch still has it."""
    state: str = "Empty"
    partitions: set[TopicPartition] = field(default_factory=set)
    offsets: dict[tuple[str, TopicPartition], CommittedOffset] = field(default_factory=dict)
    written: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    """As of a group."""
    began: float = 0.0
    timeout: float = 10.0


@dataclass
class Member:
    """A member of a group."""

    id: str
    session: float
    limit: float
    """Seconds that a rebalance waits for it."""
    metadata: bytes = b""
    seen: float = 0.0
    joining: bool = False
    assignment: bytes | None = None


@dataclass
class Group:
    """A group of the classic protocol."""

    generation: int = 0
    state: str = "Empty"
    members: dict[str, Member] = field(default_factory=dict)
    leader: str = ""
    pending: dict[str, float] = field(default_factory=dict)
    """When ids that were given to new members, which have not joined with them, end."""
    waits_until: float = 0.0
    """How long the present rebalance waits for members that have only an id: not at all if it is the first one of an empty group
    (`group.initial.rebalance.delay.ms` is 0), or its last member has left."""
    began: float = 0.0
    """When the present rebalance began."""
    exists: bool = False
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    written: dict[TopicPartition, int] = field(default_factory=dict)
    """The order in which offsets were written: of two, the end of a transaction keeps the later one."""


class Broker:
    """A broker that always answers; clients decide when, and whether they hear it."""

    def __init__(self, random: Random, clock: Callable[[], float]):
        self.topics: dict[str, list[Partition]] = {}
        self.transactions: dict[str, Transaction] = {}
        self.groups: dict[str, Group] = {}
        self.down_until = 0.0
        self.leaves_at = float("inf")
        """When it has begun to shut down: from then on it skips markers of some partitions, as Kafka 4.3 and 4.4 do (KAFKA-20734)."""
        self.skipped: dict[tuple[TopicPartition, int], tuple[bool, float]] = {}
        """Transactions that have ended without a marker in a partition, by producer id: whether they were committed, and when."""
        self.readers = Waiting()
        """Who waits for more to read."""
        self.members = Waiting()
        """Who waits for others to join, or for the leader's assignment."""
        self.moves = 0
        """How many times a group has changed."""
        self.worker = Waiting()
        """Who calls `work`."""
        self.lost: set[str] = set()
        """Members that claimed no partition as they joined last, or whose generation was refused: their processes know of the loss."""
        self.wrong: list[str] = []
        """What no application may do, whatever comes of it: a partition in two hands, an offset that goes back."""
        self._owners: dict[tuple[int, TopicPartition], list[str]] = {}
        """Which transactional ids have committed the offsets of a partition, by the generation of the group."""
        self.history: list[str] = []
        self.slow_markers = 0.02
        """The chance that the markers of a transaction take long."""
        self.verbose = False
        """Whether the history has each end of a transaction in a partition."""
        self._random = random
        self._clock = clock
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    # -- Time --

    @property
    def is_down(self) -> bool:
        return self._clock() < self.down_until

    def work(self) -> None:
        """Do what is due."""
        if self.is_down:
            return
        now = self._clock()
        due = sorted((each for each in self._due if each[0] <= now), key=lambda each: each[:2])
        self._due = [each for each in self._due if each[0] > now]
        for _, _, step in due:
            step()
        for name, transaction in self.transactions.items():
            if transaction.state == "Ongoing" and now - transaction.began > transaction.timeout:
                self._note(f"transaction of {name} times out")
                transaction.epoch += 1
                self._end(name, transaction, committed=False)
        for group in self.groups.values():
            self._look_at(group, now)

    def due(self) -> float:
        """Return when there is more to do."""
        return self.down_until if self.is_down else min((each[0] for each in self._due), default=NEVER)

    def restart(self, seconds: float) -> None:
        """Answer nothing for a while; members have their whole sessions afterwards."""
        self.leaves_at = float("inf")
        self.down_until = self._clock() + seconds
        for group in self.groups.values():
            for member in group.members.values():
                member.seen = self.down_until

    def _later(self, seconds: float, step: Callable[[], None]) -> None:
        self._count += 1
        self._due.append((self._clock() + seconds, self._count, step))
        self.worker.tell()

    def _note(self, text: str) -> None:
        self.history.append(f"{self._clock():9.3f} broker: {text}")

    def _now_ms(self) -> int:
        return int((EPOCH_S + self._clock()) * 1000)

    # -- Topics --

    def create(self, topics: Sequence[NewTopic]) -> None:
        for topic in topics:
            self.topics.setdefault(topic.name, [Partition() for _ in range(topic.partitions)])

    def partition(self, place: TopicPartition) -> Partition:
        if place.topic not in self.topics:
            raise BrokerError("UNKNOWN_TOPIC_OR_PART")
        return self.topics[place.topic][place.partition]

    def place_of(self, row: OutputTuple) -> TopicPartition:
        count = len(self.topics[row[0]])
        if row[5] is not None:
            return TopicPartition(row[0], row[5])
        return TopicPartition(row[0], partition_of(row[1], count) if row[1] is not None else 0)

    def produce(self, rows: Sequence[OutputTuple]) -> None:
        for row in rows:
            self.partition(self.place_of(row)).append([row], -1, self._now_ms(), transactional=False)
        self.readers.tell()

    # -- Transactions --

    def init_producer(self, name: str, timeout: float, epoch: int | None = None) -> tuple[int, int]:
        """Fence the last producer of an id; return the new one's id and epoch. `epoch`: of a producer that wants a new one."""
        found = self.transactions.setdefault(name, Transaction(len(self.transactions) + 1000))
        found.timeout = timeout
        if found.state == "Ongoing":
            found.before, found.epoch = found.epoch, found.epoch + 1
            self._note(f"{name} is taken over while it has a transaction, which is aborted")
            self._end(name, found, committed=False)
        if found.state.startswith("Prepare"):
            raise BrokerError("CONCURRENT_TRANSACTIONS")
        # Only now: a producer that is fenced aborts the transaction of its successor.
        if epoch is not None and epoch not in (found.epoch, found.before):
            raise BrokerError("PRODUCER_FENCED")
        if epoch is None or epoch == found.epoch:
            found.before, found.epoch = -1 if epoch is None else epoch, found.epoch + 1
        found.state = "Empty"
        return found.producer, found.epoch

    def _checked(self, name: str, epoch: int) -> Transaction:
        found = self.transactions[name]
        if found.epoch != epoch:
            raise BrokerError("INVALID_PRODUCER_EPOCH")
        return found

    def _begun(self, name: str, epoch: int) -> Transaction:
        found = self._checked(name, epoch)
        if found.state.startswith("Prepare"):
            raise BrokerError("CONCURRENT_TRANSACTIONS")
        if found.state != "Ongoing":
            found.state, found.began = "Ongoing", self._clock()
        return found

    def add_partitions(self, name: str, epoch: int, places: Iterable[TopicPartition]) -> None:
        """Add partitions to a transaction."""
        self._begun(name, epoch).partitions.update(places)

    def produce_in(
        self, name: str, epoch: int, place: TopicPartition, sequence: int, rows: Sequence[OutputTuple]
    ) -> None:
        """Write to a partition of a transaction; a batch that is there already is not written again."""
        found, partition = self.transactions[name], self.partition(place)
        known = partition.producers.get(found.producer)
        # A partition asks the coordinator before the first record of a transaction (KIP-890).
        if found.producer not in partition.open or known is None or known.epoch != epoch:
            lowest = partition.lowest(found.producer, epoch, sequence)
            self._checked(name, epoch)
            if found.state != "Ongoing" or place not in found.partitions:
                raise BrokerError("INVALID_TXN_STATE")
            if sequence > lowest:
                raise BrokerError("OUT_OF_ORDER_SEQUENCE_NUMBER")
        if partition.accept(found.producer, epoch, sequence, len(rows)):
            partition.tried.pop(found.producer, None)
            partition.append(rows, found.producer, self._now_ms(), transactional=True)
            self.readers.tell()

    def offsets_in(
        self,
        name: str,
        epoch: int,
        group: str,
        generation: int,
        member: str,
        offsets: dict[TopicPartition, CommittedOffset],
    ) -> None:
        """Add offsets to a transaction; the group checks who sends them."""
        found = self._begun(name, epoch)
        self._check_sender(group, generation, member)
        found.offsets.update({(group, place): offset for place, offset in offsets.items()})
        self._count += 1
        for place in offsets:
            found.written[group, place] = self._count
            self._note_owner(generation, place, name)

    def _note_owner(self, generation: int, place: TopicPartition, name: str) -> None:
        """Note who commits. A thread may pass a task on to another one of its process, after its last commit."""
        owners = self._owners.setdefault((generation, place), [name])
        if owners[-1] == name:
            return
        if name in owners or owners[-1].rpartition("-")[0] != name.rpartition("-")[0]:
            self.wrong.append(
                f"generation {generation}: {owners[-1]} and {name} both commit {place.topic}-{place.partition}"
            )
        owners.append(name)

    def end_transaction(self, name: str, epoch: int, *, committed: bool) -> None:
        found = self._checked(name, epoch)
        if found.state == "Ongoing":
            self._end(name, found, committed=committed)
            return
        wanted = "Commit" if committed else "Abort"
        if found.state in (f"Prepare{wanted}", f"Complete{wanted}"):
            return
        raise BrokerError("CONCURRENT_TRANSACTIONS" if found.state.startswith("Prepare") else "INVALID_TXN_STATE")

    def lacks_markers(self, name: str, topics: Iterable[str]) -> bool:
        """Return whether a transaction of an id is open in a partition of these topics."""
        producer = self.transactions[name].producer
        return any(producer in partition.open for topic in topics for partition in self.topics.get(topic, ()))

    def end_lost(self, name: str) -> list[tuple[TopicPartition, bool]]:
        """End the transactions of an id that have no marker; return where, and how each was ended."""
        found = self.transactions.get(name)
        if found is None:
            return []
        if found.state.startswith("Prepare"):
            raise BrokerError("CONCURRENT_TRANSACTIONS")
        mine = [place for place, producer in self.skipped if producer == found.producer]
        return [(place, self._end_skipped(place, found.producer)) for place in mine]

    def end_old(self, seconds: float) -> None:
        """End what was skipped so long ago, as an operator does with the command: the tasks may have moved away."""
        for (place, producer), (_, since) in list(self.skipped.items()):
            if self._clock() - since > seconds:
                self._note(f"the operator ends a transaction in {place.topic}-{place.partition}")
                self._end_skipped(place, producer)

    def _end_skipped(self, place: TopicPartition, producer: int) -> bool:
        committed, _ = self.skipped.pop((place, producer))
        epoch = max(each.epoch for each in self.transactions.values() if each.producer == producer)
        self.partition(place).end_transaction(producer, epoch, self._now_ms(), committed=committed)
        self.readers.tell()
        return committed

    def _end(self, name: str, found: Transaction, *, committed: bool) -> None:
        word = "Commit" if committed else "Abort"
        found.state = f"Prepare{word}"
        left: set[TopicPartition] = set(found.partitions)
        groups = {group for group, _ in found.offsets}
        waiting: list[object] = [*left, *groups]
        producer, epoch = found.producer, found.epoch

        def finish(one: object) -> None:
            waiting.remove(one)
            if not waiting:
                found.state = f"Complete{word}"
                found.partitions.clear()

        def mark(place: TopicPartition) -> None:
            if self.verbose:
                partition = self.partition(place)
                start = partition.open.get(producer)
                self._note(
                    f"{word} of {name} {found.epoch} in {place.topic}-{place.partition} from {start} at {partition.end}"
                )
            if self._clock() > self.leaves_at and self._random.random() < 0.5:
                self.skipped[place, producer] = committed, self._clock()
                self._note(f"the marker of {name} in {place.topic}-{place.partition} is skipped")
            else:
                # Ends what was skipped before, too.
                self.skipped.pop((place, producer), None)
                self.partition(place).end_transaction(producer, epoch, self._now_ms(), committed=committed)
                self.readers.tell()
            finish(place)

        def take(group: str) -> None:
            for (each, place), offset in list(found.offsets.items()):
                if each == group:
                    del found.offsets[each, place]
                    of_group, order = self.group(group), found.written.pop((each, place))
                    if committed and order > of_group.written.get(place, 0):
                        before = of_group.offsets.get(place)
                        if before is not None and before.offset > offset.offset:
                            self.wrong.append(
                                f"{place.topic}-{place.partition} goes back from {before.offset} to {offset.offset}"
                            )
                        of_group.offsets[place], of_group.written[place] = offset, order
                        if self.verbose:
                            self._note(
                                f"offset of {place.topic}-{place.partition}: {offset.offset} by {name} {found.epoch}"
                            )
            finish(group)

        slow = 10 if self._random.random() < self.slow_markers else 1
        for place in sorted(left):
            self._later(self._random.random() * _MARKER_S * slow, lambda place=place: mark(place))  # type: ignore[misc]
        for group in sorted(groups):
            self._later(self._random.random() * _MARKER_S * slow, lambda group=group: take(group))  # type: ignore[misc]
        if not waiting:
            found.state = f"Complete{word}"

    # -- Groups --

    def group(self, name: str) -> Group:
        return self.groups.setdefault(name, Group())

    def committed(
        self, name: str, places: Sequence[TopicPartition], *, stable: bool
    ) -> dict[TopicPartition, CommittedOffset]:
        pending = {place for each in self.transactions.values() for group, place in each.offsets if group == name}
        if stable and pending.intersection(places):
            raise BrokerError("UNSTABLE_OFFSET_COMMIT")
        offsets = self.group(name).offsets
        return {place: offsets[place] for place in places if place in offsets}

    def commit(self, name: str, generation: int, member: str, offsets: dict[TopicPartition, CommittedOffset]) -> None:
        group = self.group(name)
        self._check_sender(name, generation, member)
        if not member and group.state != "Empty":
            raise BrokerError("UNKNOWN_MEMBER_ID")
        if group.state == "CompletingRebalance":
            raise BrokerError("REBALANCE_IN_PROGRESS")
        group.offsets.update(offsets)
        self._count += 1
        group.written.update(dict.fromkeys(offsets, self._count))

    def _check_sender(self, name: str, generation: int, member: str) -> None:
        """Refuse offsets of a member that is not in the generation; those without a generation pass while there are no members."""
        group = self.group(name)
        if not group.exists and generation >= 0:
            raise BrokerError("ILLEGAL_GENERATION")
        group.exists = True
        if generation >= 0 or (member and self.group(name).state != "Empty"):
            if member in group.members and generation != group.generation and member not in self.lost:
                # Its thread takes this for a removal, and closes its tasks.
                self.wrong.append(
                    f"{member} commits in generation {generation} although it has joined {group.generation}"
                )
            self._check_member(name, generation, member)

    def _check_member(self, name: str, generation: int, member: str) -> Group:
        group = self.group(name)
        if member not in group.members:
            raise BrokerError("UNKNOWN_MEMBER_ID")
        if generation != group.generation:
            # Its process begins to close its tasks, which may take its threads some time.
            self.lost.add(member)
            raise BrokerError("ILLEGAL_GENERATION")
        return group

    def new_member(self, name: str, client: str, session: float) -> str:
        """Return the id of a new member, which joins with it (KIP-394)."""
        self._count += 1
        member = f"{client}-{self._count:06d}"
        group = self.group(name)
        group.exists, group.pending[member] = True, self._clock() + session
        return member

    def join(self, name: str, member: str, metadata: bytes, session: float, limit: float) -> None:
        """Begin to join; `joined` tells when the generation is there."""
        group = self.group(name)
        if member not in group.members and group.pending.pop(member, None) is None:
            raise BrokerError("UNKNOWN_MEMBER_ID")
        found = group.members.setdefault(member, Member(member, session, limit))
        found.seen = self._clock()
        again = found.metadata == metadata and not found.joining
        if again and (group.state == "CompletingRebalance" or (group.state == "Stable" and group.leader != member)):
            # A join that is repeated has the answer of the first one.
            return
        found.metadata, found.joining, found.assignment = metadata, True, None
        self._rebalance(group)
        self._look_at(group, self._clock())

    def joined(self, name: str, member: str) -> tuple[int, str, dict[str, bytes]] | None:
        """Return the generation, its leader and, for that, all metadata; None while members are missing."""
        group = self.group(name)
        if member not in group.members:
            raise BrokerError("UNKNOWN_MEMBER_ID")
        group.members[member].seen = self._clock()
        if group.state == "PreparingRebalance":
            return None
        everyone = {each.id: each.metadata for each in group.members.values()} if group.leader == member else {}
        return group.generation, group.leader, everyone

    def sync(self, name: str, generation: int, member: str, assignments: dict[str, bytes]) -> bytes | None:
        """Return a member's assignment; None until the leader has sent it."""
        group = self._check_member(name, generation, member)
        group.members[member].seen = self._clock()
        if group.state == "PreparingRebalance":
            raise BrokerError("REBALANCE_IN_PROGRESS")
        if group.state == "CompletingRebalance" and assignments:
            for each in group.members.values():
                each.assignment = assignments.get(each.id, b"")
            group.state = "Stable"
            self._tell_members()
        return group.members[member].assignment if group.state == "Stable" else None

    def synced(self, name: str, generation: int, member: str) -> bytes | None:
        """Go on with a sync. A member that is removed meanwhile never hears of it."""
        return self.sync(name, generation, member, {}) if member in self.group(name).members else None

    def heartbeat(self, name: str, generation: int, member: str) -> None:
        group = self._check_member(name, generation, member)
        group.members[member].seen = self._clock()
        if group.state == "PreparingRebalance":
            raise BrokerError("REBALANCE_IN_PROGRESS")

    def leave(self, name: str, member: str) -> None:
        group = self.group(name)
        if group.members.pop(member, None) is not None:
            self._note(f"{member} leaves")
            self._rebalance(group)
            self._tell_members()
        elif group.pending.pop(member, None) is None:
            raise BrokerError("UNKNOWN_MEMBER_ID")
        elif group.members:
            self._rebalance(group)
        self._look_at(group, self._clock())

    def _rebalance(self, group: Group) -> None:
        if group.state != "PreparingRebalance":
            initial = group.state == "Empty"
            longest = max((member.limit for member in group.members.values()), default=0.0)
            group.waits_until = self._clock() + (0.0 if initial else longest)
            group.state, group.began = "PreparingRebalance", self._clock()
            self._tell_members()

    def _tell_members(self) -> None:
        self.moves += 1
        self.members.tell()

    def _look_at(self, group: Group, now: float) -> None:
        """Remove members that are silent, and begin the generation that everybody has joined."""
        group.pending = {member: end for member, end in group.pending.items() if end > now}
        for member in list(group.members.values()):
            silent = now - member.seen > member.session
            late = group.state == "PreparingRebalance" and not member.joining and now - group.began > member.limit
            # Whoever waits for the others is there.
            if late or (silent and not (member.joining and group.state == "PreparingRebalance")):
                self._note(f"{member.id} is removed: {'late' if late else 'silent'}")
                del group.members[member.id]
                self._rebalance(group)
                self._tell_members()
        if group.state != "PreparingRebalance" or (group.pending and now < group.waits_until):
            return
        if not group.members:
            group.state, group.leader = "Empty", ""
            group.generation += 1
            return
        if all(member.joining for member in group.members.values()):
            group.generation += 1
            group.state = "CompletingRebalance"
            if group.leader not in group.members:
                group.leader = next(iter(group.members))
            for member in group.members.values():
                member.joining, member.assignment, member.seen = False, None, now
            self._tell_members()
            self._note(f"generation {group.generation}: {', '.join(group.members)}, led by {group.leader}")
