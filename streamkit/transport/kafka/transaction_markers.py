"""Finds open transactions, tells how they ended at their coordinator, and writes markers that brokers have lost (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from streamkit.errors import TransportError
from streamkit.record import TopicPartition
from streamkit.transport.kafka import transaction_log
from streamkit.transport.kafka.python_client import connected_admin
from streamkit.transport.kafka.transaction_log import History, Marker
from streamkit.transport.log_interface import OpenTransaction, Outcome

if TYPE_CHECKING:
    from kafka import KafkaAdminClient
    from kafka.admin._transactions import ProducerState
    from kafka.record.default_records import DefaultRecordBatch

_OFFSETS = "__consumer_offsets"
_FETCH_BYTES = 4 << 20
_FETCH_VERSION = 12
"""The last version of a fetch that names topics, not their ids."""
_MARKER_VERSION = 1
"""The last version that accepts a marker of the producer's present epoch; the next one demands a higher epoch."""
_FIRST_LOOK, _FURTHEST_LOOK = 1000, 500_000
"""Offsets in front of an open transaction among which the last marker of its producer is looked for: at first, and at most."""


def open_transactions(
    config: Mapping[str, str], partitions: Sequence[TopicPartition], group: str, timeout: float
) -> list[OpenTransaction]:
    """Return the transactions open on partitions and on that of a group's offsets. Raises TransportError."""
    with _connected(config, timeout, "open transactions could not be listed") as admin:
        found = _open_transactions(admin, partitions)
        if group:
            places = [TopicPartition(_OFFSETS, number) for number in _leaders(admin, _OFFSETS)]
            of_offsets = _open_transactions(admin, places)
            found += [(each, state) for each, state in of_offsets if each.transactional_id.startswith(f"{group}-")]
        return [each for each, _ in found]


def outcome(config: Mapping[str, str], found: OpenTransaction, timeout: float) -> Outcome:
    """Return how a lost transaction ended at its coordinator, as its log and the partition tell. Raises TransportError."""
    with _connected(
        config, timeout, f"the log of the coordinators, {transaction_log.TOPIC}, could not be read"
    ) as admin:
        history = _history(admin, found)
        if not found.transactional_id and found.partition in history.unended:
            return Outcome(None, "its coordinator still has to end it", alive=True)
        decisions = history.naming(found.partition, found.epoch)
        mixed = len({each.committed for each in decisions}) > 1
        return transaction_log.outcome_of(decisions, _last_marker(admin, found) if mixed else None)


def end(config: Mapping[str, str], found: OpenTransaction, committed: bool, timeout: float) -> None:
    """Write the marker of a transaction that is still lost. Raises TransportError, also if it is not lost any more."""
    place = f"{found.partition.topic}-{found.partition.partition}"
    with _connected(config, timeout, f"the transaction in {place} could not be ended") as admin:
        now = [
            state
            for each, state in _open_transactions(admin, [found.partition])
            if each.hanging and each.is_same(found)
        ]
        if not now:
            raise TransportError(f"the transaction in {place} at offset {found.start} is not lost any more")
        _write_marker(admin, found, committed, now[0])
        if any(each.is_same(found) for each, _ in _open_transactions(admin, [found.partition])):
            raise TransportError(f"{place}: brokers took the marker, but the transaction is still open")


@contextmanager
def _connected(config: Mapping[str, str], timeout: float, what: str) -> Iterator[KafkaAdminClient]:
    from streamkit.transport.kafka.membership_errors import translated

    with closing(connected_admin(config, timeout)) as admin, translated(what, config["bootstrap.servers"]):
        yield admin


def _open_transactions(
    admin: KafkaAdminClient, partitions: Sequence[TopicPartition]
) -> list[tuple[OpenTransaction, ProducerState]]:
    # In this order: a transaction of which the coordinator knows nothing although its records were there before has lost its end,
    # or ends in this moment. Then it is gone at the next look.
    producers = _open_producers(admin, partitions)
    if not producers:
        return []
    ids = sorted({producer.producer_id for _, producer in producers})
    listed = admin.list_transactions(producer_id_filters=ids)
    names = {each.producer_id: each.transactional_id for listing in listed.values() for each in listing}
    described = admin.describe_transactions(sorted(set(names.values())))
    found = []
    for partition, producer in producers:
        name = names.get(producer.producer_id, "")
        known = described.get(name)
        transaction = OpenTransaction(
            partition,
            producer.current_transaction_start_offset,
            producer.producer_id,
            producer.producer_epoch,
            name,
            "" if known is None else known.state.value,
            known is None or tuple(partition) not in known.topic_partitions,
        )
        found.append((transaction, producer))
    return found


