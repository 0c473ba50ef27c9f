"""Membership in a Kafka consumer group, and committed offsets, through kafka-python: librdkafka accepts no custom assignor.

The coordinator client of a KafkaConsumer is used without its fetcher: it joins, commits, and sends heartbeats from its own
thread. The records are read by librdkafka, with a manual assignment.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import sleep

from kafka import ConsumerRebalanceListener
from kafka import KafkaConsumer as Client
from kafka import errors as kafka_errors
from kafka.cluster import ClusterMetadata
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.protocol.consumer import JoinGroupResponse, OffsetFetchResponse
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka.structs import MemberState, OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition

from streamkit.config import Config
from streamkit.errors import ConfigError, FencedError, TransportError
from streamkit.record import TopicPartition
from streamkit.transport.kafka.python_client import python_settings, stopped_on_failure, translated
from streamkit.transport.log_interface import (
    NO_GENERATION,
    Assign,
    CommittedOffset,
    Describe,
    Generation,
    Member,
    MemberAssignment,
    Membership,
    Rebalance,
    encode_generation,
    withhold,
)

log = logging.getLogger(__name__)

PROTOCOL = "streamkit"
"""The name of the assignor in the group; all members of a group must use the same one (Kafka Streams calls its `stream`)."""
# Since version 1 of the consumer protocol, subscriptions contain the partitions that a member owns (KIP-429).
_VERSION = 1
_LEAVE_MS = 5_000
_LONGEST_WAIT_MS = 50
"""How long a poll waits if there is nothing to wait for: the caller looks again for what has come meanwhile."""


class KafkaMembership(Membership):
    """A member of a classic, cooperative group (KIP-429), static if group.instance.id is set (KIP-345)."""

    gated = True

    def __init__(self, settings: Mapping[str, str], timeout: float, group: str, assign: Assign):
        """`settings`: librdkafka's names; `timeout`: seconds for which a call may wait for brokers. Raises ConfigError."""
        self._config = client_config(settings, timeout)
        self._address = settings["bootstrap.servers"]
        self._group = group
        self._instance = settings.get("group.instance.id") or None
        self._timeout_ms = int(timeout * 1000)
        self._assignor = _Assignor(assign, lambda: self._claimed())
        self._lost_partitions = _LostPartitions()
        self._number = NO_GENERATION
        self._member = ""
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._join_thread: _JoinThread | None = None
        self._client: Client | None = None

    @property
    def member_id(self) -> str:
        """The id that the group's coordinator gave; empty before."""
        return self._member

    def join(self, metadata: Describe, topics: Iterable[str]) -> None:
        self._assignor.describe = metadata
        self._assignor.change_user_data()
        with translated("the group could not be joined", self._address):
            if self._client is None:
                own = {"partition_assignment_strategy": [self._assignor], "group_id": self._group}
                with stopped_on_failure() as connections:
                    self._client = Client(**self._config, **own, kafka_client=connections)
            self._client.subscribe(sorted(topics), listener=self._lost_partitions)
        self._coordinator.request_rejoin()

    def rebalance(self) -> None:
        self._assignor.change_user_data()
        self._coordinator.request_rejoin()

    def rebalancing(self) -> bool:
        return self._client is not None and (self._join_thread is not None or self._coordinator.need_rejoin())

    def joining(self) -> bool:
        return self._join_thread is not None

    def poll(self, timeout_ms: int, *, join: bool = True) -> Rebalance | None:
        with translated("the group could not be polled", self._address):
            if self._join_thread is None:
                self._check_lost()
                rebalance = self._take()
                if rebalance is not None:
                    return rebalance
                if not (join and self._coordinator.need_rejoin()):
                    self._keep_alive()
                    if timeout_ms:
                        # Even a sleep of no time gives up the core, and wakes the process again.
                        sleep(min(timeout_ms, _LONGEST_WAIT_MS) / 1000)
                    return None
                # In a separate thread and without a time-out, because kafka-python drops the result of an attempt whose caller
                # no longer waits.
                self._join_thread = _JoinThread(self._coordinator.ensure_active_group)
            if not self._join_thread.finished(timeout_ms):
                return None
            join_thread, self._join_thread = self._join_thread, None
            join_thread.raise_failure()
            if self._assignor.changed():
                # kafka-python forgets a request for a rebalance that comes during one.
                self._coordinator.request_rejoin()
            self._check_lost()
            return self._take()

    def group_metadata(self) -> bytes:
        return encode_generation(Generation(self._group, self._number, self._member), self._instance)

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        if self._number == NO_GENERATION or self._lost_partitions.happened or self._is_lost():
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
            # The group removes the member after session.timeout.ms.
            log.debug("leaving group %s failed", self._group, exc_info=True)
        self._client = None

    @property
    def _coordinator(self) -> ConsumerCoordinator:
        if self._client is None:
            raise TransportError("join the group before using it")
        return self._client._coordinator

    def _owned(self) -> frozenset[TopicPartition]:
        """The partitions that this member owns for kafka-python, which drops lost ones before it joins again."""
        return frozenset(
            TopicPartition(*assigned_partition)
            for assigned_partition in self._coordinator._subscription.assigned_partitions()
        )

    def _claimed(self) -> frozenset[TopicPartition]:
        """The owned partitions in this member's subscription: none once the group has removed it, since others own them now.

        kafka-python would still claim them if the member is removed between a join and its assignment, or while a join is
        repeated because brokers did not answer: it drops them only as the first attempt begins.
        """
        if self._is_lost():
            self._lost_partitions.happened = True
        elif self._number != NO_GENERATION:
            return self._owned()
        return frozenset()

    def _keep_alive(self) -> None:
        try:
            self._coordinator.poll_heartbeat()
        except Exception:
            # The heartbeats ended with an error; a join restarts them.
            self._coordinator.request_rejoin()
            raise
        stable = self._coordinator.group_metadata().state is MemberState.STABLE
        if self._instance and stable and not self._coordinator._heartbeat_enabled:
            # kafka-python only ends the heartbeats of a fenced static member.
            raise kafka_errors.FencedInstanceIdError(self._instance)

    def _is_lost(self) -> bool:
        """Whether kafka-python has noticed that the group removed this member."""
        now = self._coordinator.group_metadata()
        return self._number != NO_GENERATION and (now.generation_id == NO_GENERATION or now.member_id != self._member)

    def _check_lost(self) -> None:
        # Without a generation, the loss has already been raised; kafka-python reports it again at the next join.
        lost = self._number != NO_GENERATION and (self._lost_partitions.happened or self._is_lost())
        self._lost_partitions.happened = False
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


