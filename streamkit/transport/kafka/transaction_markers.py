"""Finds open transactions, determines how their coordinator ended them, and writes markers that brokers have lost (KIP-664)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum

from kafka import KafkaAdminClient
from kafka.admin._transactions import ProducerState, TransactionDescription
from kafka.errors import KafkaError, NoError, TopicAuthorizationFailedError, TransactionalIdNotFoundError, for_code
from kafka.protocol.consumer import FetchRequest, OffsetSpec
from kafka.protocol.producer import WriteTxnMarkersRequest
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatch
from kafka.structs import TopicPartition as KafkaPartition

from streamkit.errors import NotPermittedError, RetriableTransportError, TransportError, UnknownTopicError
from streamkit.hashing import java_hash
from streamkit.record import TopicPartition
from streamkit.transport.kafka.messages import TransactionLogValue
from streamkit.transport.kafka.python_client import connected_admin, translated
from streamkit.transport.log_interface import EndedTransaction, OpenTransaction, Outcome

_OFFSETS = "__consumer_offsets"
_FETCH_BYTES = 4 << 20
_FETCH_VERSION = 12
"""The last version of a fetch that names topics, not their ids."""
_MARKER_VERSION = 1
"""The last version that accepts a marker with the producer's current epoch; the next one requires a higher epoch."""
_FIRST_LOOK, _FURTHEST_LOOK = 1000, 500_000
"""How many offsets before an open transaction are searched for its producer's last marker: at first, and at most."""


def open_transactions(
    config: Mapping[str, str], partitions: Sequence[TopicPartition], group: str, timeout: float
) -> list[OpenTransaction]:
    """Return the transactions open on partitions and on the partition of a group's offsets. Raises TransportError."""
    with _connected(config, timeout, "open transactions could not be listed") as admin:
        transactions = _open_transactions(admin, partitions)
        if group:
            places = [TopicPartition(_OFFSETS, number) for number in _leaders(admin, _OFFSETS)]
            of_offsets = _open_transactions(admin, places)
            transactions += [
                (transaction, state)
                for transaction, state in of_offsets
                if transaction.transactional_id.startswith(f"{group}-")
            ]
        return [transaction for transaction, _ in transactions]


def end_lost(
    config: Mapping[str, str],
    transactional_id: str,
    partitions: Sequence[TopicPartition],
    group: str,
    one_open: bool,
    timeout: float,
) -> list[EndedTransaction]:
    """End the lost transactions of an id that has no live one, as its coordinator did (Admin.end_lost). Raises TransportError."""
    with _connected(config, timeout, f"could not search for lost transactions of {transactional_id}") as admin:
        places = [*partitions, *(_offset_partitions(admin, group) if group else ())]
        transactions = _open_of_id(admin, transactional_id, places)
        for transaction, _ in transactions:
            if not transaction.hanging:
                place = f"{transaction.partition.topic}-{transaction.partition.partition}"
                raise RetriableTransportError(f"{place}: brokers are still ending a transaction of {transactional_id}")
        if not transactions:
            return []
        try:
            with translated("it could not be ended", config["bootstrap.servers"]):
                ended = _end_all(admin, transactions, one_open)
                open_now = _open_of_id(admin, transactional_id, places)
        except NotPermittedError as error:
            return [EndedTransaction(transaction, None, str(error)) for transaction, _ in transactions]
    still = [transaction for transaction, _ in open_now]
    return [
        EndedTransaction(transaction.transaction, None, "brokers took the marker, but it is still open")
        if transaction.committed is not None and any(transaction.transaction.is_same(other) for other in still)
        else transaction
        for transaction in ended
    ]


