"""Interfaces of a log: consumers, producers, administration and group membership, for Kafka and the embedded log alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from streamkit.errors import TransportError
from streamkit.record import OutputTuple, RecordBatch, TaskId, TopicPartition

EARLIEST = -2
LATEST = -1


@dataclass(frozen=True)
class TopicInfo:
    """A topic that exists."""

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NewTopic:
    """A topic to create; replication_factor -1: the broker's default."""

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    replication_factor: int = -1


@dataclass(frozen=True)
class CommittedOffset:
    """The next offset to read, and the metadata text that Kafka Streams commits with it."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True)
class GroupMember:
    """An active member of a group and the partitions that it owns; none while it joins."""

    id: str
    name: str
    """The name that the member chose: for an instance, the process id of its state directory, host and process."""
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True)
class GroupDescription:
    """The active members of a group; `rebalancing`: whether they are joining or waiting for their assignment."""

    members: tuple[GroupMember, ...] = ()
    rebalancing: bool = False


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction that is open on a partition, where committed reads stop at `start`."""

    partition: TopicPartition
    start: int
    """The offset of its first record there."""
    producer_id: int
    epoch: int
    transactional_id: str = ""
    """Empty if no coordinator knows the producer id."""
    state: str = ""
    """The coordinator's state of the last transaction of this transactional id."""
    hanging: bool = False
    """Whether the coordinator has no open transaction on this partition, so that it never writes the marker that ends it."""

    def is_same(self, other: OpenTransaction) -> bool:
        """Return whether both are the same transaction, regardless of what its coordinator has done since."""
        fields = [
            (transaction.partition, transaction.start, transaction.producer_id, transaction.epoch)
            for transaction in (self, other)
        ]
        return fields[0] == fields[1]


class EndedTransaction(NamedTuple):
    """A lost transaction and how it was ended; committed None: it is still open, because of `reason`."""

    transaction: OpenTransaction
    committed: bool | None
    reason: str = ""


@dataclass(frozen=True)
class Outcome:
    """How a coordinator has ended a transaction; `committed` None: unknown, because of `reason`."""

    committed: bool | None
    reason: str = ""
    alive: bool = False
    """Whether the coordinator may still end the transaction."""


class Consumer(ABC):
    """Reads the partitions of a manual assignment. Used by one thread."""

    @abstractmethod
    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Replace the assignment; values are the next offsets to read, or EARLIEST / LATEST."""

    @abstractmethod
    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """Assign additional partitions; the positions of the others do not change."""

    @abstractmethod
    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions from the assignment; the positions of the others do not change."""

    @abstractmethod
    def poll(self, max_records: int, timeout_ms: int) -> list[RecordBatch]:
        """Return at most max_records available records, in at least one batch per partition; an empty list after timeout_ms.

        Raises UnreachableError, TopicError (unknown topic), RetriableTransportError, OffsetOutOfRange as TopicError.
        """

    @abstractmethod
    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until they are resumed; records already fetched are kept."""

    @abstractmethod
    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these partitions again."""

    @abstractmethod
    def position(self, partition: TopicPartition) -> int:
        """Return the next offset that poll will return (past control records)."""

    @abstractmethod
    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets after the last readable records (last stable offset under read_committed)."""

    def lags(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the number of offsets between position and end as of the last fetch; unknown partitions are missing."""
        ends = self.end_offsets(partitions)
        return {partition: max(0, end - self.position(partition)) for partition, end in ends.items()}

    @abstractmethod
    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first existing offsets."""

    @abstractmethod
    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offsets at or after these times (ms); the end offset if there is none."""

    @abstractmethod
    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's committed offsets; partitions without one are missing."""

    @abstractmethod
    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit for the group, synchronously."""

    @abstractmethod
    def group_metadata(self) -> bytes:
        """Return the group's name without a generation, for Producer.commit without a Membership."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""


