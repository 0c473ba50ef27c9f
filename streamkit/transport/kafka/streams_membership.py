"""Membership in a streams group (KIP-1071): the group's coordinator assigns tasks in its answers to heartbeats.

A thread sends the requests through kafka-python. `poll` returns the new assignment. The member must give up the tasks that it lost
before the next poll; the heartbeat after that poll no longer names them, so the coordinator can assign them to other members
(StreamsMembershipManager).
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, IntEnum, auto
from time import monotonic
from typing import NamedTuple

from kafka import KafkaAdminClient
from kafka import errors as kafka_errors
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import OffsetCommitRequest, OffsetCommitResponse
from kafka.protocol.data_container import DataContainer
from kafka.protocol.metadata import CoordinatorType

from streamkit.errors import FencedError, InvalidTopologyError, StreamkitError, TopicError, TransportError
from streamkit.record import TaskId, TopicPartition
from streamkit.transport.kafka.messages import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from streamkit.transport.kafka.python_client import connected_admin, translated
from streamkit.transport.log_interface import (
    CommittedOffset,
    Describe,
    DescribedNode,
    DescribedTopology,
    Generation,
    Membership,
    NewTopic,
    Rebalance,
    StreamsAssignment,
    StreamsInstance,
    StreamsTopology,
    SubTopologyTopics,
    encode_generation,
)

log = logging.getLogger(__name__)

_COMMIT_VERSION = 9
"""The last version that names topics, not their ids, and the first that takes a member's epoch."""
_WITH_OFFSETS = 1
"""The first version of heartbeats that may contain offsets; coordinators before 4.4 refuse them."""
_JOIN, _LEAVE, _LEAVE_FOR_A_WHILE = 0, -1, -2
"""The epochs of a member that joins, of one that leaves, and of a static one that leaves for a short time."""
_TOPOLOGY_EPOCH = 0
"""As in Kafka Streams 4.4: a group keeps its first topology until it is empty."""
_FIRST_INTERVAL = 5.0
"""Seconds between heartbeats until the coordinator names its interval (group.streams.heartbeat.interval.ms)."""
_BACKOFF = 0.1
_FOREIGN_SECONDS = 60.0
"""How long a member waits for the sessions of members of another protocol, which are 45 s by default."""
_DESCRIBE_SECONDS = 10.0
"""How long heartbeats repeat the same offsets of standbys (Kafka's minimum of task.offset.interval.ms is 15 s)."""

_Request = StreamsGroupHeartbeatRequest
_Update = StreamsGroupTopologyDescriptionUpdateRequest
_FATAL = {
    kafka_errors.GroupAuthorizationFailedError.errno,
    kafka_errors.TopicAuthorizationFailedError.errno,
    kafka_errors.InvalidRequestError.errno,
    kafka_errors.GroupMaxSizeReachedError.errno,
    kafka_errors.FencedInstanceIdError.errno,
    kafka_errors.UnsupportedVersionError.errno,
    kafka_errors.InconsistentGroupProtocolError.errno,
    130,  # STREAMS_INVALID_TOPOLOGY
    131,  # STREAMS_INVALID_TOPOLOGY_EPOCH
    132,  # STREAMS_TOPOLOGY_FENCED
}
_NOT_A_MEMBER = (
    kafka_errors.UnknownMemberIdError,
    kafka_errors.GroupIdNotFoundError,
    kafka_errors.FencedInstanceIdError,
)
"""The coordinator's errors for a leaving member that is not in the group, or whose group.instance.id belongs to another one."""
_FENCED = {kafka_errors.FencedMemberEpochError.errno, kafka_errors.UnknownMemberIdError.errno}


class _State(Enum):
    """The state of the membership."""

    OUT = auto()
    """It joins at the next poll."""
    JOINING = auto()
    MEMBER = auto()
    LOST = auto()
    """The next poll raises FencedError, because the tasks are lost."""
    LEFT = auto()