class MarkerLooks:
    """Looks for missing markers again and again; keeps the ids of producers and the partitions of topics."""

    def __init__(self, admin: KafkaAdminClient, address: str):
        self._admin = admin
        self._address = address
        self._producers: dict[str, int] = {}
        self._partitions: dict[str, list[TopicPartition]] = {}

    def lacks(self, transactional_id: str, topics: Collection[str], group: str, *, refresh: bool) -> bool:
        """As Admin.lacks_markers. Raises TransportError."""
        if refresh:
            self._producers.clear()
            self._partitions.clear()
        with translated(f"could not search for markers of {transactional_id}", self._address):
            if transactional_id not in self._producers:
                known = self._admin.describe_transactions([transactional_id])[transactional_id]
                self._producers[transactional_id] = known.producer_id
            producer_id = self._producers[transactional_id]
            places = self._places(topics, group)
            return any(producer.producer_id == producer_id for _, producer in _open_producers(self._admin, places))

    def _places(self, topics: Collection[str], group: str) -> list[TopicPartition]:
        """Raises UnknownTopicError if brokers do not list a topic, as just after a restart: a marker may be missing there."""
        # Not kept if there are none: the right to see a topic may come later.
        for topic in topics:
            self._partitions[topic] = self._partitions.get(topic) or _partitions_of(self._admin, topic)
        if group:
            self._partitions[_OFFSETS] = self._partitions.get(_OFFSETS) or _offset_partitions(self._admin, group)
        offsets = self._partitions[_OFFSETS] if group else []
        of_group = [offsets[partition_of(group, len(offsets))]] if offsets else []
        return [*(place for topic in topics for place in self._partitions[topic]), *of_group]


def _open_of_id(
    admin: KafkaAdminClient, transactional_id: str, partitions: Sequence[TopicPartition]
) -> list[tuple[OpenTransaction, ProducerState]]:
    """Return the open transactions of one id.

    Only its coordinator is asked, which refuses to answer while it starts. A list of all coordinators' transactions lacks
    those of a coordinator that does not know yet that it is one.
    """
    try:
        before = admin.describe_transactions([transactional_id])[transactional_id]
    except TransactionalIdNotFoundError:
        return []
    producers = [pair for pair in _open_producers(admin, partitions) if pair[1].producer_id == before.producer_id]
    if not producers:
        return []
    # In this order: a transaction that the coordinator does not know after the partitions were read is never ended by it.
    now = admin.describe_transactions([transactional_id])[transactional_id]
    return [(_transaction(partition, producer, transactional_id, now), producer) for partition, producer in producers]


def _end_all(
    admin: KafkaAdminClient, transactions: Sequence[tuple[OpenTransaction, ProducerState]], one_open: bool
) -> list[EndedTransaction]:
    """Write the markers of one producer's lost transactions whose outcome is known."""
    history, ended = _history(admin, transactions[0][0]), []
    for transaction, state in transactions:
        # The topic of offsets may not have been looked at before each transaction, and keeps its last markers.
        known = _outcome(admin, history, transaction, one_open=one_open and transaction.partition.topic != _OFFSETS)
        if known.committed is not None:
            _write_marker(admin, transaction, known.committed, state)
        ended.append(EndedTransaction(transaction, known.committed, known.reason))
    return ended


def outcome(config: Mapping[str, str], transaction: OpenTransaction, timeout: float) -> Outcome:
    """Return how the coordinator ended a lost transaction, according to its log and the partition. Raises TransportError."""
    with _connected(config, timeout, f"the log of the coordinators, {TOPIC}, could not be read") as admin:
        return _outcome(admin, _history(admin, transaction), transaction)


def _outcome(
    admin: KafkaAdminClient, history: History, transaction: OpenTransaction, *, one_open: bool = False
) -> Outcome:
    if not transaction.transactional_id and transaction.partition in history.unended:
        return Outcome(None, "its coordinator still has to end it", alive=True)
    decisions = history.naming(transaction.partition, transaction.epoch)
    if _are_mixed(decisions):
        decisions = [decision for decision in decisions if decision.highest_epoch >= _first_epoch(admin, transaction)]
    return outcome_of(decisions, _last_marker(admin, transaction) if _are_mixed(decisions) else None, one_open=one_open)


def _are_mixed(decisions: Sequence[Decision]) -> bool:
    return len({decision.committed for decision in decisions}) > 1


def _first_epoch(admin: KafkaAdminClient, transaction: OpenTransaction) -> int:
    """Return the epoch of an open transaction's first record: transactions of lower epochs have ended before it."""
    epochs = (
        batch.producer_epoch
        for batch in _batches(admin, transaction.partition, transaction.start, transaction.start + 1)
        if batch.producer_id == transaction.producer_id
    )
    return next(epochs, 0)