class Producer(ABC):
    """Writes records. Used by one thread."""

    @abstractmethod
    def send(self, rows: Sequence[OutputTuple]) -> None:
        """Queue rows in order; blocks while the queue is full.

        The producer may finish after `send` has returned; the next call waits for it, even a call without rows. Timestamp 0
        is written to Kafka as 1 (librdkafka reads 0 as the current time). Raises ProductionError for rows that failed
        earlier.
        """

    @abstractmethod
    def flush(self) -> None:
        """Wait until all rows are acknowledged. Raises ProductionError with the first failure."""

    @abstractmethod
    def hasten(self, seconds: float) -> bool:
        """Send queued rows without waiting for fuller batches; return whether all were acknowledged within this time.

        Rows wait nevertheless if the user has set how long. Raises ProductionError for rows that failed.
        """

    def queued(self) -> int:
        """Return how many rows are not acknowledged yet, as far as it is known; 0 if none ever wait."""
        return 0

    def lost_broker(self) -> bool:
        """Return whether a connection to a broker was lost since the last call."""
        return False

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction (transactional producers only; the first call initialises the producer and fences its predecessors).

        Raises FencedError.
        """

    @abstractmethod
    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset], group_metadata: bytes | None) -> None:
        """Commit the transaction, including these consumer offsets.

        group_metadata: from Membership or Consumer.group_metadata(); may be None only without offsets. Raises FencedError
        (another producer of the same transactional id, or a stale generation); the caller aborts after any error.
        """

    @abstractmethod
    def abort(self) -> None:
        """Abort the transaction. Raises FencedError if another producer has fenced this one, which is then unusable."""

    @abstractmethod
    def close(self) -> None:
        """Flush as much as possible and close the connections."""


class Admin(ABC):
    """Administration of topics, records and groups."""

    @abstractmethod
    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        """Return the existing topics (all, or those of `names`) without their config. Raises UnreachableError."""

    def partition_counts(self) -> dict[str, int]:
        """Return the number of partitions of each topic. Raises UnreachableError."""
        return {name: info.partitions for name, info in self.topics().items()}

    def partitions_of(self, topic: str, seconds: float = 0) -> int | None:
        """Return the number of a topic's partitions, None if there is no such topic.

        A broker that creates topics creates it, within `seconds` at most. Raises TransportError.
        """
        found = self.topics([topic])
        return found[topic].partitions if topic in found else None

    @abstractmethod
    def topic_config(self, name: str) -> dict[str, str]:
        """Return a topic's settings."""

    def topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        """Return the ids of topics, which change when a topic is deleted and created again; topics without an id are missing.

        Raises TransportError.
        """
        return {}

    @abstractmethod
    def create_topics(self, topics: Sequence[NewTopic]) -> None:
        """Create topics; existing ones are not changed. Raises TopicError."""

    @abstractmethod
    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics and wait until they no longer exist."""

    @abstractmethod
    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete records before these offsets (repartition topics are purged after commits)."""

    @abstractmethod
    def describe_group(self, group: str) -> GroupDescription:
        """Return the active members of a group; none if it does not exist. Raises TransportError."""

    def group_members(self, group: str) -> list[str]:
        """Return the ids of a group's active members."""
        return [member.id for member in self.describe_group(group).members]

    def open_transactions(self, partitions: Sequence[TopicPartition], group: str = "") -> list[OpenTransaction]:
        """Return the transactions that are open on these partitions, and those of a group on the offsets topic.

        Raises TransportError.
        """
        return []

    def lacks_markers(self, transactional_id: str, topics: Collection[str], group: str, *, refresh: bool) -> bool:
        """Return whether the last transaction of an id, which has ended, lacks its marker in a partition of these topics.

        The partition of the group's offsets is looked at too, unless its name is empty. Brokers write markers after the end of a
        transaction has returned.
        refresh: read the producer's id and the partitions again, after the producer was replaced. Raises NotPermittedError if
        it has no right to look, other TransportErrors.
        """
        return False

    def end_lost(
        self, transactional_id: str, partitions: Sequence[TopicPartition], group: str, *, one_open: bool = False
    ) -> list[EndedTransaction]:
        """End the lost transactions of an id that has no live transaction now, as its coordinator did.

        partitions, group: where to look, as for `open_transactions`. one_open: whether the id never had two transactions open in
        a partition at once, which determines the outcome if the log no longer has a marker. Returns the transactions that were open. Raises
        NotPermittedError if it has no right to look, UnknownTopicError if brokers do not list the offsets topic, other
        TransportErrors while the coordinator or a partition leader can't answer.
        """
        return []

    def outcome_of(self, transaction: OpenTransaction) -> Outcome:
        """Return how the coordinator has ended a transaction that is still open in a partition. Raises TransportError."""
        raise TransportError("this log has no coordinators of transactions")

    def end_transaction(self, transaction: OpenTransaction, committed: bool) -> None:
        """End a hanging transaction in its partition. Raises TransportError, also if it is no longer open or hanging."""
        raise TransportError("this log has no coordinators of transactions")

    @abstractmethod
    def remove_members(self, group: str) -> list[str]:
        """Remove all members from a group and return their ids; a running member rejoins."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""


@dataclass(frozen=True)
class Member:
    """A member's subscription as sent to the leader: metadata, subscribed topics, and partitions that it still owns."""

    metadata: bytes
    topics: frozenset[str]
    owned: frozenset[TopicPartition]


