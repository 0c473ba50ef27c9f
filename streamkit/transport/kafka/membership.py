"""Membership in a Kafka consumer group, through kafka-python: librdkafka takes no assignor of ours.

The group's coordinator client of a KafkaConsumer is used without its fetcher: it joins, sends heartbeats from a thread of
its own and commits; the records themselves come through librdkafka, by partitions assigned by hand.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka import ConsumerRebalanceListener
from kafka import KafkaConsumer as Client
from kafka import errors as kafka_errors
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka.structs import MemberState, OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition

from streamkit.errors import FencedError, TransportError
from streamkit.record import TopicPartition
from streamkit.transport.base import (
    Assign,
    CommittedOffset,
    Describe,
    Member,
    MemberAssignment,
    Membership,
    Rebalance,
)
from streamkit.transport.groups import NO_GENERATION, Generation, encode_generation, withhold
from streamkit.transport.kafka.membership_config import client_config
from streamkit.transport.kafka.membership_errors import translated

log = logging.getLogger(__name__)

PROTOCOL = "streamkit"
"""The name of the assignor in the group; members of one group must know the same one (Kafka Streams calls its `stream`)."""
# Version 1 of the consumer protocol brought the partitions that a member owns (KIP-429).
_VERSION = 1
_LEAVE_MS = 5_000


class KafkaMembership(Membership):
    """A member of a classic, cooperative group (KIP-429), static where group.instance.id is set (KIP-345)."""

    gated = True

    def __init__(self, settings: Mapping[str, str], timeout: float, group: str, assign: Assign):
        """`settings`: librdkafka's names; `timeout`: seconds that a call may wait for brokers. Raises ConfigError."""
        self._config = client_config(settings, timeout)
        self._address = settings["bootstrap.servers"]
        self._group = group
        self._instance = self._config.get("group_instance_id")
        self._timeout_ms = int(timeout * 1000)
        self._assignor = _Assignor(assign, lambda: self._claimed())
        self._lost = _Lost()
        self._number = NO_GENERATION
        self._member = ""
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._joining: _Joining | None = None
        self._client: Client | None = None

    @property
    def member_id(self) -> str:
        """The id that the group's coordinator gave; empty before."""
        return self._member

    def join(self, metadata: Describe, topics: Iterable[str]) -> None:
        self._assignor.describe = metadata
        self._assignor.say_anew()
        with translated("the group could not be joined", self._address):
            if self._client is None:
                strategy = {"partition_assignment_strategy": [self._assignor]}
                self._client = Client(**self._config, **strategy, group_id=self._group)
            self._client.subscribe(sorted(topics), listener=self._lost)
        self._coordinator.request_rejoin()

    def rebalance(self) -> None:
        self._assignor.say_anew()
        self._coordinator.request_rejoin()

    def rebalancing(self) -> bool:
        return self._client is not None and (self._joining is not None or self._coordinator.need_rejoin())

    def poll(self, timeout_ms: int, *, join: bool = True) -> Rebalance | None:
        with translated("the group could not be polled", self._address):
            if self._joining is None:
                self._check_lost()
                rebalance = self._take()
                if rebalance is not None:
                    return rebalance
                if not (join and self._coordinator.need_rejoin()):
                    self._keep_alive()
                    return None
                # On a thread of its own, and for as long as it takes: an attempt that its caller stops waiting for is
                # thrown away by kafka-python when it succeeds.
                self._joining = _Joining(self._coordinator.ensure_active_group)
            if not self._joining.finished(timeout_ms):
                return None
            joining, self._joining = self._joining, None
            joining.raise_failure()
            self._check_lost()
            return self._take()

    def group_metadata(self) -> bytes:
        return encode_generation(Generation(self._group, self._number, self._member), self._instance)

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        if self._number == NO_GENERATION or self._lost.happened or self._is_lost():
            raise FencedError(f"this member is in no generation of group {self._group}: its partitions are lost")
        rows = {KafkaPartition(*p): OffsetAndMetadata(c.offset, c.metadata) for p, c in offsets.items()}
        with translated("offsets could not be committed", self._address):
            self._coordinator.commit_offsets_sync(rows, timeout_ms=self._timeout_ms)

    def give_up(self, reason: str) -> None:
        with translated("the group could not be left", self._address):
            self._coordinator.maybe_leave_group(reason, timeout_ms=_LEAVE_MS)

    def leave(self) -> None:
        if self._client is None:
            return
        try:
            self._client.close(autocommit=False, timeout_ms=_LEAVE_MS)
        except Exception:
            # The group finds out by itself after session.timeout.ms.
            log.debug("leaving group %s failed", self._group, exc_info=True)
        self._client = None

    @property
    def _coordinator(self) -> Any:
        if self._client is None:
            raise TransportError("join the group before using it")
        return self._client._coordinator

    def _owned(self) -> frozenset[TopicPartition]:
        """What kafka-python holds that this member owns: it drops what was lost before it joins again."""
        return frozenset(TopicPartition(*each) for each in self._coordinator._subscription.assigned_partitions())

    def _claimed(self) -> frozenset[TopicPartition]:
        """What this member tells the group that it owns. When it was given up nothing: others have it by now.

        kafka-python goes on claiming it when that happens between joining and being assigned partitions.
        """
        if not self._is_lost():
            return self._owned()
        self._lost.happened = True
        return frozenset()

    def _keep_alive(self) -> None:
        try:
            self._coordinator.poll_heartbeat()
        except Exception:
            # The heartbeats ended by a fault; joining starts them again.
            self._coordinator.request_rejoin()
            raise
        stable = self._coordinator.group_metadata().state is MemberState.STABLE
        if self._instance and stable and not self._coordinator._heartbeat_enabled:
            # All that kafka-python does about it is to end the heartbeats.
            raise kafka_errors.FencedInstanceIdError(self._instance)

    def _is_lost(self) -> bool:
        """Whether the group is known to have gone on without this member."""
        now = self._coordinator.group_metadata()
        return self._number != NO_GENERATION and (now.generation_id == NO_GENERATION or now.member_id != self._member)

    def _check_lost(self) -> None:
        # A member that was told already joins again, and kafka-python reports it again then.
        lost = self._number != NO_GENERATION and (self._lost.happened or self._is_lost())
        self._lost.happened = False
        if lost:
            self._number, self._partitions = NO_GENERATION, frozenset()
            raise FencedError(f"group {self._group} went on without this member: its partitions are lost")

    def _take(self) -> Rebalance | None:
        """Return the assignment of a generation that is new to this member."""
        now = self._coordinator.group_metadata()
        if now.state is not MemberState.STABLE or now.generation_id == self._number:
            return None
        before, after = self._partitions, self._owned()
        self._number, self._member, self._partitions = now.generation_id, now.member_id, after
        return Rebalance(self._number, after, before - after, after - before, self._assignor.data)