def end(config: Mapping[str, str], transaction: OpenTransaction, committed: bool, timeout: float) -> None:
    """Write the marker of a transaction that is still lost. Raises TransportError, also if it is no longer lost."""
    place = f"{transaction.partition.topic}-{transaction.partition.partition}"
    with _connected(config, timeout, f"the transaction in {place} could not be ended") as admin:
        now = [
            state
            for other, state in _open_transactions(admin, [transaction.partition])
            if other.hanging and other.is_same(transaction)
        ]
        if not now:
            raise TransportError(f"the transaction in {place} at offset {transaction.start} is no longer lost")
        _write_marker(admin, transaction, committed, now[0])
        if any(other.is_same(transaction) for other, _ in _open_transactions(admin, [transaction.partition])):
            raise TransportError(f"{place}: brokers took the marker, but the transaction is still open")


@contextmanager
def _connected(config: Mapping[str, str], timeout: float, what: str) -> Iterator[KafkaAdminClient]:
    with closing(connected_admin(config, timeout)) as admin, translated(what, config["bootstrap.servers"]):
        yield admin


def _open_transactions(
    admin: KafkaAdminClient, partitions: Sequence[TopicPartition]
) -> list[tuple[OpenTransaction, ProducerState]]:
    # In this order: if the coordinator does not know a transaction whose records were seen before, its end is lost, or it is
    # ending at this moment. In the latter case it no longer exists at the next check.
    producers = _open_producers(admin, partitions)
    if not producers:
        return []
    ids = sorted({producer.producer_id for _, producer in producers})
    listed = admin.list_transactions(producer_id_filters=ids)
    names = {entry.producer_id: entry.transactional_id for listing in listed.values() for entry in listing}
    described = admin.describe_transactions(sorted(set(names.values())))
    transactions = []
    for partition, producer in producers:
        name = names.get(producer.producer_id, "")
        known = described.get(name)
        transactions.append((_transaction(partition, producer, name, known), producer))
    return transactions


def _transaction(
    partition: TopicPartition, producer: ProducerState, name: str, known: TransactionDescription | None
) -> OpenTransaction:
    return OpenTransaction(
        partition,
        producer.current_transaction_start_offset,
        producer.producer_id,
        producer.producer_epoch,
        name,
        "" if known is None else known.state.value,
        known is None or tuple(partition) not in known.topic_partitions,
    )


def _open_producers(
    admin: KafkaAdminClient, partitions: Sequence[TopicPartition]
) -> list[tuple[TopicPartition, ProducerState]]:
    states = admin.describe_producers([KafkaPartition(*partition) for partition in partitions])
    silent = {tuple(partition) for partition in partitions} - {tuple(partition) for partition in states}
    if silent:
        topic, number = min(silent)
        raise RetriableTransportError(f"{topic}-{number}: its producers could not be listed")
    return [
        (TopicPartition(*partition), producer)
        for partition, state in states.items()
        for producer in state.active_producers
        if producer.current_transaction_start_offset >= 0
    ]


def _leaders(admin: KafkaAdminClient, topic: str) -> dict[int, int]:
    """Return the ids of the leaders of a topic's partitions."""
    (described,) = admin.describe_topics([topic])
    return {
        described_partition["partition_index"]: described_partition["leader_id"]
        for described_partition in described["partitions"]
    }


def _offset_partitions(admin: KafkaAdminClient, group: str) -> list[TopicPartition]:
    """Return the partitions of the offsets topic, as `_partitions_of`."""
    try:
        return _partitions_of(admin, _OFFSETS)
    except UnknownTopicError:
        with suppress(KafkaError):
            # New brokers create the topic for the first group whose coordinator is looked up.
            admin.describe_groups([group])
        raise


def _partitions_of(admin: KafkaAdminClient, topic: str) -> list[TopicPartition]:
    """Return the partitions of a topic; none if the application has no right to see it.

    Raises UnknownTopicError if brokers do not list it: they do not know all topics just after a restart.
    """
    (described,) = admin.describe_topics([topic])
    code = described["error_code"]
    if code not in (NoError.errno, TopicAuthorizationFailedError.errno):
        raise UnknownTopicError(f"{topic}: brokers do not list this topic now ({for_code(code).__name__})")
    return sorted(TopicPartition(topic, entry["partition_index"]) for entry in described["partitions"])


