"""The log of the coordinators as brokers write it, and the outcome of a transaction that has no marker in a partition."""

from __future__ import annotations

import pytest

from streamkit.record import TopicPartition
from streamkit.transport.kafka.transaction_markers import (
    Decision,
    Entry,
    History,
    Marker,
    State,
    decode,
    outcome_of,
    partition_of,
)
from streamkit.transport.log_interface import Outcome

PLACE = TopicPartition("t", 1)
OTHER = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("written", "entry"),
    [
        # Of a broker of 4.2.1 and of 4.4.0, as a consumer reads them.
        (
            "0001000000000000000000010000ea600202027403000000000000000100000001a214f8fbf3000001a214f8fb7d00",
            Entry(frozenset({0}), 1, State.PREPARE_COMMIT, frozenset({OTHER, PLACE}), 0x1A214F8FBF3),
        ),
        (
            "0001000000000000000000000000ea600501000001a214fbc041000001a214fbc0660100080000000000000007",
            Entry(frozenset({0, 7}), 0, State.COMPLETE_ABORT, frozenset(), 0x1A214FBC041),
        ),
        # The first form of the schema, which brokers before 4.0 write: lengths in full, and no tags.
        (
            "0000000000000000000500030000ea600300000001000174000000010000000100000000000000090000000000000008",
            Entry(frozenset({5}), 3, State.PREPARE_ABORT, frozenset({PLACE}), 9),
        ),
        (
            "0000000000000000000500030000ea6000ffffffff0000000000000009ffffffffffffffff",
            Entry(frozenset({5}), 3, State.EMPTY, frozenset(), 9),
        ),
        ("0002", None),
    ],
)
def test_records_of_the_log_are_read(written: str, entry: Entry | None) -> None:
    assert decode(bytes.fromhex(written)) == entry


def test_the_partition_of_a_transactional_id_is_that_of_java() -> None:
    # Of a positive, a negative and the lowest hash code.
    assert partition_of("x-1", 50) == 0x1C81C % 50
    assert partition_of("streams-app-1", 50) == 0x314391D5 % 50
    assert partition_of("polygenelubricants", 50) == 0


def entry(state: State, epoch: int = 0, at: int = 0, partitions: frozenset[TopicPartition] | None = None) -> Entry:
    return Entry(frozenset({5}), epoch, state, frozenset({PLACE}) if partitions is None else partitions, at)


def test_the_history_has_the_epoch_of_the_records() -> None:
    history = History(5)
    for each in (
        entry(State.ONGOING),
        # Brokers raise the epoch at the end of a transaction, if its client knows that.
        entry(State.PREPARE_COMMIT, 1, 10),
        entry(State.COMPLETE_COMMIT, 1, 11, frozenset()),
        # Its beginning is not in the log any more.
        entry(State.PREPARE_ABORT, 5, 20),
        Entry(frozenset({6}), 0, State.ONGOING, frozenset({OTHER}), 21),
    ):
        history.add(each)
    assert history.naming(PLACE, 0) == [Decision(True, 0, frozenset({PLACE}), 10)]
    assert [(each.epoch, each.highest_epoch) for each in history.naming(PLACE, 4)] == [(0, 0), (4, 5)]
    assert history.naming(OTHER, 9) == []
    assert history.unended == {PLACE}
    history.add(entry(State.COMPLETE_ABORT, 5, 22, frozenset()))
    assert history.unended == frozenset()


def decided(*ends: bool) -> list[Decision]:
    """Decisions at 10, 20, …."""
    return [Decision(committed, 0, frozenset({PLACE}), 10 * place) for place, committed in enumerate(ends, 1)]


@pytest.mark.parametrize(
    ("ends", "marker", "committed", "reason"),
    [
        ((), None, None, "no transaction of this producer with this partition"),
        ((True,), None, True, ""),
        ((False, False), None, False, ""),
        ((False, True), None, None, "its last marker is gone"),
        # The last marker is that of the first transaction: the second one is open.
        ((False, True), Marker(False, 12), True, ""),
        ((True, False), Marker(True, 10), False, ""),
        ((True, False, True, True), Marker(False, 22), True, ""),
        # Of three, two have lost their ends.
        ((True, True, False), Marker(True, 12), None, "open here together"),
        # Clocks that differ.
        ((False, True), Marker(True, 12), None, "do not fit together"),
        ((False, True), Marker(False, 22), None, "do not fit together"),
        ((False, True), Marker(False, 2), None, "do not fit together"),
    ],
)
def test_the_outcome_is_known_only_where_it_is_certain(
    ends: tuple[bool, ...], marker: Marker | None, committed: bool | None, reason: str
) -> None:
    found = outcome_of(decided(*ends), marker)
    assert (found.committed, found.alive) == (committed, False)
    assert reason in found.reason
    assert bool(reason) == bool(found.reason)


def test_of_a_producer_that_waits_for_its_markers_the_last_transaction_is_open() -> None:
    assert outcome_of(decided(True, False), None, one_open=True) == Outcome(False)
    # Markers that contradict it leave the outcome unknown.
    assert outcome_of(decided(True, True, False), Marker(True, 12), one_open=True).committed is None
    assert outcome_of([], None, one_open=True).committed is None
