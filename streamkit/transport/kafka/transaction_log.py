"""The log of the transaction coordinators (`__transaction_state`): its records, and how the transactions of a producer ended."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum

from streamkit.hashing import java_hash
from streamkit.record import TopicPartition
from streamkit.transport.log_interface import Outcome

TOPIC = "__transaction_state"

_PREVIOUS_ID = 0
"""The tag of the producer id that a transaction had before its coordinator replaced it."""


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
    """The end that a coordinator has decided for a transaction."""

    committed: bool
    epoch: int
    """The epoch of its records; the lowest that is possible if the beginning of the transaction is not in the log."""
    partitions: frozenset[TopicPartition]
    at_ms: int


@dataclass(frozen=True)
class Marker:
    """The end of a transaction in a partition."""

    committed: bool
    at_ms: int


@dataclass
class History:
    """What the log has of one producer id."""

    producer_id: int
    decisions: list[Decision] = field(default_factory=list)
    unended: frozenset[TopicPartition] = frozenset()
    """The partitions of the transaction that its coordinator still has to end."""
    _epoch: int | None = None

    def add(self, entry: Entry) -> None:
        """Take the next entry of the log; those of other producers are ignored."""
        if self.producer_id not in entry.producer_ids:
            return
        if entry.state in _DECIDED:
            # With version 2 of transactions, and for a transaction that timed out, this entry already has the next epoch.
            epoch = entry.epoch - 1 if self._epoch is None else self._epoch
            committed = entry.state is State.PREPARE_COMMIT
            self.decisions.append(Decision(committed, epoch, entry.partitions, entry.updated_ms))
        self._epoch = entry.epoch if entry.state is State.ONGOING else None
        self.unended = entry.partitions if entry.state in (State.ONGOING, *_DECIDED) else frozenset()

    def naming(self, partition: TopicPartition, epoch: int) -> list[Decision]:
        """Return the decisions for a partition up to an epoch of records there."""
        return [each for each in self.decisions if partition in each.partitions and each.epoch <= epoch]


def outcome_of(decisions: list[Decision], marker: Marker | None) -> Outcome:
    """Return how a transaction ended that is open in a partition.

    `decisions`: those of its producer for the partition; the last one has no marker there. `marker`: the last one of the producer
    in front of the open transaction; transactions that were decided before it have ended there.
    """
    if not decisions:
        return Outcome(None, "the log of its coordinator has no transaction of this producer with this partition")
    if len({each.committed for each in decisions}) == 1:
        return Outcome(decisions[-1].committed)
    if marker is None:
        return Outcome(None, "this producer has committed and aborted here, and its last marker is gone")
    ended = [each for each in decisions if each.at_ms <= marker.at_ms]
    rest = [each for each in decisions if each.at_ms > marker.at_ms]
    # The times are of two brokers: where they contradict the rest of what is known, they prove nothing.
    if not ended or not rest or ended[-1].committed != marker.committed:
        return Outcome(None, "the times of the partition and of its coordinator's log do not fit together")
    if len({each.committed for each in rest}) > 1:
        return Outcome(None, "a committed and an aborted transaction of this producer are open here together")
    return Outcome(rest[-1].committed)


def partition_of(transactional_id: str, partitions: int) -> int:
    """Return the partition of the log that has a transactional id."""
    code = java_hash(transactional_id)
    # As Java's integers have a sign; it has no positive number for the lowest one, and takes 0.
    return (0 if code == 1 << 31 else min(code, (1 << 32) - code)) % partitions


def decode(value: bytes) -> Entry | None:
    """Return the entry of a record's value; None for one of a version that is not known (0 and 1 are)."""
    reader = _Reader(value)
    (version,) = reader.take(">h")
    if version not in (0, 1):
        return None
    tagged = version == 1
    producer_id, epoch, _, state = reader.take(">qhib")
    partitions = frozenset(reader.partitions(tagged))
    updated_ms, _ = reader.take(">qq")
    previous = reader.tags().get(_PREVIOUS_ID) if tagged else None
    ids = {producer_id} if previous is None else {producer_id, *struct.unpack(">q", previous)}
    return Entry(frozenset(ids), epoch, State(state), partitions, updated_ms)


class _Reader:
    """Reads the fields of a record's value one after the other."""

    def __init__(self, data: bytes):
        self._data = data
        self._at = 0

    def take(self, form: str) -> tuple[int, ...]:
        """Return the next numbers."""
        found = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return found

    def partitions(self, tagged: bool) -> list[TopicPartition]:
        """Return the partitions of a transaction. `tagged`: in the form with lengths as varints and with tagged fields."""
        found = []
        for _ in range(self._length(tagged, ">i")):
            topic = self._bytes(self._length(tagged, ">h")).decode()
            found += [TopicPartition(topic, self.take(">i")[0]) for _ in range(self._length(tagged, ">i"))]
            if tagged:
                self.tags()
        return found

    def tags(self) -> dict[int, bytes]:
        """Return tagged fields by their numbers."""
        found = {}
        for _ in range(self._varint()):
            tag = self._varint()
            found[tag] = self._bytes(self._varint())
        return found

    def _length(self, tagged: bool, form: str) -> int:
        # Nothing is written as 0 there, and as -1 here.
        return max(0, self._varint() - 1 if tagged else self.take(form)[0])

    def _bytes(self, length: int) -> bytes:
        self._at += length
        return self._data[self._at - length : self._at]

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