def _history(admin: KafkaAdminClient, transaction: OpenTransaction) -> History:
    """Return the entries of a producer in the coordinators' log; if the transactional id is unknown, the whole log is read."""
    history = History(transaction.producer_id)
    numbers = sorted(_leaders(admin, TOPIC))
    if transaction.transactional_id:
        numbers = [partition_of(transaction.transactional_id, len(numbers))]
    for number in numbers:
        for batch in _batches(admin, TopicPartition(TOPIC, number)):
            if batch.is_control_batch:
                continue
            for record in batch:
                entry = None if record.value is None else decode(bytes(record.value))
                if entry is not None:
                    history.add(entry)
    return history


def _last_marker(admin: KafkaAdminClient, transaction: OpenTransaction) -> Marker | None:
    """Return the last marker of a transaction's producer before the transaction; None if there is none."""
    first, _ = _bounds(admin, transaction.partition)
    first = max(first, transaction.start - _FURTHEST_LOOK)
    end, width = transaction.start, _FIRST_LOOK
    while end > first:
        start = max(first, end - width)
        marker = None
        for batch in _batches(admin, transaction.partition, start, end):
            if batch.is_control_batch and batch.producer_id == transaction.producer_id:
                marker = Marker(next(iter(batch)).commit, batch.max_timestamp)
        if marker is not None:
            return marker
        end, width = start, width * 4
    return None


def _bounds(admin: KafkaAdminClient, place: TopicPartition) -> tuple[int, int]:
    partition = KafkaPartition(*place)
    first, end = (
        admin.list_partition_offsets({partition: spec})[partition].offset
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
    )
    return first, end


def _batches(
    admin: KafkaAdminClient, place: TopicPartition, start: int | None = None, end: int | None = None
) -> Iterator[DefaultRecordBatch]:
    """Read a partition between two offsets, by default all its current records, including control batches."""
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
            # The first batch may begin before the requested offset.
            if batch.last_offset >= start and batch.base_offset < end:
                yield batch
            start = max(start, batch.next_offset)
        if start == before:
            # The last record of a log is never compacted away, so this leader does not have the complete log yet.
            raise RetriableTransportError(f"{place.topic}-{place.partition}: offset {start} of {end} can't be read now")


def _write_marker(admin: KafkaAdminClient, transaction: OpenTransaction, committed: bool, state: ProducerState) -> None:
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    topic = marker.WritableTxnMarkerTopic(
        name=transaction.partition.topic, partition_indexes=[transaction.partition.partition]
    )
    request = WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=transaction.producer_id,
                producer_epoch=transaction.epoch,
                transaction_result=committed,
                topics=[topic],
                # For a producer without a marker in the partition this is -1, which brokers refuse in a request.
                coordinator_epoch=max(0, state.coordinator_epoch),
            )
        ],
        max_version=_MARKER_VERSION,
    )
    leader = _leaders(admin, transaction.partition.topic)[transaction.partition.partition]
    response = admin._manager.run(admin._manager.send, request, leader)
    error = for_code(response.markers[0].topics[0].partitions[0].error_code)
    if error is not NoError:
        raise error()


# The log of the transaction coordinators (`__transaction_state`): its records, and how the transactions of a producer ended.

TOPIC = "__transaction_state"

_NO_ID = -1
"""The previous producer id of a transaction whose coordinator has not replaced it."""


