"""What a log is to streamkit: consumers, producers and administration, the same for Kafka and the embedded log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from streamkit.errors import TransportError
from streamkit.record import OutputRow, RecordBatch, TopicPartition

EARLIEST = -2
LATEST = -1


@dataclass(frozen=True)
class TopicInfo:
    """A topic as it exists."""

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
    """The next offset to read, and the metadata text that Kafka Streams keeps with it."""

    offset: int
    metadata: str = ""


class Consumer(ABC):
    """Reads partitions that were assigned by hand. Used by one thread."""

    @abstractmethod
    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Replace the assignment; values are the next offsets to read, or EARLIEST / LATEST."""

    @abstractmethod
    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """Assign further partitions, leaving the others where they are."""

    @abstractmethod
    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Give partitions up, leaving the others where they are."""

    @abstractmethod
    def poll(self, max_records: int, timeout_ms: int) -> list[RecordBatch]:
        """Return what there is, at most max_records, at least one batch a partition that has any; empty after timeout_ms.

        Raises UnreachableError, TopicError (unknown topic), RetriableTransportError, OffsetOutOfRange as TopicError.
        """

    @abstractmethod
    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give no records of these until resumed; what was fetched already is kept."""

    @abstractmethod
    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch these again."""

    @abstractmethod
    def position(self, partition: TopicPartition) -> int:
        """Return the next offset that poll will give (past control records)."""

    @abstractmethod
    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets after the last readable records (last stable offset under read_committed)."""

    def lags(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return how many offsets lie beyond the position as of the last fetch; where that is not known, a partition is missing."""
        ends = self.end_offsets(partitions)
        return {partition: max(0, end - self.position(partition)) for partition, end in ends.items()}

    @abstractmethod
    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offsets that exist."""

    @abstractmethod
    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offsets at or after these times (ms); the end where there are none."""

    @abstractmethod
    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's committed offsets; partitions without one are missing."""

    @abstractmethod
    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit for the group, synchronously."""

    @abstractmethod
    def group_metadata(self) -> bytes:
        """Return what Producer.commit takes when there is no Membership: the group's name without a generation."""

    @abstractmethod
    def close(self) -> None:
        """Leave."""


class Producer(ABC):
    """Writes records. Used by one thread."""

    @abstractmethod
    def send(self, rows: Sequence[OutputRow | tuple]) -> None:
        """Queue rows in order; blocks while the queue is full.

        Timestamp 0 is written as 1 by Kafka (librdkafka takes 0 for now). Raises ProductionError for what failed earlier.
        """

    @abstractmethod
    def flush(self) -> None:
        """Return when everything sent is acknowledged. Raises ProductionError with the first failure."""

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction (transactional producers only; the first call initialises and fences predecessors).

        Raises FencedError.
        """

    @abstractmethod
    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset], group_metadata: bytes | None) -> None:
        """Commit the transaction with these consumer offsets in it.

        group_metadata: from Membership or Consumer.group_metadata(); may be None only without offsets. Raises FencedError
        (another producer of the same transactional id, or a stale generation); the caller aborts after any error.
        """

    @abstractmethod
    def abort(self) -> None:
        """Abort the transaction."""

    @abstractmethod
    def close(self) -> None:
        """Flush what can be flushed and leave."""


class Admin(ABC):
    """Administration."""

    @abstractmethod
    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        """Return the topics that exist (all, or these); config is not filled in. Raises UnreachableError."""

    def partition_counts(self) -> dict[str, int]:
        """Return how many partitions each topic of the log has. Raises UnreachableError."""
        return {name: info.partitions for name, info in self.topics().items()}

    @abstractmethod
    def topic_config(self, name: str) -> dict[str, str]:
        """Return a topic's settings."""

    def topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        """Return what the log calls topics so that one that is deleted and made again is another; unknown ones are missing.

        Raises TransportError.
        """
        return {}

    @abstractmethod
    def create_topics(self, topics: Sequence[NewTopic]) -> None:
        """Create topics; one that exists already is left as it is. Raises TopicError."""

    @abstractmethod
    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics and return when they are gone."""

    @abstractmethod
    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete records before these offsets (repartition topics are purged after commits)."""

    @abstractmethod
    def group_members(self, group: str) -> list[str]:
        """Return the ids of a group's active members."""

    @abstractmethod
    def remove_members(self, group: str) -> list[str]:
        """Take all members out of a group, as if they had left, and return their ids; one that lives joins again."""

    @abstractmethod
    def close(self) -> None:
        """Leave."""


@dataclass(frozen=True)
class Member:
    """What the leader knows of a member: its own metadata, the topics it subscribes to, the partitions it still owns."""

    metadata: bytes
    topics: frozenset[str]
    owned: frozenset[TopicPartition]


@dataclass(frozen=True)
class MemberAssignment:
    """What the leader wants a member to own, and data for it that the transport passes on unread."""

    partitions: tuple[TopicPartition, ...]
    data: bytes = b""


Assign = Callable[[Mapping[str, Member]], Mapping[str, MemberAssignment]]
"""The leader's decision; it may want anything: partitions that another member still owns are held back until given up."""


Describe = Callable[[], bytes]
"""What a member tells the leader of itself, as of now."""


@dataclass(frozen=True)
class Rebalance:
    """A new assignment of this member.

    `partitions` are owned from now on; those that are `revoked` must be finished, committed and stopped before the next
    Membership.poll, which tells the group that they are free. `data` is that of the leader's decision, which may name
    partitions that follow in a later Rebalance, when their owners have given them up.
    """

    generation: int
    partitions: frozenset[TopicPartition]
    revoked: frozenset[TopicPartition]
    added: frozenset[TopicPartition]
    data: bytes


class Membership(ABC):
    """This member's place in a consumer group; heartbeats go on in the background.

    Used by one thread, except commit and group_metadata, which any thread may call.
    """

    gated = False
    """Whether a commit that is under way while this member joins may be refused as stale (see `rebalancing`)."""

    @property
    @abstractmethod
    def member_id(self) -> str:
        """Return the member's id in the group; empty where it is not known yet."""

    @abstractmethod
    def join(self, metadata: Describe, topics: Iterable[str]) -> None:
        """Join, or tell the group of new metadata or topics; either brings a rebalance.

        metadata: gives what the leader is told; asked at each rebalance, by any thread. Raises UnreachableError.
        """

    @abstractmethod
    def poll(self, timeout_ms: int, *, join: bool = True) -> Rebalance | None:
        """Take part in the group; return a changed assignment, or None after timeout_ms.

        join False: stay a member, but begin no rebalance now. Must be called more often than max_poll_interval_ms.
        Raises FencedError once when the group went on without this member (its partitions are lost, commits are
        refused); the next poll joins again.
        """

    def rebalancing(self) -> bool:
        """Return whether a poll would join, or has begun to and not returned a Rebalance; asked only where `gated`."""
        return False

    @abstractmethod
    def rebalance(self) -> None:
        """Ask for a rebalance without a change of this member (a follow-up, a probe)."""

    @abstractmethod
    def group_metadata(self) -> bytes:
        """Return what Producer.commit takes: group, generation and member."""

    @abstractmethod
    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit for the group, synchronously. Raises FencedError when the generation is stale."""

    @abstractmethod
    def give_up(self, reason: str) -> None:
        """Leave as one that is not to be trusted now: the others get the partitions, the next poll raises FencedError."""

    @abstractmethod
    def leave(self) -> None:
        """Leave the group and end the heartbeats; the others get the partitions."""


TRANSACTIONS = "transactions"
MEMBERSHIP = "membership"


class Transport(ABC):
    """A log: makes consumers, producers and admins. Shared by threads.

    `features` says which of TRANSACTIONS and MEMBERSHIP it offers; asking for another raises TransportError.
    """

    creates_written_topics = False
    """Whether an application creates the topics that it writes, since this log does not."""
    marks_commits = False
    """Whether a transaction that commits takes one more offset in each partition that it wrote to (a control record)."""
    features: frozenset[str] = frozenset()

    @abstractmethod
    def consumer(
        self, group: str | None, *, read_committed: bool = False, role: str = "main", client_id: str = ""
    ) -> Consumer:
        """Make a consumer; role picks the config prefix: main, restore or global."""

    @abstractmethod
    def producer(self, *, transactional_id: str | None = None, client_id: str = "") -> Producer:
        """Make a producer, idempotent and with Java's partitioner."""

    @abstractmethod
    def admin(self) -> Admin:
        """Make an admin client."""

    def membership(self, group: str, member_id: str, assign: Assign) -> Membership:
        """Make a member of a group; `assign` decides when this member leads. Raises TransportError where not offered."""
        raise TransportError(f"{type(self).__name__} offers no group membership")

    def prepare_membership(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Load what `membership` needs; any thread may call it, while something else is waited for."""

    def missing(self) -> str | None:
        """Return where the log will be, if nothing has been written to it yet and reading would create it; else None."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Release what is shared."""