def _open_producers(
    admin: KafkaAdminClient, partitions: Sequence[TopicPartition]
) -> list[tuple[TopicPartition, ProducerState]]:
    from kafka.structs import TopicPartition as KafkaPartition

    states = admin.describe_producers([KafkaPartition(*partition) for partition in partitions])
    return [
        (TopicPartition(*partition), producer)
        for partition, state in states.items()
        for producer in state.active_producers
        if producer.current_transaction_start_offset >= 0
    ]


def _leaders(admin: KafkaAdminClient, topic: str) -> dict[int, int]:
    """Return the ids of the leaders of a topic's partitions."""
    (described,) = admin.describe_topics([topic])
    return {each["partition_index"]: each["leader_id"] for each in described["partitions"]}


def _history(admin: KafkaAdminClient, found: OpenTransaction) -> History:
    """Return what the coordinators' log has of a producer; with an unknown transactional id all of the log is read."""
    history = History(found.producer_id)
    numbers = sorted(_leaders(admin, transaction_log.TOPIC))
    if found.transactional_id:
        numbers = [transaction_log.partition_of(found.transactional_id, len(numbers))]
    for number in numbers:
        for batch in _batches(admin, TopicPartition(transaction_log.TOPIC, number)):
            if batch.is_control_batch:
                continue
            for record in batch:
                entry = None if record.value is None else transaction_log.decode(bytes(record.value))
                if entry is not None:
                    history.add(entry)
    return history


def _last_marker(admin: KafkaAdminClient, found: OpenTransaction) -> Marker | None:
    """Return the last marker of a transaction's producer in front of the transaction; None if none is there."""
    first, _ = _bounds(admin, found.partition)
    first = max(first, found.start - _FURTHEST_LOOK)
    end, width = found.start, _FIRST_LOOK
    while end > first:
        start = max(first, end - width)
        marker = None
        for batch in _batches(admin, found.partition, start, end):
            if batch.is_control_batch and batch.producer_id == found.producer_id:
                marker = Marker(next(iter(batch)).commit, batch.max_timestamp)
        if marker is not None:
            return marker
        end, width = start, width * 4
    return None


def _bounds(admin: KafkaAdminClient, place: TopicPartition) -> tuple[int, int]:
    from kafka.protocol.consumer import OffsetSpec
    from kafka.structs import TopicPartition as KafkaPartition

    partition = KafkaPartition(*place)
    first, end = (
        admin.list_partition_offsets({partition: spec})[partition].offset
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
    )
    return first, end


def _batches(
    admin: KafkaAdminClient, place: TopicPartition, start: int | None = None, end: int | None = None
) -> Iterator[DefaultRecordBatch]:
    """Read a partition between two offsets, by default all that it has now, control batches included."""
    from kafka.errors import NoError, for_code
    from kafka.protocol.consumer import FetchRequest
    from kafka.record import MemoryRecords

    if start is None or end is None:
        start, end = _bounds(admin, place)
    leader = _leaders(admin, place.topic)[place.partition]
    while start < end:
        part = FetchRequest.FetchTopic.FetchPartition(
            partition=place.partition, fetch_offset=start, partition_max_bytes=_FETCH_BYTES
        )
        topic = FetchRequest.FetchTopic(topic=place.topic, partitions=[part])
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=_FETCH_BYTES, topics=[topic], max_version=_FETCH_VERSION
        )
        response = admin._manager.run(admin._manager.send, request, leader)
        answer = response.responses[0].partitions[0]
        error = for_code(answer.error_code)
        if error is not NoError:
            raise error()
        before = start
        for batch in MemoryRecords(answer.records or b""):
            # The first one may begin before what was asked for.
            if batch.last_offset >= start and batch.base_offset < end:
                yield batch
            start = max(start, batch.next_offset)
        if start == before:
            # Compaction has removed what was there.
            return


def _write_marker(admin: KafkaAdminClient, found: OpenTransaction, committed: bool, state: ProducerState) -> None:
    from kafka.errors import NoError, for_code
    from kafka.protocol.producer import WriteTxnMarkersRequest

    marker = WriteTxnMarkersRequest.WritableTxnMarker
    topic = marker.WritableTxnMarkerTopic(name=found.partition.topic, partition_indexes=[found.partition.partition])
    request = WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=found.producer_id,
                producer_epoch=found.epoch,
                transaction_result=committed,
                topics=[topic],
                # Of a producer without a marker here the partition has -1, which brokers refuse in a request.
                coordinator_epoch=max(0, state.coordinator_epoch),
            )
        ],
        max_version=_MARKER_VERSION,
    )
    leader = _leaders(admin, found.partition.topic)[found.partition.partition]
    response = admin._manager.run(admin._manager.send, request, leader)
    error = for_code(response.markers[0].topics[0].partitions[0].error_code)
    if error is not NoError:
        raise error()
