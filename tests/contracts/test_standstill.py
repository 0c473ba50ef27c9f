"""A consumer notices that its librdkafka client has ceased to fetch a partition that has records, and replaces the client."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from math import inf
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from streamkit.errors import UnreachableError
from streamkit.record import TopicPartition
from streamkit.transport.kafka import KafkaTransport, kafka_consumer
from streamkit.transport.kafka.kafka_consumer import FETCH_CHECK_SECONDS, KafkaConsumer, Standstill
from tests.contracts.records import KAFKA, KAFKA_IN_PYTHON, attempts, create, numbered, produce, read, values

BOTH = pytest.mark.parametrize("transport", [KAFKA, KAFKA_IN_PYTHON], indirect=True)
PLACE, OTHER = TopicPartition("words", 0), TopicPartition("words", 1)


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


@BOTH
def test_a_client_that_has_ceased_to_fetch_is_replaced(
    transport, topic, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kafka_consumer, "FETCH_CHECK_SECONDS", 0.2)
    other = create(transport, 1)
    consumer = cast(KafkaConsumer, transport.consumer(None))
    place, kept = TopicPartition(topic, 0), TopicPartition(other, 0)
    consumer.add({place: 0, kept: 0})
    produce(transport, numbered(topic, 0, 5))
    assert values(read(consumer, 5)) == numbers(0, 5)
    # What a paused partition has fetched is kept, and must not come twice from the new client.
    consumer.pause([kept])
    produce(transport, numbered(other, 0, 5))
    for _ in attempts(lambda: "records of the paused partition"):
        assert consumer.poll(100, 50) == []
        if kept in consumer._buffered and consumer._ends.get(kept) == 5:
            break
    first = consumer._client
    # Behind the consumer's back, as it happens within librdkafka after a restart of a broker.
    first.pause([KafkaPartition(topic, 0)])
    produce(transport, numbered(topic, 5, 10))
    with caplog.at_level(logging.WARNING):
        assert values(read(consumer, 5)) == numbers(5, 10)
    assert f"the client has stopped reading {topic}-0 at 5, although there are records; it is replaced" in caplog.text
    assert consumer._client is not first
    assert consumer.position(place) == 10
    # Else a commit would pass them.
    assert consumer.position(kept) == 0
    consumer.resume([kept])
    assert values(read(consumer, 5)) == numbers(0, 5)
    consumer.close()


def test_a_client_that_answers_nothing_is_replaced_too(broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_consumer, "FETCH_CHECK_SECONDS", 0.2)
    transport = KafkaTransport(broker.address)
    topic = create(transport, 1)
    consumer = cast(KafkaConsumer, transport.consumer(None))
    consumer.add({TopicPartition(topic, 0): 0})
    first = consumer._client
    first.pause([KafkaPartition(topic, 0)])
    look_up = kafka_consumer._ends_from
    monkeypatch.setattr(
        kafka_consumer, "_ends_from", lambda client, wanted: {} if client is first else look_up(client, wanted)
    )
    produce(transport, numbered(topic, 0, 5))
    assert values(read(consumer, 5)) == numbers(0, 5)
    assert consumer._client is not first
    consumer.close()
    transport.close()


class Unanswered:
    """A client that misses that brokers are back; provoked by a fake, since librdkafka does it once in a thousand restarts."""

    def __init__(self, client: Consumer):
        self._client = client

    def list_topics(self, timeout: float) -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def __getattr__(self, name: str) -> object:
        return getattr(self._client, name)


def test_a_client_that_misses_that_brokers_are_back_is_replaced(
    broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    transport = KafkaTransport(broker.address)
    topic = create(transport, 1)
    consumer = cast(KafkaConsumer, transport.consumer(None))
    consumer.add({TopicPartition(topic, 0): 0})
    first = consumer._client
    first.pause([KafkaPartition(topic, 0)])
    produce(transport, numbered(topic, 0, 5))
    monkeypatch.setattr(consumer, "_client", Unanswered(first))
    monkeypatch.setattr(consumer, "_down_since", -inf)
    with caplog.at_level(logging.WARNING):
        assert values(read(consumer, 5)) == numbers(0, 5)
    assert f"the client gets no answer from {broker.address}, although a new one does; it is replaced" in caplog.text
    # Nothing answers the next client: one look for that in a while is enough.
    monkeypatch.setattr(consumer, "_client", Unanswered(consumer._client))
    monkeypatch.setattr(consumer, "_down_since", -inf)
    with pytest.raises(UnreachableError, match=rf"no Kafka broker answers at {broker.address}"):
        consumer.poll(1, 0)
    consumer.close()
    transport.close()


def seen(monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[Mapping[TopicPartition, int]]:
    """Make consumers look so often, and return the positions of each look, which are added as they are made."""
    looks: list[Mapping[TopicPartition, int]] = []

    class Seen(Standstill):
        def look(self, now, positions, ends):  # type: ignore[no-untyped-def]
            looks.append(positions)
            return super().look(now, positions, ends)

    monkeypatch.setattr(kafka_consumer, "FETCH_CHECK_SECONDS", seconds)
    monkeypatch.setattr(kafka_consumer, "Standstill", Seen)
    return looks


@BOTH
def test_partitions_are_looked_at_although_every_poll_is_full(transport, topic, monkeypatch) -> None:
    looks = seen(monkeypatch, 0.02)
    consumer = cast(KafkaConsumer, transport.consumer(None))
    consumer.add({TopicPartition(topic, 0): 0})
    produce(transport, numbered(topic, 0, 5000))
    read(consumer, 1, limit=1)
    for _ in attempts(lambda: "a look"):
        if looks:
            break
        assert len(consumer.poll(1, 5000)) == 1
    consumer.close()


@BOTH
def test_a_partition_that_the_application_pauses_is_no_reason(transport, topic, monkeypatch) -> None:
    looks = seen(monkeypatch, 0.05)
    consumer = cast(KafkaConsumer, transport.consumer(None))
    place = TopicPartition(topic, 0)
    consumer.add({place: 0})
    consumer.pause([place])
    produce(transport, numbered(topic, 0, 5))
    first = consumer._client
    for _ in attempts(lambda: f"{len(looks)} looks"):
        assert consumer.poll(100, 20) == []
        if len(looks) > 4:
            break
    assert consumer._client is first
    assert not any(looks)
    consumer.close()


@BOTH
def test_a_partition_that_was_paused_in_the_client_is_read_when_it_comes_back(transport, topic) -> None:
    consumer = cast(KafkaConsumer, transport.consumer(None))
    place = TopicPartition(topic, 0)
    count = kafka_consumer.MAX_BUFFERED_RECORDS + 5000
    produce(transport, numbered(topic, 0, count))
    consumer.add({place: 0})
    consumer.pause([place])
    for _ in attempts(lambda: "a pause in the client"):
        assert consumer.poll(5000, 50) == []
        if place in consumer._paused_in_client:
            break
    first = consumer._client
    consumer.remove([place])
    consumer.add({place: 0})
    # A client that is replaced would read it too, but only later.
    consumer._standstill.due = float("inf")
    assert values(read(consumer, count, 5000)) == numbers(0, count)
    assert consumer._client is first
    consumer.close()


class Log:
    """Ends by partition, and for which partitions they were asked."""

    def __init__(self, **ends: int):
        self.ends = {TopicPartition("words", int(name[1:])): end for name, end in ends.items()}
        self.asked: list[set[TopicPartition]] = []
        self.new_client: list[bool] = []
        self.is_silent = False
        """Whether only a new client gets a response."""

    def __call__(self, partitions: Iterable[TopicPartition], new_client: bool) -> Mapping[TopicPartition, int]:
        self.asked.append(set(partitions))
        self.new_client.append(new_client)
        return (
            {}
            if self.is_silent and not new_client
            else {place: self.ends[place] for place in self.asked[-1] if place in self.ends}
        )


def test_a_partition_stands_still_if_it_is_behind_twice_at_one_position() -> None:
    log, standstill = Log(p0=9, p1=9), Standstill()
    at = {PLACE: 5, OTHER: 9}
    assert [standstill.look(now, at, log) for now in (0, 15, 30)] == [set(), set(), {PLACE}]


def test_a_partition_that_moves_costs_no_request() -> None:
    log, standstill = Log(p0=9), Standstill()
    for now, position in enumerate((5, 6, 7, 8)):
        assert standstill.look(now, {PLACE: position}, log) == set()
    assert log.asked == []


def test_a_partition_that_moves_between_two_checks_starts_again() -> None:
    log, standstill = Log(p0=9), Standstill()
    found = [standstill.look(now, {PLACE: position}, log) for now, position in enumerate((5, 5, 6, 6))]
    assert found == [set()] * 4
    assert standstill.look(5, {PLACE: 6}, log) == {PLACE}


def test_a_partition_without_a_known_end_is_left_alone() -> None:
    log, standstill = Log(), Standstill()
    assert [standstill.look(now, {PLACE: 5}, log) for now in range(5)] == [set()] * 5


def test_a_new_client_asks_only_after_several_looks_without_a_response() -> None:
    log, standstill = Log(p0=9), Standstill()
    log.is_silent = True
    found = [standstill.look(now, {PLACE: 5}, log) for now in range(7)]
    assert log.new_client == [False, False, True, False, False, True]
    assert found == [set()] * 6 + [{PLACE}]


def test_the_pause_doubles_while_replacing_does_not_help() -> None:
    log, standstill = Log(p0=9), Standstill()
    pauses = []
    for _ in range(9):
        now = standstill.due
        standstill.look(now, {PLACE: 5}, log)
        pauses.append((standstill.due - now) / FETCH_CHECK_SECONDS)
    assert pauses == pytest.approx([1, 1, 2, 2, 2, 4, 4, 4, 8])
    log.ends[PLACE] = 5
    for _ in range(2):
        now = standstill.due
        standstill.look(now, {PLACE: 5}, log)
    assert standstill.due - now == pytest.approx(FETCH_CHECK_SECONDS)