class _Status(IntEnum):
    """The status of a group in an answer (StreamsGroupHeartbeatResponse.Status)."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


class _Tasks(NamedTuple):
    """The tasks of a member."""

    active: frozenset[TaskId] = frozenset()
    standby: frozenset[TaskId] = frozenset()
    warmup: frozenset[TaskId] = frozenset()


_NO_TASKS = _Tasks()


@dataclass(frozen=True)
class _Decision:
    """The last decision of the coordinator."""

    epoch: int = _JOIN
    tasks: _Tasks = _NO_TASKS
    endpoints_epoch: int = -1
    endpoints: Mapping[str, tuple[frozenset[TopicPartition], frozenset[TopicPartition]]] | None = None
    end: bool = False


class StreamsMembership(Membership):
    """A member of a streams group: one for each instance, whatever the number of its threads; static with group.instance.id."""

    def __init__(self, settings: Mapping[str, str], timeout: float, group: str, topology: StreamsTopology):
        """`settings`: librdkafka's names; `timeout`: seconds for which a call may wait for brokers."""
        self._group = group
        self._static_id = settings.get("group.instance.id") or None
        self._topology = topology
        self._member = str(uuid.uuid4())
        self._coordinator = _Coordinator(settings, timeout, group)
        self._instance = _Instance(topology)
        self._description = _Description(self._coordinator, group, self._member, topology.description)
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        # The lock of `_changed` protects all attributes from here on.
        self._state = _State.OUT
        self._interval = _FIRST_INTERVAL
        self._due = 0.0
        self._decided = _Decision()
        self._reported = _Decision()
        """The decision that the last poll returned."""
        self._owned = _Tasks()
        """The tasks that this member owns; the next call of `poll` replaces them with those that the last call returned."""
        self._named_tasks: _Tasks | None = None
        """The tasks that the last heartbeat named; None: the next one must name all tasks."""
        self._resync = False
        """Whether an answer with other tasks may have been lost. The member then joins again, because that answer names all tasks."""
        self._turn = 0
        """Counts joins and losses. Answers to requests of an earlier turn are ignored."""
        self._may_be_member = False
        """Whether the coordinator may know this member."""
        self._has_threads = True
        self._polled_at = monotonic()
        self._must_report = False
        self._failure: StreamkitError | None = None
        self._foreign_since: float | None = None
        self._missing_since: float | None = None
        self._warned: tuple[str, ...] = ()

    @property
    def member_id(self) -> str:
        """The id of this member. Members of streams groups choose their own."""
        return self._member

    def join(self, metadata: Describe, topics: Iterable[str]) -> None:
        self._coordinator.connect()
        instance = self._instance.described_by(metadata)
        with self._changed:
            self._has_threads = instance.threads > 0
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="streams-group", daemon=True)
                self._thread.start()
                self._join_or_own()
            self._wake()
            leaves = self._state is _State.MEMBER and not self._has_threads
        if leaves:
            self.give_up("it has no threads")

    def rebalance(self) -> None:
        with self._changed:
            self._must_report = True
            self._wake()

    def poll(self, timeout_ms: int, *, join: bool = True) -> Rebalance | None:
        with self._changed:
            self._polled_at = monotonic()
            if join:
                self._join_or_own()
            self._changed.wait_for(lambda: self._has_news(join), timeout_ms / 1000)
            if self._failure is not None:
                raise self._failure
            if self._state is _State.LOST:
                self._state = _State.OUT
                raise FencedError(f"group {self._group} went on without this member: its tasks are lost")
            return self._take() if join and self._has_assignment() else None

    def group_metadata(self) -> bytes:
        with self._changed:
            return encode_generation(Generation(self._group, self._decided.epoch, self._member), self._static_id)

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        deadline = monotonic() + self._coordinator.timeout
        with translated("offsets could not be committed", self._coordinator.address):
            while True:
                with self._changed:
                    if self._state is not _State.MEMBER:
                        raise FencedError(f"this member is not in group {self._group}: its tasks are lost")
                    epoch = self._decided.epoch
                try:
                    self._coordinator.commit(offsets, epoch, self._member, self._static_id)
                    return
                except kafka_errors.KafkaError as error:
                    # A heartbeat changed the epoch, and its answer has not arrived yet (brokers before 4.4, KIP-1251).
                    is_stale = isinstance(error, kafka_errors.StaleMemberEpochError)
                    if not (is_stale or error.retriable) or monotonic() > deadline:
                        raise
                    self._coordinator.forget()
                with self._changed:
                    self._changed.wait(_BACKOFF)

    def give_up(self, reason: str) -> None:
        with self._changed:
            self._lose()
        with translated("the group could not be left", self._coordinator.address):
            self._leave(_LEAVE)

    def leave(self) -> None:
        with self._changed:
            self._state = _State.LEFT
            self._turn += 1
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if not self._coordinator.is_connected:
            return
        # Otherwise the coordinator removes the member after group.streams.session.timeout.ms.
        with suppress(StreamkitError, kafka_errors.KafkaError):
            if self._may_be_member:
                self._leave(_LEAVE if self._static_id is None else _LEAVE_FOR_A_WHILE)
        with suppress(kafka_errors.KafkaError):
            self._coordinator.close()

    # -- The member's side of an assignment; callers hold the lock --------------------------------------------------------

    def _join_or_own(self) -> None:
        """Join if the member is out of the group; otherwise own the tasks that the last poll returned, as lost ones are closed."""
        if self._state is _State.OUT:
            if self._has_threads:
                self._state = _State.JOINING
                self._turn += 1
                self._wake()
        elif self._owned != self._reported.tasks:
            self._owned = self._reported.tasks
            self._wake()

    def _has_news(self, join: bool) -> bool:
        return self._failure is not None or self._state is _State.LOST or (join and self._has_assignment())

    def _has_assignment(self) -> bool:
        """Return whether the coordinator has decided something that the last Rebalance did not contain."""
        return self._state is _State.MEMBER and (self._must_report or self._decided != self._reported)

    def _take(self) -> Rebalance:
        before, after = self._partitions(self._owned.active), self._partitions(self._decided.tasks.active)
        self._must_report, self._reported = False, self._decided
        tasks = self._decided.tasks
        assignment = StreamsAssignment(
            tasks.active, tasks.standby | tasks.warmup, self._decided.endpoints or {}, self._decided.end
        )
        data = self._topology.encode(assignment)
        return Rebalance(self._decided.epoch, after, before - after, after - before, data)

    def _partitions(self, tasks: Iterable[TaskId]) -> frozenset[TopicPartition]:
        return frozenset(partition for task in tasks for partition in self._topology.inputs(task))

    def _lose(self) -> None:
        """Forget all tasks: the next poll raises FencedError, and the one after that joins again."""
        self._state, self._resync, self._named_tasks = _State.LOST, False, None
        self._turn += 1
        self._decided, self._reported, self._owned = _Decision(), _Decision(), _Tasks()
        self._changed.notify_all()

    def _wake(self) -> None:
        self._due = 0.0
        self._changed.notify_all()

    # -- Heartbeats -------------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        while True:
            with self._changed:
                while not self._is_due():
                    waits = self._state in (_State.MEMBER, _State.JOINING)
                    self._changed.wait(max(0.0, self._due - monotonic()) if waits else None)
                if self._state is _State.LEFT:
                    return
                self._due = monotonic() + self._interval
                turn = self._turn
            try:
                self._beat_once(turn)
            except Exception as error:
                self._handle_failure(error, turn)

    def _beat_once(self, turn: int) -> None:
        instance = self._instance.latest()
        overdue = monotonic() - self._polled_at > instance.rebalance_timeout_ms / 1000
        with self._changed:
            if turn != self._turn:
                return
            if overdue:
                log.warning("leaving group %s: it was not polled for max.poll.interval.ms", self._group)
                self._lose()
            joins = self._state is _State.JOINING or self._resync
        if overdue:
            self._leave(_LEAVE)
            return
        if joins and self._static_id is not None and self._may_be_member:
            # A static member can join only after its predecessor has left, even if that is the same instance.
            with suppress(*_NOT_A_MEMBER):
                self._leave(_LEAVE_FOR_A_WHILE)
        with self._changed:
            if turn != self._turn:
                return
            request, named = self._heartbeat(instance, joins)
            self._may_be_member = True
        answer = self._coordinator.send(request)
        _raise_error(answer)
        self._handle_answer(answer, turn, named)

    def _leave(self, epoch: int) -> None:
        _raise_error(self._coordinator.send(self._empty_heartbeat(epoch)))
        self._may_be_member = epoch == _LEAVE_FOR_A_WHILE

    def _is_due(self) -> bool:
        if self._state is _State.LEFT:
            return True
        return self._state in (_State.MEMBER, _State.JOINING) and monotonic() >= self._due

    def _heartbeat(self, instance: StreamsInstance, joins: bool) -> tuple[StreamsGroupHeartbeatRequest, _Tasks]:
        """Return the next heartbeat, and the tasks that the coordinator knows after it; the caller holds the lock."""
        request = self._empty_heartbeat(_JOIN if joins else self._decided.epoch)
        tasks = _Tasks() if joins else self._owned
        if joins or tasks != self._named_tasks:
            request.active_tasks, request.standby_tasks, request.warmup_tasks = map(_grouped, tasks)
        request.endpoint_information_epoch = -1 if joins else self._decided.endpoints_epoch
        request.shutdown_application = instance.end
        request.task_offsets = _offsets(instance.offset_sums)
        request.task_end_offsets = _offsets(instance.end_offset_sums)
        if joins:
            _describe_instance(request, instance, self._topology.sub_topologies)
        return request, tasks

    def _empty_heartbeat(self, epoch: int) -> StreamsGroupHeartbeatRequest:
        """Return a heartbeat that identifies its sender and has no other contents."""
        return _Request(
            group_id=self._group,
            member_id=self._member,
            member_epoch=epoch,
            endpoint_information_epoch=-1,
            instance_id=self._static_id,
        )

    def _handle_answer(self, answer: StreamsGroupHeartbeatResponse, turn: int, named: _Tasks) -> None:
        with self._changed:
            if turn != self._turn:
                return
            self._interval = answer.heartbeat_interval_ms / 1000
            self._due = min(self._due, monotonic() + self._interval)
            decided = _updated(self._decided, answer)
            if self._resync and not (self._owned.active | self._reported.tasks.active) <= decided.tasks.active:
                # Tasks that the lost answer took away may already run elsewhere, and no poll has reported their loss.
                self._lose()
                return
            self._state, self._resync, self._named_tasks, self._foreign_since = _State.MEMBER, False, named, None
            self._decided = replace(decided, end=self._handle_status(answer.status or ()))
            if answer.topology_description_required:
                self._description.push()
            if named != self._owned:
                self._due = 0.0
            self._changed.notify_all()

    def _handle_status(self, statuses: Sequence[DataContainer]) -> bool:
        """Handle the status of the group; return whether all instances must stop (handleStreamsRebalanceData)."""
        details = {status.status_code: status.status_detail for status in statuses}
        wrong = details.get(_Status.INCORRECTLY_PARTITIONED_TOPICS)
        if wrong is not None:
            self._failure = InvalidTopologyError(wrong)
        missing = details.get(_Status.MISSING_SOURCE_TOPICS)
        if missing is None:
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = monotonic()
        elif monotonic() - self._missing_since >= 2 * self._interval:
            self._failure = TopicError(f"source topics are missing: {missing}")
        said = tuple(f"{detail}" for code, detail in sorted(details.items()) if code != _Status.SHUTDOWN_APPLICATION)
        if said != self._warned:
            self._warned = said
            for detail in said:
                log.warning("group %s: %s", self._group, detail)
        return _Status.SHUTDOWN_APPLICATION in details

    def _handle_failure(self, error: Exception, turn: int) -> None:
        """Handle a failed heartbeat: send it again, join as a new member, or end the membership."""
        number = error.errno if isinstance(error, kafka_errors.BrokerResponseError) else None
        is_fatal = number in _FATAL or not (
            error.retriable or number is None
            if isinstance(error, kafka_errors.KafkaError)
            else isinstance(error, TransportError)
        )
        with self._changed:
            if turn != self._turn:
                return
            self._named_tasks = None
            self._due = monotonic() + _BACKOFF
            self._coordinator.forget()
            joining = self._state is _State.JOINING
            if number in _FENCED or (isinstance(error, kafka_errors.GroupIdNotFoundError) and not joining):
                log.info("group %s: %s", self._group, error)
                self._lose()
            elif isinstance(error, kafka_errors.GroupIdNotFoundError):
                self._wait_for_foreign()
            elif isinstance(error, kafka_errors.UnreleasedInstanceIdError):
                # The id of an instance that was killed. The coordinator releases it when the session ends; Kafka Streams gives up.
                log.info("group %s: %s", self._group, error)
                self._due = monotonic() + self._interval
            elif is_fatal:
                self._end(self._fatal(error))
            elif not isinstance(error, kafka_errors.CoordinatorLoadInProgressError):
                # The coordinator may have made a decision, even if its answer is that it is no longer the coordinator.
                self._resync = not joining
        log.debug("a heartbeat to group %s failed: %s", self._group, error)

    def _wait_for_foreign(self) -> None:
        """Try again while members of another protocol are in the group, up to a limit; the caller holds the lock."""
        self._due = monotonic() + self._interval
        if self._foreign_since is None:
            self._foreign_since = monotonic()
            log.warning("group %s has members of another protocol; waiting for them to end", self._group)
        elif monotonic() - self._foreign_since > _FOREIGN_SECONDS:
            self._end(
                TransportError(
                    f"the group could not be joined: {self._group} is not a streams group; stop its members first"
                )
            )

    def _end(self, failure: StreamkitError) -> None:
        """Make all further polls fail; the caller holds the lock."""
        self._state, self._failure = _State.LEFT, failure
        self._turn += 1
        self._changed.notify_all()

    def _fatal(self, error: Exception) -> StreamkitError:
        if isinstance(error, kafka_errors.InvalidRequestError) and "Topology updates" in str(error):
            return TransportError(
                f"group {self._group} has another topology; stop all its members first, since a streams group takes a new "
                "topology only while it is empty"
            )
        try:
            with translated("the group could not be joined", self._coordinator.address):
                raise error
        except StreamkitError as translated_error:
            return translated_error
        except Exception as other:
            return TransportError(f"the group could not be joined: {type(other).__name__}: {other}")


