"""A broker that restarts may have lost a producer's requests; the transaction fails, and the application goes on.

librdkafka says so in three ways, each of them once in some eighty restarts of a broker: hence a client that does.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamkit.errors import FencedError, ProducerLostError, ProductionError, RetriableTransportError, UnreachableError
from streamkit.record import OutputTuple, TopicPartition
from streamkit.transport.kafka.kafka_producer import KafkaProducer
from streamkit.transport.log_interface import CommittedOffset

ABORTABLE = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "skipped sequence numbers", False, False, True)
AFTER_THE_COMMIT = KafkaError(
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "commit succeeded, but the transaction had already failed", True
)
IN_THE_COORDINATOR = KafkaError(KafkaError.UNKNOWN, "EndTxn commit failed: Unknown broker error")
FOR_GOOD = KafkaError(KafkaError._FATAL, "fatal error", True)


class Client:
    """A client whose functions of these names fail."""

    def __init__(self, **failures: KafkaError):
        self._failures = failures
        self.seconds: dict[str, float] = {}
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        def function(*arguments: Any) -> int:
            self.calls[name] += 1
            if arguments and isinstance(arguments[-1], float):
                self.seconds[name] = arguments[-1]
            if name in self._failures:
                raise KafkaException(self._failures[name])
            return 0

        return function


def producer(**failures: KafkaError) -> tuple[KafkaProducer, Client]:
    config = {"bootstrap.servers": "127.0.0.1:1", "transactional.id": "a"}
    made = KafkaProducer(config, 15.0, logging.getLogger("streamkit.kafka"))
    client = Client(**failures)
    made._client, made._link = client, None  # type: ignore[assignment]
    return made, client


OFFSETS = {TopicPartition("words", 0): CommittedOffset(7, "")}


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("send_offsets_to_transaction", ABORTABLE),
        ("commit_transaction", AFTER_THE_COMMIT),
        ("commit_transaction", IN_THE_COORDINATOR),
    ],
)
def test_a_commit_that_fails_for_it_may_be_tried_again(call: str, error: KafkaError) -> None:
    made, _ = producer(**{call: error})
    made.begin()
    with pytest.raises(RetriableTransportError, match=re.escape(error.str())):
        made.commit(OFFSETS, b"group")


def test_a_record_that_fails_for_it_may_be_written_again() -> None:
    made, _ = producer(produce=ABORTABLE)
    made.begin()
    with pytest.raises(ProductionError) as caught:
        made.send([("counts", b"k", b"v", 7, None, 0)])
    assert caught.value.retriable


def test_a_producer_that_has_failed_for_good_is_fenced() -> None:
    made, _ = producer(produce=FOR_GOOD)
    made.begin()
    with pytest.raises(FencedError):
        made.send([("counts", b"k", b"v", 7, None, 0)])


class Link:
    """A link of the native extension that refuses each row with an error."""

    def __init__(self, code: int):
        self._code = code

    def send(self, rows: Sequence[OutputTuple], first: int) -> tuple[int, int]:
        return (first, self._code) if first < len(rows) else (first, 0)

    def failures(self) -> list[tuple[OutputTuple, int]]:
        return []


@pytest.mark.parametrize(("error", "kind"), [(ABORTABLE, ProductionError), (FOR_GOOD, FencedError)])
def test_rows_that_the_extension_refuses_fail_alike(error: KafkaError, kind: type[Exception]) -> None:
    made, _ = producer()
    made._link = Link(error.code())  # type: ignore[assignment]
    made.begin()
    rows = [("counts", b"%d" % each, b"v", 7, None, 0) for each in range(3)]
    with pytest.raises(kind, match="Unable to produce message") as caught:
        made.send(rows)
    assert not isinstance(caught.value, ProductionError) or (caught.value.rows == rows and caught.value.retriable)


def test_an_abort_does_not_wait_long_for_a_broker_that_was_lost() -> None:
    made, client = producer()
    made.begin()
    made.abort()
    assert client.seconds["abort_transaction"] == 15.0
    made._on_client_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    made.abort()
    assert client.seconds["abort_transaction"] == 3.0
    # Once the coordinators have answered again, the next one has its whole time.
    made.commit(OFFSETS, b"group")
    made.abort()
    assert client.seconds["abort_transaction"] == 15.0


def test_an_abort_does_not_wait_long_either_where_a_call_found_no_broker() -> None:
    made, client = producer(
        send_offsets_to_transaction=KafkaError(KafkaError._TIMED_OUT, "after 10004ms", False, False, True)
    )
    made.begin()
    with pytest.raises(UnreachableError):
        made.commit(OFFSETS, b"group")
    made.abort()
    assert client.seconds["abort_transaction"] == 3.0


def test_an_abort_that_fails_does_not_fail_for_records_that_it_drops_anyway() -> None:
    """A thread replaces a producer that can't abort; the failure of a record would end it."""
    made, _ = producer(abort_transaction=KafkaError(KafkaError._TIMED_OUT, "timed out"))
    made.begin()
    made._note_failure(("counts", b"k", b"v", 7, None, 0), KafkaError(KafkaError._MSG_TIMED_OUT))
    with pytest.raises(RetriableTransportError, match="the transaction could not be aborted"):
        made.abort()


def test_an_abort_after_a_commit_without_an_answer_does_not_spin() -> None:
    busy = KafkaError(
        KafkaError._CONFLICT, "Conflicting commit_transaction API call is already in progress", False, True
    )
    made, client = producer(abort_transaction=busy)
    made.begin()
    with pytest.raises(ProducerLostError, match="already in progress"):
        made.abort()
    assert client.calls["abort_transaction"] == 1


def test_a_producer_without_transactions_that_has_failed_for_good_is_lost() -> None:
    made, _ = producer(produce=FOR_GOOD)
    made._transactional = False
    with pytest.raises(ProductionError) as caught:
        made.send([("counts", b"k", b"v", 7, None, 0)])
    assert caught.value.retriable
    assert caught.value.lost_producer


SIZE, RIGHT, CONNECTION = KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._TRANSPORT


@pytest.mark.parametrize(
    ("codes", "retriable", "droppable"),
    [
        ([SIZE], False, True),
        ([RIGHT], False, False),
        ([SIZE, RIGHT], False, False),
        ([CONNECTION], True, True),
        ([SIZE, CONNECTION, RIGHT], True, True),
    ],
)
def test_no_handler_drops_rows_because_of_the_worst_of_several_failures(
    codes: list[int], retriable: bool, droppable: bool
) -> None:
    made, _ = producer()
    made._transactional = False
    for code in codes:
        made._note_failure(("counts", b"k", b"v", 7, None, 0), KafkaError(code))
    with pytest.raises(ProductionError) as caught:
        made.flush()
    assert (caught.value.retriable, caught.value.droppable) == (retriable, droppable)
    assert len(caught.value.rows) == len(codes)