@dataclass(frozen=True)
class MemberAssignment:
    """The partitions that the leader assigns to a member, and opaque data for the member."""

    partitions: tuple[TopicPartition, ...]
    data: bytes = b""


Assign = Callable[[Mapping[str, Member]], Mapping[str, MemberAssignment]]
"""The leader's decision. It may assign any partition: one that another member still owns is withheld until it is revoked."""


Describe = Callable[[], bytes]
"""Returns the current metadata of a member for the leader."""


@dataclass(frozen=True)
class Rebalance:
    """A new assignment of this member.

    The member owns `partitions` from now on. Before the next Membership.poll, which reports to the group that they are free, it
    commits and stops the `revoked` partitions. `data` comes with the leader's decision, and may name partitions that follow
    in a later Rebalance, once their owners have revoked them.
    """

    generation: int
    partitions: frozenset[TopicPartition]
    revoked: frozenset[TopicPartition]
    added: frozenset[TopicPartition]
    data: bytes


class Membership(ABC):
    """The membership of this process in a consumer group; a background thread sends heartbeats.

    Used by one thread, except commit and group_metadata, which any thread may call.
    """

    gated = False
    """Whether the group may reject a commit as stale while this member joins (see `rebalancing`)."""

    @property
    @abstractmethod
    def member_id(self) -> str:
        """Return the member's id in the group; empty if it is not known yet."""

    @abstractmethod
    def join(self, metadata: Describe, topics: Iterable[str]) -> None:
        """Join the group, or change metadata or topics; either starts a rebalance.

        metadata: returns the member's metadata; called at each rebalance, by any thread. Raises UnreachableError.
        """

    @abstractmethod
    def poll(self, timeout_ms: int, *, join: bool = True) -> Rebalance | None:
        """Take the next steps of the group protocol; return a changed assignment, or None after timeout_ms.

        join False: remain a member, but start no rebalance now. Must be called more often than every max_poll_interval_ms.
        Raises FencedError once if the group has removed this member (its partitions are lost, its commits are rejected);
        the next poll rejoins.
        """

    def rebalancing(self) -> bool:
        """Return whether a join is due, or in progress without a Rebalance so far; used only if `gated`."""
        return False

    def joining(self) -> bool:
        """Return whether a join has begun without a Rebalance so far; used only if `gated`."""
        return False

    @abstractmethod
    def rebalance(self) -> None:
        """Request a rebalance without a change of this member (a follow-up or probing rebalance)."""

    @abstractmethod
    def group_metadata(self) -> bytes:
        """Return group, generation and member as bytes, for Producer.commit."""

    @abstractmethod
    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit for the group, synchronously. Raises FencedError if the generation is stale."""

    @abstractmethod
    def give_up(self, reason: str) -> None:
        """Leave the group temporarily: the other members get the partitions, and the next poll raises FencedError."""

    @abstractmethod
    def leave(self) -> None:
        """Leave the group and stop the heartbeats; the other members get the partitions."""


@dataclass(frozen=True)
class SubTopologyTopics:
    """The topics of a sub-topology, as members of a streams group name them to its coordinator (KIP-1071)."""

    sources: tuple[str, ...]
    repartition_sinks: tuple[str, ...]
    repartition_sources: tuple[NewTopic, ...]
    """With 0 partitions if their number is derived from the topics upstream; so all changelogs."""
    changelogs: tuple[NewTopic, ...]
    copartition_groups: tuple[tuple[str, ...], ...]
    """Topics of `sources` and `repartition_sources`; members of one group must send them in one order."""


class NodeKind(IntEnum):
    """The kinds of nodes in the description of a topology, by their numbers in messages (KIP-1331)."""

    SOURCE = 1
    PROCESSOR = 2
    SINK = 3


@dataclass(frozen=True)
class DescribedNode:
    """A node in the description that a streams group has of its topology; topics have their names on the log."""

    name: str
    kind: NodeKind
    sources: tuple[str, ...] = ()
    sink: str | None = None
    """None: each record has a topic of its own."""
    stores: tuple[str, ...] = ()
    successors: tuple[str, ...] = ()


@dataclass(frozen=True)
class DescribedTopology:
    """The description that brokers ask members of a streams group for (KIP-1331); everything by name or number."""

    sub_topologies: Mapping[int, tuple[DescribedNode, ...]]
    global_stores: tuple[tuple[DescribedNode, DescribedNode], ...]
    """The source and the processor of each."""


@dataclass(frozen=True)
class StreamsInstance:
    """What a member of a streams group says of its instance when it joins."""

    process: str
    rebalance_timeout_ms: int
    """How long the group waits for this member to give up tasks."""
    server: str = ""
    """Host and port for queries; empty: none."""
    threads: int = 1
    """0: the instance runs no task, and leaves the group."""
    tags: Mapping[str, str] = field(default_factory=dict)
    offset_sums: Mapping[TaskId, int] = field(default_factory=dict)
    """For tasks with state that do not run here: the sum of their changelogs' offsets."""
    end_offset_sums: Mapping[TaskId, int] = field(default_factory=dict)
    end: bool = False
    """Whether all instances must stop."""