class _Coordinator:
    """The coordinator of a group, to which a member sends its requests."""

    def __init__(self, settings: Mapping[str, str], timeout: float, group: str):
        self.address = settings["bootstrap.servers"]
        self.timeout = timeout
        self._settings = settings
        self._group = group
        self._admin: KafkaAdminClient | None = None

    @property
    def is_connected(self) -> bool:
        """Whether requests can be sent."""
        return self._admin is not None

    def connect(self) -> None:
        """Connect to the brokers. Raises TransportError."""
        if self._admin is None:
            self._admin = connected_admin(self._settings, self.timeout, "the group could not be joined")

    def close(self) -> None:
        """End the connection. Raises KafkaError."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def send(self, request: ApiMessage) -> ApiMessage:
        """Send a request, and return the answer. Raises KafkaError."""
        admin = self._admin
        assert admin is not None

        async def ask() -> ApiMessage:
            coordinators = await admin._find_coordinator_ids([self._group])
            if (
                isinstance(request, _Request)
                and admin._manager.broker_version_data.api_version(request) < _WITH_OFFSETS
            ):
                request.task_offsets = request.task_end_offsets = None
            return await admin._manager.send(request, node_id=coordinators[self._group])

        return admin._manager.run(ask)

    def forget(self) -> None:
        """Make the next request look up the coordinator again."""
        assert self._admin is not None
        self._admin._manager.cluster._coordinators.pop((CoordinatorType.GROUP, self._group), None)

    def commit(
        self, offsets: Mapping[TopicPartition, CommittedOffset], epoch: int, member: str, static_id: str | None
    ) -> None:
        """Commit offsets of a member. Raises KafkaError."""
        by_topic = defaultdict(list)
        topic_of = OffsetCommitRequest.OffsetCommitRequestTopic
        for (topic, number), committed in offsets.items():
            by_topic[topic].append(
                topic_of.OffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=committed.offset,
                    committed_metadata=committed.metadata,
                )
            )
        answer: OffsetCommitResponse = self.send(
            OffsetCommitRequest(
                version=_COMMIT_VERSION,
                group_id=self._group,
                generation_id_or_member_epoch=epoch,
                member_id=member,
                group_instance_id=static_id,
                topics=[topic_of(name=t, partitions=p) for t, p in by_topic.items()],
            )
        )
        for topic in answer.topics:
            for partition in topic.partitions:
                error = kafka_errors.for_code(partition.error_code)
                if error is not kafka_errors.NoError:
                    raise error(f"{topic.name}-{partition.partition_index}")


class _Instance:
    """The description of the instance in heartbeats. It is reused for some time, because a new one takes requests for offsets."""

    def __init__(self, topology: StreamsTopology):
        self._topology = topology
        self._lock = threading.Lock()
        self._describe: Describe = bytes
        self._described: tuple[float, StreamsInstance] | None = None
        """The last description, and its time."""

    def described_by(self, describe: Describe) -> StreamsInstance:
        """Return the description by a function, which all later ones come from."""
        instance = self._topology.decode(describe())
        with self._lock:
            self._describe, self._described = describe, (monotonic(), instance)
        return instance

    def latest(self) -> StreamsInstance:
        """Return the last description. A thread renews an old one, because the requests for offsets of standbys may take long."""
        with self._lock:
            assert self._described is not None
            since, instance = self._described
            is_old = monotonic() - since > _DESCRIBE_SECONDS
            if is_old:
                self._described = monotonic(), instance
                threading.Thread(target=self._renew, args=(self._describe,), daemon=True).start()
        return instance

    def _renew(self, describe: Describe) -> None:
        instance = self._topology.decode(describe())
        with self._lock:
            if self._describe is describe:
                self._described = monotonic(), instance


class _Description:
    """The description of the topology, which a coordinator with a plugin asks for (KIP-1331)."""

    def __init__(self, coordinator: _Coordinator, group: str, member: str, description: DescribedTopology | None):
        self._coordinator = coordinator
        self._group = group
        self._member = member
        self._description = description
        self._lock = threading.Lock()
        self._is_pushing = False
        self._next = 0.0
        """When it may be sent again; the coordinator's quota delays this."""

    def push(self) -> None:
        """Send the description in a thread, as a broker's plugin may be slow."""
        with self._lock:
            if self._description is not None and not self._is_pushing and monotonic() >= self._next:
                self._is_pushing = True
                threading.Thread(target=self._push, args=(self._description,), daemon=True).start()

    def _push(self, description: DescribedTopology) -> None:
        """Send the description once: after an error, the coordinator asks for it again."""
        throttled = 0
        try:
            answer: StreamsGroupTopologyDescriptionUpdateResponse = self._coordinator.send(
                _Update(
                    group_id=self._group,
                    member_id=self._member,
                    topology_epoch=_TOPOLOGY_EPOCH,
                    topology_description=description_message(description),
                )
            )
            throttled = answer.throttle_time_ms
            _raise_error(answer)
            log.info("group %s has the description of its topology", self._group)
        except Exception as error:
            log.warning("group %s did not take the description of its topology: %s", self._group, error)
        with self._lock:
            self._is_pushing, self._next = False, monotonic() + throttled / 1000