class State(IntEnum):
    """States of a transactional id, by their numbers in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


_DECIDED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)


@dataclass(frozen=True)
class Entry:
    """A record of the log: the state of one transactional id."""

    producer_ids: frozenset[int]
    epoch: int
    state: State
    partitions: frozenset[TopicPartition]
    """The partitions of the transaction; empty once it is complete."""
    updated_ms: int


@dataclass(frozen=True)
class Decision:
    """The outcome that a coordinator has decided for a transaction."""

    committed: bool
    epoch: int
    """The epoch of its records; the lowest possible one if the beginning of the transaction is not in the log."""
    partitions: frozenset[TopicPartition]
    at_ms: int
    is_lowest: bool = False
    """Whether the epoch is only the lowest possible one."""

    @property
    def highest_epoch(self) -> int:
        """The highest epoch that its records may have."""
        return self.epoch + self.is_lowest


@dataclass(frozen=True)
class Marker:
    """The end of a transaction in a partition."""

    committed: bool
    at_ms: int


@dataclass
class History:
    """The log's entries for one producer id."""

    producer_id: int
    decisions: list[Decision] = field(default_factory=list)
    unended: frozenset[TopicPartition] = frozenset()
    """The partitions of the transaction that its coordinator must still end."""
    _epoch: int | None = None

    def add(self, entry: Entry) -> None:
        """Take the next entry of the log; those of other producers are ignored."""
        if self.producer_id not in entry.producer_ids:
            return
        if entry.state in _DECIDED:
            # With version 2 of transactions, and for a transaction that timed out, this entry already has the next epoch.
            epoch = entry.epoch - 1 if self._epoch is None else self._epoch
            committed = entry.state is State.PREPARE_COMMIT
            lowest = self._epoch is None
            self.decisions.append(Decision(committed, epoch, entry.partitions, entry.updated_ms, lowest))
        self._epoch = entry.epoch if entry.state is State.ONGOING else None
        self.unended = entry.partitions if entry.state in (State.ONGOING, *_DECIDED) else frozenset()

    def naming(self, partition: TopicPartition, epoch: int) -> list[Decision]:
        """Return the decisions for a partition up to an epoch of records there."""
        return [decision for decision in self.decisions if partition in decision.partitions and decision.epoch <= epoch]


def outcome_of(decisions: list[Decision], marker: Marker | None, *, one_open: bool = False) -> Outcome:
    """Return how a transaction that is open in a partition ended.

    `decisions`: its producer's decisions for the partition; the last one has no marker there. `marker`: the producer's last
    marker before the open transaction; transactions decided before it have ended there. `one_open`: the producer never
    writes while an earlier transaction is open, so that the open one is that of the last decision.
    """
    if not decisions:
        return Outcome(None, "the log of its coordinator has no transaction of this producer with this partition")
    if len({decision.committed for decision in decisions}) == 1:
        return Outcome(decisions[-1].committed)
    if marker is None and one_open:
        return Outcome(decisions[-1].committed)
    if marker is None:
        return Outcome(None, "this producer has committed and aborted here, and its last marker is gone")
    ended = [decision for decision in decisions if decision.at_ms <= marker.at_ms]
    rest = [decision for decision in decisions if decision.at_ms > marker.at_ms]
    # The times come from two brokers: if they contradict the other facts, they prove nothing.
    if not ended or not rest or ended[-1].committed != marker.committed:
        return Outcome(None, "the times of the partition and of its coordinator's log do not fit together")
    if len({item.committed for item in rest}) > 1:
        return Outcome(None, "a committed and an aborted transaction of this producer are open here together")
    return Outcome(rest[-1].committed)


def partition_of(transactional_id: str, partitions: int) -> int:
    """Return the partition of the coordinators' log that contains a transactional id, or a group."""
    code = java_hash(transactional_id)
    # Java's integers are signed; the lowest one has no positive counterpart, and Java uses 0 for it.
    return (0 if code == 1 << 31 else min(code, (1 << 32) - code)) % partitions


def decode(value: bytes) -> Entry | None:
    """Return the entry in a record's value; None for an unknown version (0 and 1 are known)."""
    if int.from_bytes(value[:2]) > TransactionLogValue.max_version:
        return None
    entry = TransactionLogValue.decode(value)
    ids = {entry.producer_id, entry.previous_producer_id} - {_NO_ID}
    partitions = frozenset(
        TopicPartition(topic.topic, number)
        for topic in entry.transaction_partitions or ()
        for number in topic.partition_ids
    )
    state, updated_ms = State(entry.transaction_status), entry.transaction_last_update_timestamp_ms
    return Entry(frozenset(ids), entry.producer_epoch, state, partitions, updated_ms)