@dataclass(frozen=True)
class StreamsAssignment:
    """The tasks of a member of a streams group, and where other instances have partitions."""

    active: frozenset[TaskId] = frozenset()
    standby: frozenset[TaskId] = frozenset()
    """Standbys and warm-ups."""
    endpoints: Mapping[str, tuple[frozenset[TopicPartition], frozenset[TopicPartition]]] = field(default_factory=dict)
    """By host and port the input partitions of active tasks, and of standbys."""
    end: bool = False
    """Whether a member has requested that all instances stop."""


@dataclass(frozen=True)
class StreamsTopology:
    """The topology of a streams group, and what a member needs to take part in the group."""

    sub_topologies: Mapping[int, SubTopologyTopics]
    inputs: Callable[[TaskId], Iterable[TopicPartition]]
    """The input partitions of a task."""
    decode: Callable[[bytes], StreamsInstance]
    """Reads the metadata that Membership.join gets."""
    encode: Callable[[StreamsAssignment], bytes]
    """Turns an assignment into the data of a Rebalance."""
    description: DescribedTopology | None = None
    """What brokers get that ask for it; None: nothing."""


TRANSACTIONS = "transactions"
MEMBERSHIP = "membership"
STREAMS_GROUPS = "streams groups"


class Transport(ABC):
    """A log: creates consumers, producers and admins. Shared by threads.

    `features`: which of TRANSACTIONS, MEMBERSHIP and STREAMS_GROUPS it supports; using another feature raises TransportError.
    """

    creates_written_topics = False
    """Whether an application must create its output topics, because no broker does."""
    marks_commits = False
    """Whether the commit of a transaction takes one more offset in each partition that it wrote to (a control record)."""
    features: frozenset[str] = frozenset()

    @abstractmethod
    def consumer(
        self, group: str | None, *, read_committed: bool = False, role: str = "main", client_id: str = ""
    ) -> Consumer:
        """Create a consumer; `role` selects the prefix of its settings: main, restore or global."""

    @abstractmethod
    def producer(self, *, transactional_id: str | None = None, client_id: str = "") -> Producer:
        """Create a producer, idempotent and with Java's partitioner."""

    @abstractmethod
    def admin(self) -> Admin:
        """Create an admin client."""

    def membership(self, group: str, member_id: str, assign: Assign) -> Membership:
        """Create a member of a group; `assign` is called while it is the leader. Raises TransportError if not supported."""
        raise TransportError(f"{type(self).__name__} offers no group membership")

    def streams_membership(self, group: str, member_id: str, topology: StreamsTopology) -> Membership:
        """Create a member of a streams group, whose coordinator assigns tasks (KIP-1071). Raises TransportError if not supported."""
        raise TransportError(f"{type(self).__name__} offers no streams groups")

    def prepare_membership(self) -> None:  # noqa: B027 - only Kafka has something to prepare
        """Import the modules that `membership` needs; any thread may call it in advance."""

    def missing(self) -> str | None:
        """Return the location of a log that does not exist yet and that a read would create; None if it exists."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Close the shared connections."""


# Functions of every group membership: the bytes of a generation, and the withholding of owned partitions (KIP-429).

NO_GENERATION = -1
_MAGIC = b"CGMDv2:"


class Generation(NamedTuple):
    """The group, generation and member that an offset commit names; generation -1 and no member: a commit without a check."""

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
    """Remove from each wanted assignment the partitions that another member still owns and must revoke first.

    A member without a wanted assignment gets an empty one. A partition that several members claim is given to none of them:
    one has been removed from the group and does not know it yet.
    """
    owners: dict[TopicPartition, set[str]] = {}
    for name, member in members.items():
        for partition in member.owned:
            owners.setdefault(partition, set()).add(name)
    result = {}
    for name in members:
        assignment = wanted.get(name, MemberAssignment(()))
        free = tuple(partition for partition in assignment.partitions if owners.get(partition, {name}) == {name})
        result[name] = replace(assignment, partitions=free)
    return result