def _raise_error(answer: StreamsGroupHeartbeatResponse | StreamsGroupTopologyDescriptionUpdateResponse) -> None:
    error = kafka_errors.for_code(answer.error_code)
    if error is not kafka_errors.NoError:
        raise error(answer.error_message or "")


# The parts of messages.


def _describe_instance(
    request: StreamsGroupHeartbeatRequest, instance: StreamsInstance, topology: Mapping[int, SubTopologyTopics]
) -> None:
    """Add to a request the parts that a member sends only when it joins."""
    request.topology = topology_message(topology)
    request.rebalance_timeout_ms = instance.rebalance_timeout_ms
    request.process_id = instance.process
    if instance.server:
        host, _, port = instance.server.rpartition(":")
        request.user_endpoint = _Request.Endpoint(host=host, port=int(port))
    request.client_tags = _pairs(instance.tags)


def topology_message(topology: Mapping[int, SubTopologyTopics]) -> DataContainer:
    """Return the topology in the form that a group compares: it refuses members whose message has other bytes."""
    subs = [_sub_topology(number, topics) for number, topics in sorted(topology.items(), key=lambda item: str(item[0]))]
    return _Request.Topology(epoch=_TOPOLOGY_EPOCH, subtopologies=subs)


def description_message(description: DescribedTopology) -> DataContainer:
    """Return the description of a topology in the form of the protocol."""
    parts = _Update.TopologyDescription
    return parts(
        subtopologies=[
            parts.TopologyDescriptionSubtopology(
                subtopology_id=str(number), nodes=[_described_node(node) for node in nodes]
            )
            for number, nodes in sorted(description.sub_topologies.items())
        ],
        global_stores=[
            parts.TopologyDescriptionGlobalStore(source=_described_node(source), processor=_described_node(processor))
            for source, processor in description.global_stores
        ],
    )