class _Assignor(AbstractPartitionAssignor):  # type: ignore[misc]  # kafka-python has no types
    """Gives kafka-python this member's subscription at each join, and the assignment while it is the leader."""

    name = PROTOCOL
    version = _VERSION

    def __init__(self, assign: Assign, owned: Callable[[], frozenset[TopicPartition]]):
        self.data = b""
        self.describe: Describe = bytes
        self._assign = assign
        self._owned = owned
        self._count = self._sent = 0

    def changed(self) -> bool:
        """Whether the user data has changed since the last join."""
        return self._count != self._sent

    def change_user_data(self) -> None:
        """Change a byte of the user data: an unchanged subscription starts no rebalance."""
        self._count = (self._count + 1) % 256

    def supported_protocols(self) -> list[RebalanceProtocol]:
        return [RebalanceProtocol.COOPERATIVE]

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        part = ConsumerProtocolSubscription.TopicPartition
        self._sent = self._count
        return ConsumerProtocolSubscription(
            version=_VERSION,
            topics=sorted(topics),
            user_data=bytes([self._count]) + self.describe(),
            owned_partitions=[
                part(topic=topic, partitions=numbers) for topic, numbers in _by_topic(self._owned()).items()
            ],
        )

    def assign(
        self, cluster: ClusterMetadata, members: Iterable[JoinGroupResponse.JoinGroupResponseMember]
    ) -> dict[str, ConsumerProtocolAssignment]:
        subscriptions = {
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
        decided = withhold(subscriptions, self._assign(subscriptions))
        return {member: _encoded(assignment) for member, assignment in decided.items()}

    def on_assignment(self, assignment: ConsumerProtocolAssignment, generation: int) -> None:
        self.data = bytes(assignment.user_data or b"")


class _LostPartitions(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """Notes that partitions were lost. kafka-python calls it at the next join, when `_is_lost` may no longer be true."""

    def __init__(self) -> None:
        self.happened = False

    def on_partitions_lost(self, lost: Iterable[KafkaPartition]) -> None:
        self.happened = True

    def on_partitions_revoked(self, revoked: Iterable[KafkaPartition]) -> None:
        pass

    def on_partitions_assigned(self, assigned: Iterable[KafkaPartition]) -> None:
        pass


class _JoinThread:
    """A thread that joins the group."""

    def __init__(self, run: Callable[[], object]):
        self._run = run
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._do, name="join", daemon=True)
        self._thread.start()

    def finished(self, timeout_ms: int) -> bool:
        """Wait for the end of the join, at most timeout_ms; return whether it has ended."""
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
    numbers: dict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(partitions):
        numbers[topic].append(number)
    return numbers


def _encoded(assignment: MemberAssignment) -> ConsumerProtocolAssignment:
    return ConsumerProtocolAssignment(_VERSION, list(_by_topic(assignment.partitions).items()), assignment.data)


# Converts librdkafka's settings of a group member to those of kafka-python.

# kafka-python rejects a request time-out as long as the time after which it closes idle connections (9 minutes).
_MAX_REQUEST_MS = 500_000
_NUMBERS = {
    "session.timeout.ms": "session_timeout_ms",
    "max.poll.interval.ms": "max_poll_interval_ms",
    "socket.timeout.ms": "request_timeout_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "reconnect.backoff.ms": "reconnect_backoff_ms",
    "reconnect.backoff.max.ms": "reconnect_backoff_max_ms",
    "topic.metadata.refresh.interval.ms": "metadata_max_age_ms",
}
# The response to a heartbeat announces a rebalance: with Kafka's 3 s, a moving task would pause for that long.
_HEARTBEAT_MS = 500


def client_config(settings: Mapping[str, str], timeout: float) -> dict[str, object]:
    """Return the arguments of KafkaConsumer, without group and assignor.

    `timeout`: seconds to wait for the first broker. Raises ConfigError.
    """
    config: dict[str, object] = {
        **python_settings(settings),
        "bootstrap_timeout_ms": int(timeout * 1000),
        "enable_auto_commit": False,
        "allow_auto_create_topics": False,
        "metrics_enabled": False,
    }
    for name, target in _NUMBERS.items():
        if name in settings:
            number = int(settings[name])
            config[target] = min(number, _MAX_REQUEST_MS) if target == "request_timeout_ms" else number
    if settings.get("group.instance.id"):
        config["group_instance_id"] = settings["group.instance.id"]
    config["heartbeat_interval_ms"] = _heartbeat(settings)
    return config


def _heartbeat(settings: Mapping[str, str]) -> int:
    session = int(settings.get("session.timeout.ms", Config.session_timeout_ms.default))
    if "heartbeat.interval.ms" not in settings:
        return min(_HEARTBEAT_MS, max(1, session // 3))
    interval = int(settings["heartbeat.interval.ms"])
    if interval >= session:
        raise ConfigError(f"heartbeat.interval.ms is {interval}; it must be less than session.timeout.ms, {session}")
    return interval


# Committed offsets with their metadata, through kafka-python.
# confluent-kafka can't read metadata: it treats the metadata of another client as a C string, and reads memory beyond its end up
# to a zero byte. It writes such a byte after its own metadata, which is removed here.


class CommittedOffsets:
    """Reads a group's offsets without a membership. Every thread may call it; it connects on first use."""

    def __init__(self, settings: Mapping[str, str], timeout: float, group: str, read_committed: bool):
        """`read_committed`: wait for transactions that have sent offsets and have not ended (KIP-447)."""
        self._address = settings["bootstrap.servers"]
        self._timeout_ms = int(timeout * 1000)
        # Only the membership may use the static member's id.
        plain = {name: value for name, value in settings.items() if name != "group.instance.id"}
        self._config: dict[str, object] = {
            **client_config(plain, timeout),
            "group_id": group,
            "isolation_level": "read_committed" if read_committed else "read_uncommitted",
        }
        self._lock = threading.Lock()
        self._client: Client | None = None

    def read(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets; partitions without one are missing. Raises UnreachableError, TransportError."""
        wanted = [KafkaPartition(*partition) for partition in partitions]
        with translated("committed offsets could not be read", self._address):
            with self._lock, stopped_on_failure() as connections:
                if self._client is None:
                    self._client = Client(**self._config, kafka_client=connections)
                    raise_unknown(self._client._coordinator)
            coordinator = self._client._coordinator
            try:
                committed = coordinator.fetch_committed_offsets(wanted, timeout_ms=self._timeout_ms)
            except BaseException:
                # kafka-python would return a late answer to the next read of these partitions, whose offsets may be newer.
                coordinator._offset_fetch_futures.pop(frozenset(wanted), None)
                raise
        return {
            TopicPartition(*place): CommittedOffset(offset.offset, (offset.metadata or "").rstrip("\0"))
            for place, offset in committed.items()
        }

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._client is not None:
                self._client.close(autocommit=False)
                self._client = None


def raise_unknown(coordinator: ConsumerCoordinator) -> None:
    """Make a coordinator client raise UnknownTopicOrPartitionError for committed offsets, as Java's does.

    kafka-python takes such a partition for one without a committed offset, which would be read by the reset policy.
    """
    handle = coordinator._handle_offset_fetch_response

    def checked(response: OffsetFetchResponse) -> dict[KafkaPartition, OffsetAndMetadata]:
        for answer in (response, *(response.groups or ())):
            for topic in answer.topics or ():
                for partition in topic.partitions:
                    if partition.error_code == kafka_errors.UnknownTopicOrPartitionError.errno:
                        raise kafka_errors.UnknownTopicOrPartitionError(f"{topic.name}-{partition.partition_index}")
        offsets: dict[KafkaPartition, OffsetAndMetadata] = handle(response)
        return offsets

    coordinator._handle_offset_fetch_response = checked