class _Assignor(AbstractPartitionAssignor):
    """What kafka-python asks for when it joins: this member's word, and as the leader the decision."""

    name = PROTOCOL
    version = _VERSION

    def __init__(self, assign: Assign, owned: Callable[[], frozenset[TopicPartition]]):
        self.data = b""
        self.describe: Describe = bytes
        self._assign = assign
        self._owned = owned
        self._count = 0

    def say_anew(self) -> None:
        """Make the next word to the group a new one: what is unchanged brings no rebalance."""
        self._count = (self._count + 1) % 256

    def supported_protocols(self) -> list[RebalanceProtocol]:
        return [RebalanceProtocol.COOPERATIVE]

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        part = ConsumerProtocolSubscription.TopicPartition
        return ConsumerProtocolSubscription(
            version=_VERSION,
            topics=sorted(topics),
            user_data=bytes([self._count]) + self.describe(),
            owned_partitions=[
                part(topic=topic, partitions=numbers) for topic, numbers in _by_topic(self._owned()).items()
            ],
        )

    def assign(self, cluster: Any, members: Iterable[Any]) -> dict[str, ConsumerProtocolAssignment]:
        said = {
            member.member_id: Member(
                bytes(member.metadata.user_data or b"")[1:],
                frozenset(member.metadata.topics),
                frozenset(
                    TopicPartition(part.topic, number)
                    for part in member.metadata.owned_partitions or ()
                    for number in part.partitions
                ),
            )
            for member in members
        }
        decided = withhold(said, self._assign(said))
        return {member: _encoded(assignment) for member, assignment in decided.items()}

    def on_assignment(self, assignment: ConsumerProtocolAssignment, generation: int) -> None:
        self.data = bytes(assignment.user_data or b"")


class _Lost(ConsumerRebalanceListener):
    """Notes that partitions were lost: kafka-python says so when it joins again, which may be too late to look."""

    def __init__(self) -> None:
        self.happened = False

    def on_partitions_lost(self, lost: Any) -> None:
        self.happened = True

    def on_partitions_revoked(self, revoked: Any) -> None:
        pass

    def on_partitions_assigned(self, assigned: Any) -> None:
        pass


class _Joining:
    """A join under way."""

    def __init__(self, run: Callable[[], Any]):
        self._run = run
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._do, name="join", daemon=True)
        self._thread.start()

    def finished(self, timeout_ms: int) -> bool:
        """Wait for the end, at most so long; return whether it came."""
        self._thread.join(timeout_ms / 1000)
        return not self._thread.is_alive()

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _do(self) -> None:
        try:
            self._run()
        except Exception as error:
            self._failure = error


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(partitions):
        found[topic].append(number)
    return found


def _encoded(assignment: MemberAssignment) -> ConsumerProtocolAssignment:
    return ConsumerProtocolAssignment(_VERSION, list(_by_topic(assignment.partitions).items()), assignment.data)