def _described_node(node: DescribedNode) -> DataContainer:
    return _Update.TopologyDescription.TopologyDescriptionSubtopology.TopologyDescriptionNode(
        name=node.name,
        node_type=int(node.kind),
        source_topics=list(node.sources),
        sink_topic=node.sink,
        stores=list(node.stores),
        successors=list(node.successors),
    )


def _sub_topology(number: int, topics: SubTopologyTopics) -> DataContainer:
    kind = _Request.Topology.Subtopology
    sources = {topic: index for index, topic in enumerate(topics.sources)}
    repartitions = {topic.name: index for index, topic in enumerate(topics.repartition_sources)}
    return kind(
        subtopology_id=str(number),
        source_topics=list(topics.sources),
        repartition_sink_topics=list(topics.repartition_sinks),
        repartition_source_topics=[_topic(topic) for topic in topics.repartition_sources],
        state_changelog_topics=[_topic(topic) for topic in topics.changelogs],
        copartition_groups=[
            kind.CopartitionGroup(
                source_topics=[sources[topic] for topic in group if topic in sources],
                repartition_source_topics=[repartitions[topic] for topic in group if topic in repartitions],
            )
            for group in topics.copartition_groups
        ],
    )


def _topic(topic: NewTopic) -> DataContainer:
    return _Request.Topology.Subtopology.TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=_pairs(topic.config),
    )


