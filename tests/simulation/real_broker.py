"""Single requests to a real broker, with the names of the simulated one: each method returns an answer, or raises its error."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kafka import errors as kafka_errors
from kafka.protocol.admin import CreateTopicsRequest, DescribeGroupsRequest
from kafka.protocol.admin.transactions import DescribeTransactionsRequest
from kafka.protocol.consumer import (
    FetchRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from tests.broker.support import until
from tests.simulation.broker import BrokerError

LONG_MS = 600_000
_NAMES = {
    kafka_errors.InvalidProducerEpochError: "INVALID_PRODUCER_EPOCH",
    kafka_errors.ProducerFencedError: "PRODUCER_FENCED",
    kafka_errors.UnknownMemberIdError: "UNKNOWN_MEMBER_ID",
    kafka_errors.IllegalGenerationError: "ILLEGAL_GENERATION",
    kafka_errors.RebalanceInProgressError: "REBALANCE_IN_PROGRESS",
    kafka_errors.ConcurrentTransactionsError: "CONCURRENT_TRANSACTIONS",
    kafka_errors.InvalidTxnStateError: "INVALID_TXN_STATE",
    kafka_errors.OutOfOrderSequenceNumberError: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    kafka_errors.UnstableOffsetCommitError: "UNSTABLE_OFFSET_COMMIT",
}
_BUSY = (
    kafka_errors.CoordinatorLoadInProgressError,
    kafka_errors.CoordinatorNotAvailableError,
    kafka_errors.NotCoordinatorError,
    kafka_errors.UnknownTopicOrPartitionError,
    kafka_errors.NotLeaderForPartitionError,
)
"""Errors of a broker that has just started, or just made a topic."""


def check(code: int) -> None:
    """Raise the error of a code. Raises BrokerError."""
    if code:
        kind = kafka_errors.for_code(code)
        raise BrokerError(_NAMES.get(kind, kind.__name__))


class Connection:
    """A connection, which carries one request at a time; requests of kafka-python, without its clients."""

    def __init__(self, address: str):
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._protocol = KafkaProtocol(client_id="compared")

    def send(self, request: Any) -> None:
        self._protocol.send_request(request)
        self._socket.sendall(self._protocol.send_bytes())

    def receive(self, seconds: float) -> Any:
        """Return the answer; None if none comes."""
        self._socket.settimeout(seconds or 1e-6)
        while True:
            try:
                data = self._socket.recv(1 << 16)
            except (TimeoutError, BlockingIOError):
                return None
            assert data, "the broker has closed a connection"
            answers = self._protocol.receive_bytes(data)
            if answers:
                return answers[0][1]

    def ask(self, request: Any) -> Any:
        self.send(request)
        answer = self.receive(30)
        assert answer is not None, f"no answer to {request}"
        return answer

    def close(self) -> None:
        self._socket.close()


def _committed(kind: Any, offsets: dict[int, int]) -> list[Any]:
    """The partitions of a request that commits offsets."""
    return [
        kind(partition_index=number, committed_offset=offset, committed_leader_epoch=-1, committed_metadata="")
        for number, offset in offsets.items()
    ]


class RealBroker:
    """What the histories of `requests` ask; one topic, one group."""

    def __init__(self, address: str, topic: str, partitions: int, group: str):
        self._address, self._topic, self._group = address, topic, group
        self._connection = Connection(address)
        self._members: dict[str, Connection] = {}
        self._producers: dict[str, int] = {}
        self.partitions = partitions
        new = CreateTopicsRequest.CreatableTopic
        done = self._connection.ask(
            CreateTopicsRequest[5](
                topics=[new(name=topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])],
                timeout_ms=30_000,
                validate_only=False,
            )
        )
        check(done.topics[0].error_code)
        for kind, name in enumerate((group, topic)):
            # The first look for a coordinator makes its topic.
            self._until_ready(lambda kind=kind, name=name: self._find_coordinator(kind, name))

    def _find_coordinator(self, kind: int, name: str) -> tuple[int, Any]:
        answer = self._connection.ask(FindCoordinatorRequest[2](key=name, key_type=kind))
        return answer.error_code, answer

    def close(self) -> None:
        for each in (self._connection, *self._members.values()):
            each.close()

    def _until_ready(self, ask: Any) -> Any:
        """Repeat what a broker that begins refuses."""

        def step() -> list[Any]:
            answer = ask()
            return [] if kafka_errors.for_code(answer[0]) in _BUSY else [answer]

        code, answer = until(step, "the broker is ready")[0]
        check(code)
        return answer

    # -- Transactions --

    def init_producer(self, name: str, epoch: int | None) -> int:
        def ask() -> tuple[int, Any]:
            answer = self._connection.ask(
                InitProducerIdRequest[4](
                    transactional_id=name,
                    transaction_timeout_ms=LONG_MS,
                    producer_id=-1 if epoch is None else self._producers[name],
                    producer_epoch=-1 if epoch is None else epoch,
                )
            )
            return answer.error_code, answer

        answer = self._until_ready(ask)
        self._producers[name] = answer.producer_id
        return int(answer.producer_epoch)

    def add_partitions(self, name: str, epoch: int, numbers: Sequence[int]) -> None:
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=self._topic, partitions=list(numbers))

        def ask() -> tuple[int, Any]:
            answer = self._connection.ask(
                AddPartitionsToTxnRequest[0](
                    v3_and_below_transactional_id=name,
                    v3_and_below_producer_id=self._producers[name],
                    v3_and_below_producer_epoch=epoch,
                    v3_and_below_topics=[topic],
                )
            )
            return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code, answer

        self._until_ready(ask)

    def produce_in(self, name: str, epoch: int, number: int, sequence: int, values: Sequence[str]) -> None:
        records = MemoryRecordsBuilder(2, 0, 1 << 14, 0, True, self._producers[name], epoch, sequence)
        for value in values:
            records.append(1000, b"k", value.encode(), [])
        records.close()
        part = ProduceRequest.TopicProduceData.PartitionProduceData(index=number, records=records.buffer())
        data = ProduceRequest.TopicProduceData(name=self._topic, partition_data=[part])

        def ask() -> tuple[int, Any]:
            answer = self._connection.ask(
                ProduceRequest[10](transactional_id=name, acks=-1, timeout_ms=30_000, topic_data=[data])
            )
            return answer.responses[0].partition_responses[0].error_code, answer

        self._until_ready(ask)

    def offsets_in(self, name: str, epoch: int, generation: int, member: str, offsets: dict[int, int]) -> None:
        producer = self._producers[name]

        def begin() -> tuple[int, Any]:
            answer = self._connection.ask(
                AddOffsetsToTxnRequest[0](
                    transactional_id=name, producer_id=producer, producer_epoch=epoch, group_id=self._group
                )
            )
            return answer.error_code, answer

        self._until_ready(begin)
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        parts = _committed(topic.TxnOffsetCommitRequestPartition, offsets)

        def send() -> tuple[int, Any]:
            answer = self._connection.ask(
                TxnOffsetCommitRequest[3](
                    transactional_id=name,
                    group_id=self._group,
                    producer_id=producer,
                    producer_epoch=epoch,
                    generation_id=generation,
                    member_id=member,
                    group_instance_id=None,
                    topics=[topic(name=self._topic, partitions=parts)],
                )
            )
            return answer.topics[0].partitions[0].error_code, answer

        self._until_ready(send)

    def end_transaction(self, name: str, epoch: int, committed: bool) -> None:
        request = EndTxnRequest[1]
        answer = self._connection.ask(
            request(transactional_id=name, producer_id=self._producers[name], producer_epoch=epoch, committed=committed)
        )
        check(answer.error_code)

    def await_markers(self, name: str) -> None:
        """Wait until the coordinator has written the markers of an id's last transaction."""

        def ended() -> bool:
            (found,) = self._connection.ask(DescribeTransactionsRequest[0](transactional_ids=[name])).transaction_states
            return not found.transaction_state.startswith("Prepare")

        until(ended, f"markers of {name}")

    # -- What consumers see --

    def read(self) -> list[tuple[int, int, list[str], list[str]]]:
        """Return of each partition: the high watermark, the last stable offset, all records, and those that are committed."""
        return [self._read(number) for number in range(self.partitions)]

    def _read(self, number: int) -> tuple[int, int, list[str], list[str]]:
        everything: list[str] = []
        committed: list[str] = []
        found = None
        for isolation, values in enumerate((everything, committed)):
            offset = 0
            # One answer has part of what is there.
            while True:
                found = self._fetch(number, offset, isolation)
                end = found.last_stable_offset if isolation else found.high_watermark
                if offset >= end:
                    break
                offset = _take(found, values)
        return found.high_watermark, found.last_stable_offset, everything, committed

    def _fetch(self, number: int, offset: int, isolation: int) -> Any:
        part = FetchRequest.FetchTopic.FetchPartition
        topic = FetchRequest.FetchTopic(
            topic=self._topic, partitions=[part(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)]
        )

        def ask() -> tuple[int, Any]:
            answer = self._connection.ask(
                FetchRequest[11](
                    replica_id=-1,
                    max_wait_ms=0,
                    min_bytes=0,
                    max_bytes=1 << 20,
                    isolation_level=isolation,
                    session_id=0,
                    session_epoch=-1,
                    topics=[topic],
                    forgotten_topics_data=[],
                    rack_id="",
                )
            )
            found = answer.responses[0].partitions[0]
            return found.error_code, found

        return self._until_ready(ask)

    # -- The group --

    def committed(self) -> dict[int, int | str]:
        """Return the group's offsets by partition; the name of an error in place of one that is not stable."""
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(
            name=self._topic, partition_indexes=list(range(self.partitions))
        )

        def ask() -> tuple[int, Any]:
            answer = self._connection.ask(
                OffsetFetchRequest[7](group_id=self._group, topics=[topic], require_stable=True)
            )
            return answer.error_code, answer

        found: dict[int, int | str] = {}
        for part in self._until_ready(ask).topics[0].partitions:
            try:
                check(part.error_code)
                if part.committed_offset >= 0:
                    found[part.partition_index] = part.committed_offset
            except BrokerError as error:
                found[part.partition_index] = str(error)
        return found

    def commit(self, generation: int, member: str, offsets: dict[int, int]) -> None:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        parts = _committed(topic.OffsetCommitRequestPartition, offsets)

        def ask() -> tuple[int, Any]:
            answer = self._connection.ask(
                OffsetCommitRequest[7](
                    group_id=self._group,
                    generation_id_or_member_epoch=generation,
                    member_id=member,
                    group_instance_id=None,
                    topics=[topic(name=self._topic, partitions=parts)],
                )
            )
            return answer.topics[0].partitions[0].error_code, answer

        self._until_ready(ask)

    def new_member(self) -> str:
        """Ask for an id, as the first request of a new member does."""

        def ask() -> tuple[int, Any]:
            answer = self._connection.ask(self._join("", b""))
            return (0 if answer.error_code == 79 else answer.error_code), answer

        return str(self._until_ready(ask).member_id)

    def _join(self, member: str, metadata: bytes) -> Any:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="p", metadata=metadata)
        return JoinGroupRequest[7](
            group_id=self._group,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=LONG_MS,
            member_id=member,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[protocol],
        )

    def _ask_for(self, member: str, request: Any) -> None:
        """Send a request whose answer `answer` returns; it takes the place of one that was not answered."""
        if member in self._members:
            self._members[member].close()
        self._members[member] = Connection(self._address)
        self._members[member].send(request)

    def join(self, member: str, metadata: bytes) -> None:
        self._ask_for(member, self._join(member, metadata))

    def await_member(self, member: str) -> None:
        """Wait until the group has a member that has sent a join: requests of other members use other connections."""

        def is_there() -> bool:
            (found,) = self._connection.ask(DescribeGroupsRequest[3](groups=[self._group])).groups
            return any(each.member_id == member for each in found.members)

        until(is_there, f"the join of {member}")

    def sync(self, generation: int, member: str, assignments: dict[str, bytes]) -> None:
        part = SyncGroupRequest.SyncGroupRequestAssignment
        self._ask_for(
            member,
            SyncGroupRequest[5](
                group_id=self._group,
                generation_id=generation,
                member_id=member,
                group_instance_id=None,
                protocol_type="consumer",
                protocol_name="p",
                assignments=[part(member_id=each, assignment=data) for each, data in assignments.items()],
            ),
        )

    def answer(self, member: str, seconds: float) -> Any:
        """Return the answer to a join or a sync; None while there is none."""
        return self._members[member].receive(seconds)

    def heartbeat(self, generation: int, member: str) -> None:
        answer = self._connection.ask(
            HeartbeatRequest[3](
                group_id=self._group, generation_id=generation, member_id=member, group_instance_id=None
            )
        )
        check(answer.error_code)

    def leave(self, member: str) -> None:
        one = LeaveGroupRequest.MemberIdentity(member_id=member, group_instance_id=None)
        answer = self._connection.ask(LeaveGroupRequest[3](group_id=self._group, members=[one]))
        with suppress(IndexError):
            check(answer.error_code or answer.members[0].error_code)


def _take(found: Any, values: list[str]) -> int:
    """Add the values of a fetch, without those of aborted transactions; return the offset after them."""
    ahead = sorted((each.first_offset, each.producer_id) for each in found.aborted_transactions or ())
    aborted, offset = set[int](), -1
    records = MemoryRecords(bytes(found.records or b""))
    while (batch := records.next_batch()) is not None:
        while ahead and ahead[0][0] <= batch.last_offset:
            aborted.add(ahead.pop(0)[1])
        if batch.is_control_batch:
            aborted.discard(batch.producer_id)
        elif batch.producer_id not in aborted:
            values += [record.value.decode() for record in batch]
        offset = batch.next_offset
    assert offset >= 0, f"a fetch below the end is empty: {found}"
    return int(offset)