def _pairs(values: Mapping[str, str]) -> list[DataContainer]:
    return [_Request.KeyValue(key=key, value=value) for key, value in sorted(values.items())]


def _offsets(sums: Mapping[TaskId, int]) -> list[DataContainer]:
    return [
        _Request.TaskOffset(subtopology_id=str(sub), partition=partition, offset=offset)
        for (sub, partition), offset in sums.items()
    ]


def _grouped(tasks: Iterable[TaskId]) -> list[DataContainer]:
    by_sub: dict[int, list[int]] = defaultdict(list)
    for sub, partition in sorted(tasks):
        by_sub[sub].append(partition)
    return [_Request.TaskIds(subtopology_id=str(sub), partitions=partitions) for sub, partitions in by_sub.items()]


def _updated(decided: _Decision, answer: StreamsGroupHeartbeatResponse) -> _Decision:
    """Return a decision with the changes of an answer; tasks and endpoints that do not change are not in the answer."""
    tasks, endpoints, epoch = decided.tasks, decided.endpoints, decided.endpoints_epoch
    if answer.active_tasks is not None:
        tasks = _Tasks(
            *(
                frozenset(TaskId(int(ids.subtopology_id), number) for ids in listed for number in ids.partitions)
                for listed in (answer.active_tasks, answer.standby_tasks, answer.warmup_tasks)
            )
        )
    if answer.partitions_by_user_endpoint is not None:
        epoch, endpoints = answer.endpoint_information_epoch, _endpoints(answer.partitions_by_user_endpoint)
    return replace(decided, epoch=answer.member_epoch, tasks=tasks, endpoints=endpoints, endpoints_epoch=epoch)


def _endpoints(
    listed: Iterable[DataContainer],
) -> dict[str, tuple[frozenset[TopicPartition], frozenset[TopicPartition]]]:
    """Return active and standby partitions by host and port. Each thread of a Java instance has its own entry."""
    endpoints: dict[str, tuple[frozenset[TopicPartition], frozenset[TopicPartition]]] = {}
    for endpoint in listed:
        server = f"{endpoint.user_endpoint.host}:{endpoint.user_endpoint.port}"
        active, standby = endpoints.get(server, (frozenset(), frozenset()))
        endpoints[server] = (
            active | _partitions(endpoint.active_partitions),
            standby | _partitions(endpoint.standby_partitions),
        )
    return endpoints


def _partitions(listed: Iterable[DataContainer]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(entry.topic, number) for entry in listed for number in entry.partitions)
